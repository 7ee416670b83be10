//! The certificate in force, shared by the code that replaces it and the code that serves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::{CertificateDirectory, Error, ServingCertificate};

/// The certificate in force; clones share it.
///
/// The holder may be empty, so that a server can start before its certificate has been issued: handshakes
/// fail until there is one.
#[derive(Clone, Debug, Default)]
pub struct CurrentCertificate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    certificate: RwLock<Option<Arc<ServingCertificate>>>,
    refusals: AtomicU64,
}

/// The outcome of an attempt to replace the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The same certificate is still in force.
    Unchanged,
    /// The new certificate is in force from the next handshake on.
    Replaced {
        /// End of its validity.
        not_after: SystemTime,
    },
}

impl CurrentCertificate {
    /// Creates a holder without a certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the certificate in force, or `None` before the first one.
    pub fn current(&self) -> Option<Arc<ServingCertificate>> {
        self.0
            .certificate
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records that a client has refused the certificate in a handshake.
    pub fn refused(&self) {
        self.0.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often clients have refused the certificate, this one or an earlier one: they do not trust its CA, or it
    /// is not what they asked for.
    pub fn refusals(&self) -> u64 {
        self.0.refusals.load(Ordering::Relaxed)
    }

    /// Reads the directory, and puts its certificate in force if it differs.
    ///
    /// # Errors
    /// See [`CertificateDirectory::read`]; the certificate in force does not change then.
    pub fn reload(&self, directory: &CertificateDirectory) -> Result<Reload, Error> {
        directory
            .read()
            .map(|certificate| self.replace(certificate))
    }

    /// Puts a certificate in force that clients may not trust yet. It is taken at once if they trust it
    /// (`is_trusted`), or if there is none in force that stays valid for another hour.
    pub fn replace_once_trusted(
        &self,
        certificate: ServingCertificate,
        is_trusted: bool,
        now: SystemTime,
    ) -> Reload {
        let serves_on = self
            .current()
            .is_some_and(|current| current.not_after() > now + LAST_CALL);
        if is_trusted || !serves_on {
            self.replace(certificate)
        } else {
            Reload::Unchanged
        }
    }

    /// Puts a certificate in force if it differs from the current one.
    pub fn replace(&self, certificate: ServingCertificate) -> Reload {
        let mut current = (self.0.certificate.write()).unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|current| current.same_as(&certificate))
        {
            return Reload::Unchanged;
        }
        let not_after = certificate.not_after();
        *current = Some(Arc::new(certificate));
        Reload::Replaced { not_after }
    }
}

/// Time before its end at which a certificate gives way to one that may not be trusted.
const LAST_CALL: Duration = Duration::from_secs(60 * 60);

/// Shows rustls the certificate in force, without exposing rustls to our callers.
#[derive(Debug)]
pub(crate) struct Resolver(pub(crate) CurrentCertificate);

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.current()?.certified_key().clone())
    }
}
