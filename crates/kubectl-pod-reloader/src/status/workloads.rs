//! Checks if the workloads of one operator are up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::standing::{Report, Standing};
use pod_reloader_settings::Reconcile;
use serde_json::Value;

use super::Check;
use crate::cluster::{Cluster, Unseen};
use crate::history::{self, Event};
use crate::operators::Operator;
use crate::print::{Verdict, some};
use crate::rollout::Rollout;
use crate::workloads::{Inquiry, Seen};

/// Number of workloads asked about at once.
const INQUIRIES_AT_ONCE: usize = 4;
/// Time that a due restart may take beyond its settle period. `MAX_GRACE` bounds the wait: with a longer
/// settle period, all that can be told is that the workload is about to be restarted.
const GRACE: Duration = Duration::from_secs(3);
const MAX_GRACE: Duration = Duration::from_secs(30);
/// Number of workloads that are named.
const NAMED: usize = 5;

/// A managed workload, without the parts that are not needed here.
pub(super) struct Kept<'a> {
    /// The workload, without its object.
    pub(super) seen: Seen<'a>,
    /// True if some of its pods are restarted only if somebody acts.
    is_stalled: bool,
}

impl<'a> Kept<'a> {
    /// Returns `None` for a workload that is not managed.
    pub(super) fn of(mut seen: Seen<'a>) -> Option<Self> {
        let rollout = Rollout::of(&seen.workload, &seen.object);
        let is_done = matches!(rollout, Rollout::Done(_));
        // Frees the object: there may be ten thousand workloads.
        seen.object = Value::Null;
        seen.is_kept().then(|| Self {
            is_stalled: seen.workload.stall.is_some() && !is_done,
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

    fn settle_period(&self, operator: &Operator) -> Duration {
        let own = self.seen.workload.settle_period;
        own.unwrap_or(operator.args.settle_period)
    }
}

/// Sums up the hashes that the workloads carry.
pub(super) fn workloads(kept: &[&Kept<'_>], are_all: bool) -> Check {
    let has_hash = |kept: &&&Kept<'_>| kept.seen.workload.config_hash().is_some();
    let with = kept.iter().filter(has_hash).count();
    let ours = kept.iter().filter(|kept| kept.hash().is_some()).count();
    let mut keys: BTreeMap<String, i64> = BTreeMap::new();
    for hash in kept.iter().filter_map(|kept| kept.hash()) {
        *keys.entry(hash.key_id().to_string()).or_default() += 1;
    }
    let mut text = format!("{} kept, {ours} with a hash", kept.len());
    if with > ours {
        text += &format!(", {} with one of somebody else", with - ours);
    }
    if keys.len() > 1 {
        let keys = keys
            .iter()
            .map(|(key, number)| format!("{key} by {number}"));
        text += &format!("; keys: {}", Vec::from_iter(keys).join(", "));
    }
    let verdict = match are_all {
        true => Verdict::Good,
        false => Verdict::Unknown,
    };
    Check::new("Workloads", verdict, text)
}

/// The answers about the workloads that were asked about, by index.
pub(super) type Told = BTreeMap<usize, Inquiry>;

/// Checks if the workloads are up to date. Workloads that are due get the time that a restart takes.
///
/// Asks about `ask` workloads at most: those with warnings first, then those without a hash, then some of the
/// others.
pub(super) async fn standings(
    cluster: &Cluster,
    operator: &Operator,
    kept: &[&Kept<'_>],
    warnings: Option<&Warnings<'_>>,
    ask: usize,
) -> (Vec<Check>, Told) {
    let rank = |at: usize| {
        let is_warned = warnings.is_some_and(|it| !it.of_one(kept[at]).is_empty());
        match (is_warned, kept[at].hash()) {
            (true, _) => Rank::Warned,
            (false, None) => Rank::WithoutHash,
            (false, Some(_)) => Rank::Other,
        }
    };
    let ranks: Vec<_> = (0..kept.len()).map(rank).collect();
    let mut told = inquire(cluster, kept, &chosen(&ranks, ask)).await;
    let patience = |(at, inquiry): (&usize, &Inquiry)| match inquiry {
        Inquiry::Answered(report) => {
            let patience = patience(report.standing, kept[*at].settle_period(operator))?;
            Some((*at, patience))
        }
        Inquiry::Unanswered | Inquiry::Impossible(_) => None,
    };
    let due: Vec<_> = told.iter().filter_map(patience).collect();
    if let Some(longest) = due.iter().map(|(_, patience)| *patience).max() {
        tokio::time::sleep(longest).await;
        let due: Vec<_> = due.into_iter().map(|(at, _)| at).collect();
        told.extend(inquire(cluster, kept, &due).await);
    }
    let mut by_text: BTreeMap<(Verdict, &str), Vec<String>> = BTreeMap::new();
    for (at, inquiry) in &told {
        let means = means(inquiry, operator, kept[*at].settle_period(operator));
        by_text.entry(means).or_default().push(kept[*at].name());
    }
    let mut checks: Vec<_> = by_text
        .into_iter()
        .map(|((verdict, text), names)| {
            let text = match text {
                UP_TO_DATE | NOT_KEPT => format!("{} {text}", names.len()),
                _ => format!("{} {text}: {}", names.len(), some(&names, NAMED)),
            };
            Check::new("Of these", verdict, text)
        })
        .collect();
    if kept.len() > told.len() {
        let text = format!(
            "{} not asked about (--ask={} asks about all)",
            kept.len() - told.len(),
            kept.len()
        );
        checks.push(Check::new("Of these", Verdict::Good, text));
    }
    (checks, told)
}

const UP_TO_DATE: &str = "up to date";
const NOT_KEPT: &str = "not kept";

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
fn patience(standing: Standing, settle_period: Duration) -> Option<Duration> {
    let patience = settle_period + GRACE;
    match standing {
        Standing::Due(_) => (patience <= MAX_GRACE).then_some(patience),
        Standing::BaselineDue => Some(patience.min(MAX_GRACE)),
        _ => None,
    }
}

fn means(
    inquiry: &Inquiry,
    operator: &Operator,
    settle_period: Duration,
) -> (Verdict, &'static str) {
    match inquiry {
        Inquiry::Answered(report) => match report.standing {
            Standing::Current => (Verdict::Good, UP_TO_DATE),
            standing @ Standing::Due(_)
                if operator.args.reconcile == Reconcile::On
                    && patience(standing, settle_period).is_none() =>
            {
                (
                    Verdict::Good,
                    "about to be restarted, after a long settle period",
                )
            }
            Standing::Due(_) => (Verdict::Bad, "out of date"),
            Standing::Waiting => (Verdict::Bad, "held, as objects are missing"),
            Standing::BaselineDue => (Verdict::Unknown, "foreign, without a baseline"),
            Standing::NotKept => (Verdict::Good, NOT_KEPT),
            Standing::Unknown => (Verdict::Unknown, "whose objects cannot be read"),
        },
        Inquiry::Unanswered => (Verdict::Unknown, "not told, as the webhook does not answer"),
        Inquiry::Impossible(error) if error.is_forbidden() => (
            Verdict::Unknown,
            "not asked about, as you may not patch them",
        ),
        Inquiry::Impossible(_) => (Verdict::Unknown, "not asked about, as a dry run fails"),
    }
}

async fn inquire(cluster: &Cluster, kept: &[&Kept<'_>], asked: &[usize]) -> Told {
    let inquiries = asked.iter().copied();
    let inquiries = inquiries.map(|at| async move { (at, kept[at].seen.inquire(cluster).await) });
    stream::iter(inquiries)
        .buffer_unordered(INQUIRIES_AT_ONCE)
        .collect()
        .await
}

/// Warnings of the last hour that were not followed by a restart, by workload.
pub(super) struct Warnings<'a>(BTreeMap<&'a str, Vec<&'a Event>>);

impl<'a> Warnings<'a> {
    /// Collects warnings from all Events, which come newest first.
    pub(super) fn of(events: &'a [Event]) -> Self {
        let mut by_workload: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in events {
            by_workload.entry(&event.about).or_default().push(event);
        }
        let problems = by_workload.into_iter();
        Self(
            problems
                .map(|(about, events)| (about, history::problems(events)))
                .collect(),
        )
    }

    fn of_one(&self, kept: &Kept<'_>) -> &[&'a Event] {
        self.0.get(&*kept.name()).map_or(&[], Vec::as_slice)
    }

    /// Reports the warnings that still hold, given the answers.
    fn check(&self, kept: &[&Kept<'_>], told: &Told) -> Check {
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (at, kept) in kept.iter().enumerate() {
            let is_current = matches!(
                told.get(&at),
                Some(Inquiry::Answered(Report {
                    standing: Standing::Current,
                    ..
                }))
            );
            let events = self.of_one(kept).iter();
            for event in events.filter(|event| holds(event, kept, is_current)) {
                let reason = REASONS.iter().find(|reason| **reason == event.reason);
                by_reason
                    .entry(reason.unwrap_or(&"others"))
                    .or_default()
                    .push(kept.name());
            }
        }
        if by_reason.is_empty() {
            return Check::new("Warnings", Verdict::Good, "none in the last hour");
        }
        let texts = by_reason
            .iter()
            .map(|(reason, names)| format!("{reason}: {}", some(names, NAMED)));
        Check::of_lines("Warnings", Verdict::Bad, texts.collect())
    }
}

/// Reports the warnings, or that they cannot be seen.
pub(super) fn warned(
    warnings: Result<&Warnings<'_>, &&Unseen>,
    kept: &[&Kept<'_>],
    told: &Told,
) -> Check {
    match warnings {
        Ok(warnings) => warnings.check(kept, told),
        Err(error) => Check::unseen("Warnings", error),
    }
}

/// Returns true if a warning still holds. Most are about a hash that was not written: they are over once the
/// workload is up to date.
fn holds(event: &Event, kept: &Kept<'_>, is_current: bool) -> bool {
    let references = &kept.seen.workload.references;
    match &*event.reason {
        "RestartStalled" => kept.is_stalled,
        // Depends on the current annotations, and on what their patterns may match.
        "InvalidReference" => {
            let is_of_matches = event.message.contains("left out");
            !references.rejected.is_empty()
                || is_of_matches && references.pattern_kinds().next().is_some()
        }
        // Nobody makes up for a missed run.
        "CronJobNotRun" => true,
        _ => !is_current,
    }
}

/// The reasons that warnings have.
const REASONS: [&str; 9] = [
    "WaitingForConfig",
    "RestartStalled",
    "ConfigHashReverted",
    "RestartedTooOften",
    "InvalidReference",
    "ConfigUnreadable",
    "CronJobNotRun",
    "PatchRefused",
    "NamespaceTooLarge",
];

#[cfg(test)]
mod tests {
    use super::*;
    use Rank::{Other, Warned, WithoutHash};
    use std::collections::BTreeSet;

    #[test]
    fn those_that_may_be_wrong_are_asked_about_first_and_the_rest_all_over() {
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
            let patience = patience(Standing::Due(Cause::Changed), Duration::from_secs(seconds));
            patience.map(|it| it.as_secs())
        };
        assert_eq!([5, 27, 28, 120].map(due), [Some(8), Some(30), None, None]);
        let baseline = patience(Standing::BaselineDue, Duration::from_secs(120));
        assert_eq!(baseline, Some(MAX_GRACE));
        assert_eq!(patience(Standing::Current, Duration::ZERO), None);
    }

    #[test]
    fn warnings_are_found_by_what_they_are_about() {
        let event = |second: i64, about: &str, reason: &str| Event {
            at: jiff::Timestamp::from_second(second).unwrap(),
            reason: reason.to_owned(),
            message: String::new(),
            is_warning: reason != "ConfigChanged",
            about: about.to_owned(),
        };
        let events = [
            event(5, "Deployment a/web", "PatchRefused"),
            event(4, "Deployment b/web", "ConfigChanged"),
            event(3, "Deployment a/web", "ConfigChanged"),
            event(2, "Deployment a/web", "WaitingForConfig"),
            event(1, "Deployment b/web", "PatchRefused"),
        ];
        let warnings = Warnings::of(&events);
        assert_eq!(warnings.0["Deployment a/web"], [&events[0]]);
        assert!(warnings.0["Deployment b/web"].is_empty());
    }

    /// The operator has a test that it has the same reasons as the document.
    #[test]
    fn every_warning_of_the_document_is_told_by_its_reason() {
        let document = include_str!("../../../../docs/operating.md");
        let warnings = document.lines().filter_map(|line| {
            let (reason, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            rest.starts_with("Warning | ").then_some(reason)
        });
        assert_eq!(BTreeSet::from_iter(warnings), BTreeSet::from(REASONS));
    }
}
