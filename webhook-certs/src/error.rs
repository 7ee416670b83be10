//! What can go wrong with a certificate on its way into force.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

/// Why a certificate was not taken.
///
/// Each message says what was tried; the cause is the [`source`](StdError::source). Neither holds
/// bytes of what was read, since a key may stand where a certificate belongs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("reading {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },

    /// The files were replaced each time between two reads.
    #[error("reading tls.crt and tls.key in {}: they kept changing", directory.display())]
    Unsettled {
        /// The directory that holds them.
        directory: PathBuf,
    },

    /// The files of a directory were read, and are no pair that can serve.
    #[error("loading tls.crt and tls.key in {}", directory.display())]
    Pair {
        /// The directory that holds them.
        directory: PathBuf,
        /// What is wrong with them.
        #[source]
        source: Box<Self>,
    },

    /// The chain is not PEM, or a part of it is broken.
    #[error("parsing the certificate chain: {problem}")]
    Chain {
        /// What is wrong, in words of ours.
        problem: &'static str,
    },

    /// The first certificate of the chain is not an X.509 certificate that can serve.
    #[error("parsing the first certificate of the chain")]
    Leaf {
        /// What the parser said.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The key is not PEM, or not of a kind that is known.
    #[error("parsing the private key: {problem}")]
    Key {
        /// What is wrong, in words of ours: a parser's may quote the key.
        problem: &'static str,
    },

    /// The key is another certificate's, as after a half-written renewal.
    #[error("checking the private key: it does not belong to the first certificate of the chain")]
    Mismatch,

    /// The CAs of clients are no bundle of certificates.
    #[error("parsing the CAs of clients: {problem}")]
    ClientAuthorities {
        /// What is wrong, in words of ours.
        problem: &'static str,
    },

    /// A certificate was wanted for what is no DNS name.
    #[error("issuing a certificate: {name:?} is no DNS name")]
    Name {
        /// What was given.
        name: String,
    },

    /// A key or a certificate could not be made.
    #[error("issuing {what}")]
    Issue {
        /// What was to be made.
        what: &'static str,
        /// What is wrong; never about the bytes of a key.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// The kind of error as a word of a closed set, for metrics and Events.
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

    /// Whether there was nothing to read: the certificate may not have been issued yet.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
