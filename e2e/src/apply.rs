//! Applies manifests as `kubectl apply` does, without a process for each.

use anyhow::{Context, Result};
use kube::{
    Api, Client,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, Request,
        ValidationDirective,
    },
};
use serde_json::{Map, Value, json};

/// Annotation in which `kubectl apply` records what it has sent.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Custom resources that tests apply often, and that have a namespace.
const CUSTOM: [&str; 6] = [
    "Certificate",
    "FieldBinding",
    "Harbor",
    "Issuer",
    "Rollout",
    "Store",
];
const FIELD_MANAGER: &str = "kubectl-client-side-apply";

/// Returns the API for the kind of `manifest`: in the namespace that it names, else in `namespace`, else for
/// the whole cluster.
///
/// # Errors
/// When the manifest has no kind.
pub(crate) fn api_of(
    client: &Client,
    namespace: Option<&str>,
    manifest: &Value,
) -> Result<Api<DynamicObject>> {
    let kind = text(&manifest["kind"])?;
    let version = text(&manifest["apiVersion"])?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok(
        match manifest["metadata"]["namespace"].as_str().or(namespace) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        },
    )
}

/// Creates an object as strictly as kubectl and Helm do: an unknown field is an error.
///
/// # Errors
/// When it is refused.
pub(crate) async fn create(
    client: &Client,
    namespace: Option<&str>,
    manifest: &Value,
) -> Result<()> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let api = api_of(client, namespace, manifest)?;
    let create = Request::new(api.resource_url());
    let mut create = create.create(&params, serde_json::to_vec(manifest)?)?;
    // kube has no parameter for this.
    let strict = format!("{}&fieldValidation=Strict", create.uri());
    *create.uri_mut() = strict.parse()?;
    let created = client.request::<Value>(create).await;
    created
        .map(drop)
        .with_context(|| format!("creating {manifest}"))
}

/// Applies the manifests in this order. Returns false, and writes nothing, if only kubectl can do it: it
/// knows how to merge the lists of existing workloads, and it knows all other kinds.
///
/// # Errors
/// When one is refused.
pub(crate) async fn apply(client: &Client, namespace: &str, manifests: &[Value]) -> Result<bool> {
    for manifest in manifests {
        let needs_kubectl = match text(&manifest["kind"])? {
            "ConfigMap" | "Secret" => false,
            // kubectl knows no more about the lists of custom resources than we do.
            kind if CUSTOM.contains(&kind) || is_for_the_cluster(manifest) => false,
            "Deployment" | "StatefulSet" | "DaemonSet" => {
                let api = api_of(client, Some(namespace), manifest)?;
                let name = text(&manifest["metadata"]["name"])?;
                api.get_metadata_opt(name).await?.is_some()
            }
            _ => true,
        };
        if needs_kubectl {
            return Ok(false);
        }
    }
    for manifest in manifests {
        let namespace = (!is_for_the_cluster(manifest)).then_some(namespace);
        let manifest = with_last_applied(manifest, namespace);
        write(client, namespace, &manifest).await?;
    }
    Ok(true)
}

async fn write(client: &Client, namespace: Option<&str>, manifest: &Value) -> Result<()> {
    let api = api_of(client, namespace, manifest)?;
    let name = text(&manifest["metadata"]["name"])?;
    let Some(current) = api.get_opt(name).await? else {
        return create(client, namespace, manifest).await;
    };
    let noted = current.metadata.annotations.as_ref();
    let noted = noted.and_then(|annotations| annotations.get(LAST_APPLIED));
    let original = match noted {
        Some(noted) => serde_json::from_str(noted)?,
        None => json!({}),
    };
    let patch = three_way(&original, manifest, &serde_json::to_value(&current)?);
    if patch.is_empty() {
        return Ok(());
    }
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let patched = api.patch(name, &params, &Patch::Merge(&patch)).await;
    patched
        .map(drop)
        .with_context(|| format!("patching {name}"))
}

/// Returns true if a manifest is of our kind that has no namespace.
fn is_for_the_cluster(manifest: &Value) -> bool {
    manifest["kind"] == "ClusterConfigSync"
}

fn with_last_applied(manifest: &Value, namespace: Option<&str>) -> Value {
    let mut manifest = manifest.clone();
    let metadata = &mut manifest["metadata"];
    if let Some(namespace) = namespace.filter(|_| metadata["namespace"].is_null()) {
        metadata["namespace"] = json!(namespace);
    }
    if metadata["annotations"].is_null() {
        metadata["annotations"] = json!({});
    }
    let noted = format!("{manifest}\n");
    manifest["metadata"]["annotations"][LAST_APPLIED] = json!(noted);
    manifest
}

/// Returns the JSON Merge Patch that sets everything in `modified` and removes everything that only
/// `original` had.
fn three_way(original: &Value, modified: &Value, current: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, wanted) in modified.as_object().into_iter().flatten() {
        let found = &current[key];
        if wanted.is_object() && found.is_object() {
            let inner = three_way(&original[key], wanted, found);
            if !inner.is_empty() {
                patch.insert(key.clone(), Value::Object(inner));
            }
        } else if wanted != found {
            patch.insert(key.clone(), wanted.clone());
        }
    }
    for key in original
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        if modified.get(key).is_none() && current.get(key).is_some() {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .context("a manifest lacks its kind, apiVersion or name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_no_longer_applied_are_removed_and_those_of_others_stay() {
        let original = json!({"data": {"gone": "1", "stays": "1"}});
        let modified = json!({"data": {"stays": "2", "new": "3"}});
        let current = json!({"data": {"gone": "1", "stays": "1", "of others": "4"}});

        let patch = three_way(&original, &modified, &current);

        let expected = json!({"data": {"gone": null, "stays": "2", "new": "3"}});
        assert_eq!(Value::Object(patch), expected);
        assert!(three_way(&modified, &modified, &modified).is_empty());
    }
}
