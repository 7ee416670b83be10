//! Holds the rules in force, with the number of times that each has applied.

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
use crate::wait::{done_if, wait_for};

/// A rule that was added to a proxy.
#[derive(Clone, Debug)]
pub struct RuleInForce {
    entry: Arc<Entry>,
    rules: RulesInForce,
}

/// The number of times that a rule was met: by lines for a watch fault, by requests for any other fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Everything that the rule matches.
    pub matched: u64,
    /// Everything that it has applied to: it was due, and no earlier rule had ended the request.
    pub applied: u64,
}

impl RuleInForce {
    /// Returns how often the rule has been met, even if it has been removed since.
    pub fn hits(&self) -> Hits {
        self.entry.hits()
    }

    /// Waits until the rule has applied at least this many times.
    ///
    /// # Errors
    /// When `timeout` has passed.
    pub async fn applied(&self, times: u64, timeout: Duration) -> Result<()> {
        let what = format!("{:?} to apply {times} times", self.entry.rule);
        wait_for(&what, timeout, async || {
            let hits = self.hits();
            done_if(hits.applied >= times, format!("{hits:?}"))
        })
        .await
    }

    /// Removes the rule, if it is still in force.
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

/// A rule, identified by its address.
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

/// The current rules, and a way to wait for changes of them.
#[derive(Debug)]
pub(super) struct Observed {
    entries: watch::Receiver<Vec<Arc<Entry>>>,
}

impl Observed {
    /// Returns the rules for one request.
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
            // The proxy is gone: nothing will change.
            std::future::pending().await
        }
    }

    /// Waits for `duration`, or until `entry` is no longer in force.
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
    /// Counts a match. Returns true if the rule applies, which it never does if something earlier has `ended`
    /// the request.
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
