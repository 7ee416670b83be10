//! What keeps one namespace from its copy is said, and keeps no other from it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use pod_reloader_e2e::workload::secret;
use pod_reloader_e2e::{Attempt, PATIENCE, done_if, wait_for};
use serde_json::{Value, json};

use super::{
    Namespaces, SHARED, applied_sync, apply_sync, becomes, conflicts, copying, delete_sync,
    has_copy, has_none, play, read_sync, rests, secrets, shown, source, sync, writes,
};

#[tokio::test]
async fn of_two_syncs_the_older_has_the_namespace_and_nothing_flips() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let a = namespaces.create("a", true).await?;
        let elsewhere = namespaces.create("elsewhere", false).await?;
        scene.apply(&[source("1")]).await?;
        let older = applied_sync(scene, "older", json!({})).await?;
        has_copy(scene, &a, "1").await?;
        // Ages have seconds.
        let created =
            read_sync(scene, super::name_of(&older)?).await?["metadata"]["creationTimestamp"]
                .clone();
        let mut other = secret(SHARED, "other");
        other["metadata"]["namespace"] = json!(elsewhere);
        scene.create_object(&other).await?;
        let newer = sync(
            scene,
            "newer",
            json!({"spec": {"source": {"namespace": elsewhere}}}),
        );
        wait_for("a newer one", PATIENCE, async || {
            apply_sync(scene, &newer).await?;
            let is =
                read_sync(scene, super::name_of(&newer)?).await?["metadata"]["creationTimestamp"]
                    .clone();
            if is == created {
                delete_sync(scene, &newer).await?;
                return Ok(Attempt::NotYet("it is as old".to_owned()));
            }
            Ok(Attempt::Done(()))
        })
        .await?;
        let status = becomes(scene, &newer, "Conflict").await?;
        conflicts(&status, &[(&a, "OtherSync")])?;
        let twin = applied_sync(scene, "twin", json!({})).await?;
        conflicts(
            &becomes(scene, &twin, "Conflict").await?,
            &[(&a, "OtherSync")],
        )?;
        let uid = secrets(scene, &a).get(SHARED).await?.metadata.uid;
        let mark = scene.mark().await?;
        rests(scene, &older).await?;
        has_copy(scene, &a, "1").await?;
        let written = writes(scene, mark).await?;
        ensure!(
            written.iter().all(|it| it.namespace != a),
            "{:?}",
            shown(&written)
        );
        ensure!(
            secrets(scene, &a).get(SHARED).await?.metadata.uid == uid,
            "it was made anew"
        );
        delete_sync(scene, &twin).await?;
        delete_sync(scene, &older).await?;
        wait_for("the copy of the newer one", PATIENCE, async || {
            let copy = secrets(scene, &a).get_opt(SHARED).await?;
            let data = copy.and_then(|copy| copy.data).unwrap_or_default();
            done_if(
                data.values().any(|it| it.0 == b"other"),
                format!("{:?}", data.keys()),
            )
        })
        .await?;
        becomes(scene, &newer, "Synced").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn each_namespace_that_cannot_have_a_copy_says_why_and_the_others_have_theirs() -> Result<()>
{
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let names = ["c-fine", "a-forbidden", "b-full"];
        let [fine, forbidden, full] = namespaces.create_each(names).await?;
        let terminating = namespaces.create("d-terminating", true).await?;
        let quota = |count| {
            json!({"apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": "secrets", "namespace": full},
                "spec": {"hard": {"count/secrets": count}}})
        };
        scene.apply(&[quota("0")]).await?;
        let finalizer = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "stays", "namespace": terminating, "finalizers": ["example.com/stay"]}});
        scene.create_object(&finalizer).await?;
        let namespace = format!("namespace/{terminating}");
        wait_for("the namespace to be deleted", PATIENCE, async || {
            // A policy that another test has just created may refuse that for a while.
            Ok(scene.delete(&namespace).await.into())
        })
        .await?;
        let refusal = refusal(&scene.namespace, &forbidden);
        let apply = ["apply", "--filename=-"];
        scene.tool().run_with_input(&apply, &refusal.to_string()).await?;
        let outcome = async {
            wait_for("the policy and the quota to be in force", PATIENCE, async || {
                let params = kube::api::PostParams { dry_run: true, ..Default::default() };
                let probe = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
                for namespace in [&forbidden, &full] {
                    if secrets(scene, namespace).create(&params, &probe).await.is_ok() {
                        return Ok(Attempt::NotYet(namespace.clone()));
                    }
                }
                Ok(Attempt::Done(()))
            })
            .await?;
            scene.apply(&[source("1")]).await?;
            let ours = applied_sync(scene, "all", json!({})).await?;
            has_copy(scene, &fine, "1").await?;
            let expected = [(&*forbidden, "Refused"), (&*full, "QuotaExceeded")];
            wait_for("both reasons", PATIENCE, async || {
                let status = becomes(scene, &ours, "Conflict").await?;
                Ok(match conflicts(&status, &expected) {
                    Ok(()) if status["selected"] == 3 && status["synced"] == 1 => Attempt::Done(()),
                    _ => Attempt::NotYet(status.to_string()),
                })
            })
            .await?;
            let log = scene.operator.log()?;
            ensure!(!log.contains("hunter2"), "the words of the policy are in the log");
            ensure!(!read_sync(scene, super::name_of(&ours)?).await?.to_string().contains("hunter2"));
            scene.apply(&[source("2")]).await?;
            has_copy(scene, &fine, "2").await?;
            scene.apply(&[quota("5")]).await?;
            has_copy(scene, &full, "2").await
        };
        let outcome = outcome.await;
        let name = refusal["items"][0]["metadata"]["name"].as_str().context("it has a name")?;
        for kind in ["validatingadmissionpolicy", "validatingadmissionpolicybinding"] {
            scene.delete(&format!("{kind}/{name}")).await?;
        }
        let patch = json!({"metadata": {"finalizers": null}});
        scene.merge_in(&terminating, "configmap/stays", &patch).await?;
        outcome
    })
    .await
}

/// RBAC takes no right away, so the writer gets its rights in each of the other namespaces instead.
#[tokio::test]
async fn without_rights_in_one_namespace_the_status_says_so_and_the_others_go_on() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let [fine, forbidden] = namespaces.create_each(["fine", "forbidden"]).await?;
        let name = scene.installation.service_account();
        let get = ["get", "clusterrole", name, "--output=json"];
        let role: Value = serde_json::from_str(&scene.tool().run(&get).await?)?;
        let rules = role["rules"].as_array().context("it has rules")?;
        let is_of_copies = |rule: &&Value| rule["verbs"] == json!(["create", "update", "delete"]);
        let (of_copies, others): (Vec<_>, Vec<_>) = rules.iter().partition(is_of_copies);
        ensure!(of_copies.len() == 1, "{role}");
        let cluster_role = |rules: &[&Value]| rbac("ClusterRole", json!({"name": name}), json!({"rules": rules}));
        let here = json!({"name": "copies", "namespace": fine});
        let binding = json!({
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "copies"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": scene.installation.namespace}],
        });
        let narrowed = [
            rbac("Role", here.clone(), json!({"rules": of_copies})),
            rbac("RoleBinding", here, binding),
            cluster_role(&others),
        ];
        let apply = async |objects: &[Value]| -> Result<()> {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
            let apply = ["apply", "--filename=-"];
            scene.tool().run_with_input(&apply, &list).await.map(drop)
        };
        let writer = scene.operators_client().await?;
        apply(&narrowed).await?;
        may_write(&writer, &forbidden, false).await?;
        may_write(&writer, &fine, true).await?;

        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        has_copy(scene, &fine, "1").await?;
        wait_for("the reason", PATIENCE, async || {
            let status = becomes(scene, &ours, "Conflict").await?;
            let is_told = conflicts(&status, &[(&forbidden, "Forbidden")]).is_ok();
            done_if(is_told && status["synced"] == 1, status.to_string())
        })
        .await?;
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &fine, "2").await?;
        has_none(scene, &forbidden).await?;

        apply(&[cluster_role(&Vec::from_iter(rules))]).await?;
        may_write(&writer, &forbidden, true).await?;
        scene.apply(&[source("3")]).await?;
        has_copy(scene, &forbidden, "3").await?;
        becomes(scene, &ours, "Synced").await.map(drop)
    })
    .await
}

/// The API group of roles.
const RBAC: &str = "rbac.authorization.k8s.io";

fn rbac(kind: &str, metadata: Value, mut fields: Value) -> Value {
    fields["apiVersion"] = json!(format!("{RBAC}/v1"));
    fields["kind"] = json!(kind);
    fields["metadata"] = metadata;
    fields
}

/// Waits until the apiserver knows whether the writer has the right to create Secrets in a namespace. A policy refuses
/// the one that is tried in any case.
async fn may_write(writer: &Client, namespace: &str, expected: bool) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(writer.clone(), namespace);
    let what = format!("the rights of the writer in {namespace} to be in force");
    wait_for(&what, PATIENCE, async || {
        let probe = serde_json::from_value(json!({"metadata": {"name": "probe"}}))?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let told = match secrets.create(&params, &probe).await {
            Err(kube::Error::Api(status)) => status.message.clone(),
            other => format!("{other:?}"),
        };
        let is_allowed = !told.contains("cannot create resource");
        done_if(is_allowed == expected, told)
    })
    .await
}

#[tokio::test]
async fn some_things_are_never_copied() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let a = namespaces.create("a", true).await?;
        scene.apply(&[source("1")]).await?;
        let first = applied_sync(scene, "first", json!({})).await?;
        has_copy(scene, &a, "1").await?;
        // The copy in `a` as a source.
        let b = namespaces.create("b", false).await?;
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": b, "copies-of": null}});
        let chained = json!({"spec": {"source": {"namespace": a}, "namespaceSelector": selector}});
        let mut chained = sync(scene, "chained", chained);
        chained["spec"]["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": b}});
        apply_sync(scene, &chained).await?;
        becomes(scene, &chained, "SourceIsCopy").await?;
        has_none(scene, &b).await?;
        delete_sync(scene, &chained).await?;
        // A token of a service account.
        let token = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}}});
        scene.create_object(&token).await?;
        let tokens = applied_sync(scene, "tokens", json!({"spec": {"source": {"name": "token"}}})).await?;
        becomes(scene, &tokens, "SourceNotAllowed").await?;
        ensure!(secrets(scene, &a).get_opt("token").await?.is_none(), "it was copied");
        // The source's own namespace, and those of the cluster.
        let everywhere = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In",
            "values": [scene.namespace, scene.installation.namespace, "kube-system", b]}]});
        let mut all = sync(scene, "all", json!({}));
        all["spec"]["namespaceSelector"] = everywhere;
        apply_sync(scene, &all).await?;
        let status = becomes(scene, &all, "Synced").await?;
        ensure!(status["selected"] == 1, "{status}");
        has_copy(scene, &b, "1").await?;
        rests(scene, &first).await
    })
    .await
}

/// Returns a policy that refuses Secrets in a namespace, in words that repeat what it was given.
fn refusal(name: &str, namespace: &str) -> Value {
    let name = format!("{name}-refuse");
    let api = "admissionregistration.k8s.io/v1";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
                },
                "validations": [{"expression": "false", "message": "hunter2 is not wanted here"}],
            },
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]})
}
