//! Staged restarts: the workloads that track a changed object get it one after the other. One that has failed with it
//! halts the others.
//!
//! Its rule is `pod_reloader_core::stages`.

mod memory;
mod restraint;

pub(crate) use self::memory::Stages;
pub(crate) use self::restraint::{StageWait, stage_for};
