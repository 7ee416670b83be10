//! Compares pod templates by their texts, and takes them apart only where those differ.

use serde_json::value::RawValue;

use crate::annotations::OF_TEMPLATES;
use crate::raw::{Sorted, Text, at, elements};

/// The parts of a pod template, each with the members that are apart from it: they are parts of their own, or ours.
const PARTS: [(&[&str], &[&str]); 3] = [
    (&[], &["metadata"]),
    (&["metadata"], &["annotations"]),
    (&["metadata", "annotations"], &OF_TEMPLATES),
];

/// Returns true if both templates are the same apart from our annotations and from the order of members. A part that is
/// absent is the same as an empty one.
pub(super) fn same_template_but_for_ours(one: &RawValue, other: &RawValue) -> bool {
    one.get() == other.get()
        || PARTS.iter().all(|(path, apart)| {
            let part = |template| Part::of(template, path, apart);
            let parts = part(one).zip(part(other));
            parts.is_some_and(|(one, other)| one.is_same(&other, MAX_DEPTH))
        })
}

/// Returns true if a template has nothing but our annotations.
pub(super) fn is_empty(template: &RawValue) -> bool {
    PARTS.iter().all(|(path, apart)| {
        let part = Part::of(template, path, apart);
        part.is_some_and(|it| it.members().next().is_none())
    })
}

/// The members of an object, except some. An absent object has none.
struct Part<'a> {
    members: Option<Sorted<'a>>,
    apart: &'a [&'a str],
}

impl<'a> Part<'a> {
    /// Finds a part of a template. `None` if it is not an object, or has too many members.
    fn of(template: &'a RawValue, path: &[&str], apart: &'a [&'a str]) -> Option<Self> {
        let object = at(template, path);
        Some(Self {
            members: object.map(Sorted::of).transpose().ok()?,
            apart,
        })
    }

    fn members(&self) -> impl Iterator<Item = (Text<'a>, &'a RawValue)> + '_ {
        let members = self.members.iter().flat_map(Sorted::iter);
        members.filter(|(name, _)| !self.apart.contains(&&**name))
    }

    fn is_same(&self, other: &Self, depth: usize) -> bool {
        let mut others = other.members();
        let is_same = |(name, value): (Text<'_>, &RawValue)| {
            let other = others.next();
            other.is_some_and(|(other_name, other)| {
                name == other_name && same_value(value, other, depth)
            })
        };
        self.members().all(is_same) && others.next().is_none()
    }
}

/// Returns true if both are the same apart from the order of members. Only values whose texts differ are taken apart,
/// one level at a time.
fn same_value(one: &RawValue, other: &RawValue, depth: usize) -> bool {
    if one.get() == other.get() {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    let whole = |value| Part::of(value, &[], &[]);
    if let (Some(one), Some(other)) = (whole(one), whole(other)) {
        return one.is_same(&other, depth);
    }
    if let (Some(mut one), Some(mut other)) = (elements(one), elements(other)) {
        return loop {
            match (one.next(), other.next()) {
                (Some(one), Some(other)) if same_value(one, other, depth) => {}
                (None, None) => break true,
                _ => break false,
            }
        };
    }
    let is_scalar = |value: &RawValue| !value.get().starts_with(['{', '[']);
    is_scalar(one) && is_scalar(other) && same_scalar(one, other)
}

/// Returns true if both are the same number or the same string, however it is written.
fn same_scalar(one: &RawValue, other: &RawValue) -> bool {
    let value = |text: &RawValue| serde_json::from_str::<serde_json::Value>(text.get()).ok();
    value(one).is_some_and(|one| value(other) == Some(one))
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
