//! Label selectors, as people write them on a command line.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Expression, Selector};

use crate::name::Name;

/// Parses a selector. It is in kubectl's syntax, such as `team=shop,stage in (test,live),!legacy`; a
/// LabelSelector in JSON; or in the older syntax of Stakater's Reloader, `key:value` and `key:*`.
///
/// # Errors
///
/// Says what is wrong with the selector. One that selects everything is an error, too: nobody sets a
/// selector in order to select everything.
pub fn parse(text: &str) -> Result<Selector, String> {
    let text = text.trim();
    let selector = match text.starts_with('{') {
        true => from_json(text)?,
        false => requirements(text)
            .map(expression)
            .collect::<Result<_, _>>()?,
    };
    if selector.selects_all() {
        return Err("it selects everything".to_owned());
    }
    Ok(selector)
}

fn from_json(text: &str) -> Result<Selector, String> {
    let wrong = |_| "it is no LabelSelector in JSON".to_owned();
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(wrong)?;
    // A LabelSelector ignores unknown fields, so it would select more than intended.
    if let Some(unknown) = fields
        .keys()
        .find(|field| !["matchLabels", "matchExpressions"].contains(&field.as_str()))
    {
        return Err(format!("a LabelSelector has no {unknown:?}"));
    }
    let selector: LabelSelector = serde_json::from_str(text).map_err(wrong)?;
    Selector::try_from(selector).map_err(|error| error.to_string())
}

/// Splits at the commas that are not in parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

fn expression(part: &str) -> Result<Expression, String> {
    let wrong = || format!("{part:?} is no requirement of a label selector");
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(label_key(key).ok_or_else(wrong)?));
    }
    if let Some((left, values)) = part.strip_suffix(')').and_then(|set| set.split_once('(')) {
        let values: BTreeSet<_> = values
            .split(',')
            .map(|value| label_value(value).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let (key, operator) = left
            .trim()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(wrong)?;
        let key = label_key(key).ok_or_else(wrong)?;
        return match operator {
            "in" => Ok(Expression::In(key, values)),
            "notin" => Ok(Expression::NotIn(key, values)),
            _ => Err(wrong()),
        };
    }
    let (key, value, is_equal) = match part.split_once("!=") {
        Some((key, value)) => (key, value, false),
        None => match part
            .split_once("==")
            .or_else(|| part.split_once(['=', ':']))
        {
            Some((key, value)) => (key, value, true),
            None => return Ok(Expression::Exists(label_key(part).ok_or_else(wrong)?)),
        },
    };
    let key = label_key(key).ok_or_else(wrong)?;
    if is_equal && value.trim() == "*" {
        return Ok(Expression::Exists(key));
    }
    let value = label_value(value).ok_or_else(wrong)?;
    Ok(match is_equal {
        true => Expression::Equal(key, value),
        false => Expression::NotEqual(key, value),
    })
}

/// Returns the text if it is a valid label key: `name`, or `prefix/name`, where `prefix` is a DNS subdomain.
fn label_key(text: &str) -> Option<String> {
    let text = text.trim();
    let is_key = match text.split_once('/') {
        Some((prefix, name)) => Name::parse(prefix).is_ok() && is_label_name(name),
        None => is_label_name(text),
    };
    is_key.then(|| text.to_owned())
}

/// Returns the text if it is a valid label value, which may be empty.
fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    (text.is_empty() || is_label_name(text)).then(|| text.to_owned())
}

fn is_label_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let all = bytes.iter().all(is_inner);
    all && bytes.len() <= 63 && is_edge(bytes.first()) && is_edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube_core::SelectorExt;

    fn selected(selector: &str, labels: &[(&str, &str)]) -> bool {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let selector = parse(selector).unwrap();
        selector.matches(&labels.iter().map(owned).collect())
    }

    #[test]
    fn each_form_of_a_requirement_selects_what_it_says() {
        for (selector, matching, other) in [
            ("team=shop", [("team", "shop")], [("team", "billing")]),
            ("team==shop", [("team", "shop")], [("team", "billing")]),
            ("team:shop", [("team", "shop")], [("team", "billing")]),
            ("team!=shop", [("team", "billing")], [("team", "shop")]),
            ("team", [("team", "x")], [("other", "x")]),
            ("team=*", [("team", "x")], [("other", "x")]),
            ("team:*", [("team", "x")], [("other", "x")]),
            ("!team", [("other", "x")], [("team", "x")]),
            ("team in (shop, web)", [("team", "web")], [("team", "x")]),
            ("team notin (shop,web)", [("team", "x")], [("team", "web")]),
            (
                r#"{"matchLabels":{"team":"shop"}}"#,
                [("team", "shop")],
                [("team", "x")],
            ),
        ] {
            assert!(selected(selector, &matching), "{selector}");
            assert!(!selected(selector, &other), "{selector}");
        }
    }

    #[test]
    fn all_requirements_must_hold() {
        let selector = "a.b/team in (shop,web), stage!=test,!legacy";
        assert!(selected(
            selector,
            &[("a.b/team", "web"), ("stage", "live")]
        ));
        for labels in [
            &[("a.b/team", "x")][..],
            &[("a.b/team", "web"), ("stage", "test")],
            &[("a.b/team", "web"), ("legacy", "")],
        ] {
            assert!(!selected(selector, labels), "{labels:?}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused() {
        for wrong in [
            "",
            "{}",
            ",",
            "=a",
            "a=b c",
            "a in b",
            "a near (b)",
            "in (a)",
            "a)",
            "!",
            "a=b=c",
            "a>1",
            "-a=b",
            "a=b-",
            "a=_",
            "/a=b",
            "a/=b",
            "a/b/c=d",
            "A.b/c=d",
            "a in (b c)",
            "a in ((b))",
            "a in (b:c)",
            r#"{"matchLabel":{"a":"b"}}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let long = "a".repeat(64);
        assert!(parse(&long).is_err());
        assert!(parse(&format!("a={long}")).is_err());
        assert!(parse(&long[1..]).is_ok());
    }
}
