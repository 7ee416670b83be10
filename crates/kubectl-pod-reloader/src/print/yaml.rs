//! Writes values as YAML in blocks, as kubectl does.

use serde_json::Value;

use super::is_hidden;

/// Words that some reader of YAML takes for something else than a text.
const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Returns a document, which ends with a newline. Everything that a terminal would obey or hide is escaped.
pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    add(&mut text, value, 0);
    text
}

/// Adds a value that begins at the end of `text`. Its other lines are indented by `indent`.
fn add(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (name, value)) in fields.iter().enumerate() {
                if at > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str(&string(name));
                text.push(':');
                add_field(text, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                text.push_str("- ");
                add(text, item, indent + 2);
            }
        }
        scalar => {
            text.push_str(&flow(scalar));
            text.push('\n');
        }
    }
}

/// Adds the value of a field whose name is indented by `indent`. A list is indented no further, as kubectl does.
fn add_field(text: &mut String, value: &Value, indent: usize) {
    let below = match value {
        Value::Object(fields) if !fields.is_empty() => Some(indent + 2),
        Value::Array(items) if !items.is_empty() => Some(indent),
        _ => None,
    };
    match below {
        Some(below) => {
            text.push('\n');
            text.push_str(&" ".repeat(below));
            add(text, value, below);
        }
        None => {
            text.push(' ');
            add(text, value, indent);
        }
    }
}

/// Returns a value that has no lines of its own.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        // JSON is YAML: a number, a boolean, null, or something empty.
        other => other.to_string(),
    }
}

/// Returns a text, in quotes if anything could take it for something else.
fn string(text: &str) -> String {
    let is_safe = |it: char| it.is_ascii_alphanumeric() || "-._/".contains(it);
    let are_safe = text
        .split(' ')
        .all(|word| !word.is_empty() && word.chars().all(is_safe));
    let begins_as_word = text.starts_with(|it: char| it.is_ascii_alphabetic());
    let is_reserved = RESERVED.iter().any(|it| text.eq_ignore_ascii_case(it));
    if are_safe && begins_as_word && !is_reserved {
        text.to_owned()
    } else {
        quoted(text)
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            hidden if is_hidden(hidden) => {
                let code = u32::from(hidden);
                quoted.push_str(&match code {
                    ..0x1_0000 => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
            shown => quoted.push(shown),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_has_the_form_of_kubectl() {
        let value = json!({
            "empty": {},
            "items": [{"keys": ["a", "b"], "kind": "Deployment"}, {"meta": {"uid": 1}, "name": "web"}],
            "nested": [["a"]],
            "none": [],
            "nothing": null,
        });
        let expected = "\
empty: {}
items:
- keys:
  - a
  - b
  kind: Deployment
- meta:
    uid: 1
  name: web
nested:
- - a
none: []
nothing: null
";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!({})), "{}\n");
    }

    #[test]
    fn a_text_stays_a_text() {
        for (text, written) in [
            ("web", "web"),
            ("up to date", "up to date"),
            ("deployment.apps/web", "deployment.apps/web"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("No", "\"No\""),
            ("12", "\"12\""),
            ("2026-01-01T00:00:00Z", "\"2026-01-01T00:00:00Z\""),
            ("a: b", "\"a: b\""),
            (" a", "\" a\""),
            ("a ", "\"a \""),
            ("a\"\\\n", "\"a\\\"\\\\\\n\""),
            ("a\u{1b}\u{e0041}", "\"a\\u001b\\U000e0041\""),
        ] {
            assert_eq!(document(&json!(text)), format!("{written}\n"), "{text:?}");
        }
    }
}
