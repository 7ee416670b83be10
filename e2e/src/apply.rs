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

use crate::own_kinds::{OwnKind, own_kinds};

/// Annotation in which `kubectl apply` records what it has sent.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Custom resources of others that tests apply often, and that have a namespace.
const CUSTOM: [&str; 8] = [
    "Certificate",
    "Cluster",
    "Harbor",
    "Issuer",
    "KafkaConnect",
    "Rollout",
    "SecretProviderClass",
    "Store",
];
/// Kinds with containers.
const WITH_PODS: [&str; 6] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Pod",
    "StatefulSet",
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
    let created = send_create(client, namespace, manifest, PostParams::default()).await;
    created
        .map(drop)
        .with_context(|| format!("creating {manifest}"))
}

/// Returns what [`create`] would store. Nothing is stored.
///
/// # Errors
/// When it is refused.
pub(crate) async fn try_create(
    client: &Client,
    namespace: Option<&str>,
    manifest: &Value,
) -> Result<Value> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    send_create(client, namespace, manifest, params).await
}

async fn send_create(
    client: &Client,
    namespace: Option<&str>,
    manifest: &Value,
    params: PostParams,
) -> Result<Value> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..params
    };
    let api = api_of(client, namespace, manifest)?;
    let create = Request::new(api.resource_url());
    let mut create = create.create(&params, serde_json::to_vec(manifest)?)?;
    // kube has no parameter for this.
    let strict = format!("{}&fieldValidation=Strict", create.uri());
    *create.uri_mut() = strict.parse()?;
    Ok(client.request(create).await?)
}

/// Applies the manifests in this order. Returns false, and writes nothing, if only kubectl can do it: it knows all other
/// kinds, and it knows how to merge lists in which elements come, go or move.
///
/// # Errors
/// When one is refused.
pub(crate) async fn apply(client: &Client, namespace: &str, manifests: &[Value]) -> Result<bool> {
    let mut writes = Vec::new();
    for manifest in manifests {
        match Write::of(client, namespace, manifest).await? {
            Some(write) => writes.push(write),
            None => return Ok(false),
        }
    }
    for write in writes {
        write.send(client).await?;
    }
    Ok(true)
}

/// A write that makes an object what its manifest says.
struct Write {
    manifest: Value,
    change: Change,
}

enum Change {
    Create,
    Patch(Patch<Map<String, Value>>),
    Nothing,
}

/// How the apiserver takes the lists of a patch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// As a whole.
    Replaced,
    /// Element by element, if they are containers.
    Merged,
}

impl Write {
    /// Returns the write for a manifest; `None` if only kubectl can do it.
    async fn of(client: &Client, namespace: &str, manifest: &Value) -> Result<Option<Self>> {
        let lists = match text(&manifest["kind"])? {
            "ConfigMap" | "ResourceQuota" | "Role" | "RoleBinding" | "Secret" => Lists::Replaced,
            "Service" if manifest["apiVersion"] != "v1" => Lists::Replaced,
            // kubectl knows no more about the lists of custom resources than we do.
            kind if CUSTOM.contains(&kind) || own_kinds().iter().any(|own| own.kind == kind) => {
                Lists::Replaced
            }
            kind if WITH_PODS.contains(&kind) => Lists::Merged,
            _ => return Ok(None),
        };
        let namespace = (!is_for_the_cluster(manifest)).then_some(namespace);
        let manifest = with_last_applied(manifest, namespace);
        let api = api_of(client, None, &manifest)?;
        let Some(current) = api.get_opt(text(&manifest["metadata"]["name"])?).await? else {
            let change = Change::Create;
            return Ok(Some(Self { manifest, change }));
        };
        let noted = current.metadata.annotations.as_ref();
        let noted = noted.and_then(|annotations| annotations.get(LAST_APPLIED));
        let original = match noted {
            Some(noted) => serde_json::from_str(noted)?,
            None => json!({}),
        };
        let current = serde_json::to_value(&current)?;
        let Some(patch) = three_way(&original, &manifest, &current, lists) else {
            return Ok(None);
        };
        let change = match lists {
            _ if patch.is_empty() => Change::Nothing,
            Lists::Replaced => Change::Patch(Patch::Merge(patch)),
            Lists::Merged => Change::Patch(Patch::Strategic(patch)),
        };
        Ok(Some(Self { manifest, change }))
    }

    async fn send(self, client: &Client) -> Result<()> {
        let patch = match self.change {
            Change::Create => return create(client, None, &self.manifest).await,
            Change::Patch(patch) => patch,
            Change::Nothing => return Ok(()),
        };
        let api = api_of(client, None, &self.manifest)?;
        let name = text(&self.manifest["metadata"]["name"])?;
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let patched = api.patch(name, &params, &patch).await;
        patched
            .map(drop)
            .with_context(|| format!("patching {name}"))
    }
}

/// Returns true if a manifest is of one of our kinds that have no namespace.
fn is_for_the_cluster(manifest: &Value) -> bool {
    let is_one = |own: &OwnKind| manifest["kind"] == own.kind && !own.is_namespaced;
    own_kinds().iter().any(is_one)
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

/// Returns the patch that sets everything in `modified` and removes everything that only `original` had. `None` if that
/// takes more than this function knows about lists.
fn three_way(
    original: &Value,
    modified: &Value,
    current: &Value,
    lists: Lists,
) -> Option<Map<String, Value>> {
    let mut patch = Map::new();
    for (key, wanted) in modified.as_object().into_iter().flatten() {
        let found = &current[key];
        if wanted.is_object() && found.is_object() {
            let inner = three_way(&original[key], wanted, found, lists)?;
            // Fields of the strategy that are not set have to go.
            if lists == Lists::Merged && key == "strategy" && !inner.is_empty() {
                return None;
            }
            if !inner.is_empty() {
                patch.insert(key.clone(), Value::Object(inner));
            }
        } else if wanted != found {
            let change = match (lists, wanted, found) {
                (Lists::Merged, Value::Array(wanted), Value::Array(found)) => {
                    let changes = merged(key, &original[key], wanted, found)?;
                    (!changes.is_empty()).then_some(Value::Array(changes))
                }
                (Lists::Merged, Value::Array(_), _) => return None,
                _ => Some(wanted.clone()),
            };
            patch.extend(change.map(|change| (key.clone(), change)));
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
    Some(patch)
}

/// Returns the changes of the elements of a list, if they are containers. `None` if elements of other lists change, or
/// if some come, go or move.
fn merged(list: &str, original: &Value, wanted: &[Value], found: &[Value]) -> Option<Vec<Value>> {
    let original = original.as_array()?;
    if original.len() != wanted.len() || wanted.len() != found.len() {
        return None;
    }
    let mut changes = Vec::new();
    for ((original, wanted), found) in original.iter().zip(wanted).zip(found) {
        let is_same = original["name"] == wanted["name"] && wanted["name"] == found["name"];
        if !(wanted.is_object() && found.is_object() && is_same) {
            return None;
        }
        let mut change = three_way(original, wanted, found, Lists::Merged)?;
        if change.is_empty() {
            continue;
        }
        if !["containers", "initContainers"].contains(&list) {
            return None;
        }
        change.insert("name".to_owned(), wanted["name"].clone());
        changes.push(Value::Object(change));
    }
    Some(changes)
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

        let patch = three_way(&original, &modified, &current, Lists::Replaced);

        let expected = json!({"data": {"gone": null, "stays": "2", "new": "3"}});
        assert_eq!(patch.map(Value::Object), Some(expected));
        let same = three_way(&modified, &modified, &modified, Lists::Replaced);
        assert_eq!(same, Some(Map::new()));
    }

    #[test]
    fn a_container_is_patched_by_its_name_and_keeps_its_defaults() {
        let container = |image: &str| json!({"name": "main", "image": image});
        let original = json!({"containers": [container("app:1")]});
        let modified = json!({"containers": [container("app:2")]});
        let mut stored = container("app:1");
        stored["imagePullPolicy"] = json!("IfNotPresent");
        let current = json!({"containers": [stored], "restartPolicy": "Always"});

        let patch = three_way(&original, &modified, &current, Lists::Merged);

        assert_eq!(patch.map(Value::Object), Some(modified));
        let same = three_way(&original, &original, &current, Lists::Merged);
        assert_eq!(same, Some(Map::new()));
    }

    #[test]
    fn lists_that_get_longer_or_have_no_names_are_left_to_kubectl() {
        let stored =
            json!({"containers": [{"name": "main"}], "volumes": [{"name": "a"}], "args": ["1"]});
        for modified in [
            json!({"containers": [{"name": "main"}, {"name": "more"}]}),
            json!({"containers": [{"name": "other"}]}),
            json!({"volumes": [{"name": "a", "emptyDir": {}}]}),
            json!({"args": ["2"]}),
            json!({"initContainers": [{"name": "new"}]}),
        ] {
            let patch = three_way(&stored, &modified, &stored, Lists::Merged);
            assert_eq!(patch, None, "{modified}");
        }
    }
}
