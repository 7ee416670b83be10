//! `hold`, `release` and `approve`: users keep restarts back, and let exactly one content through. `wait` ends when
//! a failed workload halts the others.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{CANARY, Options, Scene, mentions};
use serde_json::{Value, json};

use super::{bind, ended, json_of, text, text_of};

#[tokio::test]
async fn users_hold_and_release_workloads_and_approve_exactly_one_content() -> Result<()> {
    let options =
        Options::with_values(json!({"staged": {"byDefault": "configmaps", "soak": "1s"}}));
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("creds", CANARY)])
            .await?;
        let web = Workload::deployment("web")
            .lists("app")
            .lists_secrets("creds");
        scene.create(&web).await?;
        holds_and_releases(scene, &web).await?;
        approves(scene, &web).await?;
        halts(scene).await
    })
    .await
}

async fn holds_and_releases(scene: &Scene, web: &Workload) -> Result<()> {
    let before = scene.snapshot(web).await?;
    let told = text(scene, &["hold", "secret/creds"]).await?;
    ensure!(told == "secret/creds: on hold\n", "{told}");
    scene.apply(&[config_map("app", "2")]).await?;
    let note = scene.event(web, "RestartPending").await?;
    mentions(&note, "Secret creds has the annotation")?;
    scene.rolls_not(web, &before).await?;

    bind(scene, "view", "viewer").await?;
    let objects = ["secret/creds", "deploy/web", "deploy/gone"];
    let args = [&["release"], &objects[..], &["--as=viewer"]].concat();
    let told = text_of(scene, &args, 1).await?;
    for line in [
        r#"secret/creds: Error from server (Forbidden): secrets "creds" is forbidden: User "viewer" cannot get"#,
        "deploy/web: was not on hold",
        r#"deploy/gone: Error from server (NotFound): deployments.apps "gone" not found"#,
    ] {
        mentions(&told, line)?;
    }
    let told = text_of(scene, &["hold", "deploy", "web", "--as=viewer"], 1).await?;
    let line = r#"deployments.apps "web" is forbidden: User "viewer" cannot patch"#;
    mentions(&told, line)?;

    let told = json_of(scene, &["release", "secret/creds"]).await?;
    let object = &told["objects"][0];
    ensure!(
        object["done"] == true && object["changed"] == true,
        "{told:#}"
    );
    scene.rolls_once(web, &before).await?;
    let get = [
        "get",
        "secret",
        "creds",
        "--output=json",
        "--show-managed-fields",
    ];
    let secret: Value = serde_json::from_str(&scene.kubectl(&get).await?)?;
    let managers = secret["metadata"]["managedFields"].as_array();
    let mut managers = managers.context("no managed fields")?.iter();
    ensure!(!secret.to_string().contains("/hold"), "{secret:#}");
    ensure!(
        managers.all(|it| it["manager"] != "pod-reloader-plugin"),
        "{secret:#}"
    );
    Ok(())
}

async fn approves(scene: &Scene, web: &Workload) -> Result<()> {
    let told = text_of(scene, &["approve", "deploy/web"], 1).await?;
    ensure!(told.ends_with(": it needs no approval\n"), "{told}");
    let approval = "pod-reloader.cs.sap.com/approval=required";
    scene
        .kubectl(&["annotate", "deployment", "web", approval])
        .await?;
    let told = text(scene, &["approve", "deploy/web"]).await?;
    ensure!(told.ends_with(": nothing is pending\n"), "{told}");

    let before = scene.snapshot(web).await?;
    scene.apply(&[config_map("app", "3")]).await?;
    let other = ["approve", "deploy/web", "--content=00000000"];
    let told = json_of(scene, &other).await?;
    ensure!(
        told["approved"] == false && told["changed"] == false,
        "{told:#}"
    );
    let seen = told["pending"].as_str().context("no digits")?.to_owned();

    // The content changes before somebody approves what was seen.
    scene.apply(&[config_map("app", "4")]).await?;
    let seen = format!("--content={seen}");
    let refused = ended(scene, &["approve", "deploy/web", &seen], 1).await?;
    mentions(&refused.stdout, "not approved: content")?;
    scene.rolls_not(web, &before).await?;

    let mark = scene.mark().await?;
    let told = json_of(scene, &["approve", "deploy/web"]).await?;
    ensure!(
        told["approved"] == true && told["changed"] == true,
        "{told:#}"
    );
    let after = scene.rolls_once(web, &before).await?;
    let digits = told["pending"].as_str().context("no digits")?;
    let hash = after.key.context("no hash")?;
    ensure!(hash.contains(&format!(".{digits}")), "{hash}: {told:#}");
    let again = format!("--content={digits}");
    let told = text(scene, &["approve", "deploy/web", &again]).await?;
    ensure!(told.ends_with(": nothing is pending\n"), "{told}");
    let requests = scene.requests_of_plugin(mark).await?;
    let writes = requests.iter().filter(|request| {
        !["get", "list"].contains(&&*request.verb) && !request.uri.contains("dryRun=All")
    });
    ensure!(writes.count() == 1, "{requests:?}");
    Ok(())
}

async fn halts(scene: &Scene) -> Result<()> {
    let shop = |name: &str| {
        let shop = Workload::deployment(name).lists("shop");
        shop.annotated("pod-reloader.cs.sap.com/deadline", "3s")
    };
    let (first, other) = (shop("first"), shop("other"));
    scene.apply(&[config_map("shop", "1")]).await?;
    for workload in [&first, &other] {
        scene.create(workload).await?;
    }
    let both = ["wait", "deploy", "first", "other"];
    text(scene, &both).await?;
    let impact = json_of(scene, &["impact", "cm/shop"]).await?;
    let steps = json!([["Deployment first"], ["Deployment other"]]);
    ensure!(impact["steps"] == steps, "{impact:#}");

    // No pod is created any more, which stands for pods that cannot start with the new content.
    scene
        .kubectl(&["create", "quota", "none", "--hard=pods=0"])
        .await?;
    scene.apply(&[config_map("shop", "2")]).await?;
    scene.event(&other, "RestartHalted").await?;
    let waited = ended(scene, &["wait", "deploy/other", "--timeout=10m"], 1).await?;
    let culprit = "Deployment first got the changed config first, and has not become healthy";
    mentions(&waited.stdout, culprit)?;

    // The newest Event is still about the halt.
    scene.kubectl(&["delete", "quota", "none"]).await?;
    scene.apply(&[config_map("shop", "3")]).await?;
    text(scene, &both).await?;
    Ok(())
}
