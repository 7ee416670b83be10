//! Argo CD's Applications, by their operation.
//!
//! While a sync runs, the operation lists each object that it has applied. Hooks of the phase `PostSync` run
//! when every object has been applied. A sync that fails and is tried again stays `Running`.

use std::collections::BTreeSet;

use kube_core::DynamicResourceScope;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{Places, Release, ReleaseObject, Revision, Step, Tool, flux, hash, helm};
use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;
use crate::raw;

/// Annotation of an object that belongs to an Application: `application:group/kind:namespace/name`. The
/// Application is `namespace_name` if it is not in the namespace of Argo CD.
pub(super) const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
/// Label of an object that belongs to an Application, if Argo CD tracks by the label that it recommends for
/// that: the Application, as above.
const INSTANCE: &str = "argocd.argoproj.io/instance";
/// The same, if Argo CD tracks by the label that is its default. Charts set it too, to the name of a release.
const COMMON_INSTANCE: &str = "app.kubernetes.io/instance";

/// The namespace in which Argo CD is installed, unless somebody chooses another one.
const DEFAULT_HOME: &str = "argocd";

/// Returns the namespace of Argo CD: the first one in which Applications are watched. What Applications say of that
/// does not count, because in other namespaces tenants write them, with their status.
pub(super) fn home(places: &Places) -> Option<Name> {
    let first = places.get(&Tool::ArgoCd)?.iter().flatten().next();
    first.cloned().or_else(|| Name::parse(DEFAULT_HOME).ok())
}

/// Returns the Application that an object belongs to. An object does not say the namespace of Argo CD.
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

/// An Application of Argo CD: its identity and its operation.
#[derive(Clone, Debug, Deserialize)]
pub struct Application {
    metadata: Metadata<Self>,
    /// The operation that is asked for. It is there until the operation has ended.
    operation: Option<IgnoredAny>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The namespace of the Argo CD that syncs the Application.
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

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SyncResult {
    #[serde(deserialize_with = "so_far")]
    resources: SoFar,
}

/// The results so far, of all objects and hooks together.
#[derive(Clone, Debug, Default)]
struct SoFar {
    /// A hash of all of them.
    hash: u64,
    /// The objects that have been applied, as [`listed`] has them.
    applied: BTreeSet<u64>,
    /// True if a hook has begun that runs when all objects have been applied.
    has_post_sync: bool,
}

/// Reads the results one at a time.
fn so_far<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SoFar, D::Error> {
    /// An object that the operation has applied, or a hook.
    #[derive(Default, Deserialize, Hash)]
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
    raw::fold(deserializer, SoFar::default(), |so_far, it: Applied| {
        so_far.hash = hash(&(so_far.hash, &it));
        so_far.has_post_sync |= it.sync_phase == "PostSync";
        if matches!(&*it.status, "Synced" | "Pruned" | "PruneSkipped") {
            let object = listed(&it.group, &it.kind, &it.namespace, &it.name);
            so_far.applied.insert(object);
        }
    })
}

resource!(
    Application, DynamicResourceScope, of_metadata: false,
    group: "argoproj.io", version: "v1alpha1", kind: "Application", plural: "applications"
);

impl Wanted for Application {}

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
        let so_far = operation.sync_result.as_ref().map(|it| &it.resources);
        if so_far.is_some_and(|it| it.has_post_sync) {
            return None;
        }
        let home = status.controller_namespace.as_ref();
        Some(Step::ArgoCd {
            sign: hash(&(
                &operation.started_at,
                &operation.message,
                so_far.map(|it| it.hash),
            )),
            is_at_home: home.is_none_or(|home| Some(home) == self.metadata.namespace.as_ref()),
            applied: so_far.map(|it| it.applied.clone()).unwrap_or_default(),
        })
    }
}
