//! Protected ConfigMaps and Secrets: what protects an object, and which pods and pod templates use it.

mod deletion;
mod messages;
mod owners;

use std::collections::BTreeSet;

use kube_core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};

pub use self::deletion::Deletion;
pub use self::messages::{comes_back, denial, not_stored, warning};
pub use self::owners::{LiveOwner, OwnedBy, Owners};
use crate::conditions;
use crate::discovery::PodSpec;
use crate::metadata::{Metadata, Wanted, resource};
use crate::reference::{ConfigKind, Reference};
use crate::revision::Pod;

/// The label that protects an object.
pub const PROTECT: &str = "pod-reloader.cs.sap.com/protect";

/// The protection of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It is changed and deleted only by those who may `unprotect` it. Policies of the cluster see to that.
    Always,
    /// It is not deleted while a pod uses it that runs, or is to.
    InUse,
    /// A ConfigMap comes back if it is deleted while it is in use, until it is not any more.
    Keep,
}

impl Protection {
    /// All protections.
    pub const ALL: [Self; 3] = [Self::Always, Self::InUse, Self::Keep];

    /// Returns the protection that a value of the label stands for.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == value)
    }

    /// Returns true if it protects objects of a kind.
    pub fn is_for(self, kind: ConfigKind) -> bool {
        self != Self::Keep || kind == ConfigKind::ConfigMap
    }

    /// Returns the value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::InUse => "in-use",
            Self::Keep => "keep",
        }
    }
}

/// The metadata of a ConfigMap or a Secret, as far as it says how the object is protected.
#[derive(Debug, Deserialize)]
pub struct ProtectedMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for ProtectedMetadata {
    const LABELS: &'static [&'static str] = &[PROTECT];
}

/// An object that is protected, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    /// The object.
    pub object: Reference,
    /// The UID.
    pub uid: Box<str>,
    /// The resourceVersion. A deletion fails, or is reviewed again, if the object has another one by then.
    pub resource_version: Box<str>,
}

impl ProtectedMetadata {
    /// Returns true if it says which object it is of, as that of every object does.
    pub fn is_whole(&self) -> bool {
        self.metadata.uid.is_some() && self.metadata.resource_version.is_some()
    }

    /// Returns the object, given that its coordinates are those of `deletion`, if it is the one that is to be deleted,
    /// and is protected in this way.
    pub fn protected(&self, deletion: &Deletion, how: Protection) -> Option<Protected> {
        let metadata = &self.metadata;
        let uid = metadata.uid.as_deref()?;
        let is_meant = *uid == *deletion.uid
            && metadata.label(PROTECT).and_then(Protection::parse) == Some(how);
        is_meant.then_some(Protected {
            object: deletion.object.clone(),
            uid: uid.into(),
            resource_version: metadata.resource_version.as_deref()?.into(),
        })
    }
}

impl Pod {
    /// Returns the name of the pod.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if it runs, or is to, and does not do without the object.
    pub fn needs(&self, object: &Reference) -> bool {
        self.is_to_run() && self.spec.needs(object)
    }

    /// Returns its owners.
    pub fn owned_by(&self) -> OwnedBy {
        OwnedBy::of(&self.metadata)
    }

    /// Returns true if it runs, or is to, and names the object.
    pub fn names(&self, object: &Reference) -> bool {
        self.is_to_run() && self.spec.names(object)
    }

    /// Returns true unless it has ended, or is being deleted: then it starts nothing any more.
    fn is_to_run(&self) -> bool {
        !self.status.has_ended && self.metadata.deletion_timestamp.is_none()
    }
}

/// The kinds of object whose pod templates are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateKind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
    /// A Job.
    Job,
    /// A CronJob.
    CronJob,
    /// A ReplicaSet.
    ReplicaSet,
    /// A ControllerRevision.
    ControllerRevision,
}

impl TemplateKind {
    /// The kinds that users write.
    pub const WORKLOADS: [Self; 5] = [
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
    ];
    /// The kinds in which controllers keep the pod templates that workloads have and have had.
    pub const REVISIONS: [Self; 2] = [Self::ReplicaSet, Self::ControllerRevision];

    /// Returns the kind of an owner of pods, or of an owner of such an owner. `None` for any other kind.
    fn of_owner(api_version: &str, kind: &str) -> Option<Self> {
        let owners = [&Self::WORKLOADS[..], &[Self::ReplicaSet]].concat();
        let (group, _) = api_version.split_once('/')?;
        let mut owners = owners.into_iter().filter(|it| it.group() == group);
        owners.find(|it| it.as_str() == kind)
    }

    fn group(self) -> &'static str {
        match self {
            Self::Job | Self::CronJob => "batch",
            _ => "apps",
        }
    }

    /// Returns the kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
            Self::ReplicaSet => "ReplicaSet",
            Self::ControllerRevision => "ControllerRevision",
        }
    }
}

/// An object with a pod template.
#[derive(Debug, Deserialize)]
pub struct Templated {
    metadata: Metadata<Self>,
    #[serde(default)]
    spec: TemplatedSpec,
    /// The part of a workload that a ControllerRevision keeps.
    #[serde(default)]
    data: InSpec,
    #[serde(default)]
    status: TemplatedStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplatedSpec {
    template: Option<Template>,
    job_template: Option<InSpec>,
    replicas: Option<u32>,
    suspend: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InSpec {
    spec: JobSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    template: Option<Template>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplatedStatus {
    #[serde(rename = "conditions", deserialize_with = "has_ended")]
    has_ended: bool,
    observed_generation: Option<i64>,
    desired_number_scheduled: Option<u32>,
}

/// Reads only from the conditions whether a Job has ended.
fn has_ended<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    conditions::any(deserializer, |it| {
        it.holds("Complete") || it.holds("Failed")
    })
}

impl Wanted for Templated {}

impl Templated {
    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if its next pod does not do without the object. There is no next pod while the garbage collector
    /// deletes its pods.
    pub fn needs(&self, object: &Reference) -> bool {
        !self.metadata.deletes_dependents && self.pods().any(|pod| pod.needs(object))
    }

    /// Returns its UID with what keeps it, if it is one of these.
    pub fn among(&self, uids: &BTreeSet<Box<str>>) -> Option<(Box<str>, LiveOwner)> {
        let uid = uids.get(self.metadata.uid.as_deref()?)?;
        let kept = LiveOwner {
            deletes_dependents: self.metadata.deletes_dependents,
            owners: OwnedBy::of(&self.metadata),
        };
        Some((uid.clone(), kept))
    }

    /// Returns true if its next pod names the object.
    pub fn names(&self, object: &Reference) -> bool {
        self.pods().any(|pod| pod.names(object))
    }

    /// Returns the specs of its next pods. A Job that has ended makes no more.
    fn pods(&self) -> impl Iterator<Item = &PodSpec> {
        let job = self.spec.job_template.as_ref();
        let job = job.and_then(|job| job.spec.template.as_ref());
        let kept = self.data.spec.template.iter();
        let templates = self.spec.template.iter().chain(job).chain(kept);
        templates
            .filter(|_| !self.status.has_ended)
            .map(|template| &template.spec)
    }

    /// Returns true if it is to have pods now. Those that its controller has not created yet count as pods that run.
    pub fn is_to_have_pods(&self) -> bool {
        let (spec, status) = (&self.spec, &self.status);
        let is_observed = self.metadata.generation.is_some()
            && status.observed_generation == self.metadata.generation;
        let has_no_nodes = status.desired_number_scheduled == Some(0) && is_observed;
        let makes_pods = spec.template.is_some() && spec.replicas != Some(0) && !has_no_nodes;
        makes_pods && spec.suspend != Some(true) && self.metadata.deletion_timestamp.is_none()
    }
}

resource!(
    Templated, DynamicResourceScope, of_metadata: false, by kind: TemplateKind,
    group: kind.group(), version: "v1", kind: kind.as_str(),
    plural: format!("{}s", kind.as_str().to_lowercase())
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MAX_OWNERS;
    use crate::name::Name;
    use crate::review::Request;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn object() -> Reference {
        of_kind(ConfigKind::Secret)
    }

    fn of_kind(kind: ConfigKind) -> Reference {
        Reference {
            kind,
            namespace: Name::parse("shop").unwrap(),
            name: Name::parse("db").unwrap(),
        }
    }

    fn pod(spec: Value, phase: &str) -> Pod {
        let metadata = json!({"name": "web-1", "namespace": "shop"});
        serde_json::from_value(
            json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}}),
        )
        .unwrap()
    }

    /// Returns pod specs that use ConfigMap or Secret `db`, each in another way.
    fn specs(kind: ConfigKind) -> Vec<Value> {
        let (of_key, of_all, volume) = match kind {
            ConfigKind::ConfigMap => (
                "configMapKeyRef",
                "configMapRef",
                json!({"configMap": {"name": "db"}}),
            ),
            ConfigKind::Secret => (
                "secretKeyRef",
                "secretRef",
                json!({"secret": {"secretName": "db"}}),
            ),
        };
        let projected = match kind {
            ConfigKind::ConfigMap => json!({"configMap": {"name": "db"}}),
            ConfigKind::Secret => json!({"secret": {"name": "db"}}),
        };
        let env = json!([{"name": "A", "valueFrom": {of_key: {"name": "db", "key": "a"}}}]);
        let env_from = json!([{of_all: {"name": "db"}}]);
        let mut specs = vec![
            json!({"containers": [{"env": env}]}),
            json!({"containers": [{"envFrom": env_from}]}),
            json!({"initContainers": [{"env": env}]}),
            json!({"initContainers": [{"envFrom": env_from, "restartPolicy": "Always"}]}),
            json!({"ephemeralContainers": [{"env": env}]}),
            json!({"ephemeralContainers": [{"envFrom": env_from}]}),
            json!({"volumes": [volume]}),
            json!({"volumes": [{"projected": {"sources": [projected]}}]}),
        ];
        if kind == ConfigKind::Secret {
            let of_driver = json!({"secretRef": {"name": "db"}});
            specs.extend([
                json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "db"}}}]}),
                json!({"volumes": [{"azureFile": {"secretName": "db"}}]}),
                json!({"volumes": [{"cephfs": of_driver}]}),
                json!({"volumes": [{"flexVolume": of_driver}]}),
                json!({"volumes": [{"rbd": of_driver}]}),
                json!({"volumes": [{"scaleIO": of_driver}]}),
                json!({"volumes": [{"storageos": of_driver}]}),
                json!({"volumes": [{"iscsi": {"chapAuthSession": true, "secretRef": {"name": "db"}}}]}),
                json!({"imagePullSecrets": [{"name": "db"}]}),
            ]);
        }
        specs
    }

    /// Returns all of them, with the object that each uses.
    fn uses() -> Vec<(Reference, Value)> {
        let of_each = |kind: ConfigKind| {
            let specs = specs(kind).into_iter();
            specs.map(move |spec| (of_kind(kind), spec))
        };
        ConfigKind::ALL.into_iter().flat_map(of_each).collect()
    }

    #[test]
    fn a_pod_needs_what_it_uses_in_any_way_and_nothing_else_of_that_name() {
        for (object, spec) in uses() {
            for phase in ["Running", "Pending", "Unknown"] {
                assert!(pod(spec.clone(), phase).needs(&object), "{spec}");
            }
            for phase in ["Succeeded", "Failed"] {
                assert!(!pod(spec.clone(), phase).needs(&object), "{spec}");
            }
            let mut ending = pod(spec.clone(), "Running");
            ending.metadata.object_mut().deletion_timestamp =
                Some(Time("2026-01-02T03:04:05Z".parse().unwrap()));
            assert!(!ending.needs(&object), "{spec}");
            let kinds = ConfigKind::ALL.into_iter();
            for other in kinds.filter(|kind| *kind != object.kind) {
                let running = pod(spec.clone(), "Running");
                assert!(!running.needs(&of_kind(other)), "{spec}");
            }
        }
    }

    #[test]
    fn a_pod_does_without_what_is_optional_each_time() {
        let optional = json!({"secretRef": {"name": "db", "optional": true}});
        let spec = json!({"containers": [{"envFrom": [optional]}]});
        assert!(!pod(spec.clone(), "Running").needs(&object()));
        assert!(pod(spec, "Running").names(&object()));
        let spec = json!({"containers": [{"envFrom": [optional, {"secretRef": {"name": "db"}}]}]});
        assert!(pod(spec, "Running").needs(&object()));
    }

    #[test]
    fn a_template_needs_what_its_pods_will_until_its_job_has_ended() {
        let templated = |spec: Value, conditions: Value| -> Templated {
            let metadata = json!({"name": "web", "namespace": "shop"});
            let status = json!({"conditions": conditions});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
                .unwrap()
        };
        for (object, spec) in uses() {
            let template = json!({"template": {"spec": spec}});
            let nested = json!({"jobTemplate": {"spec": template}});
            let revision = json!({"metadata": {}, "data": {"spec": template}});
            let revision: Templated = serde_json::from_value(revision).unwrap();
            assert!(revision.needs(&object) && revision.names(&object));
            assert!(templated(template.clone(), Value::Null).needs(&object));
            assert!(templated(nested, json!([])).needs(&object));
            let progressing = json!([{"type": "Failed", "status": "False"}]);
            assert!(templated(template.clone(), progressing).needs(&object));
            let ended = json!([{"type": "Complete", "status": "True"}]);
            assert!(!templated(template, ended).needs(&object));
        }
    }

    #[test]
    fn a_workload_is_to_have_pods_unless_it_is_scaled_to_zero_or_suspended_or_waits_for_its_time() {
        let is_to_have_pods = |spec: Value, status: Value| {
            let metadata = json!({"name": "web", "namespace": "shop", "generation": 2});
            let object = json!({"metadata": metadata, "spec": spec, "status": status});
            serde_json::from_value::<Templated>(object)
                .unwrap()
                .is_to_have_pods()
        };
        let template = json!({"spec": {}});
        for (spec, status, expected) in [
            (json!({"template": template}), json!({}), true),
            (
                json!({"template": template, "replicas": 3}),
                json!({}),
                true,
            ),
            (
                json!({"template": template, "replicas": 0}),
                json!({}),
                false,
            ),
            (
                json!({"template": template, "suspend": false}),
                json!({}),
                true,
            ),
            (
                json!({"template": template, "suspend": true}),
                json!({}),
                false,
            ),
            (
                json!({"jobTemplate": {"spec": {"template": template}}}),
                json!({}),
                false,
            ),
            // A DaemonSet without nodes, and one that its controller has not seen yet.
            (
                json!({"template": template}),
                json!({"desiredNumberScheduled": 0, "observedGeneration": 2}),
                false,
            ),
            (
                json!({"template": template}),
                json!({"desiredNumberScheduled": 0, "observedGeneration": 1}),
                true,
            ),
            (
                json!({"template": template}),
                json!({"desiredNumberScheduled": 0}),
                true,
            ),
        ] {
            assert_eq!(
                is_to_have_pods(spec.clone(), status.clone()),
                expected,
                "{spec} {status}"
            );
        }
    }

    #[test]
    fn a_message_names_five_users_and_counts_the_others() {
        let users: Vec<_> = (1..=7).map(|at| format!("Pod web-{at}")).collect();
        let expected = "Secret shop/db is in use by Pod web-1, Pod web-2, Pod web-3, Pod web-4, Pod web-5 and 2 more. It has the label pod-reloader.cs.sap.com/protect=in-use: delete its users first, or remove the label";
        assert_eq!(denial(&object(), &users), expected);
        assert!(denial(&object(), &users[..1]).contains("by Pod web-1. It"));
        assert!(denial(&object(), &[]).contains("is in use. It"));
    }

    #[test]
    fn only_the_deletion_of_an_object_that_is_protected_while_in_use_is_of_interest() {
        let candidate = |operation: &str, kind: &str, protection: &str| {
            let metadata = json!({"name": "db", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "labels": {PROTECT: protection}});
            // As in a request that deletes many: it has no name.
            let request = json!({"uid": "u", "kind": {"group": "", "kind": kind}, "namespace": "shop",
                "operation": operation, "oldObject": {"metadata": metadata, "data": {"a": "b"}}});
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
            let review = review.to_string();
            let request = Request::parse(review.as_bytes()).unwrap();
            let how = if protection == "keep" {
                Protection::Keep
            } else {
                Protection::InUse
            };
            Deletion::of(&request, how).unwrap()
        };
        let expected = Deletion {
            object: object(),
            uid: "u-1".into(),
        };
        assert_eq!(candidate("DELETE", "Secret", "in-use"), Some(expected));
        assert!(candidate("DELETE", "ConfigMap", "keep").is_some());
        for (operation, kind, protection) in [
            ("UPDATE", "Secret", "in-use"),
            ("DELETE", "Pod", "in-use"),
            ("DELETE", "Secret", "always"),
            ("DELETE", "Secret", "keep"),
            ("DELETE", "Secret", ""),
        ] {
            assert_eq!(candidate(operation, kind, protection), None);
        }
    }

    #[test]
    fn an_object_is_protected_by_its_own_label_alone() {
        let deletion = Deletion {
            object: object(),
            uid: "u-1".into(),
        };
        let protected = |metadata: Value| {
            let object: ProtectedMetadata =
                serde_json::from_value(json!({"metadata": metadata})).unwrap();
            object.protected(&deletion, Protection::InUse)
        };
        let with = |uid: &str, protection: &str| json!({"uid": uid, "resourceVersion": "8", "labels": {PROTECT: protection}});
        let expected = Protected {
            object: object(),
            uid: "u-1".into(),
            resource_version: "8".into(),
        };
        assert_eq!(protected(with("u-1", "in-use")), Some(expected));
        for other in [
            with("u-2", "in-use"),
            with("u-1", "keep"),
            with("u-1", "always"),
            json!({"uid": "u-1", "resourceVersion": "8"}),
            json!({"resourceVersion": "8", "labels": {PROTECT: "in-use"}}),
        ] {
            assert_eq!(protected(other.clone()), None, "{other}");
        }
    }

    /// Returns an object with these owners: their kinds, each with its API version, and their UIDs.
    fn owned(owners: &[(&str, &str, &str)]) -> Value {
        let owners = owners.iter().map(|(api_version, kind, uid)| {
            json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": uid, "controller": true})
        });
        json!({"name": "web", "uid": "none", "ownerReferences": owners.collect::<Vec<_>>()})
    }

    fn templated(uid: &str, metadata: Value) -> Templated {
        let mut object = json!({"metadata": metadata});
        object["metadata"]["uid"] = json!(uid);
        serde_json::from_value(object).unwrap()
    }

    /// Returns true if a pod with these owners goes, given everything that there is of each kind.
    fn goes(pod: Value, cluster: &[(TemplateKind, Templated)]) -> bool {
        let pod: Pod = serde_json::from_value(json!({"metadata": pod})).unwrap();
        let pod = pod.owned_by();
        let mut owners = Owners::default();
        let mut looked_for = owners.to_look_for([&pod]);
        while let Some((kind, uids)) = looked_for.pop_first() {
            let of_kind = cluster.iter().filter(|(it, _)| *it == kind);
            let there = of_kind.filter_map(|(_, it)| it.among(&uids)).collect();
            for (kind, uids) in owners.found(uids, there) {
                looked_for.entry(kind).or_default().extend(uids);
            }
        }
        owners.go(&pod)
    }

    #[test]
    fn a_pod_goes_if_the_garbage_collector_deletes_it() {
        use TemplateKind::{CronJob, Deployment, Job, ReplicaSet, StatefulSet};
        const RS: (&str, &str, &str) = ("apps/v1", "ReplicaSet", "rs");
        const WEB: (&str, &str, &str) = ("apps/v1", "Deployment", "web");
        const SET: (&str, &str, &str) = ("apps/v1", "StatefulSet", "set");
        const JOB: (&str, &str, &str) = ("batch/v1", "Job", "job");
        const CRON_JOB: (&str, &str, &str) = ("batch/v1", "CronJob", "cron");
        let replica_set =
            |owners: &[(&str, &str, &str)]| (ReplicaSet, templated("rs", owned(owners)));
        let web = |metadata: Value| (Deployment, templated("web", metadata));
        let deleted = |finalizers: &[&str]| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
        let other = (Deployment, templated("other", json!({})));
        for (what, pod, cluster, expected) in [
            (
                "its Deployment runs",
                owned(&[RS]),
                vec![replica_set(&[WEB]), web(json!({}))],
                false,
            ),
            (
                "its Deployment is gone",
                owned(&[RS]),
                vec![replica_set(&[WEB]), other],
                true,
            ),
            (
                "its ReplicaSet is gone",
                owned(&[RS]),
                vec![web(json!({}))],
                true,
            ),
            (
                "its ReplicaSet is orphaned",
                owned(&[RS]),
                vec![replica_set(&[])],
                false,
            ),
            ("it is orphaned", owned(&[]), vec![], false),
            (
                "its Deployment was made again",
                owned(&[RS]),
                vec![
                    replica_set(&[WEB]),
                    (Deployment, templated("web-2", json!({}))),
                ],
                true,
            ),
            (
                "its Deployment is deleted in the foreground",
                owned(&[RS]),
                vec![replica_set(&[WEB]), web(deleted(&["foregroundDeletion"]))],
                true,
            ),
            (
                "its Deployment leaves orphans",
                owned(&[RS]),
                vec![replica_set(&[WEB]), web(deleted(&["orphan"]))],
                false,
            ),
            (
                "somebody holds up the deletion of its Deployment",
                owned(&[RS]),
                vec![replica_set(&[WEB]), web(deleted(&["example.com/wait"]))],
                false,
            ),
            (
                "the finalizer is there, and no deletion",
                owned(&[RS]),
                vec![
                    replica_set(&[WEB]),
                    web(json!({"finalizers": ["foregroundDeletion"]})),
                ],
                false,
            ),
            ("its StatefulSet is gone", owned(&[SET]), vec![], true),
            (
                "its StatefulSet runs",
                owned(&[SET]),
                vec![(StatefulSet, templated("set", json!({})))],
                false,
            ),
            (
                "the CronJob of its Job is gone",
                owned(&[JOB]),
                vec![(Job, templated("job", owned(&[CRON_JOB])))],
                true,
            ),
            (
                "its CronJob runs",
                owned(&[JOB]),
                vec![
                    (Job, templated("job", owned(&[CRON_JOB]))),
                    (CronJob, templated("cron", json!({}))),
                ],
                false,
            ),
            (
                "a kind of which nobody can tell",
                owned(&[RS]),
                vec![replica_set(&[("argoproj.io/v1alpha1", "Rollout", "web")])],
                false,
            ),
            (
                "a kind of the same name in another group",
                owned(&[("apps.kruise.io/v1beta1", "StatefulSet", "set")]),
                vec![],
                false,
            ),
            (
                "one of its owners stays",
                owned(&[RS, SET]),
                vec![replica_set(&[])],
                false,
            ),
            (
                "both of its owners are gone",
                owned(&[RS, SET]),
                vec![],
                true,
            ),
            (
                "owners in a circle",
                owned(&[RS]),
                vec![replica_set(&[("apps/v1", "ReplicaSet", "rs")])],
                false,
            ),
        ] {
            assert_eq!(goes(pod, &cluster), expected, "{what}");
        }
    }

    #[test]
    fn a_pod_with_more_owners_than_are_read_stays() {
        let many = vec![("apps/v1", "ReplicaSet", "rs"); MAX_OWNERS];
        assert!(!goes(owned(&many), &[]));
    }

    #[test]
    fn a_workload_that_is_deleted_in_the_foreground_makes_no_more_pods() {
        let template = json!({"template": {"spec": {"imagePullSecrets": [{"name": "db"}]}}});
        let needs = |finalizer: &str| {
            let metadata = json!({
                "name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer],
            });
            let web = json!({"metadata": metadata, "spec": template});
            serde_json::from_value::<Templated>(web)
                .unwrap()
                .needs(&object())
        };
        assert!(!needs("foregroundDeletion"));
        assert!(needs("example.com/wait"));
    }

    #[test]
    fn a_protection_is_read_as_it_is_written() {
        for protection in [Protection::Always, Protection::InUse, Protection::Keep] {
            assert_eq!(Protection::parse(protection.as_str()), Some(protection));
        }
        assert_eq!(Protection::parse("never"), None);
    }
}
