//! Changes of content restart pods once; everything else does not.

use anyhow::Result;
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{Options, Scene};

#[tokio::test]
async fn a_change_of_content_rolls_every_kind_of_workload_once() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("app", "1")])
            .await?;
        for kind in Kind::ALL {
            let workload = Workload::new(kind, "web").lists("app").lists_secrets("app");
            let before = scene.create(&workload).await?;
            assert_eq!(
                before.key,
                Some(scene.expected_key(&workload).await?),
                "set on create"
            );
            scene
                .apply(&[config_map("app", &format!("2 {kind:?}"))])
                .await?;
            let before = scene.rolls_once(&workload, &before).await?;
            scene
                .apply(&[secret("app", &format!("2 {kind:?}"))])
                .await?;
            scene.rolls_once(&workload, &before).await?;
        }
        Ok(())
    })
    .await
}
