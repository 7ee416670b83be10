//! Tests the loop against an apiserver that is a function. The clock advances only when nothing else
//! happens.

mod apiserver;
mod cron_jobs;
mod gates;
mod http_reload;
mod metrics;
mod pins;
mod reads;
mod releases;
mod reverted_hash;
mod rotations;
mod settings;
mod share;
mod slots;
mod stages;
mod together;

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use pod_reloader_core::annotations::{BASELINE, CONFIG_HASH, CONFIG_MAPS, SETTLE_PERIOD};
use pod_reloader_core::brake::WINDOW;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::digest::{Aspects, ConfigObject, Contents, Objects, Presence};
use pod_reloader_core::limit::Limits;
use pod_reloader_core::object::WorkloadObject;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::release::Tool;
use pod_reloader_core::scope::Labels;
use pod_reloader_core::staging::Defaults;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use self::apiserver::{Apiserver, Call, Reaction};
use super::*;
use crate::mock::{id, keys, name, reference};
use crate::restart::progress::MAX_SETTLE_PERIODS;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::reload_rounds::Reloads;
use crate::runtime::events::Events;
use crate::runtime::worker::PANIC_PAUSE;

#[tokio::test(start_paused = true)]
async fn a_change_is_not_lost_if_the_workload_was_reconciled_before_its_event() {
    let operator = Operator::with([deployment("web"), deployment("api")]).await;
    operator.apiserver.write_config_map("app", "2");
    operator.writes(deployment("new"));
    pass(Duration::from_millis(50)).await;
    operator.hears("app").await;
    pass(Duration::from_secs(10)).await;
    for name in ["web", "api", "new"] {
        assert_eq!(
            operator.config_hash(name),
            operator.hash_of("app"),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_settle_period_is_an_hour_and_does_not_end_the_loop() {
    let operator = Operator::with([]).await;
    operator.apiserver.write_config_map("app", "1");
    operator.writes(settling(deployment("web"), "9000000000000000000s"));
    pass(Duration::from_secs(59 * 60)).await;
    assert_eq!(operator.config_hash("web"), "");
    pass(Duration::from_secs(2 * 60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert!(!operator.running.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_is_reverted_is_not_a_restart_and_is_retried_with_pauses() {
    let operator = Operator::with([deployment("web")]).await;
    let restarts = operator.restarts();
    operator.apiserver.reacts([Reaction::TakenBack]);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(100)).await;
    assert_grow(&operator.patches()[..6]);
    assert_eq!(operator.restarts(), restarts);
    assert_eq!(operator.events("PatchRefused"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hash_that_would_make_the_annotations_too_long_is_reported_and_not_written() {
    let operator = Operator::with([]).await;
    operator.apiserver.write_config_map("app", "1");
    let mut web = deployment("web");
    web["spec"]["template"]["metadata"]["annotations"] = json!({"note": "x".repeat(262_090)});
    operator.writes(web);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.events("PatchRefused"), 1);
    let told = stages::waits_for(&operator, "web");
    assert_eq!(told.as_deref(), Some("PatchRefused"));
}

#[tokio::test(start_paused = true)]
async fn content_read_while_nobody_referenced_the_object_is_not_relied_on() {
    let operator = Operator::with([deployment("web")]).await;
    operator.reconciler.workload_gone(&id("web"));
    // Stands for a pass that was in progress when the workload was deleted.
    let app = reference("app");
    let object: WorkloadObject = serde_json::from_value(deployment("web")).unwrap();
    let intake = &operator.reconciler.intake;
    let web = intake.read(WorkloadKind::DEPLOYMENT, object);
    let web = web.unwrap();
    let digests = &operator.reconciler.digests;
    drop(digests.snapshot(&web, None).await);
    operator.apiserver.write_config_map("app", "2");
    assert!(
        !operator.reconciler.is_referenced(&app),
        "the watch passes no event on"
    );
    operator.sees("web");
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn changes_within_the_settle_period_make_one_restart_with_the_last_content() {
    let operator = Operator::with([deployment("web")]).await;
    for value in ["2", "3"] {
        operator.changes("app", value).await;
        pass(Duration::from_millis(1500)).await;
    }
    assert_eq!(operator.patches().len(), 0, "it has not been quiet yet");
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn config_that_keeps_changing_waits_for_five_settle_periods_at_most() {
    let operator = Operator::with([deployment("web")]).await;
    let began = Instant::now();
    operator.changes_every_second("app", 11).await;
    let waited = operator.patches()[0] - began;
    assert_about(waited, SETTLE_PERIOD_OF_ALL * MAX_SETTLE_PERIODS);
}

#[tokio::test(start_paused = true)]
async fn config_that_never_rests_restarts_once_in_five_settle_periods() {
    let operator = Operator::with([deployment("web")]).await;
    let mut changes = 0;
    let changes_again = |operator: &Operator| {
        changes += 1;
        let value = format!("after {changes}");
        operator.apiserver.write_config_map("app", &value);
        operator.sees_config("app");
    };
    // Three times ten seconds, and half of that.
    watch(&operator, Duration::from_secs(35), changes_again).await;
    assert_eq!(operator.patches().len(), 3, "{changes} changes");
}

#[tokio::test(start_paused = true)]
async fn config_that_changes_while_a_restart_is_written_settles_anew() {
    let operator = Operator::with([deployment("web")]).await;
    operator
        .apiserver
        .now(|state| state.patch_answer_takes = Duration::from_millis(1500));
    operator.changes_every_second("app", 20).await;
    let patches = operator.patches();
    let between = patches.get(1).map(|second| *second - patches[0]);
    assert!(
        between.is_none_or(|between| between > SETTLE_PERIOD_OF_ALL * (MAX_SETTLE_PERIODS - 1)),
        "{between:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn config_that_cannot_be_read_causes_no_patch_and_is_read_again_with_pauses() {
    let operator = Operator::with([deployment("web")]).await;
    operator
        .apiserver
        .now(|state| state.failing_reads = Some(503));
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_grow(&operator.reads("app")[..6]);
    assert_eq!(operator.patches().len(), 0);
    operator.apiserver.now(|state| state.failing_reads = None);
    pass(Duration::from_secs(90)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn an_apiserver_that_often_fails_gets_one_more_patch_for_each_that_fails() {
    const CHANGES: usize = 4;
    let names: Vec<_> = (0..12).map(|number| format!("web-{number}")).collect();
    let operator = Operator::with(names.iter().map(|name| deployment(name))).await;
    let fails = [500, 503, 504].map(Reaction::Refused);
    let stands = [Reaction::Stands; 3];
    let reactions = fails
        .into_iter()
        .flat_map(|it| [&stands[..], &[it]].concat());
    operator.apiserver.reacts(reactions);
    for change in 0..CHANGES {
        let value = format!("after {change}");
        operator.changes("app", &value).await;
        pass(Duration::from_secs(120)).await;
        for name in &names {
            assert_eq!(operator.config_hash(name), operator.hash_of("app"));
            operator.sees(name);
        }
    }
    let patches = operator.patches().len();
    let failed = patches / (stands.len() + 1);
    assert_eq!(patches - failed, CHANGES * names.len());
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_ends_in_a_refusal_does_not_make_its_pause_longer() {
    let operator = Operator::with([deployment("web")]).await;
    operator
        .apiserver
        .now(|state| state.failing_reads = Some(503));
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    operator
        .apiserver
        .now(|state| state.failing_reads = Some(403));
    let before = operator.reads("app").len();
    while operator.reads("app").len() == before {
        pass(Duration::from_secs(1)).await;
    }
    operator.apiserver.now(|state| state.failing_reads = None);
    pass(Duration::from_secs(25)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_read_is_reported_once() {
    let operator = Operator::with([deployment("web")]).await;
    operator
        .apiserver
        .now(|state| state.failing_reads = Some(403));
    operator.hears_of_loss("app").await;
    pass(Duration::from_secs(120)).await;
    assert!(operator.reads("app").len() > 1);
    assert_eq!(operator.events("ConfigUnreadable"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_changed_while_it_was_patched_is_patched_again_silently_at_once() {
    let operator = Operator::with([deployment("web")]).await;
    operator.apiserver.now(|state| state.moves = 1);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    let patches = operator.patches();
    assert_eq!(patches.len(), 2);
    assert!(patches[1] - patches[0] < Duration::from_millis(100));
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.events("PatchRefused"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_patch_whose_tests_always_fail_is_given_a_pause_after_a_few_conflicts() {
    let operator = Operator::with([deployment("web")]).await;
    operator.apiserver.now(|state| state.fails_tests = true);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    let patches = operator.patches();
    assert!(patches[5] - patches[0] < Duration::from_millis(100));
    assert!(patches[6] - patches[5] > Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_of_fifty_makes_fifty_patches_and_one_read() {
    let names: Vec<_> = (0..50).map(|number| format!("web-{number}")).collect();
    let fan = names.iter().map(|name| settling(deployment(name), "0s"));
    let operator = Operator::with(fan).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 50);
    assert_eq!(operator.reads("app").len(), 1);
    for name in names {
        assert_eq!(operator.config_hash(&name), operator.hash_of("app"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing_where_nothing_changed() {
    let old = Operator::with([deployment("web"), deployment("api")]).await;
    let new = Operator::start(old.ends());
    new.sees_all();
    new.hears("app").await;
    pass(Duration::from_secs(60)).await;
    assert!(!new.reads("app").is_empty());
    assert_eq!(new.patches().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_older_than_what_the_watch_has_shown_moves_nothing_back() {
    let operator = Operator::with([deployment("web")]).await;
    operator
        .apiserver
        .now(|state| state.patch_answer_takes = Duration::from_secs(5));
    operator.changes("app", "2").await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(operator.patches().len(), 1, "its answer is on its way");
    let mut moved = operator.apiserver.deployment("web");
    moved["metadata"]["annotations"][CONFIG_MAPS] = json!("other");
    operator.apiserver.write_config_map("other", "1");
    operator.writes(moved);
    // By then the late answer has arrived, and the patch for the new list has been made.
    pass(Duration::from_secs(20)).await;
    assert!(operator.reconciler.is_referenced(&reference("other")));
    assert!(!operator.reconciler.is_referenced(&reference("app")));
    assert_eq!(operator.config_hash("web"), operator.hash_of("other"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_over_one_workload_leaves_the_others_alone_and_passes() {
    let operator = Operator::with([]).await;
    operator
        .apiserver
        .now(|state| state.panicking_read = Some("bug"));
    for name in ["app", "bug"] {
        operator.apiserver.write_config_map(name, "1");
    }
    operator.writes(listing(deployment("web"), "bug"));
    operator.writes(deployment("api"));
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("api"), operator.hash_of("app"));

    operator.apiserver.now(|state| state.panicking_read = None);
    pass(PANIC_PAUSE).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("bug"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_config_flaps_is_restarted_less_and_less_and_ends_right() {
    let operator = Operator::with([deployment("web")]).await;
    for round in 2..=60 {
        operator.changes("app", &round.to_string()).await;
        pass(Duration::from_secs(10)).await;
        operator.sees("web");
    }
    // The first stamp and four more restarts came at once, the others after one, two and four minutes.
    assert_eq!(operator.patches().len(), 4 + 3);
    assert_eq!(operator.metrics.held_up.braked.get(), 1);
    pass(Duration::from_secs(20 * 60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.metrics.held_up.braked.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_tracked_delays_no_restart_and_is_not_named() {
    let operator = Operator::start(Apiserver::default());
    let status = |mode: &str, beat: u32| {
        let data = json!({"mode": mode, "heartbeat": beat.to_string()});
        operator.apiserver.write_data("status", data);
    };
    status("1", 0);
    operator.apiserver.write_config_map("app", "1");
    operator.writes(listing(deployment("web"), "app,status[mode]"));
    watch(&operator, Duration::from_secs(60), |_| {}).await;
    operator.apiserver.forget_calls();

    let began = Instant::now();
    operator.changes("app", "2").await;
    for beat in 1..=15 {
        status("1", beat);
        operator.hears("status").await;
        watch(&operator, Duration::from_secs(1), |_| {}).await;
    }
    assert_about(operator.only_patch() - began, SETTLE_PERIOD_OF_ALL);
    let note = "restarting pods: ConfigMap app changed";
    assert_eq!(operator.notes("ConfigChanged"), [note]);

    operator.apiserver.forget_calls();
    status("2", 99);
    operator.hears("status").await;
    watch(&operator, Duration::from_secs(10), |_| {}).await;
    let note = "restarting pods: ConfigMap status changed";
    assert_eq!(operator.notes("ConfigChanged"), [note]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_change_at_once_are_all_named_though_they_are_read_one_after_the_other() {
    // One more than are read at once.
    let names: Vec<_> = (0..13).map(|number| format!("app-{number}")).collect();
    let operator = Operator::start(Apiserver::default());
    for name in &names {
        operator.apiserver.write_config_map(name, "1");
    }
    operator.writes(listing(deployment("web"), &names.join(",")));
    pass(Duration::from_secs(60)).await;

    operator
        .apiserver
        .now(|state| state.read_takes = Duration::from_millis(100));
    for name in &names {
        operator.apiserver.write_config_map(name, "2");
        operator.sees_config(name);
    }
    pass(Duration::from_secs(10)).await;

    let notes = operator.notes("ConfigChanged");
    let note = notes.last().unwrap();
    assert!(note.ends_with(" and 10 more changed"), "{note}");
}

/// Starts with a Deployment whose pods need ConfigMap `app`. Its hash was made by the webhook before `app`
/// existed.
async fn created_before_its_config() -> Operator {
    let operator = Operator::start(Apiserver::default());
    let mut web = deployment("web");
    let template = &mut web["spec"]["template"];
    let objects = Objects::from([(reference("app"), Presence::Absent)]);
    let absent = keys().hash(&Contents::whole(&objects)).to_string();
    template["metadata"]["annotations"] = json!({CONFIG_HASH: absent});
    template["spec"]["containers"] =
        json!([{"name": "main", "envFrom": [{"configMapRef": {"name": "app"}}]}]);
    operator.writes(web);
    pass(SETTLE_PERIOD_OF_ALL / 2).await;
    operator
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_created_before_a_required_object_is_reported_as_waiting() {
    let operator = created_before_its_config().await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.events("MissingConfig"), 1);
    assert_eq!(operator.metrics.held_up.missing_config.get(), 1);
    assert_eq!(operator.patches().len(), 0);

    operator.changes("app", "1").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.metrics.held_up.missing_config.get(), 0);
}

/// Returns a Deployment that lists ConfigMap `app`, and whose pods also take all of Secret `creds`.
fn taking_creds() -> Value {
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "main", "envFrom": [{"secretRef": {"name": "creds"}}]}]);
    web
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_restarted_without_an_untracked_object_that_it_needs() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    operator.apiserver.write_secret("creds", "user", "me");
    operator.writes(taking_creds());
    pass(Duration::from_secs(60)).await;
    let before = operator.config_hash("web");
    assert_eq!(before, operator.hash_of("app"));
    operator.apiserver.forget_calls();

    operator.apiserver.delete_secret("creds");
    operator.changes("app", "2").await;
    pass(Duration::from_secs(120)).await;
    assert_eq!(operator.config_hash("web"), before);
    let note = "not restarting pods: they could not start without Secret creds";
    assert_eq!(operator.notes("MissingConfig"), [note]);
    assert_eq!(operator.metrics.held_up.missing_config.get(), 1);

    // Nobody hears of a Secret that nobody tracks.
    operator.apiserver.write_secret("creds", "user", "me");
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.metrics.held_up.missing_config.get(), 0);
    assert_eq!(operator.events("ConfigChanged"), 1);
}

/// Returns a Deployment that lists ConfigMap `app`, and whose pods also take all of ConfigMap `other`.
fn taking_other() -> Value {
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "main", "envFrom": [{"configMapRef": {"name": "other"}}]}]);
    web
}

/// Returns the seconds between reads of ConfigMap `other` since calls were last forgotten.
fn pauses_of_other(operator: &Operator) -> Vec<u64> {
    let reads = operator.reads("other");
    let pauses = reads.windows(2).map(|it| (it[1] - it[0]).as_millis());
    // Timers are exact to a millisecond or so.
    pauses.map(|it| (it as u64 + 500) / 1_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_that_is_not_tracked_is_read_again_after_growing_pauses() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    operator.writes(taking_other());
    pass(Duration::from_secs(3_600)).await;
    let pauses = pauses_of_other(&operator);
    let growing: Vec<_> = pauses.iter().copied().skip_while(|it| *it < 10).collect();
    assert_eq!(growing[..7], [10, 20, 40, 80, 160, 300, 300], "{pauses:?}");
    assert!(pauses.len() < 20, "{pauses:?}");

    // An object or the workload changes.
    operator.apiserver.forget_calls();
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(pauses_of_other(&operator), [10, 20]);
    pass(Duration::from_secs(600)).await;
    operator.apiserver.forget_calls();
    let web = operator.apiserver.deployment("web");
    operator.writes(settling(web, "6s"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(pauses_of_other(&operator), [10, 20]);

    pass(Duration::from_secs(600)).await;
    operator.apiserver.write_config_map("other", "1");
    pass(Duration::from_secs(301)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_long_settle_period_does_not_keep_a_missing_object_from_being_found() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    operator.writes(settling(taking_other(), "10m"));
    pass(Duration::from_secs(605)).await;
    assert!(!operator.reads("other").is_empty());
    operator.apiserver.write_config_map("other", "1");
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn an_untracked_object_is_read_before_a_write_and_not_at_rest() {
    let operator = Operator::start(Apiserver::default());
    for name in ["app", "other"] {
        operator.apiserver.write_config_map(name, "1");
    }
    operator.writes(taking_other());
    pass(Duration::from_secs(600)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.reads("other").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_reported_as_waiting_after_its_own_settle_period() {
    let operator = created_before_its_config().await;
    let web = operator.apiserver.deployment("web");
    operator.writes(settling(web, "30s"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.events("MissingConfig"), 0);
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.events("MissingConfig"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_config_follows_at_once_is_not_reported_as_waiting() {
    let operator = created_before_its_config().await;
    operator.changes("app", "1").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.events("MissingConfig"), 0);
}

fn of_team_shop() -> Option<kube::core::Selector> {
    Some(
        [("team".to_owned(), "shop".to_owned())]
            .into_iter()
            .collect(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_workload_whose_label_was_taken_away_unseen_is_not_restarted() {
    let labels = Labels {
        workload: of_team_shop(),
        ..Labels::default()
    };
    let operator = Operator::start_for(Apiserver::default(), labels);
    operator.apiserver.write_config_map("app", "1");
    let mut web = deployment("web");
    web["metadata"]["labels"] = json!({"team": "shop"});
    operator.writes(web);
    pass(Duration::from_secs(10)).await;
    let before = operator.config_hash("web");
    assert_eq!(before, operator.hash_of("app"));

    let mut web = operator.apiserver.deployment("web");
    web["metadata"]["labels"] = json!({"team": "other"});
    operator.apiserver.write_deployment(web);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.config_hash("web"), before);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waited_when_its_namespace_was_deselected_settles_anew() {
    let operator = Operator::with_namespace().await;
    operator.changes("app", "2").await;
    operator.reconciler.namespace_left(&name("ns"));
    pass(Duration::from_secs(60 * 60)).await;
    operator.apiserver.forget_calls();
    operator.changes("app", "3").await;
    let selected = Instant::now();
    operator
        .reconciler
        .namespace_selected(&name("ns"), Inherited::default());
    operator.sees("web");
    pass(Duration::from_secs(30)).await;
    assert!(operator.only_patch() - selected >= SETTLE_PERIOD_OF_ALL);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_leaves_while_its_config_is_read_is_no_longer_written_to() {
    let operator = Operator::with_namespace().await;
    operator.apiserver.write_config_map("app", "2");
    operator
        .apiserver
        .now(|state| state.read_takes = Duration::from_secs(5));
    operator.hears("app").await;
    // One read finds the change, and another confirms it once it has settled.
    wait_for_reads(&operator, 2).await;
    assert_eq!(operator.patches().len(), 0);
    operator.reconciler.namespace_left(&name("ns"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 0);
    operator
        .reconciler
        .namespace_selected(&name("ns"), Inherited::default());
    operator.sees("web");
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.patches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_stored_about_namespaces_that_are_not_selected() {
    let operator = Operator::with_namespace().await;
    operator.lists_are_whole();
    let shown = || {
        operator.reconciler.publish();
        let text = operator.metrics.text();
        let lines = text.lines().filter(|line| {
            line.starts_with("pod_reloader_workloads ")
                || line.starts_with("pod_reloader_hashes{")
                || line.starts_with("pod_reloader_foreign_hash_workloads ")
        });
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    operator.writes(hashed(deployment("foreign"), "foreign"));
    pass(Duration::from_secs(10)).await;
    let kept = shown();
    assert!(kept.contains("pod_reloader_workloads 2"), "{kept}");
    assert!(
        kept.contains("pod_reloader_foreign_hash_workloads 1"),
        "{kept}"
    );
    assert!(
        kept.contains("} 2"),
        "one by its hash, one by its baseline: {kept}"
    );
    operator.reconciler.namespace_left(&name("ns"));
    operator.sees("web");
    pass(Duration::from_secs(10)).await;
    assert!(!operator.reconciler.is_referenced(&reference("app")));
    let kept = shown();
    assert!(kept.contains("pod_reloader_workloads 0"), "{kept}");
    assert!(
        kept.contains("pod_reloader_foreign_hash_workloads 0"),
        "{kept}"
    );
    let hashes: Vec<_> = kept.lines().filter(|it| it.contains("hashes{")).collect();
    assert_eq!(hashes, ["pod_reloader_hashes{key_id=\"unknown\"} 0"]);
}

/// This happens if a second release includes the same workload by mistake.
#[tokio::test(start_paused = true)]
async fn a_config_hash_that_an_owner_reverts_is_written_once_in_a_while() {
    let operator = Operator::with([deployment("web")]).await;
    operator.changes("app", "2").await;
    // For half an hour, the owner restores its own version as soon as it sees ours.
    for _ in 0..30 * 60 {
        pass(Duration::from_secs(1)).await;
        if operator.config_hash("web") == operator.hash_of("app") {
            operator.writes(deployment("web"));
        }
    }
    let patches = operator.patches();
    assert_bounded(&patches);
    for pair in patches[7..].windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(44), "{pair:?}");
    }
    let events = operator.events("ConfigHashReverted");
    assert!((1..=4).contains(&events), "{events}");
    assert!(
        operator
            .metrics
            .text()
            .contains("pod_reloader_reverted_workloads 1")
    );
    operator.changes("app", "3").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_comes_to_nothing_is_reported() {
    let paused = |name: &str| {
        let mut object = deployment(name);
        object["spec"]["paused"] = json!(true);
        object
    };
    let operator = Operator::with([paused("web"), deployment("api")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.events("RestartStalled"), 1);
    assert_eq!(operator.events("ConfigChanged"), 1);
    let shown = "stalled_restarts_total{kind=\"Deployment\",reason=\"paused\"} 2";
    assert!(operator.metrics.text().contains(shown));
}

#[tokio::test(start_paused = true)]
async fn a_baseline_that_somebody_else_overwrites_is_written_once_in_a_while() {
    let operator = Operator::start(Apiserver::default());
    operator.apiserver.write_config_map("app", "1");
    let web = hashed(deployment("web"), "foreign");
    operator.apiserver.write_deployment(web);
    let overwritten = format!("foreign=v1.deadbeef.{}", "0".repeat(64));
    for _ in 0..1_000 {
        operator.annotates("web", BASELINE, &overwritten);
        pass(Duration::from_secs(1)).await;
    }
    let patches = operator.patches();
    assert!(patches.len() > 7, "{}", patches.len());
    assert_bounded(&patches);
    assert_eq!(operator.metrics.held_up.reverted.get(), 1);
}

/// A running loop, and its apiserver.
struct Operator {
    apiserver: Apiserver,
    reconciler: Arc<Reconciler>,
    metrics: Metrics,
    running: JoinHandle<()>,
}

impl Operator {
    fn start(apiserver: Apiserver) -> Self {
        Self::start_for(apiserver, Labels::default())
    }

    /// Starts a loop for workloads or namespaces with these labels.
    fn start_for(apiserver: Apiserver, labels: Labels) -> Self {
        let (dialects, recent_writes) = (Dialects::default(), RecentWrites::default());
        Self::start_with(apiserver, settings(), labels, dialects, recent_writes)
    }

    /// Starts a loop with these settings, which speaks these dialects.
    fn start_as(apiserver: Apiserver, settings: Settings, dialects: Dialects) -> Self {
        let (labels, recent_writes) = (Labels::default(), RecentWrites::default());
        Self::start_with(apiserver, settings, labels, dialects, recent_writes)
    }

    /// Starts a loop that reads annotations of Namespaces.
    fn start_in_namespaces(apiserver: Apiserver) -> Self {
        Self::start_in(
            scope().and_namespaces(true),
            apiserver,
            settings(),
            RecentWrites::default(),
        )
    }

    /// Starts a loop that also knows the writes of an earlier term.
    fn start_with(
        apiserver: Apiserver,
        settings: Settings,
        labels: Labels,
        dialects: Dialects,
        recent_writes: RecentWrites,
    ) -> Self {
        let scope = scope().with(labels, dialects);
        let scope = scope.and_stages(judged(&settings));
        Self::start_in(scope, apiserver, settings, recent_writes)
    }

    fn start_in(
        scope: Scope,
        apiserver: Apiserver,
        settings: Settings,
        recent_writes: RecentWrites,
    ) -> Self {
        let (client, own) = (apiserver.client(), name("operator"));
        let keys = Arc::new(Keys::new(client.clone(), &own, &name("keys")));
        let (events, sending) = Events::new(client.clone());
        tokio::spawn(sending);
        let metrics = Metrics::new().and_namespaces();
        // The tests tell the loop what watches of releases would see, so no list of them is due.
        let tools = [Tool::Helm, Tool::Flux, Tool::ArgoCd];
        let places = tools.map(|tool| (tool, Vec::new()));
        let scope = scope.and_releases(places.into());
        let mut reconciler = Reconciler::new(
            settings,
            scope,
            client,
            Budget::new(),
            keys,
            Progress::new(events, None, metrics.clone(), recent_writes),
            metrics.clone(),
        );
        if let Some(http_reloads) = &mut reconciler.http_reloads {
            let (client, worker) = (apiserver.client(), reconciler.worker.clone());
            http_reloads.reloads = Reloads::new(client, Budget::new(), apiserver.ask(), worker);
        }
        let reconciler = Arc::new(reconciler);
        let running = reconciler.clone();
        apiserver.forget_calls();
        Self {
            apiserver,
            reconciler,
            metrics,
            running: tokio::spawn(async move { running.run().await }),
        }
    }

    /// Starts a loop with these Deployments, which carry the config hash of ConfigMap `app`. No calls are
    /// on record.
    async fn with(deployments: impl IntoIterator<Item = Value>) -> Self {
        let operator = Self::start(Apiserver::default());
        operator.apiserver.write_config_map("app", "1");
        for object in deployments {
            operator.apiserver.write_deployment(object);
        }
        operator.sees_all();
        pass(Duration::from_secs(10)).await;
        for name in operator.apiserver.deployments() {
            assert_eq!(operator.config_hash(&name), operator.hash_of("app"));
        }
        operator.apiserver.forget_calls();
        operator
    }

    /// Starts a loop with one Deployment `web`, in a namespace that was selected by its labels.
    async fn with_namespace() -> Self {
        let labels = Labels {
            namespace: of_team_shop(),
            ..Labels::default()
        };
        let operator = Self::start_for(Apiserver::default(), labels);
        operator.apiserver.write_config_map("app", "1");
        operator.writes(deployment("web"));
        pass(Duration::from_secs(10)).await;
        assert_eq!(operator.config_hash("web"), "", "nothing is selected yet");
        operator
            .reconciler
            .namespace_selected(&name("ns"), Inherited::default());
        operator.sees("web");
        pass(Duration::from_secs(20)).await;
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
        operator.sees("web");
        operator.apiserver.forget_calls();
        operator
    }

    /// Ends the loop. Another one can start with its apiserver.
    fn ends(&self) -> Apiserver {
        self.running.abort();
        self.apiserver.clone()
    }

    /// Lets the watches know that they have listed everything.
    fn lists_are_whole(&self) {
        for kind in WorkloadKind::BUILT_IN {
            self.reconciler.lists.is_whole(kind, None);
        }
    }

    /// Creates or overwrites a Deployment, and lets the watch show it.
    fn writes(&self, deployment: Value) {
        let name = apiserver::name_of(&deployment);
        self.apiserver.write_deployment(deployment);
        self.sees(&name);
    }

    /// Lets somebody edit a Deployment, and the watch show it.
    fn edits(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.apiserver.deployment(name);
        edit(&mut object);
        self.writes(object);
    }

    /// Lets a user set an annotation of a Deployment.
    fn annotates(&self, name: &str, key: &str, value: &str) {
        self.edits(name, |object| {
            object["metadata"]["annotations"][key] = json!(value);
        });
    }

    /// Lets a user remove an annotation of a Deployment.
    fn takes_away(&self, name: &str, key: &str) {
        self.edits(name, |object| {
            let annotations = object["metadata"]["annotations"].as_object_mut();
            annotations.unwrap().remove(key);
        });
    }

    /// Lets the watch show all Deployments as they are.
    fn sees_all(&self) {
        for name in self.apiserver.deployments() {
            self.sees(&name);
        }
    }

    /// Lets the watch show the Deployment as it is.
    fn sees(&self, name: &str) {
        let object: WorkloadObject =
            serde_json::from_value(self.apiserver.deployment(name)).unwrap();
        self.reconciler
            .workload_seen(WorkloadKind::DEPLOYMENT, object);
    }

    /// Creates or overwrites a ConfigMap with a single value, and lets the watch show it.
    async fn changes(&self, config_map: &str, value: &str) {
        self.apiserver.write_config_map(config_map, value);
        self.hears(config_map).await;
    }

    /// Lets the watch show the ConfigMap as it is, at this very moment.
    fn sees_config(&self, config_map: &str) {
        let object = self.apiserver.config_map(config_map);
        let version = object["metadata"]["resourceVersion"].as_str();
        self.reconciler.config_seen(&reference(config_map), version);
    }

    /// Lets the watch show the ConfigMap as it is.
    async fn hears(&self, config_map: &str) {
        self.sees_config(config_map);
        // The loop reacts later, not at this very moment.
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    /// Lets the watch show that the ConfigMap is gone.
    async fn hears_of_loss(&self, config_map: &str) {
        self.reconciler.config_seen(&reference(config_map), None);
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    async fn changes_every_second(&self, config_map: &str, seconds: u32) {
        for second in 0..seconds {
            let value = format!("after {second}");
            self.changes(config_map, &value).await;
            pass(Duration::from_secs(1)).await;
        }
    }

    /// Returns the config hash of the Deployment, or an empty string.
    fn config_hash(&self, name: &str) -> String {
        let object = self.apiserver.deployment(name);
        let hash = &object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH];
        hash.as_str().unwrap_or_default().to_owned()
    }

    /// Returns the right config hash of a Deployment that lists only this ConfigMap.
    fn hash_of(&self, config_map: &str) -> String {
        hash_of(config_map, &self.apiserver.config_map(config_map))
    }

    /// Returns the right config hash once the ConfigMap has this value.
    fn hash_of_value(&self, config_map: &str, value: &str) -> String {
        let mut object = self.apiserver.config_map(config_map);
        object["data"]["key"] = json!(value);
        hash_of(config_map, &object)
    }

    fn patches(&self) -> Vec<Instant> {
        self.apiserver.times(|call| matches!(call, Call::Patch(_)))
    }

    /// Asserts that there was one patch. Returns its time.
    #[track_caller]
    fn only_patch(&self) -> Instant {
        let patches = self.patches();
        assert_eq!(patches.len(), 1);
        patches[0]
    }

    fn reads(&self, config_map: &str) -> Vec<Instant> {
        let read = Call::ReadConfigMap(config_map.to_owned());
        self.apiserver.times(|call| *call == read)
    }

    fn events(&self, reason: &str) -> usize {
        let is_meant = |call: &Call| matches!(call, Call::Event(it, _) if it == reason);
        self.apiserver.times(is_meant).len()
    }

    /// Returns the notes of the Events with this reason.
    fn notes(&self, reason: &str) -> Vec<String> {
        let calls = self.apiserver.calls().into_iter();
        let notes = calls.filter_map(|call| match call {
            Call::Event(it, note) if it == reason => Some(note),
            _ => None,
        });
        notes.collect()
    }

    fn restarts(&self) -> String {
        let text = self.metrics.text();
        let restarts = |line: &&str| line.starts_with("pod_reloader_restarts_total");
        text.lines().filter(restarts).collect()
    }
}

/// Returns the scope of an operator that manages all namespaces.
fn scope() -> Scope {
    Scope::new([], name("operator"))
}

/// Returns whose health is judged with these settings.
fn judged(settings: &Settings) -> Defaults {
    Defaults {
        judges_all: settings.limits.are_set(),
        ..Defaults::default()
    }
}

fn settings() -> Settings {
    Settings {
        settle_period: SETTLE_PERIOD_OF_ALL,
        release_wait: RELEASE_WAIT,
        namespace_memory: 32 << 20,
        clock,
        ..Settings::plain()
    }
}

/// Returns the settings of a loop that only reports what it would do.
fn observing() -> Settings {
    Settings {
        observe: true,
        ..settings()
    }
}

thread_local! {
    /// A time of day, and the moment of the test when the clock shows it.
    static CLOCK: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
}

/// Sets the clock, which runs as time passes in the test.
fn set_clock(time: &str) {
    CLOCK.set(Some((time.parse().unwrap(), Instant::now())));
}

fn clock() -> Timestamp {
    let set = CLOCK.get();
    set.map_or(Timestamp::UNIX_EPOCH, |(time, at)| time + at.elapsed())
}

/// Waits until ConfigMap `app` has been read so often.
async fn wait_for_reads(operator: &Operator, reads: usize) {
    while operator.reads("app").len() < reads {
        pass(Duration::from_millis(1)).await;
    }
}

/// Lets that much time pass. The watch shows each change of `web`, and `does` is called every tenth of a
/// second.
async fn watch(operator: &Operator, time: Duration, mut does: impl FnMut(&Operator)) {
    let (until, mut seen) = (Instant::now() + time, Value::Null);
    while Instant::now() < until {
        let version = operator.apiserver.version_of("web");
        if version != seen {
            operator.sees("web");
            seen = version;
        }
        does(operator);
        pass(Duration::from_millis(100)).await;
    }
}

/// Gives the loop that much time to work.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Returns a Deployment that lists ConfigMap `app`.
fn deployment(name: &str) -> Value {
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
    });
    listing(object, "app")
}

fn listing(mut object: Value, config_maps: &str) -> Value {
    object["metadata"]["annotations"][CONFIG_MAPS] = json!(config_maps);
    object
}

fn settling(mut object: Value, period: &str) -> Value {
    object["metadata"]["annotations"][SETTLE_PERIOD] = json!(period);
    object
}

/// Returns the Deployment with this config hash.
fn hashed(mut object: Value, hash: &str) -> Value {
    object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH] = json!(hash);
    object
}

/// Returns the right config hash of a Deployment that lists only this ConfigMap.
fn hash_of(config_map: &str, object: &Value) -> String {
    hash_of_all([(config_map, object)])
}

/// Returns the right config hash of a Deployment that lists these ConfigMaps.
fn hash_of_all<'a>(config_maps: impl IntoIterator<Item = (&'a str, &'a Value)>) -> String {
    let read = |(config_map, object): (&str, &Value)| {
        let object = ConfigObject::parse(object.to_string().as_bytes(), Aspects::default());
        (reference(config_map), Presence::Present(object.unwrap()))
    };
    let objects: Objects = config_maps.into_iter().map(read).collect();
    keys().hash(&Contents::whole(&objects)).to_string()
}

/// Asserts that the pauses between `times` become longer and longer.
fn assert_grow(times: &[Instant]) {
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] >= Duration::from_millis(700), "{pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
}

/// Asserts that any ten minutes hold at most twenty of `times`.
fn assert_bounded(times: &[Instant]) {
    for (first, at) in times.iter().enumerate() {
        let within = times[first..].iter().filter(|it| **it - *at <= WINDOW);
        assert!(within.clone().count() <= 20, "{}", within.count());
    }
}

fn assert_about(actual: Duration, expected: Duration) {
    let late = actual.saturating_sub(expected);
    assert!(
        actual >= expected && late < Duration::from_millis(100),
        "{actual:?}"
    );
}

const RELEASE_WAIT: Duration = Duration::from_secs(60);
const SETTLE_PERIOD_OF_ALL: Duration = Duration::from_secs(2);
