//! Staged restarts: content that pods do not bear stops at one workload.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{RealScene, workload::Workload};
use serde_json::{Value, json};

#[tokio::test]
async fn content_that_makes_pods_sick_stops_at_one_workload_until_it_is_corrected() -> Result<()> {
    RealScene::play("staged", Value::Null, async |scene| {
        let names = ["first", "second", "third"];
        scene.set("app", "good").await?;
        for name in names {
            scene.create(&staged(scene, name)).await?;
        }
        let before = revisions(scene, names).await?;

        scene.set("app", "bad").await?;
        scene.event("RestartHalted").await?;
        ensure!(
            rollouts(scene, names, &before).await? == 1,
            "not only one is sick"
        );
        // Old pods go on, also of the sick one.
        for name in names {
            let answers = scene.answers(name, "/file/part").await?;
            ensure!(
                answers.contains(&Some("good".to_owned())),
                "{name}: {answers:?}"
            );
        }

        scene.set("app", "better").await?;
        for name in names {
            scene.all_answer(name, "/file/part", "better").await?;
            scene.rolled_out(name).await?;
        }
        // The sick one has one more than the others.
        ensure!(rollouts(scene, names, &before).await? == names.len() + 1);
        Ok(())
    })
    .await
}

/// Returns a Deployment whose pods are not ready with the content `bad` at their start: a file of a `subPath` stays as it
/// is.
fn staged(scene: &RealScene, name: &str) -> Workload {
    let container = json!({
        "env": [{"name": "READY_FILE", "value": "/part"}],
        "volumeMounts": [{"name": "whole", "mountPath": "/part", "subPath": "key"}],
    });
    let volume = json!({"volumes": [{"name": "whole", "configMap": {"name": "app"}}]});
    scene
        .answering(name, 1, &container, &volume)
        .annotated("pod-reloader.cs.sap.com/staged", "all")
        .annotated("pod-reloader.cs.sap.com/soak", "1s")
        .annotated("pod-reloader.cs.sap.com/deadline", "20s")
}

async fn revisions(scene: &RealScene, names: [&str; 3]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for name in names {
        all.extend(scene.revisions(name).await?);
    }
    Ok(all)
}

/// Counts the rollouts of all of them since `before`.
async fn rollouts(scene: &RealScene, names: [&str; 3], before: &[String]) -> Result<usize> {
    let now = revisions(scene, names).await?;
    Ok(now.iter().filter(|name| !before.contains(name)).count())
}
