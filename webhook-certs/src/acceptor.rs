//! Answers TLS handshakes with the certificate in force.

use std::future::Future;
use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{Acceptor as HelloReader, NoClientAuth, NoServerSessionStorage};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use crate::clients::Verifier;
use crate::current::Resolver;
use crate::{ClientAuthorities, CurrentCertificate};

pub use tokio_rustls::server::TlsStream;

/// The oldest version of TLS that a client may speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinTlsVersion {
    /// TLS 1.2 or 1.3.
    Tls12,
    /// TLS 1.3 only, which every supported apiserver speaks.
    #[default]
    Tls13,
}

/// Answers TLS handshakes with the certificate in force; clones are cheap.
///
/// # Guarantees
/// - ALPN offers HTTP/1.1 only: a client that wants only h2 is turned away.
/// - No sessions are resumed, so each connection shows the certificate in force when it begins.
/// - The process needs no default crypto provider.
/// - A client that refuses the certificate counts in [`CurrentCertificate::refusals`].
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    certificate: CurrentCertificate,
}

impl Acceptor {
    /// Creates an acceptor that serves whatever `certificate` holds at the time of each handshake.
    pub fn new(certificate: &CurrentCertificate, minimum: MinTlsVersion) -> Self {
        Self::with(certificate, minimum, Arc::new(NoClientAuth))
    }

    /// Creates an acceptor like [`Acceptor::new`] that accepts only clients with a certificate issued by one
    /// of `authorities`, as they are at the time of each handshake.
    pub fn with_client_authorities(
        certificate: &CurrentCertificate,
        minimum: MinTlsVersion,
        authorities: &ClientAuthorities,
    ) -> Self {
        Self::with(certificate, minimum, Arc::new(Verifier::new(authorities)))
    }

    fn with(
        certificate: &CurrentCertificate,
        minimum: MinTlsVersion,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Self {
        let versions = match minimum {
            MinTlsVersion::Tls12 => vec![&TLS13, &TLS12],
            MinTlsVersion::Tls13 => vec![&TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&versions)
            .expect("ring has cipher suites for TLS 1.2 and 1.3")
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(Resolver(certificate.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The apiserver does not retain sessions, so tickets would be wasted work. A resumed session would
        // also never see a renewed certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Self {
            config: Arc::new(config),
            certificate: certificate.clone(),
        }
    }

    /// Performs the whole handshake.
    ///
    /// # Errors
    /// When the connection ends, the client aborts, or there is no certificate.
    pub async fn accept<IO>(&self, io: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.client_hello(io).await?.answer().await
    }

    /// Performs the first part of a handshake: waits for the client's hello. It has no time limit, and does
    /// no cryptography yet, so a server can bound the waiting and the work separately.
    ///
    /// # Errors
    /// When the connection ends, or the data is not TLS.
    pub async fn client_hello<IO>(&self, io: IO) -> io::Result<ClientHello<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(HelloReader::default(), io).await?;
        Ok(ClientHello {
            start,
            acceptor: self.clone(),
        })
    }
}

/// A client's hello, ready to be answered.
pub struct ClientHello<IO> {
    start: StartHandshake<IO>,
    acceptor: Acceptor,
}

impl<IO> ClientHello<IO>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    /// Performs the second part of a handshake. Key exchange and signature, which are nearly all of the work,
    /// are done within this call. The future sends the answer and waits for the client's.
    ///
    /// # Errors
    /// The future's output is an error if the connection ended, the two have nothing in common, or
    /// there is no certificate.
    pub fn answer(self) -> impl Future<Output = io::Result<TlsStream<IO>>> {
        let Acceptor {
            config,
            certificate,
        } = self.acceptor;
        let answered = self.start.into_stream(config);
        async move {
            let outcome = answered.await;
            if outcome.as_ref().is_err_and(is_refusal) {
                certificate.refused();
            }
            outcome
        }
    }
}

/// Returns true if the client says that it does not accept the certificate.
fn is_refusal(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        error,
        Some(rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
        ))
    )
}
