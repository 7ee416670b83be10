//! Writes JSON in one of the many ways that mean the same, and replaces parts of it by something odd.

use serde_json::{Value, json};

use crate::choices::Choices;

/// The text that stands for lists in lists, when it is alone in a list.
const DEEP: &str = "deep";
/// The number of these lists. A `Value` can have 127.
const DEPTH: usize = 200;
/// The number that stands for one with a thousand digits, which no `Value` can have.
const LONG: f64 = 1.25e300;

/// Returns a list that is written with more lists in it than a `Value` can have.
pub(crate) fn deep() -> Value {
    json!([DEEP])
}

/// Returns a number that is written with a thousand digits.
pub(crate) fn long() -> Value {
    json!(LONG)
}

/// Writes a value: members in any order, white space and escapes where the choices are so. An object whose path is in
/// `repeats` has some names twice. The last one counts.
pub(crate) fn written(
    value: &Value,
    repeats: &dyn Fn(&str) -> bool,
    choices: &mut Choices<'_>,
) -> String {
    let mut writer = Writer {
        text: String::new(),
        repeats,
        choices,
    };
    writer.value(value, "");
    writer.text
}

/// Returns true for no object.
pub(crate) fn nowhere(_: &str) -> bool {
    false
}

struct Writer<'a, 'b> {
    text: String,
    repeats: &'a dyn Fn(&str) -> bool,
    choices: &'a mut Choices<'b>,
}

impl Writer<'_, '_> {
    /// Writes a value. `path` has the names above it, each behind a slash, and `*` for an element.
    fn value(&mut self, value: &Value, path: &str) {
        match value {
            Value::Array(elements) if is_deep(elements) => {
                self.text += &"[".repeat(DEPTH);
                self.text += &"]".repeat(DEPTH);
            }
            Value::Array(elements) => {
                self.text.push('[');
                for (at, element) in elements.iter().enumerate() {
                    self.separator(at);
                    self.value(element, &format!("{path}/*"));
                }
                self.text.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                match self.choices.number() % 4 {
                    1 => members.reverse(),
                    2 => {
                        let middle = members.len() / 2;
                        members.rotate_left(middle);
                    }
                    _ => (),
                }
                self.text.push('{');
                for (at, (name, member)) in members.into_iter().enumerate() {
                    self.separator(at);
                    self.member(name, member, path);
                }
                self.text.push('}');
            }
            Value::String(text) => self.string(text),
            Value::Number(number) if number.as_f64() == Some(LONG) => {
                self.text += &"9".repeat(1000);
            }
            Value::Number(number) if number.is_f64() && self.choices.flag() => {
                // A zero at the end, which is not that of an exponent.
                let zero = if number.to_string().contains('e') {
                    ""
                } else {
                    "0"
                };
                self.text += &format!("{number}{zero}");
            }
            other => self.text += &other.to_string(),
        }
    }

    fn member(&mut self, name: &str, value: &Value, path: &str) {
        if (self.repeats)(path) && self.choices.number() % 4 == 3 {
            let other = self.other(value);
            self.pair(name, &other, path);
            self.text.push(',');
        }
        self.pair(name, value, path);
    }

    fn pair(&mut self, name: &str, value: &Value, path: &str) {
        self.string(name);
        self.text.push(':');
        self.value(value, &format!("{path}/{name}"));
    }

    /// Returns a value that does not count. In place of a text, it is one, too: a map of texts stays one.
    fn other(&mut self, value: &Value) -> Value {
        let others = [json!(null), json!(1), json!("a"), json!({}), deep(), long()];
        match value {
            Value::String(_) => json!("other"),
            _ => self.choices.one(&others).clone(),
        }
    }

    fn separator(&mut self, at: usize) {
        let spaces = ["", "", " ", "\n\t"];
        if at > 0 {
            let space: &&str = self.choices.one(&spaces);
            self.text.push_str(space);
            self.text.push(',');
        }
        let space: &&str = self.choices.one(&spaces);
        self.text.push_str(space);
    }

    fn string(&mut self, text: &str) {
        if self.choices.number() % 4 < 3 {
            self.text += &json!(text).to_string();
            return;
        }
        self.text.push('"');
        for unit in text.encode_utf16() {
            self.text += &format!("\\u{unit:04x}");
        }
        self.text.push('"');
    }
}

fn is_deep(elements: &[Value]) -> bool {
    matches!(elements, [Value::String(text)] if text == DEEP)
}

/// Replaces a value, or something in it, by one of `others`.
pub(crate) fn spoil(value: &mut Value, others: &[Value], choices: &mut Choices<'_>) {
    let depth = choices.number() % 10;
    spoil_below(value, others, choices, depth);
}

fn spoil_below(value: &mut Value, others: &[Value], choices: &mut Choices<'_>, depth: usize) {
    let count = match &*value {
        Value::Object(members) => members.len(),
        Value::Array(elements) => elements.len(),
        _ => 0,
    };
    if depth == 0 || count == 0 {
        *value = choices.one(others).clone();
        return;
    }
    let at = choices.number() % count;
    let child = match value {
        Value::Object(members) => members.values_mut().nth(at),
        Value::Array(elements) => elements.get_mut(at),
        _ => None,
    };
    let child = child.expect("there are more than that");
    spoil_below(child, others, choices, depth - 1);
}
