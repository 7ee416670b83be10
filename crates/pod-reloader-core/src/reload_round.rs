//! A round of HTTP reloads: each pod of a workload is made to sync its files, and then asked to reload them.
//!
//! The kubelet writes changed config into the files of a pod when it syncs the pod, and syncs it at once when one of its
//! annotations changes. It does not tell when it is done, so a pod is asked only after a delay, and may answer that it
//! does not have the config yet.
//!
//! A round is for the pods that are there when it begins: those that start later start with the changed config. Time is
//! an argument, and whoever plays the round makes the calls.

mod pod;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub use self::pod::{Reach, ReloadingPod};
use crate::http_reload::HttpReload;
use crate::workload::WorkloadId;

/// Annotation of a pod: the time at which it was last made to sync its files. Only we write it.
pub const CONFIG_SYNC: &str = "pod-reloader.cs.sap.com/config-sync";

/// The time for which a list of the pods tells how they are.
const FRESH: Duration = Duration::from_secs(1);
/// The pause before a call is made again, or the pods are listed again.
const PAUSE: Duration = Duration::from_secs(2);
/// The maximum pause that a pod may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A round of reloads of the pods of one workload.
#[derive(Debug)]
pub struct Round {
    port: u16,
    delay: Duration,
    deadline: Instant,
    reach: Reach,
    /// The time when the youngest of the changed objects was created, in seconds since 1970.
    config_created: Option<i64>,
    /// The time of the last list of the pods, and of the last attempt at one.
    listed: Option<Instant>,
    tried_to_list: Option<Instant>,
    /// The pods that have not reloaded yet, by UID.
    members: BTreeMap<Box<str>, Member>,
    reloaded: usize,
    failed: Option<Failed>,
}

/// A pod that has to reload.
#[derive(Debug)]
struct Member {
    pod: ReloadingPod,
    progress: Progress,
}

/// The progress of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Has to sync its files, from that time on.
    ToSync(Instant),
    /// Has to be asked, from that time on. The second value is its last answer.
    ToAsk(Instant, Option<Answer>),
}

/// The next thing to do in a round.
#[derive(Debug)]
pub enum Step<'a> {
    /// List the pods that the selector selects.
    List,
    /// Make each of these sync its files.
    Sync(Vec<&'a ReloadingPod>),
    /// Ask each of these to reload, at this address.
    Ask(Vec<(&'a ReloadingPod, SocketAddr)>),
    /// Wait until then.
    Wait(Instant),
    /// Nothing more.
    End(Result<usize, Failed>),
}

/// The answer of a pod that was asked to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The pod answered with this status, and may have asked for a pause.
    Status(u16, Option<Duration>),
    /// No answer came.
    None,
}

/// The pod and the reason why a round failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The name of the pod. `None` if the pods could not be listed.
    pub pod: Option<Box<str>>,
    /// The reason.
    pub why: Why,
}

/// The reason why a round failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The pods could not be listed.
    NotListed,
    /// The annotation could not be written that makes a pod sync its files.
    NotSynced,
    /// A pod was not ready in time.
    NotReady,
    /// A pod uses the network of its node, so its address is not its own.
    HostNetwork,
    /// A pod has an address that is not called.
    Address,
    /// A pod is older than a changed object, so its kubelet may not follow that one.
    Older,
    /// A pod answered with this status.
    Refused(u16),
    /// A pod answered until the end, with this status, that it does not have the changed config yet.
    NotYet(u16),
    /// A pod gave no answer in time.
    NoAnswer,
}

impl Failed {
    /// Returns the failure of a round whose pods could not be listed.
    pub const NOT_LISTED: Self = Self {
        pod: None,
        why: Why::NotListed,
    };
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = self.pod.as_deref().unwrap_or_default();
        match self.why {
            Why::NotListed => f.write_str("its pods could not be listed"),
            Why::NotSynced => write!(f, "pod {pod} could not be annotated"),
            Why::NotReady => write!(f, "pod {pod} was not ready in time"),
            Why::HostNetwork => write!(f, "pod {pod} uses the network of its node"),
            Why::Address => write!(f, "pod {pod} has an address that is not called"),
            Why::Older => write!(f, "pod {pod} is older than the changed object"),
            Why::Refused(status) => write!(f, "pod {pod} answered {status}"),
            Why::NotYet(status) => write!(f, "pod {pod} still answered {status} in the end"),
            Why::NoAnswer => write!(f, "pod {pod} did not answer in time"),
        }
    }
}

impl Round {
    /// Begins a round at `now`. The youngest of the changed objects was created at `config_created`.
    pub fn new(
        reload: &HttpReload,
        config_created: Option<Timestamp>,
        reach: Reach,
        now: Instant,
    ) -> Self {
        Self {
            port: reload.target.port,
            delay: reload.delay,
            deadline: deadline(reload, now),
            reach,
            config_created: config_created.map(Timestamp::as_second),
            listed: None,
            tried_to_list: None,
            members: BTreeMap::new(),
            reloaded: 0,
            failed: None,
        }
    }

    /// Returns what to do at `now`.
    pub fn step(&self, now: Instant) -> Step<'_> {
        if let Some(failed) = &self.failed {
            return Step::End(Err(failed.clone()));
        }
        if self.listed.is_some() && self.members.is_empty() {
            return Step::End(Ok(self.reloaded));
        }
        if now >= self.deadline {
            return Step::End(Err(self.overdue()));
        }
        let may_list = self.tried_to_list.map_or(now, |at| at + PAUSE);
        let members = self.members.values();
        let due: Vec<_> = members.clone().filter(|it| it.due() <= now).collect();
        let next = members.map(Member::due).filter(|at| *at > now).min();
        let is_known = self.listed.is_some_and(|at| at + FRESH > now);
        if self.listed.is_some() && due.is_empty() {
            return self.wait(next);
        }
        if !is_known {
            return match may_list <= now {
                true => Step::List,
                false => self.wait(Some(may_list)),
            };
        }
        let to_sync = due.iter().filter(|it| it.has_to_sync());
        let to_sync: Vec<_> = to_sync.map(|it| &it.pod).collect();
        if !to_sync.is_empty() {
            return Step::Sync(to_sync);
        }
        let ready = due.iter().filter(|it| it.pod.is_ready());
        let to_ask = ready.filter_map(|it| {
            let address = it.pod.address()?;
            Some((&it.pod, SocketAddr::new(address, self.port)))
        });
        let to_ask: Vec<_> = to_ask.collect();
        match to_ask.is_empty() {
            false => Step::Ask(to_ask),
            true => self.wait(next.into_iter().chain([may_list]).min()),
        }
    }

    /// Waits until `at`, but not beyond the end.
    fn wait(&self, at: Option<Instant>) -> Step<'_> {
        Step::Wait(at.unwrap_or(self.deadline).min(self.deadline))
    }

    /// Takes in a list of the pods that the selector selects. The first says which pods have to reload; from then on,
    /// those that are gone need not.
    pub fn listed(&mut self, id: &WorkloadId, pods: Vec<ReloadingPod>, now: Instant) {
        let is_first = self.listed.is_none();
        (self.listed, self.tried_to_list) = (Some(now), Some(now));
        let own = pods.into_iter().filter(|pod| pod.runs_for(id));
        let mut there = HashSet::new();
        for pod in own {
            let uid = Box::from(pod.uid());
            if let Some(member) = self.members.get_mut(&uid) {
                member.pod = pod;
            } else if is_first {
                let progress = Progress::ToSync(now);
                self.members.insert(uid.clone(), Member { pod, progress });
            }
            there.insert(uid);
        }
        self.members.retain(|uid, _| there.contains(uid));
        self.failed = self.failed.take().or_else(|| self.unfit());
    }

    /// Takes in that the pods could not be listed. `is_refused` says that trying again is of no use.
    pub fn not_listed(&mut self, is_refused: bool, now: Instant) {
        self.tried_to_list = Some(now);
        if is_refused {
            self.failed = Some(Failed::NOT_LISTED);
        }
    }

    /// Takes in that a pod was made to sync its files.
    pub fn synced(&mut self, uid: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(uid) {
            member.progress = Progress::ToAsk(now + self.delay, None);
        }
    }

    /// Takes in that a pod could not be made to sync its files. `is_refused` says that trying again is of no use.
    pub fn not_synced(&mut self, uid: &str, is_refused: bool, now: Instant) {
        // It may have changed, or may be gone.
        self.listed = self
            .listed
            .map(|at| at.min(now.checked_sub(FRESH).unwrap_or(at)));
        let Some(member) = self.members.get_mut(uid) else {
            return;
        };
        member.progress = Progress::ToSync(now + PAUSE);
        if is_refused {
            self.fails(uid, Why::NotSynced);
        }
    }

    /// Takes in what a pod has answered.
    pub fn answered(&mut self, uid: &str, answer: Answer, now: Instant) {
        let pause = match answer {
            Answer::Status(200..300, _) => {
                self.reloaded += usize::from(self.members.remove(uid).is_some());
                return;
            }
            Answer::Status(TOO_EARLY | SERVICE_UNAVAILABLE, pause) => pause.unwrap_or(PAUSE),
            Answer::Status(status, _) => return self.fails(uid, Why::Refused(status)),
            Answer::None => PAUSE,
        };
        if let Some(member) = self.members.get_mut(uid) {
            let at = now + pause.clamp(FRESH, LONGEST_PAUSE);
            member.progress = Progress::ToAsk(at, Some(answer));
        }
    }

    /// Returns the first pod that cannot be called, if there is one.
    fn unfit(&self) -> Option<Failed> {
        self.members.values().find_map(|Member { pod, .. }| {
            let is_older = |created: i64| self.config_created.is_some_and(|it| it > created);
            let is_called = |address: IpAddr| self.reach.includes(address);
            let why = match pod.address() {
                _ if pod.uses_host_network() => Why::HostNetwork,
                Some(address) if !is_called(address) => Why::Address,
                _ if pod.created().is_some_and(is_older) => Why::Older,
                _ => return None,
            };
            let pod = Some(pod.name().into());
            Some(Failed { pod, why })
        })
    }

    fn fails(&mut self, uid: &str, why: Why) {
        if let Some(member) = self.members.get(uid) {
            let pod = Some(member.pod.name().into());
            self.failed.get_or_insert(Failed { pod, why });
        }
    }

    /// Returns why a round has not ended in time.
    fn overdue(&self) -> Failed {
        let Some(Member { pod, progress }) = self.members.values().next() else {
            return Failed::NOT_LISTED;
        };
        let why = match progress {
            Progress::ToSync(_) => Why::NotSynced,
            Progress::ToAsk(..) if !pod.is_ready() => Why::NotReady,
            Progress::ToAsk(_, Some(Answer::Status(status, _))) => Why::NotYet(*status),
            Progress::ToAsk(..) => Why::NoAnswer,
        };
        let pod = Some(pod.name().into());
        Failed { pod, why }
    }
}

impl Member {
    fn has_to_sync(&self) -> bool {
        matches!(self.progress, Progress::ToSync(_))
    }

    /// Returns the time of the next thing to do with it.
    fn due(&self) -> Instant {
        match self.progress {
            Progress::ToSync(at) | Progress::ToAsk(at, _) => at,
        }
    }
}

/// Returns when a round that begins `now` has failed, if it has not ended.
pub fn deadline(reload: &HttpReload, now: Instant) -> Instant {
    now + reload.delay + reload.timeout
}

/// The status by which a pod says that it does not have the changed config yet.
const TOO_EARLY: u16 = 425;
/// Another one, which an application also has for other reasons.
const SERVICE_UNAVAILABLE: u16 = 503;

#[cfg(test)]
mod tests;
