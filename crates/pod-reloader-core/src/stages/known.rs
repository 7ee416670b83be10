//! Judges one workload whose restarts are staged: whether it has got the content, and how it is with it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Changed, Standing};
use crate::reference::Reference;
use crate::staging::{Health, Staging};
use crate::workload::WorkloadId;

/// The time for which others wait for a first look at a workload.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(60);

/// What is known of one workload whose restarts are staged.
pub(super) struct Known {
    pub(super) staging: Staging,
    /// The time since when the health has been seen to be as it is.
    pub(super) health_since: Instant,
    /// The time when the workload was first seen.
    pub(super) seen_at: Instant,
    /// What the last pass has found, and when.
    pub(super) look: Option<(Look, Instant)>,
    /// The time when an event of one of its objects last arrived.
    pub(super) news_at: Option<Instant>,
    /// The time when a pass last found that it has the present content.
    pub(super) right_at: Option<Instant>,
    /// True if it was healthy when a pass last found that it lacks the present content, or when its pods began to reload
    /// that.
    pub(super) was_healthy: bool,
    /// The objects whose changes it lacks, if a pass has got as far as asking who waits for whom.
    pub(super) lacks: Option<Vec<Reference>>,
    /// The time when it was allowed to go, until the next pass over it.
    pub(super) going_since: Option<Instant>,
    /// The time when it was first allowed to go with this content, if it has not got there yet.
    pub(super) tries_since: Option<Instant>,
    /// The objects whose present content was undone, as the last pass has found.
    pub(super) undone: Vec<Reference>,
    /// The changes of content that it was seen to get and that may still say something.
    pub(super) trials: Vec<Trial>,
    /// The workload that it waits for, and the object because of which it does.
    pub(super) blocker: Option<Box<(WorkloadId, Reference)>>,
    /// The workloads that wait for it.
    pub(super) waiting: BTreeSet<WorkloadId>,
}

/// A change of content that a workload was seen to get.
pub(super) struct Trial {
    pub(super) got_at: Instant,
    /// False if the workload was not healthy before, so that it can only pass.
    pub(super) was_healthy: bool,
    /// The objects that had changed. `None` if they are unknown.
    pub(super) objects: Option<Vec<Reference>>,
    /// True if the workload has been healthy for its soak since.
    pub(super) has_passed: bool,
    /// The time until which others wait for the workload, if not all of its pods have the content yet, because they
    /// reload it. Such a trial is never passed: another one follows when all have it.
    pub(super) unfinished_until: Option<Instant>,
}

/// What a pass over a workload has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It lacks the present content.
    Due,
    /// It has the present content.
    Right,
    /// It cannot get the present content now.
    Out,
}

impl Known {
    /// Returns what is known of a workload that is first seen now.
    pub(super) fn new(staging: Staging, now: Instant) -> Self {
        Self {
            staging,
            health_since: now,
            seen_at: now,
            look: None,
            news_at: None,
            right_at: None,
            was_healthy: false,
            lacks: None,
            going_since: None,
            tries_since: None,
            undone: Vec::new(),
            trials: Vec::new(),
            blocker: None,
            waiting: BTreeSet::new(),
        }
    }

    pub(super) fn standing(&mut self, changed: &Changed, now: Instant) -> Standing {
        self.judge(now);
        let health = self.staging.health;
        if health == Health::Unknown {
            return Standing::Silent;
        }
        if self.gives_up_at().is_some_and(|at| now < at) {
            return Standing::Tried;
        }
        // Whoever has undone it, others are not to get it, either.
        if self.has_undone(changed) {
            return Standing::Failed;
        }
        // Whatever else has changed since, it has got this content.
        if let Some(trial) = self.trial_with(changed, now) {
            return self.standing_on_trial(trial, changed.at, now);
        }
        let trial = self.trials.iter().find(|it| it.is_of(&changed.object));
        let unseen_since = |since: Instant| match now < since + UNSEEN_PATIENCE {
            true => Standing::Unseen,
            false => Standing::Silent,
        };
        match self.look {
            None => unseen_since(self.seen_at),
            Some((Look::Out, at)) => match self.news_at.filter(|news| *news > at) {
                Some(news) => unseen_since(news),
                None => Standing::Silent,
            },
            Some((Look::Due, _)) if health == Health::Healthy => Standing::DueHealthy,
            Some((Look::Due, _)) => Standing::DueUnhealthy,
            Some((Look::Right, at)) if changed.is_known && at < changed.at => {
                unseen_since(changed.at)
            }
            Some((Look::Right, _)) => match trial {
                Some(trial) => self.standing_on_trial(trial, changed.at, now),
                // It may have got the content and failed with it before anybody looked.
                _ if !changed.is_known && health == Health::Rolling => {
                    self.on_trial_until(self.seen_at + self.staging.deadline, now)
                }
                _ => Standing::Silent,
            },
        }
    }

    /// Returns the trial of the workload with the present content of the object.
    fn trial_with(&self, changed: &Changed, now: Instant) -> Option<&Trial> {
        let is_healthy = self.staging.health == Health::Healthy;
        let mut trials = self.trials.iter().filter(|it| it.is_of(&changed.object));
        trials.find(|it| match it.unfinished_until {
            None => it.got_at >= changed.at,
            Some(until) => {
                // Healthy pods say nothing if the workload does not go on, because somebody holds it back.
                let is_over = is_healthy && until <= now;
                (it.got_at >= changed.at || !changed.is_known) && !is_over
            }
        })
    }

    /// Returns true if its pods reload the present content of one of these objects, or have begun to.
    pub(super) fn is_reloading(&self, changed: &[Changed], now: Instant) -> bool {
        let mut trials = changed.iter().filter_map(|it| self.trial_with(it, now));
        trials.any(|it| it.unfinished_until.is_some_and(|until| now < until))
    }

    /// Returns true if the present content of the object was undone for this workload.
    fn has_undone(&self, changed: &Changed) -> bool {
        let has_looked = |(_, at): (Look, Instant)| !changed.is_known || at >= changed.at;
        self.undone.contains(&changed.object) && self.look.is_some_and(has_looked)
    }

    /// Returns the standing of a workload on trial, given when the object has changed.
    fn standing_on_trial(&self, trial: &Trial, changed: Instant, now: Instant) -> Standing {
        let is_healthy = self.staging.health == Health::Healthy;
        match trial.has_passed {
            true if trial.got_at >= changed => Standing::Passed,
            // It has passed with other content of the object.
            true => Standing::Silent,
            false if is_healthy => Standing::Tried,
            false if trial.was_healthy => {
                let deadline = trial.got_at + self.staging.deadline;
                self.on_trial_until(trial.unfinished_until.unwrap_or(deadline), now)
            }
            false => Standing::Silent,
        }
    }

    fn on_trial_until(&self, deadline: Instant, now: Instant) -> Standing {
        match now < deadline {
            true => Standing::Tried,
            false => Standing::Failed,
        }
    }

    /// Notes that the workload is allowed to go, because of these changes.
    pub(super) fn goes(&mut self, changed: &[Changed], now: Instant) {
        self.going_since = Some(now);
        let is_outdated = |since: Instant| changed.iter().any(|it| it.at > since);
        if self.tries_since.is_none_or(is_outdated) {
            self.tries_since = Some(now);
        }
    }

    /// Returns when others no longer wait for a workload that may go and does not get there.
    fn gives_up_at(&self) -> Option<Instant> {
        let going_since = self.going_since?;
        Some(self.tries_since.unwrap_or(going_since) + self.staging.deadline)
    }

    /// Notes that the workload has got changed content. Its trials with other objects go on.
    pub(super) fn begin(&mut self, trial: Trial) {
        self.trials.retain_mut(|known| known.is_left_by(&trial));
        self.trials.push(trial);
    }

    /// Notes that it lacks these changes. Its health before its pods began to reload them is what counts.
    pub(super) fn lacks_changes(&mut self, changed: &[Changed], now: Instant) {
        let trials = changed.iter().filter_map(|it| self.trial_with(it, now));
        let mut unfinished = trials.filter(|it| it.unfinished_until.is_some());
        self.was_healthy |= unfinished.any(|it| it.was_healthy);
        let objects = changed.iter().map(|it| it.object.clone());
        self.lacks = Some(objects.collect());
    }

    /// Notes that its pods reload the changes that it lacks, until then at the latest. So some of them may have these.
    pub(super) fn begins_to_reload(&mut self, until: Instant, now: Instant) {
        self.begin(Trial {
            got_at: now,
            was_healthy: self.was_healthy,
            objects: self.lacks.clone(),
            has_passed: false,
            // If they cannot, it is restarted next.
            unfinished_until: Some(until + self.staging.deadline),
        });
    }

    /// Notes the same of a workload whose baseline says so, unless that is known already. A new leader learns it this way.
    pub(super) fn is_found_reloading(&mut self, now: Instant) {
        let mut trials = self.trials.iter();
        if !trials.any(|it| it.unfinished_until.is_some()) {
            // Nobody knows what it was before.
            self.was_healthy |= self.look.is_none();
            self.begins_to_reload(now, now);
        }
    }

    /// Notes which trials the workload has passed. That holds whatever happens to it later.
    pub(super) fn judge(&mut self, now: Instant) {
        if self.staging.health == Health::Healthy {
            let (health_since, soak) = (self.health_since, self.staging.soak);
            let finished = self.trials.iter_mut();
            for trial in finished.filter(|it| it.unfinished_until.is_none()) {
                trial.has_passed |= health_since.max(trial.got_at) + soak <= now;
            }
        }
    }

    /// Returns when the next verdict on the workload is due, if its health stays as it is.
    pub(super) fn verdict_at(&self, now: Instant) -> Option<Instant> {
        let Staging { soak, deadline, .. } = self.staging;
        let is_healthy = self.staging.health == Health::Healthy;
        let open = self.trials.iter().filter(|trial| !trial.has_passed);
        let verdicts = open.map(|trial| match trial.unfinished_until {
            Some(until) => until,
            None if is_healthy => self.health_since.max(trial.got_at) + soak,
            None => trial.got_at + deadline,
        });
        // It may have got the content before anybody looked.
        let unseen = (!is_healthy).then_some(self.seen_at + deadline);
        let all = verdicts.chain(unseen).chain(self.gives_up_at());
        all.filter(|at| *at > now).min()
    }
}

impl Trial {
    fn is_of(&self, object: &Reference) -> bool {
        let objects = self.objects.as_ref();
        objects.is_none_or(|objects| objects.contains(object))
    }

    /// Removes the objects that a later trial is about. Returns true if others are left.
    fn is_left_by(&mut self, later: &Self) -> bool {
        match (&mut self.objects, &later.objects) {
            (Some(objects), Some(later)) => {
                objects.retain(|object| !later.contains(object));
                !objects.is_empty()
            }
            _ => false,
        }
    }
}
