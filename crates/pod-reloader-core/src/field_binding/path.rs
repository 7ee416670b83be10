//! Paths of fields: how users write them, and where they lead in an object.

use std::fmt;

use jsonptr::{PointerBuf, Token};
use pod_reloader_api::{MAX_PATH_LENGTH, MAX_PATH_STEPS};
use serde_json::Value;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The field itself.
    pub pointer: PointerBuf,
    /// Its value, if it has one.
    pub value: Option<&'a Value>,
    /// The fields by which elements of lists were found, and their values.
    pub elements: Vec<(PointerBuf, &'a Value)>,
}

/// The reason why a path leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The beginning of the path, up to here, leads to nothing that has fields or elements.
    Missing(Box<str>),
    /// Several elements of a list fit.
    Ambiguous(Box<str>),
    /// It leads to an object or a list, which has fields of its own.
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
    pub fn place<'a>(&self, object: &'a Value) -> Result<Place<'a>, NoPlace> {
        let mut pointer = PointerBuf::from_tokens([SPEC]);
        let mut elements = Vec::new();
        let mut here = object.get(SPEC);
        let mut before = SPEC;
        for (step, upto) in self.steps() {
            let missing = || NoPlace::Missing(before.into());
            let parent = here.ok_or_else(missing)?;
            match step {
                Step::Field(name) => {
                    let fields = parent.as_object().ok_or_else(missing)?;
                    pointer.push_back(Token::new(name));
                    here = fields.get(name);
                }
                Step::Element { field, value } => {
                    let list = parent.as_array().ok_or_else(missing)?;
                    let mut fits = list.iter().enumerate().filter_map(|(at, element)| {
                        let found = element.get(field)?;
                        is(found, value).then_some((at, element, found))
                    });
                    let missing = || NoPlace::Missing(upto.into());
                    let (at, element, found) = fits.next().ok_or_else(missing)?;
                    if fits.next().is_some() {
                        return Err(NoPlace::Ambiguous(upto.into()));
                    }
                    pointer.push_back(Token::from(at));
                    let mut test = pointer.clone();
                    test.push_back(Token::new(field));
                    elements.push((test, found));
                    here = Some(element);
                }
            }
            before = upto;
        }
        if here.is_some_and(|it| it.is_object() || it.is_array()) {
            return Err(NoPlace::NotAField);
        }
        Ok(Place {
            pointer,
            value: here.filter(|it| !it.is_null()),
            elements,
        })
    }

    /// Returns true if a manager with these managed fields (`fieldsV1`) has the field, alone or with all that is
    /// around it.
    pub(super) fn is_among(&self, managed: &Value) -> bool {
        let mut here = managed.get("f:spec");
        for (step, _) in self.steps() {
            let Some(Value::Object(fields)) = here else {
                return false;
            };
            // A manager of an atomic list or map has all that is in it.
            if fields.is_empty() {
                return true;
            }
            here = match step {
                Step::Field(name) => fields.get(&format!("f:{name}")),
                Step::Element { field, value } => {
                    let fits = fields.iter().find(|(key, _)| {
                        let key = key.strip_prefix("k:");
                        let key = key.and_then(|key| serde_json::from_str::<Value>(key).ok());
                        key.is_some_and(|key| key.get(field).is_some_and(|it| is(it, value)))
                    });
                    fits.map(|(_, inner)| inner)
                }
            };
        }
        here.is_some()
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
    let is_word = |word: &str| !word.is_empty() && !word.contains(['[', ']']);
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

/// Returns true if a value is the one that a path gives as text.
fn is(found: &Value, text: &str) -> bool {
    match found {
        Value::String(found) => found == text,
        Value::Number(found) => found.to_string() == text,
        Value::Bool(found) => found.to_string() == text,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_core::CustomResourceExt;
    use pod_reloader_api::FieldBinding;
    use serde_json::json;

    fn place(path: &str, object: &Value) -> Result<(String, Option<Value>), NoPlace> {
        let path = Path::parse(path).unwrap();
        let place = path.place(object)?;
        Ok((place.pointer.to_string(), place.value.cloned()))
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
        let found = path.place(&object).unwrap();
        assert_eq!(found.pointer.to_string(), "/spec/users/1/password");
        let (element, name) = &found.elements[0];
        assert_eq!(
            (element.as_str(), *name),
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
        ] {
            assert!(Path::parse(text).is_err(), "{text}");
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
        let users = |users: Value| path.is_among(&json!({"f:spec": {"f:users": users}}));
        assert!(users(
            json!({"k:{\"name\":\"admin\"}": {".": {}, "f:password": {}}})
        ));
        assert!(users(json!({})));
        assert!(!users(
            json!({"k:{\"name\":\"viewer\"}": {"f:password": {}}})
        ));
        assert!(!users(json!({"k:{\"name\":\"admin\"}": {"f:role": {}}})));
        assert!(!path.is_among(&json!({"f:metadata": {}})));
    }
}
