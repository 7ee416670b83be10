//! Pins: the pods of a revision use immutable copies of ConfigMaps, so that an undo brings the configuration back, too.
//! Whatever was undone stays undone, and a configuration that fails can be put back.
//!
//! Its rules are `pod_reloader_core::pins`, `copies`, `revision` and `trials`. `config/copies.rs` makes the copies.

mod content;
mod keeper;
mod pinned;
mod rollback;

pub(crate) use self::content::{Pinned, PinnedContent};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::pinned::PinnedWorkloads;
pub(crate) use self::rollback::Rollbacks;
