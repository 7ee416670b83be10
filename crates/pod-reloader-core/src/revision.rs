//! Revisions: the pod templates that a workload has had, as Kubernetes keeps them.
//!
//! Deployments and Argo Rollouts keep them in ReplicaSets, StatefulSets and DaemonSets in ControllerRevisions.

use jiff::Timestamp;
use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::Deserialize;
use serde_json::Value;

use crate::annotations::{CONFIG_HASH, PINS};
use crate::discovery::PodSpec;
use crate::kind::WorkloadKind;
use crate::metadata::{owned_identity, resource};
use crate::name::Name;
use crate::pins::{COPY_OF, Pins, is_copy_name};
use crate::reference::ConfigKind;

/// The annotations in which a ReplicaSet has its number.
const NUMBERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "rollout.argoproj.io/revision",
];
/// The labels that a controller adds to the pod template of a ReplicaSet.
const HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// The kind of object in which a controller keeps revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptIn {
    /// [`ReplicaSet`].
    ReplicaSets,
    /// [`ControllerRevision`].
    ControllerRevisions,
}

/// Returns where the revisions of workloads of a kind are kept, if anybody keeps them.
pub fn kept_in(kind: WorkloadKind) -> Option<KeptIn> {
    if kind == WorkloadKind::DEPLOYMENT || kind.is("argoproj.io", "Rollout") {
        return Some(KeptIn::ReplicaSets);
    }
    let data = [WorkloadKind::STATEFUL_SET, WorkloadKind::DAEMON_SET];
    data.contains(&kind).then_some(KeptIn::ControllerRevisions)
}

/// A revision of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The UID of the workload.
    pub owner: Box<str>,
    /// Its number, 0 if it has none. The present revision has the highest one.
    pub number: i64,
    /// The time of creation, if known.
    pub created: Option<Timestamp>,
    /// The config hash.
    pub config_hash: Option<Box<str>>,
    /// The value of the annotation with the copies that its pods use.
    pub pins: Option<Box<str>>,
    /// The pod template, without what is ours.
    rest: Value,
}

impl Revision {
    fn new(metadata: &ObjectMeta, owner: &str, number: i64, mut template: Value) -> Self {
        let annotations = &mut template["metadata"]["annotations"];
        let mut own = |key: &str| {
            let own = annotations.as_object_mut()?.remove(key)?;
            own.as_str().map(Into::into)
        };
        let (config_hash, pins) = (own(CONFIG_HASH), own(PINS));
        if annotations.as_object().is_some_and(|it| it.is_empty()) {
            *annotations = Value::Null;
        }
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            for label in HASHES {
                labels.remove(label);
            }
        }
        Self {
            owner: owner.into(),
            number,
            created: metadata.creation_timestamp.as_ref().map(|it| it.0),
            config_hash,
            pins,
            rest: template,
        }
    }

    /// Returns the copies that its pods use.
    pub fn copies(&self) -> Pins {
        let pins = self.pins.as_deref();
        pins.and_then(Pins::parse_ours).unwrap_or_default()
    }

    /// Returns true if both have the same pod template, apart from what is ours.
    pub fn differs_in_config_alone(&self, other: &Self) -> bool {
        self.rest == other.rest
    }
}

/// An object that is a revision, or that names copies like one.
pub trait NamesCopies: Resource {
    /// Returns the pins.
    fn pins(&self) -> Option<Pins>;

    /// Returns the revision. `None` if it is none, or nobody owns it.
    fn revision(&self) -> Option<Revision> {
        None
    }

    /// Returns the UID of the controller that owns it, if there is one.
    fn owner(&self) -> Option<&str> {
        let mut owners = self.meta().owner_references.iter().flatten();
        Some(&owners.find(|it| it.controller == Some(true))?.uid)
    }
}

/// A ReplicaSet, as far as it is a revision.
#[derive(Clone, Debug, Deserialize)]
pub struct ReplicaSet {
    #[serde(deserialize_with = "owned_identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Templated,
}

/// A ControllerRevision, as far as it is one of a pod template.
#[derive(Clone, Debug, Deserialize)]
pub struct ControllerRevision {
    #[serde(deserialize_with = "owned_identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    revision: i64,
}

/// A Pod, as far as it uses ConfigMaps.
#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    #[serde(deserialize_with = "owned_identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
}

impl Pod {
    /// Returns true if it uses a ConfigMap itself although its pins name a copy of it: whatever replaces the names
    /// was not there when it was created.
    pub fn ignores_pins(&self) -> bool {
        let pins = self.pins().unwrap_or_default();
        !pins.is_empty() && {
            let uses = self.spec.uses();
            let mut config_maps = uses.iter().filter(|it| it.kind == ConfigKind::ConfigMap);
            config_maps.any(|it| pins.get(it.name.as_str()).is_some())
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Templated {
    #[serde(default)]
    template: Value,
}

impl NamesCopies for ReplicaSet {
    fn pins(&self) -> Option<Pins> {
        pins(&self.spec.template)
    }

    fn revision(&self) -> Option<Revision> {
        let annotation = |key: &&str| self.metadata.annotations.as_ref()?.get(*key);
        let number = NUMBERS.iter().find_map(annotation);
        let number = number.and_then(|number| number.parse().ok());
        let (owner, template) = (self.owner()?, self.spec.template.clone());
        let number = number.unwrap_or_default();
        Some(Revision::new(&self.metadata, owner, number, template))
    }
}

impl NamesCopies for ControllerRevision {
    fn pins(&self) -> Option<Pins> {
        pins(&self.data["spec"]["template"])
    }

    fn revision(&self) -> Option<Revision> {
        let (owner, template) = (self.owner()?, self.data["spec"]["template"].clone());
        Some(Revision::new(
            &self.metadata,
            owner,
            self.revision,
            template,
        ))
    }
}

impl NamesCopies for Pod {
    fn pins(&self) -> Option<Pins> {
        Pins::parse_ours(self.metadata.annotations.as_ref()?.get(PINS)?)
    }
}

fn pins(template: &Value) -> Option<Pins> {
    Pins::parse_ours(template["metadata"]["annotations"][PINS].as_str()?)
}

/// The metadata of a ConfigMap with the label of copies.
#[derive(Clone, Debug, Deserialize)]
pub struct CopyMetadata {
    #[serde(deserialize_with = "owned_identity")]
    metadata: ObjectMeta,
}

impl CopyMetadata {
    /// Returns the namespace and the name. `None` if one is invalid, which the apiserver never sends.
    pub fn place(&self) -> Option<(Name, Name)> {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some((name(&self.metadata.namespace)?, name(&self.metadata.name)?))
    }

    /// Returns the name of the ConfigMap that it was made of, if it is one of our copies: somebody may have put the
    /// label on another object.
    pub fn source(&self) -> Option<Name> {
        let source = self.metadata.annotations.as_ref()?.get(COPY_OF)?;
        let source = Name::parse(source).ok()?;
        let (_, name) = self.place()?;
        is_copy_name(&source, &name).then_some(source)
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns when it was made, if that is known.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|it| it.0)
    }
}

resource!(
    ReplicaSet, DynamicResourceScope, of_metadata: false,
    group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets"
);
resource!(
    ControllerRevision, DynamicResourceScope, of_metadata: false,
    group: "apps", version: "v1", kind: "ControllerRevision", plural: "controllerrevisions"
);
resource!(
    Pod, DynamicResourceScope, of_metadata: false,
    group: "", version: "v1", kind: "Pod", plural: "pods"
);
resource!(
    CopyMetadata, DynamicResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "ConfigMap", plural: "configmaps"
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replica_set(number: &str, hash: &str, pins: &str, image: &str) -> Revision {
        let object: ReplicaSet = serde_json::from_value(json!({
            "metadata": {
                "name": "web-1",
                "annotations": {"deployment.kubernetes.io/revision": number},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true}],
            },
            "spec": {"template": {
                "metadata": {
                    "labels": {"app": "web", "pod-template-hash": hash},
                    "annotations": {CONFIG_HASH: hash, PINS: pins},
                },
                "spec": {"containers": [{"name": "main", "image": image}]},
            }},
        }))
        .unwrap();
        object.revision().unwrap()
    }

    #[test]
    fn revisions_that_differ_in_what_is_ours_differ_in_config_alone() {
        let one = replica_set("1", "a", "app=app-0000000001", "app:1");
        assert_eq!((one.number, &*one.owner), (1, "u"));
        assert_eq!(one.copies().to_string(), "app=app-0000000001");
        assert!(one.differs_in_config_alone(&replica_set("2", "b", "app=app-0000000002", "app:1")));
        assert!(!one.differs_in_config_alone(&replica_set(
            "2",
            "b",
            "app=app-0000000002",
            "app:2"
        )));
    }

    #[test]
    fn a_replica_set_of_a_rollout_has_its_number_elsewhere_and_one_that_nobody_owns_is_no_revision()
    {
        let set = |key: &str, is_controller: bool| -> ReplicaSet {
            let owner = json!({"apiVersion": "v1", "kind": "Any", "name": "web", "uid": "u", "controller": is_controller});
            let metadata =
                json!({"name": "web-1", "annotations": {key: "3"}, "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"template": {}}})).unwrap()
        };
        for key in NUMBERS {
            assert_eq!(set(key, true).revision().unwrap().number, 3);
            assert_eq!(set(key, false).revision(), None);
        }
        assert_eq!(set("other", true).revision().unwrap().number, 0);
    }

    #[test]
    fn annotations_of_others_are_a_difference_and_no_annotations_are_none() {
        let template = |annotations: Value| {
            let template = json!({"metadata": {"annotations": annotations}, "spec": {}});
            Revision::new(&ObjectMeta::default(), "u", 1, template)
        };
        let bare = template(json!({PINS: "a=a-0123456789"}));
        assert!(bare.differs_in_config_alone(&template(Value::Null)));
        assert!(!bare.differs_in_config_alone(&template(json!({"restarted": "now"}))));
    }

    #[test]
    fn a_controller_revision_has_its_template_in_its_data() {
        let object: ControllerRevision = serde_json::from_value(json!({
            "metadata": {
                "name": "web-1",
                "creationTimestamp": "10000-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}],
            },
            "revision": 7,
            "data": {"spec": {"template": {"$patch": "replace", "metadata": {"annotations": {PINS: "a=a-0123456789"}}}}},
        }))
        .unwrap();
        let revision = object.revision().unwrap();
        assert_eq!(
            (revision.number, revision.copies().to_string().as_str()),
            (7, "a=a-0123456789")
        );
        assert_eq!(object.pins(), Some(revision.copies()));
    }

    #[test]
    fn a_pod_that_uses_a_pinned_config_map_itself_ignores_its_pins() {
        let pod = |pins: &str, name: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "web-1", "annotations": {PINS: pins}},
                "spec": {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": name}}]}]},
            }))
            .unwrap()
        };
        assert!(pod("app=app-0000000001", "app").ignores_pins());
        assert!(!pod("app=app-0000000001", "app-0000000001").ignores_pins());
        assert!(!pod("other=other-0000000001", "app").ignores_pins());
        assert!(!pod("", "app").ignores_pins());
    }
}
