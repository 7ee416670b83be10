mod pins;
mod revisions;

use super::answer::{MAX_WARNINGS, OVERRIDDEN};
use super::*;
use crate::copies::Copies;
use crate::decision::{Cause, FirstStamp};
use crate::dialects::Dialects;
use crate::digest::{ConfigObject, Contents, Presence};
use crate::fixtures::{Builder, deployment, hashed_by, holding, keyring, objects};
use crate::gate::{self, Closed};
use crate::mark::Marks;
use crate::name::Name;
use crate::scope::Labels;
use jiff::Timestamp;
use json_patch::Patch;
use serde_json::{Value, json};

const OURSELVES: &str = "system:serviceaccount:operator:pod-reloader";

/// Returns a review of a Deployment that lists ConfigMap `a`, sent by kubectl.
fn review(old: Option<Builder>, new: Builder) -> Value {
    let old = old.map(|old| old.lists("a"));
    review_of(old, new.lists("a"), Some("kubectl"))
}

/// Returns a review of a Deployment, whose sender names this field manager.
fn review_of(old: Option<Builder>, new: Builder, sender: Option<&str>) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "namespace": "ns",
            "userInfo": {"username": "admin"},
            "object": new.json(),
            "oldObject": old.map(Builder::json),
            "options": sender.map(|sender| json!({"fieldManager": sender})),
            "fieldOfTheFuture": [1],
        },
    })
}

fn step(review: &Value) -> Step {
    let scope = Scope::new([], Name::parse("operator").unwrap());
    let body = review.to_string();
    begin(
        &Request::parse(body.as_bytes()).unwrap(),
        &scope,
        &keyring(&[1]),
        OURSELVES,
    )
    .unwrap()
}

fn answered_at_once(review: &Value) -> Answer {
    match step(review) {
        Step::Answer(answer) => answer,
        Step::Read(_) | Step::Settle(_) => panic!("it wants to read"),
    }
}

fn answered(review: &Value, object: Option<ConfigObject>) -> Answer {
    match step(review) {
        Step::Answer(_) | Step::Settle(_) => panic!("it did not want to read"),
        Step::Read(pending) => {
            let facts = facts(&pending, object);
            pending.answer(facts.as_ref(), &keyring(&[1]), FirstStamp::Rollout)
        }
    }
}

/// Returns what is known if ConfigMap `a` is this object.
fn facts(pending: &Pending, object: Option<ConfigObject>) -> Option<Facts> {
    pending.facts(objects(&[("a", object)]), &Copies::new(), &keyring(&[1]))
}

fn answered_unread(review: &Value) -> Answer {
    match step(review) {
        Step::Answer(_) | Step::Settle(_) => panic!("it did not want to read"),
        Step::Read(pending) => pending.answer(None, &keyring(&[1]), FirstStamp::Rollout),
    }
}

/// Returns hash and outcome: [`key_after`] beside the outcome of the answer.
fn result(review: &Value, answer: &Answer) -> (Option<String>, Outcome) {
    (key_after(review, answer), answer.outcome)
}

/// Returns the config hash of the object of `review` after `answer`, whose patch changes nothing else.
fn key_after(review: &Value, answer: &Answer) -> Option<String> {
    const KEY: &str = "/spec/template/metadata/annotations/pod-reloader.cs.sap.com~1config-hash";
    after(review, answer)
        .pointer(KEY)
        .map(|value| value.as_str().unwrap().to_owned())
}

fn hash(value: &str) -> String {
    hashed_by(1, &objects(&[("a", holding(value))]))
}

#[test]
fn a_create_gets_the_hash_of_the_current_content() {
    let review = review(None, deployment("web"));
    let answer = answered(&review, holding("1"));
    assert_eq!(result(&review, &answer), (Some(hash("1")), Outcome::Set));
    assert!(answer.warnings.is_empty());
}

#[test]
fn a_create_with_a_hash_that_verifies_is_left_as_it_is() {
    let review = review(None, deployment("web").stamped(&hash("1")));
    let answer = answered(&review, holding("1"));
    assert_eq!((answer.patch.len(), answer.warnings.len()), (0, 0));
}

#[test]
fn a_create_with_a_stale_hash_from_git_gets_the_current_one_and_a_warning() {
    for stale in [hash("0"), "rubbish".to_owned()] {
        let review = review(None, deployment("web").stamped(&stale));
        let answer = answered(&review, holding("1"));
        assert_eq!(key_after(&review, &answer), Some(hash("1")));
        assert_eq!(answer.warnings, [OVERRIDDEN]);
    }
}

#[test]
fn the_hash_of_a_workload_that_is_restored_before_its_objects_stays() {
    for stored in [hash("1"), hashed_by(9, &objects(&[]))] {
        let review = review(None, deployment("web").requires("a", None).stamped(&stored));
        let answer = answered(&review, None);
        assert_eq!(
            result(&review, &answer),
            (Some(stored), Outcome::MissingConfig)
        );
    }
}

#[test]
fn a_create_whose_config_cannot_be_read_gets_no_hash() {
    for workload in [deployment("web"), deployment("web").stamped("rubbish")] {
        let review = review(None, workload);
        let answer = answered_unread(&review);
        assert_eq!(result(&review, &answer), (None, Outcome::Unknown));
    }
}

#[test]
fn an_edit_without_the_annotation_leaves_the_hash_unchanged() {
    let old = || deployment("web").stamped("old");
    for new in [
        deployment("web"),
        deployment("web").with("/spec/template/metadata/annotations", json!({})),
        deployment("web").with("/metadata/labels", json!({"team": "x"})),
        deployment("web").with("/spec/replicas", json!(5)),
        deployment("web").annotation("secrets", "s"),
    ] {
        let review = review(Some(old()), new);
        let answer = answered_at_once(&review);
        assert_eq!(key_after(&review, &answer).as_deref(), Some("old"));
        assert!(answer.warnings.is_empty());
    }
}

#[test]
fn an_edit_with_another_hash_leaves_the_old_one_unchanged_and_warns() {
    for rubbish in ["rubbish", "", &hash("1")] {
        let review = review(
            Some(deployment("web").stamped("old")),
            deployment("web").stamped(rubbish),
        );
        let answer = answered_at_once(&review);
        assert_eq!(key_after(&review, &answer).as_deref(), Some("old"));
        assert_eq!(answer.warnings.len(), 1);
        assert!(answer.warnings[0].starts_with(OVERRIDDEN));
    }
}

#[test]
fn the_managed_fields_show_that_an_edit_had_a_hash_that_a_policy_reverted() {
    let warned = |manager: &str, owned: &str| {
        let fields =
            json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {owned: {}}}}}});
        let managed = json!([{"manager": manager, "operation": "Apply", "fieldsV1": fields}]);
        let mut review = review(
            Some(deployment("web").stamped("old")),
            deployment("web").stamped("old"),
        );
        review["request"]["object"]["metadata"]["managedFields"] = managed;
        let answer = answered_at_once(&review);
        assert_eq!(answer.patch, []);
        answer.warnings == [OVERRIDDEN]
    };
    assert!(warned("kubectl", annotations::CONFIG_HASH_FIELD));
    assert!(!warned("flux", annotations::CONFIG_HASH_FIELD));
    assert!(!warned("kubectl", "f:other"));
}

#[test]
fn an_edit_that_adds_a_hash_where_there_was_none_loses_it() {
    let review = review(
        Some(deployment("web")),
        deployment("web").stamped("rubbish"),
    );
    let answer = answered_at_once(&review);
    assert_eq!(key_after(&review, &answer), None);
    assert_eq!(answer.warnings, [OVERRIDDEN]);
}

#[test]
fn an_edit_that_changes_nothing_has_no_patch() {
    for workload in [|| deployment("web").stamped("old"), || deployment("web")] {
        assert_eq!(
            answered_at_once(&review(Some(workload()), workload())).patch,
            []
        );
    }
}

#[test]
fn a_change_of_the_template_sets_the_hash_of_the_current_content() {
    for new in [
        deployment("web").image("2"),
        deployment("web").image("2").stamped(&hash("0")),
    ] {
        let review = review(Some(deployment("web").image("1").stamped(&hash("0"))), new);
        let answer = answered(&review, holding("1"));
        assert_eq!(result(&review, &answer), (Some(hash("1")), Outcome::Set));
        assert!(answer.warnings.is_empty());
    }
}

#[test]
fn only_a_change_of_the_template_moves_to_the_newest_hash_key() {
    let older = hashed_by(2, &objects(&[("a", holding("1"))]));
    let old = || deployment("web").stamped(&older);
    let decided = |review: &Value| match step(review) {
        Step::Answer(answer) => key_after(review, &answer),
        Step::Settle(_) => panic!("it asks for revisions"),
        Step::Read(pending) => {
            assert!(pending.lacks_key(&keyring(&[1])));
            let facts = facts(&pending, holding("1"));
            let keys = keyring(&[1, 2]);
            key_after(
                review,
                &pending.answer(facts.as_ref(), &keys, FirstStamp::Rollout),
            )
        }
    };
    let image = review(Some(old()), old().image("app:2"));
    assert_eq!(decided(&image), Some(hash("1")));
    let scaled = review(Some(old()), old().with("/spec/replicas", json!(5)));
    assert_eq!(decided(&scaled), Some(older.clone()));
    let created = review(None, old());
    assert_eq!(decided(&created), Some(older));
}

#[test]
fn a_change_of_the_template_replaces_a_foreign_value() {
    let review = review(
        Some(deployment("web").image("1").stamped("rubbish")),
        deployment("web").image("2").stamped("rubbish"),
    );
    let answer = answered(&review, holding("1"));
    assert_eq!(key_after(&review, &answer), Some(hash("1")));
    assert!(
        answer.warnings.is_empty(),
        "the client sent what it was given"
    );
}

#[test]
fn a_template_change_moves_no_hash_while_a_needed_object_is_missing_or_unreadable() {
    let old = || {
        deployment("web")
            .requires("a", None)
            .image("1")
            .stamped(&hash("1"))
    };
    let review = review(
        Some(old()),
        deployment("web").requires("a", None).image("2"),
    );
    let answer = answered(&review, None);
    assert_eq!(
        result(&review, &answer),
        (Some(hash("1")), Outcome::MissingConfig)
    );
    let answer = answered_unread(&review);
    assert_eq!(
        result(&review, &answer),
        (Some(hash("1")), Outcome::Unknown)
    );
}

#[test]
fn our_own_write_passes_and_nobody_elses_does() {
    let write = |username: &str, field_manager: &str, value: &str| {
        let mut review = review(
            Some(deployment("web").stamped("old")),
            deployment("web").stamped(value),
        );
        review["request"]["userInfo"]["username"] = json!(username);
        review["request"]["options"]["fieldManager"] = json!(field_manager);
        key_after(&review, &answered_at_once(&review)).unwrap()
    };
    assert_eq!(write(OURSELVES, "pod-reloader", &hash("1")), hash("1"));
    assert_eq!(write(OURSELVES, "pod-reloader", "rubbish"), "old");
    assert_eq!(write(OURSELVES, "kubectl", &hash("1")), "old");
    assert_eq!(write("admin", "pod-reloader", &hash("1")), "old");
}

#[test]
fn an_edit_without_the_baseline_leaves_it_in_place_as_long_as_the_hash_stays() {
    let old = || {
        deployment("web")
            .stamped("foreign")
            .annotation("baseline", "foreign=x")
            .image("1")
    };
    let same = review(Some(old()), deployment("web").image("1"));
    let answer = answered_at_once(&same);
    assert_eq!(key_after(&same, &answer).as_deref(), Some("foreign"));
    assert_eq!(baseline_after(&same, &answer).as_deref(), Some("foreign=x"));

    let changed = review(Some(old()), deployment("web").image("2"));
    let answer = answered(&changed, holding("1"));
    assert_eq!(key_after(&changed, &answer), Some(hash("1")));
    assert_eq!(baseline_after(&changed, &answer), None);
}

/// Another release with its own keys writes a baseline that it needs. A baseline of an earlier hash
/// that came back each time made that release lose a change.
#[test]
fn a_baseline_of_an_earlier_hash_is_not_put_back() {
    let web = |baseline| {
        let web = deployment("web").stamped("foreign");
        web.annotation("baseline", baseline)
    };
    for (stored, comes_back) in [("earlier=x", false), ("foreign=x", true), ("at=x", true)] {
        let review = review(Some(web(stored)), web("foreign=y"));
        let answer = answered_at_once(&review);
        let expected = if comes_back { stored } else { "foreign=y" };
        assert_eq!(baseline_after(&review, &answer).as_deref(), Some(expected));
    }
}

#[test]
fn our_own_baseline_passes() {
    let old = deployment("web")
        .stamped("foreign")
        .annotation("baseline", "foreign=x");
    let new = deployment("web")
        .stamped("foreign")
        .annotation("baseline", "foreign=y");
    let mut review = review(Some(old), new);
    review["request"]["userInfo"]["username"] = json!(OURSELVES);
    review["request"]["options"]["fieldManager"] = json!("pod-reloader");
    assert_eq!(answered_at_once(&review).patch, []);
}

#[test]
fn a_workload_that_is_not_managed_is_left_alone() {
    let kept = review(
        Some(deployment("web").stamped("old")),
        deployment("web").stamped("new"),
    );
    for (pointer, value) in [
        ("/request/kind/kind", json!("ReplicaSet")),
        ("/request/kind/group", json!("example.com")),
        ("/request/operation", json!("DELETE")),
        ("/request/subResource", json!("scale")),
        ("/request/namespace", json!("kube-system")),
        ("/request/object/metadata/annotations", json!({})),
        (
            "/request/object/metadata/labels",
            json!({"pod-reloader.cs.sap.com/ignored": "true"}),
        ),
    ] {
        let mut review = kept.clone();
        match review.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => {
                let (parent, field) = pointer.rsplit_once('/').unwrap();
                review.pointer_mut(parent).unwrap()[field] = value;
            }
        }
        assert_eq!(answered_at_once(&review), Answer::default(), "{pointer}");
    }
}

#[test]
fn bad_names_get_a_warning_and_are_never_read() {
    let review = review(
        None,
        deployment("web").annotation("secrets", "?limit=1,../x,good"),
    );
    let Step::Read(pending) = step(&review) else {
        panic!()
    };
    assert!(
        pending
            .workload()
            .references
            .named()
            .all(|reference| ["a", "good"].contains(&reference.name.as_str()))
    );
    let answer = pending.answer(None, &keyring(&[1]), FirstStamp::Rollout);
    assert_eq!(answer.warnings.len(), 2);
    assert!(
        answer
            .warnings
            .iter()
            .all(|warning| warning.len() < 200 && warning.starts_with("pod-reloader: "))
    );
}

#[test]
fn a_misspelt_annotation_gets_a_warning_and_nothing_else() {
    for operation in ["CREATE", "UPDATE"] {
        let misspelt = deployment("web").annotation("config-maps", "a").json();
        let mut review = review(None, deployment("web"));
        review["request"]["operation"] = json!(operation);
        review["request"]["oldObject"] = deployment("web").json();
        review["request"]["object"] = misspelt;
        let answer = answered_at_once(&review);
        let warning = "pod-reloader: unknown annotation pod-reloader.cs.sap.com/config-maps; \
                       did you mean pod-reloader.cs.sap.com/configmaps?";
        let expected = Answer {
            warnings: vec![warning.to_owned()],
            ..Answer::default()
        };
        assert_eq!(answer, expected, "{operation}");
    }
}

#[test]
fn a_listed_object_that_does_not_exist_gets_a_warning_when_objects_are_read() {
    let told =
        "pod-reloader: ConfigMap a is listed and does not exist (yet), and the pods do not use it";
    let create = review(None, deployment("web"));
    assert_eq!(answered(&create, None).warnings, [told]);
    assert_eq!(answered(&create, holding("1")).warnings, [""; 0]);
    let old = || deployment("web").stamped(&hash("1")).image("1");
    let edit = review(Some(old()), old().image("2"));
    assert_eq!(answered(&edit, None).warnings, [told]);
    let same = review(Some(old()), old().annotation("secrets", "s"));
    assert_eq!(answered_at_once(&same).warnings, [""; 0]);
    // The kubelet says so itself.
    let used = review(None, deployment("web").requires("a", None));
    assert_eq!(answered(&used, None).warnings, [""; 0]);
}

#[test]
fn a_misspelt_annotation_in_a_namespace_that_is_not_managed_gets_no_warning() {
    let mut review = review(None, deployment("web").annotation("secret", "s"));
    review["request"]["namespace"] = json!("kube-system");
    assert_eq!(answered_at_once(&review), Answer::default());
}

#[test]
fn a_misspelt_annotation_beside_a_list_gets_a_warning_on_every_edit() {
    let misspelt = || deployment("web").annotation("secret", "s");
    let review = review(Some(misspelt()), misspelt());
    let answer = answered_at_once(&review);
    assert_eq!(
        (answer.warnings.len(), answer.outcome),
        (1, Outcome::Unchanged)
    );
}

#[test]
fn the_loops_own_write_gets_no_warning() {
    let misspelt = || deployment("web").annotation("secret", "s");
    let mut review = review(Some(misspelt()), misspelt().stamped(&hash("1")));
    review["request"]["userInfo"]["username"] = json!(OURSELVES);
    review["request"]["options"]["fieldManager"] = json!(annotations::FIELD_MANAGER);
    assert_eq!(answered_at_once(&review).warnings, [""; 0]);
}

#[test]
fn the_first_of_many_warnings_are_given() {
    let list: Vec<String> = (0..40).map(|n| format!("?{n}")).collect();
    let misspelt = deployment("web").annotation("secret", "s");
    let review = review(None, misspelt.annotation("secrets", &list.join(",")));
    let warnings = answered(&review, holding("1")).warnings;
    assert_eq!(warnings.len(), MAX_WARNINGS);
    assert!(warnings[0].contains("unknown annotation"), "{warnings:?}");
}

/// Makes the review a status query.
fn asks_for_status(review: &mut Value) {
    review["request"]["dryRun"] = json!(true);
    review["request"]["options"]["fieldManager"] = json!(annotations::STATUS_QUERY);
}

#[test]
fn a_status_query_gets_the_sync_status_and_changes_nothing() {
    let asked = |old: Builder, object| {
        let mut review = review(Some(old), deployment("web"));
        review["request"]["object"] = review["request"]["oldObject"].clone();
        asks_for_status(&mut review);
        let answer = answered(&review, object);
        assert_eq!(answer.patch, []);
        let is_due = matches!(answer.sync_status, Some(SyncStatus::Due(_)));
        let content = answer.due_content.as_deref();
        let due = ["1", "2"].map(|it| gate::digits(&hash(it)));
        assert_eq!(content.is_some(), is_due);
        assert!(content.is_none_or(|it| due.iter().any(|due| due == it)));
        answer.sync_status.unwrap()
    };
    let stamped = || deployment("web").stamped(&hash("1"));
    assert_eq!(asked(stamped(), holding("1")), SyncStatus::Current);
    let due = SyncStatus::Due(Cause::Changed);
    assert_eq!(asked(stamped(), holding("2")), due);
    let first = SyncStatus::Due(Cause::FirstStamp);
    assert_eq!(asked(deployment("web"), holding("1")), first);
    let foreign = deployment("web").stamped("foreign");
    assert_eq!(asked(foreign, holding("1")), SyncStatus::BaselineDue);
    let waiting = stamped().requires("a", None);
    assert_eq!(asked(waiting, None), SyncStatus::MissingConfig);
}

#[test]
fn a_status_query_is_told_which_gate_is_closed_and_what_is_missing() {
    let asked = |old: Builder, object| {
        let mut review = review(Some(old.stamped(&hash("1"))), deployment("web"));
        review["request"]["object"] = review["request"]["oldObject"].clone();
        asks_for_status(&mut review);
        let Step::Read(pending) = step(&review) else {
            panic!("it did not want to read")
        };
        let keys = keyring(&[1]);
        let facts = facts(&pending, object);
        let answer = pending.answer(facts.as_ref(), &keys, FirstStamp::Rollout);
        let closed = pending.closed(facts.as_ref(), &answer, Timestamp::UNIX_EPOCH);
        (closed, answer.missing)
    };
    let held = || deployment("web").annotation("hold", "true");
    assert_eq!(asked(held(), holding("2")), (Some(Closed::Held), vec![]));
    assert_eq!(asked(held(), holding("1")), (None, vec![]));
    assert_eq!(asked(deployment("web"), holding("2")), (None, vec![]));
    let (closed, missing) = asked(held().requires("a", None), None);
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!((closed, missing), (None, vec!["ConfigMap a".to_owned()]));
}

#[test]
fn a_status_query_is_told_of_no_object_on_hold_that_the_workload_does_not_name() {
    let mut review = review(
        Some(deployment("web").stamped(&hash("1"))),
        deployment("web"),
    );
    asks_for_status(&mut review);
    let closed = |held: &str| {
        let Step::Read(pending) = step(&review) else {
            panic!("it did not want to read")
        };
        let keys = keyring(&[1]);
        let mut read = objects(&[("a", holding("2")), ("secret-plan", holding("2"))]);
        for (reference, object) in &mut read {
            if let Presence::Present(object) = object
                && reference.name.as_str() == held
            {
                object.marks = Marks::HELD;
            }
        }
        let facts = pending.facts(read, &Copies::new(), &keys);
        let answer = pending.answer(facts.as_ref(), &keys, FirstStamp::Rollout);
        assert!(answer.due_content.is_some());
        pending.closed(facts.as_ref(), &answer, Timestamp::UNIX_EPOCH)
    };
    assert!(matches!(closed("a"), Some(Closed::HeldBy(_))));
    assert_eq!(closed("secret-plan"), None);
}

/// Returns the object of `review` after the patch of `answer`.
fn after(review: &Value, answer: &Answer) -> Value {
    let mut object = review["request"]["object"].clone();
    json_patch::patch(&mut object, &Patch(answer.patch.clone())).unwrap();
    object
}

fn baseline_after(review: &Value, answer: &Answer) -> Option<String> {
    let baseline = after(review, answer)["metadata"]["annotations"][annotations::BASELINE].take();
    baseline.as_str().map(str::to_owned)
}

/// Returns config hashes written by other clusters, which say nothing here.
fn of_other_clusters() -> [String; 2] {
    let unknown = hashed_by(9, &objects(&[("a", holding("1"))]));
    [unknown, "5".repeat(64)]
}

#[test]
fn a_workload_restored_into_another_cluster_gets_a_baseline_and_its_hash_stays() {
    for value in of_other_clusters() {
        let restored = review(None, deployment("web").stamped(&value));
        let answer = answered(&restored, holding("1"));
        let baseline = format!("{value}={}", hash("1"));
        assert_eq!(
            after(&restored, &answer)["spec"],
            deployment("web").stamped(&value).json()["spec"]
        );
        assert_eq!(baseline_after(&restored, &answer), Some(baseline));
        assert_eq!(answer.outcome, Outcome::Unchanged);
        assert_eq!(answer.warnings, [""; 0]);
    }
}

#[test]
fn a_baseline_of_another_cluster_is_replaced_as_its_workload_is_restored() {
    for value in of_other_clusters()
        .iter()
        .map(String::as_str)
        .chain(["rubbish"])
    {
        let lost = hashed_by(9, &objects(&[]));
        let workload = deployment("web").stamped(value);
        let workload = workload.annotation("baseline", &format!("{value}={lost}"));
        let restored = review(None, workload);
        let answer = answered(&restored, holding("1"));
        assert_eq!(key_after(&restored, &answer).as_deref(), Some(value));
        let baseline = format!("{value}={}", hash("1"));
        assert_eq!(baseline_after(&restored, &answer), Some(baseline));
    }
}

#[test]
fn a_baseline_of_our_own_decides_about_the_workload_that_is_restored_with_it() {
    let restored = |value: &str, of: &str| {
        let workload = deployment("web").stamped(value);
        let workload = workload.annotation("baseline", &format!("{of}={}", hash("1")));
        review(None, workload)
    };
    let [unknown, sap] = of_other_clusters();
    let known = hash("0");
    for (value, of) in [
        (&unknown, unknown.clone()),
        (&sap, sap.clone()),
        (&known, format!("{known}~")),
    ] {
        let unchanged = restored(value, &of);
        let answer = answered(&unchanged, holding("1"));
        assert_eq!(answer.patch, [], "{of}");
        let changed = restored(value, &of);
        let answer = answered(&changed, holding("2"));
        assert_eq!(key_after(&changed, &answer), Some(hash("2")), "{of}");
    }
}

#[test]
fn the_hash_of_a_workload_that_is_restored_before_it_can_be_judged_stays() {
    for value in of_other_clusters() {
        let unread = review(None, deployment("web").stamped(&value));
        let answer = answered_unread(&unread);
        assert_eq!((answer.patch.len(), answer.outcome), (0, Outcome::Unknown));
        let before_its_objects = deployment("web").requires("a", None).stamped(&value);
        let before_its_objects = review(None, before_its_objects);
        let answer = answered(&before_its_objects, None);
        assert_eq!(
            (answer.patch.len(), answer.outcome),
            (0, Outcome::MissingConfig)
        );
        let lists_nothing = deployment("web").stamped(&value).json();
        let mut lists_nothing = review(None, Builder::from(lists_nothing));
        lists_nothing["request"]["object"]["metadata"]["annotations"][annotations::CONFIG_MAPS] =
            json!("");
        let answer = answered_unread(&lists_nothing);
        assert_eq!(answer.patch, []);
    }
}

/// Gives the pod template this many bytes of annotations.
fn with_annotations(workload: Builder, size: usize) -> Builder {
    let annotations = json!({"note": "x".repeat(size - "note".len())});
    workload.with("/spec/template/metadata/annotations", annotations)
}

#[test]
fn a_write_is_not_denied_because_the_hash_makes_its_annotations_too_long() {
    const LIMIT: usize = 256 << 10;
    let size = annotations::CONFIG_HASH.len() + hash("1").len();
    for (room, fits) in [(0, false), (size - 1, false), (size, true)] {
        let workload = || with_annotations(deployment("web"), LIMIT - room);
        let old = deployment("web").stamped(&hash("1"));
        for review in [review(None, workload()), review(Some(old), workload())] {
            let answer = answered(&review, holding("1"));
            let key = key_after(&review, &answer);
            assert_eq!(key, fits.then(|| hash("1")), "{room}");
            let [warning] = &answer.warnings[..] else {
                assert!(fits && answer.warnings.is_empty(), "{:?}", answer.warnings);
                continue;
            };
            assert!(!fits && warning.contains("262144 bytes"), "{warning}");
        }
    }
}

#[test]
fn a_write_is_not_denied_because_the_old_hash_makes_its_annotations_too_long() {
    let workload = || with_annotations(deployment("web").requires("a", None), 256 << 10);
    let old = || deployment("web").requires("a", None).stamped(&hash("1"));
    let with_hash =
        json!({"note": "x".repeat((256 << 10) - 8), annotations::CONFIG_HASH: hash("1")});
    let sent = workload().with("/spec/template/metadata/annotations", with_hash);
    for (object, new) in [(None, workload()), (holding("1"), sent)] {
        let review = review(Some(old()), new);
        for answer in [answered(&review, object), answered_unread(&review)] {
            assert_eq!(key_after(&review, &answer), None);
            assert_eq!(answer.warnings.len(), 1);
        }
    }
}

#[test]
fn a_write_is_not_denied_because_a_baseline_makes_its_annotations_too_long() {
    const KEY: &str = "note";
    let [value, _] = of_other_clusters();
    let full = || {
        let workload = deployment("web").stamped(&value);
        workload.annotated(KEY, &"x".repeat((256 << 10) - 100))
    };
    let restored = review(None, full());
    let answer = answered(&restored, holding("1"));
    assert_eq!((answer.patch.len(), answer.warnings.len()), (0, 1));
    let old = deployment("web").stamped(&value);
    let old = old.annotation("baseline", &format!("{value}={}", hash("1")));
    let answer = answered_at_once(&review(Some(old), full()));
    assert_eq!((answer.patch.len(), answer.warnings.len()), (0, 1));
}

#[test]
fn a_status_query_is_answered_about_the_workload_that_is_stored() {
    let asked = |old: Option<Builder>, new: Builder| {
        let mut review = review(old, new);
        asks_for_status(&mut review);
        let answer = match step(&review) {
            Step::Answer(answer) => answer,
            Step::Settle(_) => panic!("it asks for revisions"),
            Step::Read(pending) => {
                assert_eq!(pending.workload().references.named().count(), 1);
                let facts = facts(&pending, holding("1"));
                pending.answer(facts.as_ref(), &keyring(&[1]), FirstStamp::Rollout)
            }
        };
        assert_eq!(answer.patch, []);
        answer.sync_status.unwrap()
    };
    let stored = || deployment("web").stamped(&hash("1"));
    let about_others = stored().annotation("secrets", "s").requires("b", None);
    assert_eq!(asked(Some(stored()), about_others), SyncStatus::Current);
    assert_eq!(
        asked(Some(stored()), stored().image("2")),
        SyncStatus::Current
    );
    // A workload that does not exist yet has no sync status.
    let made_up = deployment("web").requires("a", None);
    assert_eq!(asked(None, made_up), SyncStatus::Unknown);
}

#[test]
fn only_a_dry_run_with_the_field_manager_of_status_queries_gets_a_sync_status() {
    let stored = || deployment("web").stamped("old");
    for (dry_run, manager) in [(true, "kubectl"), (false, annotations::STATUS_QUERY)] {
        let mut review = review(Some(stored()), stored());
        review["request"]["dryRun"] = json!(dry_run);
        review["request"]["options"]["fieldManager"] = json!(manager);
        assert_eq!(answered_at_once(&review).sync_status, None);
    }
}

#[test]
fn a_review_without_its_objects_is_refused() {
    for part in ["object", "oldObject"] {
        let mut review = review(Some(deployment("web")), deployment("web"));
        review["request"][part] = Value::Null;
        let scope = Scope::new([], Name::parse("operator").unwrap());
        let body = review.to_string();
        let request = Request::parse(body.as_bytes()).unwrap();
        assert!(begin(&request, &scope, &keyring(&[1]), OURSELVES).is_err());
    }
}

#[test]
fn an_edit_that_removes_all_annotations_leaves_the_baseline_in_place() {
    let uses = |workload: Builder| workload.requires("a", None);
    let old = uses(deployment("web"))
        .stamped("x")
        .annotation("baseline", "x=y");
    let mut review = review(Some(old), uses(deployment("web")).stamped("x"));
    review["request"]["object"]["metadata"]["annotations"] = Value::Null;
    let scope = Scope::new([], Name::parse("operator").unwrap());
    let everything = Dialects {
        auto_all: true,
        ..Dialects::default()
    };
    let scope = scope.with(Labels::default(), everything);
    let body = review.to_string();
    let request = Request::parse(body.as_bytes()).unwrap();
    let step = begin(&request, &scope, &keyring(&[1]), OURSELVES).unwrap();
    let Step::Answer(answer) = step else { panic!() };
    let mut object = review["request"]["object"].clone();
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    json_patch::patch(&mut object, &Patch(answer.patch)).unwrap();
    assert_eq!(
        object["metadata"]["annotations"][annotations::BASELINE],
        json!("x=y")
    );
}

/// A Deployment whose config hash stands for `stamped`, and whose pods have reloaded `reloaded` since.
fn reloaded(stamped: &str, reloaded: &str) -> Builder {
    let baseline = format!("{}!={}", hash(stamped), hash(reloaded));
    deployment("web")
        .stamped(&hash(stamped))
        .annotation("baseline", &baseline)
}

#[test]
fn an_edit_of_labels_leaves_what_pods_have_reloaded() {
    let edited = reloaded("1", "2").label("team", "shop");
    let answer = answered_at_once(&review(Some(reloaded("1", "2")), edited));
    assert_eq!(
        (answer.outcome, answer.patch.len()),
        (Outcome::Unchanged, 0)
    );
    // Who replaces the whole object knows nothing of it.
    let review = review(Some(reloaded("1", "2")), deployment("web"));
    let answer = answered_at_once(&review);
    assert_eq!(key_after(&review, &answer), Some(hash("1")));
    let restored = format!("{}!={}", hash("1"), hash("2"));
    let has_baseline = |it: &json_patch::PatchOperation| matches!(it, json_patch::PatchOperation::Add(add) if add.value == json!(restored));
    assert!(answer.patch.iter().any(has_baseline), "{:?}", answer.patch);
}

#[test]
fn an_edit_of_the_template_takes_a_hash_for_which_nothing_was_reloaded() {
    // The pods have reloaded what is there now, so the new ones have it as well.
    let edited = reloaded("1", "2").image("new");
    let review_of = review(Some(reloaded("1", "2")), edited);
    let answer = answered(&review_of, holding("2"));
    assert_eq!(key_after(&review_of, &answer), Some(hash("2")));
    // The content of the config hash is back, and the new pods have it: what others have reloaded no longer counts.
    for edited in [
        reloaded("1", "2").image("new"),
        deployment("web").image("new"),
    ] {
        let review_of = review(Some(reloaded("1", "2")), edited);
        let answer = answered(&review_of, holding("1"));
        let key = key_after(&review_of, &answer).unwrap();
        assert_ne!(key, hash("1"));
        let objects = objects(&[("a", holding("1"))]);
        let verdict = keyring(&[1]).verify(&key, &Contents::whole(&objects));
        assert_eq!(verdict, crate::hash::Verdict::Current);
        assert_eq!(answer.outcome, Outcome::Set);
    }
}

#[test]
fn a_workload_that_is_restored_with_what_its_pods_have_reloaded_keeps_its_hash() {
    let review = review(None, reloaded("1", "2"));
    let answer = answered(&review, holding("2"));
    assert_eq!(key_after(&review, &answer), Some(hash("1")));
    assert_eq!(answer.outcome, Outcome::Unchanged);
}
