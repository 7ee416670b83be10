//! Brings ConfigMaps back that were deleted in use, and deletes those that nothing uses any more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use pod_reloader_core::kept::{Content, KEPT, Kept, KeptMetadata, Original, Role, Step, pause};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::scope::Scope;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::known::{Known, LeftOut};
use crate::live::covered::Covered;
use crate::live::kept::KeptCalls;
use crate::live::keys::Keys;
use crate::live::users::Users;
use crate::runtime::error::CallError;
use crate::runtime::follower::Follower;
use crate::runtime::kit::Kit;
use crate::runtime::queue::Item;
use crate::runtime::resources::{Resources, api};
use crate::runtime::worker::{Handler, Worker};

/// The number of items that are handled at once.
const AT_ONCE: usize = 4;
/// The time after which something is looked at first that was brought back.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// The first pause after the apiserver has not allowed something. Each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(2);

/// Something to do for kept ConfigMaps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// To bring back what this ConfigMap stores.
    Restore(Reference),
    /// To delete those in a namespace that nothing uses any more.
    Sweep(Name),
}

impl Item for Work {
    fn namespace(&self) -> &Name {
        match self {
            Self::Restore(stored) => &stored.namespace,
            Self::Sweep(namespace) => namespace,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restore(stored) => write!(f, "what {stored} stores"),
            Self::Sweep(namespace) => write!(f, "kept ConfigMaps in {namespace}"),
        }
    }
}

/// The parts with which ConfigMaps are kept, for one term of leadership.
pub(super) struct Keeper {
    kit: Kit,
    covered: Covered,
    keys: Arc<Keys>,
    calls: KeptCalls,
    users: Users,
    /// The longest time between two looks at who uses what was brought back.
    period: Duration,
    known: Mutex<Known>,
    /// True once the log says that something is there which an earlier version has stored.
    has_told_of_unsealed: AtomicBool,
    pub(super) worker: Worker<Work>,
}

impl Keeper {
    pub(super) fn new(kit: Kit, scope: Scope, keys: Arc<Keys>, period: Duration) -> Self {
        let (client, budget) = (&kit.clients.reconcile, &kit.budget);
        Self {
            calls: KeptCalls::new(client.clone(), budget.clone()),
            users: Users::new(client.clone(), budget.clone()),
            covered: Covered::new(client.clone(), scope, budget.clone()),
            kit,
            keys,
            period,
            known: Mutex::default(),
            has_told_of_unsealed: AtomicBool::new(false),
            worker: Worker::new(AT_ONCE),
        }
    }

    /// Follows the ConfigMaps with our label in a namespace, or in all of them, for ever.
    pub(super) async fn watch(self: Arc<Self>, namespace: Option<Name>) {
        // Without them, nobody knows which of them are ours.
        self.keys.first_read().await;
        let all = api::<KeptMetadata>(&self.kit.clients.watch, namespace.as_ref(), ());
        let all = Resources::new(all, "ConfigMap", &self.kit.budget);
        let all = all.with_labels(KEPT.to_owned());
        let watches = self.kit.watches.clone();
        let follower = KeptFollower {
            keeper: self,
            place: namespace,
        };
        all.follow(watches, follower).await;
    }

    /// Takes in a ConfigMap with our label. Returns it, with what it is for, if it is ours and there is room for it.
    fn seen(&self, object: &KeptMetadata) -> Option<(Reference, Role)> {
        let reference = object.reference()?;
        let keys = self.keys.keyring()?;
        let mut known = self.known.lock();
        let Some(kept) = object.kept(&keys) else {
            known.remove(&reference);
            drop(known);
            self.tell_of_unsealed(object, &reference);
            return None;
        };
        let role = kept.role.clone();
        match known.insert(&reference, kept, Instant::now()) {
            Ok(()) => Some((reference, role)),
            Err(LeftOut { is_first }) => {
                let namespace = &reference.namespace;
                if is_first {
                    warn!(%namespace, "there are more kept ConfigMaps in a namespace than pod-reloader looks after: the others are neither brought back nor deleted");
                }
                None
            }
        }
    }

    /// Says, once, what to do with what an earlier version has stored. Anybody could have made it.
    fn tell_of_unsealed(&self, object: &KeptMetadata, stored: &Reference) {
        if object.is_unsealed() && !self.has_told_of_unsealed.swap(true, Ordering::Relaxed) {
            warn!(%stored, "a ConfigMap stores another one without a seal, as earlier versions of pod-reloader made them: it is neither brought back nor deleted; restore what you need from it, and delete it (kubectl get configmaps --all-namespaces --selector pod-reloader.cs.sap.com/kept=stored)");
        }
    }

    /// Queues what is to be done with one that is ours.
    fn push(&self, object: Reference, role: &Role) {
        let now = Instant::now();
        let (work, at) = match role {
            Role::Stored(_) => (Work::Restore(object), now),
            Role::Restored => {
                let sweep = Work::Sweep(object.namespace);
                (sweep, now + self.pause(Duration::ZERO))
            }
        };
        self.worker.push(work, at);
    }

    /// Returns the time until the next look at who uses what was brought back this long ago. An application that is
    /// deleted as a whole is gone soon, and may be installed again.
    fn pause(&self, since: Duration) -> Duration {
        since.max(FIRST_LOOK).min(self.period)
    }

    /// Brings back what a ConfigMap stores, once that is gone. Returns the time to look again.
    async fn restore(&self, stored: &Reference) -> Option<Instant> {
        let (kept, since) = self.known.lock().to_do(stored)?;
        let Role::Stored(original) = &kept.role else {
            return None;
        };
        let restored = self.restore_one(stored, &kept, original);
        let again = match restored.await {
            Ok(Done::All) => None,
            Ok(Done::NotYet) => Some(since.elapsed()),
            // The watch says what has become of it.
            Err(error) if error.is_of_a_namespace_that_goes() => None,
            Err(error) if error.is_denial() => return self.denied(stored, &kept, &error),
            Err(error) => {
                self.failed(&error);
                let reason = error.reason();
                warn!(%stored, reason, "cannot bring a ConfigMap back that is in use, trying again");
                Some(since.elapsed().max(Duration::from_secs(4)))
            }
        };
        again.map(|since| Instant::now() + pause(since))
    }

    async fn restore_one(
        &self,
        stored: &Reference,
        kept: &Kept,
        original: &Original,
    ) -> Result<Done, CallError> {
        let object = Reference::config_map(&stored.namespace, &original.name);
        if !self.covered.contain(&stored.namespace).await? {
            return Ok(Done::All);
        }
        let namespace = &stored.namespace;
        let is_superseded = self.known.lock().is_superseded(namespace, kept, original);
        let step = match is_superseded {
            true => Step::Drop,
            false => {
                let there = self.calls.metadata(&object).await?;
                kept.step(original, there.as_ref(), Timestamp::now())
            }
        };
        match step {
            Step::Wait => return Ok(Done::NotYet),
            Step::Drop => {}
            Step::Restore => {
                let make = |content: Content| Some(content.to_restore(&original.name));
                match self.calls.copy(stored, &object, make).await {
                    Ok(_) => info!(%object, "brought a ConfigMap back that is in use"),
                    // Somebody was faster: the next look says who.
                    Err(error) if error.already_exists() => return Ok(Done::NotYet),
                    Err(error) => return Err(error),
                }
            }
        }
        self.calls.delete(stored, &kept.uid, None).await?;
        Ok(Done::All)
    }

    /// Notes that the apiserver does not allow what is to be done with one that is ours. Returns the time to try it
    /// again. `None` if it is left alone until somebody changes it.
    fn denied(&self, object: &Reference, kept: &Kept, error: &CallError) -> Option<Instant> {
        self.failed(error);
        let reason = error.reason();
        let Some(denials) = self.known.lock().denied(object, kept) else {
            warn!(%object, reason, "cannot bring back or delete a kept ConfigMap, leaving it alone");
            return None;
        };
        debug!(%object, reason, "cannot bring back or delete a kept ConfigMap, trying again");
        Some(Instant::now() + FIRST_PAUSE * (1 << (denials - 1)))
    }

    /// Deletes the ConfigMaps in a namespace that nothing uses any more. Returns the time to look again.
    async fn sweep(&self, namespace: &Name) -> Option<Instant> {
        let (restored, last) = self.known.lock().restored(namespace)?;
        if let Err(error) = self.delete_unused(namespace, &restored).await {
            self.failed(&error);
            let reason = error.reason();
            warn!(%namespace, reason, "cannot tell which kept ConfigMaps are in use, trying again later");
        }
        Some(Instant::now() + self.pause(last.elapsed()))
    }

    async fn delete_unused(
        &self,
        namespace: &Name,
        restored: &BTreeMap<Reference, Kept>,
    ) -> Result<(), CallError> {
        if !self.covered.contain(namespace).await? {
            return Ok(());
        }
        let objects: Vec<_> = restored.keys().cloned().collect();
        let used = self.users.naming(namespace, &objects).await?;
        let unused = restored.iter().filter(|(it, _)| !used.contains_key(it));
        for (object, kept) in unused {
            // In this version, nobody else has written it.
            let version = Some(&*kept.resource_version);
            match self.calls.delete(object, &kept.uid, version).await {
                Ok(true) => info!(%object, "deleted a kept ConfigMap that nothing uses any more"),
                Ok(false) => {}
                Err(error) if error.is_denial() => {
                    self.denied(object, kept, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn failed(&self, error: &CallError) {
        self.kit.errors.count(Some(error));
    }
}

/// Takes in the ConfigMaps with our label in a namespace, or in all of them.
struct KeptFollower {
    keeper: Arc<Keeper>,
    place: Option<Name>,
}

impl Follower<KeptMetadata> for KeptFollower {
    type Noted = ();
    type List = ();

    fn listing(&mut self) {
        self.keeper.known.lock().listing(self.place.as_ref());
    }

    // Until the list is complete, a later one may be stored for the same object.
    fn listed(&mut self, object: KeptMetadata) -> Option<()> {
        self.keeper.seen(&object);
        None
    }

    fn all_listed(&mut self, (): ()) {
        let place = self.place.as_ref();
        let mut known = self.keeper.known.lock();
        known.listed(place);
        for (object, role) in known.all(place) {
            self.keeper.push(object, role);
        }
    }

    fn seen(&mut self, object: KeptMetadata) {
        if let Some((object, role)) = self.keeper.seen(&object) {
            self.keeper.push(object, &role);
        }
    }

    fn gone(&mut self, object: KeptMetadata) {
        if let Some(object) = object.reference() {
            self.keeper.known.lock().remove(&object);
        }
    }
}

/// The outcome of bringing something back.
enum Done {
    /// There is nothing left to do.
    All,
    /// The object is about to go.
    NotYet,
}

impl Handler for Keeper {
    type Item = Work;

    async fn handle(&self, work: &Work) -> Option<Instant> {
        match work {
            Work::Restore(stored) => self.restore(stored).await,
            Work::Sweep(namespace) => self.sweep(namespace).await,
        }
    }
}

#[cfg(test)]
mod tests;
