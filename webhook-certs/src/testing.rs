//! A certificate and a client that trusts it, for the tests of servers.

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ServingCertificate;

/// A client that trusts one certificate alone.
#[derive(Clone)]
pub struct Client {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// A new self-signed certificate for `dns_name`, and a client that trusts it.
///
/// # Panics
/// If `dns_name` is no DNS name.
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
        connector: TlsConnector::from(Arc::new(config)),
        name: ServerName::try_from(dns_name.to_owned()).expect("a DNS name"),
    };
    (certificate, client)
}

impl Client {
    /// Shakes hands over `io`.
    ///
    /// # Errors
    /// Whatever ends the handshake.
    pub async fn connect<IO>(&self, io: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.connector.connect(self.name.clone(), io).await
    }
}
