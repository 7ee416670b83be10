//! Readiness: decides whether this replica should get calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use webhook_certs::CurrentCertificate;

use crate::live::keys::Keys;

/// The conditions of readiness.
pub(crate) struct Readiness {
    /// The webhook's certificate, if a webhook is served.
    pub(crate) certificate: Option<CurrentCertificate>,
    /// True once the webhook configuration trusts our certificate, or if that is not our responsibility.
    pub(crate) is_trusted: Arc<AtomicBool>,
    /// The keys of the config hash.
    pub(crate) keys: Arc<Keys>,
    /// The user name by which the apiserver knows us.
    pub(crate) ourselves: Arc<OnceLock<String>>,
    /// True once we are about to stop.
    pub(crate) stopping: AtomicBool,
}

impl Readiness {
    /// Returns the reason why this replica is not ready, if there is one.
    pub(crate) fn obstacle(&self, now: SystemTime) -> Option<&'static str> {
        if self.stopping.load(Ordering::Relaxed) {
            return Some("stopping");
        }
        if self.keys.keyring().is_none() {
            return Some("the hash keys have not been read");
        }
        if self.ourselves.get().is_none() {
            return Some("the apiserver has not reported our user name");
        }
        let certificate = match &self.certificate {
            None => return None,
            Some(current) => current.current(),
        };
        match certificate {
            None => Some("there is no serving certificate"),
            Some(certificate) if certificate.not_after() <= now => {
                Some("the serving certificate has expired")
            }
            Some(certificate) if certificate.not_before() > now => {
                Some("the serving certificate is not valid yet")
            }
            Some(_) if !self.is_trusted.load(Ordering::Relaxed) => {
                Some("the webhook configuration has not been seen with our CA")
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
