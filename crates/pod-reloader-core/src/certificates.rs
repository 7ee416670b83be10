//! Remembers when the certificates expire that the pods of a workload have loaded.

use jiff::Timestamp;

use crate::digest::{Digest, Objects, Presence};
use crate::reference::Reference;

/// The certificates of a workload that is restarted only at certain times. One that would expire before the next
/// restart is an outage. What pods have loaded is known only from the time when their config hash was right, so
/// a new leader does not know it of workloads that wait.
#[derive(Default)]
pub struct Certificates(Option<Box<Loaded>>);

/// What the pods of a workload with this config hash have loaded.
pub struct Loaded {
    /// The config hash.
    pub config_hash: Box<str>,
    /// The certificates, by their Secrets.
    pub certificates: Vec<Certificate>,
}

/// The certificates of one Secret.
pub struct Certificate {
    /// The Secret.
    pub secret: Reference,
    /// The digest that the Secret had.
    pub digest: Digest,
    /// The time when the first of them expires.
    pub expires: Timestamp,
}

impl Certificates {
    /// Returns true if it is known what the pods have loaded that have this config hash.
    pub fn are_known(&self, config_hash: &str) -> bool {
        self.of(config_hash).is_some()
    }

    /// Notes what the pods have loaded.
    pub fn load(&mut self, loaded: Loaded) {
        self.0 = Some(Box::new(loaded));
    }

    /// Returns when the first of the certificates expires that a restart replaces: pods with this config hash
    /// have loaded it, and its Secret, which is among `objects`, has changed since.
    pub fn first_expiry(&self, config_hash: &str, objects: &Objects) -> Option<Timestamp> {
        let loaded = self.of(config_hash)?;
        let is_replaced = |it: &&Certificate| match objects.get(&it.secret) {
            Some(Presence::Present(secret)) => secret.digest != it.digest,
            Some(Presence::Absent) | None => false,
        };
        let replaced = loaded.certificates.iter().filter(is_replaced);
        replaced.map(|it| it.expires).min()
    }

    /// Returns true if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn of(&self, config_hash: &str) -> Option<&Loaded> {
        let loaded = self.0.as_deref();
        loaded.filter(|loaded| *loaded.config_hash == *config_hash)
    }
}
