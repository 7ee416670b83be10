//! Pods that reload changed config in place of a restart. kwok runs no containers: the tests play what runs in them,
//! and the kubelets that bring changed config into their files.

mod pods;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{BASELINE, Workload, config_map, secret};
use pod_reloader_e2e::{Options, Scene, Snapshot, mentions};
use serde_json::{Value, json};

use self::pods::Pods;

const RELOAD_URL: &str = "pod-reloader.cs.sap.com/reload-url";
const RELOAD_DELAY: &str = "pod-reloader.cs.sap.com/reload-delay";
/// What no trace may be left of.
const CANARY: &str = "hunter2-reloaded";

/// Returns the options of a scene in which pods may reload.
fn reloading() -> Options {
    Options::with_values(json!({"httpReload": {"enabled": true}}))
}

/// Returns a Deployment of so many pods, which have ConfigMap `app` and Secret `token` as files and reload at this port.
fn web(replicas: u64, port: u16) -> Workload {
    let sources = json!([{"configMap": {"name": "app"}}, {"secret": {"name": "token"}}]);
    let container = json!({
        "name": "main",
        "image": "app:1",
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    });
    Workload::deployment("web")
        .lists("app")
        .lists_secrets("token")
        .annotated(RELOAD_URL, &format!("http://:{port}/-/reload"))
        .annotated(RELOAD_DELAY, "1s")
        .with(&["spec", "replicas"], json!(replicas))
        .with(
            &["spec", "template", "spec", "containers"],
            json!([container]),
        )
        .with(
            &["spec", "template", "spec", "volumes"],
            json!([{"name": "config", "projected": {"sources": sources}}]),
        )
}

#[tokio::test]
async fn pods_reload_in_place_and_are_restarted_if_one_of_them_cannot() -> Result<()> {
    Scene::play(reloading(), async |scene| {
        let pods = Pods::of(scene, "web").await?;
        let web = web(3, pods.port());
        let before = at_rest(scene, &web, &pods, 3).await?;

        // Each pod is asked once it has the change, and nothing rolls.
        scene.apply(&[config_map("app", "2")]).await?;
        says(scene, &web, "reloaded 3 pods: ConfigMap app changed").await?;
        ensure!(pods.reloaded() == ["2", "2", "2"], "{:?}", pods.reloaded());
        stays(scene, &web, &before).await?;
        // A GitOps tool that applies the same again, an edit of labels and a restart of the operator change nothing.
        scene.apply(&[web.manifest()]).await?;
        let web = web.labelled("team", "shop");
        scene.apply(&[web.manifest()]).await?;
        scene.operator.restart().await?;
        scene.quiet().await?;
        stays(scene, &web, &before).await?;
        ensure!(pods.reloaded().is_empty(), "they were asked again");

        // A Secret leaves no trace.
        scene.apply(&[secret("token", CANARY)]).await?;
        says(scene, &web, "reloaded 3 pods: Secret token changed").await?;
        ensure!(pods.reloaded().len() == 3, "{:?}", pods.reloaded());
        leaves_no_trace(scene, &web).await?;

        // Meanwhile, one pod goes, and another one comes, which starts with the change.
        pods.wait_to_be_told(true);
        scene.apply(&[config_map("app", "3")]).await?;
        let synced = pods.synced(3).await?;
        scene.delete(&format!("pod/{}", synced[0])).await?;
        pods.gone(&synced[0]).await?;
        pods.wait_to_be_told(false);
        says(scene, &web, "reloaded 2 pods: ConfigMap app changed").await?;
        ensure!(pods.reloaded() == ["3", "3"], "{:?}", pods.reloaded());
        stays(scene, &web, &before).await?;

        // If one of them cannot, all are restarted.
        pods.serve(3).await?;
        pods.refuse_one();
        scene.apply(&[config_map("app", "4")]).await?;
        let failed = scene.event(&web, "ReloadFailed").await?;
        mentions(&failed, "answered 500")?;
        says(scene, &web, "restarting pods: ConfigMap app changed").await?;
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_pods_have_in_their_environment_restarts_them_with_a_warning() -> Result<()> {
    Scene::play(reloading(), async |scene| {
        let variable = json!([{"configMapRef": {"name": "app"}}]);
        let env = Workload::deployment("env")
            .lists("app")
            .annotated(RELOAD_URL, "http://:1/-/reload")
            .with(
                &["spec", "template", "spec", "containers"],
                json!([{"name": "main", "image": "app:1", "envFrom": variable}]),
            );
        scene.apply(&[config_map("app", "1")]).await?;
        let manifest = env.manifest().to_string();
        let output = scene
            .kubectl_output(&["apply", "--filename=-"], &manifest)
            .await?;
        mentions(&output.stderr, "as files alone")?;
        let before = scene.snapshot(&env).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&env, &before).await?;
        let requests = scene.requests(mark).await?;
        let of_pods = requests.iter().filter(|it| it.resource == "pods").count();
        ensure!(of_pods == 0, "{of_pods} requests about pods");
        Ok(())
    })
    .await
}

/// Lets the pods of a workload reload a change.
pub(crate) async fn reload_a_change(scene: &Scene) -> Result<()> {
    let pods = Pods::of(scene, "web").await?;
    let web = web(1, pods.port());
    let before = at_rest(scene, &web, &pods, 1).await?;
    scene.apply(&[config_map("app", "reloaded")]).await?;
    says(scene, &web, "reloaded 1 pod: ConfigMap app changed").await?;
    stays(scene, &web, &before).await
}

/// Returns the values that let pods reload.
pub(crate) fn values() -> Value {
    reloading().values
}

/// Creates a workload with its config, and lets so many pods of it run.
async fn at_rest(scene: &Scene, web: &Workload, pods: &Pods<'_>, count: usize) -> Result<Snapshot> {
    scene
        .apply(&[config_map("app", "1"), secret("token", "1")])
        .await?;
    scene.create(web).await?;
    scene.right(web).await?;
    pods.serve(count).await?;
    scene.snapshot(web).await
}

/// Asserts that the pod template of a workload is as it was, and that its baseline says what its pods have.
async fn stays(scene: &Scene, web: &Workload, before: &Snapshot) -> Result<()> {
    let hash = scene.expected_key(web).await?;
    let of_template = before.key.as_deref().unwrap_or_default();
    let expected = format!("{of_template}!={hash}");
    scene.has_baseline(web, Some(&expected)).await?;
    let after = scene.snapshot(web).await?;
    ensure!(after == *before, "{after:?}, {before:?}");
    Ok(())
}

/// Waits for an Event with this text.
async fn says(scene: &Scene, web: &Workload, note: &str) -> Result<()> {
    let said = scene.event_that(web, note, |_, it| it == note);
    said.await.map(drop)
}

/// Asserts that nothing that anybody can see has the value of the Secret.
async fn leaves_no_trace(scene: &Scene, web: &Workload) -> Result<()> {
    let pods = scene.kubectl(&["get", "pods", "--output=json"]).await?;
    let workload = scene.object(&web.reference()).await?;
    ensure!(workload["metadata"]["annotations"][BASELINE].is_string());
    let events = format!("{:?}", scene.events(web).await?);
    let log = scene.operator.log()?;
    for text in [pods, workload.to_string(), events, log] {
        ensure!(!text.contains(CANARY), "{text}");
    }
    Ok(())
}
