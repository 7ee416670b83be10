//! Pins: copies come before the patch that names them, and what was undone stays undone.

use pod_reloader_core::annotations::{DEADLINE, HOLD, ON_FAILURE, PIN, PINS, UNDONE};
use pod_reloader_core::pins::{CopyNames, plain_copy_name};

use super::stages::{becomes, right, staged, with_pods};
use super::*;
use crate::mock::{Log, QUOTED};

/// Starts a loop with these Deployments at rest, which may pin what they track.
async fn pinning(deployments: impl IntoIterator<Item = Value>) -> Operator {
    let operator = start(Apiserver::default());
    operator.apiserver.write_config_map("app", "good");
    for deployment in deployments {
        operator.writes(deployment);
    }
    pass(Duration::from_secs(20)).await;
    for name in operator.apiserver.deployments() {
        becomes(&operator, &name, 1);
    }
    operator.apiserver.forget_calls();
    operator
}

fn start(apiserver: Apiserver) -> Operator {
    let scope = scope().and_pins(true);
    let operator = Operator::start_in(scope, apiserver, settings(), RecentWrites::default());
    operator.lists_are_whole();
    operator
}

fn pinned(name: &str) -> Value {
    and_pinned(with_pods(deployment(name), 1))
}

fn and_pinned(mut object: Value) -> Value {
    object["metadata"]["annotations"][PIN] = json!("configmaps");
    object
}

fn reverting(name: &str) -> Value {
    let mut object = pinned(name);
    object["metadata"]["annotations"][ON_FAILURE] = json!("revert");
    object["metadata"]["annotations"][DEADLINE] = json!("10m");
    object
}

fn pins_of(value: &str) -> String {
    let json = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "data": {"key": value}});
    let object = ConfigObject::parse(json.to_string().as_bytes(), Aspects::default()).unwrap();
    let (keys, namespace) = (keys(), name("ns"));
    let names = CopyNames::new(&keys, &namespace);
    format!("app={}", names.name_for(&name("app"), &object.digest))
}

/// Returns the pins as earlier versions wrote them.
fn earlier_pins_of(value: &str) -> String {
    let json = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "data": {"key": value}});
    let object = ConfigObject::parse(json.to_string().as_bytes(), Aspects::default()).unwrap();
    format!("app={}", plain_copy_name(&name("app"), &object.digest))
}

fn pins(operator: &Operator, name: &str) -> Value {
    let object = operator.apiserver.deployment(name);
    object["spec"]["template"]["metadata"]["annotations"][PINS].clone()
}

fn undone(operator: &Operator, name: &str) -> Value {
    operator.apiserver.deployment(name)["metadata"]["annotations"][UNDONE].clone()
}

/// Lets the webhook accept an undo of the change from "good" to "bad".
fn undoes(operator: &Operator, name: &str, before: &Value) {
    let mut object = operator.apiserver.deployment(name);
    object["spec"]["template"] = before["spec"]["template"].clone();
    object["metadata"]["annotations"][UNDONE] = json!(pins_of("bad"));
    operator.writes(object);
}

#[tokio::test(start_paused = true)]
async fn no_pod_template_names_a_copy_before_it_is_there() {
    let operator = pinning([pinned("web"), pinned("api")]).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("good")));
    operator
        .apiserver
        .now(|state| state.failing_creates = Some(503));
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(
        operator.patches().len(),
        0,
        "it may be possible in a moment"
    );
    operator.apiserver.now(|state| state.failing_creates = None);
    pass(Duration::from_secs(90)).await;
    for name in ["web", "api"] {
        assert_eq!(pins(&operator, name), json!(pins_of("bad")));
    }
    let copy = pins_of("bad")["app=".len()..].to_owned();
    assert_eq!(operator.apiserver.config_map(&copy)["immutable"], true);
    let calls = operator.apiserver.calls();
    let created = calls
        .iter()
        .rposition(|call| *call == Call::CreateConfigMap(copy.clone()));
    let patched = calls.iter().position(|call| matches!(call, Call::Patch(_)));
    assert!(created < patched, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn if_a_copy_is_refused_the_pods_are_restarted_without() {
    let operator = pinning([pinned("web")]).await;
    operator
        .apiserver
        .now(|state| state.failing_creates = Some(403));
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(3600)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(pins(&operator, "web"), "");
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.events("CopyFailed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_copies_is_counted_until_a_rollout_has_them() {
    let operator = pinning([pinned("web"), pinned("api")]).await;
    let counted = || {
        ["web", "api"].iter().for_each(|name| operator.sees(name));
        operator.reconciler.publish();
        operator.metrics.without_copies.get()
    };
    assert_eq!(counted(), 0);
    let refuses = |code| operator.apiserver.now(|state| state.failing_creates = code);
    refuses(Some(403));
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(counted(), 2);
    refuses(None);
    operator.changes("app", "better").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(counted(), 0);
}

#[tokio::test(start_paused = true)]
async fn neither_events_nor_the_log_of_copies_have_the_words_of_the_apiserver() {
    for (code, words) in [
        (403, "not allowed"),
        (422, "does not accept"),
        (503, "unavailable"),
    ] {
        let log = Log::begin();
        let operator = pinning([pinned("web")]).await;
        operator
            .apiserver
            .now(|state| state.failing_creates = Some(code));
        operator.changes("app", "bad").await;
        pass(Duration::from_secs(3600)).await;
        let told = format!("{}{:?}", log.text(), operator.notes("CopyFailed"));
        assert!(told.contains(words), "{told}");
        assert!(!told.contains(QUOTED), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_undone_stays_undone_until_it_changes() {
    let operator = pinning([pinned("web")]).await;
    let before = operator.apiserver.deployment("web");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    undoes(&operator, "web", &before);
    operator.apiserver.forget_calls();
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.events("ConfigUndone"), 1);
    assert_eq!(operator.metrics.undone.get(), 1);

    let operator = start(operator.ends());
    operator.sees("web");
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.patches().len(), 0, "a new leader sees the same");

    operator.changes("app", "better").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(pins(&operator, "web"), json!(pins_of("better")));
    assert_eq!(undone(&operator, "web"), Value::Null);
    operator.sees("web");
    pass(Duration::from_secs(1)).await;
    assert_eq!(operator.metrics.undone.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn pins_of_an_earlier_version_restart_nobody_and_stay_with_their_content() {
    let operator = pinning([pinned("web")]).await;
    let mut earlier = operator.apiserver.deployment("web");
    earlier["spec"]["template"]["metadata"]["annotations"][PINS] = json!(earlier_pins_of("good"));
    operator.writes(earlier);
    operator.apiserver.forget_calls();
    pass(Duration::from_secs(3600)).await;
    assert_eq!(operator.patches().len(), 0);
    // The next restart is for other content.
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("2")));
}

#[tokio::test(start_paused = true)]
async fn once_pins_are_switched_off_a_restart_removes_them_and_makes_no_copies() {
    let operator = pinning([pinned("web")]).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("good")));
    let apiserver = operator.ends();
    let operator = Operator::start_in(scope(), apiserver, settings(), RecentWrites::default());
    operator.sees("web");
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0, "the config hash is right");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(pins(&operator, "web"), Value::Null);
    let calls = operator.apiserver.calls();
    let creates = |call: &Call| matches!(call, Call::CreateConfigMap(_));
    assert!(!calls.iter().any(creates), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_the_mark_away_gets_the_content_after_all() {
    let operator = pinning([pinned("web")]).await;
    let before = operator.apiserver.deployment("web");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    undoes(&operator, "web", &before);
    pass(Duration::from_secs(60)).await;
    operator.takes_away("web", UNDONE);
    pass(Duration::from_secs(60)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("bad")));
}

#[tokio::test(start_paused = true)]
async fn what_was_undone_for_one_holds_up_the_others_of_its_stages() {
    let operator = pinning(["a", "b", "c"].map(staged).map(and_pinned)).await;
    let before = operator.apiserver.deployment("a");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(right(&operator), ["a"]);
    becomes(&operator, "a", 0);
    undoes(&operator, "a", &before);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(right(&operator), [""; 0]);
    operator.changes("app", "better").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(right(&operator).len(), 1);
    let first = right(&operator)[0].clone();
    becomes(&operator, &first, 1);
    pass(Duration::from_secs(120)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_fails_is_put_back_at_its_deadline_and_once() {
    let operator = pinning([reverting("web")]).await;
    operator.apiserver.keep_revision("web", 1);
    let good = operator.config_hash("web");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    operator.apiserver.keep_revision("web", 2);
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(9 * 60)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("bad")));
    pass(Duration::from_secs(60)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("good")));
    assert_eq!(undone(&operator, "web"), json!(pins_of("bad")));
    assert_eq!(operator.config_hash("web"), good);
    assert_eq!(operator.events("ConfigReverted"), 1);
    becomes(&operator, "web", 1);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(operator.patches().len(), 2);

    // Somebody insists.
    operator.apiserver.keep_revision("web", 3);
    operator.takes_away("web", UNDONE);
    pass(Duration::from_secs(20)).await;
    operator.apiserver.keep_revision("web", 4);
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("bad")));
    assert_eq!(operator.events("ConfigNotReverted"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_becomes_healthy_in_time_keeps_its_configuration() {
    let operator = pinning([reverting("web")]).await;
    operator.apiserver.keep_revision("web", 1);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(20)).await;
    operator.apiserver.keep_revision("web", 2);
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(500)).await;
    becomes(&operator, "web", 1);
    pass(Duration::from_secs(60)).await;
    // Whatever happens later has another reason.
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("2")));
}

#[tokio::test(start_paused = true)]
async fn a_workload_with_undone_content_that_is_held_up_holds_up_the_others_all_the_same() {
    let pinned = |name: &str| {
        let mut object = and_pinned(staged(name));
        object["metadata"]["annotations"][CONFIG_MAPS] = json!("app,other");
        object
    };
    let operator = pinning(["a", "b"].map(pinned)).await;
    let before = operator.apiserver.deployment("a");
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    undoes(&operator, "a", &before);
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(60)).await;
    operator.annotates("a", HOLD, "true");
    operator.changes("other", "2").await;
    pass(Duration::from_secs(3600)).await;
    assert_eq!(
        pins(&operator, "b"),
        before["spec"]["template"]["metadata"]["annotations"][PINS]
    );
}

#[tokio::test(start_paused = true)]
async fn a_fix_that_comes_just_before_the_deadline_is_rolled_out() {
    let operator = pinning([reverting("web")]).await;
    operator.apiserver.keep_revision("web", 1);
    operator.changes("app", "bad").await;
    pass(Duration::from_secs(20)).await;
    operator.apiserver.keep_revision("web", 2);
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(9 * 60)).await;
    operator.apiserver.write_config_map("app", "fix");
    pass(Duration::from_secs(120)).await;
    assert_eq!(undone(&operator, "web"), Value::Null);
    operator.hears("app").await;
    pass(Duration::from_secs(120)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("fix")));
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_changes_unseen_while_it_is_copied_is_read_again_with_pauses() {
    let operator = pinning([pinned("web")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_millis(500)).await;
    operator.apiserver.write_config_map("app", "3");
    pass(Duration::from_secs(60)).await;
    assert_eq!(pins(&operator, "web"), json!(pins_of("3")));
    assert!(
        operator.reads("app").len() < 10,
        "{:?}",
        operator.reads("app")
    );
}
