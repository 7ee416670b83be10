//! Tests that a CronJob is run once for each change of its content.

use pod_reloader_core::kind::CustomResource;
use pod_reloader_core::object::CustomObject;

use super::*;

/// Starts a loop that runs CronJobs when their content changes, with one that lists ConfigMap `app`. No calls are on
/// record.
async fn with_cron_job() -> (Operator, WorkloadKind) {
    let definition = json!({
        "group": "batch",
        "kind": "CronJob",
        "resource": "cronjobs",
        "podTemplates": [TEMPLATE.join(".")],
    });
    let definition: CustomResource = serde_json::from_value(definition).unwrap();
    let kind = definition.into_kind().unwrap();
    let settings = Settings {
        run_cron_jobs: true,
        ..settings()
    };
    let scope = scope().and_kinds(vec![kind]);
    let apiserver = Apiserver::default();
    let operator = Operator::start_in(scope, apiserver, settings, RecentWrites::default());
    let served = ("v1".into(), Vec::new());
    operator.reconciler.kind_served(kind, Some(served));
    operator.apiserver.write_config_map("app", "1");
    let object = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "ns", "uid": "nightly", "generation": 1},
        "spec": {"jobTemplate": {"spec": {"template": {"metadata": {}, "spec": {"containers": []}}}}},
        "status": {},
    });
    operator.apiserver.write_deployment(listing(object, "app"));
    sees(&operator, kind);
    pass(Duration::from_secs(10)).await;
    assert_eq!(hash(&operator), operator.hash_of("app"));
    operator.apiserver.forget_calls();
    (operator, kind)
}

/// The path to the pod template.
const TEMPLATE: [&str; 4] = ["spec", "jobTemplate", "spec", "template"];

/// Lets the watch show the CronJob as it is.
fn sees(operator: &Operator, kind: WorkloadKind) {
    let object = operator.apiserver.deployment("nightly");
    let object: CustomObject = serde_json::from_value(object).unwrap();
    operator.reconciler.workload_seen(kind, object);
}

/// Returns the annotations of the pod template.
fn annotations(object: &mut Value) -> &mut Value {
    let template = TEMPLATE.iter().fold(object, |place, name| &mut place[name]);
    &mut template["metadata"]["annotations"]
}

fn hash(operator: &Operator) -> String {
    let mut object = operator.apiserver.deployment("nightly");
    let hash = &annotations(&mut object)[CONFIG_HASH];
    hash.as_str().unwrap_or_default().to_owned()
}

async fn changes(operator: &Operator, value: &str) {
    operator.changes("app", value).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(hash(operator), operator.hash_of("app"));
}

/// Returns the number of Jobs that were created.
fn jobs(operator: &Operator) -> usize {
    let jobs = |call: &Call| *call == Call::CreateJob;
    operator.apiserver.times(jobs).len()
}

#[tokio::test(start_paused = true)]
async fn each_change_runs_a_cron_job_once() {
    let (operator, _) = with_cron_job().await;
    changes(&operator, "2").await;
    assert_eq!(jobs(&operator), 1);
    changes(&operator, "3").await;
    assert_eq!(jobs(&operator), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hash_that_is_written_again_because_it_was_reverted_runs_no_cron_job() {
    let (operator, kind) = with_cron_job().await;
    let mut before = operator.apiserver.deployment("nightly");
    let before = annotations(&mut before).clone();
    changes(&operator, "2").await;
    assert_eq!((operator.patches().len(), jobs(&operator)), (1, 1));

    let mut reverted = operator.apiserver.deployment("nightly");
    *annotations(&mut reverted) = before;
    operator.apiserver.write_deployment(reverted);
    sees(&operator, kind);
    pass(Duration::from_secs(60)).await;
    assert_eq!(hash(&operator), operator.hash_of("app"));
    assert_eq!((operator.patches().len(), jobs(&operator)), (2, 1));
}
