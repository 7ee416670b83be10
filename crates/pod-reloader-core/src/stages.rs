//! Staged restarts: who gets changed config first, and who waits for it.
//!
//! Of the workloads of a namespace that track the same changed object, the first one goes alone. The others
//! follow when it has been healthy for a while. So one bad edit stops at one workload.

mod fronts;
mod known;
mod staged;

use std::collections::BTreeSet;

pub use self::known::Look;
pub use self::staged::{Changed, Stages, Turn, Wait};
use crate::workload::WorkloadId;

/// A workload among those that track the same changed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    /// The workload.
    pub id: &'a WorkloadId,
    /// The stage of the workload.
    pub stage: i32,
    /// The state of the workload.
    pub standing: Standing,
}

/// The state of a workload with regard to the present content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It lacks the content, and is healthy.
    DueHealthy,
    /// It lacks the content, and is not known to be healthy: it could give no verdict.
    DueUnhealthy,
    /// It has got the content, or some of its pods may have, and has not been healthy for long enough.
    Tried,
    /// It has got the content, and has not become healthy in time.
    Failed,
    /// It has got the content, and has been healthy for long enough.
    Passed,
    /// It says nothing about the content.
    Silent,
    /// Nobody has looked at it since the content changed.
    Unseen,
}

/// The reason why a workload waits. Of several, the first one says most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The other one has got the content, and has not become healthy in time.
    Failed,
    /// The other one has got the content, and has not been healthy for long enough.
    IsTried,
    /// The other one gets the content first.
    GoesFirst,
    /// Nobody has looked at the other one yet.
    IsUnseen,
}

/// The workloads that may hold up others, of all that track the same changed object.
#[derive(Clone, Debug, Default)]
pub struct Front {
    has_passed: bool,
    /// The first one that has failed.
    failed: Option<Place>,
    /// The first one that is being tried.
    tried: Option<Place>,
    /// The first one that is due.
    due: Option<Place>,
    /// The last one that nobody has looked at. Whoever looks at them in order is done when that has happened.
    unseen: Option<Place>,
}

/// The place of a workload in the order in which they go. One that is unhealthy could give no verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    is_unhealthy: bool,
    stage: i32,
    id: WorkloadId,
}

impl Place {
    fn of(peer: &Peer<'_>) -> Self {
        Self {
            is_unhealthy: peer.standing != Standing::DueHealthy,
            stage: peer.stage,
            id: peer.id.clone(),
        }
    }
}

impl Front {
    /// Returns the front of these workloads.
    pub fn of<'a>(peers: impl IntoIterator<Item = Peer<'a>>) -> Self {
        let mut front = Self::default();
        for peer in peers {
            let (first, is_before): (_, fn(&Place, &Place) -> bool) = match peer.standing {
                Standing::Silent => continue,
                Standing::Passed => {
                    front.has_passed = true;
                    continue;
                }
                Standing::Failed => (&mut front.failed, Place::lt),
                Standing::Tried => (&mut front.tried, Place::lt),
                Standing::DueHealthy | Standing::DueUnhealthy => (&mut front.due, Place::lt),
                Standing::Unseen => (&mut front.unseen, Place::gt),
            };
            let place = Place::of(&peer);
            if first.as_ref().is_none_or(|first| is_before(&place, first)) {
                *first = Some(place);
            }
        }
        front
    }

    /// Returns the workload that `own` waits for, and why. It makes no difference whether `own` is one of them.
    /// It is due, or is tried before all of its pods have the content. Then it waits for nobody but those that have
    /// failed: others wait for it.
    ///
    /// # Guarantees
    ///
    /// - Nobody waits for a workload that waits for it, directly or over others.
    /// - Until one of them has passed, at most one gets the content. Once one has failed, no other does.
    /// - A workload goes only when nothing in an earlier stage is left that could go before it.
    pub fn blocker(&self, own: &Peer<'_>) -> Option<(&WorkloadId, Why)> {
        let goes_on = own.standing == Standing::Tried;
        let own = Place::of(own);
        let failed = self.failed.as_ref().filter(|it| it.id != own.id);
        if goes_on {
            return Some((&failed?.id, Why::Failed));
        }
        let is_earlier = |it: &&Place| it.stage < own.stage;
        let tried = self.tried.as_ref();
        let tried = tried.filter(|it| !self.has_passed || is_earlier(it));
        let due = self.due.as_ref().filter(|it| {
            let is_first = !self.has_passed && **it < own;
            is_first || (!it.is_unhealthy && is_earlier(it))
        });
        let reasons = [
            (failed, Why::Failed),
            (tried, Why::IsTried),
            (due, Why::GoesFirst),
            (self.unseen.as_ref(), Why::IsUnseen),
        ];
        let mut reasons = reasons.into_iter();
        reasons.find_map(|(place, why)| Some((&place?.id, why)))
    }
}

/// A workload that is about to get changed content, as far as that can be told before anybody tries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due<'a> {
    /// The workload.
    pub id: &'a WorkloadId,
    /// The stage of the workload.
    pub stage: i32,
    /// True if the workload is healthy.
    pub is_healthy: bool,
    /// False if nobody waits for it, because it could give no verdict or may not go.
    pub counts: bool,
}

/// Returns the steps in which workloads that track the same changed object get the content if all of them
/// become healthy. Each step waits for the one before. Workloads for which nobody waits wait for others.
pub fn steps<'a>(due: &[Due<'a>]) -> Vec<Vec<&'a WorkloadId>> {
    let own = |it: &Due<'a>| match it.is_healthy {
        true => Standing::DueHealthy,
        false => Standing::DueUnhealthy,
    };
    let peer = |it: &Due<'a>, standing| Peer {
        id: it.id,
        stage: it.stage,
        standing,
    };
    let mut gone = BTreeSet::new();
    let mut steps = Vec::new();
    loop {
        let peers = due.iter().enumerate().map(|(at, it)| {
            let standing = match (it.counts, gone.contains(&at)) {
                (false, _) => Standing::Silent,
                (true, true) => Standing::Passed,
                (true, false) => own(it),
            };
            peer(it, standing)
        });
        let front = Front::of(peers);
        let goes = |at: &usize| {
            let one = &due[*at];
            front.blocker(&peer(one, own(one))).is_none()
        };
        let waiting = (0..due.len()).filter(|at| !gone.contains(at));
        let step: Vec<_> = waiting.filter(goes).collect();
        if step.is_empty() {
            return steps;
        }
        steps.push(step.iter().map(|at| due[*at].id).collect());
        gone.extend(step);
    }
}

#[cfg(test)]
mod tests;
