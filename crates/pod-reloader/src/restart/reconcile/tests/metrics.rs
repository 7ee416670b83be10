//! Tests the metrics of the loop.

use pod_reloader_core::kind::CustomResource;

use super::*;
use crate::mock;
use crate::restart::watch::custom::watch_kinds;

#[tokio::test(start_paused = true)]
async fn the_time_to_a_patch_begins_with_the_first_event_about_its_change() {
    let operator = Operator::with([deployment("web")]).await;
    assert_eq!(operator.shows("change_to_patch_seconds_count"), 0.0);
    for value in ["2", "3"] {
        operator.changes("app", value).await;
        pass(Duration::from_millis(1500)).await;
    }
    pass(Duration::from_secs(60)).await;
    // Both changes make one restart, a settle period after the second change.
    assert_eq!(operator.shows("change_to_patch_seconds_count"), 1.0);
    let first = operator.shows("change_to_patch_seconds_sum");
    assert!((3.5..3.7).contains(&first), "{first}");

    operator.changes("app", "4").await;
    pass(Duration::from_secs(10)).await;
    let second = operator.shows("change_to_patch_seconds_sum") - first;
    assert!((2.0..2.2).contains(&second), "{second}");
}

#[tokio::test(start_paused = true)]
async fn the_watch_of_a_custom_kind_is_no_younger_after_everything_is_listed_again() {
    let operator = Operator::start(Apiserver::default());
    let resource: CustomResource = serde_json::from_value(json!({
        "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
        "podTemplates": ["spec.template"],
    }))
    .unwrap();
    let kind = resource.into_kind().unwrap();
    // The mock serves the kind, and answers no watch.
    let client = mock::client(|head, _| async move {
        match head.uri.path() {
            "/apis" => Ok(
                json!({"items": [{"metadata": {"name": "argoproj.io"}, "versions": [
                    {"version": "v1alpha1", "resources": [{"resource": "rollouts"}]},
                ]}]}),
            ),
            _ => Err((503, "ServiceUnavailable")),
        }
    });
    let watch = || {
        let reconciler = operator.reconciler.clone();
        tokio::spawn(watch_kinds(
            client.clone(),
            vec![kind],
            vec![None],
            reconciler,
            Budget::new(),
        ))
    };
    let first_news = || operator.shows("watch_last_answer_timestamp_seconds{kind=\"Rollout\"}");
    let before = watch();
    pass(Duration::from_secs(1)).await;
    let at = first_news();
    assert!(at > 0.0);
    before.abort();
    pass(Duration::from_secs(1)).await;
    let again = watch();
    pass(Duration::from_secs(1)).await;
    assert_eq!(first_news(), at);
    operator.reconciler.kind_served(kind, None);
    again.abort();
    pass(Duration::from_secs(1)).await;
    assert!(!operator.metrics.text().contains("Rollout"));
}

#[tokio::test(start_paused = true)]
async fn all_unknown_hash_keys_are_one_series() {
    let operator = Operator::with([deployment("web")]).await;
    let hash = operator.config_hash("web");
    let known = hash.split('.').nth(1).unwrap();
    for made_up in ["0", "1"] {
        let name = format!("api-{made_up}");
        let made_up = hash.replace(known, &made_up.repeat(known.len()));
        operator.writes(hashed(deployment(&name), &made_up));
    }
    operator.lists_are_whole();
    operator.reconciler.publish();
    assert_eq!(operator.shows("hashes{key_id=\"unknown\"}"), 2.0);
    assert_eq!(
        operator.shows(&format!("hashes{{key_id=\"{known}\"}}")),
        1.0
    );
    assert_eq!(operator.metrics.text().matches("key_id=").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_while_a_patch_is_on_its_way_is_timed_from_its_own_event() {
    let operator = Operator::with([deployment("web")]).await;
    let takes = |time| {
        let set = |state: &mut apiserver::State| state.patch_answer_takes = time;
        operator.apiserver.now(set);
    };
    takes(Duration::from_secs(5));
    operator.changes("app", "2").await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(operator.patches().len(), 1, "its answer is on its way");
    operator.changes("app", "3").await;
    pass(Duration::from_secs(2)).await;
    takes(Duration::ZERO);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.shows("change_to_patch_seconds_count"), 2.0);
    // The first change takes two seconds to settle and five to be answered. The second waits four of these
    // for the next read, and then two to settle.
    let both = operator.shows("change_to_patch_seconds_sum");
    assert!((7.0 + 6.0..7.0 + 6.3).contains(&both), "{both}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_brings_no_change_begins_nothing() {
    let operator = Operator::with([deployment("web")]).await;
    operator.changes("app", "1").await;
    pass(Duration::from_secs(60)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    let time = operator.shows("change_to_patch_seconds_sum");
    assert!((2.0..2.2).contains(&time), "{time}");
    assert_eq!(operator.shows("saved_restarts_total"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_the_release_makes_itself_is_saved() {
    let operator = Operator::with([deployment("web")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(1)).await;
    let released = operator.apiserver.deployment("web");
    operator.writes(hashed(released, &operator.hash_of("app")));
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.shows("saved_restarts_total"), 1.0);
    assert_eq!(operator.shows("change_to_patch_seconds_count"), 0.0);
    // The saved restart is counted once.
    operator.hears("app").await;
    operator.sees("web");
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.shows("saved_restarts_total"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_a_workload_that_has_changed_is_not_an_error() {
    let operator = Operator::with([deployment("web")]).await;
    operator.apiserver.now(|state| state.moves = 1);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.shows("patch_conflicts_total"), 1.0);
    assert_eq!(operator.errors(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_counted_for_as_long_as_its_patches_are_refused() {
    let operator = Operator::with([deployment("web")]).await;
    operator.apiserver.reacts([Reaction::TakenBack]);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.shows("refused_workloads"), 1.0);
    assert!(operator.errors() > 1.0);
    operator.apiserver.reacts([]);
    pass(Duration::from_secs(120)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.shows("refused_workloads"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn restarts_and_a_workload_that_waits_are_counted_in_its_namespace() {
    let operator = Operator::with([deployment("web")]).await;
    let restarts = || operator.shows("namespace_restarts_total{namespace=\"ns\"}");
    let waiting = || operator.shows("namespace_waiting_workloads{namespace=\"ns\"}");
    let before = restarts();
    operator.apiserver.reacts([Reaction::TakenBack]);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!((restarts() - before, waiting()), (0.0, 1.0));
    operator.apiserver.reacts([]);
    pass(Duration::from_secs(120)).await;
    assert_eq!((restarts() - before, waiting()), (1.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_counted_for_as_long_as_its_config_may_not_be_read() {
    let operator = Operator::with([deployment("web")]).await;
    let fails = |code| operator.apiserver.now(|state| state.failing_reads = code);
    fails(Some(403));
    operator.hears_of_loss("app").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.shows("unreadable_workloads"), 1.0);
    let denied = r#"config_reads_total{by="reconcile",verb="get",result="error"}"#;
    assert!(operator.shows(denied) > 1.0);
    fails(None);
    pass(Duration::from_secs(600)).await;
    assert_eq!(operator.shows("unreadable_workloads"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_counted_for_as_long_as_its_lists_have_invalid_items() {
    let operator = Operator::with([deployment("web")]).await;
    let counted = || operator.shows("invalid_reference_workloads");
    for (listed, expected) in [
        ("app,Not_Valid", 1.0),
        ("app,Not_Valid,Nor_This", 1.0),
        ("app", 0.0),
        ("app,Not_Valid", 1.0),
    ] {
        operator.writes(listing(deployment("web"), listed));
        pass(Duration::from_secs(60)).await;
        assert_eq!(counted(), expected, "{listed}");
    }
    operator.reconciler.workload_gone(&id("web"));
    assert_eq!(counted(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn referenced_objects_are_counted() {
    let api = listing(deployment("api"), "app,absent");
    let operator = Operator::with([deployment("web")]).await;
    operator.writes(api);
    pass(Duration::from_secs(10)).await;
    let counts = || {
        operator.reconciler.publish();
        ["config_objects", "references", "digests"].map(|name| operator.shows(name))
    };
    assert_eq!(counts(), [2.0, 3.0, 2.0]);
    operator.reconciler.workload_gone(&id("api"));
    assert_eq!(counts(), [1.0, 1.0, 1.0]);
}

impl Operator {
    /// Returns the value of one of our metrics, named with its labels.
    fn shows(&self, name: &str) -> f64 {
        let text = self.metrics.text();
        let start = format!("pod_reloader_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&start));
        value
            .unwrap_or_else(|| panic!("{name} is not in\n{text}"))
            .parse()
            .unwrap()
    }

    /// Returns the number of failed passes.
    fn errors(&self) -> f64 {
        let text = self.metrics.text();
        let counted = text
            .lines()
            .filter(|line| line.starts_with("pod_reloader_reconcile_errors_total{"));
        counted
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }
}
