//! Field managers: who has set an annotation or a label, as the managed fields of its object say.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::annotations::{FIELD_MANAGER, PLUGIN, Place};
use crate::raw::{self, at};

/// An entry of the managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry<'a> {
    pub(crate) manager: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) operation: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) fields_v1: Option<&'a RawValue>,
}

/// The field managers with which kubectl writes whole manifests. What was in the last manifest and is not in the next one
/// is to go.
pub(crate) const MANIFESTS: [&str; 3] = [
    "kubectl-create",
    "kubectl-replace",
    "kubectl-client-side-apply",
];

/// The field managers with which people change an annotation or a label with kubectl, or with our plugin.
const BY_HAND: [&str; 5] = [
    "kubectl-annotate",
    "kubectl-label",
    "kubectl-edit",
    "kubectl-patch",
    PLUGIN,
];

/// Returns true if only a person can have set an annotation or a label that this manager has: with kubectl or our plugin,
/// or before we put it back.
pub(crate) fn is_by_hand(manager: &str) -> bool {
    BY_HAND.contains(&manager) || manager == FIELD_MANAGER
}

/// Returns true if `is_one` holds for everybody who has set this annotation or label of the metadata. Nobody has if an
/// admission has added it: ours does when a write leaves it out, and by that write, all who had set it have lost it.
pub(crate) fn are_all(
    managed_fields: &RawValue,
    place: Place,
    key: &str,
    is_one: impl Fn(&str) -> bool,
) -> bool {
    let parent = match place {
        Place::Label => "f:labels",
        _ => "f:annotations",
    };
    let field = format!("f:{key}");
    let look = |(is_known, all): &mut (bool, bool), entry: Entry<'_>| {
        let has_it = |fields| at(fields, &["f:metadata", parent, &field]).is_some();
        *is_known |= entry.fields_v1.is_some();
        if entry.fields_v1.is_some_and(has_it) {
            *all &= entry.manager.is_some_and(|manager| is_one(&manager));
        }
    };
    let mut entries = serde_json::Deserializer::from_str(managed_fields.get());
    let seen = raw::fold(&mut entries, (false, true), look);
    // Entries that cannot be read prove nothing.
    matches!(seen, Ok((true, true)))
}
