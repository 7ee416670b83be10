//! The releases that are stored, and which of them a restart waits for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::{Places, Release, Revision, Stage, Step, Tool, argo_cd};
use crate::kind::WorkloadKind;
use crate::name::Name;

/// The time after a failure within which Helm begins to roll back, if it was told to.
const ROLLBACK: Duration = Duration::from_secs(5);
/// The number of restarts that wait in vain for one revision.
const MAX_VAIN: usize = 2;
/// The maximum length of a restart's wait, in patiences: further signs of the release do not prolong it.
const MAX_WAITS: u32 = 2;

/// The numbers of the revisions that a list contains, by release.
pub type Listed = HashMap<Release, BTreeSet<u64>>;

/// The releases, by the revisions that are stored of them.
#[derive(Debug, Default)]
pub struct Releases {
    stored: HashMap<Release, BTreeMap<u64, State>>,
    /// The namespace of the Applications that objects name without a namespace.
    home: Option<Name>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// The resourceVersion of Helm's Secret when the revision began, if that was seen.
    began: Option<u64>,
    /// The time when the stage was first seen.
    seen: Instant,
    /// The times when restarts gave up waiting for this revision.
    given_up: Vec<Instant>,
}

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
    /// Returns no releases, which are to be found in these places.
    pub fn new(places: &Places) -> Self {
        Self {
            stored: HashMap::new(),
            home: argo_cd::home(places),
        }
    }

    /// Takes in a revision as it is now. Returns true if that is news.
    pub fn apply(&mut self, revision: Revision, now: Instant) -> bool {
        // Of Helm, the newest revision says that an older one was abandoned, even when it has ended.
        if revision.stage == Stage::Ended && revision.release.tool != Tool::Helm {
            return self.delete(&revision);
        }
        let Revision {
            release,
            number,
            stage,
        } = revision;
        let revisions = self.stored.entry(release).or_default();
        let is_news = revisions.get(&number).is_none_or(|it| it.stage != stage);
        if is_news {
            let began = match stage {
                Stage::UnderWay(Step::Helm {
                    version,
                    has_hook: false,
                }) => Some(version),
                _ => revisions.get(&number).and_then(|it| it.began),
            };
            let state = State {
                stage,
                began,
                seen: now,
                given_up: Vec::new(),
            };
            revisions.insert(number, state);
        }
        is_news
    }

    /// Forgets a revision, which is no longer stored or no longer matters. Returns true if it was known.
    pub fn delete(&mut self, revision: &Revision) -> bool {
        let Some(revisions) = self.stored.get_mut(&revision.release) else {
            return false;
        };
        let was_known = revisions.remove(&revision.number).is_some();
        if revisions.is_empty() {
            self.stored.remove(&revision.release);
        }
        was_known
    }

    /// Forgets every revision of a tool in `namespace`, or in all namespaces, that is not among `listed`.
    /// Returns the releases that this affects.
    pub fn retain(
        &mut self,
        tool: Tool,
        namespace: Option<&Name>,
        listed: &Listed,
    ) -> Vec<Release> {
        let is_in_list = |release: &Release| {
            release.tool == tool && (namespace.is_none() || namespace == release.namespace.as_ref())
        };
        let mut affected = Vec::new();
        self.stored.retain(|release, revisions| {
            if !is_in_list(release) {
                return true;
            }
            let before = revisions.len();
            let listed = listed.get(release);
            revisions.retain(|number, _| listed.is_some_and(|numbers| numbers.contains(number)));
            if revisions.len() < before {
                affected.push(release.clone());
            }
            !revisions.is_empty()
        });
        affected
    }

    /// Returns true if no release is stored.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

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
            let (release, state) = self.newest(named)?;
            let of_release = || changes.iter().filter(|it| it.releases.contains(named));
            if state.is_given_up(of_release()) {
                return None;
            }
            let until = match &state.stage {
                Stage::Ended => None,
                Stage::Failed => Some(state.seen + ROLLBACK).filter(|until| now < *until),
                Stage::UnderWay(step) if state.is_written(step, workload, of_release()) => None,
                Stage::UnderWay(_) => {
                    let changed = changes.iter().map(|change| change.at);
                    let last_sign = changed.fold(state.seen, Instant::max);
                    Some((last_sign + patience).min(since + patience * MAX_WAITS))
                }
            };
            let release = release.clone();
            until.map(|until| Wait { release, until })
        });
        waits.max_by_key(|wait| wait.until)
    }

    /// Notes that a restart has waited for a release in vain. No other one waits for it until it shows another
    /// sign: its Secret changes, or, once, an object of it.
    pub fn give_up(&mut self, release: &Release, now: Instant) {
        let revisions = self.stored.get_mut(release);
        if let Some((_, state)) = revisions.and_then(|it| it.iter_mut().next_back()) {
            state.given_up.push(now);
        }
    }

    /// Returns the release that an object names, as it is stored, and its newest revision. An older one that
    /// says that it is under way was abandoned.
    fn newest(&self, named: &Release) -> Option<(&Release, &State)> {
        let stored = Release {
            namespace: named.namespace.clone().or_else(|| self.home.clone()),
            ..named.clone()
        };
        let (release, revisions) = self.stored.get_key_value(&stored)?;
        let (_, state) = revisions.last_key_value()?;
        let is_elsewhere = matches!(
            state.stage,
            Stage::UnderWay(Step::ArgoCd {
                is_at_home: false,
                ..
            })
        );
        (named.namespace.is_some() || !is_elsewhere).then_some((release, state))
    }
}

impl State {
    /// Returns true if nobody waits for the release any longer, given the changes of its objects.
    fn is_given_up<'a>(&self, mut changes: impl Iterator<Item = &'a Change<'a>>) -> bool {
        let Some(last) = self.given_up.last() else {
            return false;
        };
        self.given_up.len() >= MAX_VAIN || !changes.any(|change| change.at > *last)
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
