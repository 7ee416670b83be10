//! Flux's Kustomizations, by their condition `Reconciling`.
//!
//! The condition says what the controller does. It checks the health of objects only when it has applied
//! them all. Between an attempt that failed and the next one the condition stays, with another reason.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube_core::{DynamicResourceScope, ObjectMeta};
use serde::Deserialize;

use super::{Release, ReleaseObject, Revision, Step, Tool};
use crate::metadata::{identity, resource};
use crate::name::Name;

/// Label of an object that belongs to a Kustomization: its name.
pub(super) const NAME: &str = "kustomize.toolkit.fluxcd.io/name";
/// Label of an object that belongs to a Kustomization: its namespace.
const NAMESPACE: &str = "kustomize.toolkit.fluxcd.io/namespace";

/// Reason of the condition while the controller works.
const PROGRESSING: &str = "Progressing";
/// The beginning of the message of the condition when everything has been applied.
const APPLIED: &str = "Running health checks";

/// Returns the Kustomization that an object belongs to.
pub(super) fn of<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Option<Release> {
    release(label(NAMESPACE)?, label(NAME)?)
}

fn release(namespace: &str, name: &str) -> Option<Release> {
    Some(Release {
        tool: Tool::Flux,
        namespace: Some(Name::parse(namespace).ok()?),
        name: Name::parse(name).ok()?.as_str().into(),
    })
}

/// A Kustomization of Flux: its identity and its conditions.
#[derive(Clone, Debug, Deserialize)]
pub struct Kustomization {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    suspend: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

resource!(
    Kustomization, DynamicResourceScope, of_metadata: false,
    group: "kustomize.toolkit.fluxcd.io", version: "v1", kind: "Kustomization", plural: "kustomizations"
);

impl ReleaseObject for Kustomization {
    const TOOL: Tool = Tool::Flux;
    const SELECTOR: Option<&str> = None;

    fn revision(&self) -> Option<Revision> {
        let metadata = &self.metadata;
        let release = release(metadata.namespace.as_deref()?, metadata.name.as_deref()?)?;
        Some(Revision::only(release, self.step()))
    }
}

impl Kustomization {
    /// Returns the step that the controller takes, if it may still write.
    fn step(&self) -> Option<Step> {
        // The condition stays as it was when somebody suspended the Kustomization.
        if self
            .spec
            .as_ref()
            .is_some_and(|spec| spec.suspend == Some(true))
        {
            return None;
        }
        let mut conditions = self.status.iter().flat_map(|it| &it.conditions).flatten();
        let is_reconciling = |it: &&Condition| it.r#type == "Reconciling" && it.status == "True";
        let reconciling = conditions.find(is_reconciling)?;
        let message = reconciling.message.as_deref().unwrap_or_default();
        let writes =
            reconciling.reason.as_deref() == Some(PROGRESSING) && !message.starts_with(APPLIED);
        writes.then(|| {
            let mut hasher = DefaultHasher::new();
            message.hash(&mut hasher);
            Step::Flux(hasher.finish())
        })
    }
}
