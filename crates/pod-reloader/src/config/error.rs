//! The errors of reading config objects and hash keys.

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};

use crate::runtime::error::CallError;

/// A failed read, with its object and the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("reading {reference}")]
    Object {
        reference: Reference,
        #[source]
        source: CallError,
    },
    #[error("listing the {} of {namespace}", kind.plural())]
    List {
        kind: ConfigKind,
        namespace: Name,
        #[source]
        source: CallError,
    },
    #[error("reading the hash keys in {secret}")]
    Keys {
        secret: Reference,
        #[source]
        source: CallError,
    },
    #[error("{0} holds no hash key")]
    NoKeys(Reference),
}

impl ReadError {
    /// Returns the reason as one of a closed set of words, for Events and the log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Object { source, .. } | Self::List { source, .. } | Self::Keys { source, .. } => {
                source.reason()
            }
            Self::NoKeys(_) => "unreadable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_kind_of_an_object_once() {
        let secret = || Reference {
            kind: ConfigKind::Secret,
            namespace: Name::parse("operator").unwrap(),
            name: Name::parse("keys").unwrap(),
        };
        let source = || CallError::NoRoom;
        for error in [
            ReadError::Keys {
                secret: secret(),
                source: source(),
            },
            ReadError::NoKeys(secret()),
            ReadError::Object {
                reference: secret(),
                source: source(),
            },
        ] {
            let text = pod_reloader_core::error::chain(&error);
            assert_eq!(text.matches("Secret").count(), 1, "{text}");
            assert!(text.contains("Secret operator/keys"), "{text}");
        }
    }
}
