//! The pins of a request, and those of the stored object.

use super::Pending;
use crate::admission::answer::DesiredPins;
use crate::admission::facts::Facts;
use crate::copies::{Copies, Copy};
use crate::digest::Objects;
use crate::hash::Keyring;
use crate::pins::{CopyNames, Kept, Pins};

impl Pending {
    /// Returns the copies that must be read, too.
    pub fn copies_to_read(&self) -> Pins {
        let asked_for = self.asked_for();
        asked_for.unwrap_or_else(|| self.kept().preferred())
    }

    /// Returns the facts, given what was read. `None` if a copy that the pods use is not there any more.
    pub fn facts(&self, objects: Objects, copies: &Copies, keys: &Keyring) -> Option<Facts> {
        let (workload, names) = (&self.workload, self.names(keys));
        let Some(pins) = self.asked_for() else {
            return self.facts_of_kept(objects, copies, &names);
        };
        match workload.with_copies(objects.clone(), &pins, copies, &names) {
            Some(brought_back) => Some(Facts {
                undone: workload.undone_by(&pins, &self.stored_pins(), &objects, &names),
                objects: brought_back,
                is_undo: true,
                has_copies: true,
                lost: None,
            }),
            None => {
                // The copies that were read are others.
                let facts = self.facts_of_kept(objects, &Copies::new(), &names)?;
                Some(Facts {
                    lost: Some(pins),
                    ..facts
                })
            }
        }
    }

    /// Returns the facts if the request brings back no pins of an earlier revision.
    fn facts_of_kept(
        &self,
        objects: Objects,
        copies: &Copies,
        names: &CopyNames<'_>,
    ) -> Option<Facts> {
        let (workload, kept) = (&self.workload, self.kept());
        let (objects, undone) = workload.without_undone(&kept, objects, copies, names)?;
        Some(Facts {
            objects,
            undone,
            is_undo: false,
            has_copies: true,
            lost: None,
        })
    }

    /// Returns the copies that must be there before the pods use them.
    pub fn copies(&self, facts: &Facts, keys: &Keyring) -> Vec<Copy> {
        let names = self.names(keys);
        self.workload.copies(&facts.objects, &names).collect()
    }

    /// Returns the names of copies, of which those of the request and of the stored object are there already.
    pub(super) fn names<'a>(&'a self, keys: &'a Keyring) -> CopyNames<'a> {
        let Kept { pins, undone } = self.stored_pins();
        let names = self.workload.copy_names(keys);
        names.and(&pins).and(&undone)
    }

    /// Returns true if the request brings back the pins of an earlier revision.
    pub(in crate::admission) fn asks_for_undo(&self) -> bool {
        self.asked_for().is_some()
    }

    /// Returns the pins of an earlier revision that the request brings back, if it does.
    pub(super) fn asked_for(&self) -> Option<Pins> {
        let stored = self.stored.as_ref().filter(|_| !self.applies_pins)?;
        let own = self.workload.pins()?;
        let is_stored = stored.pins(&self.workload).next()? == Some(own);
        let pins = self.workload.relevant(&Pins::parse_ours(own)?);
        (!is_stored && !pins.is_empty()).then_some(pins)
    }

    /// Returns the workload's pins as they are: if the request drops them, its sender does not know them.
    fn kept(&self) -> Kept {
        let stored = self.stored_pins();
        match self.workload.pins() {
            None if !stored.pins.is_empty() => stored,
            _ => self.workload.kept(),
        }
    }

    /// Returns the stored pins.
    fn stored_pins(&self) -> Kept {
        let stored = self.stored.as_ref();
        let pins = stored.and_then(|stored| stored.pins(&self.workload).next()?);
        let undone = stored.and_then(|stored| stored.undone.as_deref());
        self.workload.relevant_ones(&Kept::parse(pins, undone))
    }

    /// Returns the pins to leave in place together with that value.
    pub(super) fn unchanged_pins(&self) -> DesiredPins<'_> {
        match self.restored() {
            Some(_) => DesiredPins::These {
                pins: self.workload.pins(),
                undone: self.workload.undone(),
            },
            None => DesiredPins::Stored,
        }
    }
}
