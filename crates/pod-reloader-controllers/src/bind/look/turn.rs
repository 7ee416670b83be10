//! The right to ask a kind of custom resource.

use std::time::Duration;

use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::kind::BoundKind;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::bind::binder::Binder;
use crate::runtime::error::CallError;

/// The time after which an answer is as bad as none: others wait for it.
const SLOW: Duration = Duration::from_secs(5);

/// The right to ask a kind. Dropping it gives it to another FieldBinding, if the kind is silent.
pub(super) struct Turn<'a> {
    binder: &'a Binder,
    kind: BoundKind,
    id: &'a BindingId,
    /// Whether the kind has answered all calls, if there were any.
    has_answered: Option<bool>,
}

impl<'a> Turn<'a> {
    /// Returns the right to ask a kind. Without it, the FieldBinding is looked at when its turn comes.
    pub(super) fn begin(binder: &'a Binder, kind: BoundKind, id: &'a BindingId) -> Option<Self> {
        if !binder.turns.lock().begin(kind, id) {
            return None;
        }
        Some(Self {
            binder,
            kind,
            id,
            has_answered: None,
        })
    }

    /// Notes how a call to the kind has ended that began at this time.
    pub(super) fn asked(&mut self, at: Instant, error: Option<&CallError>) {
        let is_silent = at.elapsed() > SLOW || error.is_some_and(is_silence);
        self.has_answered = Some(self.has_answered.unwrap_or(true) && !is_silent);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.has_answered == Some(false)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (kind, has_answered) = (self.kind, self.has_answered);
        let ended = self.binder.turns.lock().end(kind, self.id, has_answered);
        match ended.is_silent {
            Some(true) => warn!(
                %kind,
                "a kind of custom resource does not answer: its FieldBindings are looked at one after the other"
            ),
            Some(false) => info!(%kind, "a kind of custom resource answers again"),
            None => {}
        }
        self.binder.push(ended.next);
    }
}

/// Returns true if a call had no answer, or one that says nothing about the object.
fn is_silence(error: &CallError) -> bool {
    ["timeout", "unavailable", "unreachable"].contains(&error.reason())
}
