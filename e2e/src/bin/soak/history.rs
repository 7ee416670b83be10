//! Records the hashes and revisions that all workloads of the cluster have had.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use pod_reloader_e2e::workload::{Kind, key_of};
use serde_json::Value;
use tokio::task::JoinSet;

/// The record so far. Recording goes on as long as the value lives.
pub(crate) struct History {
    client: Client,
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

/// The record of one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// Hashes of the workload, in order.
    pub(crate) keys: Vec<Option<String>>,
    /// Pod templates of its ReplicaSets or ControllerRevisions. Names would not do: a controller with a stale
    /// cache may create a second ReplicaSet for the same template.
    pub(crate) revisions: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Lives by UID.
    lives: HashMap<String, Life>,
    /// UIDs by `namespace/name`.
    uids: HashMap<String, String>,
}

impl History {
    /// Begins to watch.
    pub(crate) fn begin(client: &Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watches = JoinSet::new();
        let workloads = Kind::ALL.map(Kind::as_str);
        for kind in workloads.into_iter().chain(REVISIONS) {
            watches.spawn(watch(all(client, kind), Arc::clone(&seen)));
        }
        Self {
            client: client.clone(),
            seen,
            _watches: watches,
        }
    }

    /// Reads what the watches may not have shown yet.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        for kind in REVISIONS {
            let objects = all(&self.client, kind).list(&ListParams::default()).await?;
            let mut seen = lock(&self.seen);
            objects.items.iter().for_each(|object| seen.take_in(object));
        }
        Ok(())
    }

    /// Returns the life of a workload, if it was ever created.
    pub(crate) fn of(&self, namespace: &str, name: &str) -> Option<Life> {
        let seen = lock(&self.seen);
        let uid = seen.uids.get(&format!("{namespace}/{name}"))?;
        seen.lives.get(uid).cloned()
    }

    /// Returns the number of times that the hash of any workload has changed.
    pub(crate) fn hash_changes(&self) -> usize {
        let seen = lock(&self.seen);
        let lives = seen.lives.values();
        lives.map(|life| life.keys.len().saturating_sub(1)).sum()
    }
}

impl Seen {
    fn take_in(&mut self, object: &DynamicObject) {
        // Revisions of other workloads, such as the sentinel, are recorded too, but nobody asks for them.
        if let Some(owner) = object.owner_references().first() {
            let life = self.lives.entry(owner.uid.clone()).or_default();
            life.revisions.insert(template(&object.data));
            return;
        }
        let (namespace, uid) = (object.namespace(), object.uid());
        let (namespace, uid) = (namespace.unwrap_or_default(), uid.unwrap_or_default());
        let id = format!("{namespace}/{}", object.name_any());
        self.uids.insert(id, uid.clone());
        let (life, key) = (self.lives.entry(uid).or_default(), key_of(&object.data));
        if life.keys.last() != Some(&key) {
            life.keys.push(key);
        }
    }
}

impl Life {
    /// Returns true if a hash returned after another: A, B, A.
    pub(crate) fn moved_back(&self) -> bool {
        let distinct: BTreeSet<_> = self.keys.iter().collect();
        distinct.len() < self.keys.len()
    }

    /// Returns true if the workload was created without a hash because the apiserver could not reach the
    /// webhook. Then the loop adds the hash, which is one more rollout.
    pub(crate) fn began_without(&self) -> bool {
        self.keys.len() > 1 && self.keys[0].is_none()
    }
}

async fn watch(api: Api<DynamicObject>, seen: Arc<Mutex<Seen>>) {
    let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
            lock(&seen).take_in(&object);
        }
    }
}

/// Returns the pod template of a ReplicaSet or a ControllerRevision.
fn template(revision: &Value) -> String {
    let mut template = match &revision["data"]["spec"]["template"] {
        Value::Null => revision["spec"]["template"].clone(),
        template => template.clone(),
    };
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    template.to_string()
}

/// Returns the API for all objects of a kind of `apps/v1`.
pub(crate) fn all(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apps", "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const REVISIONS: [&str; 2] = ["ReplicaSet", "ControllerRevision"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn life(keys: &[&str]) -> Life {
        let key = |key: &&str| (!key.is_empty()).then(|| (*key).to_owned());
        Life {
            keys: keys.iter().map(key).collect(),
            revisions: BTreeSet::new(),
        }
    }

    #[test]
    fn a_hash_that_comes_back_has_moved_back() {
        assert!(!life(&["", "a", "b"]).moved_back());
        assert!(life(&["a", "b", "a"]).moved_back());
        assert!(life(&["", "a", "b"]).began_without());
        assert!(!life(&["a", "b"]).began_without());
    }

    #[test]
    fn two_replica_sets_of_one_template_are_one_revision() {
        let replica_set = |hash: &str, image: &str| {
            let labels = json!({"app": "web", "pod-template-hash": hash});
            let template = json!({"metadata": {"labels": labels}, "spec": {"image": image}});
            json!({"spec": {"template": template}})
        };
        assert_eq!(
            template(&replica_set("a", "1")),
            template(&replica_set("b", "1"))
        );
        assert_ne!(
            template(&replica_set("a", "1")),
            template(&replica_set("a", "2"))
        );
    }
}
