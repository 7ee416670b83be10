//! Runs a CronJob out of schedule when its config has changed, if the settings ask for it.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::WorkloadId;

use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;

/// The annotation that `kubectl create job --from` sets, too.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

/// Returns true for the kind of workload that can be run out of schedule.
pub(crate) fn is_cron_job(kind: WorkloadKind) -> bool {
    kind.is("batch", "CronJob")
}

/// Creates a Job of a CronJob, as `kubectl create job --from` does, and returns its name. Does nothing if
/// the CronJob is suspended.
pub(crate) async fn run(client: &Client, id: &WorkloadId) -> Result<Option<String>, CallError> {
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), id.namespace.as_str());
    let cron_job = within(DEADLINE, cron_jobs.get(&id.name)).await?;
    let Some(job) = job(cron_job) else {
        return Ok(None);
    };
    let jobs: Api<Job> = Api::namespaced(client.clone(), id.namespace.as_str());
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let job = within(DEADLINE, jobs.create(&params, &job)).await?;
    Ok(job.metadata.name)
}

fn job(cron_job: CronJob) -> Option<Job> {
    let spec = cron_job.spec?;
    if spec.suspend == Some(true) {
        return None;
    }
    let (name, uid) = (cron_job.metadata.name?, cron_job.metadata.uid?);
    let template = spec.job_template;
    let ObjectMeta {
        annotations,
        labels,
        ..
    } = template.metadata.unwrap_or_default();
    let mut annotations = annotations.unwrap_or_default();
    annotations.insert(INSTANTIATE.to_owned(), "manual".to_owned());
    // The pods of a Job carry its name, too, which limits it to 63 characters.
    let prefix: String = name.chars().take(52).collect();
    Some(Job {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            annotations: Some(annotations),
            labels,
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "CronJob".to_owned(),
                name,
                uid,
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cron_job(suspend: bool) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"name": "n".repeat(60), "uid": "1"},
            "spec": {
                "schedule": "@daily",
                "suspend": suspend,
                "jobTemplate": {
                    "metadata": {"labels": {"app": "n"}, "annotations": {"a": "b"}},
                    "spec": {"template": {"spec": {"containers": []}}},
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_made_as_kubectl_makes_it() {
        let job = serde_json::to_value(job(cron_job(false)).unwrap()).unwrap();
        assert_eq!(job["metadata"]["generateName"].as_str().unwrap().len(), 53);
        assert_eq!(
            job["metadata"]["annotations"],
            json!({"a": "b", INSTANTIATE: "manual"})
        );
        assert_eq!(job["metadata"]["labels"], json!({"app": "n"}));
        assert_eq!(job["metadata"]["ownerReferences"][0]["controller"], true);
        assert!(job["spec"]["template"]["spec"]["containers"].is_array());
    }

    #[test]
    fn a_suspended_cron_job_is_not_run() {
        assert!(job(cron_job(true)).is_none());
    }
}
