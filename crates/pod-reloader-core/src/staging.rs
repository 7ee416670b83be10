//! Staging: the settings and the health of one workload whose restarts are staged or limited.

mod custom;

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::annotations::{DEADLINE, SOAK, STAGE, STAGED};
use crate::conditions;
use crate::duration::{self, MAX_SETTLE_PERIOD};
use crate::kind::WorkloadKind;
use crate::reference::ConfigKind;

/// The stage of a workload that names none.
pub const DEFAULT_STAGE: i32 = 1;

/// The objects whose changes restart workloads in stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// None.
    Nothing,
    /// ConfigMaps. A rotated Secret often wants all its consumers soon.
    ConfigMaps,
    /// ConfigMaps and Secrets.
    Everything,
}

impl Staged {
    /// Parses a value of the annotation [`STAGED`]. No word is a boolean of YAML, so none needs quotes.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "none" => Some(Self::Nothing),
            "configmaps" => Some(Self::ConfigMaps),
            "all" => Some(Self::Everything),
            _ => None,
        }
    }

    /// Returns true if changes of objects of this kind are staged.
    pub fn includes(self, kind: ConfigKind) -> bool {
        match self {
            Self::Nothing => false,
            Self::ConfigMaps => kind == ConfigKind::ConfigMap,
            Self::Everything => true,
        }
    }
}

/// The settings of workloads without annotations of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The objects whose changes are staged.
    pub staged: Staged,
    /// The time for which a workload must be healthy before the next ones go.
    pub soak: Duration,
    /// The time within which a workload must become healthy.
    pub deadline: Duration,
    /// True if the health of every workload matters, staged or not.
    pub judges_all: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            staged: Staged::Nothing,
            soak: Duration::from_secs(30),
            deadline: Duration::from_secs(10 * 60),
            judges_all: false,
        }
    }
}

/// The place of one workload in the stages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staging {
    /// The objects whose changes are staged.
    pub staged: Staged,
    /// The stage. Lower stages go first.
    pub stage: i32,
    /// The time for which the workload must be healthy before the next ones go.
    pub soak: Duration,
    /// The time within which the workload must become healthy.
    pub deadline: Duration,
    /// The health of the workload.
    pub health: Health,
}

impl Staging {
    /// Reads the annotations of a workload. `None` if its restarts are neither staged nor limited, and its health
    /// matters to nobody.
    pub(crate) fn read<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
        defaults: &Defaults,
        facts: &Facts,
        kind: WorkloadKind,
        generation: i64,
    ) -> Option<Box<Self>> {
        let staged = annotation(STAGED).and_then(Staged::parse);
        let staged = staged.unwrap_or(defaults.staged);
        if staged == Staged::Nothing && !defaults.judges_all {
            return None;
        }
        let time = |key| annotation(key).and_then(duration::of_annotation);
        let progress = facts.progress_deadline_seconds;
        let progress = progress.map(|seconds| Duration::from_secs(seconds.into()));
        let deadline = time(DEADLINE).or(progress);
        let stage = annotation(STAGE).and_then(|stage| stage.parse().ok());
        Some(Box::new(Self {
            staged,
            stage: stage.unwrap_or(DEFAULT_STAGE),
            soak: time(SOAK).unwrap_or(defaults.soak),
            deadline: deadline.unwrap_or(defaults.deadline).min(MAX_SETTLE_PERIOD),
            health: facts.health(kind, generation),
        }))
    }
}

/// The health of a workload, as its status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// All its pods are of the present template, and available.
    Healthy,
    /// The rollout of the present template has not been completed.
    Rolling,
    /// The rollout was completed, and some pods have become unavailable since.
    Unavailable,
    /// It has no pods to judge by, or they do not show in its status.
    Unknown,
}

/// The fields of a workload that say how many pods it has and how they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The number of pods that the spec asks for.
    pub(crate) replicas: Option<i64>,
    /// The ordinal below which a StatefulSet keeps its pods.
    pub(crate) partition: Option<i64>,
    /// The time within which a Deployment must make progress, in seconds.
    pub(crate) progress_deadline_seconds: Option<u32>,
    /// The status, if there is one.
    pub(crate) status: Option<Status>,
    /// The status of a custom resource, if it says whether the last restart is done.
    pub(crate) custom: Option<Box<RawValue>>,
}

/// The status of a workload of a built-in kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    observed_generation: Option<i64>,
    replicas: Option<i64>,
    updated_replicas: Option<i64>,
    available_replicas: Option<i64>,
    desired_number_scheduled: Option<i64>,
    updated_number_scheduled: Option<i64>,
    number_available: Option<i64>,
    /// True if a Deployment says that its last rollout was completed.
    #[serde(default, rename = "conditions", deserialize_with = "is_complete")]
    is_complete: bool,
}

/// Reads only from the conditions whether the last rollout of a Deployment was completed.
fn is_complete<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    conditions::any(deserializer, |it| {
        it.is("Progressing") && it.reason.as_deref() == Some("NewReplicaSetAvailable")
    })
}

impl Facts {
    fn health(&self, kind: WorkloadKind, generation: i64) -> Health {
        if !kind.is_built_in() {
            let status = self.custom.as_deref();
            return status.map_or(Health::Unknown, |it| custom::health(it, generation));
        }
        let Some(status) = &self.status else {
            return Health::Rolling;
        };
        let is_observed = status.observed_generation.unwrap_or_default() >= generation;
        let is_daemon_set = kind == WorkloadKind::DAEMON_SET;
        let (asked, are_updated, available) = if is_daemon_set {
            let asked = status.desired_number_scheduled.unwrap_or_default();
            let updated = status.updated_number_scheduled.unwrap_or_default();
            (asked, updated == asked, status.number_available)
        } else {
            let asked = self.replicas.unwrap_or(1);
            let updated = status.updated_replicas.unwrap_or_default();
            let others = status.replicas.unwrap_or_default() - updated;
            let kept = self.partition.unwrap_or_default().clamp(0, asked.max(0));
            // A StatefulSet that keeps all its pods tries nothing.
            if kept == asked {
                return Health::Unknown;
            }
            let are_updated = updated >= asked - kept && others <= kept;
            (asked, are_updated, status.available_replicas)
        };
        // A DaemonSet that the controller has not seen asks for no pods yet.
        if asked == 0 && is_observed {
            return Health::Unknown;
        }
        let is_complete = match kind == WorkloadKind::DEPLOYMENT {
            true => status.is_complete,
            false => are_updated,
        };
        match are_updated && available.unwrap_or_default() >= asked {
            _ if !is_observed => Health::Rolling,
            true => Health::Healthy,
            false if is_complete => Health::Unavailable,
            false => Health::Rolling,
        }
    }
}

#[cfg(test)]
mod tests;
