//! Shows what becomes of each workload.

use pod_reloader_core::plan::{Change, Difference};
use serde::Serialize;

use crate::steps::Restarted;
use crate::workloads::Seen;

/// What becomes of one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Number of pods, if the workload states it.
    pub(super) pods: Option<i64>,
    pub(super) restarts: Restarts,
    pub(super) reason: String,
    /// The tracked objects that change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) because: Vec<Because>,
    /// Its place in the stages, if pod-reloader restarts it because of a change.
    #[serde(skip)]
    pub(super) restarted: Option<Restarted>,
}

/// The fate of the pods of a workload, the most important ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Restarts {
    /// pod-reloader restarts them.
    Yes,
    /// They are replaced because their template changes, as without pod-reloader.
    ByItself,
    /// They are asked to reload changed files, and restarted if one of them does not.
    Reloads,
    /// They are restarted once something has happened that they wait for.
    Waits,
    /// Nobody can tell.
    Unknown,
    /// They are created.
    New,
    /// They keep running.
    No,
}

impl Restarts {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::ByItself => "by itself",
            Self::Reloads => "reloads",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
            Self::New => "new",
            Self::No => "no",
        }
    }
}

/// A tracked object that changes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Because {
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) change: &'static str,
    /// The keys that change, if the object was there before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<String>,
}

impl From<Difference> for Because {
    fn from(Difference { reference, change }: Difference) -> Self {
        let (change, keys) = match change {
            Change::Created => ("created", Vec::new()),
            Change::Deleted => ("deleted", Vec::new()),
            Change::Keys(keys) => ("changed", keys),
        };
        Self {
            kind: reference.kind.as_str(),
            namespace: reference.namespace.to_string(),
            name: reference.name.to_string(),
            change,
            keys: keys.into_iter().map(Into::into).collect(),
        }
    }
}

impl Row {
    pub(super) fn new(seen: &Seen<'_>, restarts: Restarts, reason: String) -> Self {
        let id = &seen.workload.id;
        Self {
            kind: id.kind.to_string(),
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            pods: seen.pods(),
            restarts,
            reason,
            because: Vec::new(),
            restarted: None,
        }
    }

    /// Returns true if a change of this object is a reason for the restart.
    pub(super) fn is_because_of(&self, object: &Because) -> bool {
        self.because.iter().any(|it| {
            (it.kind, &it.namespace, &it.name) == (object.kind, &object.namespace, &object.name)
        })
    }

    pub(super) fn cells(&self) -> [String; 4] {
        [
            format!("{} {}/{}", self.kind, self.namespace, self.name),
            self.pods.map_or("?".to_owned(), |pods| pods.to_string()),
            self.restarts.words().to_owned(),
            self.reason.clone(),
        ]
    }
}
