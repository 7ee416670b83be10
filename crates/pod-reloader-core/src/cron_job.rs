//! Makes a Job of a CronJob out of schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::DynamicResourceScope;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::metadata::{Metadata, Wanted, resource};
use crate::texts::Texts;

/// The annotation that `kubectl create job --from` sets, too.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";
/// The maximum number of characters that a Job's name has from its CronJob. The pods of a Job carry its name, too, which
/// limits it to 63 characters.
const PREFIX: usize = 52;

/// A CronJob, as far as Jobs are made of it. Everything in the specification of a Job is passed on as it is.
#[derive(Debug, Deserialize)]
pub struct CronJob {
    metadata: Metadata<Self>,
    spec: Spec,
}

impl Wanted for CronJob {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    suspend: Option<bool>,
    job_template: JobTemplate,
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
    /// Returns the Job as JSON, as `kubectl create job --from` makes it. `None` if the CronJob is suspended.
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
        if self.spec.suspend == Some(true) {
            return None;
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
#[derive(Debug, Deserialize)]
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
    use serde_json::{Value, json};

    fn cron_job(suspend: bool) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"name": "n".repeat(60), "uid": "1"},
            "spec": {
                "schedule": "@daily",
                "suspend": suspend,
                "jobTemplate": {
                    "metadata": {"labels": {"app": "n"}, "annotations": {"a": "b"}},
                    "spec": {"fieldOfTheFuture": 1, "template": {"spec": {"containers": []}}},
                },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_made_as_kubectl_makes_it() {
        let job: Value = serde_json::from_slice(&cron_job(false).job().unwrap()).unwrap();
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
        assert_eq!(job["metadata"]["ownerReferences"][0]["controller"], true);
        assert!(job["spec"]["template"]["spec"]["containers"].is_array());
        assert_eq!(job["spec"]["fieldOfTheFuture"], 1);
    }

    #[test]
    fn a_suspended_cron_job_is_not_run() {
        assert!(cron_job(true).job().is_none());
    }
}
