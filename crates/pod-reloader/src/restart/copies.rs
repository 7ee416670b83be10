//! Keeps the copies of ConfigMaps: deletes those that nobody uses any more, and makes those anew that somebody
//! else has deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use parking_lot::Mutex;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::mark::COPY;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::{ControllerRevision, CopyMetadata, NamesCopies, Pod, ReplicaSet};
use pod_reloader_core::workload::Workload;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::config::copies::{NotCopied, Restored};
use crate::restart::reconcile::Reconciler;
use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::queue::Item;
use crate::runtime::resources::{PAGE, Resources, api};
use crate::runtime::worker::{Handler, Worker};
use pod_reloader_core::error::chain;

/// The time from a deletion until its namespace is looked at: deletions come in bunches when a namespace is deleted.
const PAUSE: Duration = Duration::from_secs(1);
/// The time after which a namespace is looked at again in which copies were deleted. No review takes longer.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The number of copies in a namespace that are made anew at once.
const RESTORED_AT_ONCE: usize = 100;

/// Keeps the copies in some namespaces, for one term of leadership.
pub(crate) struct Keeper {
    client: Client,
    budget: Budget,
    reconciler: Arc<Reconciler>,
    /// The age from which on a copy is deleted that nobody uses. It is also the time between two looks at all.
    grace: Duration,
    known: Mutex<Known>,
    /// The namespaces that are to be looked at, one after the other.
    worker: Worker<Name>,
}

/// A namespace whose copies are looked at.
impl Item for Name {
    fn namespace(&self) -> &Name {
        self
    }
}

/// What uses copies in a namespace.
#[derive(Default)]
struct Users {
    copies: BTreeMap<Name, Used>,
    /// The pods that were created without regard to their pins, by the UID of their workload.
    unpinned: HashMap<Box<str>, usize>,
}

/// A copy that is used.
struct Used {
    /// The name of the ConfigMap that it stands for.
    source: Name,
    /// True if pods use it, or new ones would. Otherwise only an undo would.
    is_needed: bool,
}

impl Users {
    fn add(&mut self, pins: &Pins, is_needed: bool) {
        for (source, copy) in pins.iter() {
            let used = self.copies.entry(copy.clone()).or_insert_with(|| Used {
                source: source.clone(),
                is_needed,
            });
            used.is_needed |= is_needed;
        }
    }
}

#[derive(Default)]
struct Known {
    /// The copies, by namespace and name, with their UIDs.
    copies: HashMap<(Name, Name), Box<str>>,
    /// The UIDs of those that we have deleted and whose deletion the watch has not shown yet.
    deleted: BTreeSet<Box<str>>,
    /// The UIDs of those in each namespace that nobody used at the last look.
    unused: HashMap<Name, BTreeSet<Box<str>>>,
    /// The copies in each namespace that were in use and gone for good at the last look.
    lost: HashMap<Name, BTreeSet<Name>>,
    /// The pods in each namespace that were created without regard to their pins, by the UID of their workload.
    unpinned: HashMap<Name, HashMap<Box<str>, usize>>,
    /// The namespaces in which we have deleted some, with the time to look again: somebody may have named one in
    /// that moment.
    look_again: HashMap<Name, Instant>,
}

impl Known {
    /// Returns when to look again at a namespace that was last looked at from `began` on.
    fn next_look(&mut self, namespace: &Name, began: Instant) -> Option<Instant> {
        let at = self.look_again.get(namespace).copied();
        let next = at.filter(|at| began < *at);
        if next.is_none() {
            self.look_again.remove(namespace);
        }
        next
    }
}

impl Keeper {
    pub(crate) fn new(
        client: Client,
        budget: Budget,
        reconciler: Arc<Reconciler>,
        grace: Duration,
    ) -> Self {
        Self {
            client,
            budget,
            reconciler,
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
        let metrics = self.reconciler.metrics();
        let _watching = metrics.watches.begin(&copies.watch_id(), "ConfigMap");
        let is_here = |place: &(Name, Name)| namespace.as_ref().is_none_or(|it| *it == place.0);
        let mut listed = HashMap::new();
        let watching = copies.follow(|event| {
            let mut known = self.known.lock();
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => {
                    listed.extend(object.place().map(|place| (place, object.uid().into())));
                }
                Event::InitDone => {
                    known.copies.retain(|place, _| !is_here(place));
                    known.copies.extend(listed.drain());
                }
                Event::Apply(object) => {
                    known
                        .copies
                        .extend(object.place().map(|place| (place, object.uid().into())));
                }
                Event::Delete(object) => {
                    if let Some(place) = object.place() {
                        self.is_gone(&mut known, place, object.uid());
                    }
                }
            }
            metrics.copies.set(known.copies.len() as i64);
        });
        watching.await;
    }

    /// Takes in that a copy is gone. If it was not us who deleted it, its namespace is looked at.
    fn is_gone(&self, known: &mut Known, place: (Name, Name), uid: &str) {
        known.copies.remove(&place);
        if !known.deleted.remove(uid) {
            self.worker.push(place.0, Instant::now() + PAUSE);
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

    /// Returns the namespaces that have copies, or workloads that use some, and forgets all others.
    fn namespaces(&self) -> BTreeSet<Name> {
        let mut known = self.known.lock();
        let of_copies = known.copies.keys().map(|(namespace, _)| namespace.clone());
        let all = of_copies.chain(self.reconciler.pinned_namespaces());
        let ours = all.filter(|it| self.reconciler.keeps_copies_in(it));
        let ours: BTreeSet<_> = ours.collect();
        known.unused.retain(|namespace, _| ours.contains(namespace));
        known.lost.retain(|namespace, _| ours.contains(namespace));
        known
            .unpinned
            .retain(|namespace, _| ours.contains(namespace));
        known.deleted.clear();
        ours
    }

    /// Deletes the copies in a namespace that nobody uses, and makes those that are missing.
    async fn look_at(&self, namespace: &Name) -> Result<(), CallError> {
        let mut copies = BTreeMap::new();
        let listed = self.copies_in(Some(namespace));
        list(&listed, |copy| {
            copies.extend(copy.place().map(|(_, name)| (name, copy)))
        })
        .await?;
        // Whatever uses a copy is looked at after the copies, so none is taken for unused that was there before.
        let users = self.users_in(namespace).await?;
        self.report_unpinned(namespace, users.unpinned);
        self.delete_unused(namespace, &copies, &users.copies)
            .await?;
        let missing = users.copies.iter();
        let missing = missing.filter(|(name, _)| !copies.contains_key(*name));
        let mut lost = BTreeSet::new();
        for (name, used) in missing.take(RESTORED_AT_ONCE) {
            if !self.restore(namespace, name, used).await {
                lost.insert(name.clone());
            }
        }
        let before = self
            .known
            .lock()
            .lost
            .insert(namespace.clone(), lost.clone());
        for name in lost.difference(&before.unwrap_or_default()) {
            self.reconciler.copy_lost(namespace, name);
        }
        Ok(())
    }

    /// Returns what uses copies in a namespace.
    async fn users_in(&self, namespace: &Name) -> Result<Users, CallError> {
        let mut users = Users::default();
        let now = |workload: &Workload| {
            workload
                .named_copies()
                .for_each(|pins| users.add(&pins, true));
        };
        self.reconciler.each_workload(namespace, now).await?;
        let mut owners: HashMap<String, Box<str>> = HashMap::new();
        let earlier = |set: ReplicaSet| {
            let uid = set.meta().uid.clone().unwrap_or_default();
            owners.extend(set.owner().map(|owner| (uid, owner.into())));
            set.pins().iter().for_each(|pins| users.add(pins, false));
        };
        self.each(namespace, earlier).await?;
        let earlier = |revision: ControllerRevision| {
            revision
                .pins()
                .iter()
                .for_each(|pins| users.add(pins, false));
        };
        self.each(namespace, earlier).await?;
        let running = |pod: Pod| {
            pod.pins().iter().for_each(|pins| users.add(pins, true));
            if let Some(owner) = pod.owner().filter(|_| pod.ignores_pins()) {
                let workload = owners.get(owner).cloned();
                let workload = workload.unwrap_or_else(|| owner.into());
                *users.unpinned.entry(workload).or_default() += 1;
            }
        };
        self.each(namespace, running).await?;
        Ok(users)
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

    /// Tells users once of pods that were created without regard to their pins, by the UID of their workload.
    fn report_unpinned(&self, namespace: &Name, unpinned: HashMap<Box<str>, usize>) {
        let mut known = self.known.lock();
        let before = known.unpinned.insert(namespace.clone(), unpinned.clone());
        let all = known
            .unpinned
            .values()
            .flat_map(HashMap::values)
            .sum::<usize>();
        drop(known);
        self.reconciler.metrics().unpinned_pods.set(all as i64);
        let before = before.unwrap_or_default();
        let mut news = unpinned;
        news.retain(|workload, pods| before.get(workload) != Some(pods));
        self.reconciler.pods_not_pinned(namespace, &news);
    }

    /// Deletes the copies that are old enough, and that nobody has used at the last look, either: an undo may be
    /// about to name one.
    async fn delete_unused(
        &self,
        namespace: &Name,
        copies: &BTreeMap<Name, CopyMetadata>,
        used: &BTreeMap<Name, Used>,
    ) -> Result<(), CallError> {
        let unused = copies.iter().filter(|(name, _)| !used.contains_key(*name));
        let unused: Vec<_> = unused.filter(|(_, copy)| copy.source().is_some()).collect();
        let uids = unused.iter().map(|(_, copy)| copy.uid().into()).collect();
        let before = self.known.lock().unused.insert(namespace.clone(), uids);
        let before = before.unwrap_or_default();
        for (name, copy) in unused {
            if before.contains(copy.uid()) && self.is_old(copy) {
                let deleted = self.delete(namespace, name, copy.uid()).await;
                let at = Instant::now() + LOOK_AGAIN;
                self.known.lock().look_again.insert(namespace.clone(), at);
                deleted?;
            }
        }
        Ok(())
    }

    fn is_old(&self, copy: &CopyMetadata) -> bool {
        let age = copy
            .created()
            .map(|created| Timestamp::now().duration_since(created));
        let grace = SignedDuration::try_from(self.grace).unwrap_or(SignedDuration::MAX);
        age.is_some_and(|age| age >= grace)
    }

    async fn delete(&self, namespace: &Name, name: &Name, uid: &str) -> Result<(), CallError> {
        self.known.lock().deleted.insert(uid.into());
        let source = self.reconciler.source();
        match source
            .delete(&Reference::config_map(namespace, name), uid)
            .await
        {
            Ok(()) => info!(%namespace, %name, "deleted a copy of a ConfigMap that nobody uses"),
            // Somebody was faster.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes a copy anew. Returns false if nobody knows its content any more, and somebody needs it now.
    async fn restore(&self, namespace: &Name, name: &Name, used: &Used) -> bool {
        let source = Reference::config_map(namespace, &used.source);
        let restored = self.reconciler.source();
        match restored.restore(&source, name, used.is_needed).await {
            Ok(Restored::Copy) => {
                info!(%namespace, %name, "made a copy of a ConfigMap anew that somebody had deleted");
                true
            }
            Ok(Restored::WithPresentContent | Restored::Nothing) => !used.is_needed,
            // It was there after all, or the next look makes it.
            Err(NotCopied::Changed(_) | NotCopied::Taken(_)) => true,
            Err(error) => {
                let error = chain(&error);
                warn!(%namespace, %name, error, "cannot make a copy of a ConfigMap anew, trying again later");
                true
            }
        }
    }

    fn copies_in(&self, namespace: Option<&Name>) -> Resources<CopyMetadata> {
        let copies = api(&self.client, namespace, ());
        Resources::new(copies, "ConfigMap", &self.budget).with_labels(COPY.to_owned())
    }
}

impl Handler for Keeper {
    type Item = Name;

    async fn handle(&self, namespace: &Name) -> Option<Instant> {
        let began = Instant::now();
        if !self.reconciler.keeps_copies_in(namespace) {
            self.known.lock().look_again.remove(namespace);
            return None;
        }
        // What is not known yet would seem unused.
        if self.reconciler.lists_are_due() {
            return Some(began + LOOK_AGAIN);
        }
        if let Err(error) = self.look_at(namespace).await {
            let error = chain(&error);
            warn!(%namespace, error, "cannot tell which copies of ConfigMaps are in use, trying again later");
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
