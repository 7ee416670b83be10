//! Revisions: the pod templates that a workload has had, as Kubernetes keeps them.
//!
//! Deployments and Argo Rollouts keep them in ReplicaSets, StatefulSets and DaemonSets in ControllerRevisions.

mod copies;

use jiff::Timestamp;
use kube_core::{DynamicResourceScope, Resource};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

pub use self::copies::{CopyMetadata, Origin};
use crate::annotations::{CONFIG_HASH, OF_TEMPLATES, PINS};
use crate::conditions::PodStatus;
use crate::discovery::PodSpec;
use crate::kind::WorkloadKind;
use crate::metadata::{Metadata, Wanted, resource};
use crate::pins::Pins;
use crate::raw::{NULL, Sorted, at, read_as};
use crate::reference::ConfigKind;
use crate::texts::Texts;

/// The annotations in which a ReplicaSet has its number.
const NUMBERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "rollout.argoproj.io/revision",
];
/// The labels that a controller adds to the pod template of a ReplicaSet.
pub(crate) const HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

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
    /// A digest of the pod template, without what is ours.
    rest: [u8; 32],
}

impl Revision {
    fn new<K: Wanted>(
        metadata: &Metadata<K>,
        number: i64,
        template: Option<&RawValue>,
    ) -> Option<Self> {
        let own = |key: &str| annotation(template?, key);
        Some(Self {
            owner: owner(metadata)?.into(),
            number,
            created: metadata.created(),
            config_hash: own(CONFIG_HASH),
            pins: own(PINS),
            rest: rest(template),
        })
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

/// Returns a digest of a pod template without what is ours: two are the same if the templates are. The apiserver writes
/// the members of all in the same order.
fn rest(template: Option<&RawValue>) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |texts: [&str; 3]| {
        for text in texts {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
    };
    let parts: [(&[&str], &[&str]); 4] = [
        (&[], &["metadata"]),
        (&["metadata"], &["annotations", "labels"]),
        (&["metadata", "annotations"], &OF_TEMPLATES),
        (&["metadata", "labels"], &HASHES),
    ];
    for (path, apart) in parts {
        let part = path.last().unwrap_or(&"");
        let object = template.and_then(|template| Some(at(template, path)?.get()));
        match object.map(|it| (it, Sorted::of(it))) {
            Some((_, Ok(members))) => {
                let members = members.iter();
                let members =
                    members.filter(|(name, value)| *value != NULL && !apart.contains(&&**name));
                members.for_each(|(name, value)| add([part, &name, value]));
            }
            // It differs from all others that are not exactly the same.
            Some((object, Err(_))) => add([part, "", object]),
            None => {}
        }
    }
    digest.finalize().into()
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
    fn owner(&self) -> Option<&str>;
}

/// A ReplicaSet, as far as it is a revision.
#[derive(Clone, Debug, Deserialize)]
pub struct ReplicaSet {
    metadata: Metadata<Self>,
    #[serde(default)]
    spec: Templated,
}

impl Wanted for ReplicaSet {
    const ANNOTATIONS: &'static [&'static str] = &NUMBERS;
}

/// A ControllerRevision, as far as it is one of a pod template.
#[derive(Clone, Debug, Deserialize)]
pub struct ControllerRevision {
    metadata: Metadata<Self>,
    /// The unparsed part of the workload that is kept.
    data: Option<Box<RawValue>>,
    #[serde(default)]
    revision: i64,
}

impl Wanted for ControllerRevision {}

impl ControllerRevision {
    fn template(&self) -> Option<&RawValue> {
        at(self.data.as_deref()?, &["spec", "template"])
    }
}

/// A Pod, as far as it uses ConfigMaps and Secrets.
#[derive(Clone, Debug, Deserialize)]
pub struct Pod {
    pub(crate) metadata: Metadata<Self>,
    #[serde(default)]
    pub(crate) spec: PodSpec,
    #[serde(default)]
    pub(crate) status: PodStatus,
}

impl Wanted for Pod {
    const ANNOTATIONS: &'static [&'static str] = &[PINS];
}

impl Pod {
    /// Returns true if it uses a ConfigMap itself although its pins name a copy of it: whatever replaces the names
    /// was not there when it was created. A pod that has ended uses nothing.
    pub fn ignores_pins(&self) -> bool {
        let pins = self.pins().unwrap_or_default();
        !self.status.has_ended && !pins.is_empty() && {
            let uses = self.spec.uses();
            let mut config_maps = uses.iter().filter(|it| it.kind == ConfigKind::ConfigMap);
            config_maps.any(|it| pins.get(it.name.as_str()).is_some())
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Templated {
    /// The unparsed pod template.
    template: Option<Box<RawValue>>,
}

impl NamesCopies for ReplicaSet {
    fn pins(&self) -> Option<Pins> {
        pins(self.spec.template.as_deref()?)
    }

    fn revision(&self) -> Option<Revision> {
        let template = self.spec.template.as_deref();
        Revision::new(&self.metadata, number(&self.metadata), template)
    }

    fn owner(&self) -> Option<&str> {
        owner(&self.metadata)
    }
}

impl NamesCopies for ControllerRevision {
    fn pins(&self) -> Option<Pins> {
        pins(self.template()?)
    }

    fn revision(&self) -> Option<Revision> {
        Revision::new(&self.metadata, self.revision, self.template())
    }

    fn owner(&self) -> Option<&str> {
        owner(&self.metadata)
    }
}

impl NamesCopies for Pod {
    fn pins(&self) -> Option<Pins> {
        Pins::parse_ours(self.metadata.annotation(PINS)?)
    }

    fn owner(&self) -> Option<&str> {
        owner(&self.metadata)
    }
}

/// Returns the UID of the controller that owns an object.
fn owner<K: Wanted>(metadata: &Metadata<K>) -> Option<&str> {
    Some(&metadata.controller()?.uid)
}

/// Returns the number of the revision that a ReplicaSet keeps.
fn number<K: Wanted>(metadata: &Metadata<K>) -> i64 {
    let number = NUMBERS.iter().find_map(|key| metadata.annotation(key));
    number.and_then(|it| it.parse().ok()).unwrap_or_default()
}

fn pins(template: &RawValue) -> Option<Pins> {
    Pins::parse_ours(&annotation(template, PINS)?)
}

/// Returns an annotation of a pod template.
fn annotation(template: &RawValue, key: &str) -> Option<Box<str>> {
    read_as(at(template, &["metadata", "annotations", key])?)
}

/// What the cluster keeps of a workload in one revision, whether the workload is still there or not.
#[derive(Clone, Debug)]
pub struct Remains {
    /// The UID of the controller that owns the revision. `None` if nobody does.
    pub(crate) owner: Option<Box<str>>,
    /// Its number, 0 if it has none.
    pub(crate) number: i64,
    /// The annotations that the workload had last with this revision. Only ReplicaSets tell: a ControllerRevision has those
    /// of the time at which it was made.
    pub(crate) annotations: Option<Texts>,
    /// The unparsed pod template.
    pub(crate) template: Option<Box<RawValue>>,
}

impl Remains {
    /// Returns an annotation of the pod template.
    pub(crate) fn of_template(&self, key: &str) -> Option<Box<str>> {
        annotation(self.template.as_deref()?, key)
    }

    /// Returns the revision without what takes up memory: its template and the annotations.
    pub(crate) fn without_content(self) -> Self {
        Self {
            annotations: None,
            template: None,
            ..self
        }
    }
}

/// An object in which the cluster keeps a revision.
pub trait KeepsRevision: Resource {
    /// Returns what it keeps.
    fn remains(self) -> Remains;
}

/// A ReplicaSet, as far as it tells what its Deployment was.
#[derive(Clone, Debug, Deserialize)]
pub struct PastReplicaSet {
    metadata: Metadata<Self>,
    #[serde(default)]
    spec: Templated,
}

impl Wanted for PastReplicaSet {
    const ALL_ANNOTATIONS: bool = true;
}

impl KeepsRevision for PastReplicaSet {
    fn remains(self) -> Remains {
        Remains {
            owner: owner(&self.metadata).map(Into::into),
            number: number(&self.metadata),
            annotations: Some(self.metadata.into_annotations()),
            template: self.spec.template,
        }
    }
}

impl KeepsRevision for ControllerRevision {
    fn remains(self) -> Remains {
        Remains {
            owner: owner(&self.metadata).map(Into::into),
            number: self.revision,
            annotations: None,
            template: self.template().map(ToOwned::to_owned),
        }
    }
}

resource!(
    ReplicaSet, DynamicResourceScope, of_metadata: false,
    group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets"
);
resource!(
    PastReplicaSet, DynamicResourceScope, of_metadata: false,
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{keyring, name};
    use crate::pins::claim;
    use crate::reference::Reference;
    use crate::seal::{COPY_OF, SEAL};

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

    /// Returns the revision of a StatefulSet with this pod template.
    fn of_template(template: Value) -> Revision {
        let object: ControllerRevision = serde_json::from_value(json!({
            "metadata": {"ownerReferences": [{"uid": "u", "controller": true}]},
            "data": {"spec": {"template": template}},
        }))
        .unwrap();
        object.revision().unwrap()
    }

    #[test]
    fn annotations_of_others_are_a_difference_and_no_annotations_are_none() {
        let template = |annotations: Value| {
            of_template(json!({"metadata": {"annotations": annotations}, "spec": {}}))
        };
        let bare = template(json!({PINS: "a=a-0123456789"}));
        assert!(bare.differs_in_config_alone(&template(Value::Null)));
        assert!(!bare.differs_in_config_alone(&template(json!({"restarted": "now"}))));
    }

    #[test]
    fn a_part_that_is_not_an_object_is_a_difference() {
        let bare = of_template(json!({}));
        for odd in [
            json!("x"),
            json!({"metadata": "x"}),
            json!({"metadata": {"annotations": "x"}}),
            json!({"metadata": {"labels": []}}),
        ] {
            let one = of_template(odd.clone());
            assert!(!bare.differs_in_config_alone(&one), "{odd}");
            assert!(one.differs_in_config_alone(&of_template(odd)));
        }
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
    fn a_copy_is_ours_by_its_seal_alone() {
        let keys = keyring(&[1]);
        let place = Reference::config_map(&name("shop"), &name("app-0123456789"));
        let app = name("app");
        let seal = keys.seal(&claim(&place, &app));
        let origin = |name: &str, annotations: Value| {
            let metadata = json!({"namespace": "shop", "name": name, "annotations": annotations});
            let copy: CopyMetadata = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            copy.origin(&keys)
        };
        let both = |of: &str| json!({COPY_OF: of, SEAL: seal});
        let own = place.name.as_str();
        assert_eq!(origin(own, both("app")), Origin::Sealed);
        assert_eq!(origin(own, json!({COPY_OF: "app"})), Origin::Unsealed(app));
        for (name, annotations) in [
            ("app-9876543210", both("app")),
            (own, both("ap")),
            (own, json!({SEAL: seal})),
            (own, json!({COPY_OF: "app", SEAL: "x"})),
            (own, json!({COPY_OF: "app", SEAL: "0".repeat(32)})),
            ("app-7d4f", json!({COPY_OF: "app"})),
        ] {
            assert_eq!(
                origin(name, annotations.clone()),
                Origin::Foreign,
                "{name} {annotations}"
            );
        }
    }

    #[test]
    fn a_pod_that_uses_a_pinned_config_map_itself_ignores_its_pins() {
        let in_phase = |phase: &str, pins: &str, name: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "web-1", "annotations": {PINS: pins}},
                "spec": {"containers": [{"name": "main", "envFrom": [{"configMapRef": {"name": name}}]}]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        let pod = |pins: &str, name: &str| in_phase("Running", pins, name);
        assert!(pod("app=app-0000000001", "app").ignores_pins());
        assert!(!pod("app=app-0000000001", "app-0000000001").ignores_pins());
        assert!(!pod("other=other-0000000001", "app").ignores_pins());
        assert!(!pod("", "app").ignores_pins());
        // An evicted pod stays until the garbage collection of pods.
        for (phase, expected) in [("Pending", true), ("Failed", false), ("Succeeded", false)] {
            let pod = in_phase(phase, "app=app-0000000001", "app");
            assert_eq!(pod.ignores_pins(), expected, "{phase}");
        }
    }
}
