//! Counts FieldBindings by the reason of their condition, as they change.

use std::collections::HashMap;

use pod_reloader_core::field_binding::outcome::REASONS;
use pod_reloader_core::ready::SeenStatus;

/// The number of FieldBindings of each reason that the operator gives.
#[derive(Default)]
pub(super) struct Counts(HashMap<&'static str, usize>);

impl Counts {
    pub(super) fn of(&self, reason: &str) -> usize {
        self.0.get(reason).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, status: Option<&SeenStatus>) {
        if let Some(reason) = reason(status) {
            *self.0.entry(reason).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, status: Option<&SeenStatus>) {
        if let Some(count) = reason(status).and_then(|it| self.0.get_mut(it)) {
            *count -= 1;
        }
    }
}

fn reason(status: Option<&SeenStatus>) -> Option<&'static str> {
    let reason = status?.reason()?;
    REASONS.into_iter().find(|it| *it == reason)
}
