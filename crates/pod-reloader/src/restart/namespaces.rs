//! The namespaces that a namespace selector picks.

use std::collections::HashMap;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use tokio::sync::watch;
use tokio::time::Instant;

/// The namespaces that are picked by their labels; all of them where nothing is asked for.
pub(crate) struct SelectedNamespaces(Option<Picked>);

struct Picked {
    /// Each with the time since when.
    since: Mutex<HashMap<Name, Instant>>,
    are_listed: watch::Sender<bool>,
}

impl SelectedNamespaces {
    /// None yet, if they are picked at all.
    pub(crate) fn new(are_picked: bool) -> Self {
        Self(are_picked.then(|| Picked {
            since: Mutex::default(),
            are_listed: watch::Sender::new(false),
        }))
    }

    pub(crate) fn contain(&self, namespace: &Name) -> bool {
        self.0
            .as_ref()
            .is_none_or(|picked| picked.since.lock().contains_key(namespace))
    }

    /// Whether it was picked at `then` already, and has been since.
    pub(crate) fn contain_since(&self, then: Instant, namespace: &Name) -> bool {
        self.0.as_ref().is_none_or(|picked| {
            let since = picked.since.lock();
            since.get(namespace).is_some_and(|since| *since <= then)
        })
    }

    /// Says whether that is news.
    pub(crate) fn insert(&self, namespace: &Name) -> bool {
        self.0.as_ref().is_some_and(|picked| {
            let mut since = picked.since.lock();
            let is_news = !since.contains_key(namespace);
            if is_news {
                since.insert(namespace.clone(), Instant::now());
            }
            is_news
        })
    }

    pub(crate) fn remove(&self, namespace: &Name) {
        if let Some(picked) = &self.0 {
            picked.since.lock().remove(namespace);
        }
    }

    /// Those that are picked by their labels and `matches` holds for.
    pub(crate) fn picked(&self, matches: impl Fn(&Name) -> bool) -> Vec<Name> {
        self.0.as_ref().map_or_else(Vec::new, |picked| {
            let since = picked.since.lock();
            since.keys().filter(|name| matches(name)).cloned().collect()
        })
    }

    /// Takes in that they have been listed.
    pub(crate) fn list_is_whole(&self) {
        if let Some(picked) = &self.0 {
            picked.are_listed.send_replace(true);
        }
    }

    /// Whether they have been listed, where they are picked at all.
    pub(crate) fn are_listed(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|picked| *picked.are_listed.borrow())
    }

    /// Waits until they have been listed, where they are picked at all.
    pub(crate) async fn listed(&self) {
        if let Some(picked) = &self.0 {
            let mut are_listed = picked.are_listed.subscribe();
            // It ends with us only.
            let _ = are_listed.wait_for(|are_listed| *are_listed).await;
        }
    }
}
