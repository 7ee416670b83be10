//! Handshakes as a TLS client sees them.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio_rustls::TlsConnector;
use webhook_certs::{Acceptor, CurrentCertificate, MinTlsVersion, ServingCertificate};

use crate::issuing::{Issued, NAME, issue};

fn put_in_force(current: &CurrentCertificate, issued: &Issued) {
    let certificate =
        ServingCertificate::from_pem(issued.chain.as_bytes(), issued.key.as_bytes()).unwrap();
    current.replace(certificate);
}

/// A handshake as the client sees it.
struct Seen {
    leaf: CertificateDer<'static>,
    alpn: Option<Vec<u8>>,
    kind: HandshakeKind,
}

/// Performs a handshake over a pipe; both sides must agree that it is done.
async fn handshake(acceptor: &Acceptor, client: &Arc<ClientConfig>) -> io::Result<Seen> {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let connector = TlsConnector::from(client.clone());
    let name = ServerName::try_from(NAME).unwrap();
    let (connected, accepted) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    accepted?;
    let connected = connected?;
    let (_, session) = connected.get_ref();
    Ok(Seen {
        leaf: session.peer_certificates().unwrap()[0].clone().into_owned(),
        alpn: session.alpn_protocol().map(<[u8]>::to_vec),
        kind: session.handshake_kind().unwrap(),
    })
}

fn client(versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(ring::default_provider())))
        .with_no_client_auth();
    config.alpn_protocols = alpn
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

#[tokio::test]
async fn clients_that_refuse_the_certificate_are_counted_and_others_are_not() {
    let current = CurrentCertificate::new();
    put_in_force(&current, &issue(0x2A));
    let acceptor = Acceptor::new(&current, MinTlsVersion::Tls12);
    for version in [&TLS12, &TLS13] {
        let before = current.refusals();
        handshake(&acceptor, &client(&[version], &[]))
            .await
            .unwrap();
        // It hangs up.
        let (near, far) = tokio::io::duplex(16 * 1024);
        drop(near);
        assert!(acceptor.accept(far).await.is_err());
        // They have nothing in common.
        let other = client(&[version], &["h2"]);
        assert!(handshake(&acceptor, &other).await.is_err());
        assert_eq!(current.refusals(), before);

        let trusts_nobody = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let refused = handshake(&acceptor, &Arc::new(trusts_nobody)).await;
        assert!(refused.is_err());
        assert_eq!(current.refusals(), before + 1);
    }
}

#[tokio::test]
async fn the_handshake_after_a_renewal_shows_the_new_serial() {
    let current = CurrentCertificate::new();
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    let client = client(&[&TLS13], &[]);
    for serial in [0x2A, 0x2B, 0x2C, 0x2D] {
        let issued = issue(serial);
        put_in_force(&current, &issued);
        let seen = handshake(&acceptor, &client).await.unwrap();
        // DER: an INTEGER of one byte.
        assert!(
            seen.leaf
                .windows(3)
                .any(|bytes| bytes == [2, 1, issued.serial as u8])
        );
        assert_eq!(seen.kind, HandshakeKind::Full);
    }
}

#[tokio::test]
async fn handshakes_fail_until_there_is_a_certificate() {
    let current = CurrentCertificate::new();
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    let client = client(&[&TLS13], &[]);
    assert!(handshake(&acceptor, &client).await.is_err());

    put_in_force(&current, &issue(1));
    assert!(handshake(&acceptor, &client).await.is_ok());
}

#[tokio::test]
async fn http_1_1_is_chosen_even_where_h2_is_preferred() {
    let current = CurrentCertificate::new();
    put_in_force(&current, &issue(1));
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    let seen = handshake(&acceptor, &client(&[&TLS13], &["h2", "http/1.1"]))
        .await
        .unwrap();
    assert_eq!(seen.alpn.as_deref(), Some(b"http/1.1".as_slice()));
}

#[tokio::test]
async fn a_client_that_wants_only_h2_is_turned_away() {
    let current = CurrentCertificate::new();
    put_in_force(&current, &issue(1));
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    assert!(
        handshake(&acceptor, &client(&[&TLS13], &["h2"]))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn tls_1_2_is_an_option() {
    let current = CurrentCertificate::new();
    put_in_force(&current, &issue(1));
    let old_client = client(&[&TLS12], &[]);
    let strict = Acceptor::new(&current, MinTlsVersion::Tls13);
    assert!(handshake(&strict, &old_client).await.is_err());
    let lenient = Acceptor::new(&current, MinTlsVersion::Tls12);
    assert!(handshake(&lenient, &old_client).await.is_ok());
    assert_eq!(
        handshake(&lenient, &old_client).await.unwrap().kind,
        HandshakeKind::Full
    );
}

/// Trusts any certificate, but checks signatures.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            leaf,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            leaf,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
