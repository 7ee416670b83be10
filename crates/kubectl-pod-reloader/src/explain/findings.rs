//! Asks the cluster for everything that explains a workload.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_reloader_core::discovery::Consumption;
use pod_reloader_core::reference::Reference;

use crate::cluster::{Cluster, Unseen};
use crate::history::{self, Event};
use crate::objects::{self, Found};
use crate::operators::Operators;
use crate::workloads::{Inquiry, Seen};

/// Everything besides the workload itself.
pub(super) struct Findings {
    /// Ways in which the pods use config objects.
    pub(super) uses: BTreeMap<Reference, Vec<Consumption>>,
    /// The objects that are tracked or used.
    pub(super) found: Found,
    /// Notes on objects that could not be listed.
    unlisted: Vec<String>,
    /// The sync status, unless the workload is not managed.
    pub(super) inquiry: Option<Inquiry>,
    /// The Events about the workload, newest first.
    pub(super) events: Result<Vec<Event>, Unseen>,
    /// Time at which the pods got their hash.
    pub(super) hash_since: Result<Option<Timestamp>, Unseen>,
}

impl Findings {
    pub(super) async fn of(cluster: &Cluster, seen: &Seen<'_>) -> Self {
        let uses = seen.uses();
        let (found, unlisted) = objects::of_workload(cluster, seen, uses.keys()).await;
        let inquiry = match &seen.obstacle {
            None => Some(seen.inquire(cluster).await),
            Some(_) => None,
        };
        Self {
            uses,
            found,
            unlisted,
            inquiry,
            events: history::events(cluster, Some(seen)).await,
            hash_since: history::hash_since(cluster, seen).await,
        }
    }

    /// Describes everything that the user may not see.
    pub(super) fn unseen(&self, seen: &Seen<'_>, operators: &Operators) -> Vec<String> {
        let objects = self.found.unseen.iter();
        let objects = objects
            .map(|(reference, error)| format!("{} {}: {error}", reference.kind, reference.name));
        let events = self.events.as_ref().err();
        let events = events.map(|error| format!("why it was restarted: {error}"));
        let since = self.hash_since.as_ref().err();
        let since = since.map(|error| format!("when it was restarted: {error}"));
        let mut unseen = operators.unseen.clone();
        unseen.extend(seen.unseen.clone());
        unseen.extend(self.unlisted.iter().cloned());
        unseen.extend(objects.chain(events).chain(since));
        unseen
    }
}
