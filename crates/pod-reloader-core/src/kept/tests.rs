//! Tests the rules one by one, and then whatever can happen in any order.

use serde_json::{Value, json};

use super::*;
use crate::fixtures::{keyring, name};
use crate::name::MAX_LENGTH;

fn keys() -> Keyring {
    keyring(&[1])
}

fn object() -> Reference {
    Reference::config_map(&name("shop"), &name("app-1"))
}

fn original() -> Original {
    Original::from(&Protected {
        object: object(),
        uid: "u-1".into(),
        resource_version: "7".into(),
    })
}

fn content() -> Content {
    let object = json!({
        "metadata": {
            "name": "app-1",
            "uid": "u-1",
            "resourceVersion": "7",
            "labels": {"kustomize.toolkit.fluxcd.io/name": "app"},
            "annotations": {"argocd.argoproj.io/tracking-id": "app"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "a", "uid": "b"}],
        },
        "immutable": true,
        "data": {"b": "1", "a": "ä\n"},
        "binaryData": {"c": "AA=="},
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Returns a ConfigMap of ours as a watch brings it, with some fields of its own.
fn metadata(manifest: &[u8], fields: Value) -> KeptMetadata {
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    let mut metadata = manifest["metadata"].clone();
    let more = json!({
        "namespace": "shop",
        "uid": "u-2",
        "resourceVersion": "8",
        "creationTimestamp": now().to_string(),
        "managedFields": [{"manager": "pod-reloader", "operation": "Update", "time": "10000-01-01T00:00:00Z"}],
    });
    json_patch::merge(&mut metadata, &more);
    json_patch::merge(&mut metadata, &fields);
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

fn to_store() -> Vec<u8> {
    content().to_store(&place(), &original(), &keys())
}

fn place() -> Reference {
    stored(&object(), &original(), now())
}

/// Returns the seal of a stored ConfigMap with this name and this annotation.
fn seal(name: &str, of: &str) -> String {
    let place = Reference::config_map(&self::name("shop"), &self::name(name));
    keys().seal(&claim(&place, of))
}

fn to_restore() -> Vec<u8> {
    content().to_restore(&name("app-1"))
}

fn stored_as(fields: Value) -> Kept {
    metadata(&to_store(), fields).kept(&keys()).unwrap()
}

fn restored_as(fields: Value) -> Kept {
    metadata(&to_restore(), fields).kept(&keys()).unwrap()
}

#[test]
fn what_is_stored_and_restored_has_the_content_and_nothing_else() {
    let expected = |metadata: Value, is_immutable: bool| {
        let mut manifest = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"b": "1", "a": "ä\n"},
            "binaryData": {"c": "AA=="},
        });
        if is_immutable {
            manifest["immutable"] = json!(true);
        }
        manifest
    };
    let is = |manifest: Vec<u8>| serde_json::from_slice::<Value>(&manifest).unwrap();
    let name_of_place = place().name;
    let seal = seal(name_of_place.as_str(), "app-1/u-1/7");
    let metadata = json!({
        "name": name_of_place.as_str(),
        "labels": {"pod-reloader.cs.sap.com/kept": "stored"},
        "annotations": {
            "pod-reloader.cs.sap.com/kept-object": "app-1/u-1/7",
            "pod-reloader.cs.sap.com/seal": seal,
        },
    });
    assert_eq!(is(to_store()), expected(metadata, true));
    let metadata = json!({"name": "app-1", "labels": {"pod-reloader.cs.sap.com/kept": "true"}});
    assert_eq!(
        is(content().to_restore(&name("app-1"))),
        expected(metadata, false)
    );
}

#[test]
fn an_empty_config_map_is_stored_as_one() {
    let empty = json!({"metadata": {"uid": "u-1", "resourceVersion": "7"}, "data": null});
    let empty: Content = serde_json::from_str(&empty.to_string()).unwrap();
    let manifest: Value = serde_json::from_slice(&empty.to_restore(&name("app-1"))).unwrap();
    assert_eq!(manifest.get("data"), None);
    assert!(empty.is_of(&original()));
}

#[test]
fn a_place_is_one_of_the_version_of_an_object_for_half_an_hour() {
    let at = |minutes: u64| {
        let now = now() + Duration::from_secs(minutes * 60);
        stored(&object(), &original(), now)
    };
    assert!(at(0).name.as_str().starts_with("app-1-kept-"));
    assert_eq!(at(0).name.as_str().len(), "app-1-kept-".len() + 10);
    assert_eq!(at(0), at(29));
    assert_ne!(at(0), at(30));
    for (uid, version) in [("u-1", "8"), ("u-2", "7")] {
        let other = Original {
            uid: uid.into(),
            resource_version: version.into(),
            ..original()
        };
        assert_ne!(stored(&object(), &other, now()), at(0));
    }
    for long in [
        "x".repeat(253),
        format!("{}.{}", "x".repeat(236), "y".repeat(16)),
    ] {
        let object = Reference::config_map(&name("shop"), &name(&long));
        let place = stored(&object, &original(), now()).name;
        assert!(place.as_str().len() <= MAX_LENGTH);
    }
}

/// A review that finds what an earlier one has stored relies on it.
#[test]
fn what_a_later_review_finds_is_not_dropped_for_half_an_hour() {
    let app = json!({"metadata": {"name": "app-1"}}).to_string();
    let there = json!({"uid": "u-1", "resourceVersion": "7"});
    let there = metadata(app.as_bytes(), there);
    for stored_at in (0..3600).step_by(60).map(Duration::from_secs) {
        let kept = stored_as(json!({"creationTimestamp": (now() + stored_at).to_string()}));
        for found_at in (0..3600).step_by(60).map(Duration::from_secs) {
            let places = [stored_at, found_at].map(|at| stored(&object(), &original(), now() + at));
            if found_at < stored_at || places[0] != places[1] {
                continue;
            }
            let deleted_at = now() + found_at + Duration::from_secs(30 * 60);
            let step = kept.step(&original(), Some(&there), deleted_at);
            assert_eq!(step, Step::Wait, "{stored_at:?} {found_at:?}");
        }
    }
}

#[test]
fn content_of_another_version_is_not_that_of_the_object() {
    assert!(content().is_of(&original()));
    for (uid, version) in [("u-1", "8"), ("u-2", "7")] {
        let other = Original {
            uid: uid.into(),
            resource_version: version.into(),
            ..original()
        };
        assert!(!content().is_of(&other));
    }
}

/// Returns true if the policy that guards our writes lets us delete an object with this metadata, if it is immutable.
/// This is `isKept` of templates/fence.yaml in the chart.
fn is_guarded_as_ours(metadata: &Value) -> bool {
    let size = |field: &str| metadata[field].as_object().map_or(0, |it| it.len());
    let has = |field: &str| metadata.get(field).is_some();
    let managers = metadata["managedFields"].as_array();
    let is_free = size("labels") == 1
        && !has("ownerReferences")
        && !has("finalizers")
        && managers.is_some_and(|all| all.iter().all(|it| it["manager"] == "pod-reloader"));
    let name = metadata["name"].as_str().unwrap_or_default();
    let digits = name.rsplit_once("-kept-").map_or("", |(_, digits)| digits);
    let is_digit = |it: char| matches!(it, '0'..='9' | 'a'..='f');
    is_free
        && match metadata["labels"][KEPT].as_str() {
            Some("stored") => {
                let seal = metadata["annotations"][SEAL].as_str().unwrap_or_default();
                digits.len() == 10
                    && digits.chars().all(is_digit)
                    && seal.len() == 32
                    && seal.chars().all(is_digit)
                    && metadata["annotations"].get(KEPT_OBJECT).is_some()
                    && size("annotations") == 2
            }
            Some("true") => !has("annotations"),
            _ => false,
        }
}

/// What the policy and the rule say of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The policy lets us delete it, and it is ours.
    Ours,
    /// The policy would let us delete it, but we have not made it.
    NotOurs,
    /// The policy does not let us delete it, and it is not ours.
    Guarded,
}

impl Whose {
    fn is(self, object: &KeptMetadata, manifest: &[u8], fields: &Value) {
        let mut all = serde_json::from_slice::<Value>(manifest).unwrap()["metadata"].clone();
        json_patch::merge(
            &mut all,
            &json!({"managedFields": [{"manager": "pod-reloader"}]}),
        );
        json_patch::merge(&mut all, fields);
        assert_eq!(is_guarded_as_ours(&all), self != Self::Guarded, "{fields}");
        let is_ours = object.kept(&keys()).is_some();
        assert_eq!(is_ours, self == Self::Ours, "{fields}");
    }
}

#[test]
fn whatever_the_policy_does_not_let_us_delete_is_not_ours() {
    let ours = json!({"manager": "pod-reloader"});
    let owner = json!({"apiVersion": "v1", "kind": "Any", "name": "a", "uid": "b"});
    let both = [
        (json!({}), Whose::Ours),
        (json!({"labels": {"more": "x"}}), Whose::Guarded),
        (json!({"labels": {KEPT: "other"}}), Whose::Guarded),
        (json!({"labels": null}), Whose::Guarded),
        (json!({"annotations": {"more": "x"}}), Whose::Guarded),
        (json!({"ownerReferences": [owner]}), Whose::Guarded),
        (json!({"finalizers": ["example.com/a"]}), Whose::Guarded),
        (
            json!({"managedFields": [ours, {"manager": "kustomize-controller"}]}),
            Whose::Guarded,
        ),
        (
            json!({"managedFields": [{"manager": "kubectl-edit"}]}),
            Whose::Guarded,
        ),
        (json!({"managedFields": [ours, {}]}), Whose::Guarded),
        (json!({"managedFields": null}), Whose::Guarded),
        (json!({"managedFields": []}), Whose::NotOurs),
        (json!({"uid": "u".repeat(65)}), Whose::NotOurs),
        (json!({"resourceVersion": "7".repeat(33)}), Whose::NotOurs),
    ];
    for (fields, whose) in &both {
        for manifest in [to_store(), to_restore()] {
            whose.is(&metadata(&manifest, fields.clone()), &manifest, fields);
        }
    }
    let named =
        |name: &str| json!({"name": name, "annotations": {SEAL: seal(name, "app-1/u-1/7")}});
    let of = |original: String| {
        let seal = seal(place().name.as_str(), &original);
        json!({"annotations": {KEPT_OBJECT: original, SEAL: seal}})
    };
    let sealed = |seal: Value| json!({"annotations": {SEAL: seal}});
    for (fields, whose) in [
        (named("app-1-kept-0123456789"), Whose::Ours),
        (named("app-1-kept-01234567890"), Whose::Guarded),
        (named("app-1-kept-012345678g"), Whose::Guarded),
        (named("app-1"), Whose::Guarded),
        (named("other-kept-0123456789"), Whose::NotOurs),
        (named("app-1-more-kept-0123456789"), Whose::NotOurs),
        (json!({"annotations": null}), Whose::Guarded),
        (sealed(Value::Null), Whose::Guarded),
        (sealed(json!("x")), Whose::Guarded),
        (sealed(json!("0".repeat(32))), Whose::NotOurs),
        // The seal of another object, and the one of another original.
        (json!({"name": "app-1-kept-0123456789"}), Whose::NotOurs),
        (
            json!({"annotations": {KEPT_OBJECT: "app-1/u-1/8"}}),
            Whose::NotOurs,
        ),
        (of("app-1".to_owned()), Whose::NotOurs),
        (of("A/u/7".to_owned()), Whose::NotOurs),
        (of("app-1/u/7/8".to_owned()), Whose::NotOurs),
        (of(format!("app-1/{}/7", "u".repeat(64))), Whose::Ours),
        (of(format!("app-1/{}/7", "u".repeat(65))), Whose::NotOurs),
        (of(format!("app-1/u/{}", "7".repeat(33))), Whose::NotOurs),
    ] {
        whose.is(&metadata(&to_store(), fields.clone()), &to_store(), &fields);
    }
    assert_eq!(restored_as(json!({})).role, Role::Restored);
    assert_eq!(stored_as(json!({})).role, Role::Stored(original()));
}

#[test]
fn the_place_of_an_object_with_the_longest_name_is_its_own() {
    for long in [
        "x".repeat(253),
        format!("{}.{}", "x".repeat(236), "y".repeat(16)),
    ] {
        let object = Reference::config_map(&name("shop"), &name(&long));
        let place = stored(&object, &original(), now());
        assert!(is_place(&object.name, place.name.as_str()));
    }
}

#[test]
fn a_stored_one_is_ours_as_long_as_the_key_of_its_seal_is_known() {
    let stored = metadata(&to_store(), json!({}));
    assert!(stored.kept(&keyring(&[2, 1])).is_some());
    assert!(stored.kept(&keyring(&[2])).is_none());
    assert!(!stored.is_unsealed());
}

#[test]
fn a_stored_one_of_an_earlier_version_is_known_by_all_but_its_seal() {
    let unsealed = |fields: Value| {
        let mut all = json!({"annotations": {SEAL: null}});
        json_patch::merge(&mut all, &fields);
        metadata(&to_store(), all)
    };
    assert!(unsealed(json!({})).is_unsealed());
    assert_eq!(unsealed(json!({})).kept(&keys()), None);
    for fields in [
        json!({"annotations": {"more": "x"}}),
        json!({"labels": {"more": "x"}}),
        json!({"name": "app-1"}),
        json!({"managedFields": [{"manager": "kubectl"}]}),
    ] {
        assert!(!unsealed(fields.clone()).is_unsealed(), "{fields}");
    }
    assert!(!metadata(&to_restore(), json!({})).is_unsealed());
}

#[test]
fn what_is_found_at_a_place_counts_only_if_it_is_immutable_and_stores_that_object() {
    let found = |fields: Value| {
        let mut object: Value = serde_json::from_slice(&to_store()).unwrap();
        let more = json!({"metadata": {
            "namespace": "shop", "uid": "u-2", "resourceVersion": "8",
            "managedFields": [{"manager": "pod-reloader"}],
        }});
        json_patch::merge(&mut object, &more);
        json_patch::merge(&mut object, &fields);
        serde_json::from_value::<KeptMetadata>(object).unwrap()
    };
    assert!(found(json!({})).stores(&original(), &keys()));
    for fields in [
        json!({"immutable": false}),
        json!({"immutable": null}),
        json!({"metadata": {"annotations": {SEAL: "0".repeat(32)}}}),
        json!({"metadata": {"labels": {"more": "x"}}}),
    ] {
        let found = found(fields.clone());
        assert!(!found.stores(&original(), &keys()), "{fields}");
    }
    let other = Original {
        resource_version: "8".into(),
        ..original()
    };
    assert!(!found(json!({})).stores(&other, &keys()));
}

#[test]
fn a_stored_one_waits_for_its_object_to_go_and_for_nothing_else() {
    let kept = stored_as(json!({}));
    let step = |there: Option<Value>, after: Duration| {
        let there = there.map(|fields| {
            let object = json!({"metadata": {"name": "app-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}});
            metadata(object.to_string().as_bytes(), fields)
        });
        kept.step(&original(), there.as_ref(), now() + after)
    };
    let soon = Duration::from_secs(1);
    let same = json!({"uid": "u-1", "resourceVersion": "7"});
    let deleting =
        json!({"uid": "u-1", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T12:00:00Z"});
    assert_eq!(step(None, soon), Step::Restore);
    assert_eq!(step(Some(same.clone()), soon), Step::Wait);
    assert_eq!(
        step(Some(same.clone()), Duration::from_secs(1800)),
        Step::Wait
    );
    assert_eq!(step(Some(same), Duration::from_secs(7200)), Step::Drop);
    assert_eq!(step(Some(deleting.clone()), soon), Step::Wait);
    assert_eq!(step(Some(deleting), Duration::from_secs(7200)), Step::Wait);
    let changed = json!({"uid": "u-1", "resourceVersion": "8"});
    assert_eq!(step(Some(changed), soon), Step::Drop);
    let other = json!({"uid": "u-3", "resourceVersion": "9"});
    assert_eq!(step(Some(other), soon), Step::Drop);
}

#[test]
fn the_last_that_is_stored_for_a_name_comes_back() {
    let at = |second: u8, version: &str| {
        let time = format!("2026-01-01T12:00:0{second}Z");
        stored_as(json!({"creationTimestamp": time, "resourceVersion": version}))
    };
    let (first, second, third) = (at(1, "9"), at(1, "10"), at(2, "5"));
    let all = [&first, &second, &third];
    assert!(first.is_superseded(&original(), [&second]));
    assert!(first.is_superseded(&original(), all));
    assert!(second.is_superseded(&original(), all));
    assert!(!third.is_superseded(&original(), all));
    let other = Original {
        name: name("other"),
        ..original()
    };
    assert!(!first.is_superseded(&other, all));
    assert!(!first.is_superseded(
        &original(),
        [&restored_as(json!({"resourceVersion": "99"}))]
    ));
}

#[test]
fn looks_are_soon_at_first_and_rare_later() {
    let millis = |since: u64| pause(Duration::from_millis(since)).as_millis();
    assert_eq!(millis(0), 50);
    assert_eq!(millis(1000), 250);
    assert_eq!(millis(3_600_000), 60_000);
}

/// What has the name of the object: its UID and resourceVersion.
type There = Option<(&'static str, u8)>;

/// The cluster, the deletion that is under way, and the controller, at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct World {
    there: There,
    is_stored: bool,
    /// The version for which the deletion was reviewed, until it happens or fails.
    reviewed: Option<u8>,
    /// True once the deletion has happened.
    is_deleted: bool,
    /// What the controller is about to do.
    about_to: Option<Step>,
    /// True once somebody else has written another object of the name.
    is_added: bool,
}

impl World {
    const BEGINNING: Self = Self {
        there: Some(("u-1", 7)),
        is_stored: false,
        reviewed: None,
        is_deleted: false,
        about_to: None,
        is_added: false,
    };

    /// Returns every world that can be the next one.
    fn next(self) -> Vec<Self> {
        let mut next = Vec::new();
        let is_original = self.there.is_some_and(|(uid, _)| uid == "u-1");
        // The webhook stores the version that it reviews. Only that is kept apart here which matters: version 7.
        if self.there == Some(("u-1", 7)) && self.reviewed.is_none() && !self.is_deleted {
            next.push(Self {
                is_stored: true,
                reviewed: Some(7),
                ..self
            });
        }
        if let Some(version) = self.reviewed {
            // The deletion fails for another reason, or because of another version.
            next.push(Self {
                reviewed: None,
                ..self
            });
            if self.there == Some(("u-1", version)) {
                next.push(Self {
                    there: None,
                    reviewed: None,
                    is_deleted: true,
                    ..self
                });
            }
        }
        // Somebody changes the object. Then it is reviewed again, which would be another world.
        if is_original {
            next.push(Self {
                there: Some(("u-1", 8)),
                ..self
            });
        }
        // Git adds the name again.
        if self.is_deleted && self.there.is_none() {
            next.push(Self {
                there: Some(("u-3", 9)),
                is_added: true,
                ..self
            });
        }
        // The controller is killed.
        next.push(Self {
            about_to: None,
            ..self
        });
        // It looks, and later does what it has decided by that look.
        if self.is_stored && self.about_to.is_none() {
            let there = self.there.map(|(uid, version)| {
                let fields = json!({"uid": uid, "resourceVersion": version.to_string()});
                metadata(&content().to_restore(&name("app-1")), fields)
            });
            let step = stored_as(json!({})).step(&original(), there.as_ref(), now());
            next.push(Self {
                about_to: Some(step),
                ..self
            });
        }
        match self.about_to {
            None => {}
            Some(Step::Wait) => next.push(Self {
                about_to: None,
                ..self
            }),
            Some(Step::Drop) => next.push(Self {
                is_stored: false,
                about_to: None,
                ..self
            }),
            // A create fails if there is one. Otherwise, the stored one goes after that.
            Some(Step::Restore) if self.there.is_some() => next.push(Self {
                about_to: None,
                ..self
            }),
            Some(Step::Restore) => next.push(Self {
                there: Some(("u-2", 10)),
                about_to: Some(Step::Drop),
                ..self
            }),
        }
        next
    }
}

#[test]
fn whatever_breaks_off_in_between_the_content_is_there_or_stored() {
    let mut worlds = vec![World::BEGINNING];
    let mut at = 0;
    while let Some(world) = worlds.get(at).copied() {
        let is_safe = world.there.is_some() || world.is_stored;
        assert!(is_safe, "{world:?}");
        for next in world.next() {
            if !worlds.contains(&next) {
                worlds.push(next);
            }
        }
        at += 1;
    }
    let ends = |there: There| {
        let is_end = |it: &&World| it.is_deleted && it.there == there && !it.is_stored;
        worlds.iter().any(|world| is_end(&world))
    };
    assert!(ends(Some(("u-2", 10))), "it comes back");
    assert!(ends(Some(("u-3", 9))), "it is Git's");
}
