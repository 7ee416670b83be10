//! Brings ConfigMaps back that were deleted in use, and deletes those that nothing uses any more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use pod_reloader_core::config_sync::NamespaceMetadata;
use pod_reloader_core::error::chain;
use pod_reloader_core::kept::{Content, KEPT, Kept, KeptMetadata, Original, Role, Step, pause};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::scope::Scope;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::config::kept::KeptCalls;
use crate::config::users::Users;
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::error::CallError;
use crate::runtime::queue::Item;
use crate::runtime::resources::{PAGE, Resources, api};
use crate::runtime::watch_age::Watches;
use crate::runtime::worker::{Handler, Worker};

/// The number of items that are handled at once.
const AT_ONCE: usize = 4;
/// The time after which something is looked at first that was brought back.
const FIRST_LOOK: Duration = Duration::from_secs(10);

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
    clients: Clients,
    scope: Scope,
    budget: Budget,
    watches: Watches,
    errors: ControllerErrors,
    calls: KeptCalls,
    users: Users,
    /// The longest time between two looks at who uses what was brought back.
    period: Duration,
    /// The ConfigMaps with our label, each with the time at which it was seen first.
    known: Mutex<BTreeMap<Reference, (Kept, Instant)>>,
    worker: Worker<Work>,
}

impl Keeper {
    pub(super) fn new(
        clients: Clients,
        scope: Scope,
        budget: Budget,
        watches: Watches,
        errors: ControllerErrors,
        period: Duration,
    ) -> Self {
        Self {
            calls: KeptCalls::new(clients.reconcile.clone(), budget.clone()),
            users: Users::new(clients.reconcile.clone(), budget.clone()),
            clients,
            scope,
            budget,
            watches,
            errors,
            period,
            known: Mutex::default(),
            worker: Worker::new(AT_ONCE),
        }
    }

    /// Handles what is due, for ever.
    pub(super) async fn run(self: &Arc<Self>) {
        self.worker.run(self).await;
    }

    /// Follows the ConfigMaps with our label in a namespace, or in all of them, for ever.
    pub(super) async fn watch(self: Arc<Self>, namespace: Option<Name>) {
        let all = api::<KeptMetadata>(&self.clients.watch, namespace.as_ref(), ());
        let all = Resources::new(all, "ConfigMap", &self.budget);
        let all = all.with_labels(KEPT.to_owned());
        let _watching = self.watches.begin(&all.watch_id(), "ConfigMap");
        let is_here = |it: &Reference| namespace.as_ref().is_none_or(|name| *name == it.namespace);
        let mut listed = BTreeMap::new();
        let watching = all.follow(|event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                listed.extend(object.reference().map(|it| (it, object.kept())));
            }
            Event::InitDone => {
                let mut known = self.known.lock();
                known.retain(|it, _| !is_here(it) || listed.contains_key(it));
                drop(known);
                for (object, kept) in std::mem::take(&mut listed) {
                    self.seen(object, kept);
                }
            }
            Event::Apply(object) => {
                if let Some(reference) = object.reference() {
                    self.seen(reference, object.kept());
                }
            }
            Event::Delete(object) => {
                let mut known = self.known.lock();
                object.reference().map(|it| known.remove(&it));
            }
        });
        watching.await;
    }

    fn seen(&self, object: Reference, kept: Kept) {
        let now = Instant::now();
        let work = match kept.role {
            Role::Stored(_) => Some((Work::Restore(object.clone()), now)),
            Role::Restored => {
                let sweep = Work::Sweep(object.namespace.clone());
                Some((sweep, now + self.pause(Duration::ZERO)))
            }
            Role::Foreign => None,
        };
        let mut known = self.known.lock();
        let before = known.get(&object).filter(|(it, _)| it.uid == kept.uid);
        let since = before.map_or(now, |(_, since)| *since);
        known.insert(object, (kept, since));
        drop(known);
        if let Some((work, at)) = work {
            self.worker.push(work, at);
        }
    }

    /// Returns the time until the next look at who uses what was brought back this long ago. An application that is
    /// deleted as a whole is gone soon, and may be installed again.
    fn pause(&self, since: Duration) -> Duration {
        since.max(FIRST_LOOK).min(self.period)
    }

    /// Brings back what a ConfigMap stores, once that is gone. Returns the time to look again.
    async fn restore(&self, stored: &Reference) -> Option<Instant> {
        let (kept, since) = self.known.lock().get(stored).cloned()?;
        let Role::Stored(original) = &kept.role else {
            return None;
        };
        let restored = self.restore_one(stored, &kept, original);
        let again = match restored.await {
            Ok(Done::All) => None,
            Ok(Done::NotYet) => Some(since.elapsed()),
            // The watch says what has become of it.
            Err(error) if error.is_of_a_namespace_that_goes() => None,
            Err(error) => {
                self.failed(&error);
                let error = chain(&error);
                warn!(%stored, error, "cannot bring a ConfigMap back that is in use, trying again");
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
        if !self.covers(&stored.namespace).await? {
            return Ok(Done::All);
        }
        let step = match self.is_superseded(stored, kept, original) {
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

    fn is_superseded(&self, stored: &Reference, kept: &Kept, original: &Original) -> bool {
        let known = self.known.lock();
        let beside = known.iter();
        let beside = beside.filter(|(it, _)| it.namespace == stored.namespace);
        kept.is_superseded(original, beside.map(|(_, (kept, _))| kept))
    }

    /// Deletes the ConfigMaps in a namespace that nothing uses any more. Returns the time to look again.
    async fn sweep(&self, namespace: &Name) -> Option<Instant> {
        let mut restored = BTreeMap::new();
        let mut last = None;
        for (object, (kept, since)) in self.known.lock().iter() {
            if object.namespace == *namespace && kept.role == Role::Restored {
                restored.insert(object.clone(), kept.clone());
                last = last.max(Some(*since));
            }
        }
        let last = last?;
        if let Err(error) = self.delete_unused(namespace, &restored).await {
            self.failed(&error);
            let error = chain(&error);
            warn!(%namespace, error, "cannot tell which kept ConfigMaps are in use, trying again later");
        }
        Some(Instant::now() + self.pause(last.elapsed()))
    }

    async fn delete_unused(
        &self,
        namespace: &Name,
        restored: &BTreeMap<Reference, Kept>,
    ) -> Result<(), CallError> {
        if !self.covers(namespace).await? {
            return Ok(());
        }
        let objects: Vec<_> = restored.keys().cloned().collect();
        let used = self.users.naming(namespace, &objects).await?;
        let unused = restored.iter().filter(|(it, _)| !used.contains_key(it));
        for (object, kept) in unused {
            // In this version, nobody else has written it.
            let version = Some(&*kept.resource_version);
            if self.calls.delete(object, &kept.uid, version).await? {
                info!(%object, "deleted a kept ConfigMap that nothing uses any more");
            }
        }
        Ok(())
    }

    /// Returns true if we look after a namespace. Its labels are asked for: they are seldom needed.
    async fn covers(&self, namespace: &Name) -> Result<bool, CallError> {
        let Some(selector) = self.scope.namespace_selector() else {
            return Ok(self.scope.covers(namespace));
        };
        let all = Api::<NamespaceMetadata>::all(self.clients.reconcile.clone());
        let all = Resources::new(all, "Namespace", &self.budget);
        let named = format!("metadata.name={namespace}");
        let selected = all
            .with_fields(Some(&named))
            .with_labels(selector.to_string());
        let mut is_selected = false;
        selected
            .list_all(&mut PAGE.clone(), |it| is_selected |= it.is_ok())
            .await?;
        Ok(is_selected && self.scope.covers(namespace))
    }

    fn failed(&self, error: &CallError) {
        self.errors.count(Some(error));
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
