//! What a status notes, and later leaders go by: whether all copies have a seal, and in which Namespace the source is.

use std::sync::Arc;

use pod_reloader_api::ClusterConfigSyncStatus;
use pod_reloader_core::config_sync::outcome::Obstacle;
use pod_reloader_core::config_sync::{NamespaceLabels, Seals, Whose};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;

use super::{Known, State, key};

/// Returns true if all copies of a ClusterConfigSync with this status have a seal: its status says so, or it is new.
///
/// One that has a status and does not say so is of an earlier version, or its copies were being sealed when the
/// operator was stopped.
pub(super) fn is_sealed(status: Option<&ClusterConfigSyncStatus>) -> bool {
    status.is_none_or(|status| status.sealed || status.observed_generation == 0)
}

/// Returns the UID of the source's Namespace that a status notes for this generation.
pub(super) fn source_namespace(
    status: Option<&ClusterConfigSyncStatus>,
    generation: i64,
) -> Option<Box<str>> {
    let status = status.filter(|it| it.observed_generation == generation)?;
    let uid = &*status.source_namespace_uid;
    (!uid.is_empty()).then(|| uid.into())
}

/// Returns true if this is about a source that is not there.
pub(super) fn is_absence(obstacle: &Obstacle) -> bool {
    matches!(
        obstacle,
        Obstacle::SourceNamespaceReplaced | Obstacle::SourceNotFound
    )
}

impl Known {
    /// Returns the seals of its copies.
    pub(super) fn seals(&self, keys: &Arc<Keyring>) -> Seals {
        Seals {
            keys: keys.clone(),
            are_complete: self.is_sealed,
        }
    }
}

impl State {
    /// Returns the reason why a ClusterConfigSync has no source, if it has none. Notes the Namespace of the source when
    /// it is first seen.
    pub(super) fn absence(&mut self, name: &Name) -> Option<Obstacle> {
        let sync = self.sync(name)?.clone();
        let place = &sync.source.namespace;
        let now = self.namespaces.as_ref()?.get(place);
        let now: Option<Box<str>> = now.map(NamespaceLabels::uid).map(Into::into);
        let is_there = self.targets.get(&key(&sync))?.contains(place);
        // Watches bring a source and its Namespace in any order. Without the Namespace, nobody knows whose the source is.
        let Some(now) = now else {
            return Some(Obstacle::SourceNotFound);
        };
        let noted = &mut self.syncs.get_mut(name)?.source_namespace;
        let noted = noted.get_or_insert_with(|| now.clone());
        if *noted != now {
            return Some(Obstacle::SourceNamespaceReplaced);
        }
        (!is_there).then_some(Obstacle::SourceNotFound)
    }

    /// Returns true if all copies of a ClusterConfigSync have a seal. Copies that are being deleted are not waited for:
    /// whoever may hold them up could keep the owners of objects from being doubted for ever.
    pub(super) fn are_sealed(&self, name: &Name, keys: &Arc<Keyring>) -> bool {
        let Some(known) = self.syncs.get(name) else {
            return false;
        };
        if known.is_sealed {
            return true;
        }
        let (Ok(sync), Some(namespaces)) = (&known.sync, &self.namespaces) else {
            return false;
        };
        let Some(targets) = self.targets.get(&key(sync)) else {
            return false;
        };
        let seals = known.seals(keys);
        !targets.iter().any(|(namespace, target)| {
            let labels = namespaces.get(namespace);
            labels.is_some_and(|labels| !labels.is_terminating)
                && !target.is_terminating
                && !sync.spares(namespace, &self.own)
                && sync.whose(namespace, target, &seals) == Whose::OursUnsealed
        })
    }
}
