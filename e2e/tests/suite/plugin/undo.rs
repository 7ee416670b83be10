//! `history` and `undo`: users see what changed in the ConfigMaps of a workload, and bring an earlier revision of them
//! back.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{CANARY, Options, Scene, mentions};
use serde_json::{Value, json};

use super::{bind, explained, json_of, plugin, text, text_of};
use crate::pins::{PINS, UNDONE};

#[tokio::test]
async fn users_see_what_changed_and_bring_an_earlier_configuration_back() -> Result<()> {
    let options = Options::with_values(json!({"pin": {"enabled": true}}));
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "one"), secret("creds", CANARY)])
            .await?;
        let workloads = Kind::ALL.map(pinned);
        for workload in &workloads {
            scene.create(workload).await?;
        }
        for value in ["two", "three"] {
            scene.apply(&[config_map("app", value)]).await?;
            for workload in &workloads {
                text(scene, &["wait", &workload.reference()]).await?;
            }
        }
        for workload in &workloads {
            shows_what_changed(scene, workload).await?;
            goes_back(scene, workload).await?;
        }
        refuses(scene).await?;
        goes_on(scene, &workloads[0]).await
    })
    .await
}

/// Returns a workload called `web` that pins the ConfigMap it tracks, and tracks a Secret.
fn pinned(kind: Kind) -> Workload {
    let workload = Workload::new(kind, "web").lists("app");
    let workload = workload.annotated("pod-reloader.cs.sap.com/pin", "configmaps");
    workload.lists_secrets("creds")
}

async fn shows_what_changed(scene: &Scene, workload: &Workload) -> Result<()> {
    let reference = workload.reference();
    let keys = json_of(scene, &["history", &reference, "--diff"]).await?;
    let key = json!({"key": "key", "change": "changed"});
    let app = json!({"name": "app", "change": "changed", "keys": [key]});
    let changes = json!([
        {"from": 2, "to": 3, "configMaps": [app]},
        {"from": 1, "to": 2, "configMaps": [app]},
    ]);
    ensure!(keys["changes"] == changes, "{keys:#}");
    ensure!(keys["revisions"][0]["isPresent"] == true, "{keys:#}");
    let values = text(scene, &["history", &reference, "--diff", "--values"]).await?;
    for line in ["      -one\n      +two\n", "      -two\n      +three\n"] {
        mentions(&values, line)?;
    }
    let all = keys.to_string() + &values;
    for hidden in [CANARY, "creds", "aHVudGVyMi1jYW5hcnkt"] {
        ensure!(!all.contains(hidden), "{hidden} is in\n{all}");
    }
    Ok(())
}

async fn goes_back(scene: &Scene, workload: &Workload) -> Result<()> {
    let reference = workload.reference();
    let before = scene.object(&reference).await?;
    let mark = scene.mark().await?;
    let told = json_of(scene, &["undo", &reference, "--to-revision=1"]).await?;
    ensure!(
        told["undone"] == true && told["changed"] == true && told["revision"] == 1,
        "{told:#}"
    );
    let copy = told["pins"]["app"].as_str().context("no copy")?;
    let content = scene.object(&format!("configmap/{copy}")).await?;
    ensure!(content["data"]["key"] == "one", "{content:#}");
    let after = scene.object(&reference).await?;
    let template = |object: &Value| {
        let mut template = object["spec"]["template"].clone();
        template["metadata"]["annotations"].take();
        template
    };
    ensure!(template(&after) == template(&before), "{after:#}");
    ensure!(pins(&after) == json!(format!("app={copy}")), "{after:#}");
    let undone = &after["metadata"]["annotations"][UNDONE];
    ensure!(*undone == pins(&before), "{after:#}");
    let requests = scene.requests_of_plugin(mark).await?;
    let writes = requests.iter().filter(|request| {
        !["get", "list"].contains(&&*request.verb) && !request.uri.contains("dryRun=All")
    });
    ensure!(writes.count() == 1, "{requests:?}");

    text(scene, &["wait", &reference]).await?;
    let told = explained(scene, workload, &[]).await?;
    ensure!(
        told["undone"] == json!(["app"]) && told["pins"]["app"] == *copy,
        "{told:#}"
    );
    let again = text(scene, &["undo", &reference, "--to-revision=4"]).await?;
    mentions(&again, "it has the configuration of revision 4 already")?;
    Ok(())
}

fn pins(object: &Value) -> Value {
    object["spec"]["template"]["metadata"]["annotations"][PINS].clone()
}

async fn refuses(scene: &Scene) -> Result<()> {
    bind(scene, "view", "viewer").await?;
    let plain = Workload::deployment("plain").lists("app");
    scene.create(&plain).await?;
    let forbidden = r#"deployments.apps "web" is forbidden: User "viewer" cannot patch"#;
    for (args, line) in [
        (&["undo", "deploy/plain"][..], "it is not pinned"),
        (
            &["undo", "deploy/web", "--to-revision=9"],
            "there is no revision 9",
        ),
        (&["undo", "deploy/web", "--as=viewer"], forbidden),
    ] {
        let told = text_of(scene, args, 1).await?;
        mentions(&told, line)?;
    }
    let history = json_of(scene, &["history", "deploy/web"]).await?;
    let revisions = history["revisions"].as_array().context("no revisions")?;
    let second = revisions.iter().find(|it| it["revision"] == 2);
    let copy = second.and_then(|it| it["pins"]["copies"]["app"].as_str());
    let copy = copy.context("no copy")?;
    scene.delete(&format!("configmap/{copy}")).await?;
    let gone = format!("copy {copy} is gone");
    let told = text_of(scene, &["undo", "deploy/web", "--to-revision=2"], 1).await?;
    mentions(&told, &gone)?;
    let told = plugin(scene, &["history", "deploy/web", "--diff"]).await?;
    ensure!(
        told.code == Some(3) && told.stdout.contains(&gone),
        "{told:?}"
    );
    Ok(())
}

/// The latest revision with another configuration is that which was undone.
async fn goes_on(scene: &Scene, web: &Workload) -> Result<()> {
    let before = scene.snapshot(web).await?;
    scene.rolls_not(web, &before).await?;
    let told = text(scene, &["undo", "deploy/web"]).await?;
    mentions(&told, "has the configuration of revision 3 again")?;
    let after = scene.object("deploy/web").await?;
    let undone = &after["metadata"]["annotations"][UNDONE];
    ensure!(undone.is_null(), "{after:#}");
    scene.right(web).await
}
