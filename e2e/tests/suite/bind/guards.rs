//! Policies bound who may have a field filled from an object, and what the operator may write.

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

use super::{binding_fields, harbor, harbor_s3, s3, with_definitions};

#[tokio::test]
async fn only_who_may_read_the_source_and_write_the_target_may_bind_a_field() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        scene.apply(&[s3("1", "images"), harbor(json!({}))]).await?;
        let user = format!("{}-author", scene.namespace);
        let author = Author {
            scene,
            client: scene.control_plane.client_as(&user).await?,
        };
        let may = async |name: &str, verb: &str, resource: &str, named: &[&str]| {
            let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
            let rules = json!([{
                "apiGroups": [group], "resources": [resource], "resourceNames": named, "verbs": [verb],
            }]);
            scene.grant(&scene.namespace, &user, name, &rules).await
        };
        may("author", "*", "fieldbindings.pod-reloader.github.io", &[]).await?;
        let ours = harbor_s3(json!({}));
        author
            .refused_in_the_end(&ours, "you may not get Secret s3, so")
            .await?;
        // Each of the two rights is asked for.
        may("reader", "get", "secrets", &["s3"]).await?;
        author
            .refused_in_the_end(&ours, "you may not patch Harbor registry, so")
            .await?;
        scene.delete("rolebinding/reader").await?;
        may("writer", "patch", "harbors.goharbor.io", &["registry"]).await?;
        author
            .refused_in_the_end(&ours, "you may not get Secret s3, so")
            .await?;
        scene.bind(&scene.namespace, &user, "role/reader").await?;
        wait_for("the author to be allowed", PATIENCE, async || {
            Ok(author
                .creates(&ours, false)
                .await?
                .map_or(Attempt::Done(()), Attempt::NotYet))
        })
        .await?;

        // Nobody, not even an administrator, binds fields of a kind that is not listed, or outside of the spec.
        let admin = Author {
            scene,
            client: scene.client.clone(),
        };
        for (fields, words) in [
            (
                json!({"target": {"kind": "HarborCluster"}}),
                "may not be bound: the value fieldBindings.kinds",
            ),
            (
                json!({"target": {"apiVersion": "goharbor.io/v1alpha3"}}),
                "may not be bound: the value fieldBindings.kinds",
            ),
            (
                json!({"target": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}}),
                "fields of custom resources alone",
            ),
            (
                json!({"fields": [{"key": "a", "path": "metadata.labels.a"}]}),
                "spec.fields[0].path",
            ),
            (
                json!({"fields": [{"key": "a", "path": "status.phase"}]}),
                "spec.fields[0].path",
            ),
        ] {
            let other = json!({"metadata": {"name": "other"}, "spec": fields});
            let refusal = admin.creates(&harbor_s3(other), true).await?;
            ensure!(
                refusal.as_ref().is_some_and(|it| it.contains(words)),
                "{words}: {refusal:?}"
            );
        }

        // Whoever changes it later needs the same rights.
        for (fields, words) in [
            (
                json!({"source": {"name": "other"}}),
                Some("you may not get Secret other, so"),
            ),
            (
                json!({"source": {"kind": "ConfigMap"}}),
                Some("you may not get ConfigMap s3, so"),
            ),
            (
                json!({"target": {"name": "other"}}),
                Some("you may not patch Harbor other, so"),
            ),
            (
                json!({"target": {"kind": "HarborCluster"}}),
                Some("may not be bound"),
            ),
            (
                json!({"fields": [{"key": "bucket", "path": "spec.imageChartStorage.s3.bucket"}]}),
                None,
            ),
        ] {
            author.changes(&json!({"spec": fields}), words).await?;
        }
        for gone in ["rolebinding/reader", "rolebinding/writer"] {
            scene.delete(gone).await?;
        }
        author
            .refused_in_the_end(
                &harbor_s3(json!({"metadata": {"name": "another"}})),
                "you may not get",
            )
            .await?;
        let fields = json!({"fields": [{"key": "a", "path": "spec.logLevel"}]});
        author
            .changes(
                &json!({"spec": fields}),
                Some("you may not get Secret s3, so"),
            )
            .await?;
        // Most metadata and the status are free, but not the owners, for which the garbage collector would delete it.
        author
            .changes(&json!({"metadata": {"labels": {"a": "b"}}}), None)
            .await?;
        let nobody = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none",
            "uid": "00000000-0000-0000-0000-000000000000"}]);
        author
            .changes(
                &json!({"metadata": {"ownerReferences": nobody}}),
                Some("so you may not change owners, finalizers or marks"),
            )
            .await?;
        operators_token(scene).await
    })
    .await
}

/// A user who writes FieldBindings.
struct Author<'a> {
    scene: &'a Scene,
    client: Client,
}

impl Author<'_> {
    fn url(&self, name: &str) -> String {
        let namespace = &self.scene.namespace;
        format!("/apis/pod-reloader.github.io/v1alpha1/namespaces/{namespace}/fieldbindings{name}")
    }

    /// Creates a FieldBinding. Returns the refusal, if there is one.
    async fn creates(&self, binding: &Value, dry_run: bool) -> Result<Option<String>> {
        let url = format!(
            "{}{}",
            self.url(""),
            if dry_run { "?dryRun=All" } else { "" }
        );
        let request = Request::post(url).header("content-type", "application/json");
        refusal(
            &self.client,
            request.body(binding.to_string().into_bytes())?,
        )
        .await
    }

    /// Waits until a FieldBinding is refused with these words.
    async fn refused_in_the_end(&self, binding: &Value, words: &str) -> Result<()> {
        wait_for(words, PATIENCE, async || {
            Ok(match self.creates(binding, true).await? {
                Some(refusal) if refusal.contains(words) => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            })
        })
        .await
    }

    /// Changes FieldBinding `harbor-s3`. Asserts that this is refused with these words, or not refused.
    async fn changes(&self, patch: &Value, words: Option<&str>) -> Result<()> {
        patched(&self.client, &self.url("/harbor-s3"), patch, words).await
    }
}

/// Sends a request. Returns the words in which it is refused, if it is.
pub(crate) async fn refusal(client: &Client, request: Request<Vec<u8>>) -> Result<Option<String>> {
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error).context("it was not answered"),
    }
}

/// Patches an object, in a dry run. Asserts that this is refused with these words, or not refused.
async fn patched(client: &Client, url: &str, patch: &Value, words: Option<&str>) -> Result<()> {
    let content_type = match patch.is_array() {
        true => "application/json-patch+json",
        false => "application/merge-patch+json",
    };
    let request = Request::patch(format!("{url}?dryRun=All")).header("content-type", content_type);
    let refusal = refusal(client, request.body(patch.to_string().into_bytes())?).await?;
    let is_right = match (&refusal, words) {
        (Some(refusal), Some(words)) => refusal.contains(words),
        (None, None) => true,
        _ => false,
    };
    ensure!(is_right, "{patch}: {refusal:?}");
    Ok(())
}

/// Asserts that the operator's token changes the spec of such an object, and nothing else of it, as
/// docs/stolen-token.md says.
async fn operators_token(scene: &Scene) -> Result<()> {
    let client = scene.operators_client().await?;
    let at = |group: &str| format!("/apis/{group}/namespaces/{}", scene.namespace);
    let harbor = format!("{}/harbors/registry", at("goharbor.io/v1beta1"));
    let access_key =
        json!({"op": "add", "path": "/spec/imageChartStorage/s3/accesskey", "value": "x"});
    patched(&client, &harbor, &json!([access_key]), None).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}]);
    for (field, value) in [
        ("labels", json!({"a": "b"})),
        ("annotations", json!({"pod-reloader.cs.sap.com/a": "b"})),
        ("finalizers", json!(["example.com/a"])),
        ("ownerReferences", owner),
    ] {
        let metadata = json!({"op": "add", "path": format!("/metadata/{field}"), "value": value});
        let words = Some("pod-reloader may only change the spec");
        patched(&client, &harbor, &json!([access_key, metadata]), words).await?;
    }
    let (of_others, status) = (format!("{harbor}/status"), json!({"status": {}}));
    let cannot = Some("cannot patch resource");
    patched(&client, &of_others, &status, cannot).await?;
    let binding = format!(
        "{}/fieldbindings/harbor-s3",
        at("pod-reloader.github.io/v1alpha1")
    );
    patched(&client, &format!("{binding}/status"), &status, None).await?;
    patched(
        &client,
        &binding,
        &json!({"metadata": {"labels": {"a": "b"}}}),
        cannot,
    )
    .await?;
    let delete = Request::delete(format!("{harbor}?dryRun=All")).body(Vec::new())?;
    let refusal = refusal(&client, delete).await?;
    ensure!(
        refusal
            .as_ref()
            .is_some_and(|it| it.contains("cannot delete resource")),
        "{refusal:?}"
    );
    Ok(())
}
