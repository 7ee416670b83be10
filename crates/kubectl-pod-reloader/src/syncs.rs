//! ClusterConfigSyncs: what they copy, and which namespaces have a copy.

use pod_reloader_core::reference::Reference;
use pod_reloader_settings::ControllerName;
use serde::{Deserialize, Serialize};

use crate::print::{Verdict, count};
use crate::ready::{Metadata, Own, Ready};

/// Number of namespaces without a copy that are named.
const NAMED: usize = 5;

/// A ClusterConfigSync.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sync {
    pub(crate) name: String,
    source: Source,
    /// Number of namespaces that are to have a copy.
    selected: u32,
    /// Number of those that have an exact one.
    synced: u32,
    #[serde(flatten)]
    ready: Ready,
    conflicts: Vec<Conflict>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Source {
    kind: String,
    namespace: String,
    name: String,
}

/// A namespace that cannot have a copy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
struct Conflict {
    namespace: String,
    reason: String,
    message: String,
}

impl Sync {
    /// Returns true if it copies this object.
    pub(crate) fn copies(&self, object: &Reference) -> bool {
        let Source {
            kind,
            namespace,
            name,
        } = &self.source;
        kind == object.kind.as_str()
            && namespace == object.namespace.as_str()
            && name == object.name.as_str()
    }

    /// Sums up how many namespaces have a copy, and why some have none.
    pub(crate) fn progress(&self) -> String {
        let Ready {
            is_ready,
            reason,
            message,
        } = &self.ready;
        let copies = format!("{} of {}", self.synced, count(self.selected, "namespace"));
        match is_ready {
            None if reason.is_empty() => "nothing is known of its copies yet".to_owned(),
            None => format!("{copies}, before its spec was changed"),
            // The message names some of the conflicts.
            Some(false) if self.conflicts.is_empty() => format!("{copies}, {reason}: {message}"),
            Some(_) => format!("{copies}, {reason}"),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Spec {
    source: Source,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    selected: u32,
    synced: u32,
    conflicts: Vec<Conflict>,
}

impl Own for Sync {
    const KIND: &str = "ClusterConfigSyncs";
    const IS_NAMESPACED: bool = false;
    const CONTROLLER: ControllerName = ControllerName::Sync;
    const SERVICE: &str = "copies (sync.enabled)";
    type Spec = Spec;
    type Status = Status;

    fn of(metadata: Metadata, spec: Spec, status: Status, ready: Ready) -> Self {
        Self {
            name: metadata.name,
            source: spec.source,
            selected: status.selected,
            synced: status.synced,
            ready,
            conflicts: status.conflicts,
        }
    }

    fn ready(&self) -> &Ready {
        &self.ready
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns a line on the source and the copies, and one on each of the first namespaces that cannot have a copy.
    fn lines(&self) -> Vec<String> {
        let Source {
            kind,
            namespace,
            name,
        } = &self.source;
        let first = format!("{kind} {namespace}/{name}: {}", self.progress());
        let conflicts = self.conflicts.iter().take(NAMED);
        let conflicts = conflicts.map(
            |Conflict {
                 namespace,
                 reason,
                 message,
             }| format!("{namespace}: {reason}, {message}"),
        );
        let mut lines: Vec<_> = [first].into_iter().chain(conflicts).collect();
        // The status has only some of the conflicts.
        let without = self.selected.saturating_sub(self.synced) as usize;
        let more = without.max(self.conflicts.len()) + 1 - lines.len();
        if more > 0 && !self.conflicts.is_empty() {
            lines.push(format!("and {more} more without an exact copy"));
        }
        lines
    }

    /// Copies that are being written are no fault.
    fn verdict(&self) -> Verdict {
        match self.ready.verdict() {
            Verdict::Bad if self.ready.reason == "Syncing" => Verdict::Good,
            verdict => verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, cluster_config_sync};
    use crate::ready;
    use serde_json::json;

    async fn read(generation: i64, status: serde_json::Value) -> Sync {
        let mut object = cluster_config_sync("pull", status);
        object["metadata"]["generation"] = json!(generation);
        let canned = Canned::shop().with_syncs(&[object]);
        let all: Vec<Sync> = ready::list(&canned.cluster(), None).await.unwrap();
        all.into_iter().next().unwrap()
    }

    fn status(synced: u32, reason: &str, conflicts: usize) -> serde_json::Value {
        let is_ready = if reason == "Synced" { "True" } else { "False" };
        let conflict = |number| {
            let message = "an object that is not a copy of the source has the name";
            json!({"namespace": format!("n{number}"), "reason": "ExistsNotOurs", "message": message})
        };
        json!({
            "observedGeneration": 1, "selected": 60, "synced": synced,
            "conflicts": Vec::from_iter((0..conflicts).map(conflict)),
            "conditions": [
                {"type": "Other", "status": "True"},
                {"type": "Ready", "status": is_ready, "reason": reason, "message": "as it is"},
            ],
        })
    }

    #[tokio::test]
    async fn a_cluster_without_the_crd_has_none() {
        let listed = ready::list::<Sync>(&Canned::shop().cluster(), None).await;
        assert_eq!(listed, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn only_copies_that_cannot_be_written_are_a_fault() {
        for (sync, verdict, line) in [
            (
                read(1, status(60, "Synced", 0)).await,
                Verdict::Good,
                "60 of 60 namespaces, Synced",
            ),
            (
                read(1, status(59, "Syncing", 0)).await,
                Verdict::Good,
                "59 of 60 namespaces, Syncing: as it is",
            ),
            (
                read(1, status(60, "SourceNotFound", 0)).await,
                Verdict::Bad,
                "60 of 60 namespaces, SourceNotFound: as it is",
            ),
            (
                read(2, status(60, "Synced", 0)).await,
                Verdict::Unknown,
                "60 of 60 namespaces, before its spec was changed",
            ),
            (
                read(1, json!({})).await,
                Verdict::Unknown,
                "nothing is known of its copies yet",
            ),
        ] {
            assert_eq!(sync.verdict(), verdict, "{line}");
            assert_eq!(sync.lines(), [format!("Secret platform/pull: {line}")]);
        }
    }

    #[tokio::test]
    async fn five_namespaces_without_a_copy_are_named_and_the_others_counted() {
        let sync = read(1, status(0, "Conflict", 50)).await;
        let lines = sync.lines();
        assert_eq!(
            lines[0],
            "Secret platform/pull: 0 of 60 namespaces, Conflict"
        );
        let conflict = "n4: ExistsNotOurs, an object that is not a copy of the source has the name";
        assert_eq!(lines[5], conflict);
        assert_eq!(lines[6..], ["and 55 more without an exact copy"]);
        assert_eq!(sync.verdict(), Verdict::Bad);
        let one = read(1, status(59, "Conflict", 1)).await;
        assert_eq!(one.lines().len(), 2);
    }
}
