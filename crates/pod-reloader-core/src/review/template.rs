//! Compares pod templates by their texts, and takes them apart only where those differ.

use serde_json::value::RawValue;

use crate::annotations::OF_TEMPLATES;
use crate::raw::{NULL, Sorted, Text, elements};
use crate::revision::HASHES;

/// Returns true if both templates are the same apart from our annotations, from what controllers add to a template that they
/// keep, and from the order of members. A part that is absent is the same as an empty one.
pub(crate) fn same_template_but_for_ours(one: &RawValue, other: &RawValue) -> bool {
    if one.get() == other.get() {
        return true;
    }
    let (Some(one), Some(other)) = (Template::of(one), Template::of(other)) else {
        return false;
    };
    let mut parts = one.parts().into_iter().zip(other.parts());
    parts.all(|((one, apart), (other, _))| same_members(one, other, apart, MAX_DEPTH))
}

/// Returns true if a template has nothing but our annotations.
pub(super) fn is_empty(template: &RawValue) -> bool {
    Template::of(template).is_some_and(|template| {
        let mut parts = template.parts().into_iter();
        parts.all(|(part, apart)| members(part, apart).next().is_none())
    })
}

/// A pod template, taken apart as far as a comparison needs.
struct Template<'a> {
    whole: Sorted<'a>,
    metadata: Option<Sorted<'a>>,
    annotations: Option<Sorted<'a>>,
    labels: Option<Sorted<'a>>,
}

impl<'a> Template<'a> {
    /// Takes a template apart. `None` if a part of it is not an object, or has too many members.
    fn of(template: &'a RawValue) -> Option<Self> {
        let inner = |object: &Sorted<'a>, name| object.get(name).map(Sorted::of).transpose().ok();
        let whole = Sorted::of(template.get()).ok()?;
        let metadata = inner(&whole, "metadata")?;
        let of_metadata = |name| match &metadata {
            Some(metadata) => inner(metadata, name),
            None => Some(None),
        };
        let annotations = of_metadata("annotations")?;
        let labels = of_metadata("labels")?;
        Some(Self {
            whole,
            metadata,
            annotations,
            labels,
        })
    }

    /// Returns the parts, each with the members that are apart from it: they are parts of their own, or ours.
    fn parts(&self) -> [(Option<&Sorted<'a>>, &'static [&'static str]); 4] {
        [
            (Some(&self.whole), &["metadata", OF_REVISIONS]),
            (self.metadata.as_ref(), &["annotations", "labels"]),
            (self.annotations.as_ref(), &OF_TEMPLATES),
            (self.labels.as_ref(), &HASHES),
        ]
    }
}

/// Returns the members of an object, which may be absent, except those that are `null` and those that are apart.
fn members<'a>(
    object: Option<&Sorted<'a>>,
    apart: &[&str],
) -> impl Iterator<Item = (Text<'a>, &'a str)> {
    let members = object.into_iter().flat_map(Sorted::iter);
    members.filter(|(name, value)| *value != NULL && !apart.contains(&&**name))
}

fn same_members(
    one: Option<&Sorted<'_>>,
    other: Option<&Sorted<'_>>,
    apart: &[&str],
    depth: usize,
) -> bool {
    let mut others = members(other, apart);
    let is_same = |(name, value): (Text<'_>, &str)| {
        let other = others.next();
        other.is_some_and(|(other_name, other)| {
            name == other_name && same_value(value, other, depth)
        })
    };
    members(one, apart).all(is_same) && others.next().is_none()
}

/// Returns true if both are the same apart from the order of members. Only values whose texts differ are taken apart,
/// one level at a time.
fn same_value(one: &str, other: &str, depth: usize) -> bool {
    if one == other {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    if let (Ok(one), Ok(other)) = (Sorted::of(one), Sorted::of(other)) {
        return same_members(Some(&one), Some(&other), &[], depth);
    }
    if let (Some(mut one), Some(mut other)) = (elements(one), elements(other)) {
        return loop {
            match (one.next(), other.next()) {
                (Some(one), Some(other)) if same_value(one.get(), other.get(), depth) => {}
                (None, None) => break true,
                _ => break false,
            }
        };
    }
    let is_scalar = |value: &str| !value.starts_with(['{', '[']);
    is_scalar(one) && is_scalar(other) && same_scalar(one, other)
}

/// Returns true if both are the same number or the same string, however it is written.
fn same_scalar(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    value(one).is_some_and(|one| value(other) == Some(one))
}

/// The member that ControllerRevisions have beside those of the template.
const OF_REVISIONS: &str = "$patch";

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
        let same = |one: &str, other: &str| {
            same_value(template(one).get(), template(other).get(), MAX_DEPTH)
        };
        assert!(same(r#"{"x":1,"y":"\u0061"}"#, r#"{"y":"a", "x":1}"#));
        assert!(!same(r#"{"x":1,"y":2}"#, r#"{"x":2,"y":1}"#));
        assert!(!same("[1,2]", "[2,1]") && !same("[1]", "[1,1]") && !same("[]", "{}"));
        assert!(!same("null", r#"{"x":null}"#));
        assert!(same(r#"{"x":null,"y":1}"#, r#"{"y":1}"#));
    }

    #[test]
    fn a_value_that_is_too_deep_is_treated_as_a_difference() {
        let nested = |text: &str| {
            let text = format!("{}{text}{}", "[".repeat(100_000), "]".repeat(100_000));
            serde_json::value::RawValue::from_string(text)
        };
        if let (Ok(one), Ok(other)) = (nested("1"), nested(" 1")) {
            assert!(!same_value(one.get(), other.get(), MAX_DEPTH));
        }
    }
}
