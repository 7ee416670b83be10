//! The label `in-use`: nobody deletes what a pod uses that runs, or is to.

use std::fs;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use pod_reloader_e2e::caller::{Caller, forged_deletion};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::{Kind, Workload};
use pod_reloader_e2e::{
    Attempt, Options, PATIENCE, Scene, done_if, full, has_own_values, wait_for,
};
use serde_json::{Value, json};

use super::{PROTECT, merged, protected, protecting, refused};

#[tokio::test]
async fn what_a_pod_uses_in_any_way_is_not_deleted_and_an_outage_keeps_nothing_else() -> Result<()>
{
    Scene::play(protecting(), async |scene| {
        let ways = ways();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}, "imagePullSecrets": [{"name": "account"}]});
        let mut all = vec![account];
        for (kind, way, spec) in &ways {
            let label = json!({"metadata": {"labels": {"all": "x"}}});
            all.push(merged(protected(kind, way, "in-use"), label));
            all.push(pod(way, spec.clone()));
        }
        scene.apply(&all).await?;
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let debugged = Patch::Strategic(debugged("ephemeral"));
        pods.patch_subresource("ephemeralcontainers", "ephemeral", &PatchParams::default(), &debugged).await?;
        in_force(&secrets, ways[0].1).await?;
        for (kind, way, _) in &ways {
            let words = format!("{kind} {}/{way} is in use by Pod {way}. It has the label", scene.namespace);
            for dry_run in [true, false] {
                let params = DeleteParams { dry_run, ..DeleteParams::default() };
                let deleted = match *kind {
                    "Secret" => secrets.delete(way, &params).await.map(drop),
                    _ => config_maps.delete(way, &params).await.map(drop),
                };
                refused(deleted, &words, way)?;
            }
        }
        let all = ListParams::default().labels("all");
        let deleted = secrets.delete_collection(&DeleteParams::default(), &all).await;
        refused(deleted, "is in use by Pod", "all secrets at once")?;
        let deleted = config_maps.delete_collection(&DeleteParams::default(), &all).await;
        refused(deleted, "is in use by Pod", "all ConfigMaps at once")?;
        let left = secrets.list_metadata(&all).await?.items.len();
        ensure!(left + config_maps.list_metadata(&all).await?.items.len() == ways.len());

        // Users that are no obstacle, and one that only has to be told.
        let finished = json!({"containers": [{"name": "main", "image": "app", "envFrom": [{"secretRef": {"name": "finished"}}]}]});
        let optional = json!({"containers": [{"name": "main", "image": "app", "envFrom": [{"secretRef": {"name": "optional", "optional": true}}]}]});
        for (name, spec) in [("finished", finished), ("optional", optional)] {
            scene.apply(&[protected("Secret", name, "in-use"), pod(name, spec)]).await?;
        }
        refused(secrets.delete("finished", &DeleteParams::default()).await, "Pod finished", "not finished")?;
        let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        pods.patch_status("finished", &PatchParams::default(), &succeeded).await?;
        for name in ["finished", "optional"] {
            secrets.delete(name, &DeleteParams::default()).await.context(name)?;
        }
        scene.apply(&[protected("Secret", "scaled", "in-use")]).await?;
        let web = user(Kind::Deployment, "scaled").with(&["spec", "replicas"], json!(0));
        scene.apply(&[web.manifest()]).await?;
        let output = scene.kubectl_output(&["delete", "secret", "scaled"], "").await?;
        let warned = "the pod templates of Deployment scaled do: their next pods cannot start without it";
        ensure!(output.code == Some(0) && output.stderr.contains(warned), "{output:?}");
        // A copy of a ClusterConfigSync comes back by itself.
        let mark = format!("x/copy@{}", scene.namespace);
        let mark = json!({"metadata": {"annotations": {"pod-reloader.cs.sap.com/copy-of": mark}}});
        let copy = merged(protected("Secret", "copy", "in-use"), mark);
        scene.apply(&[copy, pod("copy", uses("copy"))]).await?;
        secrets.delete("copy", &DeleteParams::default()).await?;
        // Whoever may change the object may take its label.
        let unlabelled = Patch::Merge(json!({"metadata": {"labels": {PROTECT: null}}}));
        secrets.patch(ways[1].1, &PatchParams::default(), &unlabelled).await?;
        secrets.delete(ways[1].1, &DeleteParams::default()).await?;

        scene.operator.stop().await;
        scene.apply(&[protected("Secret", "unused", "in-use")]).await?;
        scene.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "free"}})]).await?;
        let delete = secrets.delete("unused", &DeleteParams::default()).await;
        refused(delete, "in-use.pod-reloader.cs.sap.com", "while no operator runs")?;
        secrets.delete("free", &DeleteParams::default()).await?;
        // The namespace goes with all that is in it.
        scene.kubectl(&["delete", "namespace", &scene.namespace]).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_forged_review_names_users_of_protected_objects_in_scope_and_of_no_others() -> Result<()>
{
    Scene::play(protecting(), async |scene| {
        let caller = Caller::of(scene).await?;
        let asks = async |kind: &str, object: &Value| -> Result<String> {
            let label = (PROTECT, "in-use");
            let review = forged_deletion("/in-use", "forged", (kind, object), label);
            let answered = caller.send(&review).await?;
            ensure!(answered.status == 200, "{answered:?}");
            Ok(answered.body)
        };
        let secrets = |namespace: &str| -> Api<Secret> {
            Api::namespaced(scene.client.clone(), namespace)
        };
        let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare"}});
        let reads = json!({"containers": [{"name": "main", "image": "app", "envFrom": [{"configMapRef": {"name": "bare"}}]}]});
        scene.apply(&[protected("Secret", "db", "in-use"), bare]).await?;
        scene.apply(&[pod("a", uses("db")), pod("b", reads)]).await?;
        in_force(&secrets(&scene.namespace), "db").await?;
        let told = asks("Secret", &scene.object("secret/db").await?).await?;
        ensure!(told.contains("is in use by Pod a"), "{told}");
        let told = asks("ConfigMap", &scene.object("configmap/bare").await?).await?;
        let is_allowed = told.contains(r#""allowed":true"#);
        ensure!(is_allowed && !told.contains("Pod b"), "{told}");

        // Features of the chart may be for all namespaces.
        if has_own_values() {
            return Ok(());
        }
        // Elsewhere, the label of the object does not count either.
        let test = async |elsewhere: &str| {
            scene
                .create_all_in(elsewhere, &[user(Kind::Deployment, "db")])
                .await?;
            let secret = serde_json::from_value(protected("Secret", "db", "in-use"))?;
            let secret = secrets(elsewhere)
                .create(&PostParams::default(), &secret)
                .await?;
            let told = asks("Secret", &serde_json::to_value(secret)?).await?;
            let is_allowed = told.contains(r#""allowed":true"#);
            ensure!(is_allowed && !told.contains("Deployment"), "{told}");
            Ok(())
        };
        scene.with_namespace("elsewhere", test).await
    })
    .await
}

/// Helm deletes the Deployment before the Secret, and the pods of the Deployment are still there then.
#[tokio::test]
async fn helm_uninstalls_a_release_unless_pods_of_others_use_its_protected_object() -> Result<()> {
    Scene::play(protecting(), async |scene| {
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let helm = async |args: &[&str]| {
            let args = [&["--namespace", &scene.namespace], args].concat();
            scene.control_plane.helm().run(&args).await
        };
        let install = async |name: &str| -> Result<()> {
            let chart = scene.directory().join(name);
            fs::create_dir_all(chart.join("templates"))?;
            let metadata = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"});
            let objects = [
                protected("Secret", name, "in-use"),
                user(Kind::Deployment, name).manifest(),
            ];
            let objects = objects.map(|it| it.to_string()).join("\n---\n");
            fs::write(chart.join("Chart.yaml"), metadata.to_string())?;
            fs::write(chart.join("templates/app.yaml"), objects)?;
            helm(&["install", name, &chart.display().to_string()]).await?;
            in_force(&secrets, name).await?;
            wait_for("a pod of the release", PATIENCE, async || {
                let pods = pods.list_metadata(&ListParams::default()).await?;
                let of_release = |it: &&str| it.starts_with(name);
                let mut names = pods.iter().filter_map(|it| it.metadata.name.as_deref());
                done_if(names.find(of_release).is_some(), "none")
            })
            .await
        };
        install("alone").await?;
        helm(&["uninstall", "alone"]).await?;
        ensure!(
            secrets.get_opt("alone").await?.is_none(),
            "it is left behind"
        );

        install("shared").await?;
        let mut other = user(Kind::Deployment, "other").manifest();
        other["spec"]["template"]["spec"]["containers"] = uses("shared")["containers"].clone();
        scene.apply(&[other]).await?;
        let refused = helm(&["uninstall", "shared"]).await;
        ensure!(refused.is_err(), "{refused:?}");
        ensure!(secrets.get_opt("shared").await?.is_some(), "it is gone");
        scene.delete("deployment/other").await?;
        secrets
            .delete("shared", &DeleteParams::default())
            .await
            .context("its Deployments are gone")?;
        Ok(())
    })
    .await
}

/// The loop knows nothing of what is created: its watches are held.
#[tokio::test]
async fn what_is_deleted_right_after_its_user_was_created_stays() -> Result<()> {
    const AT_ONCE: usize = 5;
    let count = if full() { 200 } else { 40 };
    let options = Options {
        proxied: true,
        ..protecting()
    };
    Scene::play(options, async |scene| {
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        proxy.add(Rule::new(Requests::any().watches(), Fault::HoldWatch));
        let probe = [
            protected("Secret", "probe", "in-use"),
            user(Kind::Deployment, "probe").manifest(),
        ];
        scene.apply(&probe).await?;
        in_force(&secrets, "probe").await?;
        let kinds = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet];
        let users = (0..count).map(async |at| {
            let name = format!("app-{at}");
            scene.apply(&[protected("Secret", &name, "in-use")]).await?;
            let of_kind = match kinds.get(at % (kinds.len() + 1)) {
                // One without nodes is to have no pods.
                Some(Kind::DaemonSet) => user(Kind::DaemonSet, &name)
                    .with(&["spec", "template", "spec", "nodeSelector"], Value::Null)
                    .manifest(),
                Some(kind) => user(*kind, &name).manifest(),
                None => pod(&name, uses(&name)),
            };
            scene.apply(&[of_kind]).await?;
            let delete = secrets.delete(&name, &DeleteParams::default()).await;
            refused(delete, "is in use by", &name)
        });
        stream::iter(users)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
    })
    .await
}

/// Asserts that pod templates that make no pods now protect, too. The scene asks for that.
pub(crate) async fn what_templates_name_stays(scene: &Scene) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    scene
        .apply(&[protected("Secret", "later", "in-use")])
        .await?;
    let idle = user(Kind::Deployment, "later").with(&["spec", "replicas"], json!(0));
    let template = json!({"spec": merged(uses("later"), json!({"restartPolicy": "Never"}))});
    let nightly = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}},
    });
    scene.apply(&[idle.manifest(), nightly]).await?;
    in_force(&secrets, "later").await?;
    let delete = secrets.delete("later", &DeleteParams::default()).await;
    let users = "is in use by Deployment later, CronJob nightly. It has the label";
    refused(delete, users, "delete")
}

async fn in_force(secrets: &Api<Secret>, name: &str) -> Result<()> {
    wait_for("the webhook to be called", PATIENCE, async || {
        let params = DeleteParams::default().dry_run();
        let probe = refused(secrets.delete(name, &params).await, "is in use by", "probe");
        Ok(probe.map_or_else(|error| Attempt::NotYet(error.to_string()), Attempt::Done))
    })
    .await
}

/// Returns a pod for which there is no node.
fn pod(name: &str, spec: Value) -> Value {
    let nowhere = json!({
        "nodeSelector": {"is": "nowhere"},
        "containers": [{"name": "main", "image": "app"}],
    });
    let spec = merged(nowhere, spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// Returns the spec of a pod that uses a Secret.
fn uses(name: &str) -> Value {
    json!({"containers": [{"name": "main", "image": "app", "envFrom": [{"secretRef": {"name": name}}]}]})
}

/// Returns a workload whose pods use the Secret of the same name.
fn user(kind: Kind, name: &str) -> Workload {
    let spec = pod(name, uses(name))["spec"].clone();
    Workload::new(kind, name).with(&["spec", "template", "spec"], spec)
}

/// Returns the kind of an object, its name, and the spec of a pod of that name, each of which uses its object in another
/// way. The object `account` is used by a ServiceAccount, and `ephemeral` is not used before the pod is
/// [`debugged`].
fn ways() -> Vec<(&'static str, &'static str, Value)> {
    let main = |fields: Value| json!([merged(json!({"name": "main", "image": "app"}), fields)]);
    let init = |fields: Value| json!([merged(json!({"name": "init", "image": "app"}), fields)]);
    let volume = |source: Value| json!({"volumes": [merged(json!({"name": "v"}), source)]});
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let variable = |of: Value| json!({"env": [{"name": "A", "valueFrom": of}]});
    let secret = |name: &str| variable(json!({"secretKeyRef": {"name": name, "key": "key"}}));
    let config_map =
        |name: &str| variable(json!({"configMapKeyRef": {"name": name, "key": "key"}}));
    let secrets = [
        ("env", json!({"containers": main(secret("env"))})),
        ("env-from", uses("env-from")),
        ("init", json!({"initContainers": init(secret("init"))})),
        (
            "volume",
            volume(json!({"secret": {"secretName": "volume"}})),
        ),
        (
            "projected",
            projected(json!({"secret": {"name": "projected"}})),
        ),
        (
            "csi",
            volume(
                json!({"csi": {"driver": "csi.example.com", "nodePublishSecretRef": {"name": "csi"}}}),
            ),
        ),
        ("pull", json!({"imagePullSecrets": [{"name": "pull"}]})),
        ("account", json!({"serviceAccountName": "account"})),
        ("ephemeral", json!({})),
    ];
    let all = json!({"envFrom": [{"configMapRef": {"name": "all-keys"}}]});
    let config_maps = [
        (
            "one-key",
            json!({"containers": main(config_map("one-key"))}),
        ),
        ("all-keys", json!({"containers": main(all)})),
        (
            "before",
            json!({"initContainers": init(config_map("before"))}),
        ),
        ("files", volume(json!({"configMap": {"name": "files"}}))),
        (
            "some-files",
            projected(json!({"configMap": {"name": "some-files"}})),
        ),
    ];
    let secrets = secrets.map(|(name, spec)| ("Secret", name, spec));
    let config_maps = config_maps.map(|(name, spec)| ("ConfigMap", name, spec));
    secrets.into_iter().chain(config_maps).collect()
}

/// Returns the patch of a pod that `kubectl debug` makes, with a container that uses a Secret.
fn debugged(secret: &str) -> Value {
    let env_from = json!([{"secretRef": {"name": secret}}]);
    let container = json!({"name": "debugger", "image": "app", "envFrom": env_from});
    json!({"spec": {"ephemeralContainers": [container]}})
}
