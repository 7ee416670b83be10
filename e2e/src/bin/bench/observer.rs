//! Sees, by a watch, when pod templates change.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use pod_reloader_e2e::workload::key_of;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::floor::STAMP;

/// The values that the pod templates of one namespace have carried.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Values by Deployment, in order, each with the time at which it was seen.
    histories: HashMap<String, Vec<(Instant, String)>>,
    /// Number of all values.
    pub(crate) values: usize,
}

impl Seen {
    /// Returns the values of one Deployment: the operator's config hashes, or the floor's stamps.
    pub(crate) fn of(&self, deployment: &str) -> &[(Instant, String)] {
        self.histories.get(deployment).map_or(&[], Vec::as_slice)
    }

    fn take_in(&mut self, deployment: &DynamicObject, at: Instant) -> bool {
        let stamp = &deployment.data["spec"]["template"]["metadata"]["annotations"][STAMP];
        let value = key_of(&deployment.data).or_else(|| stamp.as_str().map(str::to_owned));
        let Some(value) = value else { return false };
        let history = self.histories.entry(deployment.name_any()).or_default();
        let is_new = history.last().is_none_or(|(_, last)| *last != value);
        if is_new {
            history.push((at, value));
            self.values += 1;
        }
        is_new
    }
}

/// A watch of the Deployments of one namespace.
pub(crate) struct Observer {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Observer {
    pub(crate) fn begin(client: &Client, namespace: &str) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
        let (sender, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events.applied_objects());
            while let Some(event) = events.next().await {
                let at = Instant::now();
                if let Ok(deployment) = event {
                    sender.send_if_modified(|seen| seen.take_in(&deployment, at));
                }
            }
        });
        Self { seen, task }
    }

    /// Calls `look` on everything that has been seen so far.
    pub(crate) fn now<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    /// Waits until `look` returns something.
    ///
    /// # Errors
    /// When it does not within `patience`.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut(&Seen) -> Option<T>,
    ) -> Result<T> {
        let mut seen = self.seen.clone();
        let mut found = None;
        let wait = seen.wait_for(|seen| {
            found = look(seen);
            found.is_some()
        });
        match timeout(patience, wait).await {
            Ok(outcome) => drop(outcome.context("the watch ended")?),
            Err(_) => bail!("waited {patience:?} for {what}"),
        }
        found.with_context(|| format!("no {what}"))
    }

    /// Waits until no pod template has changed for `period`.
    pub(crate) async fn quiet(&self, period: Duration) {
        let mut seen = self.seen.clone();
        while timeout(period, seen.changed()).await.is_ok() {
            seen.mark_unchanged();
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
