//! Checks that JSON is read the same, whether it is built or only looked into.

use std::collections::BTreeMap;

use pod_reloader_core::field_binding::path::{NoPlace, Path};
use pod_reloader_core::raw::{elements, members};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::choices::Choices;

/// Writes an object, reads it in both ways, and follows a path in it.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let path: Vec<_> = (0..choices.number() % 5)
        .map(|_| *choices.one(&STEPS))
        .collect();
    let text = object(&mut choices, &["spec", "\\u0073pec", "a"], 0);
    let built: Value = serde_json::from_str(&text).expect("it is JSON");
    let raw: &RawValue = serde_json::from_str(&text).expect("it is JSON");
    is_same(raw, &built);
    let written: String = path.iter().map(|it| it.written()).collect();
    let written = format!("spec{written}");
    let Ok(parsed) = Path::parse(&written) else {
        return;
    };
    let place = parsed.place(raw).map(|place| {
        let value = place.value.map(|it| serde_json::from_str(it.get()));
        let elements = place.elements.into_iter();
        Place {
            pointer: place.pointer.to_string(),
            value: value.map(|it| it.expect("it is JSON")),
            elements: elements.map(|(at, it)| (at.to_string(), it)).collect(),
        }
    });
    assert_eq!(place, place_in(&built, &path), "{written} in {text}");
}

fn is_same(raw: &RawValue, built: &Value) {
    match built {
        Value::Object(built) => {
            let mut seen: BTreeMap<String, &RawValue> = BTreeMap::new();
            let read = members(raw, |name, value| {
                seen.insert(name.to_owned(), value);
            });
            read.expect("it is an object");
            assert!(seen.keys().eq(built.keys()), "{raw}");
            for (raw, built) in seen.values().zip(built.values()) {
                is_same(raw, built);
            }
        }
        Value::Array(built) => {
            let mut count = 0;
            for (at, element) in elements(raw.get()).expect("it is a list").enumerate() {
                is_same(element, &built[at]);
                count += 1;
            }
            assert_eq!(count, built.len(), "{raw}");
        }
        built => assert_eq!(
            serde_json::from_str::<Value>(raw.get()).expect("it is JSON"),
            *built
        ),
    }
}

/// A step of a path.
#[derive(Clone, Copy)]
enum Step {
    Field(&'static str),
    Element(&'static str, &'static str),
}

const STEPS: [Step; 8] = [
    Step::Field("a"),
    Step::Field("b"),
    Step::Field("a/b"),
    Step::Field("ä.b"),
    Step::Element("a", "x"),
    Step::Element("a", "1"),
    Step::Element("b", "1.0"),
    Step::Element("b", "true"),
];

impl Step {
    fn written(self) -> String {
        match self {
            Self::Field(name) => format!("[{name}]"),
            Self::Element(field, value) => format!("[{field}={value}]"),
        }
    }
}

/// A place as it is compared.
#[derive(Debug, PartialEq)]
struct Place {
    pointer: String,
    value: Option<Value>,
    elements: Vec<(String, Value)>,
}

/// Returns the place to which a path leads in an object that is built.
fn place_in(object: &Value, path: &[Step]) -> Result<Place, NoPlace> {
    let (mut pointer, mut upto) = ("/spec".to_owned(), "spec".to_owned());
    let mut elements = Vec::new();
    let mut here = object.get("spec");
    for step in path {
        let before = upto.clone();
        upto += &step.written();
        let missing = || NoPlace::Missing(before.as_str().into());
        let parent = here.ok_or_else(missing)?;
        match step {
            Step::Field(name) => {
                here = parent.as_object().ok_or_else(missing)?.get(*name);
                pointer += &format!("/{}", name.replace('/', "~1"));
            }
            Step::Element(field, value) => {
                let list = parent.as_array().ok_or_else(missing)?;
                let fits = |it: &&(usize, &Value)| it.1.get(*field).is_some_and(|it| is(it, value));
                let all: Vec<_> = list.iter().enumerate().collect();
                let fitting: Vec<_> = all.iter().filter(fits).collect();
                let [(at, element)] = fitting[..] else {
                    return Err(match fitting.is_empty() {
                        true => NoPlace::Missing(upto.into()),
                        false => NoPlace::Ambiguous(upto.into()),
                    });
                };
                pointer += &format!("/{at}");
                elements.push((format!("{pointer}/{field}"), element[*field].clone()));
                here = Some(*element);
            }
        }
    }
    match here {
        Some(Value::Object(_) | Value::Array(_)) => Err(NoPlace::NotAField),
        here => Ok(Place {
            pointer,
            value: here.filter(|it| !it.is_null()).cloned(),
            elements,
        }),
    }
}

fn is(found: &Value, text: &str) -> bool {
    match found {
        Value::String(found) => found == text,
        Value::Number(_) | Value::Bool(_) => format!("{found}") == text,
        _ => false,
    }
}

/// Writes an object with some of these names, in any order and more than once.
fn object(choices: &mut Choices<'_>, names: &[&str], depth: usize) -> String {
    let members = (0..choices.number() % 6).map(|_| {
        let name = *choices.one(names);
        format!("\"{name}\" : {}", value(choices, depth + 1))
    });
    format!("{{ {} }}", members.collect::<Vec<_>>().join(" ,"))
}

fn value(choices: &mut Choices<'_>, depth: usize) -> String {
    const NAMES: [&str; 8] = [
        "a",
        "b",
        "\\u0061",
        "a/b",
        "a\\/b",
        "ä.b",
        "\\u00e4.b",
        "\\ud83d\\ude00",
    ];
    const SINGLE: [&str; 12] = [
        "null",
        "true",
        "false",
        "1",
        "1.0",
        "1.0000000000000000000000000000000000",
        "-0",
        "1e3",
        "100000000000000000000000000000000",
        "\"x\"",
        "\"\\u0078\"",
        "\"1.0\"",
    ];
    match choices.number() % 8 {
        0..3 if depth < 100 => object(choices, &NAMES, depth),
        3..5 if depth < 100 => {
            let elements = (0..choices.number() % 4).map(|_| value(choices, depth + 1));
            format!("[ {}]", elements.collect::<Vec<_>>().join(","))
        }
        5 => "{\"a\":".repeat(20) + "1" + &"}".repeat(20),
        _ => (*choices.one(&SINGLE)).to_owned(),
    }
}
