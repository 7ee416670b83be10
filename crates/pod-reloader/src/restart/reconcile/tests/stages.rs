//! Restarts in stages: the first workload alone, the others when it has been healthy for its soak.

use pod_reloader_core::annotations::{DEADLINE, HOLD, RESTART_WINDOW, SOAK, STAGE, STAGED};
use pod_reloader_core::gate;

use super::*;
use crate::restart::loop_status::{Asked, LoopStatus};

const SOAK_OF_ALL: Duration = Duration::from_secs(30);
const DEADLINE_OF_ALL: Duration = Duration::from_secs(600);

/// Returns a Deployment whose restarts are staged, with one healthy pod.
pub(super) fn staged(name: &str) -> Value {
    let mut object = deployment(name);
    object["metadata"]["annotations"][STAGED] = json!("configmaps");
    with_pods(object, 1)
}

fn in_stage(mut object: Value, stage: &str) -> Value {
    object["metadata"]["annotations"][STAGE] = json!(stage);
    object
}

/// Returns the Deployment as its controller leaves it, with so many available pods of one.
pub(super) fn with_pods(mut object: Value, available: u64) -> Value {
    object["status"] = json!({
        "observedGeneration": object["metadata"]["generation"],
        "replicas": 1, "updatedReplicas": 1, "availableReplicas": available,
    });
    object
}

/// Starts with these Deployments at rest, whose watches have listed everything.
async fn at_rest(deployments: impl IntoIterator<Item = Value>) -> Operator {
    let operator = Operator::with(deployments).await;
    operator.lists_are_whole();
    for name in operator.apiserver.deployments() {
        becomes(&operator, &name, 1);
    }
    operator.apiserver.forget_calls();
    operator
}

/// Lets the deployment controller finish its work, with so many available pods of one.
pub(super) fn becomes(operator: &Operator, name: &str, available: u64) {
    let object = operator.apiserver.deployment(name);
    operator.writes(with_pods(object, available));
}

/// Returns the Deployments that carry the present hash.
pub(super) fn right(operator: &Operator) -> Vec<String> {
    let hash = operator.hash_of("app");
    let names = operator.apiserver.deployments().into_iter();
    names
        .filter(|name| operator.config_hash(name) == hash)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn one_goes_first_and_the_others_follow_when_it_has_been_healthy_for_its_soak() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a"]);
    let note =
        "waiting for Deployment a, which gets the changed config first, before restarting pods";
    assert_eq!(operator.notes("WaitingForStage"), [note, note]);

    becomes(&operator, "a", 0);
    pass(Duration::from_secs(120)).await;
    assert_eq!(right(&operator), ["a"]);
    becomes(&operator, "a", 1);
    let healthy = Instant::now();
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
    for patch in &operator.patches()[1..] {
        assert_about(*patch - healthy, SOAK_OF_ALL);
    }
    assert_eq!(operator.patches().len(), 3);
    assert_eq!(operator.metrics.held_up.halted.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_bad_edit_stops_at_the_first_workload_until_it_is_mended() {
    let operator = at_rest((0..12).map(|number| staged(&format!("w{number:02}")))).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "w00", 0);
    pass(Duration::from_secs(900)).await;
    assert_eq!(right(&operator), ["w00"]);
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.events("RestartHalted"), 12);
    assert_eq!(operator.metrics.held_up.halted.get(), 12);
    for _ in 0..3 {
        // Its pods crash, over and over.
        becomes(&operator, "w00", 1);
        pass(Duration::from_secs(20)).await;
        becomes(&operator, "w00", 0);
        pass(Duration::from_secs(60)).await;
    }
    assert_eq!(operator.events("RestartHalted"), 12, "each says so once");
    assert_eq!(operator.metrics.held_up.halted.get(), 12);
    let note = "not restarting pods: Deployment w00 got the changed config first, and has not become healthy";
    assert!(operator.notes("RestartHalted").contains(&note.to_owned()));

    operator.apiserver.forget_calls();
    operator.changes("app", "good").await;
    pass(Duration::from_secs(10)).await;
    // The one that failed could not say whether the new content helps.
    assert_eq!(right(&operator), ["w01"]);
    becomes(&operator, "w01", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator).len(), 12);
    assert_eq!(operator.patches().len(), 12, "each once");
    for number in 0..12 {
        becomes(&operator, &format!("w{number:02}"), 1);
    }
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.metrics.held_up.halted.get(), 0);
}

/// Returns the reason for which a Deployment waits for the present content, as the leader answers a status query.
pub(super) fn waits_for(operator: &Operator, name: &str) -> Option<String> {
    let status = LoopStatus::default();
    status.term_begins(&operator.reconciler.progress.memories);
    let (workload, _) = operator.reconciler.workloads.get(&id(name)).unwrap();
    let content = gate::digits(&operator.hash_of("app"));
    let told = status.of(&Asked::about(&workload), Some(&content));
    told.waits_for.map(|waiting| waiting.reason)
}

#[tokio::test(start_paused = true)]
async fn a_status_query_is_told_of_a_halt_as_long_as_it_lasts() {
    let operator = at_rest(["a", "b"].map(staged)).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(10)).await;
    let told = || waits_for(&operator, "b");
    assert_eq!(told().as_deref(), Some("WaitingForStage"));
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(900)).await;
    assert_eq!(told().as_deref(), Some("RestartHalted"));
    // It has become healthy, and may crash again.
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(20)).await;
    assert_eq!(told().as_deref(), Some("WaitingForStage"));
}

#[tokio::test(start_paused = true)]
async fn a_status_query_is_not_told_of_a_halt_by_content_that_is_corrected() {
    let operator = at_rest(["a", "b"].map(staged)).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(900)).await;
    let told = || waits_for(&operator, "b");
    assert_eq!(told().as_deref(), Some("RestartHalted"));
    operator.changes("app", "good").await;
    assert_eq!(told(), None);
    pass(Duration::from_secs(1)).await;
    assert_eq!(told(), None);
}

#[tokio::test(start_paused = true)]
async fn corrected_content_that_waits_for_its_stage_is_not_reported_as_halted() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.metrics.held_up.halted.get(), 3);
    operator.apiserver.forget_calls();
    operator.changes("app", "good").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["b"]);
    assert_eq!(
        waits_for(&operator, "c").as_deref(),
        Some("WaitingForStage")
    );
    let note =
        "waiting for Deployment b, which gets the changed config first, before restarting pods";
    assert!(operator.notes("WaitingForStage").contains(&note.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn content_that_is_taken_back_restarts_only_the_one_that_had_it() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(700)).await;
    operator.apiserver.forget_calls();
    operator.changes("app", "1").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
    assert_eq!(operator.patches().len(), 1);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.metrics.held_up.halted.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_holds_the_others_back_as_well() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a"]);

    let operator = Operator::start(operator.ends());
    operator.sees_all();
    operator.lists_are_whole();
    pass(Duration::from_secs(900)).await;
    assert_eq!(right(&operator), ["a"]);
    assert_eq!(operator.events("RestartHalted"), 3);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(5)).await;
    // It may have been healthy all along, so another one is tried before the rest.
    assert_eq!(right(&operator), ["a", "b"]);
    becomes(&operator, "b", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn stages_go_in_order() {
    let deployments = [
        in_stage(staged("a"), "2"),
        in_stage(staged("b"), "0"),
        staged("c"),
        in_stage(staged("d"), "0"),
    ];
    let operator = at_rest(deployments).await;
    operator.changes("app", "2").await;
    for expected in [
        &["b"][..],
        &["b", "d"],
        &["b", "c", "d"],
        &["a", "b", "c", "d"],
    ] {
        pass(SOAK_OF_ALL + Duration::from_secs(5)).await;
        assert_eq!(right(&operator), expected);
        for name in right(&operator) {
            becomes(&operator, &name, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_workload_that_cannot_go_or_says_nothing() {
    let mut paused = staged("a");
    paused["spec"]["paused"] = json!(true);
    let mut empty = staged("b");
    empty["spec"]["replicas"] = json!(0);
    let broken = with_pods(staged("c"), 0);
    let mut starved = listing(staged("d"), "app,missing");
    starved["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "main", "envFrom": [{"configMapRef": {"name": "missing"}}]}]);
    let mut unstaged = deployment("e");
    unstaged["metadata"]["annotations"][STAGED] = json!("none");
    let operator = at_rest([paused, empty, staged("y"), staged("z"), unstaged]).await;
    for object in [broken, starved] {
        operator.apiserver.write_deployment(object);
    }
    operator.apiserver.write_config_map("missing", "1");
    for name in ["c", "d"] {
        operator.sees(name);
    }
    pass(Duration::from_secs(20)).await;
    becomes(&operator, "c", 0);
    becomes(&operator, "d", 1);
    operator.apiserver.delete_config_map("missing");
    operator.hears_of_loss("missing").await;
    operator.apiserver.forget_calls();

    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    let hash = operator.hash_of("app");
    assert_eq!(operator.config_hash("e"), hash, "it is not staged");
    assert_eq!(
        operator.config_hash("y"),
        hash,
        "it is the first that can tell"
    );
    assert_ne!(operator.config_hash("z"), hash);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_workload_on_hold() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.annotates("a", HOLD, "true");
    operator.changes("app", "2").await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(right(&operator), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_workload_that_was_restarted_too_often() {
    let operator = with_two_objects([tracks("a", "x,y"), tracks("b", "x")]).await;
    // With its first hash, it is restarted five times.
    for value in ["2", "3", "4", "5"] {
        edits(&operator, "y", json!({"a": value})).await;
        becomes(&operator, "a", 1);
    }
    assert_eq!(patched(&operator), ["a"; 4]);
    // The other one has settled long before, and waits for it until then.
    operator.annotates("a", SETTLE_PERIOD, "20s");
    operator.apiserver.forget_calls();
    edits(&operator, "x", json!({"a": "2"})).await;
    assert!(patched(&operator).is_empty());
    pass(Duration::from_secs(20)).await;
    assert_eq!(patched(&operator), ["b"]);
    assert_eq!(operator.events("WaitingForStage"), 1);
    assert_eq!(operator.metrics.held_up.braked.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deleted_or_leaves_while_others_wait_for_it_holds_nobody_back() {
    let operator = at_rest(["a", "b", "c"].map(staged)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(5)).await;
    assert_eq!(right(&operator), ["a"]);
    operator.apiserver.delete_deployment("a");
    operator.reconciler.workload_gone(&id("a"));
    pass(Duration::from_secs(1)).await;
    assert_eq!(right(&operator), ["b"]);

    becomes(&operator, "b", 0);
    operator.annotates("b", STAGED, "none");
    pass(Duration::from_secs(1)).await;
    assert_eq!(right(&operator), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn annotations_set_soak_and_deadline() {
    let mut first = staged("a");
    first["metadata"]["annotations"][SOAK] = json!("2m");
    first["metadata"]["annotations"][DEADLINE] = json!("20s");
    let operator = at_rest([first, staged("b")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(5)).await;
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(40)).await;
    assert_eq!(operator.events("RestartHalted"), 2);
    // It recovers after all.
    becomes(&operator, "a", 1);
    let healthy = Instant::now();
    pass(Duration::from_secs(200)).await;
    assert_about(operator.patches()[1] - healthy, Duration::from_secs(120));
}

/// Starts with these Deployments, at rest, and ConfigMaps `x` and `y`.
async fn with_two_objects(deployments: impl IntoIterator<Item = Value>) -> Operator {
    let operator = Operator::start(Apiserver::default());
    come_to_rest(&operator, deployments).await;
    operator
}

/// Creates these Deployments and ConfigMaps `x` and `y`, and waits until all are healthy and at rest.
pub(super) async fn come_to_rest(
    operator: &Operator,
    deployments: impl IntoIterator<Item = Value>,
) {
    for name in ["x", "y"] {
        operator
            .apiserver
            .write_data(name, json!({"a": "1", "b": "1"}));
    }
    for object in deployments {
        operator.apiserver.write_deployment(object);
    }
    operator.sees_all();
    operator.lists_are_whole();
    pass(Duration::from_secs(20)).await;
    all_become_healthy(operator).await;
}

async fn all_become_healthy(operator: &Operator) {
    for name in operator.apiserver.deployments() {
        becomes(operator, &name, 1);
    }
    pass(SOAK_OF_ALL + Duration::from_secs(5)).await;
    operator.apiserver.forget_calls();
}

/// Lets entries of a ConfigMap change.
pub(super) async fn edits(operator: &Operator, name: &str, data: Value) {
    operator.apiserver.write_data(name, data);
    operator.hears(name).await;
    pass(Duration::from_secs(5)).await;
}

/// Returns the Deployments that were patched.
pub(super) fn patched(operator: &Operator) -> Vec<String> {
    let calls = operator.apiserver.calls().into_iter();
    let patched = calls.filter_map(|call| match call {
        Call::Patch(name) => Some(name),
        _ => None,
    });
    patched.collect()
}

pub(super) fn tracks(name: &str, config_maps: &str) -> Value {
    listing(staged(name), config_maps)
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_tracks_other_keys_of_the_object_is_no_verdict() {
    let deployments = [
        tracks("a", "x[a]"),
        tracks("b", "x[b]"),
        tracks("c", "x[b]"),
    ];
    let operator = with_two_objects(deployments).await;
    edits(&operator, "x", json!({"a": "1", "b": "2"})).await;
    assert_eq!(patched(&operator), ["b"]);
    // Somebody restarts the first one for another reason.
    let mut other = operator.apiserver.deployment("a");
    other["spec"]["template"]["metadata"]["annotations"]["restarted"] = json!("now");
    operator.apiserver.write_deployment(other);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(patched(&operator), ["b"]);
    becomes(&operator, "b", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(patched(&operator), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_other_keys_does_not_end_a_trial() {
    let deployments = [
        tracks("a", "x[a]"),
        tracks("b", "x[a]"),
        tracks("c", "x[a]"),
    ];
    let operator = with_two_objects(deployments).await;
    edits(&operator, "x", json!({"a": "bad", "b": "1"})).await;
    becomes(&operator, "a", 0);
    for beat in 0..20 {
        edits(&operator, "x", json!({"a": "bad", "b": beat.to_string()})).await;
        pass(Duration::from_secs(60)).await;
    }
    assert_eq!(patched(&operator), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_other_keys_does_not_take_a_verdict_back() {
    let deployments = ["a", "b", "c"].map(|name| tracks(name, "x[a]"));
    let operator = with_two_objects(deployments).await;
    edits(&operator, "x", json!({"a": "2", "b": "1"})).await;
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(20)).await;
    edits(&operator, "x", json!({"a": "2", "b": "2"})).await;
    assert_eq!(patched(&operator), ["a"]);
    // Its soak goes on. It does not begin again.
    pass(SOAK_OF_ALL - Duration::from_secs(10)).await;
    let mut patched = patched(&operator);
    patched.sort();
    assert_eq!(patched, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_passes_with_one_object_says_nothing_of_another() {
    let both = ["c", "d", "e"].map(|name| tracks(name, "x,y"));
    let deployments = [tracks("a", "x"), tracks("b", "y")].into_iter().chain(both);
    let operator = with_two_objects(deployments).await;
    operator.apiserver.write_data("y", json!({"a": "2"}));
    operator.hears("y").await;
    edits(&operator, "x", json!({"a": "bad"})).await;
    assert_eq!(patched(&operator), ["b", "a"], "they share nothing");
    becomes(&operator, "a", 0);
    becomes(&operator, "b", 1);
    pass(Duration::from_secs(900)).await;
    assert_eq!(patched(&operator), ["b", "a"]);
    edits(&operator, "x", json!({"a": "good"})).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(patched(&operator), ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_takes_no_healthy_workload_for_a_verdict_and_no_broken_one_for_a_failure() {
    let deployments = [
        tracks("broken", "y"),
        tracks("c", "x,y"),
        tracks("d", "x,y"),
        tracks("healthy", "y"),
    ];
    let operator = with_two_objects(deployments).await;
    let mut broken = with_pods(operator.apiserver.deployment("broken"), 0);
    broken["status"]["conditions"] =
        json!([{"type": "Progressing", "reason": "NewReplicaSetAvailable"}]);
    operator.apiserver.write_deployment(broken);
    operator.running.abort();
    // Nobody leads when the object changes.
    operator.apiserver.write_data("x", json!({"a": "2"}));
    operator.apiserver.forget_calls();
    let operator = Operator::start(operator.apiserver.clone());
    for name in ["broken", "c", "d"] {
        operator.sees(name);
    }
    pass(Duration::from_millis(100)).await;
    operator.sees_all();
    operator.lists_are_whole();
    pass(Duration::from_secs(20)).await;
    assert_eq!(patched(&operator), ["c"]);
    becomes(&operator, "c", 0);
    pass(Duration::from_secs(120)).await;
    assert_eq!(patched(&operator), ["c"]);
    becomes(&operator, "c", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(patched(&operator), ["c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_broken_before_halts_nobody() {
    let deployments = [
        tracks("a", "x"),
        tracks("b", "x"),
        in_stage(tracks("c", "x"), "2"),
    ];
    let operator = with_two_objects(deployments).await;
    becomes(&operator, "b", 0);
    edits(&operator, "x", json!({"a": "2"})).await;
    assert_eq!(patched(&operator), ["a"]);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(40)).await;
    becomes(&operator, "b", 0);
    pass(Duration::from_secs(40)).await;
    assert_eq!(patched(&operator), ["a", "b", "c"]);
    assert_eq!(operator.events("RestartHalted"), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_passed_may_scale_up_or_crash_later() {
    let deployments = [
        in_stage(tracks("a", "x"), "0"),
        tracks("b", "x"),
        in_stage(tracks("c", "x"), "2"),
    ];
    let operator = with_two_objects(deployments).await;
    edits(&operator, "x", json!({"a": "2"})).await;
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(40)).await;
    assert_eq!(patched(&operator), ["a", "b"]);
    pass(Duration::from_secs(400)).await;
    becomes(&operator, "a", 0);
    becomes(&operator, "b", 1);
    pass(Duration::from_secs(400)).await;
    assert_eq!(patched(&operator), ["a", "b", "c"]);
    assert_eq!(operator.events("RestartHalted"), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_one_that_is_halted_by_another_object() {
    let deployments = [tracks("a", "x,y"), tracks("b", "x"), tracks("z", "y")];
    let deployments = deployments.map(|object| match object["metadata"]["name"] == "z" {
        true => in_stage(object, "0"),
        false => object,
    });
    let operator = with_two_objects(deployments).await;
    edits(&operator, "y", json!({"a": "bad"})).await;
    becomes(&operator, "z", 0);
    pass(Duration::from_secs(700)).await;
    assert_eq!(patched(&operator), ["z"]);
    edits(&operator, "x", json!({"a": "2"})).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(patched(&operator), ["z", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_let_the_next_one_go() {
    let operator = with_two_objects(["a", "b"].map(|name| tracks(name, "x"))).await;
    operator
        .apiserver
        .reacts([Reaction::Unanswered, Reaction::Stands]);
    edits(&operator, "x", json!({"a": "bad"})).await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.config_hash("a"), operator.hash_of("x"));
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(300)).await;
    assert!(!patched(&operator).contains(&"b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn workloads_that_share_no_object_do_not_wait_for_each_other() {
    let operator = with_two_objects([tracks("a", "x"), tracks("b", "y")]).await;
    for name in ["x", "y"] {
        operator.apiserver.write_data(name, json!({"a": "2"}));
        operator.hears(name).await;
    }
    pass(Duration::from_secs(5)).await;
    assert_eq!(patched(&operator), ["a", "b"]);
}

#[test]
fn the_times_are_those_of_the_documentation() {
    let defaults = pod_reloader_core::staging::Defaults::default();
    assert_eq!(defaults.soak, SOAK_OF_ALL);
    assert_eq!(defaults.deadline, DEADLINE_OF_ALL);
}

#[tokio::test(start_paused = true)]
async fn stages_go_in_order_when_their_window_opens_or_their_config_is_released() {
    let nightly = |mut object: Value| {
        object["metadata"]["annotations"][RESTART_WINDOW] = json!("02:00-06:00 UTC");
        object
    };
    set_clock("2026-11-23T03:00:00Z");
    let operator = at_rest([
        nightly(in_stage(staged("a"), "2")),
        nightly(in_stage(staged("b"), "0")),
        // It has no window, and waits for those before it.
        staged("c"),
    ])
    .await;
    set_clock("2026-11-23T01:00:00Z");
    operator.changes("app", "2").await;
    pass(Duration::from_secs(3590)).await;
    assert!(operator.patches().is_empty());
    let goes = async |order: &[&[&str]]| {
        for expected in order {
            pass(SOAK_OF_ALL + Duration::from_secs(5)).await;
            assert_eq!(right(&operator), *expected);
            for name in right(&operator) {
                becomes(&operator, &name, 1);
            }
        }
    };
    let order = [&["b"][..], &["b", "c"], &["a", "b", "c"]];
    goes(&order).await;
    pass(Duration::from_secs(60)).await;

    let holds = async |value| {
        operator.apiserver.write_config_map("app", "3");
        operator.apiserver.annotate_config_map("app", HOLD, value);
        operator.hears("app").await;
    };
    holds(Some("true")).await;
    pass(Duration::from_secs(600)).await;
    assert!(right(&operator).is_empty());
    holds(None).await;
    goes(&order).await;
}

#[tokio::test(start_paused = true)]
async fn two_hundred_cost_one_patch_each_and_look_at_each_other_only_a_few_times() {
    const COUNT: usize = 200;
    let name = |number| format!("w{number:03}");
    let operator = at_rest((0..COUNT).map(|number| staged(&name(number)))).await;
    let reads = operator.reads("app").len();
    let looks = operator.reconciler.stages.looks();
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), [name(0)]);
    becomes(&operator, &name(0), 1);
    pass(SOAK_OF_ALL + Duration::from_secs(10)).await;
    assert_eq!(right(&operator).len(), COUNT);
    assert_eq!(operator.patches().len(), COUNT);
    let reads = operator.reads("app").len() - reads;
    let looks = operator.reconciler.stages.looks() - looks;
    assert_eq!(reads, 2);
    assert!(looks <= 10 * COUNT, "{looks}");
}

#[tokio::test(start_paused = true)]
async fn observing_names_the_stage() {
    let operator = at_rest([in_stage(staged("a"), "7"), deployment("b")]).await;
    let operator = Operator::start_as(operator.ends(), observing(), Dialects::default());
    operator.sees_all();
    pass(Duration::from_secs(1)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    let mut notes = operator.notes("WouldRestart");
    notes.sort();
    let of =
        |place| format!("would restart pods{place} (--reconcile=observe): ConfigMap app changed");
    assert_eq!(notes, [of(""), of(" in stage 7")]);
    assert!(operator.patches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_another_object_does_not_end_a_halt() {
    let operator = with_two_objects([tracks("a", "x,y"), tracks("b", "x")]).await;
    edits(&operator, "x", json!({"a": "bad"})).await;
    becomes(&operator, "a", 0);
    pass(DEADLINE_OF_ALL).await;
    assert_eq!(patched(&operator), ["a"]);
    assert_eq!(operator.events("RestartHalted"), 2);
    // It may mend the one that has failed, which gets it, but says nothing for the other one.
    edits(&operator, "y", json!({"a": "2"})).await;
    pass(DEADLINE_OF_ALL).await;
    assert_eq!(patched(&operator), ["a", "a"]);
    becomes(&operator, "a", 1);
    pass(SOAK_OF_ALL + Duration::from_secs(5)).await;
    assert_eq!(patched(&operator), ["a", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn two_that_wait_for_each_other_because_of_two_objects_do_not_wait_for_ever() {
    let operator = with_two_objects([tracks("a", "x,y"), tracks("b", "x,y")]).await;
    edits(&operator, "x", json!({"a": "bad"})).await;
    becomes(&operator, "a", 0);
    pass(DEADLINE_OF_ALL).await;
    assert_eq!(patched(&operator), ["a"]);
    // The other one, which is healthy, would go first with the second object, and waits because of the first.
    edits(&operator, "y", json!({"a": "2"})).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(patched(&operator), ["a", "a"]);
    becomes(&operator, "a", 1);
    pass(SOAK_OF_ALL + Duration::from_secs(5)).await;
    assert_eq!(patched(&operator), ["a", "a", "b"]);
}
