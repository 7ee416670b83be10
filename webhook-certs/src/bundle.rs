//! The CAs of a bundle, each accepted or left out on its own.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::pem::{LineEnding, encode_string};
use x509_cert::ext::pkix::BasicConstraints;

/// The certificate of a CA.
#[derive(Clone)]
pub(crate) struct Ca {
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
    /// Public key as in the certificate, without the header that names the algorithm.
    pub(crate) public_key: Vec<u8>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Ca {
    /// Parses one PEM section, which must be the certificate of a CA.
    pub(crate) fn parse(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let parsed = Certificate::from_der(&der).ok()?;
        let parsed = parsed.tbs_certificate();
        let (_, constraints) = parsed.get_extension::<BasicConstraints>().ok()??;
        // Encoded again: the original may be readable for us, but not for the apiserver.
        let pem = encode_string("CERTIFICATE", LineEnding::LF, &der).ok()?;
        constraints.ca.then(|| Self {
            pem,
            public_key: parsed
                .subject_public_key_info()
                .subject_public_key
                .raw_bytes()
                .to_owned(),
            not_before: parsed.validity().not_before.to_system_time(),
            not_after: parsed.validity().not_after.to_system_time(),
            der,
        })
    }

    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && !self.has_expired(now)
    }

    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.not_after <= now
    }
}

/// Returns the CAs among the sections of `pem`, each once. Leaves out everything that is broken or not a CA.
pub(crate) fn parse(pem: &[u8]) -> Vec<Ca> {
    let mut cas: Vec<Ca> = vec![];
    for section in String::from_utf8_lossy(pem).split_inclusive(END) {
        // Anything in front, such as a section without an end, would break this section too.
        let begin = section.rfind(BEGIN).unwrap_or_default();
        add(&mut cas, Ca::parse(&section[begin..]));
    }
    cas
}

/// Adds the CAs that are not there yet.
pub(crate) fn add(cas: &mut Vec<Ca>, more: impl IntoIterator<Item = Ca>) {
    for ca in more {
        if cas.iter().all(|known| known.der != ca.der) {
            cas.push(ca);
        }
    }
}

/// Returns the bundle in PEM.
pub(crate) fn to_pem(cas: &[Ca]) -> Vec<u8> {
    cas.iter().flat_map(|ca| ca.pem.bytes()).collect()
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
