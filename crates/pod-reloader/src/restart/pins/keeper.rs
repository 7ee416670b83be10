//! Keeps the copies of ConfigMaps: deletes those that nobody uses any more, and makes those anew that somebody
//! else has deleted.

mod known;
mod unused;
mod users;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::core::DynamicResourceScope;
use kube::{Client, Resource};
use parking_lot::Mutex;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::mark::COPY;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::{ControllerRevision, CopyMetadata, NamesCopies, Pod, ReplicaSet};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use self::known::{Counts, Known, Look};
use self::unused::LOOK_AGAIN;
use self::users::{Missing, Users};
use crate::live::copies::{NotCopied, Restored};
use crate::metrics::Metrics;
use crate::restart::pins::{PinnedContent, PinnedWorkloads};
use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::follower::Follower;
use crate::runtime::resources::{PAGE, Resources, api};
use crate::runtime::worker::{Handler, Worker};

/// The time from a deletion until its namespace is looked at: deletions come in bunches when a namespace is deleted.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the copies in some namespaces, for one term of leadership.
pub(crate) struct Keeper {
    client: Client,
    budget: Budget,
    metrics: Metrics,
    content: Arc<PinnedContent>,
    workloads: Arc<PinnedWorkloads>,
    /// The age from which on a copy is deleted that nobody uses. It is also the time between two looks at all.
    grace: Duration,
    known: Mutex<Known>,
    /// The namespaces that are to be looked at, one after the other.
    worker: Worker<Name>,
}

impl Keeper {
    pub(crate) fn new(
        client: Client,
        budget: Budget,
        metrics: Metrics,
        content: Arc<PinnedContent>,
        workloads: Arc<PinnedWorkloads>,
        grace: Duration,
    ) -> Self {
        Self {
            client,
            budget,
            metrics,
            content,
            workloads,
            grace,
            known: Mutex::default(),
            worker: Worker::new(1),
        }
    }

    /// Keeps the copies in `namespaces`, for ever. `None` stands for all namespaces.
    pub(crate) async fn keep(self: Arc<Self>, namespaces: Vec<Option<Name>>) {
        let mut watches = JoinSet::new();
        for namespace in namespaces {
            watches.spawn(self.clone().watch(namespace));
        }
        tokio::select! {
            () = self.worker.run(&self) => {}
            () = self.look_at_all() => {}
            _ = watches.join_next() => {}
        }
    }

    /// Follows the copies in a namespace, or in all of them.
    async fn watch(self: Arc<Self>, namespace: Option<Name>) {
        let copies = self.copies_in(namespace.as_ref());
        let watches = self.metrics.watches.clone();
        copies.follow(watches, CopyFollower(self)).await;
    }

    /// Takes in that a copy is gone. If it was not us who deleted it, its namespace is looked at.
    fn is_gone(&self, namespace: Name, uid: &str) {
        let was_us = self.known.lock().deleted.remove(uid);
        if !was_us {
            self.worker.push(namespace, Instant::now() + PAUSE);
        }
    }

    /// Has all namespaces with copies looked at, again and again.
    async fn look_at_all(&self) {
        let mut period = interval(self.grace);
        // What was not used at the last look is deleted, so two looks must not follow each other at once.
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = period.tick().await;
            for namespace in self.namespaces() {
                self.worker.push(namespace, now);
            }
        }
    }

    /// Returns the namespaces that may have copies, or have workloads that use some, and forgets all others.
    fn namespaces(&self) -> BTreeSet<Name> {
        let pinned = self.workloads.namespaces();
        let mut known = self.known.lock();
        let all = known.namespaces().cloned().chain(pinned);
        let ours = all.filter(|it| self.workloads.keeps_copies_in(it));
        let ours: BTreeSet<_> = ours.collect();
        known.retain(&ours);
        let counts = known.counts();
        drop(known);
        // Nobody may look at any namespace from now on.
        self.show(counts);
        ours
    }

    /// Brings back the copies of a namespace that are missing, and deletes those that nobody uses.
    async fn look_at(&self, namespace: &Name, keys: &Keyring) -> Result<(), CallError> {
        let before = self.known.lock().begins(namespace);
        let mut users = Users::after(before.reached.clone());
        let copies = self.copies_in(Some(namespace));
        list(&copies, |copy| users.copy(&copy, keys)).await?;
        // Whatever uses a copy is looked at after the copies, so none is taken for unused that was there before.
        self.find_users(namespace, &mut users).await?;
        let lost = self.restore_missing(namespace, &users, keys).await;
        let mut left_alone = before.left_alone.clone();
        let unused = self.delete_unused(namespace, &users, &before, &mut left_alone);
        let deleted = unused.await;
        let look = Arc::new(users.look(lost, &left_alone));
        if self.remember(namespace, &look, users.is_too_large) {
            self.report(namespace, &before, &look);
        }
        deleted
    }

    /// Finds out what uses the copies of a namespace: first the workloads, because others are asked whose they are.
    async fn find_users(&self, namespace: &Name, users: &mut Users) -> Result<(), CallError> {
        self.workloads
            .each(namespace, |workload| users.workload(workload))
            .await?;
        let earlier = |set: ReplicaSet| users.replica_set(&set);
        self.each(namespace, earlier).await?;
        let earlier = |revision: ControllerRevision| users.revision(&revision);
        self.each(namespace, earlier).await?;
        let running = |pod: Pod| users.pod(&pod);
        self.each(namespace, running).await
    }

    /// Passes each object of a kind in a namespace to `tell`.
    async fn each<K>(&self, namespace: &Name, tell: impl FnMut(K)) -> Result<(), CallError>
    where
        K: NamesCopies + Resource<DynamicType = (), Scope = DynamicResourceScope> + Foreign,
    {
        let objects = api(&self.client, Some(namespace), ());
        list(
            &Resources::<K>::new(objects, "Revision", &self.budget),
            tell,
        )
        .await
    }

    /// Brings back the copies of a namespace that are missing. Returns those that are gone for good.
    async fn restore_missing(
        &self,
        namespace: &Name,
        users: &Users,
        keys: &Keyring,
    ) -> BTreeSet<Name> {
        let missing: Vec<_> = users.missing().collect();
        let mut lost = BTreeSet::new();
        for (name, missing) in missing {
            if !self.restore(namespace, name, missing, keys).await {
                lost.insert(name.clone());
            }
        }
        lost
    }

    /// Remembers what a look at a namespace has found. Returns false if there is no room for that.
    fn remember(&self, namespace: &Name, look: &Arc<Look>, is_too_large: bool) -> bool {
        let mut known = self.known.lock();
        let is_remembered = known.remember(namespace, look);
        let is_news = known.notes_size(namespace, is_too_large || !is_remembered);
        let counts = known.counts();
        drop(known);
        self.show(counts);
        if is_news {
            warn!(%namespace, "there are more ConfigMaps with the label of copies than pod-reloader looks after in one namespace: copies that are missing there are not brought back, and not all that nobody uses are deleted");
        }
        is_remembered
    }

    fn show(&self, counts: Counts) {
        let metrics = &self.metrics;
        metrics.copies.set(counts.copies as i64);
        metrics.lost_copies.set(counts.lost as i64);
        metrics.unpinned_pods.set(counts.unpinned as i64);
    }

    /// Tells users once of copies that are gone for good, and of pods that were created without regard to their pins.
    fn report(&self, namespace: &Name, before: &Look, look: &Look) {
        for name in look.lost.difference(&before.lost) {
            self.workloads.copy_lost(namespace, name);
        }
        let mut unpinned = look.unpinned.clone();
        unpinned.retain(|workload, pods| before.unpinned.get(workload) != Some(pods));
        self.workloads.pods_not_pinned(namespace, &unpinned);
    }

    /// Makes a copy anew. Returns false if nobody knows its content any more, and somebody needs it now.
    async fn restore(
        &self,
        namespace: &Name,
        name: &Name,
        missing: &Missing,
        keys: &Keyring,
    ) -> bool {
        let source = Reference::config_map(namespace, &missing.source);
        let copies = self.content.source();
        let restored = copies.restore(&source, name, missing.is_needed, keys);
        match restored.await {
            Ok(Restored::Copy) => {
                info!(%namespace, %name, "made a copy of a ConfigMap anew that somebody had deleted");
                true
            }
            Ok(Restored::WithPresentContent | Restored::Nothing) => !missing.is_needed,
            // It was there after all, or the next look makes it.
            Err(NotCopied::Changed(_) | NotCopied::Taken(_)) => true,
            Err(error) => {
                let reason = error.reason();
                warn!(%namespace, %name, reason, "cannot make a copy of a ConfigMap anew, trying again later");
                true
            }
        }
    }

    fn copies_in(&self, namespace: Option<&Name>) -> Resources<CopyMetadata> {
        let copies = api(&self.client, namespace, ());
        Resources::new(copies, "ConfigMap", &self.budget).with_labels(COPY.to_owned())
    }
}

struct CopyFollower(Arc<Keeper>);

impl Follower<CopyMetadata> for CopyFollower {
    type Noted = ();
    type List = ();

    fn listed(&mut self, copy: CopyMetadata) -> Option<()> {
        if let Some((namespace, _)) = copy.place() {
            self.0.known.lock().has_copies(namespace);
        }
        None
    }

    /// Copies that went while nobody watched are found by the next look at all namespaces.
    fn all_listed(&mut self, (): ()) {}

    fn gone(&mut self, copy: CopyMetadata) {
        if let Some((namespace, _)) = copy.place() {
            self.0.is_gone(namespace, copy.uid());
        }
    }
}

impl Handler for Keeper {
    type Item = Name;

    async fn handle(&self, namespace: &Name) -> Option<Instant> {
        let began = Instant::now();
        if !self.workloads.keeps_copies_in(namespace) {
            self.known.lock().look_again.remove(namespace);
            return None;
        }
        // What is not known yet would seem unused.
        if !self.workloads.are_listed() {
            return Some(began + LOOK_AGAIN);
        }
        // Without them, nobody knows which copies are ours. Whoever reads them says why they cannot be read.
        let Ok(keys) = self.content.hash_keys().await else {
            return Some(began + LOOK_AGAIN);
        };
        if let Err(error) = self.look_at(namespace, &keys).await {
            let reason = error.reason();
            warn!(%namespace, reason, "cannot tell which copies of ConfigMaps are in use, trying again later");
        }
        self.known.lock().next_look(namespace, began)
    }
}

async fn list<K>(objects: &Resources<K>, tell: impl FnMut(K)) -> Result<(), CallError>
where
    K: Resource + Foreign,
{
    objects.list(&mut PAGE.clone(), tell).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
