//! The JSON Patch that gives the fields of an object the values of their keys.

use std::collections::BTreeMap;

use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use jsonptr::PointerBuf;
use serde_json::Value;
use serde_json::value::RawValue;

use super::outcome::Reason;
use super::path::{NoPlace, Path, Place, places};
use super::source::Source;
use super::value::{Room, convert};
use super::{Binding, BindingId, Field};
use crate::raw::single;

/// The changes of the fields of one binding in an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The tests of what they rest on: the fields by which elements of lists were found.
    pub tests: Vec<PatchOperation>,
    /// The operations that make them: none if there is nothing to change.
    pub operations: Vec<PatchOperation>,
    /// What becomes of each field, in their order.
    pub fields: Vec<Result<Step, Reason>>,
}

/// The change of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has its value.
    None,
    /// It gets its value.
    Write,
}

impl Plan {
    /// Returns the patch, and what becomes of each field. It fails if the object has changed since it had this resourceVersion.
    ///
    /// All tests come first: they are about the object as it is, and a field may be the one by which another is found.
    pub fn patch(self, resource_version: &str) -> (Patch, Vec<Result<Step, Reason>>) {
        let mut operations = vec![test(
            PointerBuf::from_tokens(["metadata", "resourceVersion"]),
            resource_version.into(),
        )];
        operations.extend(self.tests);
        operations.extend(self.operations);
        (Patch(operations), self.fields)
    }
}

impl Binding {
    /// Returns the value that each field should have, in their order, or why it is left as it is. Without a source,
    /// there is none, and without room for all of them neither.
    pub fn values(&self, source: Option<&Source>, room: &mut Room) -> Vec<Result<Value, Reason>> {
        let length = |source: &Source| {
            let fields = self.fields.iter();
            let lengths = fields.map(|field| source.length(self.source.kind, &field.key));
            lengths.sum()
        };
        let has_room = room.take(source.map_or(0, length));
        let value = |field: &Field| {
            let source = source.ok_or(Reason::SourceNotFound)?;
            let bytes = source.bytes(self.source.kind, &field.key);
            let bytes = bytes.ok_or_else(|| Reason::KeyNotFound(field.key.clone()))?;
            let value = has_room.and_then(|()| convert(&bytes, field.value_type));
            value.map_err(Reason::InvalidValue)
        };
        self.fields.iter().map(value).collect()
    }

    /// Returns the changes that give `object` these values, one for each field. Fields of the `older` bindings are
    /// theirs.
    ///
    /// No object, list or element is made for a field.
    pub fn plan(
        &self,
        object: &RawValue,
        values: &[Result<Value, Reason>],
        older: &[&Self],
    ) -> Plan {
        let all = older.iter().copied().chain([self]);
        let paths: Vec<_> = all.flat_map(Self::paths).collect();
        let places = places(object, &paths);
        let (mut rest, mut taken) = (&places[..], Taken::new());
        for binding in older {
            let (its_places, others) = rest.split_at(binding.fields.len());
            binding.take(its_places, &mut taken);
            rest = others;
        }
        self.changes(rest, values, &mut taken)
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.fields.iter().map(|field| &field.path)
    }

    /// Takes the fields at these places, as far as no other binding has them.
    fn take<'a>(&'a self, places: &[Result<Place<'_>, NoPlace>], taken: &mut Taken<'a>) {
        for place in places.iter().flatten() {
            let pointer = place.pointer.clone();
            taken.entry(pointer).or_insert(&self.id);
        }
    }

    /// Returns the changes that give the fields at these places these values, unless another binding has taken them.
    fn changes<'a>(
        &'a self,
        places: &[Result<Place<'_>, NoPlace>],
        values: &[Result<Value, Reason>],
        taken: &mut Taken<'a>,
    ) -> Plan {
        let mut plan = Plan::default();
        for (place, value) in places.iter().zip(values) {
            let step = change(place, value, taken);
            plan.fields.push(step.map(|change| {
                taken.insert(change.pointer, &self.id);
                let Some(operation) = change.operation else {
                    return Step::None;
                };
                plan.tests.extend(change.tests);
                plan.operations.push(operation);
                Step::Write
            }));
        }
        plan
    }
}

/// The fields that bindings have, by their place.
type Taken<'a> = BTreeMap<PointerBuf, &'a BindingId>;

/// Returns the operations that fill the fields of a new object, and the fields that are left as they are, with the
/// reason. `bindings` are those of the object, the oldest first, with the values of their fields.
pub fn fill<'a>(
    object: &RawValue,
    bindings: &'a [(Binding, Vec<Result<Value, Reason>>)],
) -> (Vec<PatchOperation>, Vec<(&'a Path, Reason)>) {
    let (mut operations, mut failed, mut taken) = (Vec::new(), Vec::new(), Taken::new());
    let paths: Vec<_> = bindings.iter().flat_map(|(it, _)| it.paths()).collect();
    let places = places(object, &paths);
    let mut rest = &places[..];
    for (binding, values) in bindings {
        let (its_places, others) = rest.split_at(binding.fields.len());
        rest = others;
        let plan = binding.changes(its_places, values, &mut taken);
        // Nobody else writes the object meanwhile: there is nothing to test.
        operations.extend(plan.operations);
        let states = binding.paths().zip(plan.fields);
        failed.extend(states.filter_map(|(path, step)| Some((path, step.err()?))));
        binding.take(its_places, &mut taken);
    }
    (operations, failed)
}

/// The change of one field.
struct Change {
    /// The place of the field.
    pointer: PointerBuf,
    tests: Vec<PatchOperation>,
    /// The operation that gives it its value, unless it has it.
    operation: Option<PatchOperation>,
}

/// Returns the change that gives the field at a place its value.
fn change(
    place: &Result<Place<'_>, NoPlace>,
    value: &Result<Value, Reason>,
    taken: &Taken<'_>,
) -> Result<Change, Reason> {
    let value = value.as_ref().map_err(Clone::clone)?;
    let place = place.as_ref().map_err(|it| Reason::NoPlace(it.clone()))?;
    if let Some(other) = taken.get(&place.pointer) {
        return Err(Reason::Conflict(other.name.clone()));
    }
    let longest = value.as_str().map_or(0, str::len);
    let found = place.value.and_then(|it| single(it, longest));
    let operation = (found.as_ref() != Some(value)).then(|| {
        PatchOperation::Add(AddOperation {
            path: place.pointer.clone(),
            value: value.clone(),
        })
    });
    let elements = place.elements.iter();
    let tests = elements.map(|(pointer, value)| test(pointer.clone(), value.clone()));
    Ok(Change {
        tests: tests.collect(),
        pointer: place.pointer.clone(),
        operation,
    })
}

fn test(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_binding::tests::binding;
    use crate::field_binding::value::InvalidValue;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn with(fields: Value) -> Binding {
        binding(json!({"spec": {"fields": fields}}))
    }

    fn harbor() -> Value {
        json!({
            "metadata": {"name": "registry", "resourceVersion": "7"},
            "spec": {
                "s3": {"accesskey": "old", "bucket": "b"},
                "users": [{"name": "viewer"}, {"name": "admin", "role": "root", "password": "old"}],
            },
        })
    }

    fn raw_harbor() -> Box<RawValue> {
        to_raw_value(&harbor()).unwrap()
    }

    /// Returns the object after a plan was applied to it.
    fn after(plan: &Plan) -> Value {
        let mut object = harbor();
        json_patch::patch(&mut object, &plan.clone().patch("7").0.0).unwrap();
        object
    }

    #[test]
    fn each_field_has_its_value_or_its_reason() {
        let binding = binding(json!({"spec": {"fields": [
            {"key": "a", "path": "spec.a"},
            {"key": "b", "path": "spec.b", "as": "Integer"},
            {"key": "c", "path": "spec.c"},
        ]}}));
        let source =
            json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "eA==", "b": "eA=="}});
        let source: Source = serde_json::from_value(source).unwrap();
        let expected = [
            Ok(json!("x")),
            Err(Reason::InvalidValue(InvalidValue::NotInteger)),
            Err(Reason::KeyNotFound("c".into())),
        ];
        assert_eq!(
            binding.values(Some(&source), &mut Room::default()),
            expected
        );
        assert_eq!(
            binding.values(None, &mut Room::default()),
            vec![Err(Reason::SourceNotFound); 3]
        );
    }

    #[test]
    fn values_that_are_too_long_together_are_not_read() {
        let long = "x".repeat(1 << 19);
        let source = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": long}});
        let source: Source = serde_json::from_value(source).unwrap();
        let fields = |count: usize| {
            let fields = (0..count).map(|at| json!({"key": "a", "path": format!("spec.f{at}")}));
            let fields: Vec<_> = fields.collect();
            binding(json!({"spec": {"source": {"kind": "ConfigMap"}, "fields": fields}}))
        };
        let mut room = Room::default();
        let too_long = Err(Reason::InvalidValue(InvalidValue::TooLong));
        assert_eq!(
            fields(3).values(Some(&source), &mut room),
            vec![too_long.clone(); 3]
        );
        let values = fields(2).values(Some(&source), &mut room);
        assert!(values.iter().all(Result::is_ok));
        assert_eq!(fields(1).values(Some(&source), &mut room), [too_long]);
    }

    #[test]
    fn a_field_gets_its_value_and_its_siblings_stay() {
        let binding = with(json!([
            {"key": "a", "path": "spec.s3.accesskey"},
            {"key": "b", "path": "spec.s3.region"},
            {"key": "c", "path": "spec.users[name=admin].password"},
        ]));
        let values = [json!("new"), json!("eu"), json!(7)].map(Ok);
        let plan = binding.plan(&raw_harbor(), &values, &[]);
        assert_eq!(plan.fields, vec![Ok(Step::Write); 3]);
        let mut expected = harbor();
        expected["spec"]["s3"]["accesskey"] = json!("new");
        expected["spec"]["s3"]["region"] = json!("eu");
        expected["spec"]["users"][1]["password"] = json!(7);
        assert_eq!(after(&plan), expected);
    }

    #[test]
    fn a_field_that_has_its_value_is_not_written() {
        let binding = with(json!([{"key": "a", "path": "spec.s3.accesskey"}]));
        let plan = binding.plan(&raw_harbor(), &[Ok(json!("old"))], &[]);
        assert_eq!(
            (plan.operations.len(), plan.fields),
            (0, vec![Ok(Step::None)])
        );
    }

    #[test]
    fn a_field_by_which_another_is_found_can_be_written_with_it() {
        let binding = with(json!([
            {"key": "a", "path": "spec.users[name=admin].role"},
            {"key": "b", "path": "spec.users[role=root].password"},
        ]));
        let values = [json!("admin"), json!("new")].map(Ok);
        let plan = binding.plan(&raw_harbor(), &values, &[]);
        let admin = json!({"name": "admin", "role": "admin", "password": "new"});
        assert_eq!(after(&plan)["spec"]["users"][1], admin);
        let mut object = harbor();
        json_patch::patch(&mut object, &plan.operations).unwrap();
        assert_eq!(object, after(&plan), "as a new object is filled");
    }

    #[test]
    fn a_patch_fails_if_the_object_or_the_element_is_another() {
        let binding = with(json!([{"key": "c", "path": "spec.users[name=admin].password"}]));
        let patch = binding
            .plan(&raw_harbor(), &[Ok(json!("new"))], &[])
            .patch("7")
            .0;
        let mut newer = harbor();
        newer["metadata"]["resourceVersion"] = json!("8");
        assert!(json_patch::patch(&mut newer, &patch.0).is_err());
        let mut moved = harbor();
        moved["spec"]["users"].as_array_mut().unwrap().reverse();
        assert!(json_patch::patch(&mut moved, &patch.0).is_err());
    }

    #[test]
    fn what_is_missing_is_not_made_and_what_is_no_field_not_replaced() {
        let binding = with(json!([
            {"key": "a", "path": "spec.gcs.key"},
            {"key": "b", "path": "spec.s3"},
            {"key": "c", "path": "spec.s3.accesskey"},
        ]));
        let mut values = vec![Ok(json!("x")); 2];
        values.push(Err(Reason::SourceNotFound));
        let plan = binding.plan(&raw_harbor(), &values, &[]);
        assert_eq!(plan.operations, []);
        let expected = [
            Reason::NoPlace(NoPlace::Missing("spec.gcs".into())),
            Reason::NoPlace(NoPlace::NotAField),
            Reason::SourceNotFound,
        ];
        assert_eq!(plan.fields, expected.map(Err));
    }

    #[test]
    fn a_field_of_an_older_binding_is_its_own_however_it_is_named() {
        let older = binding(json!({
            "metadata": {"name": "older"},
            "spec": {"fields": [{"key": "x", "path": "spec.users[role=root].password"}]},
        }));
        let newer = with(json!([
            {"key": "a", "path": "spec.users[name=admin].password"},
            {"key": "b", "path": "spec.s3.accesskey"},
            {"key": "c", "path": "spec.s3[accesskey]"},
        ]));
        let values = vec![Ok(json!("x")); 3];
        let plan = newer.plan(&raw_harbor(), &values, &[&older]);
        let conflict = |plan: &Plan, at: usize| match &plan.fields[at] {
            Err(Reason::Conflict(name)) => name.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(conflict(&plan, 0), "older");
        assert_eq!(plan.fields[1], Ok(Step::Write));
        assert_eq!(conflict(&plan, 2), newer.id.name.as_str());
    }

    #[test]
    fn a_new_object_is_filled_by_all_its_bindings() {
        let named = |name, created, fields| {
            binding(json!({
                "metadata": {"name": name, "creationTimestamp": created},
                "spec": {"fields": fields},
            }))
        };
        let newer = named(
            "a",
            "2026-01-02T00:00:00Z",
            json!([
                {"key": "k", "path": "spec.s3.accesskey"},
                {"key": "k", "path": "spec.s3.region"},
            ]),
        );
        let older = named(
            "b",
            "2026-01-01T00:00:00Z",
            json!([{"key": "l", "path": "spec.s3.accesskey"}]),
        );
        let values = |values: &[&str]| values.iter().map(|it| Ok(json!(it))).collect();
        let bindings = [
            (older, values(&["older"])),
            (newer, values(&["newer", "newer"])),
        ];
        let (operations, failed) = fill(&raw_harbor(), &bindings);
        let mut object = harbor();
        json_patch::patch(&mut object, &operations).unwrap();
        let s3 = json!({"accesskey": "older", "bucket": "b", "region": "newer"});
        assert_eq!(object["spec"]["s3"], s3);
        let failed: Vec<_> = failed
            .iter()
            .map(|(path, reason)| (path.as_str(), reason.as_str()))
            .collect();
        assert_eq!(failed, [("spec.s3.accesskey", "Conflict")]);
    }
}
