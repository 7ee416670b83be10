//! The errors that can keep a certificate from coming into force.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

/// The reason why a certificate was not accepted.
///
/// Each message says what was tried; the cause is the [`source`](StdError::source). Neither contains any
/// input, since there may be a key in the place of a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("reading {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },

    /// The files were replaced each time between two reads.
    #[error("reading tls.crt and tls.key in {}: they kept changing", directory.display())]
    Unsettled {
        /// Directory of the files.
        directory: PathBuf,
    },

    /// The files of a directory were read, but are not a pair that can serve.
    #[error("loading tls.crt and tls.key in {}", directory.display())]
    Pair {
        /// Directory of the files.
        directory: PathBuf,
        /// Problem with the files.
        #[source]
        source: Box<Self>,
    },

    /// The chain is not PEM, or a part of it is broken.
    #[error("parsing the certificate chain: {problem}")]
    Chain {
        /// Problem in our own words.
        problem: &'static str,
    },

    /// The first certificate of the chain is not an X.509 certificate that can serve.
    #[error("parsing the first certificate of the chain")]
    Leaf {
        /// Error of the parser.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The key is not PEM, or not of a known kind.
    #[error("parsing the private key: {problem}")]
    Key {
        /// Problem in our own words: a parser's message may quote the key.
        problem: &'static str,
    },

    /// The key belongs to another certificate, as after a half-written renewal.
    #[error("checking the private key: it does not belong to the first certificate of the chain")]
    Mismatch,

    /// The CAs of clients are not a bundle of certificates.
    #[error("parsing the CAs of clients: {problem}")]
    ClientAuthorities {
        /// Problem in our own words.
        problem: &'static str,
    },

    /// A certificate was requested for a name that is not a DNS name.
    #[error("issuing a certificate: {name:?} is no DNS name")]
    Name {
        /// Name that was given.
        name: String,
    },

    /// A key or a certificate could not be created.
    #[error("issuing {what}")]
    Issue {
        /// Object that was to be created.
        what: &'static str,
        /// Problem; never about the bytes of a key.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// Returns the kind of error as a word of a closed set, for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Unsettled { .. } => "unsettled",
            Self::Pair { source, .. } => source.reason(),
            Self::Chain { .. } | Self::Leaf { .. } | Self::ClientAuthorities { .. } => {
                "certificate"
            }
            Self::Key { .. } => "key",
            Self::Mismatch => "mismatch",
            Self::Name { .. } => "name",
            Self::Issue { .. } => "issue",
        }
    }
}
