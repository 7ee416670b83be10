//! Paths of fields: how users write them, and where they lead in an object.

mod walk;

use std::fmt;

use jsonptr::PointerBuf;
use pod_reloader_api::{MAX_PATH_LENGTH, MAX_PATH_STEPS};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::walk::places;
use crate::raw::{member, members, single};

/// The only part of an object whose fields can be bound.
const SPEC: &str = "spec";

/// The path of a field under `spec`, such as `spec.users[name=admin].password`. It is kept as its text alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Box<str>);

/// A step of a path, as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step<'a> {
    /// A field of an object.
    Field(&'a str),
    /// The element of a list that has this value in this field.
    Element { field: &'a str, value: &'a str },
}

/// The steps of a path after `spec`, each with the text up to its end. They end before the first one that is invalid.
#[derive(Clone, Debug)]
struct Steps<'a> {
    text: &'a str,
    /// The end of the steps so far.
    at: usize,
}

/// The error of a text that is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It is not written as one.
    #[error(
        "{0:?} is no path of a field such as spec.s3.accesskey or spec.users[name=admin].password"
    )]
    NoPath(String),
    /// It leads to the field by which it finds the element of a list: with another value, it would lead nowhere.
    #[error("{0:?} leads to the very field by which it finds an element")]
    Selector(String),
    /// It is too long.
    #[error("a path begins with {0:?} and is longer than {MAX_PATH_LENGTH} characters")]
    TooLong(String),
    /// It has too many steps.
    #[error("{0:?} has more than {MAX_PATH_STEPS} steps")]
    TooManySteps(String),
}

/// The place in an object to which a path leads.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The field itself.
    pub pointer: PointerBuf,
    /// Its value, if it has one: a text, a number, `true` or `false`.
    pub value: Option<&'a RawValue>,
    /// The fields by which elements of lists were found, and their values.
    pub elements: Vec<(PointerBuf, Value)>,
}

/// The reason why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// The beginning of the path, up to here, leads to nothing that has fields or elements.
    #[error(
        "the custom resource has no {0}; pod-reloader writes fields, and makes nothing around them"
    )]
    Missing(Box<str>),
    /// Several elements of a list fit the beginning of the path, up to here.
    #[error("the custom resource has several elements {0}")]
    Ambiguous(Box<str>),
    /// It leads to an object or a list, which has fields of its own.
    #[error("the path leads to an object or a list")]
    NotAField,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// The text is none, or leads to the field by which it finds an element.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        let quoted = |most: usize| text.chars().take(most).collect();
        if text.chars().count() > MAX_PATH_LENGTH {
            return Err(InvalidPath::TooLong(quoted(40)));
        }
        let quoted = || quoted(MAX_PATH_LENGTH);
        let wrong = || InvalidPath::NoPath(quoted());
        if !text.starts_with(SPEC) {
            return Err(wrong());
        }
        let mut steps = Steps::of(text);
        let (mut count, mut last, mut before) = (0, None, None);
        for (step, _) in steps.by_ref() {
            count += 1;
            before = last.replace(step);
        }
        if steps.at < text.len() {
            return Err(wrong());
        }
        if count > MAX_PATH_STEPS {
            return Err(InvalidPath::TooManySteps(quoted()));
        }
        match (last, before) {
            (Some(Step::Field(name)), Some(Step::Element { field, .. })) if name == field => {
                Err(InvalidPath::Selector(quoted()))
            }
            (Some(Step::Field(_)), _) => Ok(Self(text.into())),
            _ => Err(wrong()),
        }
    }

    /// Returns the path as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn steps(&self) -> Steps<'_> {
        Steps::of(&self.0)
    }

    /// Returns the place in `object` to which the path leads. The last field may be missing, but nothing before it.
    ///
    /// # Errors
    ///
    /// Says why it leads nowhere.
    pub fn place<'a>(&self, object: &'a RawValue) -> Result<Place<'a>, NoPlace> {
        places(object, &[self]).remove(0)
    }

    /// Returns true if a manager with these managed fields (`fieldsV1`) has the field, alone or with all that is
    /// around it.
    pub(super) fn is_among(&self, managed: &RawValue) -> bool {
        let mut here = member(managed, "f:spec").ok().flatten();
        for (step, _) in self.steps() {
            let Some(fields) = here.take() else {
                return false;
            };
            let mut is_empty = true;
            let read = members(fields, |key, inner| {
                is_empty = false;
                if step.is_of_key(key) {
                    here = Some(inner);
                }
            });
            if read.is_err() {
                return false;
            }
            // A manager of an atomic list or map has all that is in it.
            if is_empty {
                return true;
            }
        }
        here.is_some()
    }
}

impl Step<'_> {
    /// Returns true if a key of managed fields (`f:name`, `k:{"name":"admin"}`) is that of this step.
    fn is_of_key(self, key: &str) -> bool {
        match self {
            Self::Field(name) => key.strip_prefix("f:") == Some(name),
            Self::Element { field, value } => {
                let found = |key: &str| {
                    let key: &RawValue = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
                    text(&single(member(key, field).ok()??, value.len())?)
                };
                found(key).is_some_and(|found| found == value)
            }
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Steps<'a> {
    /// Returns the steps of a text that begins with `spec`.
    fn of(text: &'a str) -> Self {
        Self {
            text,
            at: SPEC.len(),
        }
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = (Step<'a>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (step, rest) = step(&self.text[self.at..])?;
        self.at = self.text.len() - rest.len();
        Some((step, &self.text[..self.at]))
    }
}

/// Parses the first step of a path. Returns it with what follows.
fn step(text: &str) -> Option<(Step<'_>, &str)> {
    // A newline would make another line of a log.
    let is_wrong = |it: char| it.is_control() || ['[', ']'].contains(&it);
    let is_word = |word: &str| !word.is_empty() && !word.contains(is_wrong);
    if let Some(text) = text.strip_prefix('.') {
        let end = text.find(['.', '[']).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        let is_name = is_word(name) && !name.contains('=');
        return is_name.then_some((Step::Field(name), rest));
    }
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    let step = match inside.split_once('=') {
        Some((field, value)) if is_word(field) && is_word(value) => Step::Element { field, value },
        None if is_word(inside) => Step::Field(inside),
        _ => return None,
    };
    Some((step, rest))
}

/// Returns a value as a path has it. `None` for `null`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_core::CustomResourceExt;
    use pod_reloader_api::FieldBinding;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn place(path: &str, object: &Value) -> Result<(String, Option<Value>), NoPlace> {
        let path = Path::parse(path).unwrap();
        let object = to_raw_value(object).unwrap();
        let place = path.place(&object)?;
        let value = place
            .value
            .map(|it| serde_json::from_str(it.get()).unwrap());
        Ok((place.pointer.to_string(), value))
    }

    fn missing(path: &str) -> Result<(String, Option<Value>), NoPlace> {
        Err(NoPlace::Missing(path.into()))
    }

    #[test]
    fn a_path_leads_to_a_field_that_is_there_or_not() {
        let object =
            json!({"spec": {"s3": {"accesskey": "a", "none": null}, "a/b~": {"log.level": "x"}}});
        let at = |path: &str| place(path, &object).unwrap();
        assert_eq!(
            at("spec.s3.accesskey"),
            ("/spec/s3/accesskey".into(), Some(json!("a")))
        );
        assert_eq!(at("spec.s3.region"), ("/spec/s3/region".into(), None));
        assert_eq!(at("spec.s3.none").1, None);
        assert_eq!(
            at("spec.a/b~[log.level]"),
            ("/spec/a~1b~0/log.level".into(), Some(json!("x")))
        );
    }

    #[test]
    fn an_element_of_a_list_is_found_by_a_field_wherever_it_is() {
        let users = json!([{"name": "viewer"}, {"name": "admin", "password": "x"}, {"id": 7}]);
        let object = json!({"spec": {"users": users}});
        let path = Path::parse("spec.users[name=admin].password").unwrap();
        let raw = to_raw_value(&object).unwrap();
        let found = path.place(&raw).unwrap();
        assert_eq!(found.pointer.to_string(), "/spec/users/1/password");
        let (element, name) = &found.elements[0];
        assert_eq!(
            (element.as_str(), name),
            ("/spec/users/1/name", &json!("admin"))
        );
        let by_number = place("spec.users[id=7].password", &object).unwrap();
        assert_eq!(by_number.0, "/spec/users/2/password");
    }

    #[test]
    fn nothing_but_the_last_field_may_be_missing() {
        let object = json!({"spec": {"users": [{"name": "a"}, {"name": "a"}], "text": "t", "s3": null, "map": {}}});
        assert_eq!(place("spec.gcs.key", &object), missing("spec.gcs"));
        assert_eq!(place("spec.gcs.a.key", &object), missing("spec.gcs"));
        assert_eq!(place("spec.s3.key", &object), missing("spec.s3"));
        assert_eq!(place("spec.text.key", &object), missing("spec.text"));
        assert_eq!(
            place("spec.users[name=b].x", &object),
            missing("spec.users[name=b]")
        );
        assert_eq!(place("spec.map[name=b].x", &object), missing("spec.map"));
        assert_eq!(place("spec.a", &json!({})), missing("spec"));
        assert_eq!(
            place("spec.users[name=a].x", &object),
            Err(NoPlace::Ambiguous("spec.users[name=a]".into()))
        );
        assert_eq!(place("spec.users", &object), Err(NoPlace::NotAField));
        assert_eq!(place("spec.map", &object), Err(NoPlace::NotAField));
    }

    #[test]
    fn a_text_that_is_no_path_under_spec_is_refused() {
        for text in [
            "",
            "spec",
            "spec.",
            "spec..a",
            "specs.a",
            "status.phase",
            "metadata.name",
            "a.spec.b",
            "spec.users[name=admin]",
            "spec.users[0",
            "spec.users[].a",
            "spec.users[=a].b",
            "spec.users[a=].b",
            "spec.users[a=[b]].c",
            "spec.a]",
            "spec.a=b",
            "spec.users[a=b]c",
            "spec.users[name=admin].name",
            "spec.users[name=admin][name]",
            "spec.a\nb",
            "spec.users[name=a\u{85}b].c",
            "spec[a\u{7f}]",
        ] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_that_are_followed_together_lead_where_each_leads_alone() {
        let users =
            json!([{"name": "a", "id": 1, "x": {"y": 1}}, {"name": "b", "id": 2}, {"name": "b"}]);
        let object = json!({"spec": {"users": users, "s3": {"key": "k"}}});
        let object = to_raw_value(&object).unwrap();
        let paths = [
            "spec.users[name=a].x.y",
            "spec.users[id=1].x.y",
            "spec.users[id=2].x",
            "spec.users[name=b].x",
            "spec.users[name=c].x",
            "spec.users.x",
            "spec.s3.key",
            "spec.s3.key.x",
            "spec.s3[name=a].x",
            "spec.s3",
        ];
        let paths = paths.map(|it| Path::parse(it).unwrap());
        let together = places(&object, &paths.each_ref());
        for (path, together) in paths.iter().zip(together) {
            let shown = |place: Result<Place<'_>, NoPlace>| format!("{place:?}");
            assert_eq!(shown(path.place(&object)), shown(together), "{path}");
        }
    }

    /// Returns a path of this many steps after `spec`.
    fn of_steps(count: usize) -> String {
        format!("spec{}", ".a".repeat(count))
    }

    /// Returns a path of this many characters.
    fn of_length(length: usize) -> String {
        format!("spec.{}", "ä".repeat(length - 5))
    }

    #[test]
    fn a_path_that_is_too_long_or_has_too_many_steps_is_refused() {
        assert!(Path::parse(&of_length(256)).is_ok());
        let error = Path::parse(&of_length(257)).unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
        assert!(matches!(error, InvalidPath::TooLong(_)), "{error}");
        assert!(Path::parse(&of_steps(16)).is_ok());
        let error = Path::parse(&of_steps(17)).unwrap_err();
        assert_eq!(error, InvalidPath::TooManySteps(of_steps(17)));
    }

    #[test]
    fn the_crd_takes_the_paths_that_are_taken_here() {
        let schema = serde_json::to_value(FieldBinding::crd()).unwrap();
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fields/items/properties/path";
        let schema = schema.pointer(path).unwrap();
        let pattern = regex::Regex::new(schema["pattern"].as_str().unwrap()).unwrap();
        let longest = schema["maxLength"].as_u64().unwrap();
        let is_taken =
            |text: &str| text.chars().count() as u64 <= longest && pattern.is_match(text);
        let element_and = |count: usize| format!("spec[a=b]{}", ".a".repeat(count));
        let others = [
            "spec",
            "spec.a[b=c]",
            "spec.a[b=c].d",
            "spec[a.b][c]",
            "status.a",
            "spec.a\nb",
            "spec[a=b\u{85}].c",
            "spec[\u{a0}\u{7e}]",
        ];
        let at_the_limits = [
            of_steps(1),
            of_steps(16),
            of_steps(17),
            of_length(256),
            of_length(257),
            element_and(15),
            element_and(16),
        ];
        for text in others.map(str::to_owned).iter().chain(&at_the_limits) {
            assert_eq!(Path::parse(text).is_ok(), is_taken(text), "{text}");
        }
    }

    #[test]
    fn a_path_takes_no_more_memory_than_its_text() {
        assert_eq!(size_of::<Path>(), size_of::<Box<str>>());
    }

    #[test]
    fn a_manager_has_a_field_alone_or_with_an_atomic_list_around_it() {
        let path = Path::parse("spec.users[name=admin].password").unwrap();
        let is_among = |managed: Value| path.is_among(&to_raw_value(&managed).unwrap());
        let users = |users: Value| is_among(json!({"f:spec": {"f:users": users}}));
        assert!(users(
            json!({"k:{\"name\":\"admin\"}": {".": {}, "f:password": {}}})
        ));
        assert!(users(json!({})));
        assert!(!users(
            json!({"k:{\"name\":\"viewer\"}": {"f:password": {}}})
        ));
        assert!(!users(json!({"k:{\"name\":\"admin\"}": {"f:role": {}}})));
        assert!(!is_among(json!({"f:metadata": {}})));
    }
}
