//! Remembers when the certificates expire that the pods of a workload have loaded.

use jiff::Timestamp;

use crate::digest::{Digest, Objects, Presence};
use crate::reference::Reference;

/// The certificates that the pods of a workload with this config hash have loaded, if the workload is restarted only at
/// certain times. One that would expire before the next restart is an outage. What pods have loaded is known only from
/// the time when their config hash was right, so a new leader does not know it of workloads that wait.
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

impl Loaded {
    /// Returns true if pods with this config hash have loaded them.
    pub fn is_of(&self, config_hash: &str) -> bool {
        *self.config_hash == *config_hash
    }

    /// Returns when the first of the certificates expires that a restart replaces: pods with this config hash
    /// have loaded it, and its Secret, which is among `objects`, has changed since.
    pub fn first_expiry(&self, config_hash: &str, objects: &Objects) -> Option<Timestamp> {
        if !self.is_of(config_hash) {
            return None;
        }
        let is_replaced = |it: &&Certificate| match objects.get(&it.secret) {
            Some(Presence::Present(secret)) => secret.digest != it.digest,
            Some(Presence::Absent) | None => false,
        };
        let replaced = self.certificates.iter().filter(is_replaced);
        replaced.map(|it| it.expires).min()
    }
}
