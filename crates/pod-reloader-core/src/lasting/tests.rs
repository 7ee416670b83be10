use serde_json::{Map, Value, json};

use super::*;
use crate::annotations::{FIELD_MANAGER, PLUGIN};
use crate::dialect::Dialect;
use crate::dialects::Dialects;
use crate::fixtures::{Builder, deployment};
use crate::name::Name;
use crate::object::WorkloadObject;
use crate::scope::Labels;

const HOLD: &str = "pod-reloader.cs.sap.com/hold";
const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";
const STAKATER_AUTO: &str = "reloader.stakater.com/auto";
const STACKABLE: &str = "restarter.stackable.tech/enabled";

fn scope() -> Scope {
    let dialects = Dialects {
        spoken: Dialect::ALL.into(),
        ..Dialects::default()
    };
    let operator = Name::parse("operator").unwrap();
    Scope::new([], operator).with(Labels::default(), dialects)
}

fn object(builder: Builder) -> WorkloadObject {
    serde_json::from_value(builder.json()).unwrap()
}

/// Returns an entry of the managed fields: this manager has set these keys below `f:annotations` or `f:labels`.
fn entry(manager: &str, parent: &str, keys: &[&str]) -> Value {
    let fields = keys.iter().map(|key| (format!("f:{key}"), json!({})));
    let fields: Map<_, _> = fields.collect();
    json!({"manager": manager, "operation": "Update", "fieldsV1": {"f:metadata": {parent: fields}}})
}

/// Returns the keys of a workload that outlive it, if these are its managed fields.
fn lasting(builder: Builder, managed_fields: &[Value]) -> Vec<String> {
    let builder = builder.with("/metadata/managedFields", json!(managed_fields));
    let lasting = Lasting::of(&object(builder), &scope());
    let keys = lasting.iter().flat_map(Lasting::keys);
    keys.map(ToOwned::to_owned).collect()
}

/// Returns the keys that outlive a workload which has a hold, set by these managers.
fn of_hold(managers: &[&str]) -> Vec<String> {
    let created = entry("kubectl-create", "f:annotations", &["note"]);
    let set = managers.iter();
    let set = set.map(|manager| entry(manager, "f:annotations", &[HOLD]));
    let managed_fields: Vec<_> = [created].into_iter().chain(set).collect();
    let builder = deployment("web")
        .annotation("hold", "true")
        .annotated("note", "x");
    lasting(builder, &managed_fields)
}

#[test]
fn what_people_set_by_hand_outlives_its_workload() {
    for manager in [
        "kubectl-annotate",
        "kubectl-label",
        "kubectl-edit",
        "kubectl-patch",
        PLUGIN,
    ] {
        assert_eq!(of_hold(&[manager]), [HOLD], "{manager}");
    }
}

#[test]
fn what_we_have_put_back_outlives_its_workload_again() {
    assert_eq!(of_hold(&[FIELD_MANAGER]), [HOLD]);
    // An admission has added it, so nobody has set it.
    assert_eq!(of_hold(&[]), [HOLD]);
}

#[test]
fn what_stands_in_a_manifest_goes_with_it() {
    for manager in [
        "kubectl-create",
        "kubectl-client-side-apply",
        "argocd-controller",
        "helm",
        "kustomize-controller",
        "node-fetch",
    ] {
        assert!(of_hold(&[manager]).is_empty(), "{manager}");
        let both = [manager, "kubectl-annotate"];
        assert!(of_hold(&both).is_empty(), "{manager}");
    }
}

#[test]
fn without_managed_fields_nobody_knows_who_has_set_anything() {
    let builder = deployment("web").annotation("hold", "true");
    assert_eq!(Lasting::of(&object(builder), &scope()), None);
}

#[test]
fn settings_of_other_dialects_and_labels_outlive_their_workload() {
    let builder = deployment("web")
        .annotated(STAKATER_AUTO, "true")
        .annotated("note", "x")
        .annotation("baseline", "a=b")
        .label("ignored", "true")
        .with("/metadata/labels/team", json!("shop"));
    let mut builder = builder.json();
    builder["metadata"]["labels"][STACKABLE] = json!("true");
    let keys = [
        STAKATER_AUTO,
        "note",
        "pod-reloader.cs.sap.com/baseline",
        "team",
    ];
    let managed_fields = [
        entry("kubectl-annotate", "f:annotations", &keys),
        entry("kubectl-label", "f:labels", &[IGNORED, STACKABLE, "team"]),
    ];
    let kept = lasting(Builder::from(builder), &managed_fields);
    assert_eq!(kept, [STAKATER_AUTO, IGNORED, STACKABLE]);
}

#[test]
fn too_many_settings_and_too_large_ones_go() {
    let by_hand = entry("kubectl-annotate", "f:annotations", &[HOLD]);
    let prefix = "restarter.stackable.tech/ignore-configmap.";
    let with = |count: usize| {
        let held = deployment("web").annotation("hold", "true");
        let others = 0..count - 1;
        others.fold(held, |builder, number| {
            builder.annotated(&format!("{prefix}{number}"), "a")
        })
    };
    let managed_fields = [by_hand];
    let kept = |builder| lasting(builder, &managed_fields).len();
    assert_eq!(kept(with(MAX_SETTINGS)), MAX_SETTINGS);
    assert_eq!(kept(with(MAX_SETTINGS + 1)), 0);
    let sized = |size: usize| deployment("web").annotation("hold", &"x".repeat(size - HOLD.len()));
    assert_eq!(kept(sized(MAX_SIZE)), 1);
    assert_eq!(kept(sized(MAX_SIZE + 1)), 0);
}

#[test]
fn managed_fields_that_take_long_to_read_say_nothing() {
    let by_hand = entry("kubectl-annotate", "f:annotations", &[HOLD, STAKATER_AUTO]);
    let kept = |length: usize, settings: &[&str]| {
        let long = "x".repeat(length);
        let long = entry("node-fetch", "f:annotations", &[long.as_str()]);
        let set = settings.iter();
        let web = set.fold(deployment("web"), |web, key| web.annotated(key, "true"));
        lasting(web, &[by_hand.clone(), long]).len()
    };
    assert_eq!(kept(MAX_READ / 2, &[HOLD]), 1);
    assert_eq!(kept(MAX_READ / 2, &[HOLD, STAKATER_AUTO]), 0);
    assert_eq!(kept(MAX_READ / 2 - 1000, &[HOLD, STAKATER_AUTO]), 2);
}

fn held() -> Lasting {
    let setting = |place, key: &str| Setting {
        place,
        key: key.into(),
        value: "true".into(),
    };
    Lasting(vec![
        setting(Place::Annotation, HOLD),
        setting(Place::Label, IGNORED),
    ])
}

#[test]
fn what_the_new_manifest_says_counts() {
    let keys = |builder| {
        let lacking = held().lacking_in(&object(builder));
        let keys = lacking.iter().flat_map(Lasting::keys);
        keys.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(deployment("web")), [HOLD, IGNORED]);
    assert_eq!(
        keys(deployment("web").annotation("hold", "false")),
        [IGNORED]
    );
    let both = deployment("web")
        .annotation("hold", "")
        .label("ignored", "false");
    assert!(keys(both).is_empty());
}

#[test]
fn the_write_adds_settings_and_touches_no_pod_template() {
    for before in [
        deployment("web"),
        deployment("web").lists("a").label("other", "x"),
    ] {
        let before = before.json();
        let workload = Builder::from(before.clone()).build();
        let patch = held().patch(&workload).unwrap();
        // The crate's test for null does not pass for an absent member.
        let is_test =
            |it: &json_patch::PatchOperation| matches!(it, json_patch::PatchOperation::Test(_));
        let (tests, adds): (Vec<_>, Vec<_>) = patch.0.into_iter().partition(is_test);
        let tested = json!(tests);
        assert_eq!(tested[0]["path"], "/metadata/uid");
        assert_eq!(tested[0]["value"], "uid-1");
        assert_eq!(tests.len(), 3, "{tested}");
        let mut after = before.clone();
        json_patch::patch(&mut after, &adds).unwrap();
        let expected = Builder::from(before)
            .annotation("hold", "true")
            .label("ignored", "true");
        assert_eq!(after, expected.json());
    }
}

#[test]
fn without_room_for_them_nothing_is_written() {
    let full = deployment("web").annotated(
        "note",
        &"x".repeat(crate::texts::MAX_ANNOTATIONS_SIZE - 1000),
    );
    assert_eq!(held().patch(&full.build()), None);
}

/// Returns true if this text between two quotation marks is a key.
fn is_key(text: &str) -> bool {
    let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || "-./".contains(letter);
    text.contains('/') && text.chars().all(is_of_key)
}

#[test]
fn the_fence_lets_every_setting_of_other_dialects_be_put_back() {
    let helpers = include_str!("../../../../charts/pod-reloader/templates/_helpers.tpl");
    let (_, helpers) = helpers.split_once("isSettingOfOthers\" -}}").unwrap();
    let (helpers, _) = helpers.split_once("nowOrBefore").unwrap();
    let dialects = Dialects {
        classes: true,
        ..scope().reading().dialects.clone()
    };
    let exact = dialects.annotation_keys().chain(dialects.label_keys());
    let exact: Vec<_> = exact.filter(|key| !key.starts_with(PREFIX)).collect();
    let labels = KEYS.iter().filter(|own| own.place == Place::Label);
    let labels: Vec<_> = labels.map(|own| own.key).collect();
    // It lets nothing else be added: a key has a slash.
    for key in helpers.split('"').filter(|text| is_key(text)) {
        assert!(exact.contains(&key) || labels.contains(&key), "{key}");
    }
    let exact = exact.iter().chain(&labels);
    let exact = exact.map(|key| format!("\"{key}\""));
    let prefixes = dialects.annotation_prefixes();
    let prefixes = prefixes.map(|prefix| format!("key.startsWith('{prefix}')"));
    for text in exact.chain(prefixes) {
        assert!(helpers.contains(&text), "{text}");
    }
}
