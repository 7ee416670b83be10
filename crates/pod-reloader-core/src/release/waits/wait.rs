//! Decides which release a restart waits for, and how long.

use std::time::{Duration, Instant};

use super::{Open, Releases, place};
use crate::kind::WorkloadKind;
use crate::name::Name;
use crate::release::{Release, Stage, Step, argo_cd};

/// The time after a failure within which Helm begins to roll back, if it was told to.
const ROLLBACK: Duration = Duration::from_secs(5);
/// The number of restarts that wait in vain for one revision.
const MAX_VAIN: usize = 2;
/// The maximum length of a restart's wait, in patiences: further signs of the release do not prolong it.
const MAX_WAITS: u32 = 2;

/// A workload that is to be restarted.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The releases that the workload belongs to.
    pub releases: &'a [Release],
    /// The kind of the workload.
    pub kind: WorkloadKind,
    /// The namespace of the workload.
    pub namespace: &'a Name,
    /// The name of the workload.
    pub name: &'a str,
}

/// A change of a config object that a restart is due for.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The releases that the object belongs to.
    pub releases: &'a [Release],
    /// The resourceVersion of the object, if it exists and can be compared.
    pub version: Option<u64>,
    /// The time when the change was seen.
    pub at: Instant,
}

/// A release that a restart waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The release.
    pub release: Release,
    /// The time until which the restart waits at most. It may be over.
    pub until: Instant,
}

impl Releases {
    /// Returns the release for which the restart of a workload waits: one that is under way, and to which the
    /// workload or a changed object belongs. The wait ends `patience` after the last sign of the release, and
    /// never later than two of them after `since`, when the restart began to wait.
    pub fn wait(
        &self,
        workload: Candidate<'_>,
        changes: &[Change<'_>],
        (since, now): (Instant, Instant),
        patience: Duration,
    ) -> Option<Wait> {
        let of_changes = changes.iter().flat_map(|change| change.releases);
        let releases = workload.releases.iter().chain(of_changes);
        let waits = releases.filter_map(|named| {
            let (release, newest) = self.newest(named)?;
            let of_release = || changes.iter().filter(|it| it.releases.contains(named));
            if newest.is_given_up(of_release()) {
                return None;
            }
            let until = match &newest.stage {
                Stage::Ended => None,
                Stage::Failed => Some(newest.seen + ROLLBACK).filter(|until| now < *until),
                Stage::UnderWay(step) if newest.is_written(step, workload, of_release()) => None,
                Stage::UnderWay(_) => {
                    let changed = changes.iter().map(|change| change.at);
                    let last_sign = changed.fold(newest.seen, Instant::max);
                    Some((last_sign + patience).min(since + patience * MAX_WAITS))
                }
            };
            until.map(|until| Wait { release, until })
        });
        waits.max_by_key(|wait| wait.until)
    }

    /// Notes that a restart has waited for a release in vain. No other one waits for it until it shows another
    /// sign: its Secret changes, or, once, an object of it.
    pub fn give_up(&mut self, release: &Release, now: Instant) {
        let Some(place) = place(release) else {
            return;
        };
        let here = self.stored.get_mut(&place);
        let Some(stored) = here.and_then(|it| it.releases.get_mut(&release.name)) else {
            return;
        };
        if let Some(newest) = stored.open.iter_mut().max_by_key(|it| it.number) {
            newest.vain += 1;
            newest.given_up = Some(now);
        }
    }

    /// Returns the release that an object names, as it is stored, and its newest revision, if that has not ended.
    fn newest(&self, named: &Release) -> Option<(Release, &Open)> {
        let release = Release {
            namespace: named.namespace.clone().or_else(|| self.home.clone()),
            ..named.clone()
        };
        let here = self.stored.get(&place(&release)?)?;
        let newest = here.releases.get(&release.name)?.newest()?;
        let is_elsewhere = matches!(
            newest.stage,
            Stage::UnderWay(Step::ArgoCd {
                is_at_home: false,
                ..
            })
        );
        (named.namespace.is_some() || !is_elsewhere).then_some((release, newest))
    }
}

impl Open {
    /// Returns true if nobody waits for the release any longer, given the changes of its objects.
    fn is_given_up<'a>(&self, mut changes: impl Iterator<Item = &'a Change<'a>>) -> bool {
        let Some(last) = self.given_up else {
            return false;
        };
        self.vain >= MAX_VAIN || !changes.any(|change| change.at > last)
    }

    /// Returns true if the release has written whatever the restart waits for, given the changes of its
    /// objects.
    fn is_written<'a>(
        &self,
        step: &Step,
        workload: Candidate<'_>,
        changes: impl Iterator<Item = &'a Change<'a>>,
    ) -> bool {
        match step {
            Step::Helm {
                version,
                has_hook: true,
            } => self.began_hook_after(changes, *version),
            Step::Helm {
                has_hook: false, ..
            }
            | Step::Flux(_) => false,
            Step::ArgoCd { applied, .. } => {
                let group = workload.kind.shape().group;
                let kind = workload.kind.as_str();
                let namespace = workload.namespace.as_str();
                applied.contains(&argo_cd::listed(group, kind, namespace, workload.name))
            }
        }
    }

    /// Returns true if a hook has begun, at `version`, after this revision has written its changed objects.
    fn began_hook_after<'a>(
        &self,
        changes: impl Iterator<Item = &'a Change<'a>>,
        version: u64,
    ) -> bool {
        let Some(began) = self.began else {
            return false;
        };
        let is_written = |change: &Change<'_>| {
            change
                .version
                .is_some_and(|written| began < written && written < version)
        };
        let mut changes = changes.peekable();
        changes.peek().is_some() && changes.all(is_written)
    }
}
