//! A CA and a certificate of ours, as the entries of a Secret.

use std::fmt;

use crate::{Error, ServingCertificate};

/// A CA and a certificate of ours, as the entries of a Secret. They are unchecked, and empty if missing.
///
/// # Guarantees
/// `Debug` shows nothing of the content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The CAs to trust, in PEM, newest first.
    pub ca_bundle: Vec<u8>,
    /// The key of the newest CA, in PEM.
    pub ca_key: Vec<u8>,
    /// The certificate chain to serve, in PEM, leaf first.
    pub chain: Vec<u8>,
    /// The key of the leaf, in PEM.
    pub key: Vec<u8>,
}

impl Stored {
    /// Takes the entries that it knows from a Secret.
    pub fn from_entries(mut entry: impl FnMut(&str) -> Option<Vec<u8>>) -> Self {
        let mut entry = |name| entry(name).unwrap_or_default();
        Self {
            ca_bundle: entry(CA_BUNDLE),
            ca_key: entry(CA_KEY),
            chain: entry(CHAIN),
            key: entry(KEY),
        }
    }

    /// Returns the entries by name.
    pub fn into_entries(self) -> [(&'static str, Vec<u8>); 4] {
        [
            (CA_BUNDLE, self.ca_bundle),
            (CA_KEY, self.ca_key),
            (CHAIN, self.chain),
            (KEY, self.key),
        ]
    }

    /// Returns the chain with its key.
    ///
    /// # Errors
    /// See [`ServingCertificate::from_pem`].
    pub fn serving_certificate(&self) -> Result<ServingCertificate, Error> {
        ServingCertificate::from_pem(&self.chain, &self.key)
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").finish_non_exhaustive()
    }
}

const CA_BUNDLE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
/// Same name as in every Secret of type `kubernetes.io/tls`.
pub(crate) const CHAIN: &str = "tls.crt";
/// Same name as in every Secret of type `kubernetes.io/tls`.
pub(crate) const KEY: &str = "tls.key";
