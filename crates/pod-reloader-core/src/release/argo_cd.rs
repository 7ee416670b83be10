//! Argo CD's Applications, by their operation.
//!
//! While a sync runs, the operation lists each object that it has applied. Hooks of the phase `PostSync` run
//! when every object has been applied. A sync that fails and is tried again stays `Running`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube_core::{DynamicResourceScope, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Release, ReleaseObject, Revision, Step, Tool, flux, helm};
use crate::metadata::{identity, resource};
use crate::name::Name;

/// Annotation of an object that belongs to an Application: `application:group/kind:namespace/name`. The
/// Application is `namespace_name` if it is not in the namespace of Argo CD.
pub(super) const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
/// Label of an object that belongs to an Application, if Argo CD tracks by the label that it recommends for
/// that: the Application, as above.
const INSTANCE: &str = "argocd.argoproj.io/instance";
/// The same, if Argo CD tracks by the label that is its default. Charts set it too, to the name of a release.
const COMMON_INSTANCE: &str = "app.kubernetes.io/instance";

/// Returns the Application that an object belongs to. Its namespace may be unknown.
pub(super) fn of<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    label: impl Fn(&str) -> Option<&'a str>,
) -> Option<Release> {
    let tracked = annotation(TRACKING_ID).and_then(|id| Some(id.split_once(':')?.0));
    let is_of_others = annotation(helm::NAME).or(label(flux::NAME)).is_some();
    let common = || label(COMMON_INSTANCE).filter(|_| !is_of_others);
    let application = tracked.or_else(|| label(INSTANCE)).or_else(common)?;
    match application.split_once('_') {
        Some((namespace, name)) => release(Some(namespace), name),
        None => release(None, application),
    }
}

fn release(namespace: Option<&str>, name: &str) -> Option<Release> {
    Some(Release {
        tool: Tool::ArgoCd,
        namespace: namespace.map(Name::parse).transpose().ok()?,
        name: Name::parse(name).ok()?.as_str().into(),
    })
}

/// Returns a number that stands for an object in the list of an operation.
pub(super) fn listed(group: &str, kind: &str, namespace: &str, name: &str) -> u64 {
    hash(&(group, kind, namespace, name))
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// An Application of Argo CD: its identity and its operation.
#[derive(Clone, Debug, Deserialize)]
pub struct Application {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    /// The operation that is asked for. It is there until the operation has ended.
    operation: Option<IgnoredAny>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The namespace of Argo CD.
    controller_namespace: Option<String>,
    operation_state: Option<Operation>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    phase: Option<String>,
    message: Option<String>,
    started_at: Option<String>,
    sync_result: Option<SyncResult>,
}

#[derive(Clone, Debug, Deserialize)]
struct SyncResult {
    resources: Option<Vec<Applied>>,
}

/// An object that the operation has applied, or a hook.
#[derive(Clone, Debug, Default, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
struct Applied {
    group: String,
    kind: String,
    namespace: String,
    name: String,
    status: String,
    hook_phase: String,
    sync_phase: String,
}

resource!(
    Application, DynamicResourceScope, of_metadata: false,
    group: "argoproj.io", version: "v1alpha1", kind: "Application", plural: "applications"
);

impl ReleaseObject for Application {
    const TOOL: Tool = Tool::ArgoCd;
    const SELECTOR: Option<&str> = None;

    fn revision(&self) -> Option<Revision> {
        let metadata = &self.metadata;
        let namespace = metadata.namespace.as_deref()?;
        let release = release(Some(namespace), metadata.name.as_deref()?)?;
        Some(Revision::only(release, self.step()))
    }
}

impl Application {
    /// Returns the step that the operation has taken, if it may still write.
    fn step(&self) -> Option<Step> {
        let status = self.status.as_ref()?;
        let operation = status.operation_state.as_ref()?;
        if operation.phase.as_deref() != Some("Running") || self.operation.is_none() {
            return None;
        }
        let resources = operation.sync_result.as_ref();
        let resources = resources.and_then(|it| it.resources.as_deref());
        let resources = resources.unwrap_or_default();
        if resources.iter().any(|it| it.sync_phase == "PostSync") {
            return None;
        }
        let is_applied =
            |it: &&Applied| matches!(&*it.status, "Synced" | "Pruned" | "PruneSkipped");
        let applied = resources.iter().filter(is_applied);
        let applied = applied.map(|it| listed(&it.group, &it.kind, &it.namespace, &it.name));
        let home = status.controller_namespace.as_ref();
        Some(Step::ArgoCd {
            sign: hash(&(&operation.started_at, &operation.message, resources)),
            is_at_home: home.is_none_or(|home| Some(home) == self.metadata.namespace.as_ref()),
            applied: applied.collect::<BTreeSet<_>>(),
        })
    }
}
