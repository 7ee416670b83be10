//! Serving certificates for admission webhooks: load, check, reload, issue.
//!
//! Bytes in, TLS acceptor and PEM out. A [`ServingCertificate`] is a chain and a key that belong together. A
//! [`CurrentCertificate`] holds the one in force, and an [`Acceptor`] answers each handshake with the one in
//! force at that moment:
//!
//! ```no_run
//! use webhook_certs::{Acceptor, CertificateDirectory, CurrentCertificate, MinTlsVersion};
//!
//! let directory = CertificateDirectory::new("/etc/webhook-tls");
//! let certificate = CurrentCertificate::new();
//! let acceptor = Acceptor::new(&certificate, MinTlsVersion::default());
//! // Now, and then every few seconds: an error leaves the last good certificate in force.
//! let outcome = certificate.reload(&directory);
//! # let _ = (acceptor, outcome);
//! ```
//!
//! If nobody else issues certificates, an [`Authority`] does: it says what a Secret with a CA and a
//! certificate, [`Stored`], should hold next. A [`Publication`] and
//! [`CurrentCertificate::replace_once_trusted`] hold a certificate back until its CA is trusted.
//!
//! [`Acceptor::with_client_authorities`] only lets in clients that have a certificate, too.
//!
//! # Guarantees
//! - A chain with a key that is not its own, or that does not parse, never comes into force.
//! - Every handshake that begins after a replacement shows the new certificate: there is no session
//!   resumption, which would continue with the old one.
//! - No byte of a private key is in any `Debug`, `Display` or error.
//!
//! # Caveats
//! - There are no timers and no file watches here: the caller decides when to reload. Kubernetes swaps a
//!   symlink above the files, which watches on the files do not see, so contents are compared.
//! - A certificate that has expired, or is not yet valid, is accepted: only the client's clock matters. Check
//!   [`ServingCertificate::not_after`], and warn in time.

mod acceptor;
mod authority;
mod bundle;
mod certificate;
mod clients;
mod current;
mod directory;
mod distrust;
mod error;
mod expiry;
mod issue;
mod publication;
mod stored;
#[cfg(feature = "testing")]
pub mod testing;

pub use acceptor::{Acceptor, ClientHello, MinTlsVersion, TlsStream};
pub use authority::{Authority, Change, Next};
pub use certificate::ServingCertificate;
pub use clients::ClientAuthorities;
pub use current::{CurrentCertificate, Reload};
pub use directory::CertificateDirectory;
pub use distrust::Distrust;
pub use error::Error;
pub use expiry::first_expiry;
pub use publication::{Publication, SETTLED_AFTER};
pub use stored::Stored;
