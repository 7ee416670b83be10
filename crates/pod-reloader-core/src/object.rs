//! Workloads as the apiserver serialises them, parsed into what the rules need.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::advice;
use crate::annotations::{self, Place};
use crate::dialects::Subject;
use crate::discovery::{PodSpec, Requirement};
use crate::duration::{self, MAX_SETTLE_PERIOD};
use crate::kind::{FieldPath, WorkloadKind};
use crate::name::{InvalidName, Name};
use crate::reference::Reference;
use crate::references::{MAX_REFERENCES, References};
use crate::review::fields;
use crate::workload::{
    MAX_ANNOTATIONS_SIZE, Markers, Reading, Restart, Stall, TemplateState, Workload, WorkloadId,
    annotations_size,
};

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

/// A workload as the apiserver serialises it.
pub trait Object:
    Resource<DynamicType = Served, Scope = DynamicResourceScope>
    + Clone
    + fmt::Debug
    + DeserializeOwned
    + Send
    + 'static
{
    /// Converts the object into what the rules need.
    ///
    /// # Errors
    ///
    /// The namespace is not a valid name, which the apiserver never sends.
    fn into_workload(self, kind: WorkloadKind, reading: &Reading) -> Result<Workload, InvalidName>;
}

/// A workload of a built-in kind. Of its spec, only the parts that name configuration are parsed.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkloadObject {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    template: PodTemplate,
    paused: Option<bool>,
    update_strategy: Option<UpdateStrategy>,
}

#[derive(Clone, Debug, Deserialize)]
struct UpdateStrategy {
    #[serde(rename = "type")]
    name: Option<String>,
}

fn stall(is_paused: bool, update_strategy: Option<&str>) -> Option<Stall> {
    match is_paused {
        true => Some(Stall::Paused),
        false => (update_strategy == Some("OnDelete")).then_some(Stall::OnDelete),
    }
}

/// A workload of any kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomObject {
    api_version: Option<Box<str>>,
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
    /// The unparsed spec: it may be nested deeper than a parser goes.
    spec: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodTemplate {
    metadata: Option<TemplateMetadata>,
    spec: Option<PodSpec>,
}

#[derive(Clone, Debug, Deserialize)]
struct TemplateMetadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl Object for WorkloadObject {
    fn into_workload(self, kind: WorkloadKind, reading: &Reading) -> Result<Workload, InvalidName> {
        let Spec {
            template,
            paused,
            update_strategy,
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
        };
        parts.read(kind, reading)
    }
}

impl Object for CustomObject {
    fn into_workload(self, kind: WorkloadKind, reading: &Reading) -> Result<Workload, InvalidName> {
        let Self {
            api_version,
            metadata,
            spec,
        } = self;
        let spec = spec.as_deref();
        let shape = kind.shape();
        let restart = shape.restart_at.map_or(Restart::Template, |path| {
            let (depth, value) = match path {
                ["metadata", .., key] => {
                    let annotations = metadata.annotations.as_ref();
                    let value = annotations.and_then(|annotations| annotations.get(*key));
                    (1 + usize::from(annotations.is_some()), value.cloned())
                }
                // A field that is not an object only makes the tests of a write fail.
                _ => found(spec, path).map_or((path.len(), None), |(depth, value)| {
                    (depth, value.and_then(read_as))
                }),
            };
            let value = value.map(Into::into);
            Restart::At { depth, value }
        });
        let templates = shape.templates.iter();
        let templates = templates.map(|template| Found::at(spec, template.path));
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
        };
        parts.read(kind, reading)
    }
}

/// Returns the number of fields that exist on a path that starts with `spec`, and the value at its end.
/// `None` if one of them is not an object.
fn found<'a>(spec: Option<&'a RawValue>, path: &[&str]) -> Option<(usize, Option<&'a RawValue>)> {
    let Some(mut place) = spec.filter(|spec| spec.get() != "null") else {
        return Some((0, None));
    };
    for (depth, field) in path.iter().enumerate().skip(1) {
        match fields(place).ok()?.remove(*field) {
            Some(inner) => place = inner,
            None => return Some((depth, None)),
        }
    }
    Some((path.len(), Some(place)))
}

/// Parses a value. One that cannot be parsed is treated as missing.
fn read_as<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// A pod template, and the number of fields that exist on the path to the config hash annotation. `None` if
/// one of them is not an object.
struct Found {
    depth: Option<usize>,
    template: PodTemplate,
}

impl Found {
    /// Finds a template in an object whose schema is unknown.
    fn at(spec: Option<&RawValue>, path: FieldPath) -> Self {
        let to_key = [path, &["metadata", "annotations", annotations::CONFIG_HASH]].concat();
        let depth = found(spec, &to_key).map(|(depth, _)| depth.min(to_key.len() - 1));
        let part = |below: &[&str]| found(spec, &[path, below].concat())?.1;
        let annotations = part(&["metadata", "annotations"]).and_then(read_as);
        let config_hash = || {
            let hash: String =
                part(&["metadata", "annotations", annotations::CONFIG_HASH]).and_then(read_as)?;
            Some(BTreeMap::from([(
                annotations::CONFIG_HASH.to_owned(),
                hash,
            )]))
        };
        let template = PodTemplate {
            // If other values are not strings, only the config hash is of use.
            metadata: Some(TemplateMetadata {
                annotations: annotations.or_else(config_hash),
            }),
            spec: part(&["spec"]).and_then(read_as),
        };
        Self { depth, template }
    }

    fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.template.metadata.as_ref()?.annotations.as_ref()
    }

    fn state(&self) -> TemplateState {
        let hash = self
            .annotations()
            .and_then(|it| it.get(annotations::CONFIG_HASH));
        TemplateState {
            depth: self.depth,
            config_hash: hash.map(|value| value.as_str().into()),
            annotations_size: self.annotations().map_or(0, annotations_size),
        }
    }
}

/// A workload, taken apart.
struct Parts {
    api_version: Option<Box<str>>,
    metadata: ObjectMeta,
    templates: Vec<Found>,
    restart: Restart,
    stall: Option<Stall>,
}

impl Parts {
    fn read(self, kind: WorkloadKind, reading: &Reading) -> Result<Workload, InvalidName> {
        let Self {
            api_version,
            metadata,
            templates,
            restart,
            stall,
        } = self;
        let ObjectMeta {
            name,
            namespace,
            uid,
            generation,
            annotations,
            labels,
            ..
        } = metadata;
        let namespace = Name::parse(&namespace.unwrap_or_default())?;
        let (has_annotations, has_labels) = (annotations.is_some(), labels.is_some());
        let annotations = annotations.filter(is_allowed).unwrap_or_default();
        let labels = labels.unwrap_or_default();
        let none = BTreeMap::new();
        let template_annotations = templates
            .iter()
            .find_map(Found::annotations)
            .filter(|annotations| is_allowed(annotations))
            .unwrap_or(&none);
        let pod_specs = templates.iter().filter_map(|it| it.template.spec.as_ref());
        let pod_specs: Vec<_> = pod_specs.collect();
        let (references, subscription) = reading.dialects.read(&Subject {
            kind,
            namespace: &namespace,
            annotations: &annotations,
            labels: &labels,
            template_annotations,
            pod_specs: &pod_specs,
        });
        let requirements = requirements(&pod_specs, &namespace, &references);
        let annotation = |key: &str| annotations.get(key).map(String::as_str);
        let settle_period = annotation(annotations::SETTLE_PERIOD)
            .or_else(|| reading.dialects.settle_period(kind, annotation))
            .and_then(duration::parse);
        let asks_for_time = reading.dialects.restarts_at(annotation);
        let restart = match kind.shape().templates.is_empty() || asks_for_time {
            true => restart,
            false => Restart::Template,
        };
        Ok(Workload {
            requirements: requirements.into_iter().collect(),
            references,
            restart,
            stall,
            api_version,
            uid: uid.unwrap_or_default().into(),
            generation: generation.unwrap_or_default(),
            subscription,
            templates: templates.iter().map(Found::state).collect(),
            markers: Markers {
                annotations: reading.annotations_of(&annotations),
                labels: reading.labels_of(&labels),
                has_annotations,
                has_labels,
                baseline: annotation(annotations::BASELINE).map(Into::into),
                annotations_size: annotations_size(&annotations),
            },
            settle_period: settle_period.map(|period| period.min(MAX_SETTLE_PERIOD)),
            advice: advice::on(
                [
                    (Place::Annotation, &annotations),
                    (Place::Label, &labels),
                    (Place::TemplateAnnotation, template_annotations),
                ],
                &reading.dialects,
            ),
            id: WorkloadId {
                kind,
                namespace,
                name: name.unwrap_or_default().into(),
            },
        })
    }
}

/// Returns what the pods need in order to start, among the objects that may be tracked. Regular expressions
/// are matched with no more objects than may be tracked.
fn requirements(
    pod_specs: &[&PodSpec],
    namespace: &Name,
    references: &References,
) -> BTreeSet<Requirement> {
    let has_patterns = references.pattern_kinds().next().is_some();
    let asked = RefCell::new(HashMap::new());
    let is_matched = |reference: &Reference| {
        let mut asked = asked.borrow_mut();
        match asked.get(reference) {
            Some(is_matched) => *is_matched,
            None if asked.len() == MAX_REFERENCES => false,
            None => *asked
                .entry(reference.clone())
                .or_insert_with(|| references.matches(reference)),
        }
    };
    let counts = |reference: &Reference| {
        references.names(reference) || (has_patterns && is_matched(reference))
    };
    let requirements = pod_specs
        .iter()
        .flat_map(|it| it.requirements(namespace, counts));
    requirements.collect()
}

/// Returns true if the API lets an object have annotations of this size. A review comes before that is
/// checked, so it may hold megabytes of them. These are not read, and the apiserver refuses the write.
fn is_allowed(annotations: &BTreeMap<String, String>) -> bool {
    annotations_size(annotations) <= MAX_ANNOTATIONS_SIZE
}

/// Parses metadata without `managedFields` and other unused fields, which make up most of its size.
fn metadata<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Partial {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        annotations: Option<BTreeMap<String, String>>,
        labels: Option<BTreeMap<String, String>>,
    }
    let partial = Partial::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: partial.name,
        namespace: partial.namespace,
        uid: partial.uid,
        resource_version: partial.resource_version,
        generation: partial.generation,
        annotations: partial.annotations,
        labels: partial.labels,
        ..ObjectMeta::default()
    })
}

macro_rules! resource {
    ($object:ty) => {
        impl Resource for $object {
            type DynamicType = Served;
            type Scope = DynamicResourceScope;

            fn kind(served: &Served) -> Cow<'_, str> {
                served.kind.as_str().into()
            }

            fn group(served: &Served) -> Cow<'_, str> {
                served.kind.shape().group.into()
            }

            fn version(served: &Served) -> Cow<'_, str> {
                (&*served.version).into()
            }

            fn plural(served: &Served) -> Cow<'_, str> {
                served.kind.shape().plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(WorkloadObject);
resource!(CustomObject);

#[cfg(test)]
mod tests;
