//! Tests which objects are read for a restart, when, and how often.

use super::*;

/// Starts a loop with Deployments that track ConfigMaps `app` and `base` without a settle period. No calls are on
/// record.
async fn of_two(names: &[String]) -> Operator {
    let operator = Operator::start(Apiserver::default());
    for config_map in ["app", "base"] {
        operator.apiserver.write_config_map(config_map, "1");
    }
    for name in names {
        let object = listing(deployment(name), "app,base");
        operator.writes(settling(object, "0s"));
    }
    pass(Duration::from_secs(10)).await;
    operator.apiserver.forget_calls();
    operator
}

/// Returns the right config hash of a Deployment that lists ConfigMaps `app` and `base`.
fn hash_of_both(operator: &Operator) -> String {
    let names = ["app", "base"];
    let objects = names.map(|name| operator.apiserver.config_map(name));
    hash_of_all(names.into_iter().zip(&objects))
}

#[tokio::test(start_paused = true)]
async fn only_the_object_that_changes_is_read_if_the_hash_is_of_the_others() {
    for (changed, other) in [("app", "base"), ("base", "app")] {
        let operator = of_two(&["web".to_owned()]).await;
        operator.changes(changed, "2").await;
        pass(Duration::from_secs(10)).await;
        assert_eq!(operator.patches().len(), 1);
        let reads = [changed, other].map(|name| operator.reads(name).len());
        assert_eq!(reads, [1, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_watch_of_one_object_does_not_move_the_hash_back_when_another_changes() {
    for (changed, late) in [("app", "base"), ("base", "app")] {
        let operator = of_two(&["web".to_owned()]).await;
        // The webhook has read it for an edit, and the loop has not heard of it.
        operator.apiserver.write_config_map(late, "2");
        let mut web = operator.apiserver.deployment("web");
        let before = operator.config_hash("web");
        web["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH] =
            json!(hash_of_both(&operator));
        operator.writes(web);
        let takes = Duration::from_secs(1);
        operator.apiserver.now(|state| state.read_takes = takes);
        operator.changes(changed, "2").await;
        pass(Duration::from_secs(10)).await;
        assert_ne!(operator.config_hash("web"), before);
        assert_eq!(operator.config_hash("web"), hash_of_both(&operator));
        let reads = [changed, late].map(|name| operator.reads(name));
        let [[changed], [late]] = reads.each_ref().map(Vec::as_slice) else {
            panic!("each is read once: {reads:?}");
        };
        assert_eq!(changed, late, "neither waits for the other");
        assert!(
            operator.only_patch() - *changed < takes * 2,
            "one round of reads"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn two_objects_that_change_together_are_read_once_each() {
    let operator = of_two(&["web".to_owned()]).await;
    for changed in ["app", "base"] {
        operator.apiserver.write_config_map(changed, "2");
        operator.sees_config(changed);
    }
    // The loop reacts later, not at this very moment.
    tokio::time::advance(Duration::from_millis(1)).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
    for name in ["app", "base"] {
        assert_eq!(operator.reads(name).len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_to_workloads_with_two_objects_shares_one_read_of_each() {
    let names: Vec<_> = (0..50).map(|number| format!("web-{number}")).collect();
    let operator = of_two(&names).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 50);
    for name in ["app", "base"] {
        assert_eq!(operator.reads(name).len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_settle_period_only_the_changed_object_is_read_before_it_has_settled() {
    let operator = Operator::start(Apiserver::default());
    for config_map in ["app", "base"] {
        operator.apiserver.write_config_map(config_map, "1");
    }
    operator.writes(listing(deployment("web"), "app,base"));
    pass(Duration::from_secs(10)).await;
    operator.apiserver.forget_calls();
    operator.changes("app", "2").await;
    pass(SETTLE_PERIOD_OF_ALL / 2).await;
    assert_eq!(operator.reads("app").len(), 1);
    assert_eq!(operator.reads("base").len(), 0);
    pass(SETTLE_PERIOD_OF_ALL).await;
    assert_eq!(operator.patches().len(), 1);
    let last = |name| operator.reads(name).last().copied();
    assert_eq!(last("app"), last("base"), "neither waits for the other");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_written_again_and_again_without_a_change_is_read_alone() {
    let operator = of_two(&["web".to_owned()]).await;
    for _ in 0..10 {
        operator.changes("app", "1").await;
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(operator.reads("app").len(), 10);
    assert_eq!(operator.reads("base").len(), 0);
    assert_eq!(operator.patches().len(), 0);
    // A change of the other one says nothing about this one.
    operator.changes("base", "2").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 1);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.patches().len(), 2);
}

/// Starts a loop that has just seen a Deployment with the config hash of ConfigMap `app`, which has changed since.
fn of_one_that_has_changed() -> Operator {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    let config_hash = operator.hash_of("app");
    operator.writes(hashed(deployment("web"), &config_hash));
    operator.apiserver.write_config_map("app", "2");
    operator
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_seen_to_change_before_it_is_first_read_is_named() {
    let operator = of_one_that_has_changed();
    operator.hears("app").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    let note = "restarting pods: ConfigMap app changed";
    assert_eq!(operator.notes("ConfigChanged"), [note]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_changed_before_a_workload_had_its_hash_is_not_named() {
    let operator = of_one_that_has_changed();
    let outdated = operator.config_hash("web");
    operator.hears("app").await;
    pass(Duration::from_secs(10)).await;
    operator.apiserver.forget_calls();
    // As from a backup: what it lacks has not changed since.
    operator.writes(hashed(deployment("restored"), &outdated));
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("restored"), operator.hash_of("app"));
    let note = "restarting pods: its config changed while pod-reloader was not watching";
    assert_eq!(operator.notes("ConfigChanged"), [note]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_listed_before_it_is_first_read_has_changed_before() {
    let operator = of_one_that_has_changed();
    let object = operator.apiserver.config_map("app");
    let version = object["metadata"]["resourceVersion"].as_str();
    operator
        .reconciler
        .config_listed(&reference("app"), version);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    let note = "restarting pods: its config changed while pod-reloader was not watching";
    assert_eq!(operator.notes("ConfigChanged"), [note]);
}
