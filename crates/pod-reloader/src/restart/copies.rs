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
use pod_reloader_core::mark::COPY;
use pod_reloader_core::name::Name;
use pod_reloader_core::revision::{ControllerRevision, CopyMetadata, NamesCopies, Pod, ReplicaSet};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tracing::{info, warn};

use crate::config::copies::{NotCopied, Restored, config_map};
use crate::restart::reconcile::Reconciler;
use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};
use pod_reloader_core::error::chain;

/// The time between two looks at deletions, which come in bunches when a namespace is deleted.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the copies in some namespaces, for one term of leadership.
pub(crate) struct Keeper {
    client: Client,
    budget: Budget,
    reconciler: Arc<Reconciler>,
    /// The age from which on a copy is deleted that nobody uses. It is also the time between two looks at all.
    grace: Duration,
    known: Mutex<Known>,
    /// Notified when somebody has deleted a copy.
    deleted: Notify,
}

#[derive(Default)]
struct Known {
    /// The copies, by namespace and name, with their UIDs.
    copies: HashMap<(Name, Name), Box<str>>,
    /// The UIDs of those that we are deleting.
    unused: BTreeSet<Box<str>>,
    /// The number of pods in each namespace that were created without regard to their pins.
    unpinned: HashMap<Name, usize>,
    /// The namespaces in which somebody else has deleted one.
    to_look_at: BTreeSet<Name>,
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
            deleted: Notify::new(),
        }
    }

    /// Keeps the copies in `namespaces`, for ever. `None` stands for all namespaces.
    pub(crate) async fn keep(self: Arc<Self>, namespaces: Vec<Option<Name>>) {
        let mut watches = JoinSet::new();
        for namespace in namespaces {
            watches.spawn(self.clone().watch(namespace));
        }
        let mut period = interval(self.grace);
        loop {
            let to_look_at = tokio::select! {
                _ = period.tick() => self.namespaces(),
                () = self.deleted.notified() => {
                    sleep(PAUSE).await;
                    std::mem::take(&mut self.known.lock().to_look_at)
                }
                _ = watches.join_next() => return,
            };
            for namespace in to_look_at {
                if let Err(error) = self.look_at(&namespace).await {
                    let error = chain(&error);
                    warn!(%namespace, error, "cannot tell which copies of ConfigMaps are in use, trying again later");
                }
            }
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
                        known.copies.remove(&place);
                        if !known.unused.remove(object.uid()) {
                            known.to_look_at.insert(place.0);
                            self.deleted.notify_one();
                        }
                    }
                }
            }
            metrics.copies.set(known.copies.len() as i64);
        });
        watching.await;
    }

    /// Returns the namespaces that have copies, or workloads that use some.
    fn namespaces(&self) -> BTreeSet<Name> {
        let known = self.known.lock();
        let of_copies = known.copies.keys().map(|(namespace, _)| namespace.clone());
        of_copies
            .chain(self.reconciler.pinned_namespaces())
            .collect()
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
        let mut used: BTreeMap<Name, Name> = self.reconciler.copies_used_in(namespace);
        let mut owners: HashMap<String, Box<str>> = HashMap::new();
        let note_owner = |set: &ReplicaSet| {
            let uid = set.meta().uid.clone().unwrap_or_default();
            owners.extend(set.owner().map(|owner| (uid, owner.into())));
        };
        self.users(namespace, &mut used, note_owner).await?;
        let no_note = |_: &ControllerRevision| {};
        self.users(namespace, &mut used, no_note).await?;
        let mut unpinned: HashMap<Box<str>, usize> = HashMap::new();
        let note_unpinned = |pod: &Pod| {
            if let Some(owner) = pod.owner().filter(|_| pod.ignores_pins()) {
                let workload = owners.get(owner).cloned();
                let workload = workload.unwrap_or_else(|| owner.into());
                *unpinned.entry(workload).or_default() += 1;
            }
        };
        self.users(namespace, &mut used, note_unpinned).await?;
        self.report_unpinned(namespace, &unpinned);
        for (name, copy) in &copies {
            if !used.contains_key(name) && self.is_old(copy) {
                self.delete(namespace, name, copy.uid()).await?;
            }
        }
        for (name, source) in used.iter().filter(|(name, _)| !copies.contains_key(*name)) {
            self.restore(namespace, name, source).await;
        }
        Ok(())
    }

    /// Adds the copies that objects of a kind name to `used`, and shows each of them to `note`.
    async fn users<K>(
        &self,
        namespace: &Name,
        used: &mut BTreeMap<Name, Name>,
        mut note: impl FnMut(&K),
    ) -> Result<(), CallError>
    where
        K: NamesCopies
            + Resource<DynamicType = (), Scope = DynamicResourceScope>
            + DeserializeOwned,
    {
        let users = api(&self.client, Some(namespace), ());
        let users = Resources::<K>::new(users, "Revision", &self.budget);
        let add = |user: K| {
            note(&user);
            let pins = user.pins().unwrap_or_default();
            used.extend(
                pins.iter()
                    .map(|(source, copy)| (copy.clone(), source.clone())),
            );
        };
        list(&users, add).await
    }

    /// Tells users of pods that were created without regard to their pins, by the UID of their workload.
    fn report_unpinned(&self, namespace: &Name, unpinned: &HashMap<Box<str>, usize>) {
        self.reconciler.pods_not_pinned(namespace, unpinned);
        let mut known = self.known.lock();
        known
            .unpinned
            .insert(namespace.clone(), unpinned.values().sum());
        let all: usize = known.unpinned.values().sum();
        self.reconciler.metrics().unpinned_pods.set(all as i64);
    }

    fn is_old(&self, copy: &CopyMetadata) -> bool {
        let age = copy
            .created()
            .map(|created| Timestamp::now().duration_since(created));
        let grace = SignedDuration::try_from(self.grace).unwrap_or(SignedDuration::MAX);
        age.is_some_and(|age| age >= grace)
    }

    async fn delete(&self, namespace: &Name, name: &Name, uid: &str) -> Result<(), CallError> {
        self.known.lock().unused.insert(uid.into());
        let source = self.reconciler.source();
        match source.delete(&config_map(namespace, name), uid).await {
            Ok(()) => info!(%namespace, %name, "deleted a copy of a ConfigMap that nobody uses"),
            // Somebody was faster.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn restore(&self, namespace: &Name, name: &Name, source: &Name) {
        let source = config_map(namespace, source);
        match self.reconciler.source().restore(&source, name).await {
            Ok(Restored::Copy) => {
                info!(%namespace, %name, "made a copy of a ConfigMap anew that somebody had deleted");
            }
            Ok(Restored::WithPresentContent | Restored::Nothing) => {
                self.reconciler.copy_lost(namespace, name);
            }
            // It was there after all, or the next look makes it.
            Err(NotCopied::Changed(_) | NotCopied::Taken(_)) => {}
            Err(error) => {
                let error = chain(&error);
                warn!(%namespace, %name, error, "cannot make a copy of a ConfigMap anew, trying again later");
            }
        }
    }

    fn copies_in(&self, namespace: Option<&Name>) -> Resources<CopyMetadata> {
        let copies = api(&self.client, namespace, ());
        Resources::new(copies, "ConfigMap", &self.budget).with_labels(COPY.to_owned())
    }
}

async fn list<K>(objects: &Resources<K>, tell: impl FnMut(K)) -> Result<(), CallError>
where
    K: Resource + DeserializeOwned,
{
    objects.list(&mut PAGE.clone(), tell).await?;
    Ok(())
}
