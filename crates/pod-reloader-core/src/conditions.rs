//! The conditions in the status of an object, read one at a time, and the phase of a pod.

use serde::{Deserialize, Deserializer};

use crate::raw::{self, Text};

/// A condition.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) status: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) reason: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) message: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) last_transition_time: Option<Text<'a>>,
}

impl Condition<'_> {
    /// Returns true if this is the condition with this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// Returns true if this is the condition with this name, and it holds.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.is(name) && self.status.as_deref() == Some("True")
    }
}

/// Reads from conditions whether one of them is meant.
///
/// # Errors
///
/// These are not conditions.
pub(crate) fn any<'de, D: Deserializer<'de>>(
    deserializer: D,
    is_meant: impl Fn(&Condition<'_>) -> bool,
) -> Result<bool, D::Error> {
    raw::fold(deserializer, false, |is_any, it: Condition<'de>| {
        *is_any |= is_meant(&it);
    })
}

/// Reads from conditions whether the object is ready.
///
/// # Errors
///
/// These are not conditions.
pub(crate) fn is_ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    any(deserializer, |it| it.holds("Ready"))
}

/// The status of a pod, as far as it tells whether the pod has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    #[serde(rename = "phase", deserialize_with = "has_ended")]
    pub(crate) has_ended: bool,
}

/// Reads from the phase of a pod whether it has ended.
///
/// # Errors
///
/// This is not a phase.
pub(crate) fn has_ended<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let phase = Option::<Text<'de>>::deserialize(deserializer)?;
    Ok(matches!(phase.as_deref(), Some("Succeeded" | "Failed")))
}
