//! Decides when a CronJob is run out of schedule, and makes the Job.
//!
//! The decision is that of the CronJob controller for a run that its schedule asks for: `syncCronJob` in
//! `pkg/controller/cronjob/cronjob_controllerv2.go` of Kubernetes.

mod runs;

use jiff::Timestamp;
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::DynamicResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::metadata::{Metadata, Wanted, resource};
use crate::operation::{add, test};
use crate::raw;
use crate::texts::Texts;

pub use self::runs::DueRun;

/// The annotation that `kubectl create job --from` sets, too.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";
/// The maximum number of characters that a Job's name has from its CronJob. The pods of a Job carry its name, too, which
/// limits it to 63 characters.
const PREFIX: usize = 52;
/// The maximum number of active Jobs that are read. A CronJob that replaces them has one.
const MAX_ACTIVE: usize = 64;

/// A CronJob, as far as Jobs are made of it. Everything in the specification of a Job is passed on as it is.
#[derive(Debug, Deserialize)]
pub struct CronJob {
    metadata: Metadata<Self>,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

impl Wanted for CronJob {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    suspend: Option<bool>,
    concurrency_policy: Option<Box<str>>,
    starting_deadline_seconds: Option<i64>,
    job_template: JobTemplate,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    /// The first of the Jobs that its controller counts as active.
    #[serde(default, deserialize_with = "raw::first::<MAX_ACTIVE, _, _>")]
    active: Vec<ActiveJob>,
    last_schedule_time: Option<Box<str>>,
}

/// A Job of a CronJob that has not ended.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ActiveJob {
    /// The name.
    pub name: Box<str>,
    /// The UID.
    pub uid: Box<str>,
}

/// The next step of a run that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a> {
    /// These Jobs are deleted, and then the run begins.
    Begin(&'a [ActiveJob]),
    /// The run begins when no Job of the CronJob is active.
    Wait,
    /// The run never begins.
    GiveUp(NoRun),
}

/// The reason why a run never begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRun {
    /// The CronJob is being deleted.
    Deleted,
    /// The CronJob is suspended.
    Suspended,
    /// The schedule has begun a run since this one is due.
    Scheduled,
    /// The run could not begin within `startingDeadlineSeconds`.
    TooLate,
}

#[derive(Debug, Deserialize)]
struct JobTemplate {
    #[serde(default)]
    metadata: TemplateMetadata,
    spec: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
struct TemplateMetadata {
    #[serde(default, deserialize_with = "Texts::of_any_size")]
    annotations: Texts,
    labels: Option<Box<RawValue>>,
}

resource!(
    CronJob, DynamicResourceScope, of_metadata: false,
    group: "batch", version: "v1", kind: "CronJob", plural: "cronjobs"
);

impl CronJob {
    /// Decides about a run that is due since `due`. The checks have the order of the controller. As there, only the Jobs
    /// in the status count as active.
    pub fn run(&self, due: Timestamp, now: Timestamp) -> Run<'_> {
        let spec = &self.spec;
        if self.metadata.deletion_timestamp.is_some() {
            return Run::GiveUp(NoRun::Deleted);
        }
        if spec.suspend == Some(true) {
            return Run::GiveUp(NoRun::Suspended);
        }
        // The controller begins the latest of several runs that it has missed, and no other.
        if self.last_scheduled().is_some_and(|last| last > due) {
            return Run::GiveUp(NoRun::Scheduled);
        }
        // In whole seconds, so that a deadline of 0 allows the first attempt.
        let waited = now.duration_since(due).as_secs();
        let deadline = spec.starting_deadline_seconds;
        if deadline.is_some_and(|most| waited > most) {
            return Run::GiveUp(NoRun::TooLate);
        }
        let active = &*self.status.active;
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => Run::Wait,
            Some("Replace") => Run::Begin(active),
            _ => Run::Begin(&[]),
        }
    }

    fn last_scheduled(&self) -> Option<Timestamp> {
        self.status.last_schedule_time.as_deref()?.parse().ok()
    }

    /// Returns the patch of the status that adds a Job to those that the controller counts as active, so that the
    /// concurrency policy applies to it as to the controller's own. `None` if it is there.
    pub fn with_active(&self, job: &Job) -> Option<Patch> {
        let uid = job.metadata.uid.as_deref()?;
        let active = &self.status.active;
        if active.iter().any(|it| &*it.uid == uid) {
            return None;
        }
        let reference = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "resourceVersion": job.metadata.resource_version,
            "uid": uid,
        });
        let list = ["status", "active"];
        let mut operations = vec![test(&["metadata", "uid"], json!(self.metadata.uid))];
        match active.is_empty() {
            // An empty list is written as a missing one.
            true => operations.extend([test(&list, Value::Null), add(&list, json!([reference]))]),
            false => operations.push(add(&["status", "active", "-"], reference)),
        }
        Some(Patch(operations))
    }

    /// Returns the Job as JSON, as `kubectl create job --from` makes it. As there, its metadata has the labels and
    /// annotations of the template. `None` if the CronJob has no name.
    pub fn job(&self) -> Option<Vec<u8>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Job<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: JobMetadata<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            spec: Option<&'a RawValue>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct JobMetadata<'a> {
            generate_name: String,
            annotations: Texts,
            #[serde(skip_serializing_if = "Option::is_none")]
            labels: Option<&'a RawValue>,
            owner_references: [OwnerReference; 1],
        }
        let (name, uid) = (self.metadata.name.clone()?, self.metadata.uid.clone()?);
        let JobTemplate { metadata, spec } = &self.spec.job_template;
        let prefix: String = name.chars().take(PREFIX).collect();
        let annotations = metadata.annotations.iter();
        let job = Job {
            api_version: "batch/v1",
            kind: "Job",
            metadata: JobMetadata {
                generate_name: format!("{prefix}-"),
                annotations: annotations.chain([(INSTANTIATE, "manual")]).collect(),
                labels: metadata.labels.as_deref(),
                owner_references: [OwnerReference {
                    api_version: "batch/v1".to_owned(),
                    kind: "CronJob".to_owned(),
                    name,
                    uid,
                    controller: Some(true),
                    block_owner_deletion: None,
                }],
            },
            spec: spec.as_deref(),
        };
        Some(serde_json::to_vec(&job).expect("its keys are texts"))
    }
}

/// A Job that was created.
#[derive(Clone, Debug, Deserialize)]
pub struct Job {
    metadata: Metadata<Self>,
}

impl Wanted for Job {}

impl Job {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

resource!(
    Job, DynamicResourceScope, of_metadata: false,
    group: "batch", version: "v1", kind: "Job", plural: "jobs"
);

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn cron_job(spec: Value, status: Value) -> CronJob {
        let template = json!({
            "metadata": {
                "labels": {"app": "n"},
                "annotations": {"a": "b"},
                "name": "not for its Jobs",
                "fieldOfTheFuture": 0,
            },
            "spec": {
                "fieldOfTheFuture": 1,
                "template": {
                    "fieldOfTheFuture": 2,
                    "metadata": {"labels": {"app": "n"}, "fieldOfTheFuture": 3},
                    "spec": {
                        "fieldOfTheFuture": {"is": ["nested", 4.50, null]},
                        "containers": [{
                            "name": "main",
                            "fieldOfTheFuture": 5,
                            "restartPolicyRules": [
                                {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
                            ],
                        }],
                    },
                },
            },
        });
        let mut object = json!({
            "metadata": {"name": "n".repeat(60), "uid": "1"},
            "spec": {"schedule": "@daily", "jobTemplate": template},
            "status": status,
        });
        let spec = spec.as_object().unwrap().clone();
        object["spec"].as_object_mut().unwrap().extend(spec);
        serde_json::from_value(object).unwrap()
    }

    fn made(cron_job: &CronJob) -> Value {
        serde_json::from_slice(&cron_job.job().unwrap()).unwrap()
    }

    #[test]
    fn a_job_is_made_as_kubectl_makes_it() {
        let job = made(&cron_job(json!({}), json!({})));
        assert_eq!(
            (&job["apiVersion"], &job["kind"]),
            (&json!("batch/v1"), &json!("Job"))
        );
        assert_eq!(job["metadata"]["generateName"].as_str().unwrap().len(), 53);
        assert_eq!(
            job["metadata"]["annotations"],
            json!({"a": "b", INSTANTIATE: "manual"})
        );
        assert_eq!(job["metadata"]["labels"], json!({"app": "n"}));
        // The controller finds the Jobs of a CronJob by this, also those that exceed a history limit.
        assert_eq!(
            job["metadata"]["ownerReferences"],
            json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "n".repeat(60), "uid": "1", "controller": true}])
        );
    }

    #[test]
    fn a_job_has_every_field_of_its_template_also_unknown_ones() {
        let job = made(&cron_job(json!({}), json!({})));
        let spec = &job["spec"];
        assert_eq!(spec["fieldOfTheFuture"], 1);
        let template = &spec["template"];
        assert_eq!(template["fieldOfTheFuture"], 2);
        assert_eq!(template["metadata"]["fieldOfTheFuture"], 3);
        let nested = json!({"is": ["nested", 4.50, null]});
        assert_eq!(template["spec"]["fieldOfTheFuture"], nested);
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["fieldOfTheFuture"], 5);
        let rules = &container["restartPolicyRules"][0]["exitCodes"]["values"];
        assert_eq!(*rules, json!([42]));
        // Of the metadata, the controller passes on labels and annotations.
        let metadata = &job["metadata"];
        assert!(metadata["name"].is_null() && metadata["fieldOfTheFuture"].is_null());
    }

    /// When the run became due.
    const DUE: &str = "2026-01-01T12:00:00Z";

    fn after(seconds: i64) -> Timestamp {
        DUE.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_run_begins_waits_or_is_given_up_as_one_of_the_schedule() {
        use NoRun::{Scheduled, Suspended, TooLate};
        let busy = json!({"active": [{"name": "n-1", "uid": "u1"}, {"name": "n-2", "uid": "u2"}]});
        let idle = json!({});
        let before = json!({"lastScheduleTime": "2026-01-01T11:00:00Z"});
        let since = json!({"lastScheduleTime": "2026-01-01T12:01:00Z"});
        let active = [("n-1", "u1"), ("n-2", "u2")].map(|(name, uid)| ActiveJob {
            name: name.into(),
            uid: uid.into(),
        });
        let forbid = json!({"concurrencyPolicy": "Forbid"});
        let replace = json!({"concurrencyPolicy": "Replace"});
        let strict = json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 30});
        let at_once = json!({"startingDeadlineSeconds": 0});
        let suspended = json!({"suspend": true, "concurrencyPolicy": "Replace"});
        for (spec, status, waited, expected) in [
            (json!({}), &idle, 0, Run::Begin(&[])),
            (json!({"suspend": false}), &idle, 0, Run::Begin(&[])),
            (json!({}), &busy, 0, Run::Begin(&[])),
            (
                json!({"concurrencyPolicy": "Allow"}),
                &busy,
                0,
                Run::Begin(&[]),
            ),
            (
                json!({"concurrencyPolicy": "OfTheFuture"}),
                &busy,
                0,
                Run::Begin(&[]),
            ),
            (forbid.clone(), &idle, 0, Run::Begin(&[])),
            (forbid.clone(), &busy, 0, Run::Wait),
            (forbid.clone(), &busy, 86_400, Run::Wait),
            (forbid.clone(), &idle, 86_400, Run::Begin(&[])),
            (forbid.clone(), &before, 60, Run::Begin(&[])),
            (forbid, &since, 120, Run::GiveUp(Scheduled)),
            (strict.clone(), &busy, 30, Run::Wait),
            (strict.clone(), &idle, 30, Run::Begin(&[])),
            (strict.clone(), &busy, 31, Run::GiveUp(TooLate)),
            (strict.clone(), &idle, 31, Run::GiveUp(TooLate)),
            (strict, &since, 31, Run::GiveUp(Scheduled)),
            (at_once, &idle, 0, Run::Begin(&[])),
            (replace.clone(), &idle, 0, Run::Begin(&[])),
            (replace, &busy, 0, Run::Begin(&active)),
            (suspended.clone(), &idle, 0, Run::GiveUp(Suspended)),
            (suspended, &busy, 0, Run::GiveUp(Suspended)),
        ] {
            let cron_job = cron_job(spec.clone(), status.clone());
            let run = cron_job.run(after(0), after(waited));
            assert_eq!(run, expected, "{spec} {status} after {waited} s");
        }
    }

    #[test]
    fn a_cron_job_that_is_being_deleted_is_not_run() {
        let mut cron_job = cron_job(json!({}), json!({}));
        cron_job.metadata.object_mut().deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(after(0)),
        );
        assert_eq!(
            cron_job.run(after(0), after(0)),
            Run::GiveUp(NoRun::Deleted)
        );
    }

    #[test]
    fn the_job_becomes_one_of_the_active_ones() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "n-x", "namespace": "ns", "uid": "new", "resourceVersion": "7"},
        }))
        .unwrap();
        let patch = |status: Value| {
            let patch = cron_job(json!({}), status).with_active(&job);
            serde_json::to_value(patch).unwrap()
        };
        let reference = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "n-x", "namespace": "ns",
            "resourceVersion": "7", "uid": "new",
        });
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "1"});
        assert_eq!(
            patch(json!({})),
            json!([
                uid,
                {"op": "test", "path": "/status/active", "value": null},
                {"op": "add", "path": "/status/active", "value": [reference]},
            ])
        );
        assert_eq!(
            patch(json!({"active": [{"uid": "other", "fieldOfTheFuture": 1}]})),
            json!([uid, {"op": "add", "path": "/status/active/-", "value": reference}])
        );
        assert_eq!(patch(json!({"active": [{"uid": "new"}]})), Value::Null);
    }

    #[test]
    fn only_so_many_active_jobs_are_read() {
        let active = vec![json!({"uid": "x"}); MAX_ACTIVE + 1];
        let cron_job = cron_job(
            json!({"concurrencyPolicy": "Replace"}),
            json!({"active": active}),
        );
        let Run::Begin(replaced) = cron_job.run(after(0), after(0)) else {
            panic!("it is not run");
        };
        assert_eq!(replaced.len(), MAX_ACTIVE);
    }
}
