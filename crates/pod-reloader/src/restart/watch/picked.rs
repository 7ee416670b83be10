//! Lists the workloads of namespaces that the selector has come to match.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher::DefaultBackoff;
use parking_lot::Mutex;
use pod_reloader_core::by_kind;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{Object, Served};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::warn;

use crate::restart::namespaces::SelectedNamespaces;
use crate::restart::reconcile::Reconciler;
use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api, pause};
use pod_reloader_core::error::chain;

/// The number of namespaces that are listed at once, for each kind. A selector can pick a thousand at a
/// time.
const LISTS_AT_ONCE: usize = 4;

/// Lists the workloads of each namespace that arrives in `picked`: anything that the watches had shown of
/// them was dropped.
///
/// Each kind and each namespace has a list of its own, so one that fails holds up no other.
pub(super) async fn list_picked(
    client: Client,
    reconciler: Arc<Reconciler>,
    namespaces: Arc<SelectedNamespaces>,
    budget: Budget,
    mut picked: mpsc::UnboundedReceiver<Name>,
) {
    let mut lists = JoinSet::new();
    let mut turns: HashMap<WorkloadKind, Arc<Semaphore>> = HashMap::new();
    let waiting = Waiting::default();
    loop {
        tokio::select! {
            namespace = picked.recv() => {
                let Some(namespace) = namespace else { return };
                for Served { kind, .. } in reconciler.kinds.all() {
                    // A list that has not begun will show everything.
                    if !waiting.lock().insert((kind, namespace.clone())) {
                        continue;
                    }
                    let turns = turns.entry(kind);
                    let turns = turns.or_insert_with(|| Arc::new(Semaphore::new(LISTS_AT_ONCE)));
                    let list = List {
                        client: client.clone(),
                        reconciler: reconciler.clone(),
                        namespaces: namespaces.clone(),
                        budget: budget.clone(),
                        turns: turns.clone(),
                        waiting: waiting.clone(),
                        namespace: namespace.clone(),
                        kind,
                    };
                    lists.spawn(list.run());
                }
            }
            Some(ended) = lists.join_next() => ended.expect("a list does not panic"),
        }
    }
}

/// The lists that have not begun.
type Waiting = Arc<Mutex<HashSet<(WorkloadKind, Name)>>>;

/// The list of one kind in one namespace.
struct List {
    client: Client,
    reconciler: Arc<Reconciler>,
    namespaces: Arc<SelectedNamespaces>,
    budget: Budget,
    turns: Arc<Semaphore>,
    waiting: Waiting,
    namespace: Name,
    kind: WorkloadKind,
}

impl List {
    /// Tries until the list succeeds, for as long as the namespace is selected and the cluster serves the
    /// kind. If either comes back later, a new list is made.
    async fn run(self) {
        let mut pauses = DefaultBackoff::default();
        let mut told = String::new();
        let mut limit = PAGE;
        while self.namespaces.contain(&self.namespace)
            && let Some(served) = self.reconciler.kinds.get(self.kind)
        {
            let turn = self.turns.acquire().await;
            self.waits_no_longer();
            let listed = by_kind!(self.kind, O => self.list::<O>(served, &mut limit).await);
            drop(turn.expect("the semaphore is never closed"));
            let Err(error) = listed else { return };
            let error = chain(&error);
            if error != told {
                let (kind, namespace) = (self.kind.as_str(), &self.namespace);
                warn!(kind, %namespace, error, "listing failed, trying again");
                told = error;
            }
            pause(&mut pauses).await;
        }
        self.waits_no_longer();
    }

    fn waits_no_longer(&self) {
        let list = (self.kind, self.namespace.clone());
        self.waiting.lock().remove(&list);
    }

    async fn list<O: Object>(&self, served: Served, limit: &mut u32) -> Result<(), CallError> {
        let api = api(&self.client, Some(&self.namespace), served);
        let objects = Resources::<O>::new(api, self.kind.as_str(), &self.budget);
        let seen = |object| self.reconciler.workload_seen(self.kind, object);
        objects.list(limit, seen).await.map(drop)
    }
}
