//! Certificates for the tests of servers, and clients that trust them and have certificates themselves.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ServingCertificate;

/// A client that trusts a single certificate.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Creates a self-signed certificate for `dns_name`, and a client that trusts it.
///
/// # Panics
/// If `dns_name` is not a DNS name.
pub fn self_signed(dns_name: &str) -> (ServingCertificate, Client) {
    let issued = rcgen::generate_simple_self_signed([dns_name.to_owned()]).expect("a DNS name");
    let (chain, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let certificate = ServingCertificate::from_pem(chain.as_bytes(), key.as_bytes())
        .expect("the pair belongs together");
    let mut roots = RootCertStore::empty();
    roots.add(issued.cert.der().clone()).expect("it parses");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Client {
        config: Arc::new(config),
        name: ServerName::try_from(dns_name.to_owned()).expect("a DNS name"),
    };
    (certificate, client)
}

impl Client {
    /// Returns the same client with a certificate of `authority`.
    #[must_use]
    pub fn with_certificate_of(&self, authority: &ClientAuthority) -> Self {
        let key = KeyPair::generate().expect("ring makes keys");
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params
            .signed_by(&key, &authority.issuer)
            .expect("the parameters are sound");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is PKCS#8");
        let key = any_supported_type(&key).expect("ring knows its own keys");
        let shown = CertifiedKey::new(vec![certificate.der().clone()], key);
        let mut config = ClientConfig::clone(&self.config);
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(shown));
        Self {
            config: Arc::new(config),
            name: self.name.clone(),
        }
    }

    /// Performs a handshake over `io`.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn connect<IO>(&self, io: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        TlsConnector::from(self.config.clone())
            .connect(self.name.clone(), io)
            .await
    }
}

/// A CA that issues certificates of clients.
pub struct ClientAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Certificate of the CA, in PEM.
    pub pem: String,
}

/// Creates a CA of clients.
///
/// # Panics
/// If there is no randomness.
pub fn client_authority() -> ClientAuthority {
    let key = KeyPair::generate().expect("ring makes keys");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("the parameters are sound");
    ClientAuthority {
        pem: certificate.pem(),
        issuer: Issuer::new(params, key),
    }
}

/// Writes `tls.crt` and `tls.key` of a new self-signed certificate that is valid from `from` to `until`.
///
/// # Panics
/// If `dns_name` is not a DNS name, or the files cannot be written.
pub fn write_pair(directory: &Path, dns_name: &str, from: SystemTime, until: SystemTime) {
    let key = KeyPair::generate().expect("ring makes keys");
    let mut params = CertificateParams::new([dns_name.to_owned()]).expect("a DNS name");
    params.not_before = from.into();
    params.not_after = until.into();
    let certificate = params.self_signed(&key).expect("the parameters are sound");
    for (name, pem) in [
        ("tls.key", key.serialize_pem()),
        ("tls.crt", certificate.pem()),
    ] {
        fs::write(directory.join(name), pem).expect("the directory can be written to");
    }
}
