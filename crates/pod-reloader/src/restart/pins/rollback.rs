//! Puts the configuration before the last one back, if a workload does not become healthy with the last one.

use std::sync::Arc;

use kube::Resource;
use kube::core::DynamicResourceScope;
use pod_reloader_core::decision::unless_reloaded;
use pod_reloader_core::digest::Objects;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::patch::{self, Stamp};
use pod_reloader_core::pins::{Kept, Pins};
use pod_reloader_core::revision::{
    ControllerRevision, KeptIn, NamesCopies, ReplicaSet, Revision, kept_in,
};
use pod_reloader_core::trials::Trial;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::brake::{BrakePause, WritePause};
use crate::restart::digests::Digests;
use crate::restart::error::RestartError;
use crate::restart::parts::Parts;
use crate::restart::pins::PinnedContent;
use crate::restart::stages::Stages;
use crate::restart::workload_writes::WorkloadWrites;
use crate::runtime::resources::{PAGE, Resources, api};

/// The result of the search for an earlier configuration.
enum Search {
    Found(Earlier),
    /// This stands in the way of a revert.
    Obstacle(&'static str),
}

/// What a revert writes.
struct Earlier {
    config_hash: String,
    pins: Pins,
    undone: Pins,
}

/// Puts earlier configurations back.
pub(crate) struct Rollbacks {
    parts: Arc<Parts>,
    digests: Arc<Digests>,
    content: Arc<PinnedContent>,
    brake: BrakePause,
    pace: WritePause,
    writes: Arc<WorkloadWrites>,
}

impl Rollbacks {
    pub(crate) fn new(
        parts: &Arc<Parts>,
        digests: &Arc<Digests>,
        content: &Arc<PinnedContent>,
        stages: &Arc<Stages>,
        writes: &Arc<WorkloadWrites>,
    ) -> Self {
        Self {
            parts: parts.clone(),
            digests: digests.clone(),
            content: content.clone(),
            brake: BrakePause::new(parts, stages),
            pace: WritePause::new(parts),
            writes: writes.clone(),
        }
    }

    /// Notes that a workload is restarted with another configuration, which is on trial if the workload asks for that.
    pub(crate) fn begins_trial(&self, workload: &Workload) {
        if let Some(trial) = Trial::of(workload, Instant::now().into_std()) {
            self.parts.progress.memories.with(&workload.id, |memory| {
                memory.trials.get_or_insert_default().begin(trial);
            });
        }
    }

    /// Puts the earlier configuration of a workload back that has the present one, asks for that, and has not
    /// become healthy in time. Returns what to do next if there is something to wait for.
    pub(crate) async fn put_back(
        &self,
        workload: &Workload,
    ) -> Result<Option<Action>, RestartError> {
        let id = &*workload.id;
        let memories = &self.parts.progress.memories;
        let trial = memories.with(id, |memory| memory.trials.as_mut()?.open(workload));
        let Some(trial) = trial else {
            return Ok(None);
        };
        let deadline = Instant::from_std(trial.deadline);
        if Instant::now() < deadline {
            return Ok(Some(Action::RequeueAt(deadline)));
        }
        let search = match trial.was_healthy {
            true => self.earlier(workload).await?,
            false => Search::Obstacle("its pods were not healthy before"),
        };
        let earlier = match search {
            Search::Found(earlier) => earlier,
            Search::Obstacle(obstacle) => {
                memories.with(id, |memory| {
                    if let Some(trials) = &mut memory.trials {
                        trials.end();
                    }
                });
                let notice = Notice::NotPutBack(obstacle);
                self.parts.progress.report(workload, notice);
                return Ok(Some(Action::AwaitChange));
            }
        };
        let config_hash = &earlier.config_hash;
        let next = self.brake.braked(workload, config_hash);
        if let Some(next) = next.or_else(|| self.pace.next_write(workload, config_hash)) {
            return Ok(Some(Action::RequeueAt(next)));
        }
        self.write_back(workload, &earlier).await.map(Some)
    }

    async fn write_back(
        &self,
        workload: &Workload,
        earlier: &Earlier,
    ) -> Result<Action, RestartError> {
        let (pins, undone) = (earlier.pins.to_string(), earlier.undone.to_string());
        let stamp = Stamp {
            config_hash: &earlier.config_hash,
            pins: Some(&pins),
            undone: Some(&undone),
        };
        let patch = patch::stamp(workload, &stamp);
        let is_written = |now: &Workload| now.config_hash() == Some(&earlier.config_hash);
        let began = Instant::now();
        let written = || {
            let id = &*workload.id;
            self.parts.progress.memories.with(id, |memory| {
                let trials = memory.trials.get_or_insert_default();
                trials.put_back(&earlier.undone);
            });
            self.content.note_undone(id, true);
            let max_restarts = self.parts.settings.max_restarts;
            let recent_writes = &self.parts.progress.recent_writes;
            recent_writes.restarted(id, &earlier.config_hash, began, true, max_restarts);
            self.parts.metrics.reverts.inc();
            self.parts.progress.publish(workload, Notice::PutBack);
        };
        self.writes
            .write(workload, patch, is_written, written)
            .await
    }

    /// Returns the configuration of the revision before the present one.
    async fn earlier(&self, workload: &Workload) -> Result<Search, RestartError> {
        let gates = workload.rare().gates.as_deref();
        if gates.is_some_and(|gates| gates.hold.is_some()) {
            return Ok(Search::Obstacle("it is on hold"));
        }
        let revisions = match kept_in(workload.id.kind) {
            Some(KeptIn::ReplicaSets) => self.revisions::<ReplicaSet>(workload).await?,
            Some(KeptIn::ControllerRevisions) => {
                self.revisions::<ControllerRevision>(workload).await?
            }
            None => return Ok(Search::Obstacle("nobody keeps revisions of its kind")),
        };
        let (before, present) = match last_two(workload, &revisions) {
            Ok(both) => both,
            Err(obstacle) => return Ok(Search::Obstacle(obstacle)),
        };
        let pins = workload.relevant(&before.copies());
        let copies = self.digests.source().copies(workload, &pins).await?;
        let now = self
            .digests
            .snapshot(workload, Some(Instant::now()))
            .await?;
        let had = Kept {
            pins: present.copies(),
            undone: Pins::default(),
        };
        let keys = self.content.hash_keys().await?;
        let names = workload.copy_names(&keys).and(&pins);
        let undone = workload.undone_by(&pins, &had, &now.objects, &names);
        // Something has changed that no watch has shown yet, or is about to be written.
        if undone.is_empty() {
            return Ok(Search::Obstacle("its ConfigMaps have changed since"));
        }
        let Some(objects) = workload.with_copies(now.objects, &pins, &copies, &names) else {
            return Ok(Search::Obstacle("a copy of the earlier config is gone"));
        };
        let was_put_back = self.parts.progress.memories.with(&workload.id, |memory| {
            let trials = memory.trials.as_ref();
            trials.is_some_and(|trials| trials.has_put_back(&undone))
        });
        if was_put_back {
            return Ok(Search::Obstacle("it was put back before"));
        }
        Ok(Search::Found(Earlier {
            config_hash: Self::hash_of(workload, &objects, &keys),
            pins: workload.pins_for(&objects, &names),
            undone,
        }))
    }

    fn hash_of(workload: &Workload, objects: &Objects, keys: &Keyring) -> String {
        let hash = keys.hash(&workload.references.contents(objects));
        let baseline = workload.markers.baseline.as_deref();
        unless_reloaded(baseline, hash, keys).to_string()
    }

    /// Returns the revisions of a workload, the present one last.
    async fn revisions<K>(&self, workload: &Workload) -> Result<Vec<Revision>, RestartError>
    where
        K: NamesCopies + Resource<DynamicType = (), Scope = DynamicResourceScope> + Foreign,
    {
        let mut revisions = Vec::new();
        let own = |object: K| {
            if object.owner() == Some(&*workload.uid) {
                revisions.extend(object.revision());
            }
        };
        let objects = api(&self.parts.client, Some(&workload.id.namespace), ());
        let objects = Resources::<K>::new(objects, "Revision", &self.parts.budget);
        let listed = objects.list(&mut PAGE.clone(), own).await;
        listed.map_err(|source| RestartError::Revisions {
            workload: (*workload.id).clone(),
            source,
        })?;
        revisions.sort_unstable_by_key(|revision| revision.number);
        Ok(revisions)
    }
}

/// Returns the last two revisions of a workload, the present one last.
///
/// # Errors
///
/// Returns why the configuration of the earlier one cannot be put back.
fn last_two<'a>(
    workload: &Workload,
    revisions: &'a [Revision],
) -> Result<(&'a Revision, &'a Revision), &'static str> {
    let [.., before, present] = revisions else {
        return Err("there is no earlier revision");
    };
    if workload.relevant(&present.copies()) != workload.kept().pins {
        return Err("the present revision is not there yet");
    }
    if !before.differs_in_config_alone(present) {
        return Err("more than the config has changed");
    }
    match before.copies().is_empty() {
        true => Err("the earlier revision keeps no copies"),
        false => Ok((before, present)),
    }
}
