//! The facts for an answer: the objects as the pods are to have them, and what the request undoes.

use super::pending::Pending;
use crate::copies::{Copies, Copy};
use crate::digest::Objects;
use crate::pins::{Kept, Pins};

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
    has_copies: bool,
    /// The copies that the request brings back and that are of no use.
    pub(super) lost: Option<Pins>,
}

impl Facts {
    /// Notes that some copies could not be made. The pods then use the ConfigMaps themselves.
    #[must_use]
    pub fn without_copies(self) -> Self {
        Self {
            has_copies: false,
            ..self
        }
    }
}

impl Pending {
    /// Returns the copies that must be read, too.
    pub fn copies_to_read(&self) -> Pins {
        match self.asked_for() {
            Some(pins) => pins,
            None => self.kept().preferred(),
        }
    }

    /// Returns the facts, given what was read. `None` if a copy that the pods use is not there any more.
    pub fn facts(&self, objects: Objects, copies: &Copies) -> Option<Facts> {
        let workload = &self.workload;
        let mut lost = None;
        if let Some(pins) = self.asked_for() {
            if let Some(brought_back) = workload.with_copies(objects.clone(), &pins, copies) {
                let present = workload.pins_for(&objects);
                let differs = |source: &_, copy: &_| pins.get(source).is_some_and(|it| it != copy);
                let undone = present.filtered(|source, copy| differs(source.as_str(), copy));
                return Some(Facts {
                    objects: brought_back,
                    undone,
                    is_undo: true,
                    has_copies: true,
                    lost,
                });
            }
            lost = Some(pins);
        }
        // Then the copies that were read are others.
        let none = Copies::new();
        let copies = if lost.is_some() { &none } else { copies };
        let (objects, undone) = workload.without_undone(&self.kept(), objects, copies)?;
        Some(Facts {
            objects,
            undone,
            is_undo: false,
            has_copies: true,
            lost,
        })
    }

    /// Returns the copies that must be there before the pods use them.
    pub fn copies(&self, facts: &Facts) -> Vec<Copy> {
        let copies = self.workload.copies(&facts.objects);
        let is_known =
            |copy: &Copy| facts.is_undo && facts.undone.get(copy.source.name.as_str()).is_some();
        copies.filter(|copy| !is_known(copy)).collect()
    }

    /// Returns true if the request brings back the pins of an earlier revision.
    pub(super) fn asks_for_undo(&self) -> bool {
        self.asked_for().is_some()
    }

    /// Returns the pins of an earlier revision that the request brings back, if it does.
    pub(super) fn asked_for(&self) -> Option<Pins> {
        let stored = self.stored.as_ref().filter(|_| !self.applies_pins)?;
        self.workload.pinning.as_ref()?;
        let (_, slot) = self.workload.slots().next()?;
        let pins = slot.state.pins.as_deref()?;
        let is_stored = stored.pins(&self.workload).next()? == Some(pins);
        Pins::parse(pins).filter(|_| !is_stored)
    }

    /// Returns the workload's pins as they are: if the request drops them, its sender does not know them.
    fn kept(&self) -> Kept {
        let stored = self.stored.as_ref();
        let pins = stored.and_then(|stored| stored.pins(&self.workload).next()?);
        let own = self
            .workload
            .slots()
            .next()
            .and_then(|(_, slot)| slot.state.pins.as_deref());
        match (pins, own, &self.workload.pinning) {
            (_, _, None) => Kept::default(),
            (Some(pins), None, _) => {
                Kept::parse(Some(pins), stored.and_then(|it| it.undone.as_deref()))
            }
            _ => self.workload.kept(),
        }
    }

    /// Returns the pins that the pods are to have. Empty ones say that there are no copies.
    pub(super) fn pins_for(&self, facts: &Facts) -> Option<String> {
        let pins = self.workload.pins_for(&facts.objects);
        match facts.has_copies {
            _ if pins.is_empty() => None,
            true => Some(pins.to_string()),
            false => Some(String::new()),
        }
    }
}
