//! The loop's patch applies to the workload that it was made from, and to none that differs in what it tests.

use pod_reloader_core::annotations::{self, KEYS, Place};
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::patch::{Stamp, set_baseline, stamp};
use pod_reloader_core::scope::{Labels, Scope};

use pod_reloader_core::object::WorkloadObject;
use pod_reloader_core::workload::Workload;
use serde_json::{Value, json};

use crate::choices::Choices;
use crate::object::{baseline, config_hash, member, patched, without_ours, workload};

pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let decided_from = workload(&mut choices);
    let read = read(&decided_from);
    let key = stamp(&read, &Stamp::of("new"));
    let after = patched(&decided_from, &key).expect("it applies to what it was decided from");
    assert_eq!(config_hash(&after), Some("new"));
    assert_eq!(baseline(&after), baseline(&decided_from));
    assert_eq!(without_ours(&after), without_ours(&decided_from));

    let other_baseline = set_baseline(&read, "old=new");
    let after =
        patched(&decided_from, &other_baseline).expect("it applies to what it was decided from");
    assert_eq!(baseline(&after), Some("old=new"));
    assert_eq!(config_hash(&after), config_hash(&decided_from));
    assert_eq!(without_ours(&after), without_ours(&decided_from));

    let mut other = decided_from.clone();
    while !choices.is_empty() {
        change(&mut other, &mut choices);
        for patch in [&key, &other_baseline] {
            if let Ok(after) = patched(&other, patch) {
                assert_eq!(tested(&decided_from), tested(&other));
                assert_eq!(without_ours(&after), without_ours(&other));
            }
        }
    }
}

/// Reads an object like the operator does, with a label selector.
fn read(object: &Value) -> Workload {
    let labels = Labels {
        workload: Some(
            [kube_core::Expression::Exists(TEAM.to_owned())]
                .into_iter()
                .collect(),
        ),
        ..Labels::default()
    };
    let scope = Scope::new([], Name::parse("operator").expect("it is a name"));
    let scope = scope.with(labels, Dialects::default());
    let object: WorkloadObject = serde_json::from_value(object.clone()).expect("it is a workload");
    scope
        .read(WorkloadKind::DEPLOYMENT, object)
        .expect("it has a namespace")
}

/// Returns everything that the decision depends on.
fn tested(object: &Value) -> Vec<Option<&Value>> {
    let label = |key| ["metadata", "labels", key];
    let annotation = |key| ["metadata", "annotations", key];
    let of_the_user = KEYS
        .iter()
        .filter(|it| it.place == Place::Annotation && !it.is_ours && !it.is_timing);
    let read: Vec<_> = of_the_user.map(|it| annotation(it.key).to_vec()).collect();
    let paths = [
        vec!["metadata", "uid"],
        vec!["metadata", "generation"],
        label(annotations::IGNORED).into(),
        label(annotations::DISABLED).into(),
        label(TEAM).into(),
        vec![
            "spec",
            "template",
            "metadata",
            "annotations",
            annotations::CONFIG_HASH,
        ],
    ];
    paths
        .iter()
        .chain(&read)
        .map(|path| path.iter().try_fold(object, |value, name| value.get(name)))
        .map(|value| value.filter(|value| !value.is_null()))
        .collect()
}

fn change(object: &mut Value, choices: &mut Choices<'_>) {
    let (path, names) = choices.one(&PLACES);
    let value = choices
        .one(&[
            json!("x"),
            json!("a"),
            json!(4),
            json!(null),
            json!({}),
            json!("true"),
        ])
        .clone();
    let Some(members) = member(object, path) else {
        return;
    };
    let name = *choices.one(names);
    if choices.flag() {
        members.remove(name);
    } else {
        members.insert(name.to_owned(), value);
    }
}

type Member = (&'static [&'static str], &'static [&'static str]);

const PLACES: [Member; 6] = [
    (
        &["metadata"],
        &[
            "uid",
            "generation",
            "annotations",
            "labels",
            "resourceVersion",
        ],
    ),
    (
        &["metadata", "annotations"],
        &[
            annotations::CONFIG_MAPS,
            annotations::SECRETS,
            annotations::AUTO,
            annotations::EXCLUDE_CONFIG_MAPS,
            annotations::EXCLUDE_SECRETS,
            annotations::PER_KEY,
            annotations::RESTART,
            annotations::RESTART_ON,
            annotations::STAGED,
            annotations::STAGE,
            annotations::SOAK,
            annotations::DEADLINE,
            annotations::HOLD,
            annotations::RESTART_WINDOW,
            annotations::APPROVAL,
            annotations::APPROVE,
            annotations::SETTLE_PERIOD,
            annotations::BASELINE,
            "other",
        ],
    ),
    (
        &["metadata", "labels"],
        &[annotations::IGNORED, annotations::DISABLED, TEAM, "other"],
    ),
    (&["spec", "template"], &["metadata", "spec"]),
    (
        &["spec", "template", "metadata"],
        &["annotations", "labels"],
    ),
    (
        &["spec", "template", "metadata", "annotations"],
        &[annotations::CONFIG_HASH, "other"],
    ),
];

const TEAM: &str = "team";
