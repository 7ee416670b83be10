//! Remembers FieldBindings for which there is no room, until their users have been told.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::outcome::{TOO_LARGE, left_out};
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::SeenStatus;

/// The maximum number of FieldBindings of a namespace whose users are told at once. The others are told when they are
/// seen the next time.
const UNTOLD: usize = 16;
/// The same for all namespaces.
const ALL_UNTOLD: usize = 256;

/// The FieldBindings for which there is no room.
#[derive(Default)]
pub(super) struct LeftOut {
    untold: BTreeMap<BindingId, Untold>,
    /// Their number in the last list of a namespace, or of all of them.
    listed: HashMap<Option<Name>, usize>,
}

/// A FieldBinding whose status does not say yet that there is no room for it.
pub(super) struct Untold {
    /// Its UID and generation.
    pub(super) version: (Box<str>, i64),
    pub(super) status: Option<SeenStatus>,
}

impl LeftOut {
    /// Takes in a FieldBinding.
    pub(super) fn insert(&mut self, id: BindingId, untold: Untold) {
        let (status, generation) = (untold.status.as_ref(), untold.version.1);
        let after = left_out(status, generation, Timestamp::UNIX_EPOCH);
        if status.is_some_and(|it| it.is(&after)) {
            return;
        }
        let of_namespace = self.untold.keys().filter(|it| it.namespace == id.namespace);
        if of_namespace.count() < UNTOLD && self.untold.len() < ALL_UNTOLD {
            self.untold.insert(id, untold);
        }
    }

    pub(super) fn remove(&mut self, id: &BindingId) {
        self.untold.remove(id);
    }

    pub(super) fn untold(&self, id: &BindingId) -> Option<&Untold> {
        self.untold.get(id)
    }

    /// Takes in how many there are in a list.
    pub(super) fn listed(&mut self, place: Option<&Name>, count: usize) {
        self.listed.insert(place.cloned(), count);
    }

    /// Returns their number, if this is the reason of their condition.
    pub(super) fn count(&self, reason: &str) -> usize {
        match reason == TOO_LARGE {
            true => self.listed.values().sum(),
            false => 0,
        }
    }
}
