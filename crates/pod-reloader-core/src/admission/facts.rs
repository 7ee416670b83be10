//! The facts for an answer: the objects as the pods are to have them, and what the request undoes.

use crate::digest::Objects;
use crate::pins::{CopyNames, Pins};
use crate::workload::Workload;

/// What was read for an answer.
#[derive(Debug)]
pub struct Facts {
    /// The objects. What was undone has the content that its pods have.
    pub(super) objects: Objects,
    /// The pins of what was undone, or is by this request.
    pub(super) undone: Pins,
    /// True if the request brings back the copies of an earlier revision.
    pub(super) is_undo: bool,
    /// True if the copies that the pods are to use are there.
    pub(super) has_copies: bool,
    /// The copies that the request brings back and that are of no use.
    pub(super) lost: Option<Pins>,
}

impl Facts {
    /// Returns the pins that the pods are to have. Empty ones say that there are no copies.
    pub(super) fn pins(&self, workload: &Workload, names: &CopyNames<'_>) -> Option<String> {
        let pins = workload.pins_for(&self.objects, names);
        match self.has_copies {
            _ if pins.is_empty() => None,
            true => Some(pins.to_string()),
            false => Some(String::new()),
        }
    }

    /// Notes that some copies could not be made. The pods then use the ConfigMaps themselves.
    #[must_use]
    pub fn without_copies(self) -> Self {
        Self {
            has_copies: false,
            ..self
        }
    }
}
