//! The errors of reading config objects and hash keys.

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};

use crate::runtime::error::CallError;

/// A failed read, with its object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An object cannot be read.
    #[error("reading {reference}")]
    Object {
        /// The object.
        reference: Reference,
        /// The cause.
        #[source]
        source: CallError,
    },
    /// The objects of a namespace cannot be listed.
    #[error("listing the {} of {namespace}", kind.plural())]
    List {
        /// Their kind.
        kind: ConfigKind,
        /// The namespace.
        namespace: Name,
        /// The cause.
        #[source]
        source: CallError,
    },
    /// The Secret of the hash keys cannot be read, or created.
    #[error("reading the hash keys in {secret}")]
    Keys {
        /// The Secret.
        secret: Reference,
        /// The cause.
        #[source]
        source: CallError,
    },
    /// This Secret has no entry that is a hash key.
    #[error("{0} holds no hash key")]
    NoKeys(Reference),
}

impl ReadError {
    /// Returns the reason as one of a closed set of words, for Events and the log.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Object { source, .. } | Self::List { source, .. } | Self::Keys { source, .. } => {
                source.reason()
            }
            Self::NoKeys(_) => "unreadable",
        }
    }
}

/// Returns why a call has failed, for people. The words of the apiserver are left out, because they may quote a value.
pub fn in_own_words(error: &CallError) -> &'static str {
    let is_quota =
        matches!(error, CallError::Refused { message, .. } if message.contains("exceeded quota"));
    match error.reason() {
        _ if is_quota => "the quota of the namespace is used up",
        "forbidden" => "pod-reloader is not allowed to, or a policy forbids it",
        "refused" => "the cluster does not accept it",
        "unreadable" => "the answer of the apiserver cannot be read",
        _ => "the apiserver could not be asked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_words_quote_nothing() {
        let refused = |code: u16, message: &str| CallError::Refused {
            code,
            reason: "Forbidden".to_owned(),
            message: format!("{message}: hunter2"),
            has_details: true,
        };
        for (error, expected) in [
            (refused(403, "exceeded quota"), "quota"),
            (refused(403, "denied by a policy"), "policy"),
            (refused(422, "invalid value"), "does not accept"),
            (
                refused(500, "failed calling a webhook"),
                "could not be asked",
            ),
            (
                CallError::Connection("hunter2".to_owned()),
                "could not be asked",
            ),
            (CallError::Unreadable, "cannot be read"),
        ] {
            let words = in_own_words(&error);
            assert!(words.contains(expected), "{error}: {words}");
            assert!(!words.contains("hunter2"), "{words}");
        }
    }

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
