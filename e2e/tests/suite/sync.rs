//! ClusterConfigSyncs: copies of ConfigMaps and Secrets in other namespaces.

mod base_secret;
mod copies;
mod faults;
mod foreign;
mod guards;
pub(crate) mod lifecycle;
mod processes;
mod rivals;
mod secrecy;
mod takeover;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Request};
use kube::{Api, ResourceExt};
use pod_reloader_e2e::workload::config_map;
use pod_reloader_e2e::{
    Attempt, AuditEvent, Mark, Options, PATIENCE, Scene, THIS_NAMESPACE, Tested, done_if, full,
    merge, proxy::Selection, wait_for,
};
use serde_json::{Value, json};

/// The annotation of a copy that names its source and its own namespace.
const COPY_OF: &str = "pod-reloader.cs.sap.com/copy-of";
/// The annotation of a copy by which the operator knows it.
const SEAL: &str = "pod-reloader.cs.sap.com/seal";
/// The name of the source, and so of all copies.
const SHARED: &str = "shared";
/// The path of ClusterConfigSyncs.
const SYNCS: &str = "/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs";
/// The number of namespaces that a test creates or empties at once.
const AT_ONCE: usize = 8;

/// Runs a test with an operator that copies. It sees only the ClusterConfigSyncs with the label of the scene: otherwise
/// it would copy for those of other tests, too.
pub(crate) async fn play(
    options: Options,
    test: impl AsyncFnOnce(&Scene) -> Result<()>,
) -> Result<()> {
    let options = Options {
        selection: Some(Selection::new(SYNCS, format!("scene={THIS_NAMESPACE}"))),
        ..options
    };
    Scene::play(options, async |scene| {
        let outcome = test(scene).await;
        let ours = ListParams::default().labels(&format!("scene={}", scene.namespace));
        let delete = Request::new(SYNCS).delete_collection(&DeleteParams::default(), &ours)?;
        scene.client.request::<Value>(delete).await?;
        // At full size, the control plane would be busy with them for longer than with the test.
        if !full() {
            Namespaces::of(scene).empty_all().await?;
        }
        outcome
    })
    .await
}

/// Returns options of an operator that copies, with these values. It looks after no workload of other tests.
pub(crate) fn copying(values: Value) -> Options {
    let mut all = json!({
        "sync": {"enabled": true},
        "watch": {"namespaceSelector": {"matchLabels": {"sync-test": THIS_NAMESPACE}}},
    });
    merge(&mut all, &values);
    Options {
        tested: Tested::Writer,
        everywhere: true,
        values: all,
        namespace_labels: vec![format!("sync-test={THIS_NAMESPACE}")],
        failure_policy: "Ignore",
        ..Options::default()
    }
}

/// Returns the ClusterConfigSync of Secret `shared` of the scene, with some fields of its own. It selects the
/// namespaces of the scene.
pub(crate) fn sync(scene: &Scene, name: &str, fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "ClusterConfigSync",
        "metadata": {
            "name": format!("{}-{name}", scene.namespace),
            "labels": {"scene": scene.namespace},
        },
        "spec": {
            "source": {"kind": "Secret", "namespace": scene.namespace, "name": SHARED},
            "namespaceSelector": {"matchLabels": {"copies-of": scene.namespace}},
        },
    });
    merge(&mut object, &fields);
    object
}

/// Returns Secret `shared` with a value.
pub(crate) fn source(value: &str) -> Value {
    source_named(SHARED, value)
}

fn source_named(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "example.com/shared",
        "stringData": {"value": value, "binary": "a\u{0}b"},
    })
}

/// Makes the writer create, change and delete a copy of each kind, and repeat an Event.
pub(crate) async fn copy_both_kinds(scene: &Scene) -> Result<()> {
    let namespaces = Namespaces::of(scene);
    let here = namespaces.create("both", true).await?;
    let of_config_map = json!({"spec": {"source": {"kind": "ConfigMap"}}});
    let both = [
        sync(scene, "secret", json!({})),
        sync(scene, "config-map", of_config_map),
    ];
    for value in ["1", "2"] {
        scene
            .apply(&[source(value), config_map(SHARED, value)])
            .await?;
        for ours in &both {
            apply_sync(scene, ours).await?;
        }
        has_copy(scene, &here, value).await?;
        wait_for("the copy of the ConfigMap", PATIENCE, async || {
            let copy = scene.object_in(&here, &format!("configmap/{SHARED}")).await;
            let data = copy
                .map(|copy| copy["data"].to_string())
                .unwrap_or_default();
            done_if(data.contains(&format!("\"{value}\"")), data)
        })
        .await?;
    }
    namespaces.select(&here, false).await?;
    has_none(scene, &here).await?;
    wait_for("the copy of the ConfigMap to go", PATIENCE, async || {
        Ok(
            match scene.object_in(&here, &format!("configmap/{SHARED}")).await {
                Err(_) => Attempt::Done(()),
                Ok(copy) => Attempt::NotYet(copy["metadata"].to_string()),
            },
        )
    })
    .await?;
    for _ in 0..2 {
        scene.delete(&format!("secret/{SHARED}")).await?;
        becomes(scene, &both[0], "SourceNotFound").await?;
        scene.apply(&[source("3")]).await?;
        becomes(scene, &both[0], "Synced").await?;
    }
    Ok(())
}

pub(crate) async fn apply_sync(scene: &Scene, object: &Value) -> Result<()> {
    scene.apply(std::slice::from_ref(object)).await
}

/// Applies the object of [`sync`], and returns it.
pub(crate) async fn applied_sync(scene: &Scene, name: &str, fields: Value) -> Result<Value> {
    let object = sync(scene, name, fields);
    apply_sync(scene, &object).await?;
    Ok(object)
}

async fn delete_sync(scene: &Scene, object: &Value) -> Result<()> {
    let delete = Request::new(SYNCS).delete(name_of(object)?, &DeleteParams::default())?;
    scene.client.request::<Value>(delete).await?;
    Ok(())
}

/// The namespaces of a scene that can get copies.
pub(crate) struct Namespaces<'a> {
    scene: &'a Scene,
    api: Api<Namespace>,
}

impl<'a> Namespaces<'a> {
    pub(crate) fn of(scene: &'a Scene) -> Self {
        let api = Api::all(scene.client.clone());
        Self { scene, api }
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.scene.namespace)
    }

    /// Creates a namespace. Only one that `is_selected` gets a copy.
    pub(crate) async fn create(&self, suffix: &str, is_selected: bool) -> Result<String> {
        let mut labels = BTreeMap::from([("scene".to_owned(), self.scene.namespace.clone())]);
        if is_selected {
            labels.insert("copies-of".to_owned(), self.scene.namespace.clone());
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(self.name(suffix));
        namespace.metadata.labels = Some(labels);
        self.api.create(&PostParams::default(), &namespace).await?;
        Ok(self.name(suffix))
    }

    /// Creates namespaces that get copies, and returns their names.
    async fn create_each<const N: usize>(&self, suffixes: [&str; N]) -> Result<[String; N]> {
        for suffix in suffixes {
            self.create(suffix, true).await?;
        }
        Ok(suffixes.map(|suffix| self.name(suffix)))
    }

    /// Creates many namespaces that get copies, and returns their names. Their suffixes begin with `part`.
    async fn create_many(&self, part: &str, count: usize) -> Result<Vec<String>> {
        let suffixes: Vec<_> = (0..count)
            .map(|number| format!("{part}-{number}"))
            .collect();
        let all = suffixes.iter().map(|suffix| self.create(suffix, true));
        stream::iter(all).buffered(AT_ONCE).try_collect().await
    }

    async fn select(&self, name: &str, is_selected: bool) -> Result<()> {
        let value = is_selected.then_some(&self.scene.namespace);
        let patch = json!({"metadata": {"labels": {"copies-of": value}}});
        let params = PatchParams::default();
        self.api.patch(name, &params, &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>> {
        let ours = ListParams::default().labels(&format!("scene={}", self.scene.namespace));
        let all = self.api.list(&ours).await?;
        Ok(all.iter().map(ResourceExt::name_any).collect())
    }

    /// Empties all namespaces of the scene.
    async fn empty_all(&self) -> Result<()> {
        let all = self.list().await?;
        let all = all.iter().map(async |name| {
            // The garbage collector deletes the copies, and a policy may refuse to delete the rest.
            let _ = self.scene.empty_namespace(name).await;
        });
        let () = stream::iter(all).buffer_unordered(AT_ONCE).collect().await;
        Ok(())
    }
}

fn secrets(scene: &Scene, namespace: &str) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), namespace)
}

/// Returns the reason why a copy is not the one of this value, if there is one.
async fn difference(scene: &Scene, namespace: &str, value: &str) -> Result<Option<String>> {
    difference_of(scene, namespace, SHARED, value).await
}

async fn difference_of(
    scene: &Scene,
    namespace: &str,
    name: &str,
    value: &str,
) -> Result<Option<String>> {
    let Some(copy) = secrets(scene, namespace).get_opt(name).await? else {
        return Ok(Some("there is none".to_owned()));
    };
    let data = copy.data.clone().unwrap_or_default();
    let is = |key: &str, value: &str| data.get(key).is_some_and(|it| it.0 == value.as_bytes());
    let mark = format!("{}/{name}@{namespace}", scene.namespace);
    let is_exact = data.len() == 2
        && is("value", value)
        && is("binary", "a\u{0}b")
        && copy.type_.as_deref() == Some("example.com/shared")
        && copy.immutable.is_none()
        && copy.labels().get("pod-reloader.cs.sap.com/copied-from") == Some(&scene.namespace)
        && copy.labels().len() == 1
        && copy.annotations().get(COPY_OF) == Some(&mark)
        && copy
            .annotations()
            .get(SEAL)
            .is_some_and(|it| it.len() == 32)
        && copy.annotations().len() == 2;
    let shown = || format!("{:?} {:?} {:?}", copy.metadata, copy.type_, data.keys());
    Ok((!is_exact).then(shown))
}

/// Waits until the copy in a namespace is exactly the one of this value.
async fn has_copy(scene: &Scene, namespace: &str, value: &str) -> Result<()> {
    let what = format!("a copy with {value} in {namespace}");
    wait_for(&what, PATIENCE, async || {
        Ok(match difference(scene, namespace, value).await? {
            None => Attempt::Done(()),
            Some(difference) => Attempt::NotYet(difference),
        })
    })
    .await
}

/// Waits until there is no object with the name of the copy.
async fn has_none(scene: &Scene, namespace: &str) -> Result<()> {
    wait_for(&format!("no copy in {namespace}"), PATIENCE, async || {
        Ok(
            match secrets(scene, namespace).get_metadata_opt(SHARED).await? {
                None => Attempt::Done(()),
                Some(copy) => Attempt::NotYet(format!("{:?}", copy.metadata)),
            },
        )
    })
    .await
}

/// Waits until the condition of a ClusterConfigSync has this reason. Returns its status.
async fn becomes(scene: &Scene, object: &Value, reason: &str) -> Result<Value> {
    let name = name_of(object)?;
    wait_for(&format!("{name} to be {reason}"), PATIENCE, async || {
        let object = read_sync(scene, name).await?;
        let status = object["status"].clone();
        let ready = &status["conditions"][0];
        let is_current = status["observedGeneration"] == object["metadata"]["generation"];
        Ok(match is_current && ready["reason"] == reason {
            true => Attempt::Done(status),
            false => Attempt::NotYet(status.to_string()),
        })
    })
    .await
}

pub(crate) fn name_of(sync: &Value) -> Result<&str> {
    sync["metadata"]["name"].as_str().context("it has a name")
}

pub(crate) async fn read_sync(scene: &Scene, name: &str) -> Result<Value> {
    let get = Request::new(SYNCS).get(name, &GetParams::default())?;
    Ok(scene.client.request(get).await?)
}

/// Asserts that each of these namespaces, and no other, cannot have a copy, for these reasons.
fn conflicts(status: &Value, expected: &[(&str, &str)]) -> Result<()> {
    let all = status["conflicts"].as_array().cloned().unwrap_or_default();
    let all: Vec<_> = all
        .iter()
        .map(|it| {
            (
                it["namespace"].as_str().unwrap_or(""),
                it["reason"].as_str().unwrap_or(""),
            )
        })
        .collect();
    ensure!(all == expected, "{all:?}");
    Ok(())
}

/// Waits until the operator has handled everything that happened before: it makes one more copy, deletes it, and
/// writes how many there are.
async fn rests(scene: &Scene, object: &Value) -> Result<()> {
    let namespaces = Namespaces::of(scene);
    let sentinel = format!("sentinel-{}", unique()?);
    let sentinel = namespaces.create(&sentinel, true).await?;
    wait_for("the copy of the sentinel", PATIENCE, async || {
        let copy = secrets(scene, &sentinel).get_metadata_opt(SHARED).await?;
        Ok(copy.map_or(Attempt::NotYet(String::new()), |_| Attempt::Done(())))
    })
    .await?;
    namespaces.select(&sentinel, false).await?;
    has_none(scene, &sentinel).await?;
    let selected = format!("copies-of={}", scene.namespace);
    let selected = ListParams::default().labels(&selected);
    let selected = namespaces.api.list(&selected).await?.items.len();
    let name = name_of(object)?;
    wait_for("the status to tell it", PATIENCE, async || {
        let status = read_sync(scene, name).await?["status"].clone();
        let is_told = status["selected"] == selected && status["conditions"][0]["status"] == "True";
        done_if(is_told, status.to_string())
    })
    .await
}

/// Returns a suffix that no other namespace has.
fn unique() -> Result<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(format!("{:x}", now.as_millis() % 0x10_0000))
}

/// Returns the writes of the operator to copies since a mark, except for those of sentinels.
async fn writes(scene: &Scene, mark: Mark) -> Result<Vec<AuditEvent>> {
    let all = scene.requests(mark).await?.into_iter();
    let is_write = |it: &AuditEvent| ["create", "update", "delete", "patch"].contains(&&*it.verb);
    let is_copy =
        |it: &AuditEvent| it.resource == "secrets" && !it.namespace.contains("-sentinel-");
    Ok(all.filter(|it| is_write(it) && is_copy(it)).collect())
}

/// Asserts that none of these pauses between writes against somebody is shorter than it must be: the first is none, the
/// second is a second, and each further one is twice as long. After a pause of a minute, they begin again.
pub(crate) fn are_paced(pauses: &[Duration]) -> Result<()> {
    let mut due = Duration::ZERO;
    for pause in pauses {
        ensure!(*pause >= due, "{pause:?} is less than {due:?}: {pauses:?}");
        due = match *pause < Duration::from_secs(60) {
            true => (due * 2).max(Duration::from_secs(1)),
            false => Duration::ZERO,
        };
    }
    Ok(())
}

/// Describes writes, for the message of a failed claim.
fn shown(writes: &[AuditEvent]) -> Vec<String> {
    let all = writes.iter();
    all.map(|it| format!("{} {} {:?}", it.verb, it.uri, it.code))
        .collect()
}
