//! `impact` and `explain` on protected objects.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, secret};
use pod_reloader_e2e::{CANARY, Options, PATIENCE, Scene, done_if, merge, wait_for};
use serde_json::json;

use super::{json_of, plugin, text};

#[tokio::test]
async fn impact_names_every_user_of_an_object_whose_deletion_was_refused() -> Result<()> {
    let options = Options::with_values(json!({"protect": {"enabled": true}}));
    Scene::play(options, async |scene| {
        let mut creds = secret("creds", CANARY);
        let in_use = json!({"metadata": {"labels": {"pod-reloader.cs.sap.com/protect": "in-use"}}});
        merge(&mut creds, &in_use);
        scene.apply(&[creds]).await?;
        let web = Workload::deployment("web").requires_secret("creds");
        let web = web.with(&["spec", "replicas"], json!(6));
        let later = Workload::deployment("later").requires_secret("creds");
        let later = later.with(&["spec", "replicas"], json!(0));
        for workload in [&web, &later] {
            scene.create(workload).await?;
        }
        scene.rolled_out(&web).await?;
        let delete = ["delete", "secret", "creds", "--dry-run=server"];
        wait_for("the deletion to be refused", PATIENCE, async || {
            let output = scene.kubectl_output(&delete, "").await?;
            done_if(
                output.stderr.contains(" and 2 more. It has the label"),
                format!("{output:?}"),
            )
        })
        .await?;

        let told = text(scene, &["impact", "secret/creds"]).await?;
        let line = "=in-use: it is not deleted while a pod uses it.\n";
        ensure!(told.contains(line), "{told}");
        ensure!(told.matches("\n  Pod web-").count() == 6, "{told}");
        let last = "\n  Deployment web\n\nUsed later by the pods of\n  Deployment later\n";
        ensure!(told.ends_with(last), "{told}");
        let told = json_of(scene, &["impact", "secret/creds"]).await?;
        let users = told["usedBy"].as_array().map(Vec::len);
        ensure!(told["protect"] == "in-use" && users == Some(7), "{told:#}");
        let told = plugin(scene, &["explain", "deploy/web"]).await?;
        ensure!(told.stdout.contains("protected: in-use"), "{told:?}");
        Ok(())
    })
    .await
}
