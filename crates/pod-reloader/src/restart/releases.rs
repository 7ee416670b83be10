//! Releases: a restart waits for one that is in progress, because it may change more objects. Helm, Flux and Argo CD
//! store how far theirs are.
//!
//! Its rule is `pod_reloader_core::release`.

mod restraint;
mod waits;
pub(crate) mod watch;

pub(crate) use self::restraint::ReleaseWait;
