//! A certificate chain and its private key, parsed and known to belong together.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::Error;
use crate::issue::since_1970;

/// A certificate chain and its private key, parsed and known to belong together.
pub struct ServingCertificate {
    certified_key: Arc<CertifiedKey>,
    serial: String,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl ServingCertificate {
    /// Parses a PEM chain, leaf first, and a PEM private key: PKCS#8, PKCS#1 (RSA) or SEC1 (EC), and
    /// RSA, ECDSA (P-256, P-384) or Ed25519.
    ///
    /// # Errors
    /// [`Error::Chain`], [`Error::Leaf`] and [`Error::Key`] if a part does not parse, [`Error::Mismatch`] if
    /// the key is not the leaf's.
    pub fn from_pem(cert_chain: &[u8], private_key: &[u8]) -> Result<Self, Error> {
        let chain = CertificateDer::pem_slice_iter(cert_chain)
            .map(|certificate| certificate.map(CertificateDer::into_owned))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| Error::Chain {
                problem: problem(&source),
            })?;
        let leaf = chain.first().ok_or(Error::Chain {
            problem: "there is no certificate in it",
        })?;
        let leaf = Certificate::from_der(leaf).map_err(|source| Error::Leaf {
            source: source.into(),
        })?;
        let (serial, validity) = (
            leaf.tbs_certificate().serial_number(),
            leaf.tbs_certificate().validity(),
        );

        let key = PrivateKeyDer::from_pem_slice(private_key).map_err(|source| Error::Key {
            problem: problem(&source),
        })?;
        let key = any_supported_type(&key).map_err(|_| Error::Key {
            problem: "it is no RSA, P-256, P-384 or Ed25519 key",
        })?;
        let certified_key = CertifiedKey::new(chain, key);
        certified_key.keys_match().map_err(|source| match source {
            TlsError::InconsistentKeys(
                InconsistentKeys::KeyMismatch | InconsistentKeys::Unknown,
            ) => Error::Mismatch,
            other => Error::Leaf {
                source: other.into(),
            },
        })?;

        Ok(Self {
            certified_key: Arc::new(certified_key),
            serial: serial.to_string(),
            not_before: validity.not_before.to_system_time(),
            not_after: validity.not_after.to_system_time(),
        })
    }

    /// Returns the leaf's serial number, like `openssl x509 -serial` but with colons: `0A:1B:2C`.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Returns the time from which the leaf is valid.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the time until which the leaf is valid. Certificates above it in the chain may end earlier.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns true if the leaf's subject alternative names cover this DNS name, by the rules of a TLS
    /// client. For a webhook behind a Service, the apiserver asks for `NAME.NAMESPACE.svc`.
    pub fn covers(&self, dns_name: &str) -> bool {
        let Ok(name) = ServerName::try_from(dns_name) else {
            return false;
        };
        self.certified_key
            .end_entity_cert()
            .and_then(ParsedCertificate::try_from)
            .and_then(|leaf| rustls::client::verify_server_name(&leaf, &name))
            .is_ok()
    }

    /// Returns true if a TLS client that trusts only this CA accepts the leaf at `now`, whatever its name.
    pub(crate) fn is_issued_by(&self, ca: &CertificateDer<'_>, now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        if roots.add(ca.clone().into_owned()).is_err() {
            return false;
        }
        let intermediates = self.certified_key.cert.get(1..).unwrap_or_default();
        let algorithms = ring::default_provider().signature_verification_algorithms;
        self.certified_key
            .end_entity_cert()
            .and_then(ParsedCertificate::try_from)
            .and_then(|leaf| {
                rustls::client::verify_server_cert_signed_by_trust_anchor(
                    &leaf,
                    &roots,
                    intermediates,
                    UnixTime::since_unix_epoch(since_1970(now)),
                    algorithms.all,
                )
            })
            .is_ok()
    }

    pub(crate) fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified_key
    }

    /// Compares chains only: the key was checked, so it follows from the leaf.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.certified_key.cert == other.certified_key.cert
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate")
            .field("serial", &self.serial)
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// Describes a PEM error. The parser's own messages quote the input, which may be a key: a PEM on one line is
/// all header.
fn problem(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::NoItemsFound => "there is no PEM section of that kind in it",
        pem::Error::MissingSectionEnd { .. } => "a PEM section has no end line",
        pem::Error::IllegalSectionStart { .. } => "the first line of a PEM section is broken",
        pem::Error::Base64Decode(_) => "a PEM section is not base64",
        _ => "it is not PEM",
    }
}
