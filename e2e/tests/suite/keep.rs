//! ConfigMaps that come back if they are deleted while they are in use.

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pod_reloader_e2e::caller::{Caller, forged_deletion};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::Workload;
use pod_reloader_e2e::{
    Attempt, AuditEvent, Mark, Options, PATIENCE, Scene, done_if, merge, wait_for,
};
use serde_json::{Value, json};

const KEPT: &str = "pod-reloader.cs.sap.com/kept";
const FLUX: &str = "kustomize-controller";

/// Returns options of an operator that keeps what is in use, and soon deletes what is not any more.
fn keeping(values: &Value) -> Options {
    let mut all = json!({"protect": {"enabled": true}});
    merge(&mut all, values);
    Options {
        args: vec!["--copy-grace-period=1s".to_owned()],
        values: all,
        ..Options::default()
    }
}

fn config_maps(scene: &Scene) -> Api<ConfigMap> {
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

/// Returns a ConfigMap as a tool generates it from Git.
fn generated(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": {
                "kustomize.toolkit.fluxcd.io/name": "app",
                "pod-reloader.cs.sap.com/protect": "keep",
            },
            "annotations": {"argocd.argoproj.io/tracking-id": "app:/ConfigMap:app"},
        },
        "data": {"key": value, "other": "ä\n"},
        "binaryData": {"bytes": "AAEC/w=="},
    })
}

/// Writes a ConfigMap as Flux does.
async fn sync(scene: &Scene, object: &Value) -> Result<ConfigMap> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let params = PatchParams::apply(FLUX).force();
    let config_maps = config_maps(scene);
    Ok(config_maps
        .patch(name, &params, &Patch::Apply(object))
        .await?)
}

/// Deletes a ConfigMap as Flux does when it prunes.
async fn prune(scene: &Scene, name: &str) -> Result<()> {
    let params = DeleteParams::background();
    config_maps(scene).delete(name, &params).await?;
    Ok(())
}

/// Deletes a ConfigMap as Argo CD does when it prunes: it is still there until the garbage collector has seen that it
/// owns nothing.
async fn prune_in_foreground(scene: &Scene, name: &str) -> Result<()> {
    let params = DeleteParams::foreground();
    config_maps(scene).delete(name, &params).await?;
    Ok(())
}

/// Returns a Deployment whose pods need these ConfigMaps.
fn web(config_maps: &[&str]) -> Workload {
    let env: Vec<_> = config_maps
        .iter()
        .map(|name| json!({"configMapRef": {"name": name}}))
        .collect();
    let container = json!([{"name": "main", "image": "app:1", "envFrom": env}]);
    Workload::deployment("web").with(&["spec", "template", "spec", "containers"], container)
}

/// Waits until the webhook is called, with a ConfigMap that is in use.
async fn is_called(scene: &Scene, name: &str) -> Result<()> {
    let delete = ["delete", "configmap", name, "--dry-run=server"];
    wait_for("the webhook to be called", PATIENCE, async || {
        let output = scene.kubectl_output(&delete, "").await?;
        done_if(output.stderr.contains("it comes back"), output.stderr)
    })
    .await
}

/// Waits until a ConfigMap with the content of `object` is there that was not there before, and which nothing tracks.
async fn comes_back(scene: &Scene, before: &ConfigMap, object: &Value) -> Result<ConfigMap> {
    let name = before.name_any();
    wait_for(&format!("{name} to come back"), PATIENCE, async || {
        let Some(found) = config_maps(scene).get_opt(&name).await? else {
            return Ok(Attempt::NotYet("it is gone".to_owned()));
        };
        if found.uid() == before.uid() {
            return Ok(Attempt::NotYet("it is still there".to_owned()));
        }
        let stored = serde_json::to_value(&found)?;
        let expected = json!({KEPT: "true"});
        let is_same = stored["data"] == object["data"]
            && stored["binaryData"] == object["binaryData"]
            && stored["metadata"]["labels"] == expected
            && found.annotations().is_empty()
            && found.owner_references().is_empty()
            && found.immutable.is_none();
        ensure!(is_same, "{stored}");
        Ok(Attempt::Done(found))
    })
    .await
}

async fn is_gone(scene: &Scene, name: &str) -> Result<()> {
    wait_for(&format!("{name} to go"), PATIENCE, async || {
        Ok(match config_maps(scene).get_opt(name).await? {
            None => Attempt::Done(()),
            Some(found) => Attempt::NotYet(format!("{:?}", found.metadata)),
        })
    })
    .await
}

/// Waits until the operator stores nothing any more.
async fn nothing_is_stored(scene: &Scene) -> Result<()> {
    let stored = kube::api::ListParams::default().labels("pod-reloader.cs.sap.com/kept=stored");
    wait_for("what is stored to go", PATIENCE, async || {
        let stored = config_maps(scene).list(&stored).await?;
        done_if(
            stored.items.is_empty(),
            stored.iter().map(ResourceExt::name_any).collect::<String>(),
        )
    })
    .await
}

/// Returns the writes of the operator in the namespace since a mark that the apiserver has taken, as verb and resource,
/// but for Events.
async fn writes(scene: &Scene, mark: Mark) -> Result<Vec<String>> {
    let is_write = |it: &AuditEvent| ["create", "update", "patch", "delete"].contains(&&*it.verb);
    let is_taken = |it: &AuditEvent| it.code.is_some_and(|code| code < 300);
    let mut requests = scene.requests(mark).await?;
    requests.retain(|it| it.namespace == scene.namespace && is_taken(it));
    let requests = requests.into_iter();
    let writes = requests.filter(|it| is_write(it) && it.resource != "events");
    Ok(writes
        .map(|it| {
            let name = &it.request_object.unwrap_or_default()["metadata"]["name"];
            let name = name.as_str().unwrap_or(&it.name).to_owned();
            let name = match name.rsplit_once("-kept-") {
                Some((stem, _)) => format!("{stem}-kept"),
                None => name,
            };
            format!("{} {} {name}", it.verb, it.resource)
        })
        .collect())
}

#[tokio::test]
async fn what_is_pruned_in_the_middle_of_a_rollout_comes_back_until_nothing_uses_it() -> Result<()>
{
    let everywhere = json!({"watch": {"namespaceSelector": {"matchLabels": {"keep-test": "x"}}}});
    let options = Options {
        everywhere: true,
        namespace_labels: vec!["keep-test=x".to_owned()],
        ..keeping(&everywhere)
    };
    Scene::play(options, async |scene| {
        let (old, new) = (generated("app-1", "1"), generated("app-2", "2"));
        let before = sync(scene, &old).await?;
        let stuck = |name| {
            // Pods of the new revision are not available for an hour, so those of the old one stay.
            let web = web(&[name]).with(&["spec", "minReadySeconds"], json!(3600));
            let web = web.with(&["spec", "progressDeadlineSeconds"], json!(7200));
            let web = web.with(
                &["spec", "strategy"],
                json!({"rollingUpdate": {"maxUnavailable": 0}}),
            );
            web.with(&["spec", "revisionHistoryLimit"], json!(0))
        };
        scene.create(&stuck("app-1")).await?;
        is_called(scene, "app-1").await?;

        // Whatever is only tried changes nothing.
        let mark = scene.mark().await?;
        let dry_run = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        config_maps(scene).delete("app-1", &dry_run).await?;
        ensure!(config_maps(scene).get("app-1").await? == before);
        ensure!(writes(scene, mark).await? == Vec::<String>::new());

        sync(scene, &new).await?;
        scene.apply(&[stuck("app-2").manifest()]).await?;
        let rollout = scene.snapshot(&stuck("app-2")).await?;
        ensure!(rollout.revisions.len() == 2, "{rollout:?}");
        let mark = scene.mark().await?;
        prune(scene, "app-1").await?;
        comes_back(scene, &before, &old).await?;
        nothing_is_stored(scene).await?;
        let expected = [
            "create configmaps app-1-kept",
            "create configmaps app-1",
            "delete configmaps app-1-kept",
        ];
        let written = writes(scene, mark).await?;
        ensure!(written == expected, "{written:?}");

        // What nothing uses just goes, one or many at once.
        let mark = scene.mark().await?;
        sync(scene, &generated("unused-1", "1")).await?;
        sync(scene, &generated("unused-2", "1")).await?;
        prune(scene, "unused-1").await?;
        scene.delete("configmap/unused-2").await?;
        for name in ["unused-1", "unused-2"] {
            ensure!(config_maps(scene).get_opt(name).await?.is_none(), "{name}");
        }
        let written = writes(scene, mark).await?;
        ensure!(written.is_empty(), "{written:?}");

        // The rollout ends, and with it the old ReplicaSet.
        let done = stuck("app-2").with(&["spec", "minReadySeconds"], json!(0));
        let mark = scene.mark().await?;
        scene.apply(&[done.manifest()]).await?;
        is_gone(scene, "app-1").await?;
        let written = writes(scene, mark).await?;
        ensure!(written == ["delete configmaps app-1"], "{written:?}");

        // The new one is in use, and goes with its namespace all the same.
        namespace_goes(scene).await
    })
    .await
}

/// Makes the operator store, bring back and delete a ConfigMap.
pub(crate) async fn keep_and_let_go(scene: &Scene) -> Result<()> {
    let object = generated("kept-1", "1");
    let before = sync(scene, &object).await?;
    let web = web(&["kept-1"]);
    scene.create(&web).await?;
    is_called(scene, "kept-1").await?;
    prune(scene, "kept-1").await?;
    comes_back(scene, &before, &object).await?;
    let delete = ["delete", &web.reference(), "--cascade=foreground", "--wait"];
    scene.kubectl(&delete).await?;
    is_gone(scene, "kept-1").await
}

/// Deletes the namespace, and waits until it is gone.
async fn namespace_goes(scene: &Scene) -> Result<()> {
    let namespaces = Api::<Namespace>::all(scene.client.clone());
    let params = DeleteParams::default();
    wait_for("the namespace to go", PATIENCE * 5, async || {
        // A policy that another test has just created may refuse that for a while.
        Ok(match namespaces.delete(&scene.namespace, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Attempt::Done(()),
            Err(error) => Attempt::NotYet(error.to_string()),
            Ok(_) => Attempt::NotYet("it is about to go".to_owned()),
        })
    })
    .await
}

#[tokio::test]
async fn what_somebody_else_writes_under_the_name_is_theirs() -> Result<()> {
    Scene::play(keeping(&Value::Null), async |scene| {
        let names = ["app-1", "other-1", "third-1", "fourth-1"];
        let mut before = Vec::new();
        for name in names {
            before.push(sync(scene, &generated(name, "1")).await?);
        }
        // No pod runs, but one may any time.
        let web = web(&names).with(&["spec", "replicas"], json!(0));
        scene.create(&web).await?;
        is_called(scene, "app-1").await?;
        for (name, before) in names.iter().zip(&before) {
            match *name {
                "app-1" => prune(scene, name).await?,
                _ => prune_in_foreground(scene, name).await?,
            }
            comes_back(scene, before, &generated(name, "1")).await?;
        }
        nothing_is_stored(scene).await?;

        let again = sync(scene, &generated("app-1", "2")).await?;
        ensure!(again.data.as_ref().is_some_and(|it| it["key"] == "2"));
        let applied = generated("fourth-1", "2").to_string();
        let apply = ["apply", "--filename=-"];
        scene.kubectl_with_input(&apply, &applied).await?;
        let applied = config_maps(scene).get("fourth-1").await?;
        ensure!(applied.data.as_ref().is_some_and(|it| it["key"] == "2"));
        // Somebody else has replaced another one.
        config_maps(scene)
            .delete("third-1", &DeleteParams::default())
            .await?;
        let own = serde_json::from_value(json!({"metadata": {"name": "third-1"}}))?;
        let own = config_maps(scene)
            .create(&PostParams::default(), &own)
            .await?;
        let mark = scene.mark().await?;
        let delete = ["delete", &web.reference(), "--cascade=foreground", "--wait"];
        scene.kubectl(&delete).await?;
        // By then, the operator has looked at all of them.
        is_gone(scene, "other-1").await?;
        ensure!(config_maps(scene).get("app-1").await? == again);
        ensure!(config_maps(scene).get("third-1").await? == own);
        ensure!(config_maps(scene).get("fourth-1").await? == applied);
        let written = writes(scene, mark).await?;
        ensure!(written == ["delete configmaps other-1"], "{written:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn many_forged_reviews_of_one_version_store_it_once() -> Result<()> {
    Scene::play(keeping(&Value::Null), async |scene| {
        sync(scene, &generated("app-1", "1")).await?;
        scene.create(&web(&["app-1"])).await?;
        is_called(scene, "app-1").await?;
        let caller = Caller::of(scene).await?;
        let object = scene.object("configmap/app-1").await?;
        let mark = scene.mark().await?;
        for number in 0..20 {
            let label = ("pod-reloader.cs.sap.com/protect", "keep");
            let uid = format!("forged-{number}");
            let review = forged_deletion("/keep", &uid, ("ConfigMap", &object), label);
            let answered = caller.send(&review).await?;
            ensure!(answered.body.contains("it comes back"), "{answered:?}");
        }
        let written = writes(scene, mark).await?;
        // Half an hour, for which they share a place, may end in between.
        ensure!((1..=2).contains(&written.len()), "{written:?}");
        let stored = written
            .iter()
            .all(|it| it == "create configmaps app-1-kept");
        ensure!(stored, "{written:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_stored_comes_back_after_the_operator_was_killed() -> Result<()> {
    let options = Options {
        proxied: true,
        ..keeping(&Value::Null)
    };
    Scene::play(options, async |scene| {
        let object = generated("app-1", "1");
        let before = sync(scene, &object).await?;
        scene.create(&web(&["app-1"])).await?;
        is_called(scene, "app-1").await?;
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;

        // What cannot be stored is not deleted.
        let create = Requests::containing("/configmaps").method(Method::POST);
        let lost = proxy.add(Rule::new(create, Fault::Reset));
        let refused = prune(scene, "app-1").await;
        let words = refused.err().map(|it| it.to_string()).unwrap_or_default();
        ensure!(words.contains("cannot store it now"), "{words}");
        ensure!(config_maps(scene).get("app-1").await? == before);
        lost.remove();

        let watch = Requests::containing("/configmaps").query("kept").watches();
        let late = proxy.add(Rule::new(watch, Fault::HoldWatch));
        prune(scene, "app-1").await?;
        late.applied(1, PATIENCE).await?;
        scene.operator.process().kill().await;
        ensure!(config_maps(scene).get_opt("app-1").await?.is_none());
        late.remove();
        let next = scene.start_operator(&["--copy-grace-period=1s"]).await?;
        comes_back(scene, &before, &object).await?;
        nothing_is_stored(scene).await?;
        next.stop().await;
        Ok(())
    })
    .await
}
