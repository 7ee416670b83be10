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
mod tests {
    use super::*;
    use crate::decision::{Cause, Decision, FirstStamp, baseline_by_time, decide};
    use crate::digest::Contents;
    use crate::fixtures::{holding, keyring, objects};
    use crate::kind::CustomResource;
    use crate::patch;
    use json_patch::Patch;
    use serde_json::{Value, json};

    fn kind(resource: Value) -> WorkloadKind {
        let resource: CustomResource = serde_json::from_value(resource).unwrap();
        resource.into_kind().unwrap()
    }

    fn rollout() -> WorkloadKind {
        kind(json!({
            "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
            "podTemplates": ["spec.template"], "restartAt": "spec.restartAt",
        }))
    }

    fn connect() -> WorkloadKind {
        kind(json!({
            "group": "kafka.strimzi.io", "resource": "kafkaconnects", "kind": "KafkaConnect",
            "podTemplates": ["spec.template.pod"], "makesTemplates": true,
        }))
    }

    fn cluster() -> WorkloadKind {
        kind(json!({
            "group": "postgresql.cnpg.io", "resource": "clusters", "kind": "Cluster",
            "restartAt": "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
        }))
    }

    fn object(spec: Value, annotations: &[(&str, &str)]) -> Value {
        let mut all = json!({"pod-reloader.cs.sap.com/configmaps": "a"});
        for (key, value) in annotations {
            all[key] = json!(value);
        }
        json!({
            "apiVersion": "x.io/v1",
            "metadata": {"name": "web", "namespace": "ns", "uid": "1", "generation": 3, "annotations": all},
            "spec": spec,
        })
    }

    fn workload(kind: WorkloadKind, object: &Value) -> Workload {
        let object: CustomObject = serde_json::from_value(object.clone()).unwrap();
        object.into_workload(kind, &Reading::default()).unwrap()
    }

    fn decided(workload: &Workload, value: &str) -> Decision {
        let objects = objects(&[("a", holding(value))]);
        decide(workload, &objects, &keyring(&[1]), FirstStamp::Rollout)
    }

    fn hash(value: &str) -> String {
        let objects = objects(&[("a", holding(value))]);
        keyring(&[1]).hash(&Contents::whole(&objects)).to_string()
    }

    /// Applies a patch without its tests for `null`, which pass at the apiserver.
    fn patched(object: &Value, patch: &Patch) -> Value {
        let is_of_null = |it: &json_patch::PatchOperation| matches!(it, json_patch::PatchOperation::Test(test) if test.value.is_null());
        let rest: Vec<_> = patch.iter().filter(|it| !is_of_null(it)).cloned().collect();
        let mut object = object.clone();
        json_patch::patch(&mut object, &rest).unwrap();
        object
    }

    #[test]
    fn a_template_of_a_custom_resource_carries_the_hash() {
        let object = object(
            json!({"template": {"metadata": {}, "spec": {"containers": []}}}),
            &[],
        );
        let patch = patch::set_config_hash(&workload(rollout(), &object), "new");
        let after = patched(&object, &patch);
        let template = &after["spec"]["template"];
        assert_eq!(
            template["metadata"]["annotations"][annotations::CONFIG_HASH],
            "new"
        );
        assert_eq!(workload(rollout(), &after).config_hash(), Some("new"));
        assert_eq!(workload(rollout(), &after).api_version(), "x.io/v1");
        assert!(after["spec"]["restartAt"].is_null());
    }

    #[test]
    fn a_template_that_takes_metadata_alone_is_made() {
        let bare = object(json!({"replicas": 1}), &[]);
        let patch = patch::set_config_hash(&workload(connect(), &bare), "new");
        let after = patched(&bare, &patch);
        let pod = &after["spec"]["template"]["pod"];
        assert_eq!(
            pod,
            &json!({"metadata": {"annotations": {annotations::CONFIG_HASH: "new"}}})
        );
        let refers = object(json!({"workloadRef": {"name": "web"}}), &[]);
        assert!(!workload(rollout(), &refers).can_be_restarted());
        assert_eq!(decided(&workload(rollout(), &refers), "1"), Decision::Keep);
    }

    #[test]
    fn a_kind_without_template_is_restarted_by_a_time_once_per_change() {
        let bare = object(json!({}), &[]);
        let first = decided(&workload(cluster(), &bare), "1");
        assert_eq!(first, Decision::Baseline(baseline_by_time(&hash("1"))));
        let baseline = baseline_by_time(&hash("1"));
        let at_rest = object(json!({}), &[(annotations::BASELINE, &baseline)]);
        assert_eq!(decided(&workload(cluster(), &at_rest), "1"), Decision::Keep);
        let Decision::Set { config_hash, cause } = decided(&workload(cluster(), &at_rest), "2")
        else {
            panic!()
        };
        assert_eq!(cause, Cause::Changed);
        let patch = patch::restart_at(
            &workload(cluster(), &at_rest),
            "2026-11-21T12:00:00Z",
            &baseline_by_time(&config_hash),
        );
        let after = patched(&at_rest, &patch);
        let at = &after["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
        assert_eq!(at, "2026-11-21T12:00:00Z");
        assert_eq!(decided(&workload(cluster(), &after), "2"), Decision::Keep);
    }

    #[test]
    fn another_way_of_restarting_restarts_nothing() {
        let with = |restart: &str, stamp: &str, baseline: &str| {
            let spec = json!({"template": {"metadata": {"annotations": {annotations::CONFIG_HASH: stamp}}}});
            let marks = [
                (annotations::RESTART, restart),
                (annotations::BASELINE, baseline),
            ];
            workload(rollout(), &object(spec, &marks))
        };
        let (old, new) = (hash("1"), hash("2"));
        // A baseline from before the first config hash says nothing about times.
        let by_time = with("at", &new, &format!("={old}"));
        assert_eq!(
            decided(&by_time, "2"),
            Decision::Baseline(baseline_by_time(&new))
        );
        let by_template = with("template", &old, &baseline_by_time(&new));
        let baseline = format!("{old}~={new}");
        assert_eq!(
            decided(&by_template, "2"),
            Decision::Baseline(baseline.clone())
        );
        assert_eq!(
            decided(&with("template", &old, &baseline), "2"),
            Decision::Keep
        );
        assert!(matches!(decided(&by_template, "3"), Decision::Set { .. }));
    }

    #[test]
    fn a_restart_by_somebody_else_in_between_fails_the_write() {
        let key = "kubectl.kubernetes.io/restartedAt";
        let before = object(json!({}), &[(key, "2026-01-01T00:00:00Z")]);
        let patch = patch::restart_at(&workload(cluster(), &before), "2026-11-21T12:00:00Z", "=x");
        let tests = serde_json::to_value(&patch).unwrap();
        let path = "/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
        let is_tested = tests.as_array().unwrap().iter().any(|it| {
            it["op"] == "test" && it["path"] == path && it["value"] == "2026-01-01T00:00:00Z"
        });
        assert!(is_tested, "{tests}");
    }

    #[test]
    fn a_workload_chooses_how_it_is_restarted_where_its_kind_has_both_ways() {
        let spec =
            json!({"template": {"metadata": {"annotations": {annotations::CONFIG_HASH: "x"}}}});
        let with = |value| {
            workload(
                rollout(),
                &object(spec.clone(), &[(annotations::RESTART, value)]),
            )
        };
        assert_eq!(with("template").config_hash(), Some("x"));
        assert_eq!(with("at").config_hash(), None);
        assert!(matches!(with("at").restart, Restart::At { .. }));
        let patch = patch::restart_at(&with("at"), "2026-11-21T12:00:00Z", "=y");
        let after = patched(
            &object(spec.clone(), &[(annotations::RESTART, "at")]),
            &patch,
        );
        assert_eq!(after["spec"]["restartAt"], "2026-11-21T12:00:00Z");
        assert_eq!(after["spec"]["template"], spec["template"]);
    }

    #[test]
    fn templates_that_disagree_are_set_to_the_same() {
        let both = kind(json!({
            "group": "x.io", "resource": "xs", "kind": "X",
            "podTemplates": ["spec.one", "spec.two"],
        }));
        let stamped =
            |value: &str| json!({"metadata": {"annotations": {annotations::CONFIG_HASH: value}}});
        let object = object(
            json!({"one": stamped(&hash("1")), "two": {"metadata": {}}}),
            &[],
        );
        let Decision::Set { config_hash, .. } = decided(&workload(both, &object), "1") else {
            panic!()
        };
        let after = patched(
            &object,
            &patch::set_config_hash(&workload(both, &object), &config_hash),
        );
        assert_eq!(decided(&workload(both, &after), "1"), Decision::Keep);
        assert_eq!(
            after["spec"]["two"]["metadata"]["annotations"][annotations::CONFIG_HASH],
            hash("1")
        );
    }

    #[test]
    fn what_the_user_has_in_a_template_stays_whatever_it_is() {
        let odd = json!({"annotations": {"scrape": true}, "labels": {"app": "web"}});
        let spec = json!({"template": {"metadata": odd, "spec": {"containers": {}}}});
        let before = object(spec, &[]);
        let patch = patch::set_config_hash(&workload(rollout(), &before), "new");
        let after = patched(&before, &patch);
        let metadata = &after["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"], odd["labels"]);
        assert_eq!(metadata["annotations"]["scrape"], true);
        assert_eq!(workload(rollout(), &after).config_hash(), Some("new"));
    }

    #[test]
    fn what_is_no_object_on_the_way_is_left_alone() {
        for spec in [
            json!({"template": "none"}),
            json!({"template": {"metadata": []}}),
            json!({"template": {"metadata": {"annotations": "none"}}}),
        ] {
            assert!(
                !workload(rollout(), &object(spec.clone(), &[])).can_be_restarted(),
                "{spec}"
            );
        }
        let text = object(json!({"template": "none"}), &[]);
        assert!(!workload(connect(), &text).can_be_restarted());
    }

    #[test]
    fn an_object_may_be_nested_deeper_than_a_parser_goes() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let text = object(json!({"template": {"metadata": {}}, "deep": "DEEP"}), &[]).to_string();
        let text = text.replace("\"DEEP\"", &deep);
        let object: CustomObject = serde_json::from_str(&text).unwrap();
        let workload = object.into_workload(rollout(), &Reading::default());
        assert!(workload.unwrap().can_be_restarted());
    }

    #[test]
    fn templates_with_one_missing_parent_do_not_wipe_each_other() {
        let both = kind(json!({
            "group": "kafka.strimzi.io", "resource": "kafkaconnects", "kind": "KafkaConnect",
            "podTemplates": ["spec.template.pod", "spec.template.buildPod"], "makesTemplates": true,
        }));
        let bare = object(json!({}), &[]);
        let after = patched(
            &bare,
            &patch::set_config_hash(&workload(both, &bare), "new"),
        );
        for pod in ["pod", "buildPod"] {
            let annotations = &after["spec"]["template"][pod]["metadata"]["annotations"];
            assert_eq!(annotations[annotations::CONFIG_HASH], "new", "{pod}");
        }
    }

    #[test]
    fn what_keeps_pods_from_being_restarted_is_seen() {
        let stall = |spec: Value| {
            let object: WorkloadObject = serde_json::from_value(object(spec.clone(), &[])).unwrap();
            let built_in = object.into_workload(WorkloadKind::DEPLOYMENT, &Reading::default());
            let custom = workload(rollout(), &self::object(spec, &[])).stall;
            assert_eq!(built_in.unwrap().stall, custom);
            custom
        };
        assert_eq!(
            stall(json!({"template": {}, "paused": true})),
            Some(Stall::Paused)
        );
        let on_delete = json!({"template": {}, "updateStrategy": {"type": "OnDelete"}});
        assert_eq!(stall(on_delete), Some(Stall::OnDelete));
        let rolling =
            json!({"template": {}, "paused": false, "updateStrategy": {"type": "RollingUpdate"}});
        assert_eq!(stall(rolling), None);
    }
}
