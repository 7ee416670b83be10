//! Reads CronJobs, and makes Jobs of them.

use kube::api::{DeleteParams, Patch, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::cron_job::{ActiveJob, CronJob, Job};
use pod_reloader_core::workload::WorkloadId;
use tracing::debug;

use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, patch_params, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::{Resources, api};

/// The number of attempts to count a Job as active: its controller writes to the same status.
const ATTEMPTS: u32 = 3;

/// Reads a CronJob.
pub(super) async fn read(
    client: &Client,
    budget: &Budget,
    id: &WorkloadId,
) -> Result<CronJob, CallError> {
    let cron_jobs = cron_jobs(client, budget, id);
    within(DEADLINE, cron_jobs.get(&id.name)).await
}

/// Deletes the Jobs that are replaced, creates a Job as `kubectl create job --from` does, and returns its name. The
/// CronJob's controller then counts it as active, as it does its own.
///
/// # Errors
///
/// Returns an error if a Job could not be replaced or created. Nothing depends on the status: the controller also finds
/// the Job by its owner.
pub(super) async fn begin(
    client: &Client,
    budget: &Budget,
    id: &WorkloadId,
    cron_job: &CronJob,
    replaced: &[ActiveJob],
) -> Result<Option<String>, CallError> {
    let Some(manifest) = cron_job.job() else {
        return Ok(None);
    };
    for job in replaced {
        delete(client, id, job).await?;
    }
    let namespace = Some(&id.namespace);
    let jobs: Resources<Job> = Resources::new(api(client, namespace, ()), "Job", budget);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let job = within(DEADLINE, jobs.create(&params, manifest)).await?;
    if let Err(error) = count(client, budget, id, &job).await {
        let (namespace, name, reason) = (&id.namespace, &*id.name, error.reason());
        debug!(%namespace, name, reason, "the Job is not among the active ones of its CronJob");
    }
    Ok(Some(job.name().to_owned()))
}

/// Deletes a Job as the CronJob's controller does. One that is gone need not be.
async fn delete(client: &Client, id: &WorkloadId, job: &ActiveJob) -> Result<(), CallError> {
    let jobs: Api<Job> = api(client, Some(&id.namespace), ());
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(job.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match within(DEADLINE, jobs.delete(&job.name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds a Job to those that the CronJob's controller counts as active.
async fn count(
    client: &Client,
    budget: &Budget,
    id: &WorkloadId,
    job: &Job,
) -> Result<(), CallError> {
    let cron_jobs = cron_jobs(client, budget, id);
    let params = patch_params();
    let mut attempt = 1;
    loop {
        let cron_job = within(DEADLINE, cron_jobs.get(&id.name)).await?;
        let Some(patch) = cron_job.with_active(job) else {
            return Ok(());
        };
        let patch = Patch::Json(patch);
        match within(DEADLINE, cron_jobs.patch_status(&id.name, &params, &patch)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_failed_test() || error.is_conflict() => {
                if attempt == ATTEMPTS {
                    return Err(error);
                }
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn cron_jobs(client: &Client, budget: &Budget, id: &WorkloadId) -> Resources<CronJob> {
    Resources::new(api(client, Some(&id.namespace), ()), "CronJob", budget)
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use super::*;
    use crate::mock::{Answer, client, id};
    use jiff::Timestamp;
    use parking_lot::Mutex;
    use pod_reloader_core::cron_job::Run;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_run_replaces_the_active_job_and_is_counted_as_active() {
        let object = json!({
            "metadata": {"name": "nightly", "uid": "u"},
            "spec": {"concurrencyPolicy": "Replace", "jobTemplate": {"spec": {"fieldOfTheFuture": 1}}},
            "status": {"active": [{"name": "nightly-1", "uid": "u1"}]},
        });
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (noted, answered) = (calls.clone(), object.clone());
        let client = client(move |head, body| {
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let path = head.uri.path().to_owned();
            let answer: Answer = match &*path {
                _ if head.method == "DELETE" => Err((404, "NotFound")),
                "/apis/batch/v1/namespaces/ns/jobs" => {
                    Ok(json!({"metadata": {"name": "nightly-x", "uid": "u2"}}))
                }
                _ => Ok(answered.clone()),
            };
            noted.lock().push((format!("{} {path}", head.method), body));
            ready(answer)
        });
        let id = id("nightly");
        let cron_job: CronJob = serde_json::from_value(object).unwrap();
        let Run::Begin(replaced) = cron_job.run(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH)
        else {
            panic!("it is not run");
        };
        let begun = begin(&client, &Budget::new(), &id, &cron_job, replaced).await;
        assert_eq!(begun.unwrap().as_deref(), Some("nightly-x"));

        let calls = calls.lock();
        let made: Vec<_> = calls.iter().map(|(call, _)| &**call).collect();
        let namespace = "/apis/batch/v1/namespaces/ns";
        assert_eq!(
            made,
            [
                format!("DELETE {namespace}/jobs/nightly-1"),
                format!("POST {namespace}/jobs"),
                format!("GET {namespace}/cronjobs/nightly"),
                format!("PATCH {namespace}/cronjobs/nightly/status"),
            ]
        );
        assert_eq!(calls[0].1["preconditions"]["uid"], "u1");
        assert_eq!(calls[0].1["propagationPolicy"], "Background");
        assert_eq!(calls[1].1["spec"]["fieldOfTheFuture"], 1);
        assert_eq!(calls[3].1[1]["path"], "/status/active/-");
        assert_eq!(calls[3].1[1]["value"]["uid"], "u2");
    }
}
