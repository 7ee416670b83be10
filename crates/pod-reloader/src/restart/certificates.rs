//! Remembers when the certificates expire that the pods of a workload have loaded.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use pod_reloader_core::digest::{Digest, Objects, Presence};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::WorkloadId;

/// The certificates of workloads that are restarted only at certain times. One that would expire before the next
/// restart is an outage. What pods have loaded is known only from the time when their config hash was right, so
/// a new leader does not know it of workloads that wait.
#[derive(Default)]
pub(crate) struct Certificates(Mutex<HashMap<WorkloadId, Loaded>>);

/// What the pods of a workload with this config hash have loaded.
pub(crate) struct Loaded {
    pub(crate) config_hash: Box<str>,
    pub(crate) certificates: Vec<Certificate>,
}

/// The certificates of one Secret.
pub(crate) struct Certificate {
    pub(crate) secret: Reference,
    /// The digest of the Secret that holds them.
    pub(crate) digest: Digest,
    /// The time when the first of them expires.
    pub(crate) expires: Timestamp,
}

impl Certificates {
    /// Returns true if it is known what the pods have loaded that have this config hash.
    pub(crate) fn are_known(&self, id: &WorkloadId, config_hash: &str) -> bool {
        let all = self.0.lock();
        all.get(id)
            .is_some_and(|it| *it.config_hash == *config_hash)
    }

    /// Notes what the pods of a workload have loaded.
    pub(crate) fn load(&self, id: &WorkloadId, loaded: Loaded) {
        self.0.lock().insert(id.clone(), loaded);
    }

    /// Returns when the first of the certificates expires that a restart replaces: pods with this config hash
    /// have loaded it, and its Secret, which is among `objects`, has changed since.
    pub(crate) fn first_expiry(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        objects: &Objects,
    ) -> Option<Timestamp> {
        let all = self.0.lock();
        let loaded = all.get(id).filter(|it| *it.config_hash == *config_hash)?;
        let is_replaced = |it: &&Certificate| match objects.get(&it.secret) {
            Some(Presence::Present(secret)) => secret.digest != it.digest,
            Some(Presence::Absent) | None => false,
        };
        let replaced = loaded.certificates.iter().filter(is_replaced);
        replaced.map(|it| it.expires).min()
    }

    /// Forgets a workload.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        self.0.lock().remove(id);
    }
}
