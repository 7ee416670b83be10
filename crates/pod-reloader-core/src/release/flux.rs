//! Flux's Kustomizations, by their condition `Reconciling`.
//!
//! The condition says what the controller does. It checks the health of objects only when it has applied
//! them all. Between an attempt that failed and the next one the condition stays, with another reason.

use kube_core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};

use super::{Release, ReleaseObject, Revision, Step, Tool, hash};
use crate::conditions::Condition;
use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;
use crate::raw;

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
    metadata: Metadata<Self>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    suspend: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    #[serde(default, rename = "conditions", deserialize_with = "reconciling")]
    reconciling: Option<Reconciling>,
}

/// The condition `Reconciling`, while it holds.
#[derive(Clone, Debug)]
struct Reconciling {
    is_progressing: bool,
    message: Box<str>,
}

fn reconciling<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Reconciling>, D::Error> {
    raw::fold(deserializer, None, |reconciling, it: Condition<'de>| {
        if it.holds("Reconciling") && reconciling.is_none() {
            *reconciling = Some(Reconciling {
                is_progressing: it.reason.as_deref() == Some(PROGRESSING),
                message: it.message.as_deref().unwrap_or_default().into(),
            });
        }
    })
}

resource!(
    Kustomization, DynamicResourceScope, of_metadata: false,
    group: "kustomize.toolkit.fluxcd.io", version: "v1", kind: "Kustomization", plural: "kustomizations"
);

impl Wanted for Kustomization {}

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
        let reconciling = self.status.as_ref()?.reconciling.as_ref()?;
        let message = &reconciling.message;
        let writes = reconciling.is_progressing && !message.starts_with(APPLIED);
        writes.then(|| Step::Flux(hash(message)))
    }
}
