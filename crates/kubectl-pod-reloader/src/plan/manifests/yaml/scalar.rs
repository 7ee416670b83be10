//! What scalars of YAML stand for, as keys and as values of JSON.
//!
//! The rules are those of `resolve.go` and `decode.go` of go.yaml.in/yaml/v2, and of `convertToJSONableObject` in
//! `yaml.go` of sigs.k8s.io/yaml, which kubectl uses.

use base64::{Engine, engine::general_purpose::STANDARD};
use granit_parser::{Event, ScalarStyle, Tag};
use serde_json::{Number, Value};

/// The beginning of the tags of YAML itself.
const YAML: &str = "tag:yaml.org,2002:";
/// The tag of what is read as if it had no quotes and no tag.
const PLAIN: &str = "!";

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that is larger than the largest [`Scalar::Int`].
    Large(u64),
    Float(f64),
    Text(String),
}

/// Returns true if an event is the key of entries that are merged into a map.
pub(super) fn is_merge(event: &Event<'_>) -> bool {
    let Event::Scalar(text, style, _, tag) = event else {
        return false;
    };
    let tag = tag.as_deref().map(name);
    let is_merge = match tag.as_deref() {
        None => *style == ScalarStyle::Plain,
        Some(tag) => tag == PLAIN || tag.strip_prefix(YAML) == Some("merge"),
    };
    is_merge && text == "<<"
}

fn name(tag: &Tag) -> String {
    let (handle, suffix) = tag.parts();
    format!("{handle}{suffix}")
}

impl Scalar {
    /// Returns what a text stands for. `None` if it is not of the type of its tag.
    pub(super) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Option<Self> {
        let as_text = || Some(Self::Text(text.to_owned()));
        let Some(tag) = tag.map(name) else {
            return match style {
                ScalarStyle::Plain => Some(Self::plain(text)),
                _ => as_text(),
            };
        };
        let plain = || Self::plain(text);
        match tag.strip_prefix(YAML) {
            None if tag == PLAIN => Some(plain()),
            Some("null") => Some(plain()).filter(|it| *it == Self::Null),
            Some("bool") => Some(plain()).filter(|it| matches!(it, Self::Bool(_))),
            Some("int") => Some(plain()).filter(|it| matches!(it, Self::Int(_) | Self::Large(_))),
            Some("float") => match plain() {
                Self::Int(int) => Some(Self::Float(int as f64)),
                it => Some(it).filter(|it| matches!(it, Self::Float(_))),
            },
            Some("timestamp") if !begins_with_a_year(text) => None,
            Some("binary") => {
                let text = text.replace(['\r', '\n'], "");
                let bytes = STANDARD.decode(text).ok()?;
                Some(Self::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            _ => as_text(),
        }
    }

    /// Returns what a text without quotes and without a tag stands for. A timestamp stays a text.
    fn plain(text: &str) -> Self {
        let number = match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => return Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Some(Self::Float(f64::NAN)),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
                Some(Self::Float(f64::INFINITY))
            }
            "-.inf" | "-.Inf" | "-.INF" => Some(Self::Float(f64::NEG_INFINITY)),
            _ if text.starts_with('.') => float(&without_separators(text)),
            _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) => {
                let digits = text.replace('_', "");
                integer(&digits).or_else(|| float(&digits))
            }
            _ => None,
        };
        number.unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// Returns the key of JSON. `None` for what kubectl does not take for a key.
    pub(super) fn into_key(self) -> Option<String> {
        match self {
            Self::Null | Self::Large(_) => None,
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(int) => Some(int.to_string()),
            Self::Float(float) => Some(float_key(float as f32)),
            Self::Text(text) => Some(text),
        }
    }

    /// Returns the value of JSON. `None` for numbers that JSON does not have.
    pub(super) fn into_value(self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Bool(value) => Some(Value::Bool(value)),
            Self::Int(int) => Some(int.into()),
            // kubectl reads integers of 64 bits with a sign, and all others as floating point.
            Self::Large(large) => float_value(large as f64),
            Self::Float(float) => float_value(float),
            Self::Text(text) => Some(Value::String(text)),
        }
    }
}

/// Returns an integer: decimal, or with a prefix of Go (`0x`, `0o`, `0b`, or `0` for octal). `None` if it is none.
fn integer(text: &str) -> Option<Scalar> {
    if let Some(digits) = text.strip_prefix('-') {
        return Some(Scalar::Int(0_i64.checked_sub_unsigned(magnitude(digits)?)?));
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    let magnitude = magnitude(digits)?;
    match i64::try_from(magnitude) {
        Ok(int) => Some(Scalar::Int(int)),
        Err(_) if digits.len() == text.len() => Some(Scalar::Large(magnitude)),
        // Go reads none with a sign into an unsigned one.
        Err(_) => None,
    }
}

fn magnitude(digits: &str) -> Option<u64> {
    let (radix, digits) = match digits.as_bytes() {
        [b'0'] => (10, digits),
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &digits[2..]),
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| u64::from_str_radix(digits, radix).ok())?
}

/// Returns a decimal number of floating point. `None` if it is none, or too large.
fn float(text: &str) -> Option<Scalar> {
    let float: f64 = is_decimal(text).then(|| text.parse().ok())??;
    float.is_finite().then_some(Scalar::Float(float))
}

/// Returns true for a text of `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_decimal(text: &str) -> bool {
    let unsigned = |text: &str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let text = unsigned(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(unsigned(exponent))),
        None => (&*text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    has_digits
        && are_digits(whole)
        && are_digits(fraction)
        && exponent.is_none_or(|it| !it.is_empty() && are_digits(&it))
}

/// Returns a number that begins with a dot without the underscores between its digits: Go takes no others there.
fn without_separators(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let is_separator = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let kept = text.char_indices();
    let kept = kept.filter(|(at, c)| *c != '_' || !is_separator(*at));
    kept.map(|(_, c)| c).collect()
}

fn begins_with_a_year(text: &str) -> bool {
    let (year, rest) = text.split_at_checked(4).unwrap_or_default();
    year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit()) && rest.starts_with('-')
}

/// Returns a number as Go writes it as a key: `strconv.FormatFloat` with the format `g` and 32 bits.
fn float_key(float: f32) -> String {
    if float.is_nan() {
        return ".nan".to_owned();
    }
    if float.is_infinite() {
        let sign = if float < 0.0 { "-" } else { "" };
        return format!("{sign}.inf");
    }
    let shortest = format!("{float:e}");
    let parts = shortest.split_once('e');
    let parts = parts.and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    match parts {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => float.to_string(),
    }
}

/// Returns a number as kubectl reads it from JSON: Go writes no fraction that is zero, and reads such a number as an
/// integer.
fn float_value(float: f64) -> Option<Value> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) {
        return Some((float as i64).into());
    }
    Number::from_f64(float).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::super::documents;
    use super::*;
    use serde_json::json;

    /// A text, what it is as a key, and as a value. `None` if kubectl does not take it.
    type Row = (&'static str, Option<&'static str>, Option<Value>);

    fn rows() -> Vec<Row> {
        let same = |text: &'static str, key: &'static str, value: Value| -> Row {
            (text, Some(key), Some(value))
        };
        let text = |it: &'static str| same(it, it, json!(it));
        let mut rows = vec![
            // Booleans of YAML 1.1.
            same("y", "true", json!(true)),
            same("Y", "true", json!(true)),
            same("yes", "true", json!(true)),
            same("YES", "true", json!(true)),
            same("on", "true", json!(true)),
            same("On", "true", json!(true)),
            same("True", "true", json!(true)),
            same("n", "false", json!(false)),
            same("no", "false", json!(false)),
            same("No", "false", json!(false)),
            same("off", "false", json!(false)),
            same("FALSE", "false", json!(false)),
            // Nothing.
            ("~", None, Some(Value::Null)),
            ("null", None, Some(Value::Null)),
            ("NULL", None, Some(Value::Null)),
            // Integers.
            same("0", "0", json!(0)),
            same("-0", "0", json!(0)),
            same("22", "22", json!(22)),
            same("+12", "12", json!(12)),
            same("-12", "-12", json!(-12)),
            same("0x50", "80", json!(80)),
            same("0X1f", "31", json!(31)),
            same("-0x10", "-16", json!(-16)),
            same("0o17", "15", json!(15)),
            same("017", "15", json!(15)),
            same("0644", "420", json!(420)),
            same("0b101", "5", json!(5)),
            same("1_000", "1000", json!(1000)),
            same("0x_5_0", "80", json!(80)),
            same(
                "9223372036854775807",
                "9223372036854775807",
                json!(i64::MAX),
            ),
            same(
                "-9223372036854775808",
                "-9223372036854775808",
                json!(i64::MIN),
            ),
            (
                "9223372036854775808",
                None,
                Some(json!(9_223_372_036_854_775_808.0)),
            ),
            same(
                "+9223372036854775808",
                "9.223372e+18",
                json!(9_223_372_036_854_775_808.0),
            ),
            // Floating point. A leading zero that is not octal is decimal.
            same("08", "8", json!(8)),
            same("1.9", "1.9", json!(1.9)),
            same("1.10", "1.1", json!(1.1)),
            same("-1.50", "-1.5", json!(-1.5)),
            same("1.", "1", json!(1)),
            same("1.0", "1", json!(1)),
            same(".5", "0.5", json!(0.5)),
            same("+.5", "0.5", json!(0.5)),
            same("._5", "._5", json!("._5")),
            same(".5_0", "0.5", json!(0.5)),
            same("1e3", "1000", json!(1000)),
            same("1E+3", "1000", json!(1000)),
            same("1e6", "1e+06", json!(1_000_000)),
            same("123456.5", "123456.5", json!(123_456.5)),
            same("123456789.5", "1.2345679e+08", json!(123_456_789.5)),
            same("1e-4", "0.0001", json!(0.0001)),
            same("1e-5", "1e-05", json!(0.00001)),
            same("0.1234567891", "0.12345679", json!(0.123_456_789_1)),
            same("1e40", ".inf", json!(1e40)),
            (".inf", Some(".inf"), None),
            ("+.Inf", Some(".inf"), None),
            ("-.INF", Some("-.inf"), None),
            (".nan", Some(".nan"), None),
            // With tags.
            same("!!str 12", "12", json!("12")),
            same("!!str yes", "yes", json!("yes")),
            same("!!int '12'", "12", json!(12)),
            same("!!float 12", "12", json!(12)),
            same("!!bool 'on'", "true", json!(true)),
            same("!!binary aGk=", "hi", json!("hi")),
            same("!!timestamp 2001-12-14", "2001-12-14", json!("2001-12-14")),
            same("!other 12", "12", json!("12")),
            same("! '12'", "12", json!(12)),
            ("!!int a", None, None),
            ("!!bool 1", None, None),
            ("!!timestamp a", None, None),
        ];
        rows.extend(
            [
                "yEs",
                "tRue",
                "oN",
                "nULL",
                "a",
                "_1",
                "0x",
                "0xg",
                "08x",
                "1e400",
                "1.2.3",
                "1:30",
                "12:30:45",
                "-",
                "+",
                ".",
                "1e",
                "0.5.",
                "2001-12-14",
                "2001-12-14T21:59:43.10-05:00",
                "2001-12-14 21:59:43.10",
                ".infinity",
                "nan",
                "inf",
                "é1",
                "1é",
            ]
            .map(text),
        );
        rows
    }

    #[test]
    fn scalars_stand_for_what_they_do_in_kubectl() {
        for (text, key, value) in rows() {
            // An indicator that is alone would begin a list.
            let (as_key, as_value) = (format!("{{? {text} : a}}"), format!("[{text}]"));
            if text != "-" {
                let read = documents(&as_key).ok();
                let expected = key.map(|key| vec![json!({key: "a"})]);
                assert_eq!(read, expected, "{text} as a key");
                let read = documents(&as_value).ok();
                let expected = value.clone().map(|value| vec![json!([value])]);
                assert_eq!(read, expected, "{text} as a value");
            }
            if !text.starts_with('!') {
                let quoted = documents(&format!("{{'{text}': '{text}'}}")).unwrap();
                assert_eq!(quoted, [json!({text: text})], "{text} in quotes");
            }
        }
    }

    #[test]
    fn a_block_is_a_text() {
        let read = documents("a: |-\n  12\nb: >-\n  yes\n").unwrap();
        assert_eq!(read, [json!({"a": "12", "b": "yes"})]);
        assert_eq!(
            documents("a:\nb: ''").unwrap(),
            [json!({"a": null, "b": ""})]
        );
    }
}
