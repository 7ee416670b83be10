use serde_json::json;

use super::*;
use crate::annotations::Inherited;
use crate::dialects::Dialects;
use crate::digest::Aspects;
use crate::fixtures::{Builder, deployment, holding, keyring, name, objects, reference};
use crate::kind::WorkloadKind;
use crate::object::{Object, WorkloadObject};
use crate::workload::Reading;

/// Returns a workload as it is read where pins are switched on.
fn read(builder: Builder) -> Workload {
    let object: WorkloadObject = serde_json::from_value(builder.json()).unwrap();
    let mut reading = Reading::new(Dialects::default(), []);
    reading.pins = true;
    let workload = object.into_workload(WorkloadKind::DEPLOYMENT, &reading, &Inherited::default());
    workload.unwrap()
}

fn keys() -> Keyring {
    keyring(&[1])
}

/// Returns the name of the copy of a ConfigMap that holds this value.
fn copy_of(source: &str, value: &str) -> String {
    named_under(&keys(), source, value)
}

/// Returns the name of the copy under a key.
fn named_under(keys: &Keyring, source: &str, value: &str) -> String {
    let namespace = name("ns");
    let names = CopyNames::new(keys, &namespace);
    let digest = holding(value).unwrap().digest;
    names.name_for(&name(source), &digest).to_string()
}

/// Returns a copy that holds this value, as it is read.
fn copy(value: &str) -> Presence {
    let json = json!({
        "metadata": {"uid": "u", "resourceVersion": "1", "labels": {"pod-reloader.cs.sap.com/copy": "true"}},
        "immutable": true,
        "data": {"key": value},
    });
    Presence::Present(ConfigObject::parse(json.to_string().as_bytes(), Aspects::default()).unwrap())
}

fn pinned() -> Builder {
    deployment("web")
        .lists("a,b")
        .annotation("pin", "configmaps")
}

/// Pins a pod template, and says what was undone.
fn undone(builder: Builder, pins: &str, undone: &str) -> Workload {
    let annotations = json!({"pod-reloader.cs.sap.com/pins": pins});
    let builder = builder.with("/spec/template/metadata/annotations", annotations);
    read(builder.annotation("undone", undone))
}

fn digest(objects: &Objects, of: &str) -> Option<Digest> {
    match &objects[&reference(of)] {
        Presence::Present(object) => Some(object.digest),
        Presence::Absent => None,
    }
}

#[test]
fn each_tracked_config_map_that_exists_and_is_asked_for_has_a_copy() {
    let objects = objects(&[("a", holding("1")), ("b", None)]);
    let pins_of = |workload: Workload| workload.pins_for(&objects, &workload.copy_names(&keys()));
    let both = pins_of(read(pinned()));
    assert_eq!(both.to_string(), format!("a={}", copy_of("a", "1")));
    let other = read(deployment("web").lists("a,b").annotation("pin", "b"));
    assert!(pins_of(other).is_empty());
    assert!(pins_of(read(deployment("web").lists("a"))).is_empty());
    let switched_off = pinned().build();
    assert!(pins_of(switched_off).is_empty());
}

#[test]
fn a_secret_is_never_copied() {
    let secret = Reference {
        kind: ConfigKind::Secret,
        ..reference("a")
    };
    let workload = read(
        deployment("web")
            .annotation("secrets", "a")
            .annotation("pin", "a"),
    );
    let objects = Objects::from([(secret, Presence::Present(holding("1").unwrap()))]);
    let keys = keys();
    let names = workload.copy_names(&keys);
    assert_eq!(workload.copies(&objects, &names).count(), 0);
}

#[test]
fn what_was_undone_has_the_content_of_the_copy_until_it_changes() {
    let pins = format!("a={},b={}", copy_of("a", "good"), copy_of("b", "1"));
    let workload = undone(pinned(), &pins, &format!("a={}", copy_of("a", "bad")));
    let kept = workload.kept();
    let keys = keys();
    let names = workload.copy_names(&keys);
    let copies = Copies::from([(name("a"), copy("good"))]);
    assert_eq!(
        kept.preferred().to_string(),
        format!("a={}", copy_of("a", "good"))
    );

    let now = objects(&[("a", holding("bad")), ("b", holding("2"))]);
    let (seen, undone) = workload
        .without_undone(&kept, now, &copies, &names)
        .unwrap();
    assert_eq!(digest(&seen, "a"), Some(holding("good").unwrap().digest));
    assert_eq!(digest(&seen, "b"), Some(holding("2").unwrap().digest));
    assert_eq!(undone.to_string(), format!("a={}", copy_of("a", "bad")));

    let later = objects(&[("a", holding("better")), ("b", holding("1"))]);
    let (seen, undone) = workload
        .without_undone(&kept, later.clone(), &copies, &names)
        .unwrap();
    assert_eq!((seen, undone), (later, Pins::default()));
}

#[test]
fn only_an_immutable_copy_of_ours_with_the_right_content_counts() {
    let pins = format!("a={}", copy_of("a", "good"));
    let workload = undone(pinned(), &pins, &format!("a={}", copy_of("a", "bad")));
    let now = || objects(&[("a", holding("bad"))]);
    let seen = |copy: Option<Presence>| {
        let copies = copy.map(|copy| (name("a"), copy)).into_iter().collect();
        let keys = keys();
        let names = workload.copy_names(&keys);
        workload.without_undone(&workload.kept(), now(), &copies, &names)
    };
    assert!(seen(Some(copy("good"))).is_some());
    for wrong in [
        None,
        Some(Presence::Absent),
        Some(copy("other")),
        holding("good").map(Presence::Present),
    ] {
        assert_eq!(seen(wrong.clone()), None, "{wrong:?}");
    }
}

#[test]
fn a_workload_lacks_pins_only_before_its_first_rollout_with_them() {
    let objects = objects(&[("a", holding("1"))]);
    assert!(read(pinned()).lacks_pins(&objects));
    for rolled_out in [format!("a={}", copy_of("a", "0")), String::new()] {
        assert!(
            !undone(pinned(), &rolled_out, "").lacks_pins(&objects),
            "{rolled_out}"
        );
    }
    assert!(!pinned().build().lacks_pins(&objects));
}

#[test]
fn a_copy_has_the_content_and_nothing_else_of_the_config_map() {
    let source = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "labels": {"app": "web"}, "annotations": {"note": "x"}, "ownerReferences": [],
        },
        "data": {"key": "1", "other": "line\n\u{1f980}"},
        "binaryData": {"blob": "AAEC"},
    });
    let body = source.to_string();
    let object = ConfigObject::parse(body.as_bytes(), Aspects::default()).unwrap();
    let (keys, namespace) = (keys(), name("ns"));
    let names = CopyNames::new(&keys, &namespace);
    let own = names.name_for(&name("a"), &object.digest);
    let copy = Copy::named(&own, reference("a"), object.digest, &names).unwrap();
    let manifest = copy.manifest(body.as_bytes(), &keys).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": copy.name.as_str(),
            "labels": {"pod-reloader.cs.sap.com/copy": "true"},
            "annotations": {
                "pod-reloader.cs.sap.com/copy-of": "a",
                "pod-reloader.cs.sap.com/seal": keys.seal(&claim(&reference(copy.name.as_str()), &name("a"))),
            },
        },
        "immutable": true,
        "data": source["data"],
        "binaryData": source["binaryData"],
    });
    assert_eq!(manifest, expected);

    let changed = body.replace("AAEC", "AAED");
    assert_eq!(copy.manifest(changed.as_bytes(), &keys), Err(NotTheContent));
    assert_eq!(
        Copy::named(&name("a-0000000000"), reference("a"), object.digest, &names),
        None
    );
}

#[test]
fn a_copy_of_an_earlier_version_has_the_content_that_its_name_says_for_good() {
    let name_of = |value: &str| plain_copy_name(&name("a"), &holding(value).unwrap().digest);
    let is = |object: Presence, name: &Name| match object {
        Presence::Present(object) => is_of_earlier_version(&object, &self::name("a"), name),
        Presence::Absent => false,
    };
    assert!(is(copy("1"), &name_of("1")));
    assert!(!is(copy("1"), &name_of("2")));
    // Without the label, or not immutable.
    let bare = holding("1").map_or(Presence::Absent, Presence::Present);
    assert!(!is(bare, &name_of("1")));
}

/// An upgrade, or another key, restarts nothing and undoes nothing.
#[test]
fn names_of_earlier_versions_and_of_earlier_keys_stay_with_their_content() {
    let plain = |source: &str, value: &str| {
        let digest = holding(value).unwrap().digest;
        plain_copy_name(&name(source), &digest).to_string()
    };
    let old = keyring(&[1]);
    let of_old_key = |source: &str, value: &str| named_under(&old, source, value);
    let rotated = keyring(&[2, 1]);
    for named in [&plain as &dyn Fn(&str, &str) -> String, &of_old_key] {
        let pins = format!("a={},b={}", named("a", "good"), named("b", "1"));
        let workload = undone(pinned(), &pins, &format!("a={}", named("a", "bad")));
        let names = workload.copy_names(&rotated);
        let copies = Copies::from([(name("a"), copy("good"))]);
        let now = objects(&[("a", holding("bad")), ("b", holding("2"))]);
        let kept = workload.kept();
        let seen = workload.without_undone(&kept, now, &copies, &names);
        let (seen, still_undone) = seen.unwrap();
        assert_eq!(still_undone, kept.undone);
        // The content of `a` has a name, that of `b` gets one under the key for writing.
        let next = workload.pins_for(&seen, &names);
        let of_b = named_under(&keyring(&[2]), "b", "2");
        let expected = format!("a={},b={of_b}", named("a", "good"));
        assert_eq!(next.to_string(), expected);
    }
}

#[test]
fn content_that_has_two_names_is_not_undone_by_itself() {
    let plain = |value: &str| plain_copy_name(&name("a"), &holding(value).unwrap().digest);
    let workload = undone(pinned(), &format!("a={}", copy_of("a", "1")), "");
    let keys = keys();
    let names = workload.copy_names(&keys);
    let objects = objects(&[("a", holding("1"))]);
    let before = workload.kept();
    let undone_by = |copy: Name| {
        let pins = Pins::from_iter([(name("a"), copy)]);
        workload.undone_by(&pins, &before, &objects, &names)
    };
    assert!(undone_by(plain("1")).is_empty());
    assert_eq!(undone_by(plain("0")), before.pins);
}

#[test]
fn only_empty_pins_of_a_workload_that_pins_say_that_copies_are_missing() {
    let with = |builder: Builder, pins: &str| {
        let annotations = json!({"pod-reloader.cs.sap.com/pins": pins});
        read(builder.with("/spec/template/metadata/annotations", annotations))
    };
    assert!(with(pinned(), "").is_without_copies());
    let pins = format!("a={}", copy_of("a", "1"));
    assert!(!with(pinned(), &pins).is_without_copies());
    assert!(!read(pinned()).is_without_copies(), "it is not rolled out");
    let pins_no_more = deployment("web").lists("a,b");
    assert!(!with(pins_no_more, "").is_without_copies());
}
