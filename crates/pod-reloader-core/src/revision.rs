//! Revisions: the pod templates that a workload has had, as Kubernetes keeps them.
//!
//! Deployments and Argo Rollouts keep them in ReplicaSets, StatefulSets and DaemonSets in ControllerRevisions.

use jiff::Timestamp;
use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::Deserialize;
use serde_json::Value;

use crate::annotations::{CONFIG_HASH, PINS};
use crate::discovery::PodSpec;
use crate::metadata::{owned_identity, resource};
use crate::name::Name;
use crate::pins::Pins;
use crate::reference::ConfigKind;

/// The annotations in which a ReplicaSet has its number.
const NUMBERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "rollout.argoproj.io/revision",
];
/// The labels that a controller adds to the pod template of a ReplicaSet.
const HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// A revision of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The UID of the workload.
    pub owner: Box<str>,
    /// Its number. The present revision has the highest one.
    pub number: i64,
    /// The copies that its pods use.
    pub pins: Pins,
    /// The pod template, without what is ours.
    rest: Value,
}

impl Revision {
    fn new(owner: &str, number: i64, mut template: Value) -> Self {
        let annotations = &mut template["metadata"]["annotations"];
        let pins = annotations[PINS].as_str().and_then(Pins::parse);
        if let Some(annotations) = annotations.as_object_mut() {
            for key in [CONFIG_HASH, PINS] {
                annotations.remove(key);
            }
        }
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
            pins: pins.unwrap_or_default(),
            rest: template,
        }
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

    /// Returns the revision. `None` if it is none, nobody owns it, or it has no number.
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
        let annotations = self.metadata.annotations.as_ref()?;
        let number = NUMBERS.iter().find_map(|key| annotations.get(*key))?;
        let (owner, template) = (self.owner()?, self.spec.template.clone());
        Some(Revision::new(owner, number.parse().ok()?, template))
    }
}

impl NamesCopies for ControllerRevision {
    fn pins(&self) -> Option<Pins> {
        pins(&self.data["spec"]["template"])
    }

    fn revision(&self) -> Option<Revision> {
        let (owner, template) = (self.owner()?, self.data["spec"]["template"].clone());
        Some(Revision::new(owner, self.revision, template))
    }
}

impl NamesCopies for Pod {
    fn pins(&self) -> Option<Pins> {
        Pins::parse(self.metadata.annotations.as_ref()?.get(PINS)?)
    }
}

fn pins(template: &Value) -> Option<Pins> {
    Pins::parse(template["metadata"]["annotations"][PINS].as_str()?)
}

/// The metadata of a copy.
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
        let one = replica_set("1", "a", "app=app-1", "app:1");
        assert_eq!((one.number, &*one.owner), (1, "u"));
        assert_eq!(one.pins.to_string(), "app=app-1");
        assert!(one.differs_in_config_alone(&replica_set("2", "b", "app=app-2", "app:1")));
        assert!(!one.differs_in_config_alone(&replica_set("2", "b", "app=app-2", "app:2")));
    }

    #[test]
    fn annotations_of_others_are_a_difference_and_no_annotations_are_none() {
        let template = |annotations: Value| {
            let template = json!({"metadata": {"annotations": annotations}, "spec": {}});
            Revision::new("u", 1, template)
        };
        let bare = template(json!({PINS: "a=b"}));
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
            "data": {"spec": {"template": {"$patch": "replace", "metadata": {"annotations": {PINS: "a=b"}}}}},
        }))
        .unwrap();
        let revision = object.revision().unwrap();
        assert_eq!(
            (revision.number, revision.pins.to_string().as_str()),
            (7, "a=b")
        );
        assert_eq!(object.pins(), Some(revision.pins));
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
        assert!(pod("app=app-1", "app").ignores_pins());
        assert!(!pod("app=app-1", "app-1").ignores_pins());
        assert!(!pod("other=other-1", "app").ignores_pins());
        assert!(!pod("", "app").ignores_pins());
    }
}
