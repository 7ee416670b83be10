//! Pins in reviews: which copies a write names, and what counts as an undo.

use super::*;
use crate::digest::{Aspects, Presence};
use crate::pins::{CopyNames, MAX_PINS};

const PINS: &str = "/spec/template/metadata/annotations/pod-reloader.cs.sap.com~1pins";
const UNDONE: &str = "/metadata/annotations/pod-reloader.cs.sap.com~1undone";

fn pin_of(value: &str) -> String {
    let [a, namespace] = ["a", "ns"].map(|it| Name::parse(it).unwrap());
    let keys = keyring(&[1]);
    let names = CopyNames::new(&keys, &namespace);
    format!("a={}", names.name_for(&a, &holding(value).unwrap().digest))
}

fn copy(value: &str) -> Presence {
    let json = json!({
        "metadata": {"uid": "u", "resourceVersion": "1", "labels": {"pod-reloader.cs.sap.com/copy": "true"}},
        "immutable": true,
        "data": {"key": value},
    });
    Presence::Present(ConfigObject::parse(json.to_string().as_bytes(), Aspects::default()).unwrap())
}

/// Returns a Deployment that pins, as it was rolled out with this value.
fn rolled_out(value: &str) -> Builder {
    let annotations = json!({
        annotations::CONFIG_HASH: hash(value),
        annotations::PINS: pin_of(value),
    });
    let web = deployment("web").annotation("pin", "configmaps");
    web.with("/spec/template/metadata/annotations", annotations)
}

fn pinning_step(review: &Value) -> Step {
    let scope = Scope::new([], Name::parse("operator").unwrap()).and_pins(true);
    let body = review.to_string();
    let request = Request::parse(body.as_bytes()).unwrap();
    begin(&request, &scope, &keyring(&[1]), OURSELVES).unwrap()
}

/// The values of ours after an answer.
#[derive(Debug, PartialEq)]
struct After {
    hash: Option<String>,
    pins: Option<String>,
    undone: Option<String>,
}

fn after(review: &Value, answer: &Answer) -> After {
    let mut object = review["request"]["object"].clone();
    json_patch::patch(&mut object, &Patch(answer.patch.clone())).unwrap();
    let at = |pointer: &str| Some(object.pointer(pointer)?.as_str()?.to_owned());
    After {
        hash: key_after(review, answer),
        pins: at(PINS),
        undone: at(UNDONE),
    }
}

/// Answers when ConfigMap `a` holds `live`, and copies of `copies` are there.
fn answer(review: &Value, live: &str, copies: &[&str], can_copy: bool) -> Answer {
    match pinning_step(review) {
        Step::Answer(answer) => answer,
        Step::Settle(_) => panic!("it asks for revisions"),
        Step::Read(pending) => {
            let read = pending.copies_to_read();
            let there = copies.iter().map(|value| (pin_of(value), copy(value)));
            let there: Vec<_> = there.collect();
            let copies = read.iter().map(|(source, name)| {
                let pin = format!("{source}={name}");
                let copy = there.iter().find(|(own, _)| *own == pin);
                (
                    source.clone(),
                    copy.map_or(Presence::Absent, |(_, it)| it.clone()),
                )
            });
            let facts = pending.facts(
                objects(&[("a", holding(live))]),
                &copies.collect(),
                &keyring(&[1]),
            );
            let facts = facts.map(|it| if can_copy { it } else { it.without_copies() });
            pending.answer(facts.as_ref(), &keyring(&[1]), FirstStamp::Rollout)
        }
    }
}

fn answered_with(review: &Value, live: &str, copies: &[&str]) -> After {
    after(review, &answer(review, live, copies, true))
}

fn state(value: &str, undone: Option<&str>) -> After {
    After {
        hash: Some(hash(value)),
        pins: Some(pin_of(value)),
        undone: undone.map(pin_of),
    }
}

#[test]
fn a_create_and_a_change_of_the_template_get_the_pins_of_the_present_content() {
    let create = review(None, deployment("web").annotation("pin", "a"));
    assert_eq!(answered_with(&create, "1", &[]), state("1", None));
    let image = review(Some(rolled_out("1")), rolled_out("1").image("app:2"));
    assert_eq!(answered_with(&image, "2", &[]), state("2", None));
}

#[test]
fn without_copies_the_template_says_so() {
    let image = review(Some(rolled_out("1")), rolled_out("1").image("app:2"));
    let unpinned = answer(&image, "2", &[], false);
    let unpinned = after(&image, &unpinned);
    assert_eq!(
        (unpinned.hash, unpinned.pins),
        (Some(hash("2")), Some(String::new()))
    );
}

#[test]
fn any_other_edit_leaves_the_pins_in_place() {
    let bare = deployment("web").annotation("pin", "configmaps");
    let replaced = review(Some(rolled_out("1")), bare);
    assert_eq!(answered_with(&replaced, "2", &[]), state("1", None));
    let scaled = rolled_out("1").with("/spec/replicas", json!(3));
    let scaled = review(Some(rolled_out("1")), scaled);
    assert_eq!(answer(&scaled, "2", &[], true).patch, []);
}

#[test]
fn an_undo_brings_back_the_content_of_the_copies() {
    let undo = review(Some(rolled_out("bad")), rolled_out("good"));
    assert_eq!(
        answered_with(&undo, "bad", &["good"]),
        state("good", Some("bad"))
    );
    // kubectl takes the old annotations of the workload along.
    let stale = rolled_out("good").annotation("undone", &pin_of("older"));
    let undo = review(Some(rolled_out("bad")), stale);
    assert_eq!(
        answered_with(&undo, "bad", &["good"]),
        state("good", Some("bad"))
    );
}

#[test]
fn an_undo_of_an_undo_leaves_nothing_undone() {
    let undone = || rolled_out("good").annotation("undone", &pin_of("bad"));
    let redo = review(
        Some(undone()),
        rolled_out("bad").annotation("undone", &pin_of("bad")),
    );
    assert_eq!(answered_with(&redo, "bad", &["bad"]), state("bad", None));
}

#[test]
fn an_undo_without_its_copies_changes_nothing_and_says_so() {
    let undo = review(Some(rolled_out("bad")), rolled_out("good"));
    let answer = answer(&undo, "bad", &[], true);
    assert_eq!(after(&undo, &answer), state("bad", None));
    assert!(answer.warnings[0].starts_with("pod-reloader: no config was undone: a-"));
}

#[test]
fn what_was_undone_stays_undone_through_every_other_write() {
    let undone = || rolled_out("good").annotation("undone", &pin_of("bad"));
    let image = review(Some(undone()), undone().image("app:2"));
    let kept = state("good", Some("bad"));
    assert_eq!(answered_with(&image, "bad", &["good"]), kept);
    // A client that replaces the whole object drops all that is ours.
    let bare = || deployment("web").annotation("pin", "configmaps");
    for replaced in [bare(), bare().image("app:2")] {
        let replaced = review(Some(undone()), replaced);
        assert_eq!(answered_with(&replaced, "bad", &["good"]), kept);
    }
    let changed = review(Some(undone()), undone().image("app:2"));
    assert_eq!(
        answered_with(&changed, "better", &["good"]),
        state("better", None)
    );
}

#[test]
fn a_user_can_take_the_mark_of_an_undo_away() {
    let undone = rolled_out("good").annotation("undone", &pin_of("bad"));
    let wanted = review(Some(undone), rolled_out("good"));
    assert_eq!(
        answered_with(&wanted, "bad", &["good"]),
        state("good", None)
    );
}

#[test]
fn pins_in_an_applied_manifest_undo_nothing() {
    let manifest =
        json!({"spec": {"template": {"metadata": {"annotations": {annotations::PINS: "a=b"}}}}});
    let applied = rolled_out("good").annotated(
        "kubectl.kubernetes.io/last-applied-configuration",
        &manifest.to_string(),
    );
    let review = review(Some(rolled_out("bad")), applied);
    assert_eq!(answered_with(&review, "bad", &["good"]), state("bad", None));
}

#[test]
fn an_undo_without_pins_gets_a_warning() {
    let old = || deployment("web").stamped(&hash("2"));
    let undo = review(Some(old()), deployment("web").stamped(&hash("1")));
    let answer = answered_at_once(&undo);
    assert_eq!(key_after(&undo, &answer), Some(hash("2")));
    assert!(answer.warnings[0].contains("an undo brings back no config"));
}

#[test]
fn a_stale_hash_beside_pins_gets_no_warning_about_an_undo() {
    let stale = rolled_out("2").stamped(&hash("1"));
    let applied = review(Some(rolled_out("2")), stale);
    let answer = answer(&applied, "2", &["2"], true);
    assert_eq!(after(&applied, &answer), state("2", None));
    assert!(answer.warnings[0].contains("does not count"));
    assert!(!answer.warnings[0].contains("undo"));
}

#[test]
fn a_status_query_about_undone_content_says_that_all_is_well() {
    let undone = || rolled_out("good").annotation("undone", &pin_of("bad"));
    let mut query = review(Some(undone()), undone());
    query["request"]["dryRun"] = json!(true);
    query["request"]["options"]["fieldManager"] = json!(annotations::STATUS_QUERY);
    let answer = answer(&query, "bad", &["good"], true);
    assert_eq!(answer.sync_status, Some(SyncStatus::Current));
}

#[test]
fn content_that_came_meanwhile_is_not_undone() {
    // A fix waits for its settle period, a window or an approval.
    let undo = review(Some(rolled_out("bad")), rolled_out("good"));
    assert_eq!(answered_with(&undo, "fix", &["good"]), state("good", None));
}

#[test]
fn an_undo_further_back_keeps_what_was_undone_before() {
    let undone = rolled_out("good").annotation("undone", &pin_of("bad"));
    let further = review(Some(undone), rolled_out("older"));
    assert_eq!(
        answered_with(&further, "bad", &["older"]),
        state("older", Some("bad"))
    );
}

#[test]
fn an_undo_after_the_config_map_was_deleted_keeps_the_copy() {
    let undo = review(
        Some(deployment("web").annotation("pin", "a")),
        rolled_out("good"),
    );
    let Step::Read(pending) = pinning_step(&undo) else {
        panic!("an undo is read for");
    };
    let copies = [(Name::parse("a").unwrap(), copy("good"))].into();
    let facts = pending.facts(objects(&[("a", None)]), &copies, &keyring(&[1]));
    let answer = pending.answer(facts.as_ref(), &keyring(&[1]), FirstStamp::Rollout);
    assert_eq!(after(&undo, &answer).pins, Some(pin_of("good")));
}

#[test]
fn pins_that_a_server_side_apply_owns_undo_nothing() {
    let fields = json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {
        format!("f:{}", annotations::PINS): {},
    }}}}});
    for (operation, expected) in [
        ("Apply", state("bad", None)),
        ("Update", state("good", Some("bad"))),
    ] {
        let entry = json!({"manager": "flux", "operation": operation, "fieldsV1": fields});
        let applied = rolled_out("good").with("/metadata/managedFields", json!([entry]));
        let review = review(Some(rolled_out("bad")), applied);
        assert_eq!(
            answered_with(&review, "bad", &["good"]),
            expected,
            "{operation}"
        );
    }
}

#[test]
fn pins_of_what_the_workload_does_not_pin_are_never_read() {
    let and_others = |count: usize| {
        let others = (0..count).map(|at| format!(",x{at}=x{at}-0123456789"));
        pin_of("good") + &others.collect::<String>()
    };
    for (pins, read) in [
        (and_others(MAX_PINS - 1), 1),
        // So many mean nothing.
        (and_others(MAX_PINS), 0),
        (pin_of("good"), 1),
        ("a=other".to_owned(), 0),
        (format!("{},a=a-0123456789", pin_of("good")), 0),
    ] {
        let hostile = rolled_out("good").with(
            "/spec/template/metadata/annotations",
            json!({annotations::PINS: pins}),
        );
        let review = review(Some(rolled_out("bad")), hostile);
        let found = match pinning_step(&review) {
            Step::Answer(_) | Step::Settle(_) => 0,
            Step::Read(pending) => pending.copies_to_read().iter().count(),
        };
        assert_eq!(found, read);
    }
}

#[test]
fn whoever_has_undone_something_gets_no_warning_about_the_hash_later() {
    let undone = || rolled_out("good").annotation("undone", &pin_of("bad"));
    let fields = json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {
        annotations::CONFIG_HASH_FIELD: {},
    }}}}});
    let entry = json!({"manager": "kubectl", "operation": "Update", "fieldsV1": fields});
    let later = undone().with("/metadata/managedFields", json!([entry]));
    let later = review(Some(undone()), later);
    assert_eq!(answer(&later, "bad", &["good"], true).warnings, [""; 0]);
}
