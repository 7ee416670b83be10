//! The JSON Patches that write a config hash or a baseline, or put settings back, and nothing else.

use std::collections::BTreeSet;

use json_patch::{Patch, PatchOperation, RemoveOperation};
use jsonptr::PointerBuf;
use serde_json::{Value, json};

use crate::annotations::{self, Place};
use crate::decision::has_reload_baseline;
use crate::kind::Template;
use crate::operation::{self, add};
use crate::workload::{Restart, Workload};

/// What a restart writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// The config hash.
    pub config_hash: &'a str,
    /// The pins. `None` means no annotation at all.
    pub pins: Option<&'a str>,
    /// The pins of the content that was undone and still is, or is undone by this. `None` means no annotation at
    /// all. Only written to a workload that pins.
    pub undone: Option<&'a str>,
}

impl<'a> Stamp<'a> {
    /// Returns a stamp without pins.
    pub fn of(config_hash: &'a str) -> Self {
        Self {
            config_hash,
            pins: None,
            undone: None,
        }
    }
}

/// Returns the loop's patch that sets the config hash and the pins. It fails if anything changed that the
/// decision rests on.
///
/// The patch tests UID, generation, every annotation and label that was read, the config hash, and the pins if
/// there are any. A churning status cannot make it fail, and a leader that was frozen and thawed cannot overwrite
/// newer state.
pub fn stamp(workload: &Workload, stamp: &Stamp<'_>) -> Patch {
    let mut operations = tests(workload);
    operations.extend(reload_test(workload));
    let undone = workload
        .rare()
        .pinning
        .as_deref()
        .map(|it| it.undone.as_deref());
    let undone = undone.filter(|_| workload.markers.has_annotations);
    operations.extend(undone.map(|value| test(&UNDONE, value)));
    for (_, slot) in workload.slots() {
        let path = key(&slot.template, annotations::CONFIG_HASH);
        let value = json!(stamp.config_hash);
        operations.extend(add_with_parents(&path, slot.depth, value));
        let path = key(&slot.template, annotations::PINS);
        operations.extend(change(
            &path,
            slot.depth,
            slot.state.pins.as_deref(),
            stamp.pins,
        ));
    }
    if let Some(undone) = undone {
        operations.extend(change(&UNDONE, 2, undone, stamp.undone));
    }
    Patch(once(operations))
}

/// Returns the test of the baseline of a workload whose pods may have reloaded: what they have depends on it, too.
fn reload_test(workload: &Workload) -> Option<PatchOperation> {
    let markers = &workload.markers;
    let may_have = workload.rare().http_reload.is_some() || has_reload_baseline(workload);
    let baseline = markers.baseline.as_deref();
    (may_have && markers.has_annotations).then(|| test(&BASELINE, baseline))
}

/// Returns the loop's patch that restarts the pods by writing a time, together with the baseline that goes
/// with it. It is tested like [`stamp`]. `time` is in RFC 3339.
pub fn restart_at(workload: &Workload, time: &str, baseline: &str) -> Patch {
    let Patch(mut operations) = set_baseline(workload, baseline);
    if let (Restart::At(field), Some(path)) =
        (&workload.restart, workload.id.kind.shape().restart_at)
    {
        // The baseline has already created the annotations.
        let depth = match path[0] {
            "metadata" => path.len() - 1,
            _ => field.depth,
        };
        operations.extend(add_with_parents(path, depth, json!(time)));
    }
    Patch(operations)
}

/// Returns the loop's patch that writes a baseline, tested like [`stamp`]. It restarts nothing.
pub fn set_baseline(workload: &Workload, baseline: &str) -> Patch {
    let mut operations = tests(workload);
    if workload.markers.has_annotations {
        operations.push(test(&BASELINE, workload.markers.baseline.as_deref()));
    }
    operations.extend(add_baseline(workload, baseline));
    Patch(operations)
}

/// Returns the loop's patch that adds annotations and labels to the metadata of `workload`: each has a place, a key and a
/// value. It fails if that is another workload by now, or if it has one of them.
pub(crate) fn add_settings<'a>(
    workload: &Workload,
    settings: impl Iterator<Item = (Place, &'a str, &'a str)>,
) -> Patch {
    let markers = &workload.markers;
    let mut operations = vec![test(&["metadata", "uid"], Some(&workload.uid))];
    let mut adds = Vec::new();
    for (place, key, value) in settings {
        let (parent, has_parent) = match place {
            Place::Label => ("labels", markers.has_labels),
            _ => ("annotations", markers.has_annotations),
        };
        let path = ["metadata", parent, key];
        let depth = if has_parent { 2 } else { 1 };
        operations.push(test_at(&path, depth, None));
        adds.extend(add_with_parents(&path, depth, json!(value)));
    }
    operations.extend(adds);
    Patch(once(operations))
}

/// Returns the webhook's patch of the pod templates that can carry a config hash: one `add` for each annotation
/// of ours, and any missing parents. `desired` gives config hash and pins for each template in turn; `None` removes
/// the annotation.
pub fn change_templates<'a>(
    workload: &Workload,
    desired: impl Fn(usize) -> [Option<&'a str>; 2],
) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    for (at, (_, slot)) in workload.slots().enumerate() {
        let [config_hash, pins] = desired(at);
        let state = slot.state;
        for (name, own, value) in [
            (
                annotations::CONFIG_HASH,
                state.config_hash.as_deref(),
                config_hash,
            ),
            (annotations::PINS, state.pins.as_deref(), pins),
        ] {
            operations.extend(change(&key(&slot.template, name), slot.depth, own, value));
        }
    }
    once(operations)
}

/// Returns the patch that writes to the metadata of `workload` what was undone, or removes it. Without room for
/// it, nothing is undone.
pub(crate) fn change_undone(workload: &Workload, undone: Option<&str>) -> Vec<PatchOperation> {
    let (own, markers) = (workload.undone(), &workload.markers);
    let undone = undone.filter(|it| markers.has_room(annotations::UNDONE, own, it));
    let depth = if markers.has_annotations { 2 } else { 1 };
    change(&UNDONE, depth, own, undone)
}

/// Changes the value at a path whose first `depth` fields exist from `own` to `value`.
pub(crate) fn change(
    path: &[&str],
    depth: usize,
    own: Option<&str>,
    value: Option<&str>,
) -> Vec<PatchOperation> {
    match value {
        value if value == own => Vec::new(),
        Some(value) => add_with_parents(path, depth, json!(value)).collect(),
        None => vec![PatchOperation::Remove(RemoveOperation {
            path: PointerBuf::from_tokens(path.iter().copied()),
        })],
    }
}

/// Returns the patch that writes a baseline to the metadata of `workload`: one `add`, and any missing parent.
pub fn add_baseline(workload: &Workload, baseline: &str) -> Vec<PatchOperation> {
    let parent = (!workload.markers.has_annotations).then(|| add(&BASELINE[..2], json!({})));
    let baseline = add(&BASELINE, json!(baseline));
    parent.into_iter().chain([baseline]).collect()
}

const BASELINE: [&str; 3] = ["metadata", "annotations", annotations::BASELINE];
const UNDONE: [&str; 3] = ["metadata", "annotations", annotations::UNDONE];

/// Drops repeated `add`s of a parent: the second would overwrite what the first one holds.
pub(crate) fn once(operations: Vec<PatchOperation>) -> Vec<PatchOperation> {
    let mut made = BTreeSet::new();
    let is_first = |operation: &PatchOperation| match operation {
        PatchOperation::Add(add) if add.value == json!({}) => made.insert(add.path.to_string()),
        _ => true,
    };
    let mut operations = operations;
    operations.retain(is_first);
    operations
}

/// Returns the path to an annotation of a pod template.
fn key(template: &Template, annotation: &'static str) -> Vec<&'static str> {
    [template.path, &["metadata", "annotations", annotation]].concat()
}

/// Adds a value at a path whose first `depth` fields exist, and any missing parents.
fn add_with_parents<'a>(
    path: &'a [&'a str],
    depth: usize,
    value: Value,
) -> impl Iterator<Item = PatchOperation> {
    let parents = (depth + 1..path.len()).map(|length| add(&path[..length], json!({})));
    parents.chain([add(path, value)])
}

/// Tests that a path, whose first `depth` fields exist, still leads to this value.
fn test_at(path: &[&str], depth: usize, value: Option<&str>) -> PatchOperation {
    match depth + 1 < path.len() {
        true => test(&path[..=depth], None),
        false => test(path, value),
    }
}

/// Returns the tests of everything that a decision depends on. A `test` for `null` passes if a member is
/// absent, but not if its parent is: then the parent is tested.
fn tests(workload: &Workload) -> Vec<PatchOperation> {
    let markers = &workload.markers;
    let mut tests = vec![
        test(&["metadata", "uid"], Some(&workload.uid)),
        operation::test(&["metadata", "generation"], json!(workload.generation)),
    ];
    for (parent, is_there, values) in [
        ("annotations", markers.has_annotations, &markers.annotations),
        ("labels", markers.has_labels, &markers.labels),
    ] {
        match is_there {
            true => tests.extend(
                values
                    .each()
                    .map(|(key, value)| test(&["metadata", parent, key], value)),
            ),
            false => tests.push(test(&["metadata", parent], None)),
        }
    }
    for (_, slot) in workload.slots() {
        let path = key(&slot.template, annotations::CONFIG_HASH);
        tests.push(test_at(
            &path,
            slot.depth,
            slot.state.config_hash.as_deref(),
        ));
        if workload.rare().pinning.is_some() || slot.state.pins.is_some() {
            let path = key(&slot.template, annotations::PINS);
            tests.push(test_at(&path, slot.depth, slot.state.pins.as_deref()));
        }
    }
    if let (Restart::At(field), Some(path)) =
        (&workload.restart, workload.id.kind.shape().restart_at)
    {
        tests.push(test_at(path, field.depth, field.value.as_deref()));
    }
    tests
}

fn test(path: &[&str], value: Option<&str>) -> PatchOperation {
    operation::test(path, json!(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Builder, deployment};

    /// Applies a patch like the apiserver, whose `test` for `null` passes for an absent member, unlike the
    /// crate's.
    fn applied(patch: &Patch, onto: Builder) -> Result<Value, String> {
        let mut object = onto.json();
        let with_nulls: Vec<_> = patch.iter().filter_map(absent_test).collect();
        for path in &with_nulls {
            let parent = path.parent().expect("no test is of the root");
            let parent = parent.resolve(&object).map_err(|error| error.to_string())?;
            let last = path.last().expect("no test is of the root");
            let member = last.decoded();
            if parent.get(&*member).is_some_and(|value| !value.is_null()) {
                return Err(format!("{path} is there"));
            }
        }
        let rest = patch
            .iter()
            .filter(|operation| absent_test(operation).is_none())
            .cloned();
        json_patch::patch(&mut object, &rest.collect::<Vec<_>>())
            .map_err(|error| error.to_string())?;
        Ok(object)
    }

    fn absent_test(operation: &PatchOperation) -> Option<PointerBuf> {
        match operation {
            PatchOperation::Test(test) if test.value.is_null() => Some(test.path.clone()),
            _ => None,
        }
    }

    #[test]
    fn the_write_sets_the_config_hash_and_nothing_else() {
        let shapes = [
            deployment("web")
                .lists("a")
                .with("/spec/template/metadata", Value::Null),
            deployment("web").lists("a"),
            deployment("web").lists("a").stamped("old"),
            deployment("web").lists("a").label("ignored", "no"),
        ];
        for builder in shapes {
            let before = builder.json();
            let builder = || Builder::from(before.clone());
            let after = applied(&stamp(&builder().build(), &Stamp::of("new")), builder()).unwrap();
            let mut expected = before.clone();
            expected["spec"]["template"]["metadata"]["annotations"][annotations::CONFIG_HASH] =
                json!("new");
            assert_eq!(after, expected);
        }
    }

    #[test]
    fn the_write_fails_if_anything_that_it_was_based_on_has_changed() {
        let decided_from = || {
            deployment("web")
                .lists("a")
                .stamped("old")
                .label("other", "x")
        };
        for patch in [
            stamp(&decided_from().build(), &Stamp::of("new")),
            set_baseline(&decided_from().build(), "old=new"),
        ] {
            let moved = [
                decided_from().with("/metadata/uid", json!("other")),
                decided_from().with("/metadata/generation", json!(4)),
                decided_from().lists("a,b"),
                decided_from().annotation("secrets", "s"),
                decided_from().label("ignored", "true"),
                decided_from().label("disabled", "true"),
                decided_from().stamped("newer"),
                decided_from().with("/spec/template/metadata/annotations", json!({})),
                decided_from().with("/spec/template/metadata/annotations", Value::Null),
            ];
            for moved in moved {
                let moved = moved.json();
                assert!(
                    applied(&patch, Builder::from(moved.clone())).is_err(),
                    "{moved}"
                );
            }
            assert!(applied(&patch, decided_from()).is_ok());
        }
    }

    #[test]
    fn a_write_onto_no_labels_and_no_template_annotations_notices_both() {
        let patch = stamp(&deployment("web").lists("a").build(), &Stamp::of("new"));
        assert!(
            applied(
                &patch,
                deployment("web").lists("a").label("ignored", "true")
            )
            .is_err()
        );
        assert!(applied(&patch, deployment("web").lists("a").stamped("x")).is_err());
    }

    #[test]
    fn a_baseline_finds_room_on_a_workload_without_annotations() {
        let workload = || deployment("web").label("ignored", "no");
        let patch = set_baseline(&workload().build(), "old=new");
        let after = applied(&patch, workload()).unwrap();
        assert_eq!(after, workload().annotation("baseline", "old=new").json());
        assert!(applied(&patch, workload().annotation("baseline", "other")).is_err());
    }

    #[test]
    fn a_baseline_touches_the_metadata_only() {
        let workload = || deployment("web").lists("a").stamped("old");
        let after = applied(&set_baseline(&workload().build(), "old=new"), workload()).unwrap();
        assert_eq!(after, workload().annotation("baseline", "old=new").json());
    }
}
