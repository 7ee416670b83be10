//! The CAs that may issue certificates of clients.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use crate::Error;

/// The CAs that may issue certificates of clients; clones share them.
///
/// While there are none, no client is let in.
#[derive(Clone, Default)]
pub struct ClientAuthorities(Arc<RwLock<Option<Current>>>);

/// The CAs in force.
struct Current {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthorities {
    /// Creates a holder without CAs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file and puts its CAs in force. Returns true if that changed anything.
    ///
    /// # Errors
    /// [`Error::Read`], and those of [`ClientAuthorities::replace`]. The CAs in force do not change then.
    pub fn reload(&self, file: &Path) -> Result<bool, Error> {
        let pem = fs::read(file).map_err(|source| Error::Read {
            path: file.to_owned(),
            source,
        })?;
        self.replace(pem)
    }

    /// Puts the CAs of a PEM bundle in force. Returns true if that changed anything.
    ///
    /// # Errors
    /// [`Error::ClientAuthorities`] if the bundle contains no CA, or a broken one. The CAs in force do not
    /// change then.
    pub fn replace(&self, pem: Vec<u8>) -> Result<bool, Error> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| current.pem == pem) {
            return Ok(false);
        }
        let verifier = verifier(&pem)?;
        *current = Some(Current { pem, verifier });
        Ok(true)
    }

    fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|current| current.verifier.clone())
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuthorities(..)")
    }
}

fn verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let broken = |problem| Error::ClientAuthorities { problem };
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(pem) {
        let ca = ca.map_err(|_| broken("a PEM section is broken"))?;
        roots
            .add(ca)
            .map_err(|_| broken("one is no certificate that can be a CA"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
        .build()
        .map_err(|_| broken("there is no certificate in it"))
}

/// Checks clients against the CAs in force at that time.
#[derive(Debug)]
pub(crate) struct Verifier {
    authorities: ClientAuthorities,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(crate) fn new(authorities: &ClientAuthorities) -> Self {
        Self {
            authorities: authorities.clone(),
            algorithms: ring::default_provider().signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for Verifier {
    /// No hints: they would be outdated after a replacement. A client without hints shows what it has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.authorities.verifier() {
            Some(verifier) => verifier.verify_client_cert(leaf, intermediates, now),
            None => Err(rustls::Error::General("no CA of clients yet".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
