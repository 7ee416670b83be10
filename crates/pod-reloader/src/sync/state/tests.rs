//! What is to be done, as more and more becomes known.

use std::collections::BTreeSet;

use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::TargetMetadata;
use serde_json::{Value, json};

use super::*;

pub(in crate::sync) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

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
    let metadata = json!({
        "annotations": {"pod-reloader.github.io/copy-of": format!("platform/pull@{namespace}")},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ClusterConfigSync", "name": owner, "uid": format!("uid-{owner}")}],
    });
    target(version, metadata)
}

pub(in crate::sync) fn namespaces(names: &[&str]) -> ByNamespace<NamespaceLabels> {
    let all = names
        .iter()
        .map(|it| (name(it), NamespaceLabels::default()));
    all.collect()
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
    match state.task(&(name(sync), name(namespace))) {
        Task::None => "nothing",
        Task::Delete(..) => "delete",
        Task::Write(_) => "write",
    }
}

fn status(state: &mut State, sync: &str) -> ClusterConfigSyncStatus {
    state
        .status(&name(sync), Timestamp::UNIX_EPOCH)
        .unwrap()
        .after
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
        assert!(state.status(&name("pull"), Timestamp::UNIX_EPOCH).is_none());
    };
    assert!(
        state
            .sync_seen(name("pull"), sync("pull", 1, json!({})))
            .is_empty()
    );
    nothing(&mut state);
    state.namespaces_listed(namespaces(&["a"]));
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
    let Task::Write(copying) = state.task(&(name("pull"), name("a"))) else {
        panic!("nothing is known of it yet");
    };
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
    let Task::Write(copying) = state.task(&(name("pull"), name("a"))) else {
        panic!("nothing is known of it yet");
    };
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
    let early = state.status(&name("pull"), Timestamp::UNIX_EPOCH);
    assert!(early.is_none(), "{early:?}");
    state.exact(&copying.sync, &name("a"), exact());
    assert!(state.status(&name("pull"), Timestamp::UNIX_EPOCH).is_none());
    state.exact(&copying.sync, &name("b"), exact());
    let later = Timestamp::from_second(60).unwrap();
    let change = state.status(&name("pull"), later).unwrap();
    assert_eq!(change.before, Some(written));
    assert_eq!(change.before, Some(change.after));
}
