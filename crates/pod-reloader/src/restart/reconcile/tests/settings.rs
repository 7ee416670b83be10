//! What people set on a workload outlives its deletion, if it is created again.

use pod_reloader_core::annotations::{FIELD_MANAGER, HOLD};
use pod_reloader_core::lasting::MEMORY;

use super::*;

/// Returns a Deployment on which this field manager has set a hold.
fn held_by(manager: &str) -> Value {
    let mut object = deployment("web");
    object["metadata"]["annotations"][HOLD] = json!("true");
    let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{HOLD}")): {}}}});
    let of_hold = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
    let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{CONFIG_MAPS}")): {}}}});
    let of_lists = json!({"manager": "kubectl-create", "operation": "Update", "fieldsV1": fields});
    object["metadata"]["managedFields"] = json!([of_lists, of_hold]);
    object
}

/// Lets the watch show that a Deployment was deleted, which was last as `object` says.
fn loses(operator: &Operator, object: Value) {
    let name = apiserver::name_of(&object);
    operator.apiserver.delete_deployment(&name);
    let object: WorkloadObject = serde_json::from_value(object).unwrap();
    operator
        .reconciler
        .workload_deleted(WorkloadKind::DEPLOYMENT, object);
}

/// Creates a Deployment again, with the config hash that it had.
fn created_again(mut object: Value, hash: &str) -> Value {
    object["metadata"]["uid"] = json!("again");
    hashed(object, hash)
}

/// Starts with a held Deployment `web`, which is deleted. ConfigMap `app` changes, and `web` is created again as
/// `again` says, with its old hash.
async fn recreated(before: Value, again: Value) -> Operator {
    let operator = Operator::with([deployment("web")]).await;
    let hash = operator.config_hash("web");
    loses(&operator, before);
    operator.apiserver.write_config_map("app", "2");
    operator
        .apiserver
        .write_deployment(created_again(again, &hash));
    operator
}

fn hold_of(operator: &Operator) -> Value {
    operator.apiserver.deployment("web")["metadata"]["annotations"][HOLD].clone()
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_put_back_before_anything_is_decided() {
    let operator = recreated(held_by("kubectl-annotate"), deployment("web")).await;
    let hash = operator.config_hash("web");
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert_eq!(hold_of(&operator), json!("true"));
    assert_eq!(operator.config_hash("web"), hash);
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.events("RestartPending"), 1);
    let notes = operator.notes("SettingsKept");
    assert!(notes[0].contains(HOLD) && notes.len() == 1, "{notes:?}");
    let calls = operator.apiserver.calls();
    let first_read = |call: &Call| matches!(call, Call::ReadConfigMap(_));
    let write = calls.iter().position(|it| matches!(it, Call::Patch(_)));
    assert!(write < calls.iter().position(first_read), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_people_had_opted_in_is_managed_again() {
    let mut before = deployment("web");
    let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{CONFIG_MAPS}")): {}}}});
    before["metadata"]["managedFields"] =
        json!([{"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": fields}]);
    let mut again = deployment("web");
    again["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    let operator = recreated(before, again).await;
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    let web = operator.apiserver.deployment("web");
    assert_eq!(web["metadata"]["annotations"][CONFIG_MAPS], json!("app"));
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn what_the_manifest_says_and_what_it_had_said_is_not_put_back() {
    let mut says_no = deployment("web");
    says_no["metadata"]["annotations"][HOLD] = json!("false");
    for (before, again) in [
        (held_by("kubectl-annotate"), says_no),
        (held_by("argocd-controller"), deployment("web")),
    ] {
        let operator = recreated(before, again).await;
        watch(&operator, Duration::from_secs(60), |_| {}).await;
        assert_ne!(hold_of(&operator), json!("true"));
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
        assert_eq!(operator.events("SettingsKept"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_survives_the_second_time_too_and_whoever_removes_it_means_it() {
    let operator = recreated(held_by(FIELD_MANAGER), deployment("web")).await;
    watch(&operator, Duration::from_secs(10), |_| {}).await;
    assert_eq!(hold_of(&operator), json!("true"));
    operator.takes_away("web", HOLD);
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert!(hold_of(&operator).is_null());
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_or_an_outage_is_tried_again_and_decides_nothing_until_then() {
    for failure in [409, 503] {
        let operator = recreated(held_by("kubectl-annotate"), deployment("web")).await;
        let hash = operator.config_hash("web");
        operator.apiserver.reacts([Reaction::Refused(failure)]);
        watch(&operator, Duration::from_secs(20), |_| {}).await;
        assert!(hold_of(&operator).is_null());
        assert!(operator.patches().len() > 2, "{failure}");
        operator.apiserver.reacts([]);
        watch(&operator, Duration::from_secs(60), |_| {}).await;
        assert_eq!(hold_of(&operator), json!("true"), "{failure}");
        assert_eq!(operator.config_hash("web"), hash, "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_outlasts_the_memory_does_not_stop_the_workload() {
    let operator = recreated(held_by("kubectl-annotate"), deployment("web")).await;
    operator.apiserver.reacts([Reaction::Refused(503)]);
    watch(&operator, MEMORY, |_| {}).await;
    operator.apiserver.reacts([]);
    watch(&operator, Duration::from_secs(120), |_| {}).await;
    assert!(hold_of(&operator).is_null());
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_tried_again() {
    let operator = recreated(held_by("kubectl-annotate"), deployment("web")).await;
    operator
        .apiserver
        .reacts([Reaction::Refused(403), Reaction::Stands]);
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert!(hold_of(&operator).is_null());
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.patches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_one_overtakes_is_made_again() {
    let operator = recreated(held_by("kubectl-annotate"), deployment("web")).await;
    operator.apiserver.now(|state| state.fails_tests = true);
    watch(&operator, Duration::from_secs(10), |_| {}).await;
    assert!(hold_of(&operator).is_null());
    operator.apiserver.now(|state| state.fails_tests = false);
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert_eq!(hold_of(&operator), json!("true"));
}

#[tokio::test(start_paused = true)]
async fn another_leader_knows_nothing_of_what_was_deleted() {
    let old = recreated(held_by("kubectl-annotate"), deployment("web")).await;
    let new = Operator::start(old.ends());
    watch(&new, Duration::from_secs(60), |_| {}).await;
    assert!(hold_of(&new).is_null());
    assert_eq!(new.config_hash("web"), new.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_goes_takes_along_what_people_had_set() {
    let operator = Operator::with([deployment("web")]).await;
    let hash = operator.config_hash("web");
    loses(&operator, held_by("kubectl-annotate"));
    operator.reconciler.namespace_left(&name("ns"));
    let again = created_again(deployment("web"), &hash);
    operator.apiserver.write_deployment(again);
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert!(hold_of(&operator).is_null());
}

#[tokio::test(start_paused = true)]
async fn with_observe_nothing_is_put_back() {
    let apiserver = Apiserver::default();
    let operator = Operator::start_as(apiserver, observing(), Dialects::default());
    operator.apiserver.write_config_map("app", "1");
    loses(&operator, held_by("kubectl-annotate"));
    let again = created_again(deployment("web"), &operator.hash_of("app"));
    operator.apiserver.write_deployment(again);
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    assert!(hold_of(&operator).is_null());
    assert!(operator.patches().is_empty());
}
