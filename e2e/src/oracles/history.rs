//! Records the hashes and revisions that the workloads of a namespace have had.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use serde_json::Value;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use crate::{
    wait::{Attempt, PATIENCE, wait_for},
    workload::{Kind, key_of},
};

/// The record from some point on. Recording goes on as long as the value lives.
pub(super) struct History {
    revisions: Vec<Api<DynamicObject>>,
    seen: Arc<Mutex<Seen>>,
    before: HashMap<String, BTreeSet<String>>,
    _watches: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The hashes of each workload in order, by its UID.
    keys: HashMap<String, Vec<Option<String>>>,
    /// The latest resource version of each workload, by its UID.
    versions: HashMap<String, u64>,
    /// The names of all ReplicaSets or ControllerRevisions of each workload.
    revisions: HashMap<String, BTreeSet<String>>,
}

impl History {
    /// Begins with the current objects of `namespace`, all of which are new.
    pub(super) async fn begin(client: &Client, namespace: &str) -> Result<Self> {
        let workloads = Kind::ALL.map(|kind| api(client, namespace, kind.as_str()));
        let revisions = ["ReplicaSet", "ControllerRevision"];
        let revisions = revisions.map(|kind| api(client, namespace, kind));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watches = JoinSet::new();
        let (listed, mut lists) = mpsc::unbounded_channel();
        for api in workloads.iter().chain(&revisions) {
            watches.spawn(watch(api.clone(), Arc::clone(&seen), listed.clone()));
        }
        let listed = async {
            for _ in 0..workloads.len() + revisions.len() {
                lists.recv().await;
            }
        };
        let patience = timeout(PATIENCE, listed).await;
        patience.context("the workloads cannot be listed")?;
        Ok(Self {
            revisions: revisions.to_vec(),
            seen,
            before: HashMap::new(),
            _watches: watches,
        })
    }

    /// Waits until the watches have shown these workloads, because one that broke pauses before it opens again. Reads the
    /// revisions that they may not have shown yet.
    pub(super) async fn catch_up(&self, workloads: &[Value]) -> Result<()> {
        wait_for("the watches to show the workloads", PATIENCE, async || {
            let seen = lock(&self.seen);
            let late = workloads.iter().find(|workload| !seen.shows(workload));
            Ok(match late {
                None => Attempt::Done(()),
                Some(workload) => Attempt::NotYet(workload["metadata"]["name"].to_string()),
            })
        })
        .await?;
        for api in &self.revisions {
            let objects = api.list(&ListParams::default()).await?;
            let mut seen = lock(&self.seen);
            objects.items.iter().for_each(|object| seen.take_in(object));
        }
        Ok(())
    }

    /// Counts from here on.
    pub(super) fn turn_the_page(&mut self) {
        let mut seen = lock(&self.seen);
        self.before = seen.revisions.clone();
        for keys in seen.keys.values_mut() {
            keys.drain(..keys.len().saturating_sub(1));
        }
    }

    /// Returns the number of revisions of a workload that did not exist before.
    pub(super) fn new_revisions(&self, uid: &str) -> usize {
        let (none, seen) = (BTreeSet::new(), lock(&self.seen));
        let before = self.before.get(uid).unwrap_or(&none);
        let now = seen.revisions.get(uid).unwrap_or(&none);
        now.difference(before).count()
    }

    /// Returns the hashes that a workload has had, in order.
    pub(super) fn keys(&self, uid: &str) -> Vec<Option<String>> {
        lock(&self.seen).keys.get(uid).cloned().unwrap_or_default()
    }
}

impl Seen {
    fn take_in(&mut self, object: &DynamicObject) {
        let owner = object.owner_references().first();
        if let Some(owner) = owner {
            let names = self.revisions.entry(owner.uid.clone()).or_default();
            names.insert(object.name_any());
        } else {
            let uid = object.uid().unwrap_or_default();
            let version = object.resource_version().unwrap_or_default();
            let keys = self.keys.entry(uid.clone()).or_default();
            let key = key_of(&object.data);
            if keys.last() != Some(&key) {
                keys.push(key);
            }
            self.versions.insert(uid, number(&version));
        }
    }

    /// Returns true if the workload was seen as it is here, or later.
    fn shows(&self, workload: &Value) -> bool {
        let metadata = &workload["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let seen = self.versions.get(text("uid"));
        seen.is_some_and(|&seen| seen >= number(text("resourceVersion")))
    }
}

/// Records everything that `api` shows, and reports each completed list.
async fn watch(api: Api<DynamicObject>, seen: Arc<Mutex<Seen>>, listed: mpsc::UnboundedSender<()>) {
    let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => lock(&seen).take_in(&object),
            // Nobody waits for later lists.
            Ok(Event::InitDone) => drop(listed.send(())),
            _ => {}
        }
    }
}

fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apps", "v1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Returns a resource version as a number. They grow in the order of the writes, except when etcd is restored.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
