//! Compares pod templates by their texts, and parses them only where those differ.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::annotations;

pub(super) fn same_template_but_for_ours(
    one: &RawValue,
    other: &RawValue,
) -> Result<bool, serde_json::Error> {
    if one.get() == other.get() {
        return Ok(true);
    }
    let (Ok(one), Ok(other)) = (Template::of(one), Template::of(other)) else {
        return Ok(false);
    };
    Ok(one.annotations == other.annotations
        && same_fields(&one.metadata, &other.metadata, MAX_DEPTH)
        && same_fields(&one.rest, &other.rest, MAX_DEPTH))
}

/// A pod template, taken apart as far as a comparison needs.
pub(super) struct Template<'a> {
    /// Everything except the metadata.
    rest: Fields<'a>,
    /// The metadata except the annotations.
    metadata: Fields<'a>,
    /// The annotations except ours.
    annotations: BTreeMap<String, String>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl<'a> Template<'a> {
    pub(super) fn of(template: &'a RawValue) -> Result<Self, serde_json::Error> {
        let mut rest = fields(template)?;
        let mut metadata = rest
            .remove("metadata")
            .map(fields)
            .transpose()?
            .unwrap_or_default();
        let mut annotations: BTreeMap<String, String> = match metadata.remove("annotations") {
            Some(annotations) => serde_json::from_str(annotations.get())?,
            None => BTreeMap::new(),
        };
        annotations.remove(annotations::CONFIG_HASH);
        annotations.remove(annotations::PINS);
        Ok(Self {
            rest,
            metadata,
            annotations,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.metadata.is_empty() && self.annotations.is_empty()
    }
}

/// Returns the members of an object, except those that are `null`.
pub(crate) fn fields(object: &RawValue) -> Result<Fields<'_>, serde_json::Error> {
    let mut fields: Fields<'_> = serde_json::from_str(object.get())?;
    fields.retain(|_, value| value.get() != "null");
    Ok(fields)
}

fn same_fields(one: &Fields<'_>, other: &Fields<'_>, depth: usize) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((name, one), (other_name, other))| {
                name == other_name && same_value(one, other, depth)
            })
}

/// Returns true if both are the same apart from the order of members. Only values whose texts differ are
/// parsed, one level at a time: parsing all of a large template at once would take many times its size.
fn same_value(one: &RawValue, other: &RawValue, depth: usize) -> bool {
    let (one, other) = (one.get(), other.get());
    if one == other {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match (one.as_bytes().first(), other.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => both::<Fields<'_>>(one, other)
            .is_some_and(|(one, other)| same_fields(&one, &other, depth)),
        (Some(b'['), Some(b'[')) => {
            both::<Vec<&RawValue>>(one, other).is_some_and(|(one, other)| {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(&other)
                        .all(|(one, other)| same_value(one, other, depth))
            })
        }
        _ => both::<serde_json::Value>(one, other).is_some_and(|(one, other)| one == other),
    }
}

fn both<'a, T: Deserialize<'a>>(one: &'a str, other: &'a str) -> Option<(T, T)> {
    let parsed = |text| serde_json::from_str(text).ok();
    Some((parsed(one)?, parsed(other)?))
}

/// The maximum depth to which a pod template is compared, if its text differs from the old one's.
const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_far_down_matters_and_the_order_of_members_does_not() {
        let template = |text: &str| {
            let depth = 50;
            let text = format!("{}{text}{}", "{\"a\":[1,".repeat(depth), "]}".repeat(depth));
            serde_json::value::RawValue::from_string(text).unwrap()
        };
        let same = |one: &str, other: &str| same_value(&template(one), &template(other), MAX_DEPTH);
        assert!(same(r#"{"x":1,"y":"\u0061"}"#, r#"{"y":"a", "x":1}"#));
        assert!(!same(r#"{"x":1,"y":2}"#, r#"{"x":2,"y":1}"#));
        assert!(!same("[1,2]", "[2,1]") && !same("[1]", "[1,1]") && !same("[]", "{}"));
        assert!(!same("null", r#"{"x":null}"#));
    }

    #[test]
    fn a_value_that_is_too_deep_is_treated_as_a_difference() {
        let nested = |text: &str| {
            let text = format!("{}{text}{}", "[".repeat(100_000), "]".repeat(100_000));
            serde_json::value::RawValue::from_string(text)
        };
        if let (Ok(one), Ok(other)) = (nested("1"), nested(" 1")) {
            assert!(!same_value(&one, &other, MAX_DEPTH));
        }
    }
}
