//! Clients that trust a CA bundle and nothing else, at any time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use webhook_certs::{Acceptor, CurrentCertificate, MinTlsVersion, Stored};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::issuing::NAME;

/// Returns true if a client that trusts `bundle` accepts the leaf of `chain` at `now`.
pub(crate) fn trusts(bundle: &[u8], chain: &[u8], now: SystemTime) -> bool {
    let roots = roots(bundle, now);
    if roots.is_empty() {
        return false;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(
        Arc::new(roots),
        ring::default_provider().into(),
    )
    .build()
    .unwrap();
    let chain = certificates(chain);
    let name = ServerName::try_from(NAME).unwrap();
    verifier
        .verify_server_cert(&chain[0], &chain[1..], &name, &[], unix(now))
        .is_ok()
}

/// Returns true if the handshake with a client that trusts `bundle` succeeds.
pub(crate) async fn shakes_hands(bundle: &[u8], stored: &Stored, now: SystemTime) -> bool {
    let current = CurrentCertificate::new();
    current.replace(stored.serving_certificate().unwrap());
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    let client = ClientConfig::builder_with_details(
        ring::default_provider().into(),
        Arc::new(At(unix(now))),
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots(bundle, now))
    .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let name = ServerName::try_from(NAME).unwrap();
    let (near, far) = tokio::io::duplex(16 * 1024);
    let (connected, accepted) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    connected.is_ok() && accepted.is_ok()
}

/// Parses the certificates of a PEM.
pub(crate) fn parsed(pem: &[u8]) -> Vec<Certificate> {
    certificates(pem)
        .iter()
        .map(|der| Certificate::from_der(der).unwrap())
        .collect()
}

/// Returns the CAs that are valid at `now`. Unlike rustls, Go also checks if the CA itself is valid, so we
/// do, too.
fn roots(bundle: &[u8], now: SystemTime) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for (der, ca) in certificates(bundle).into_iter().zip(parsed(bundle)) {
        let validity = ca.tbs_certificate().validity();
        if (validity.not_before.to_system_time()..validity.not_after.to_system_time())
            .contains(&now)
        {
            roots.add(der).unwrap();
        }
    }
    roots
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .unwrap()
}

fn unix(time: SystemTime) -> UnixTime {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since_1970.unwrap())
}

#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

pub(crate) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// Returns the time at which the tests of authorities begin.
pub(crate) fn start() -> SystemTime {
    SystemTime::UNIX_EPOCH + days(20_000)
}
