//! What the revisions of a workload tell about a review: settings that outlive an undo, and pods that a new workload takes
//! over.

use super::*;
use crate::revision::{ControllerRevision, KeepsRevision, PastReplicaSet, Remains};

const P: &str = "pod-reloader.cs.sap.com";

/// Returns a Deployment with a selector, as every real one has.
fn web() -> Builder {
    deployment("web").with("/spec/selector", json!({"matchLabels": {"app": "web"}}))
}

/// Returns a ReplicaSet with the template of this Deployment, and the annotations that the Deployment had.
fn replica_set(of: Builder, number: u32, owner: Option<&str>) -> Remains {
    let deployment = of.json();
    let mut annotations = deployment["metadata"]["annotations"].clone();
    if annotations.is_null() {
        annotations = json!({});
    }
    annotations["deployment.kubernetes.io/revision"] = json!(number.to_string());
    let owners = owner
        .map(|uid| json!([{"controller": true, "kind": "Deployment", "name": "web", "uid": uid}]));
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"]["pod-template-hash"] = json!("5d8c");
    let object = json!({
        "metadata": {"name": "web-5d8c", "namespace": "ns", "annotations": annotations, "ownerReferences": owners},
        "spec": {"replicas": 1, "template": template},
    });
    let object: PastReplicaSet = serde_json::from_str(&object.to_string()).unwrap();
    object.remains()
}

/// Returns the answer to a review that asks for revisions, and the object after it. `None` if it asks for none.
fn settled(
    review: &Value,
    revisions: Option<&[Remains]>,
    content: &str,
) -> Option<(Answer, Value)> {
    let scope = Scope::new([], Name::parse("operator").unwrap());
    let keys = keyring(&[1]);
    let Step::Settle(mut unsettled) = step(review) else {
        return None;
    };
    let known = revisions.map_or(Revisions::Unknown, |all| {
        all.iter().cloned().for_each(|it| unsettled.look_at(it));
        Revisions::Seen
    });
    let answer = match unsettled.settle(known, &scope, &keys) {
        Step::Answer(answer) => answer,
        Step::Read(pending) => {
            let objects = objects(&[("a", holding(content))]);
            let facts = pending.facts(objects, &Copies::new(), &keys);
            pending.answer(facts.as_ref(), &keys, FirstStamp::Rollout)
        }
        Step::Settle(_) => panic!("it asks twice"),
    };
    let after = after(review, &answer);
    Some((answer, after))
}

/// Returns the review that asks once more, after another webhook has changed something.
fn again(mut review: Value, object: &Value) -> Value {
    review["request"]["object"] = object.clone();
    review
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("{P}/{key}")].as_str()
}

fn template_hash(object: &Value) -> Option<&str> {
    object["spec"]["template"]["metadata"]["annotations"][annotations::CONFIG_HASH].as_str()
}

/// Asserts that a workload has a baseline: the hash of this content, in place of another hash.
#[track_caller]
fn assert_baseline(object: &Value, replaced: &str, content: &str) {
    let expected = format!("{replaced}={}", hash(content));
    assert_eq!(annotation(object, "baseline"), Some(&*expected));
}

/// Returns the review of an undo, and the revisions: of a Deployment as it is, as the request brings back its first
/// revision, and that revision.
fn undo(now: Builder, asked: Builder, first: Builder) -> (Value, Vec<Remains>) {
    let first = replica_set(first, 1, Some("uid-1"));
    (review_of(Some(now), asked, None), vec![first])
}

#[test]
fn what_was_set_since_outlives_an_undo() {
    let first = || {
        web()
            .lists("a")
            .annotation("restart-window", "Sat 00:00-04:00 UTC")
            .image("1")
    };
    let now = web().lists("a").annotation("hold", "true").image("2");
    let now = now.annotation("restart-window", "Sun 00:00-04:00 UTC");
    let (review, revisions) = undo(now, first(), first());
    let (answer, object) = settled(&review, Some(&revisions), "1").unwrap();
    assert_eq!(annotation(&object, "hold"), Some("true"));
    assert_eq!(
        annotation(&object, "restart-window"),
        Some("Sun 00:00-04:00 UTC")
    );
    assert_eq!(annotation(&object, "configmaps"), Some("a"));
    assert_eq!(template_hash(&object), Some(&*hash("1")));
    let warning = "pod-reloader: pod-reloader.cs.sap.com/hold, pod-reloader.cs.sap.com/restart-window stay as before: an undo";
    assert!(
        answer.warnings[0].starts_with(warning),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn an_undo_and_a_takeover_change_nothing_if_they_are_reviewed_once_more() {
    let first = || web().lists("a").image("1");
    let now = web().lists("a").annotation("hold", "true").image("2");
    let (review, revisions) = undo(now, first(), first());
    let (_, object) = settled(&review, Some(&revisions), "1").unwrap();
    match step(&again(review, &object)) {
        Step::Read(pending) => {
            let keys = keyring(&[1]);
            let facts = pending.facts(objects(&[("a", holding("1"))]), &Copies::new(), &keys);
            let answer = pending.answer(facts.as_ref(), &keys, FirstStamp::Rollout);
            assert_eq!((answer.patch, answer.warnings), (vec![], vec![]));
        }
        Step::Answer(_) | Step::Settle(_) => panic!("the template has changed, and nothing else"),
    }
    let review = review_of(None, first(), None);
    let plain = web().annotation("hold", "true").image("1");
    let stamped = web().stamped(&hash("0")).image("1");
    for orphan in [plain, stamped] {
        let orphan = [replica_set(orphan, 1, None)];
        let (_, object) = settled(&review, Some(&orphan), "1").unwrap();
        let again = again(review.clone(), &object);
        let (answer, _) = settled(&again, Some(&orphan), "1").unwrap();
        assert_eq!((answer.patch, answer.warnings), (vec![], vec![]));
    }
}

#[test]
fn an_undo_that_cannot_be_recognised_keeps_the_settings() {
    let now = || web().lists("a").annotation("hold", "true").image("2");
    let large = || json!("x".repeat(MAX_UNSETTLED));
    let selects_all = || json!({"matchLabels": {}});
    for (pointer, value) in [
        ("/spec/template/spec/fieldOfTheFuture", large()),
        ("/spec/selector", selects_all()),
    ] {
        let asked = web().lists("a").image("1").with(pointer, value);
        let review = review_of(Some(now()), asked, None);
        let answer = match step(&review) {
            Step::Read(pending) => pending.answer(None, &keyring(&[1]), FirstStamp::Rollout),
            Step::Answer(answer) => answer,
            Step::Settle(_) => panic!("it is not kept in memory while lists are made"),
        };
        let object = after(&review, &answer);
        assert_eq!(annotation(&object, "hold"), Some("true"), "{pointer}");
    }
}

#[test]
fn settings_for_which_there_is_no_room_are_left_out() {
    let first = || {
        let full = "x".repeat(crate::texts::MAX_ANNOTATIONS_SIZE - 4096);
        web().lists("a").annotated("full", &full).image("1")
    };
    let window = format!("Sat {}", "x".repeat(4096));
    let now = web().lists("a").annotation("restart-window", &window);
    let mut review = review_of(Some(now.image("2")), first(), None);
    review["request"]["object"]["spec"]["selector"] = json!(null);
    let answer = match step(&review) {
        Step::Read(pending) => pending.answer(None, &keyring(&[1]), FirstStamp::Rollout),
        Step::Answer(answer) => answer,
        Step::Settle(_) => panic!("it is too large"),
    };
    let object = after(&review, &answer);
    assert_eq!(annotation(&object, "restart-window"), None);
    let told = answer.warnings.iter().any(|it| it.contains("as before"));
    assert!(!told, "{:?}", answer.warnings);
}

#[test]
fn an_undo_to_a_time_before_the_opt_in_keeps_the_opt_in() {
    for now in [
        web().lists("a"),
        web().lists("a").annotation("settle-period", "1s"),
    ] {
        let (review, revisions) = undo(now.image("2"), web().image("1"), web().image("1"));
        let (_, object) = settled(&review, Some(&revisions), "1").unwrap();
        assert_eq!(annotation(&object, "configmaps"), Some("a"));
        assert_eq!(template_hash(&object), Some(&*hash("1")));
    }
}

#[test]
fn what_was_removed_since_comes_back_with_an_undo_as_before() {
    let first = || web().lists("a").annotation("hold", "true").image("1");
    let (review, _) = undo(web().lists("a").image("2"), first(), first());
    // Nothing that stands on the workload is lost, so nobody asks.
    assert!(settled(&review, None, "1").is_none());
}

#[test]
fn what_a_person_writes_together_with_an_old_template_counts() {
    let first = || web().lists("a").image("1");
    let now = web()
        .lists("a")
        .annotation("hold", "true")
        .annotation("stage", "2")
        .image("2");
    let (review, revisions) = undo(now, first().annotation("hold", "false"), first());
    let (_, object) = settled(&review, Some(&revisions), "1").unwrap();
    assert_eq!(annotation(&object, "hold"), Some("false"));
    assert_eq!(annotation(&object, "stage"), Some("2"));
}

#[test]
fn a_label_that_is_taken_away_together_with_an_old_template_goes() {
    let first = || web().lists("a").image("1");
    let now = web().lists("a").label("ignored", "true").image("2");
    let (review, revisions) = undo(now, first(), first());
    let (answer, object) = settled(&review, Some(&revisions), "1").unwrap();
    // An undo takes no labels away, so somebody has done that now.
    assert!(object["metadata"]["labels"][format!("{P}/ignored")].is_null());
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    assert_eq!(template_hash(&object), Some(&*hash("1")));
}

#[test]
fn a_new_template_without_a_setting_is_no_undo() {
    let now = || web().lists("a").annotation("hold", "true").image("2");
    let review = review_of(Some(now()), web().lists("a").image("3"), None);
    let first = replica_set(web().lists("a").image("1"), 1, Some("uid-1"));
    let of_another = replica_set(web().lists("a").image("3"), 1, Some("uid-2"));
    for revisions in [vec![], vec![first, of_another]] {
        let (answer, object) = settled(&review, Some(&revisions), "1").unwrap();
        assert_eq!(annotation(&object, "hold"), None);
        assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    }
    // Whoever says who he is edits, applies or rolls back a release.
    for sender in [
        "kubectl-edit",
        "kubectl-client-side-apply",
        "helm",
        "argocd-controller",
    ] {
        let review = review_of(Some(now()), web().lists("a").image("1"), Some(sender));
        assert!(settled(&review, Some(&[]), "1").is_none(), "{sender}");
    }
}

#[test]
fn a_setting_stays_if_nobody_can_tell_whether_it_is_an_undo() {
    let now = web().lists("a").annotation("hold", "true").image("2");
    let (review, _) = undo(now, web().lists("a").image("1"), web());
    let (_, object) = settled(&review, None, "1").unwrap();
    assert_eq!(annotation(&object, "hold"), Some("true"));
}

/// Returns the object after it was replaced by a manifest, which has no UID.
fn replaced(now: Builder, managers: &Value, manifest: Builder, sender: &str) -> (Answer, Value) {
    replaced_by(now, managers, manifest, Some(sender))
}

fn replaced_by(
    now: Builder,
    managers: &Value,
    manifest: Builder,
    sender: Option<&str>,
) -> (Answer, Value) {
    let now = now.with("/metadata/managedFields", managers.clone());
    let mut review = review_of(Some(now), manifest, sender);
    review["request"]["object"]["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("uid");
    let answer = match step(&review) {
        Step::Answer(answer) => answer,
        Step::Read(pending) => pending.answer(None, &keyring(&[1]), FirstStamp::Rollout),
        Step::Settle(_) => panic!("a manifest asks for no revisions"),
    };
    let after = after(&review, &answer);
    (answer, after)
}

fn managers(all: &[(&str, &str, &str)]) -> Value {
    let of = |(manager, parent, key): &(&str, &str, &str)| {
        let field = format!("f:{P}/{key}");
        json!({"manager": manager, "operation": "Update", "fieldsV1": {"f:metadata": {*parent: {field: {}}}}})
    };
    all.iter().map(of).collect()
}

#[test]
fn a_manifest_that_replaces_a_workload_leaves_what_somebody_else_has_set() {
    let now = || {
        web()
            .lists("a")
            .annotation("hold", "true")
            .annotation("stage", "1")
            .label("ignored", "false")
    };
    let own = |key| ("kubectl-create", "f:annotations", key);
    let all = managers(&[
        own("configmaps"),
        ("kubectl-annotate", "f:annotations", "hold"),
        own("stage"),
        ("kubectl-label", "f:labels", "ignored"),
    ]);
    for image in ["1", "2"] {
        let manifest = web().lists("a").image(image);
        let (answer, object) = replaced(now().image("1"), &all, manifest, "kubectl-replace");
        assert_eq!(annotation(&object, "hold"), Some("true"));
        assert_eq!(
            annotation(&object, "stage"),
            None,
            "it was in the last manifest"
        );
        assert_eq!(
            object["metadata"]["labels"][format!("{P}/ignored")],
            "false"
        );
        assert!(
            answer.warnings[0].contains("kubectl annotate"),
            "{:?}",
            answer.warnings
        );
    }
    // What the manifest says counts.
    let manifest = web().lists("a").annotation("hold", "false").image("1");
    let (_, object) = replaced(now().image("1"), &all, manifest, "kubectl-replace");
    assert_eq!(annotation(&object, "hold"), Some("false"));
}

#[test]
fn a_manifest_takes_away_what_its_sender_has_set() {
    for (setter, sender, stays) in [
        ("argocd-controller", "argocd-controller", false),
        ("helm", "argocd-controller", true),
        ("kubectl-client-side-apply", "kubectl-replace", false),
        ("kubectl-edit", "kubectl-replace", true),
    ] {
        let now = web().lists("a").annotation("hold", "true").image("1");
        let all = managers(&[(setter, "f:annotations", "hold")]);
        let (_, object) = replaced(now, &all, web().lists("a").image("1"), sender);
        assert_eq!(
            annotation(&object, "hold").is_some(),
            stays,
            "{setter} {sender}"
        );
    }
    // Two have set it, or nobody knows who.
    let both = [
        ("kubectl-annotate", "f:annotations", "hold"),
        ("kubectl-create", "f:annotations", "hold"),
    ];
    for all in [
        managers(&both),
        json!([]),
        json!([{"manager": 1}]),
        json!(null),
    ] {
        let now = web().lists("a").annotation("hold", "true").image("1");
        let (_, object) = replaced(now, &all, web().lists("a").image("1"), "kubectl-replace");
        assert_eq!(annotation(&object, "hold"), None, "{all}");
    }
}

#[test]
fn what_a_manifest_has_left_out_once_outlives_the_next_one_too() {
    let manifest = || web().lists("a").image("1");
    let now = || manifest().annotation("hold", "true");
    let annotated = managers(&[("kubectl-annotate", "f:annotations", "hold")]);
    let (_, object) = replaced(now(), &annotated, manifest(), "argocd-controller");
    assert_eq!(annotation(&object, "hold"), Some("true"));
    // By that write, kubectl has lost the field. The apiserver records no manager of what an admission adds.
    let lost = managers(&[("argocd-controller", "f:annotations", "configmaps")]);
    for sender in [Some("argocd-controller"), Some("kubectl-replace"), None] {
        let (_, object) = replaced_by(now(), &lost, manifest(), sender);
        assert_eq!(annotation(&object, "hold"), Some("true"), "{sender:?}");
    }
}

#[test]
fn a_controller_that_names_no_manager_takes_away_what_it_may_have_set_itself() {
    for (setter, stays) in [
        // The apiserver takes this name from the client of the controller. The review does not have it.
        ("web-operator", false),
        ("kubectl-create", false),
        ("helm", false),
        ("kubectl-annotate", true),
        ("kubectl-patch", true),
        (crate::annotations::PLUGIN, true),
        // The loop has put it back when the workload was created again.
        (crate::annotations::FIELD_MANAGER, true),
    ] {
        let now = web().lists("a").annotation("hold", "true").image("1");
        let all = managers(&[(setter, "f:annotations", "hold")]);
        let (_, object) = replaced_by(now, &all, web().lists("a").image("1"), None);
        assert_eq!(annotation(&object, "hold").is_some(), stays, "{setter}");
    }
}

#[test]
fn a_replacement_that_drops_the_opt_in_of_another_manager_keeps_the_hash() {
    let now = web().lists("a").stamped(&hash("1")).image("1");
    let all = managers(&[("kubectl-annotate", "f:annotations", "configmaps")]);
    let (_, object) = replaced(now, &all, web().image("1"), "kubectl-replace");
    assert_eq!(
        (annotation(&object, "configmaps"), template_hash(&object)),
        (Some("a"), Some(&*hash("1")))
    );
}

#[test]
fn a_workload_around_pods_without_a_hash_gets_a_baseline_and_no_hash() {
    let review = review_of(None, web().lists("a").image("1"), None);
    let orphan = replica_set(web().image("1"), 1, None);
    let (answer, object) = settled(&review, Some(&[orphan]), "1").unwrap();
    assert_eq!(template_hash(&object), None);
    assert_baseline(&object, "", "1");
    assert_eq!(
        (answer.outcome, answer.warnings.len()),
        (Outcome::Unchanged, 0)
    );
    // Only ReplicaSets know the baseline that the workload had: the content has changed since.
    let last = web()
        .annotation("baseline", &format!("={}", hash("0")))
        .image("1");
    let (_, object) = settled(&review, Some(&[replica_set(last, 1, None)]), "1").unwrap();
    assert_baseline(&object, "", "0");
    assert_eq!(template_hash(&object), None);
}

#[test]
fn a_workload_around_pods_with_a_hash_gets_theirs() {
    let review = review_of(None, web().lists("a").image("1"), None);
    let around = |value: &str| {
        let orphan = replica_set(web().stamped(value).image("1"), 3, None);
        let older = replica_set(web().stamped(&hash("9")).image("1"), 2, None);
        settled(&review, Some(&[orphan, older]), "1").unwrap().1
    };
    assert_eq!(template_hash(&around(&hash("1"))), Some(&*hash("1")));
    // The content has changed: the loop restarts the pods, when it may.
    let object = around(&hash("0"));
    assert_eq!(
        (template_hash(&object), annotation(&object, "baseline")),
        (Some(&*hash("0")), None)
    );
    // Made under another key, or by something else: it stands for what there is.
    let objects = objects(&[("a", holding("1"))]);
    let foreign = hashed_by(7, &objects);
    let object = around(&foreign);
    assert_eq!(template_hash(&object), Some(&*foreign));
    assert_baseline(&object, &foreign, "1");
}

#[test]
fn a_workload_around_its_pods_is_held_as_it_was() {
    let review = review_of(
        None,
        web().lists("a").annotation("stage", "2").image("1"),
        None,
    );
    let had = web()
        .lists("b")
        .annotation("auto", "true")
        .annotation("stage", "1");
    let had = had
        .annotation("hold", "true")
        .stamped(&hash("1"))
        .image("1");
    let (answer, object) = settled(&review, Some(&[replica_set(had, 1, None)]), "1").unwrap();
    let of = |key| annotation(&object, key);
    assert_eq!((of("hold"), of("stage")), (Some("true"), Some("2")));
    // What is tracked is what the new manifest says.
    assert_eq!((of("configmaps"), of("auto")), (Some("a"), None));
    assert!(
        answer.warnings[0].contains("/hold stays as before"),
        "{:?}",
        answer.warnings
    );
}

#[test]
fn the_pods_with_the_hash_of_the_manifest_are_taken_over() {
    let review = review_of(None, web().lists("a").stamped(&hash("0")).image("1"), None);
    let revisions =
        ["5", "0"].map(|value| replica_set(web().stamped(&hash(value)).image("1"), 1, None));
    let (_, object) = settled(&review, Some(&revisions), "1").unwrap();
    assert_eq!(template_hash(&object), Some(&*hash("0")));
}

#[test]
fn the_newest_pods_are_taken_over_even_by_a_manifest_with_an_earlier_hash() {
    let review = review_of(None, web().lists("a").stamped(&hash("0")).image("1"), None);
    let set =
        |value: &str, number| replica_set(web().stamped(&hash(value)).image("1"), number, None);
    for revisions in [[set("0", 1), set("5", 2)], [set("5", 2), set("0", 1)]] {
        let (_, object) = settled(&review, Some(&revisions), "1").unwrap();
        assert_eq!(template_hash(&object), Some(&*hash("5")));
    }
}

#[test]
fn a_manifest_of_an_earlier_template_is_a_change_and_gets_the_current_hash() {
    let review = review_of(None, web().lists("a").image("1"), None);
    let set = |image: &str, number| {
        let had = web().annotation("hold", "true").stamped(&hash("0"));
        replica_set(had.image(image), number, None)
    };
    for revisions in [[set("1", 1), set("2", 2)], [set("2", 2), set("1", 1)]] {
        let (answer, object) = settled(&review, Some(&revisions), "1").unwrap();
        assert_eq!(
            (template_hash(&object), answer.outcome),
            (Some(&*hash("1")), Outcome::Set)
        );
        assert_eq!(annotation(&object, "hold"), None);
    }
}

#[test]
fn a_manifest_has_no_hash_that_its_running_pods_do_not_have() {
    let review = review_of(None, web().lists("a").stamped(&hash("1")).image("1"), None);
    let orphan = replica_set(web().image("1"), 1, None);
    let (_, object) = settled(&review, Some(&[orphan]), "1").unwrap();
    assert_eq!(template_hash(&object), None);
    assert_baseline(&object, "", "1");
}

#[test]
fn what_is_noted_of_the_pods_counts_and_not_what_an_old_manifest_says_of_them() {
    let baseline = |content: &str| format!("={}", hash(content));
    let manifest = web()
        .lists("a")
        .annotation("baseline", &baseline("0"))
        .image("1");
    let review = review_of(None, manifest, None);
    let had = web()
        .annotation("baseline", &baseline("1"))
        .annotation("undone", "a=a-0123456789")
        .image("1");
    let orphan = replica_set(had, 1, None);
    let (answer, object) = settled(&review, Some(&[orphan]), "1").unwrap();
    assert_eq!(annotation(&object, "baseline"), Some(&*baseline("1")));
    assert_eq!(annotation(&object, "undone"), Some("a=a-0123456789"));
    assert_eq!(answer.warnings, [""; 0]);
}

#[test]
fn pods_with_a_hash_of_sap_are_taken_over_with_a_baseline() {
    // It covers UIDs and resource versions, so after a restore it is never right.
    let sap = "ab".repeat(32);
    let review = review_of(None, web().lists("a").stamped(&sap).image("1"), None);
    let orphan = replica_set(web().stamped(&sap).image("1"), 1, None);
    let (_, object) = settled(&review, Some(&[orphan]), "1").unwrap();
    assert_eq!(template_hash(&object), Some(&*sap));
    assert_baseline(&object, &sap, "1");
}

#[test]
fn pods_of_another_template_or_owner_are_not_taken_over() {
    let review = review_of(None, web().lists("a").image("1"), None);
    let another = replica_set(web().image("2"), 1, None);
    let owned = replica_set(web().image("1"), 1, Some("uid-2"));
    for revisions in [None, Some(vec![]), Some(vec![another, owned])] {
        let (answer, object) = settled(&review, revisions.as_deref(), "1").unwrap();
        assert_eq!(
            (template_hash(&object), answer.outcome),
            (Some(&*hash("1")), Outcome::Set)
        );
    }
}

#[test]
fn a_controller_revision_has_its_template_in_another_order_and_with_a_directive() {
    let template = r#"{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"image":"1","name":"main"}],"volumes":[]}}"#;
    let object = format!(
        r#"{{"metadata":{{"name":"web-1","namespace":"ns"}},"revision":2,"data":{{"spec":{{"template":{template}}}}}}}"#
    );
    let object: ControllerRevision = serde_json::from_str(&object).unwrap();
    let orphan = object.remains();
    for kind in ["StatefulSet", "DaemonSet"] {
        let mut review = review_of(None, web().lists("a").image("1"), None);
        review["request"]["kind"]["kind"] = json!(kind);
        let (_, object) = settled(&review, Some(std::slice::from_ref(&orphan)), "1").unwrap();
        assert_eq!(template_hash(&object), None, "{kind}");
        assert_baseline(&object, "", "1");
    }
}
