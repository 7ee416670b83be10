//! Checks if the workloads of one operator are up to date.

mod warnings;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use pod_reloader_core::advice::Advice;
use pod_reloader_core::digest::Aspects;
use pod_reloader_core::gate::Gates;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::mark::STAKATER_MATCH;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::sync_status::SyncStatus;
use pod_reloader_core::workload::Workload;
use pod_reloader_settings::Reconcile;
use serde_json::Value;

pub(super) use self::warnings::{Warnings, warned};
use super::{Check, pending};
use crate::cluster::Cluster;
use crate::events::Event;
use crate::operators::Operator;
use crate::print::{Verdict, some};
use crate::rollout::Rollout;
use crate::workloads::{Reply, Seen};
use crate::{gates, objects};

/// Number of workloads asked about at once.
const QUERIES_AT_ONCE: usize = 4;
/// Time that a due restart may take beyond its settle period. `MAX_GRACE` bounds the wait: with a longer
/// settle period, all that can be told is that the workload is about to be restarted.
const GRACE: Duration = Duration::from_secs(3);
const MAX_GRACE: Duration = Duration::from_secs(30);
/// Number of workloads that are named.
const NAMED: usize = 5;
/// Number of listed and searched objects that are looked for.
const LOOKED_FOR: usize = 100;
/// Number of lists of names that are read, each of one kind in one namespace.
const LISTS: usize = 20;
/// Number of times that a name is compared with a regular expression.
const COMPARISONS: usize = 1_000_000;

/// A managed workload, without the parts that are not needed here.
pub(super) struct Managed<'a> {
    /// The workload, without its object.
    pub(super) seen: Seen<'a>,
    /// True if some of its pods are restarted only if somebody acts.
    is_stalled: bool,
    /// True if the objects that it asks to track should exist by now.
    is_established: bool,
}

impl<'a> Managed<'a> {
    /// Returns `None` for a workload that is not managed.
    pub(super) fn of(mut seen: Seen<'a>) -> Option<Self> {
        let rollout = Rollout::of(&seen.workload, &seen.object);
        let is_done = matches!(rollout, Rollout::Done(_));
        let is_established = seen.is_established(Timestamp::now());
        // Frees the object: there may be ten thousand workloads.
        seen.object = Value::Null;
        seen.is_managed().then(|| Self {
            is_stalled: seen.workload.stall.is_some() && !is_done,
            is_established,
            seen,
        })
    }

    fn name(&self) -> String {
        self.seen.workload.id.to_string()
    }

    /// Returns the hash, if it is one of ours.
    fn hash(&self) -> Option<ConfigHash> {
        ConfigHash::parse(self.seen.workload.config_hash()?)
    }

    /// Returns the time to wait before asking again, if asking again may show something new.
    fn patience(&self, reply: &Reply, operator: &Operator) -> Option<Duration> {
        match reply {
            // Users take their time.
            Reply::Answered(report) if gates::closed_by_itself(self.gates(), report).is_some() => {
                None
            }
            Reply::Answered(report) => patience(report.sync_status, self.settle_period(operator)),
            Reply::Unanswered | Reply::Impossible(_) => None,
        }
    }

    fn gates(&self) -> Option<&Gates> {
        self.seen.workload.rare().gates.as_deref()
    }

    fn settle_period(&self, operator: &Operator) -> Duration {
        let own = self.seen.workload.rare().settle_period;
        own.unwrap_or(operator.args.settle_period)
    }
}

/// Sums up the hashes that the workloads carry.
pub(super) fn workloads(managed: &[&Managed<'_>], are_all: bool) -> Check {
    let has_hash = |managed: &&&Managed<'_>| managed.seen.workload.config_hash().is_some();
    let with = managed.iter().filter(has_hash).count();
    let ours = managed
        .iter()
        .filter(|managed| managed.hash().is_some())
        .count();
    let mut keys: BTreeMap<String, i64> = BTreeMap::new();
    for hash in managed.iter().filter_map(|managed| managed.hash()) {
        *keys.entry(hash.key_id.to_string()).or_default() += 1;
    }
    let mut text = format!("{} managed, {ours} with a hash", managed.len());
    if with > ours {
        text += &format!(", {} with a foreign one", with - ours);
    }
    if keys.len() > 1 {
        let keys = keys
            .iter()
            .map(|(key, number)| format!("{key} by {number}"));
        text += &format!("; keys: {}", Vec::from_iter(keys).join(", "));
    }
    let is_undone = |managed: &&&Managed<'_>| {
        let pinning = managed.seen.workload.rare().pinning.as_deref();
        pinning.is_some_and(|it| it.undone.is_some())
    };
    let undone = managed.iter().filter(is_undone);
    let undone: Vec<_> = undone.map(|managed| managed.name()).collect();
    if !undone.is_empty() {
        let names = some(&undone, NAMED);
        text += &format!("; {} with undone config: {names}", undone.len());
    }
    let verdict = match are_all {
        true => Verdict::Good,
        false => Verdict::Unknown,
    };
    Check::new("Workloads", verdict, text)
}

/// Something that workloads ask to track and that is not there.
#[derive(Clone, Copy)]
enum Unanswered {
    List,
    Expression,
    Search,
}

impl Unanswered {
    const ALL: [Self; 3] = [Self::List, Self::Expression, Self::Search];

    /// Returns what the advice says is not there, if that was asked for in this way.
    fn missing(self, advice: &Advice) -> Option<String> {
        match (self, advice) {
            (Self::List, Advice::Absent(it)) => Some(format!("{} {}", it.kind, it.name)),
            (Self::Expression, Advice::NoMatch(kind, pattern)) => Some(format!("{kind} {pattern}")),
            (Self::Search, Advice::NoneMarked) => Some(STAKATER_MATCH.to_owned()),
            _ => None,
        }
    }

    /// Returns the check of the workloads, each with its advice. `None` if it is good.
    fn check(self, workloads: &[(String, Vec<Advice>)]) -> Option<Check> {
        let named = workloads.iter().filter_map(|(name, advice)| {
            let missing: Vec<_> = advice.iter().filter_map(|it| self.missing(it)).collect();
            (!missing.is_empty()).then(|| format!("{name} ({})", some(&missing, NAMED)))
        });
        let named: Vec<_> = named.collect();
        let (row, fault) = match self {
            Self::List => ("Lists", "lists that name what does not exist"),
            Self::Expression => ("Expressions", "regular expressions that match nothing"),
            Self::Search => ("Searches", "searches that find nothing"),
        };
        (!named.is_empty()).then(|| {
            let text = format!("{} with {fault}: {}", named.len(), some(&named, NAMED));
            Check::new(row, Verdict::Bad, text)
        })
    }
}

/// Names the workloads that ask to track what is not there, in a row for each of the ways to ask for it, as far as can be
/// seen: [`LOOKED_FOR`] objects are looked for, [`LISTS`] lists of names are read and compared with expressions
/// [`COMPARISONS`] times, and workloads of the last minutes are left out.
pub(super) async fn unanswered(cluster: &Cluster, managed: &[&Managed<'_>]) -> Vec<Check> {
    let established = managed.iter().filter(|managed| managed.is_established);
    let established: Vec<_> = established.map(|managed| &managed.seen.workload).collect();
    let listed = established.iter().flat_map(|it| it.listed_only());
    let searched = established.iter().flat_map(|it| it.searched());
    let looked_for: BTreeSet<_> = listed.chain(searched).take(LOOKED_FOR).cloned().collect();
    let found = objects::read(cluster, &looked_for, Aspects::default()).await;
    let there = There::read(cluster, &established).await;
    let mut left = COMPARISONS;
    let advice = established.iter().map(|workload| {
        let there = there.of(workload, &mut left);
        let there = there.as_ref().map(|lists| lists.iter().copied().flatten());
        let advice = workload.unanswered_among(&found.objects, there);
        (workload.id.to_string(), advice)
    });
    let advice: Vec<_> = advice.collect();
    let checks = Unanswered::ALL.into_iter();
    checks.filter_map(|it| it.check(&advice)).collect()
}

/// The objects of a kind in a namespace that regular expressions may match, as far as they can be listed.
struct There(BTreeMap<(Name, ConfigKind), Vec<Reference>>);

impl There {
    async fn read(cluster: &Cluster, workloads: &[&Workload]) -> Self {
        let asked = workloads.iter().flat_map(|it| {
            let kinds = it.references.pattern_kinds();
            kinds.map(move |kind| (it.id.namespace.clone(), kind))
        });
        let asked: BTreeSet<_> = asked.collect();
        let mut there = BTreeMap::new();
        for (namespace, kind) in asked.into_iter().take(LISTS) {
            if let Ok(names) = objects::names(cluster, kind, Some(&namespace), None).await {
                there.insert((namespace, kind), names);
            }
        }
        Self(there)
    }

    /// Returns the objects that the regular expressions of a workload may match. `None` if some are unknown, or if these are
    /// more comparisons than are `left`.
    fn of(&self, workload: &Workload, left: &mut usize) -> Option<Vec<&Vec<Reference>>> {
        let kinds = workload.references.pattern_kinds();
        let lists = kinds.map(|kind| self.0.get(&(workload.id.namespace.clone(), kind)));
        let lists: Vec<_> = lists.collect::<Option<_>>()?;
        let names: usize = lists.iter().map(|names| names.len()).sum();
        *left = left.checked_sub(names * workload.references.pattern_count())?;
        Some(lists)
    }
}

/// The answers about the workloads that were asked about, by index.
pub(super) type Replies = BTreeMap<usize, Reply>;

/// Checks if the workloads are up to date. Workloads that are due get the time that a restart takes.
///
/// Asks about `ask` workloads at most: those with warnings first, then those without a hash, then some of the
/// others.
pub(super) async fn sync_statuses(
    cluster: &Cluster,
    operator: &Operator,
    managed: &[&Managed<'_>],
    warnings: Option<&Warnings<'_>>,
    ask: usize,
) -> (Vec<Check>, Replies) {
    let rank = |at: usize| {
        let is_warned = warnings.is_some_and(|it| !it.of_one(managed[at]).is_empty());
        match (is_warned, managed[at].hash()) {
            (true, _) => Rank::Warned,
            (false, None) => Rank::WithoutHash,
            (false, Some(_)) => Rank::Other,
        }
    };
    let ranks: Vec<_> = (0..managed.len()).map(rank).collect();
    let mut replies = query_status(cluster, managed, &chosen(&ranks, ask)).await;
    let patience = |(at, reply): (&usize, &Reply)| {
        let patience = managed[*at].patience(reply, operator)?;
        Some((*at, patience))
    };
    let due: Vec<_> = replies.iter().filter_map(patience).collect();
    if let Some(longest) = due.iter().map(|(_, patience)| *patience).max() {
        tokio::time::sleep(longest).await;
        let due: Vec<_> = due.into_iter().map(|(at, _)| at).collect();
        replies.extend(query_status(cluster, managed, &due).await);
    }
    let mut by_text: BTreeMap<(Verdict, Cow<'static, str>), Vec<String>> = BTreeMap::new();
    for (at, reply) in &replies {
        let latest = warnings.and_then(|it| it.latest(managed[*at]));
        let means = means(reply, operator, managed[*at], latest);
        by_text.entry(means).or_default().push(managed[*at].name());
    }
    let mut checks: Vec<_> = by_text
        .into_iter()
        .map(|((verdict, text), names)| {
            let text = match &*text {
                text @ (UP_TO_DATE | NOT_MANAGED) => format!("{} {text}", names.len()),
                text => format!("{} {text}: {}", names.len(), some(&names, NAMED)),
            };
            Check::new("Of these", verdict, text)
        })
        .collect();
    if managed.len() > replies.len() {
        let text = format!(
            "{} not asked about (--ask={} asks about all)",
            managed.len() - replies.len(),
            managed.len()
        );
        checks.push(Check::new("Of these", Verdict::Good, text));
    }
    (checks, replies)
}

const UP_TO_DATE: &str = "up to date";
const NOT_MANAGED: &str = "not managed";

/// The order in which workloads are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Warned,
    WithoutHash,
    Other,
}

/// Chooses `ask` workloads at most, rank by rank. From a rank that has too many it takes every n-th, so that
/// no workload is at a disadvantage because of its name.
fn chosen(ranks: &[Rank], ask: usize) -> Vec<usize> {
    let mut all: Vec<_> = (0..ranks.len()).collect();
    all.sort_by_key(|at| ranks[*at]);
    let mut chosen = Vec::new();
    for equals in all.chunk_by(|one, other| ranks[*one] == ranks[*other]) {
        let room = equals.len().min(ask - chosen.len());
        chosen.extend((0..room).map(|at| equals[at * equals.len() / room]));
    }
    chosen
}

/// Returns the time to wait before asking again about a workload with this sync status. `None` if asking
/// again would show nothing new.
fn patience(sync_status: SyncStatus, settle_period: Duration) -> Option<Duration> {
    let patience = settle_period + GRACE;
    match sync_status {
        SyncStatus::Due(_) => (patience <= MAX_GRACE).then_some(patience),
        SyncStatus::BaselineDue => Some(patience.min(MAX_GRACE)),
        _ => None,
    }
}

fn means(
    reply: &Reply,
    operator: &Operator,
    managed: &Managed<'_>,
    latest: Option<&Event>,
) -> (Verdict, Cow<'static, str>) {
    let (verdict, text) = match reply {
        Reply::Answered(report) => match report.sync_status {
            SyncStatus::Current => (Verdict::Good, UP_TO_DATE),
            SyncStatus::Due(_) if operator.args.reconcile == Reconcile::Restart => {
                if let Some(waits) = pending::waits_for(managed.gates(), report, latest) {
                    return waits;
                }
                match patience(report.sync_status, managed.settle_period(operator)) {
                    Some(_) => OUT_OF_DATE,
                    None => (
                        Verdict::Good,
                        "about to be restarted, after a long settle period",
                    ),
                }
            }
            SyncStatus::Due(_) => OUT_OF_DATE,
            SyncStatus::MissingConfig => (Verdict::Bad, "waiting for missing config"),
            SyncStatus::BaselineDue => (Verdict::Unknown, "foreign, without a baseline"),
            SyncStatus::NotManaged => (Verdict::Good, NOT_MANAGED),
            SyncStatus::Unknown => (Verdict::Unknown, "whose objects cannot be read"),
        },
        Reply::Unanswered => (Verdict::Unknown, "unknown: the webhook does not answer"),
        Reply::Impossible(error) if error.is_forbidden() => (
            Verdict::Unknown,
            "not asked about, because you may not patch them",
        ),
        Reply::Impossible(_) => (Verdict::Unknown, "not asked about, because a dry run fails"),
    };
    (verdict, text.into())
}

const OUT_OF_DATE: (Verdict, &str) = (Verdict::Bad, "out of date");

async fn query_status(cluster: &Cluster, managed: &[&Managed<'_>], asked: &[usize]) -> Replies {
    let queries = asked.iter().copied();
    let queries =
        queries.map(|at| async move { (at, managed[at].seen.query_status(cluster).await) });
    stream::iter(queries)
        .buffer_unordered(QUERIES_AT_ONCE)
        .collect()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use Rank::{Other, Warned, WithoutHash};

    #[test]
    fn suspicious_workloads_are_queried_first_and_the_rest_is_sampled_evenly() {
        let mut ranks = vec![Other; 1000];
        ranks[700] = WithoutHash;
        ranks[900] = Warned;
        let asked = chosen(&ranks, 12);
        assert_eq!(asked[..2], [900, 700]);
        assert_eq!(asked.len(), 12);
        let others = &asked[2..];
        assert!(others[0] < 100 && others[9] >= 800, "{others:?}");
        for pair in others.windows(2) {
            assert!((99..=101).contains(&(pair[1] - pair[0])), "{others:?}");
        }
        assert_eq!(chosen(&[WithoutHash; 10], 2), [0, 5]);
        assert_eq!(chosen(&[Other, Warned, Other], 9), [1, 0, 2]);
        assert!(chosen(&ranks, 0).is_empty());
        assert!(chosen(&[], 9).is_empty());
    }

    #[test]
    fn a_long_settle_period_is_not_waited_for() {
        use pod_reloader_core::decision::Cause;
        let due = |seconds| {
            let patience = patience(
                SyncStatus::Due(Cause::Changed),
                Duration::from_secs(seconds),
            );
            patience.map(|it| it.as_secs())
        };
        assert_eq!([5, 27, 28, 120].map(due), [Some(8), Some(30), None, None]);
        let baseline = patience(SyncStatus::BaselineDue, Duration::from_secs(120));
        assert_eq!(baseline, Some(MAX_GRACE));
        assert_eq!(patience(SyncStatus::Current, Duration::ZERO), None);
    }
}
