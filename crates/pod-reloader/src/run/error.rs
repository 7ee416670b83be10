//! The reasons for which the operator ends early.

use crate::runtime::error::StartError;

/// A reason not to start, or not to continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "outside a cluster, --namespace must name the namespace of our Lease and our hash keys, which is never managed itself"
    )]
    NoNamespace,
    #[error("--watch-namespaces names none that can be managed: kube-system and our own never are")]
    NothingToManage,
    #[error("the task {0} has ended")]
    TaskEnded(&'static str),
    #[error("issuing the webhook's certificate")]
    Authority {
        #[source]
        source: webhook_certs::Error,
    },
    #[error("reading whose clients may call the webhook")]
    ClientAuthorities {
        #[source]
        source: webhook_certs::Error,
    },
}
