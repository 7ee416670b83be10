//! The errors of calls to the apiserver, and of setting up clients and ports.

use std::net::SocketAddr;
use std::time::Duration;

use kube::core::Status;
use pod_reloader_core::digest::NotAConfigObject;
use pod_reloader_core::error::chain;
use pod_reloader_core::texts::MAX_ANNOTATIONS_SIZE;

use crate::budget::LONGEST;

/// A reason why a client or a port of the process could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No cluster is configured.
    #[error("finding a cluster: neither KUBECONFIG nor the service account of a pod names one")]
    NoCluster {
        /// The error of kube, which says where it looked.
        #[source]
        source: kube::config::InferConfigError,
    },
    /// The configuration of the cluster makes no client.
    #[error("building a client for the cluster")]
    Client {
        /// The reason.
        #[source]
        source: CallError,
    },
    /// A port cannot be listened on.
    #[error("listening on {address}")]
    Listen {
        /// The address of the port.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

/// The reason why a call to the apiserver brought no usable answer.
///
/// Holds no error of kube or serde, because those can quote the answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The answer did not come in this time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The apiserver answered with an error.
    #[error("the apiserver answered {code}: {message}")]
    Refused {
        /// The status code of HTTP.
        code: u16,
        /// The reason of the Status, such as `NotFound`.
        reason: String,
        /// The beginning of the message of the Status. It may quote what was sent.
        message: String,
        /// True if the Status names an object or causes.
        has_details: bool,
    },
    /// The request was not sent, because it would lead to so many bytes of annotations.
    #[error(
        "the annotations of its pod template would be {0} bytes with it, Kubernetes takes {MAX_ANNOTATIONS_SIZE} bytes: they are too long, shorten them"
    )]
    AnnotationsTooLong(usize),
    /// The connection failed, for this reason.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The [budget](crate::budget::Budget) has no bytes left.
    #[error("there is no memory left to read it")]
    NoRoom,
    /// The object is longer than any that is read.
    #[error("it is longer than {} MiB", LONGEST >> 20)]
    TooLong,
    /// There are more objects than this number, which is the most that are read.
    #[error("there are more than {0}")]
    TooMany(u32),
    /// The answer has an object that is not a ConfigMap or a Secret.
    #[error(transparent)]
    NotAConfigObject(#[from] NotAConfigObject),
    /// The answer is not what was asked for.
    #[error("the answer cannot be read")]
    Unreadable,
}

impl CallError {
    /// Every [`CallError::reason`].
    pub const REASONS: [&str; 6] = [
        "timeout",
        "forbidden",
        "unavailable",
        "refused",
        "unreachable",
        "unreadable",
    ];

    /// Returns the reason as one of a closed set of words, for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TimedOut(_) => "timeout",
            Self::Refused {
                code: 401 | 403, ..
            } => "forbidden",
            Self::NoRoom
            | Self::Refused {
                code: 429 | 500.., ..
            } => "unavailable",
            Self::Refused { .. } | Self::AnnotationsTooLong(_) => "refused",
            Self::Connection(_) => "unreachable",
            Self::NotAConfigObject(_) | Self::TooLong | Self::TooMany(_) | Self::Unreadable => {
                "unreadable"
            }
        }
    }

    /// Returns true if the object, or its namespace, does not exist.
    pub fn is_not_found(&self) -> bool {
        // A proxy can answer 404 in its own words, which says nothing about the object.
        matches!(self, Self::Refused { code: 404, reason, .. } if reason == "NotFound")
    }

    /// Returns true if the namespace is gone, or about to be.
    pub fn is_of_a_namespace_that_goes(&self) -> bool {
        self.is_not_found()
            || matches!(self, Self::Refused { code: 403, message, .. } if message.contains("because it is being terminated"))
    }

    /// Returns true if an object cannot be created because there is one with its name.
    pub fn already_exists(&self) -> bool {
        // A quota that somebody else uses at the same time is a 409, too.
        matches!(self, Self::Refused { code: 409, reason, .. } if reason == "AlreadyExists")
    }

    /// Returns true if a watch or a list is too old to continue, so that everything must be listed again.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    /// Returns true if somebody else created or changed the object first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// Returns true if a webhook has denied the call, with whatever code it liked.
    pub fn is_of_webhook(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.starts_with("admission webhook"))
    }

    /// Returns true if a policy, a webhook or the apiserver itself does not allow the call, whatever the state of other
    /// objects. A quota that is used up is not included: there may be room in it later.
    pub fn is_denial(&self) -> bool {
        matches!(
            self,
            Self::Refused { code: 400 | 403 | 422, message, .. }
                if !message.contains("exceeded quota")
        )
    }

    /// Returns true if a `test` of our JSON Patch did not hold. The apiserver then answers 422 without
    /// details. A policy that refuses the patch gives details, and a webhook may.
    pub fn is_failed_test(&self) -> bool {
        let is_bare = matches!(
            self,
            Self::Refused {
                code: 422,
                has_details: false,
                ..
            }
        );
        is_bare && !self.is_of_webhook()
    }

    /// Returns true if the apiserver refuses the call, and will do so again until somebody changes
    /// something. A 401 is not included: it is about our token, which is replaced without anybody's help.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::AnnotationsTooLong(_)
                | Self::Refused {
                    code: 400 | 402..=428 | 430..=499,
                    ..
                }
        )
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            // Any JSON object can be read as a Status without content.
            kube::Error::Api(status) if status.code == 0 => Self::Unreadable,
            kube::Error::Api(status) => Self::Refused {
                code: status.code,
                has_details: status
                    .details
                    .as_ref()
                    .is_some_and(|details| !details.name.is_empty() || !details.causes.is_empty()),
                message: if is_status(&status) {
                    status.message.chars().take(MAX_MESSAGE).collect()
                } else {
                    "with something that is not a Status".to_owned()
                },
                reason: status.reason,
            },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Unreadable,
            other => Self::Connection(chain(&other)),
        }
    }
}

/// The maximum length of a retained message, in characters. An Event takes 1 KiB.
const MAX_MESSAGE: usize = 500;

/// Returns true if the apiserver itself sent the Status. kube turns any other answer, such as the page of a
/// proxy, into a Status that quotes it.
fn is_status(status: &Status) -> bool {
    status.reason != "Failed to parse error data"
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn refused(code: u16, reason: &str, details: Option<StatusDetails>) -> CallError {
        let status = Status {
            details,
            ..Status::failure("no", reason).with_code(code)
        };
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn a_failed_test_is_distinguished_from_a_denial_by_a_policy_or_a_webhook() {
        let details = |name: &str, causes| StatusDetails {
            name: name.to_owned(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes,
            retry_after_seconds: 0,
        };
        let cause = StatusCause {
            reason: String::new(),
            message: "no".to_owned(),
            field: String::new(),
        };
        assert!(refused(422, "Invalid", None).is_failed_test());
        assert!(refused(422, "Invalid", Some(details("", vec![]))).is_failed_test());
        assert!(!refused(422, "Invalid", Some(details("web", vec![]))).is_failed_test());
        assert!(!refused(422, "Invalid", Some(details("", vec![cause]))).is_failed_test());
        assert!(!refused(409, "Conflict", None).is_failed_test());
        let denial = "admission webhook \"policy.example.com\" denied the request: no";
        let denial = Status::failure(denial, "Invalid").with_code(422);
        assert!(!CallError::from(kube::Error::Api(denial.boxed())).is_failed_test());
    }

    #[test]
    fn a_quota_that_is_used_up_denies_nothing_for_ever() {
        let of = |code, message: &str| {
            let status = Status::failure(message, "Forbidden").with_code(code);
            CallError::from(kube::Error::Api(status.boxed())).is_denial()
        };
        let quota =
            "configmaps \"app\" is forbidden: exceeded quota: full, requested: count/configmaps=1";
        assert!(!of(403, quota));
        assert!(of(
            403,
            "ValidatingAdmissionPolicy 'guard' denied request: no"
        ));
        assert!(of(422, "no") && !of(409, "no") && !of(500, "no"));
    }

    #[test]
    fn the_answer_of_a_proxy_is_not_quoted() {
        let status = Status::failure("hunter2", "Failed to parse error data").with_code(502);
        let error = CallError::from(kube::Error::Api(status.boxed()));
        assert_eq!(
            error.to_string(),
            "the apiserver answered 502: with something that is not a Status"
        );
    }

    #[test]
    fn every_error_of_a_call_reads_well() {
        let status = |code, message: &str| Status::failure(message, "Expired").with_code(code);
        let api = |status: Status| kube::Error::Api(status.boxed());
        let broken = || std::io::Error::other("connection reset");
        let json = serde_json::from_str::<u8>("hunter2").unwrap_err();
        let text = String::from_utf8(vec![255]).unwrap_err();
        for (error, expected) in [
            (
                api(status(410, "too old resource version")),
                "the apiserver answered 410: too old resource version",
            ),
            (api(status(0, "")), "the answer cannot be read"),
            (kube::Error::SerdeError(json), "the answer cannot be read"),
            (kube::Error::FromUtf8(text), "the answer cannot be read"),
            (
                kube::Error::Service(broken().into()),
                "the connection failed: ServiceError: connection reset",
            ),
            (
                kube::Error::ReadEvents(broken()),
                "the connection failed: Error reading events stream: connection reset",
            ),
        ] {
            assert_eq!(chain(&CallError::from(error)), expected);
        }
        assert_eq!(CallError::TooLong.to_string(), "it is longer than 12 MiB");
    }

    #[test]
    fn an_error_that_passes_by_itself_is_not_a_refusal() {
        for code in [401, 429, 500, 503, 504] {
            assert!(!refused(code, "", None).is_refusal(), "{code}");
        }
        for code in [400, 403, 404, 409, 422] {
            assert!(refused(code, "", None).is_refusal(), "{code}");
        }
    }

    #[test]
    fn only_the_apiservers_own_404_says_that_an_object_is_absent() {
        assert!(refused(404, "NotFound", None).is_not_found());
        assert!(!refused(404, "Failed to parse error data", None).is_not_found());
        assert!(!refused(403, "Forbidden", None).is_not_found());
    }
}
