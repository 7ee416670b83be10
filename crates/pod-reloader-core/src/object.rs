//! Workloads as the apiserver serialises them, parsed into what the rules need.

mod parts;
mod pod_selector;
mod reviewed;
mod template;

use std::fmt;
use std::sync::Arc;

use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::parts::Parts;
pub(crate) use self::reviewed::Reviewed;
use self::template::{Found, PodTemplate, found};
use crate::annotations::Inherited;
use crate::foreign::Foreign;
use crate::kind::WorkloadKind;
use crate::metadata::resource;
use crate::name::InvalidName;
use crate::raw::read_as;
use crate::staging::{Facts, Status};
use crate::texts::Texts;
use crate::workload::{Reading, Restart, Stall, TimeField, Workload};

/// A kind of workload, in the API version that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The kind.
    pub kind: WorkloadKind,
    /// The version, such as `v1`.
    pub version: Arc<str>,
}

impl Served {
    /// Returns a kind that every cluster has.
    pub fn built_in(kind: WorkloadKind) -> Self {
        let version = "v1".into();
        Self { kind, version }
    }
}

/// Evaluates an expression with a name for the type of the objects of a kind: [`WorkloadObject`] or [`CustomObject`].
///
/// [`WorkloadObject`]: crate::object::WorkloadObject
/// [`CustomObject`]: crate::object::CustomObject
#[macro_export]
macro_rules! by_kind {
    ($kind:expr, $object:ident => $value:expr) => {
        if $crate::kind::WorkloadKind::is_built_in($kind) {
            type $object = $crate::object::WorkloadObject;
            $value
        } else {
            type $object = $crate::object::CustomObject;
            $value
        }
    };
}

/// A workload as the apiserver serialises it.
pub trait Object:
    Resource<DynamicType = Served, Scope = DynamicResourceScope>
    + Clone
    + fmt::Debug
    + Foreign
    + Send
    + 'static
{
    /// Returns the metadata.
    fn metadata(&self) -> &Metadata;

    /// Converts the object into what the rules need. `inherited` are the annotations of its Namespace.
    ///
    /// # Errors
    ///
    /// The namespace is not a valid name, which the apiserver never sends.
    fn into_workload(
        self,
        kind: WorkloadKind,
        reading: &Reading,
        inherited: &Inherited,
    ) -> Result<Workload, InvalidName>;
}

/// A workload of a built-in kind. Of its spec, only the parts that name configuration are parsed.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkloadObject {
    metadata: Metadata,
    spec: Spec,
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    template: PodTemplate,
    paused: Option<bool>,
    update_strategy: Option<UpdateStrategy>,
    replicas: Option<i64>,
    progress_deadline_seconds: Option<u32>,
    /// The unparsed selector of the pods: few need it.
    selector: Option<Box<RawValue>>,
}

/// How a workload replaces its pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UpdateStrategy {
    #[serde(rename = "type")]
    pub(crate) name: Option<String>,
    pub(crate) rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RollingUpdate {
    pub(crate) partition: Option<i64>,
}

/// A workload of any kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomObject {
    api_version: Option<Box<str>>,
    metadata: Metadata,
    /// The unparsed spec: it may be nested deeper than a parser goes.
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl Object for WorkloadObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn into_workload(
        self,
        kind: WorkloadKind,
        reading: &Reading,
        inherited: &Inherited,
    ) -> Result<Workload, InvalidName> {
        let Spec {
            template,
            paused,
            update_strategy,
            replicas,
            progress_deadline_seconds,
            selector,
        } = self.spec;
        let metadata = template.metadata.as_ref();
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let below = usize::from(metadata.is_some()) + usize::from(annotations.is_some());
        let template = Found {
            depth: Some(kind.shape().templates[0].path.len() + below),
            template,
        };
        let strategy = update_strategy.as_ref().and_then(|it| it.name.as_deref());
        let parts = Parts {
            api_version: None,
            metadata: self.metadata,
            templates: vec![template],
            restart: Restart::Template,
            stall: stall(paused == Some(true), strategy),
            facts: Facts {
                replicas,
                partition: update_strategy
                    .as_ref()
                    .and_then(|it| it.rolling_update.as_ref()?.partition),
                progress_deadline_seconds,
                status: self.status,
                custom: None,
            },
            selector,
        };
        parts.read(kind, reading, inherited)
    }
}

impl Object for CustomObject {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn into_workload(
        self,
        kind: WorkloadKind,
        reading: &Reading,
        inherited: &Inherited,
    ) -> Result<Workload, InvalidName> {
        let Self {
            api_version,
            metadata,
            spec,
            status,
        } = self;
        let spec = spec.as_deref();
        let shape = kind.shape();
        let restart = shape.restart_at.map_or(Restart::Template, |path| {
            let (depth, value) = match path {
                ["metadata", .., key] => {
                    let annotations = metadata.annotations.as_ref();
                    let value = annotations.and_then(|annotations| annotations.get(key));
                    let value = value.map(str::to_owned);
                    (1 + usize::from(annotations.is_some()), value)
                }
                // A field that is not an object only makes the tests of a write fail.
                _ => found(spec, path).map_or((path.len(), None), |(depth, value)| {
                    (depth, value.and_then(read_as))
                }),
            };
            let value = value.map(Into::into);
            Restart::At(Box::new(TimeField { depth, value }))
        });
        let templates = shape.templates.iter();
        let templates = templates.map(|template| Found::at(spec, template.path));
        let is_by_annotation = matches!(shape.restart_at, Some(["metadata", ..]));
        let strategy = found(spec, &["spec", "updateStrategy", "type"]);
        let strategy: Option<String> = strategy.and_then(|(_, value)| value.and_then(read_as));
        let paused = found(spec, &["spec", "paused"]);
        let is_paused = paused.and_then(|(_, value)| value.and_then(read_as)) == Some(true);
        let parts = Parts {
            templates: templates.collect(),
            api_version,
            metadata,
            restart,
            stall: stall(is_paused, strategy.as_deref()),
            facts: Facts {
                // A restart by an annotation is no new generation, so the status does not tell when it is done.
                custom: status.filter(|_| !is_by_annotation),
                ..Facts::default()
            },
            selector: found(spec, &["spec", "selector"]).and_then(|(_, it)| Some(it?.to_owned())),
        };
        parts.read(kind, reading, inherited)
    }
}

fn stall(is_paused: bool, update_strategy: Option<&str>) -> Option<Stall> {
    match is_paused {
        true => Some(Stall::Paused),
        false => (update_strategy == Some("OnDelete")).then_some(Stall::OnDelete),
    }
}

/// The metadata of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Fields")]
pub struct Metadata {
    identity: ObjectMeta,
    pub(crate) annotations: Option<Texts>,
    pub(crate) labels: Option<Texts>,
    /// The unparsed managed fields, which make up most of the size. They are dropped with the object: only a deletion is
    /// asked who has set something.
    pub(crate) managed_fields: Option<Box<RawValue>>,
}

/// Metadata without unused fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    annotations: Option<Texts>,
    labels: Option<Texts>,
    managed_fields: Option<Box<RawValue>>,
}

impl From<Fields> for Metadata {
    fn from(fields: Fields) -> Self {
        Self {
            identity: ObjectMeta {
                name: fields.name,
                namespace: fields.namespace,
                uid: fields.uid,
                resource_version: fields.resource_version,
                generation: fields.generation,
                ..ObjectMeta::default()
            },
            annotations: fields.annotations,
            labels: fields.labels,
            managed_fields: fields.managed_fields,
        }
    }
}

impl Metadata {
    fn object(&self) -> &ObjectMeta {
        &self.identity
    }

    fn object_mut(&mut self) -> &mut ObjectMeta {
        &mut self.identity
    }
}

resource!(
    WorkloadObject, DynamicResourceScope, of_metadata: false, by served: Served,
    group: served.kind.shape().group, version: &*served.version,
    kind: served.kind.as_str(), plural: served.kind.shape().plural
);
resource!(
    CustomObject, DynamicResourceScope, of_metadata: false, by served: Served,
    group: served.kind.shape().group, version: &*served.version,
    kind: served.kind.as_str(), plural: served.kind.shape().plural
);

#[cfg(test)]
mod tests;
