//! Runs a CronJob out of schedule when its config has changed, if the settings ask for it.

use kube::Client;
use kube::api::PostParams;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::cron_job::{CronJob, Job};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::WorkloadId;

use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::{Resources, api};

/// Returns true for the kind of workload that can be run out of schedule.
pub(crate) fn is_cron_job(kind: WorkloadKind) -> bool {
    kind.is("batch", "CronJob")
}

/// Creates a Job of a CronJob, as `kubectl create job --from` does, and returns its name. Does nothing if
/// the CronJob is suspended.
pub(crate) async fn run(
    client: &Client,
    budget: &Budget,
    id: &WorkloadId,
) -> Result<Option<String>, CallError> {
    let namespace = Some(&id.namespace);
    let cron_jobs: Resources<CronJob> =
        Resources::new(api(client, namespace, ()), "CronJob", budget);
    let cron_job = within(DEADLINE, cron_jobs.get(&id.name)).await?;
    let Some(job) = cron_job.job() else {
        return Ok(None);
    };
    let jobs: Resources<Job> = Resources::new(api(client, namespace, ()), "Job", budget);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let job = within(DEADLINE, jobs.create(&params, job)).await?;
    Ok(Some(job.name().to_owned()))
}
