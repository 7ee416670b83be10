//! Pods of StatefulSets that never become ready with a bad configuration, and are in the way of the corrected one.
//!
//! No scheduler looks after these pods: the tests bind them to a node, where kwok makes them ready. A pod that is
//! not bound stands for one that cannot start with its configuration.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::{CONFIG_HASH, Kind, Workload, config_map};
use pod_reloader_e2e::{Attempt, Mark, Options, PATIENCE, Scene, done_with, wait_for};
use serde_json::{Value, json};

/// The time for which a pod is in the way before it is deleted.
const AFTER: Duration = Duration::from_secs(2);

/// Returns the values of the chart that let the operator delete such pods.
pub(crate) fn unsticking() -> Value {
    json!({"unstick": {"enabled": true, "after": format!("{}s", AFTER.as_secs())}})
}

#[tokio::test]
async fn without_the_option_a_stateful_set_stays_stuck_until_somebody_deletes_its_pod() -> Result<()>
{
    Scene::play(Options::default(), async |scene| {
        let mark = scene.mark().await?;
        let (db, bad) = stuck(scene).await?;
        // The controller deletes pods before it says that it has observed a generation, and the operator would read
        // the pods before it waits.
        scene.snapshot(&db).await?;
        scene.quiet().await?;
        ensure!(pod(scene, &db, 1).await?.uid == bad.uid, "it was replaced");
        let requests = scene.requests(mark).await?;
        let about_pods = requests.iter().find(|it| it.resource == "pods");
        ensure!(about_pods.is_none(), "{about_pods:?}");
        scene.delete(&format!("pod/{}", bad.name)).await?;
        becomes_right(scene, &db, 1).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_that_becomes_ready_while_it_is_deleted_stays() -> Result<()> {
    let options = Options {
        proxied: true,
        values: unsticking(),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let path = format!("/api/v1/namespaces/{}/pods/", scene.namespace);
        let deletions = Requests::under(&path).method(Method::DELETE);
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        let held = proxy.add(Rule::new(deletions, Fault::Delay(PATIENCE)));
        let mark = scene.mark().await?;
        let (db, bad) = stuck(scene).await?;
        held.applied(1, PATIENCE).await?;
        // The operator gives up its request after ten seconds, so nothing is waited for here. The controller deletes
        // the pod as soon as it is ready; until the deletion of the operator has come, it must not be gone.
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let params = PatchParams::default();
        let kept = |by: Value| Patch::Merge(json!({"metadata": {"finalizers": by}}));
        pods.patch(&bad.name, &params, &kept(json!(["example.com/keep"])))
            .await?;
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let ready = Patch::Merge(json!({"status": {"phase": "Running", "conditions": ready}}));
        pods.patch_status(&bad.name, &params, &ready).await?;
        held.remove();
        let codes = wait_for("the answer", PATIENCE, async || {
            let codes = deletions_since(scene, mark).await?;
            done_with(!codes.is_empty(), "no answer", codes)
        })
        .await?;
        ensure!(codes == [Some(409)], "{codes:?}");
        // It is ready, so the controller itself replaces it, and the operator does not.
        pods.patch(&bad.name, &params, &kept(Value::Null)).await?;
        becomes_right(scene, &db, 1).await?;
        scene.quiet().await?;
        let events = scene.events(&db).await?;
        ensure!(
            events.iter().all(|(reason, _)| reason != "StuckPodDeleted"),
            "{events:?}"
        );
        Ok(())
    })
    .await
}

/// Lets a StatefulSet get stuck and go on by itself.
pub(crate) async fn goes_on(scene: &Scene) -> Result<()> {
    let mark = scene.mark().await?;
    let (db, bad) = stuck(scene).await?;
    let note = scene.event(&db, "StuckPodDeleted").await?;
    ensure!(note.contains(&bad.name), "{note}");
    let second = becomes_right(scene, &db, 1).await?;
    ensure!(second.uid != bad.uid, "it was not replaced");
    // The rest is the controller's, which replaces a ready pod only when all are ready.
    becomes_right(scene, &db, 0).await?;
    let codes = deletions_since(scene, mark).await?;
    ensure!(codes == [Some(200)], "{codes:?}");
    Ok(())
}

/// Returns the answers to the deletions of pods that the operator has asked for.
async fn deletions_since(scene: &Scene, mark: Mark) -> Result<Vec<Option<u16>>> {
    let requests = scene.requests(mark).await?;
    let deletions = requests.iter();
    let deletions = deletions.filter(|it| it.verb == "delete" && it.resource == "pods");
    Ok(deletions.map(|it| it.code).collect())
}

/// A pod as it was seen.
struct Seen {
    name: String,
    uid: String,
    hash: String,
    is_ready: bool,
    is_bound: bool,
}

/// Creates a StatefulSet of two pods, gives it a configuration with which its second pod does not become ready, and
/// corrects that. Returns it with that pod.
async fn stuck(scene: &Scene) -> Result<(Workload, Seen)> {
    let template = ["spec", "template", "spec", "schedulerName"];
    let db = Workload::new(Kind::StatefulSet, "db")
        .lists("app")
        .with(&["spec", "replicas"], json!(2))
        .with(&template, json!("the-test"));
    scene.apply(&[config_map("app", "1")]).await?;
    scene.create_all(std::slice::from_ref(&db)).await?;
    for ordinal in [0, 1] {
        becomes_right(scene, &db, ordinal).await?;
    }
    let first = pod(scene, &db, 1).await?;
    scene.apply(&[config_map("app", "bad")]).await?;
    let bad = wait_for("the bad pod", PATIENCE, async || {
        Ok(match pod(scene, &db, 1).await {
            Ok(pod) if pod.uid != first.uid => Attempt::Done(pod),
            Ok(pod) => Attempt::NotYet(pod.uid),
            Err(error) => Attempt::NotYet(error.to_string()),
        })
    })
    .await?;
    scene.apply(&[config_map("app", "good")]).await?;
    scene.right(&db).await?;
    Ok((db, bad))
}

/// Binds the pods of an ordinal that have the present hash, until one of them is ready, and returns it.
async fn becomes_right(scene: &Scene, db: &Workload, ordinal: u32) -> Result<Seen> {
    wait_for("a ready pod with the present hash", PATIENCE, async || {
        let hash = scene.key(db).await?;
        let seen = match pod(scene, db, ordinal).await {
            Ok(seen) => seen,
            Err(error) => return Ok(Attempt::NotYet(error.to_string())),
        };
        let is_right = hash.as_deref() == Some(&seen.hash);
        // It may be deleted meanwhile, because another one is to take its place.
        if is_right
            && !seen.is_bound
            && let Err(error) = bind(scene, &seen).await
        {
            return Ok(Attempt::NotYet(error.to_string()));
        }
        Ok(match is_right && seen.is_ready {
            true => Attempt::Done(seen),
            false => Attempt::NotYet(format!("{}: {} is not {hash:?}", seen.name, seen.hash)),
        })
    })
    .await
}

async fn pod(scene: &Scene, db: &Workload, ordinal: u32) -> Result<Seen> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let name = format!("{}-{ordinal}", db.name);
    let pod = pods.get(&name).await?;
    let conditions = pod.status.and_then(|it| it.conditions).unwrap_or_default();
    let annotations = pod.metadata.annotations.unwrap_or_default();
    Ok(Seen {
        name,
        uid: pod.metadata.uid.context("a pod has a UID")?,
        hash: annotations.get(CONFIG_HASH).cloned().unwrap_or_default(),
        is_ready: conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.status == "True"),
        is_bound: pod.spec.is_some_and(|it| it.node_name.is_some()),
    })
}

/// Lets a pod run, as a scheduler does.
async fn bind(scene: &Scene, pod: &Seen) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
    });
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/binding",
        scene.namespace, pod.name
    );
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes())?;
    scene.client.request::<Value>(request).await?;
    Ok(())
}
