//! The facts for an answer: the objects as the pods are to have them, and what the request undoes.

use crate::copies::Copies;
use crate::digest::Objects;
use crate::pins::{CopyNames, Kept, Pins};
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
    /// Returns the facts, given what was read. `asked_for` are the pins of an earlier revision that the request brings
    /// back, if it does; `kept` are the pins that it leaves in place, and `stored` those that the pods have had.
    /// `None` if a copy that the pods use is not there any more.
    pub(super) fn of(
        workload: &Workload,
        asked_for: Option<Pins>,
        kept: &Kept,
        stored: &Kept,
        objects: Objects,
        copies: &Copies,
        names: &CopyNames<'_>,
    ) -> Option<Self> {
        let Some(pins) = asked_for else {
            let (objects, undone) = workload.without_undone(kept, objects, copies, names)?;
            return Some(Self {
                objects,
                undone,
                is_undo: false,
                has_copies: true,
                lost: None,
            });
        };
        match workload.with_copies(objects.clone(), &pins, copies, names) {
            Some(brought_back) => Some(Self {
                undone: workload.undone_by(&pins, stored, &objects, names),
                objects: brought_back,
                is_undo: true,
                has_copies: true,
                lost: None,
            }),
            None => {
                // The copies that were read are others.
                let none = Copies::new();
                let facts = Self::of(workload, None, kept, stored, objects, &none, names)?;
                Some(Self {
                    lost: Some(pins),
                    ..facts
                })
            }
        }
    }

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
