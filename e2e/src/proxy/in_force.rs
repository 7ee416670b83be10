//! Keeps the rules that are in force, with how often each has applied.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use http::{Method, Uri};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::rule::Rule;
use crate::wait::{Attempt, wait_for};

/// A rule that was added to a proxy.
#[derive(Clone, Debug)]
pub struct RuleInForce {
    entry: Arc<Entry>,
    rules: RulesInForce,
}

/// How often a rule has been met. For a watch fault this counts lines, for others requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// What the rule is for.
    pub matched: u64,
    /// What it has applied to: it was due, and no earlier rule had ended the request.
    pub applied: u64,
}

impl RuleInForce {
    /// How often the rule has been met; also after it was removed.
    pub fn hits(&self) -> Hits {
        self.entry.hits()
    }

    /// Waits until the rule has applied to at least so many.
    ///
    /// # Errors
    /// When `timeout` has passed.
    pub async fn applied(&self, times: u64, timeout: Duration) -> Result<()> {
        let what = format!("{:?} to apply {times} times", self.entry.rule);
        wait_for(&what, timeout, async || {
            let hits = self.hits();
            Ok(if hits.applied >= times {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("{hits:?}"))
            })
        })
        .await
    }

    /// Removes the rule, if it is there still.
    pub fn remove(&self) {
        self.rules
            .entries
            .send_modify(|entries| entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry)));
    }
}

/// All rules of a proxy, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct RulesInForce {
    entries: Arc<watch::Sender<Vec<Arc<Entry>>>>,
}

/// One rule, known by its address.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rule: Rule,
    hits: Mutex<Hits>,
}

impl RulesInForce {
    pub(super) fn add(&self, rule: Rule) -> RuleInForce {
        let entry = Arc::new(Entry {
            rule,
            hits: Mutex::default(),
        });
        self.entries
            .send_modify(|entries| entries.push(Arc::clone(&entry)));
        RuleInForce {
            entry,
            rules: self.clone(),
        }
    }

    pub(super) fn clear(&self) {
        self.entries.send_modify(Vec::clear);
    }

    pub(super) fn observe(&self) -> Observed {
        Observed {
            entries: self.entries.subscribe(),
        }
    }
}

/// The rules as they are now, and news of them.
#[derive(Debug)]
pub(super) struct Observed {
    entries: watch::Receiver<Vec<Arc<Entry>>>,
}

impl Observed {
    /// The rules for one request.
    pub(super) fn of(&self, method: &Method, uri: &Uri) -> Vec<Arc<Entry>> {
        let entries = self.entries.borrow();
        let matching = entries
            .iter()
            .filter(|entry| entry.rule.requests.contain(method, uri));
        matching.cloned().collect()
    }

    pub(super) fn hold(&self, entry: &Arc<Entry>) -> bool {
        self.entries
            .borrow()
            .iter()
            .any(|other| Arc::ptr_eq(other, entry))
    }

    /// Waits until rules were added or removed since the last call.
    pub(super) async fn changed(&mut self) {
        if self.entries.changed().await.is_err() {
            // The proxy is gone: nothing changes any more.
            std::future::pending().await
        }
    }

    /// Waits, but not longer than `entry` is in force.
    pub(super) async fn sleep(&mut self, entry: &Arc<Entry>, duration: Duration) {
        let until = Instant::now() + duration;
        while self.hold(entry) {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.changed() => {}
            }
        }
    }
}

impl Entry {
    /// Counts something that matches; whether to apply, unless something earlier has `ended` it.
    pub(super) fn meet(&self, ended: bool) -> bool {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        hits.matched += 1;
        let applies = !ended && self.rule.is_due(hits.matched, hits.applied);
        hits.applied += u64::from(applies);
        applies
    }

    fn hits(&self) -> Hits {
        *self.hits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
