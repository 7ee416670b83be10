//! Limits: a restart waits while as many rollouts are in progress as may be at once. Then it takes the slot of one that
//! has ended.
//!
//! Its rule is `pod_reloader_core::limit`.

mod memory;
mod restraint;

pub(crate) use self::memory::Slots;
pub(crate) use self::restraint::SlotWait;
