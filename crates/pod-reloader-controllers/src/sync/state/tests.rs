//! What is to be done, as more and more becomes known.

use std::collections::BTreeSet;

use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::{NamespaceMetadata, TargetMetadata};
use pod_reloader_core::hash::HashKey;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::seal::{Claim, Purpose, SEAL};
use serde_json::{Value, json};

use super::*;
use crate::mock::name;

pub(in crate::sync) fn key_of_pull() -> Key {
    (ConfigKind::Secret, name("pull"))
}

/// Returns ClusterConfigSync `NAME` of Secret `platform/pull`, created on this day, with some fields of its own.
pub(in crate::sync) fn sync(name: &str, day: u8, fields: Value) -> ClusterConfigSync {
    let mut object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "ClusterConfigSync",
        "metadata": {
            "name": name,
            "uid": format!("uid-{name}"),
            "generation": 1,
            "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z"),
        },
        "spec": {
            "source": {"kind": "Secret", "namespace": "platform", "name": "pull"},
            "namespaceSelector": {},
        },
    });
    json_patch::merge(&mut object, &fields);
    serde_json::from_value(object).unwrap()
}

/// Returns a keyring of keys that consist of these bytes.
pub(in crate::sync) fn keyring(bytes: &[u8]) -> Arc<Keyring> {
    let keys = bytes.iter().map(|byte| HashKey::new([*byte; 32]));
    Arc::new(Keyring::new(keys.collect()).unwrap())
}

fn target(version: &str, metadata: Value) -> Target {
    let mut object = json!({"metadata": {"name": "pull", "uid": "u", "resourceVersion": version}});
    json_patch::merge(&mut object, &json!({"metadata": metadata}));
    let object: TargetMetadata = serde_json::from_value(object).unwrap();
    object.into()
}

/// Returns a copy in a namespace that `owner` has made.
fn copy_in(namespace: &str, owner: &str) -> Target {
    copy_of_version("7", namespace, owner)
}

fn copy_of_version(version: &str, namespace: &str, owner: &str) -> Target {
    let mark = format!("platform/pull@{namespace}");
    let copy = Reference {
        kind: ConfigKind::Secret,
        namespace: name(namespace),
        name: name("pull"),
    };
    let claim = Claim {
        purpose: Purpose::Sync,
        object: &copy,
        of: &mark,
    };
    let mut metadata = unsealed(namespace, owner);
    metadata["annotations"][SEAL] = keyring(&[1]).seal(&claim).into();
    target(version, metadata)
}

/// Returns the metadata of a copy that an earlier version has made, or of something that looks like it.
fn unsealed(namespace: &str, owner: &str) -> Value {
    json!({
        "annotations": {"pod-reloader.cs.sap.com/copy-of": format!("platform/pull@{namespace}")},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ClusterConfigSync", "name": owner, "uid": format!("uid-{owner}")}],
    })
}

pub(in crate::sync) fn namespaces(names: &[&str]) -> ByNamespace<NamespaceLabels> {
    let all = names.iter().map(|it| (name(it), namespace(it, "1")));
    all.collect()
}

/// Returns a Namespace, which has a UID for each time that it is made.
fn namespace(name: &str, time: &str) -> NamespaceLabels {
    let labels = json!({"kubernetes.io/metadata.name": name});
    let metadata = json!({"name": name, "uid": format!("{name}-{time}"), "labels": labels});
    let object: NamespaceMetadata = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    object.labels()
}

/// Returns a state in which everything has been listed: namespaces `a` and `b`, the source, and these objects.
fn listed(syncs: &[ClusterConfigSync], targets: &[(&str, Target)]) -> State {
    let mut state = State::new(name("operator"));
    for sync in syncs {
        state.sync_seen(name(sync.metadata.name.as_deref().unwrap()), sync.clone());
    }
    state.namespaces_listed(namespaces(&["a", "b", "platform", "operator"]));
    let source = ("platform", target("1", json!({})));
    let all = targets.iter().cloned().chain([source]);
    let all = all.map(|(namespace, target)| (name(namespace), target));
    state.targets_listed(&key_of_pull(), all.collect());
    state
}

fn shown(places: Vec<Place>) -> Vec<String> {
    let all = places
        .iter()
        .map(|(sync, namespace)| format!("{sync} in {namespace}"));
    let all: BTreeSet<_> = all.collect();
    all.into_iter().collect()
}

/// Returns what is to be done in a namespace, in a word.
fn task(state: &mut State, sync: &str, namespace: &str) -> &'static str {
    match state.task(&(name(sync), name(namespace)), &keyring(&[1])) {
        Task::None => "nothing",
        Task::Delete(..) => "delete",
        Task::Write(_) => "write",
    }
}

fn status(state: &mut State, sync: &str) -> ClusterConfigSyncStatus {
    let now = Timestamp::UNIX_EPOCH;
    let change = state.status(&name(sync), now, &keyring(&[1]));
    change.unwrap().after
}

/// Returns what is to be written to a copy that is not exact.
fn copying(state: &mut State, sync: &str, namespace: &str, keys: &[u8]) -> Box<Copying> {
    match state.task(&(name(sync), name(namespace)), &keyring(keys)) {
        Task::Write(copying) => copying,
        _ => panic!("{sync} in {namespace}: it is to be written"),
    }
}

fn reasons(state: &mut State, sync: &str) -> Vec<(String, String)> {
    let conflicts = status(state, sync).conflicts.into_iter();
    conflicts.map(|it| (it.namespace, it.reason)).collect()
}

#[test]
fn nothing_is_done_before_everything_is_known() {
    let mut state = State::new(name("operator"));
    let nothing = |state: &mut State| {
        assert_eq!(task(state, "pull", "a"), "nothing");
        let status = state.status(&name("pull"), Timestamp::UNIX_EPOCH, &keyring(&[1]));
        assert!(status.is_none());
    };
    assert!(
        state
            .sync_seen(name("pull"), sync("pull", 1, json!({})))
            .is_empty()
    );
    nothing(&mut state);
    state.namespaces_listed(namespaces(&["a", "platform"]));
    nothing(&mut state);
    let source = ByNamespace::from_iter([(name("platform"), target("1", json!({})))]);
    let places = state.targets_listed(&key_of_pull(), source);
    assert_eq!(shown(places), ["pull in a", "pull in platform"]);
    assert_eq!(task(&mut state, "pull", "a"), "write");
    assert_eq!(task(&mut state, "pull", "platform"), "nothing");
}

#[test]
fn all_that_is_selected_is_counted_from_the_start() {
    let mut state = listed(&[sync("pull", 1, json!({}))], &[]);
    let first = status(&mut state, "pull");
    assert_eq!((first.selected, first.synced), (2, 0));
    assert_eq!(first.conditions[0].reason, "Syncing");
}

#[test]
fn a_copy_that_is_known_to_be_exact_is_left_alone_until_it_or_the_source_changes() {
    let mut state = listed(
        &[sync("pull", 1, json!({}))],
        &[("a", copy_in("a", "pull"))],
    );
    let copying = copying(&mut state, "pull", "a", &[1]);
    let digest = [1; 16];
    state.read(&copying.sync, Ok(("1".into(), digest)));
    let exact = Exact {
        version: "7".into(),
        digest,
    };
    state.exact(&copying.sync, &name("a"), exact);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    assert_eq!(status(&mut state, "pull").synced, 1);

    let edited = copy_of_version("8", "a", "pull");
    let places = state.target_seen(&key_of_pull(), &name("a"), Some(edited));
    assert_eq!(shown(places), ["pull in a"]);
    assert_eq!(task(&mut state, "pull", "a"), "write");
    let places = state.target_seen(&key_of_pull(), &name("a"), Some(copy_in("a", "pull")));
    assert_eq!(
        (shown(places).len(), task(&mut state, "pull", "a")),
        (1, "nothing")
    );

    let changed = Some(target("2", json!({})));
    let places = state.target_seen(&key_of_pull(), &name("platform"), changed);
    assert_eq!(
        shown(places),
        ["pull in a", "pull in b", "pull in platform"]
    );
    assert_eq!(
        status(&mut state, "pull").synced,
        0,
        "it has the earlier content"
    );
    assert_eq!(task(&mut state, "pull", "a"), "write");
}

#[test]
fn an_object_of_somebody_else_is_left_alone_and_followed_once_it_goes() {
    let foreign = target("3", json!({}));
    let mut state = listed(&[sync("pull", 1, json!({}))], &[("a", foreign)]);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    let expected = ("a".to_owned(), "ExistsNotOurs".to_owned());
    assert_eq!(reasons(&mut state, "pull"), [expected]);
    let places = state.target_seen(&key_of_pull(), &name("a"), None);
    assert_eq!(shown(places), ["pull in a"]);
    assert_eq!(task(&mut state, "pull", "a"), "write");
}

#[test]
fn a_copy_goes_where_it_is_no_longer_wanted_and_stays_while_nobody_knows() {
    let syncs = [sync("pull", 1, json!({}))];
    let mut state = listed(&syncs, &[("a", copy_in("a", "pull"))]);
    let selector = json!({"matchLabels": {"kind": "none"}});
    let narrower = json!({"metadata": {"generation": 2}, "spec": {"namespaceSelector": selector}});
    let places = state.sync_seen(name("pull"), sync("pull", 1, narrower));
    assert_eq!(
        shown(places),
        ["pull in a", "pull in b", "pull in platform"]
    );
    assert_eq!(task(&mut state, "pull", "a"), "delete");
    assert_eq!(task(&mut state, "pull", "b"), "nothing");
    assert_eq!(status(&mut state, "pull").selected, 0);
    state.sync_gone(&name("pull"));
    assert_eq!(
        task(&mut state, "pull", "a"),
        "nothing",
        "the garbage collector deletes it"
    );
}

#[test]
fn copies_stay_when_the_source_is_gone() {
    let syncs = [sync("pull", 1, json!({}))];
    let mut state = listed(&syncs, &[("a", copy_in("a", "pull"))]);
    let places = state.target_seen(&key_of_pull(), &name("platform"), None);
    assert_eq!(shown(places), ["pull in a", "pull in b"]);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    assert_eq!(
        status(&mut state, "pull").conditions[0].reason,
        "SourceNotFound"
    );
    state.target_seen(
        &key_of_pull(),
        &name("platform"),
        Some(target("9", json!({}))),
    );
    assert_eq!(task(&mut state, "pull", "a"), "write");
}

#[test]
fn of_two_with_one_name_the_older_has_the_namespace_and_the_newer_follows_it() {
    let both = [sync("newer", 2, json!({})), sync("older", 1, json!({}))];
    let mut state = listed(&both, &[("a", copy_in("a", "newer"))]);
    assert_eq!(
        task(&mut state, "newer", "a"),
        "nothing",
        "the older takes it over"
    );
    assert_eq!(task(&mut state, "newer", "b"), "nothing");
    assert_eq!(task(&mut state, "older", "a"), "write");
    let expected = ["a", "b"].map(|it| (it.to_owned(), "OtherSync".to_owned()));
    assert_eq!(reasons(&mut state, "newer"), expected);
    let places = state.sync_gone(&name("older"));
    assert_eq!(
        shown(places),
        ["newer in a", "newer in b", "newer in platform"]
    );
    assert_eq!(task(&mut state, "newer", "a"), "write");
}

#[test]
fn a_namespace_that_the_older_gives_up_passes_to_the_newer_with_its_copy() {
    let both = [sync("newer", 2, json!({})), sync("older", 1, json!({}))];
    let mut state = listed(&both, &[("a", copy_in("a", "older"))]);
    let selector = json!({"matchLabels": {"kind": "none"}});
    let narrower = json!({"metadata": {"generation": 2}, "spec": {"namespaceSelector": selector}});
    let places = state.sync_seen(name("older"), sync("older", 1, narrower));
    assert!(shown(places).contains(&"newer in a".to_owned()));
    assert_eq!(task(&mut state, "older", "a"), "nothing");
    assert_eq!(task(&mut state, "newer", "a"), "write");
}

#[test]
fn a_copy_with_the_name_and_another_source_is_deleted_for_the_older() {
    let other = json!({"spec": {"source": {"namespace": "b"}}});
    let both = [sync("newer", 2, json!({})), sync("older", 1, other)];
    let mut state = listed(&both, &[("a", copy_in("a", "newer"))]);
    assert_eq!(task(&mut state, "newer", "a"), "delete");
    assert_eq!(
        reasons(&mut state, "older"),
        [],
        "nothing has been looked at"
    );
}

#[test]
fn a_namespace_that_is_gone_or_about_to_be_has_no_copy() {
    let mut state = listed(
        &[sync("pull", 1, json!({}))],
        &[("a", copy_in("a", "pull"))],
    );
    let mut terminating = NamespaceLabels::default();
    terminating.is_terminating = true;
    assert_eq!(
        shown(state.namespace_seen(&name("a"), Some(terminating))),
        ["pull in a"]
    );
    assert_eq!(
        task(&mut state, "pull", "a"),
        "nothing",
        "it goes with its namespace"
    );
    assert_eq!(status(&mut state, "pull").selected, 1);
    state.namespace_seen(&name("b"), None);
    assert_eq!(task(&mut state, "pull", "b"), "nothing");
    assert_eq!(status(&mut state, "pull").selected, 0);
}

#[test]
fn a_list_that_says_nothing_new_leads_to_nothing() {
    let mut state = listed(&[sync("pull", 1, json!({}))], &[]);
    let again = namespaces(&["a", "b", "platform", "operator"]);
    assert_eq!(shown(state.namespaces_listed(again)), [] as [&str; 0]);
    let targets = ByNamespace::from_iter([(name("platform"), target("1", json!({})))]);
    assert_eq!(
        shown(state.targets_listed(&key_of_pull(), targets)),
        [] as [&str; 0]
    );
    let again = sync("pull", 1, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(shown(state.sync_seen(name("pull"), again)), [] as [&str; 0]);
    let fewer = namespaces(&["a", "platform", "operator"]);
    assert_eq!(shown(state.namespaces_listed(fewer)), ["pull in b"]);
}

#[test]
fn a_spec_that_cannot_be_worked_with_is_said_and_changes_nothing() {
    let syncs = [sync("pull", 1, json!({}))];
    let mut state = listed(&syncs, &[("a", copy_in("a", "pull"))]);
    let wrong = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let wrong = json!({"metadata": {"generation": 2}, "spec": {"namespaceSelector": wrong}});
    state.sync_seen(name("pull"), sync("pull", 1, wrong));
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    assert_eq!(
        status(&mut state, "pull").conditions[0].reason,
        "InvalidSpec"
    );
}

#[test]
fn a_new_leader_says_nothing_new_before_it_has_looked_at_every_copy() {
    let mut state = listed(&[sync("pull", 1, json!({}))], &[]);
    let copying = copying(&mut state, "pull", "a", &[1]);
    let exact = || Exact {
        version: "7".into(),
        digest: [1; 16],
    };
    state.exact(&copying.sync, &name("a"), exact());
    state.exact(&copying.sync, &name("b"), exact());
    let written = status(&mut state, "pull");
    assert_eq!(written.conditions[0].status, "True");

    let with_status = ClusterConfigSync {
        status: Some(written.clone()),
        ..sync("pull", 1, json!({}))
    };
    let mut state = listed(&[with_status], &[]);
    let status = |state: &mut State, now| state.status(&name("pull"), now, &keyring(&[1]));
    let early = status(&mut state, Timestamp::UNIX_EPOCH);
    assert!(early.is_none(), "{early:?}");
    state.exact(&copying.sync, &name("a"), exact());
    assert!(status(&mut state, Timestamp::UNIX_EPOCH).is_none());
    state.exact(&copying.sync, &name("b"), exact());
    let later = Timestamp::from_second(60).unwrap();
    let change = status(&mut state, later).unwrap();
    assert_eq!(change.after, written);
    assert!(change.before.unwrap().is(&written));
}

/// Returns fields of a ClusterConfigSync that an earlier version has looked after.
fn of_earlier_version() -> Value {
    json!({"status": {"observedGeneration": 1}})
}

#[test]
fn an_object_that_somebody_gives_the_owner_or_the_mark_of_a_copy_is_never_deleted() {
    let selector = json!({"matchLabels": {"kind": "none"}});
    let nowhere = sync("pull", 1, json!({"spec": {"namespaceSelector": selector}}));
    let mut owned = unsealed("a", "pull");
    owned["annotations"] = json!(null);
    let mut replayed = unsealed("a", "pull");
    replayed["annotations"][SEAL] = copy_in("b", "pull").seal().unwrap().into();
    for forged in [owned, unsealed("a", "pull"), replayed] {
        let forged_in_a = [("a", target("3", forged.clone()))];
        let mut state = listed(std::slice::from_ref(&nowhere), &forged_in_a);
        assert_eq!(task(&mut state, "pull", "a"), "nothing", "{forged}");
    }
    let mut state = listed(&[nowhere], &[("a", copy_in("a", "pull"))]);
    assert_eq!(task(&mut state, "pull", "a"), "delete");
}

#[test]
fn an_object_that_somebody_gives_the_owner_of_a_copy_is_a_conflict() {
    let mut owned = unsealed("a", "pull");
    owned["annotations"] = json!(null);
    let mut state = listed(&[sync("pull", 1, json!({}))], &[("a", target("3", owned))]);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    let expected = ("a".to_owned(), "ExistsNotOurs".to_owned());
    assert_eq!(reasons(&mut state, "pull"), [expected]);
}

#[test]
fn an_object_that_somebody_gives_the_mark_of_a_copy_is_looked_at_ever_more_slowly() {
    let forged = target("3", unsealed("a", "pull"));
    let mut state = listed(&[sync("pull", 1, json!({}))], &[("a", forged)]);
    let copying = copying(&mut state, "pull", "a", &[1]);
    assert!(copying.is_repair && copying.needs_seal && copying.seals.are_complete);
}

#[test]
fn with_a_new_key_an_exact_copy_gets_another_seal_and_is_exact_again() {
    let mut state = listed(
        &[sync("pull", 1, json!({}))],
        &[("a", copy_in("a", "pull"))],
    );
    let digest = [1; 16];
    let exact = Exact {
        version: "7".into(),
        digest,
    };
    let first = copying(&mut state, "pull", "a", &[1]);
    state.read(&first.sync, Ok(("1".into(), digest)));
    state.exact(&first.sync, &name("a"), exact);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    let again = copying(&mut state, "pull", "a", &[2, 1]);
    assert!(again.needs_seal && again.is_repair);
    assert!(state.all().contains(&(name("pull"), name("a"))));
}

#[test]
fn copies_of_an_earlier_version_are_taken_over_until_all_of_them_have_a_seal() {
    let old = sync("pull", 1, of_earlier_version());
    let unsealed_in = |namespace: &str| target("7", unsealed(namespace, "pull"));
    let both = [("a", unsealed_in("a")), ("b", unsealed_in("b"))];
    let mut state = listed(std::slice::from_ref(&old), &both);
    for namespace in ["a", "b"] {
        let copying = copying(&mut state, "pull", namespace, &[1]);
        assert!(!copying.seals.are_complete);
        assert!(!status(&mut state, "pull").sealed);
        let sealed = Some(copy_in(namespace, "pull"));
        state.target_seen(&key_of_pull(), &name(namespace), sealed);
    }
    // Killed here, the next leader begins where this one has ended.
    let sealed = ["a", "b"].map(|namespace| (namespace, copy_in(namespace, "pull")));
    assert!(status(&mut listed(&[old], &sealed), "pull").sealed);

    let after = status(&mut state, "pull");
    assert!(after.sealed);
    state.status_written(&name("pull"), after);
    state.target_seen(&key_of_pull(), &name("a"), Some(unsealed_in("a")));
    let copying = copying(&mut state, "pull", "a", &[1]);
    assert!(copying.seals.are_complete, "its content must be right, too");
    // A watch may bring an earlier status once more, and another spec.
    for generation in [1, 2] {
        let mut late = sync("pull", 1, of_earlier_version());
        late.metadata.generation = Some(generation);
        state.sync_seen(name("pull"), late);
        assert!(status(&mut state, "pull").sealed);
    }
}

#[test]
fn a_new_sync_trusts_no_owner_from_the_start() {
    let mut state = listed(&[sync("pull", 1, json!({}))], &[]);
    assert!(status(&mut state, "pull").sealed);
}

#[test]
fn nobody_keeps_owners_trusted_by_a_copy_that_never_goes() {
    let mut held = unsealed("a", "pull");
    held["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let old = sync("pull", 1, of_earlier_version());
    let mut state = listed(&[old], &[("a", target("7", held))]);
    assert!(status(&mut state, "pull").sealed);
}

#[test]
fn copies_stay_as_they_are_when_the_namespace_of_the_source_is_made_again() {
    let syncs = [sync("pull", 1, json!({}))];
    let mut state = listed(&syncs, &[("a", copy_in("a", "pull"))]);
    assert_eq!(task(&mut state, "pull", "a"), "write");
    let noted = status(&mut state, "pull");
    assert_eq!(noted.source_namespace_uid, "platform-1");

    // Gone, and with it the source. Then somebody else makes both again.
    state.namespace_seen(&name("platform"), None);
    assert_eq!(task(&mut state, "pull", "a"), "nothing");
    let places = state.namespace_seen(&name("platform"), Some(namespace("platform", "2")));
    assert!(shown(places).contains(&"pull in a".to_owned()));
    state.target_seen(
        &key_of_pull(),
        &name("platform"),
        Some(target("9", json!({}))),
    );
    for namespace in ["a", "b"] {
        assert_eq!(task(&mut state, "pull", namespace), "nothing");
    }
    let stopped = status(&mut state, "pull");
    assert_eq!(stopped.conditions[0].reason, "SourceNamespaceReplaced");
    assert_eq!(stopped.source_namespace_uid, "platform-1");

    // A new leader knows it from the status.
    let with_status = ClusterConfigSync {
        status: Some(stopped),
        ..syncs[0].clone()
    };
    let mut later = listed(&[], &[]);
    later.namespace_seen(&name("platform"), Some(namespace("platform", "2")));
    later.sync_seen(name("pull"), with_status);
    assert_eq!(task(&mut later, "pull", "a"), "nothing");

    // Another spec has been written by somebody who may read the source that is there now.
    let again = sync("pull", 1, json!({"metadata": {"generation": 2}}));
    state.sync_seen(name("pull"), again);
    assert_eq!(task(&mut state, "pull", "a"), "write");
    assert_eq!(
        status(&mut state, "pull").source_namespace_uid,
        "platform-2"
    );
}

#[test]
fn a_status_of_an_earlier_version_gets_the_namespace_of_the_source() {
    let mut state = listed(&[sync("pull", 1, of_earlier_version())], &[]);
    assert_eq!(task(&mut state, "pull", "a"), "write");
    assert_eq!(
        status(&mut state, "pull").source_namespace_uid,
        "platform-1"
    );
}
