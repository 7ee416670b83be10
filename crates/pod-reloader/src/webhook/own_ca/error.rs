//! The errors of managing a CA of our own.

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;

use crate::runtime::error::CallError;

/// An operation that failed, its object, and the cause.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error("issuing the webhook's certificate")]
    Issue {
        #[source]
        source: webhook_certs::Error,
    },
    #[error("managing the webhook's CA and certificate in {secret}")]
    Secret {
        secret: Reference,
        #[source]
        source: CallError,
    },
    #[error("managing the CA in MutatingWebhookConfiguration {name}")]
    WebhookConfiguration {
        name: Name,
        #[source]
        source: CallError,
    },
}

impl AuthorityError {
    /// Returns true if somebody else wrote first, so that everything must be read again.
    pub(super) fn is_race(&self) -> bool {
        match self {
            // A Secret that was read, but is not found when it is written, was deleted in between.
            Self::Secret { source, .. } => source.is_conflict() || source.is_not_found(),
            Self::WebhookConfiguration { source, .. } => {
                source.is_conflict() || source.is_failed_test()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::reference::ConfigKind;

    #[test]
    fn an_error_names_the_kind_of_an_object_once() {
        let secret = Reference {
            kind: ConfigKind::Secret,
            namespace: Name::parse("operator").unwrap(),
            name: Name::parse("keys").unwrap(),
        };
        let source = CallError::NoRoom;
        let text = pod_reloader_core::error::chain(&AuthorityError::Secret { secret, source });
        assert_eq!(text.matches("Secret").count(), 1, "{text}");
        assert!(text.contains("Secret operator/keys"), "{text}");
    }
}
