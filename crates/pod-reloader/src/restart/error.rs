//! The errors of reconciling one workload.

use pod_reloader_core::workload::WorkloadId;

use crate::live::error::ReadError;
use crate::runtime::error::CallError;

/// An operation that failed, its object, and the cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestartError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("reading {workload}")]
    ReadWorkload {
        workload: WorkloadId,
        #[source]
        source: CallError,
    },
    #[error("patching {workload}")]
    Patch {
        workload: WorkloadId,
        #[source]
        source: CallError,
    },
    #[error("listing the revisions of {workload}")]
    Revisions {
        workload: WorkloadId,
        #[source]
        source: CallError,
    },
    /// The cause is not a source: what the apiserver says may quote a value.
    #[error("copying the config of {workload}: {}", cause.reason())]
    Copy {
        workload: WorkloadId,
        cause: CallError,
    },
    #[error("looking for a pod that is in the way of {workload}, or deleting it")]
    Unstick {
        workload: WorkloadId,
        #[source]
        source: CallError,
    },
    #[error("setting the config hash of {0}: it was accepted and reverted")]
    Reverted(WorkloadId),
}

impl RestartError {
    /// Returns true if the apiserver has refused a write, or somebody has reverted it at once.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Patch { source, .. } => source.is_refusal(),
            Self::Reverted(_) => true,
            Self::Read(_)
            | Self::ReadWorkload { .. }
            | Self::Revisions { .. }
            | Self::Copy { .. }
            | Self::Unstick { .. } => false,
        }
    }
}
