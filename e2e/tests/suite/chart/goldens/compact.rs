//! Prints values as YAML in few lines: what fits into a line is in one.

use serde_json::Value;

/// Number of characters of a line, up to which a map or a list is printed in one.
const WIDTH: usize = 110;

/// Spaces by which the content of a map or a list is indented.
const STEP: usize = 2;

/// Words that YAML does not take for text, in some version of it.
const NO_TEXT: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Returns the value as YAML. Each line ends with a line break.
pub(super) fn compact(value: &Value) -> String {
    let ended = |line: String| line + "\n";
    block(value, 0).into_iter().map(ended).collect()
}

/// Returns the lines of a value that is spread over several lines, if it is a map or a list.
fn block(value: &Value, indent: usize) -> Vec<String> {
    match value {
        Value::Object(map) if !map.is_empty() => map
            .iter()
            .flat_map(|(key, value)| entry(key, value, indent))
            .collect(),
        Value::Array(items) if !items.is_empty() => {
            items.iter().flat_map(|value| item(value, indent)).collect()
        }
        value => vec![format!("{}{}", margin(indent), flow(value))],
    }
}

fn entry(key: &str, value: &Value, indent: usize) -> Vec<String> {
    let head = format!("{}{}:", margin(indent), word(key));
    if let Some((sign, text)) = literal(value) {
        let lines = text.split('\n').map(|line| match line {
            "" => String::new(),
            line => format!("{}{line}", margin(indent + STEP)),
        });
        return [format!("{head} {sign}")]
            .into_iter()
            .chain(lines)
            .collect();
    }
    let line = format!("{head} {}", flow(value));
    if is_in_one_line(&line, value) {
        return vec![line];
    }
    [vec![head], block(value, indent + STEP)].concat()
}

fn item(value: &Value, indent: usize) -> Vec<String> {
    let line = format!("{}- {}", margin(indent), flow(value));
    if is_in_one_line(&line, value) {
        return vec![line];
    }
    let mut lines = block(value, indent + STEP);
    lines[0].replace_range(indent..=indent, "-");
    lines
}

fn is_in_one_line(line: &str, value: &Value) -> bool {
    let can_be_spread = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    !can_be_spread || line.chars().count() <= WIDTH
}

/// Returns how a text of several lines begins, and its lines.
fn literal(value: &Value) -> Option<(&'static str, &str)> {
    let text = value.as_str()?;
    let (sign, lines) = match text.strip_suffix('\n') {
        Some(lines) => ("|", lines),
        None => ("|-", text),
    };
    let is_literal = lines.contains('\n') && !lines.ends_with('\n');
    (is_literal && !lines.starts_with([' ', '\n'])).then_some((sign, lines))
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{}: {}", word(key), flow(value));
            format!(
                "{{{}}}",
                map.iter().map(entry).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(flow).collect::<Vec<_>>().join(", ")
            )
        }
        Value::String(text) => word(text),
        other => other.to_string(),
    }
}

/// Returns a text, in quotes if YAML could take it for something else.
fn word(text: &str) -> String {
    let begins = |first: char| first.is_ascii_alphabetic() || ['/', '<'].contains(&first);
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "_./:=<-".contains(letter);
    let is_plain = (text.starts_with(begins) || text.starts_with("--"))
        && text.chars().all(is_usual)
        && !text.ends_with(':')
        && !NO_TEXT.contains(&text.to_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

fn margin(indent: usize) -> String {
    " ".repeat(indent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_map_or_a_list_is_spread_only_if_it_does_not_fit_into_a_line() {
        let long = "x".repeat(WIDTH);
        let value = json!({
            "containers": [{"args": ["--a", long], "name": "b"}],
            "rules": [{"resources": ["pods"], "verbs": ["get"]}],
        });
        let expected = format!(
            "containers:\n  - args:\n      - --a\n      - {long}\n    name: b\n\
             rules: [{{resources: [pods], verbs: [get]}}]\n"
        );
        assert_eq!(compact(&value), expected);
    }

    #[test]
    fn a_text_that_looks_like_something_else_is_quoted() {
        let value = json!({"a": "1", "b": 1, "c": "true", "d": true, "e": "", "f": "a: b"});
        let expected = "{a: \"1\", b: 1, c: \"true\", d: true, e: \"\", f: \"a: b\"}";
        assert_eq!(flow(&value), expected);
    }

    #[test]
    fn what_is_printed_is_yaml_for_the_same_value() {
        let value = json!({
            "data": {
                "a": "1\n\n  2\n", "b": "1\n2", "c": "\n1\n2", "d": "1\n2\n\n", "e": {}, "f": [],
                "g": "x".repeat(WIDTH),
            },
            "lists": [[1, [2, "x".repeat(WIDTH)]], ["y".repeat(WIDTH)]],
            "words": ["*", "-", "-1", "--a", "a:", "yes", "1e3", "#a", "a,b", "https://a/b"],
        });
        let read: Value = serde_saphyr::from_str(&compact(&value)).unwrap();
        assert_eq!(read, value);
    }
}
