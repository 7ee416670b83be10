//! Pins: the pods of a revision use immutable copies of ConfigMaps, so that an undo brings the configuration back, too.
//! Whatever was undone stays undone, and a configuration that fails can be put back.
//!
//! Its rules are `pod_reloader_core::pins`, `copies`, `revision` and `trials`. `config/copies.rs` makes the copies.

mod content;
mod keeper;
mod pinned;
mod rollback;

use std::sync::Arc;

pub(crate) use self::content::{Pinned, PinnedContent};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::pinned::PinnedWorkloads;
pub(crate) use self::rollback::Rollbacks;

/// The parts of the loop that work with pins. They are built only if pins are switched on.
pub(crate) struct PinParts {
    pub(crate) content: Arc<PinnedContent>,
    pub(crate) workloads: Arc<PinnedWorkloads>,
    pub(crate) rollbacks: Rollbacks,
}
