//! Pins: pods use copies of ConfigMaps, which their pod template names.

mod clients;
mod copies;
mod half_done;
mod kept;
mod killed;
mod pods;
mod reverted;
mod rollouts;
mod secrecy;
mod undone;
mod unpinned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::ListParams;
use pod_reloader_e2e::workload::{Kind, Workload, config_map};
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_if, merge, oracle, wait_for};
use serde_json::{Value, json};

use self::pods::pins_are_in_force;

/// Annotation of a pod template, with the copies that its pods use.
pub(crate) const PINS: &str = "pod-reloader.cs.sap.com/pins";
/// Annotation of a workload, with the ConfigMaps to copy.
pub(crate) const PIN: &str = "pod-reloader.cs.sap.com/pin";
/// Annotation of a workload, with what was undone.
pub(crate) const UNDONE: &str = "pod-reloader.cs.sap.com/undone";
/// Label of copies.
const COPY: &str = "pod-reloader.cs.sap.com/copy";

/// Returns options with pins and these values, and with a webhook that may fail.
pub(crate) fn pinning(values: &Value) -> Options {
    let mut all = json!({"pin": {"enabled": true}});
    merge(&mut all, values);
    Options {
        failure_policy: "Ignore",
        values: all,
        ..Options::default()
    }
}

/// Returns a workload whose pods cannot start without ConfigMap `app`, and that pins it.
pub(crate) fn pinned(kind: Kind, name: &str) -> Workload {
    let workload = Workload::new(kind, name).lists("app").requires("app");
    workload.annotated(PIN, "configmaps")
}

/// Creates Deployment `web`, which pins ConfigMap `app` with the value `1`, and waits until its pods use the copy.
pub(crate) async fn pinned_web(scene: &Scene) -> Result<Workload> {
    pins_are_in_force(scene).await?;
    let web = pinned(Kind::Deployment, "web");
    scene.apply(&[config_map("app", "1")]).await?;
    scene.create(&web).await?;
    pods_use(scene, &web, &app_copy(scene, "1")).await?;
    Ok(web)
}

/// Returns the pins for ConfigMap `app` with this value: what `app_copy` says of it.
pub(crate) fn app_pins(scene: &Scene, value: &str) -> String {
    format!("app={}", app_copy(scene, value))
}

/// Returns the name of the copy of a ConfigMap `app` whose only value is `value`.
pub(crate) fn app_copy(scene: &Scene, value: &str) -> String {
    copy_of(scene, "app", value)
}

/// Returns the name of the copy of a ConfigMap whose only value is `value`.
///
/// # Panics
///
/// Pins are not known to be in force.
pub(crate) fn copy_of(scene: &Scene, source: &str, value: &str) -> String {
    let keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = keys.get(&scene.namespace);
    let key = key.expect("pins are in force, so the key was read");
    let name = oracle::copy_name(key, &scene.namespace, source, &[("key", value)]);
    name.expect("HMAC takes keys of any length")
}

/// The keys under which copies get their names, by the namespace of the scene.
static KEYS: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Reads the key under which the copies of a scene get their names.
async fn read_key(scene: &Scene) -> Result<()> {
    let key = oracle::naming_key(&scene.client, &scene.installation).await?;
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    keys.insert(scene.namespace.clone(), key);
    Ok(())
}

/// Returns an annotation of the pod template of a workload.
pub(crate) async fn template_annotation(
    scene: &Scene,
    workload: &Workload,
    key: &str,
) -> Result<Option<String>> {
    let object = scene.object(&workload.reference()).await?;
    let value = &object["spec"]["template"]["metadata"]["annotations"][key];
    Ok(value.as_str().map(str::to_owned))
}

/// Returns an annotation of a workload.
pub(crate) async fn annotation(
    scene: &Scene,
    workload: &Workload,
    key: &str,
) -> Result<Option<String>> {
    let object = scene.object(&workload.reference()).await?;
    let value = &object["metadata"]["annotations"][key];
    Ok(value.as_str().map(str::to_owned))
}

/// Waits until the pod template of a workload has these pins.
pub(crate) async fn has_pins(scene: &Scene, workload: &Workload, pins: &str) -> Result<()> {
    let what = format!("{} to have the pins {pins}", workload.reference());
    wait_for(&what, PATIENCE, async || {
        let own = template_annotation(scene, workload, PINS).await?;
        done_if(own.as_deref() == Some(pins), format!("{own:?}"))
    })
    .await
}

/// Waits until the workload has been rolled out, and all its pods use this copy in place of `app`.
pub(crate) async fn pods_use(scene: &Scene, workload: &Workload, copy: &str) -> Result<()> {
    let what = format!("the pods of {} to use {copy}", workload.reference());
    wait_for(&what, PATIENCE, async || {
        let used = config_maps_of_pods(scene, &workload.name).await?;
        done_if(used.len() == 1 && used.contains(copy), format!("{used:?}"))
    })
    .await
}

/// Returns the ConfigMaps from which the pods with the label `app=NAME` get their environment.
pub(crate) async fn config_maps_of_pods(scene: &Scene, name: &str) -> Result<BTreeSet<String>> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let all = pods
        .list(&ListParams::default().labels(&format!("app={name}")))
        .await?;
    let running = all
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let containers = running
        .filter_map(|pod| pod.spec)
        .flat_map(|spec| spec.containers);
    let sources = containers.flat_map(|it| it.env_from.unwrap_or_default());
    Ok(sources
        .filter_map(|it| Some(it.config_map_ref?.name))
        .collect())
}

/// Returns the copies in the namespace of the scene, with their value.
pub(crate) async fn copies(scene: &Scene) -> Result<Vec<(String, Option<String>)>> {
    let copies: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let all = copies.list(&ListParams::default().labels(COPY)).await?;
    let mut found = Vec::new();
    for copy in all {
        ensure!(copy.immutable == Some(true), "{copy:?}");
        let value = copy.data.and_then(|mut data| data.remove("key"));
        found.push((copy.metadata.name.context("no name")?, value));
    }
    Ok(found)
}
