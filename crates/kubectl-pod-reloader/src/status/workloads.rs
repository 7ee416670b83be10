//! Whether the workloads of one operator are up to date.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::standing::{Report, Standing};

use super::Check;
use crate::cluster::{Cluster, Unseen};
use crate::history::{self, Event};
use crate::operators::Operator;
use crate::print::Verdict;
use crate::workloads::{Inquiry, Seen};

/// How many workloads are asked about at once.
const INQUIRIES_AT_ONCE: usize = 4;
/// So long a restart that is due may take beyond the settle period, and so long that is waited for at most.
const GRACE: Duration = Duration::from_secs(3);
const MAX_GRACE: Duration = Duration::from_secs(30);
/// How many workloads are named.
const NAMED: usize = 5;

/// What the workloads carry.
pub(super) fn workloads(kept: &[&Seen<'_>], are_all: bool) -> Check {
    let has_hash = |seen: &&&Seen<'_>| seen.workload.config_hash().is_some();
    let is_ours = |seen: &&&Seen<'_>| {
        seen.workload
            .config_hash()
            .and_then(ConfigHash::parse)
            .is_some()
    };
    let with = kept.iter().filter(has_hash).count();
    let ours = kept.iter().filter(is_ours).count();
    let mut keys: BTreeMap<String, i64> = BTreeMap::new();
    let hashes = kept
        .iter()
        .filter_map(|seen| ConfigHash::parse(seen.workload.config_hash()?));
    for hash in hashes {
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

/// Whether the workloads are up to date: those that are due are given the time that a restart takes.
pub(super) async fn standings(
    cluster: &Cluster,
    operator: &Operator,
    kept: &[&Seen<'_>],
    ask: usize,
) -> Vec<Check> {
    let asked = &kept[..kept.len().min(ask)];
    if asked.is_empty() {
        return Vec::new();
    }
    let mut told = inquire(cluster, asked).await;
    let is_due = |inquiry: &Inquiry| {
        matches!(
            inquiry,
            Inquiry::Answered(Report {
                standing: Standing::Due(_) | Standing::BaselineDue,
                ..
            })
        )
    };
    let due: Vec<_> = told
        .iter()
        .filter(|(_, it)| is_due(it))
        .map(|(at, _)| *at)
        .collect();
    if !due.is_empty() {
        let settled = |at: &usize| {
            asked[*at]
                .workload
                .settle_period
                .unwrap_or(operator.args.settle_period)
        };
        let longest = due.iter().map(settled).max().unwrap_or_default();
        tokio::time::sleep((longest + GRACE).min(MAX_GRACE)).await;
        for at in due {
            told.insert(at, asked[at].inquire(cluster).await);
        }
    }
    let mut by_text: BTreeMap<(Verdict, &str), Vec<String>> = BTreeMap::new();
    for (at, inquiry) in &told {
        let (verdict, text) = match inquiry {
            Inquiry::Answered(report) => match report.standing {
                Standing::Current => (Verdict::Good, "up to date"),
                Standing::Due(_) => (Verdict::Bad, "out of date"),
                Standing::Waiting => (Verdict::Bad, "held, as objects are missing"),
                Standing::BaselineDue => (Verdict::Unknown, "foreign, without a baseline"),
                Standing::NotKept => (Verdict::Good, "not kept"),
                Standing::Unknown => (Verdict::Unknown, "whose objects cannot be read"),
            },
            Inquiry::Unanswered => (Verdict::Unknown, "not told, as the webhook does not answer"),
            Inquiry::Impossible(error) if error.is_forbidden() => (
                Verdict::Unknown,
                "not asked about, as you may not patch them",
            ),
            Inquiry::Impossible(_) => (Verdict::Unknown, "not asked about, as a dry run fails"),
        };
        let id = &asked[*at].workload.id;
        let name = format!("{} {}/{}", id.kind, id.namespace, id.name);
        by_text.entry((verdict, text)).or_default().push(name);
    }
    let mut checks: Vec<_> = by_text
        .into_iter()
        .map(|((verdict, text), names)| {
            let text = match verdict {
                Verdict::Good => format!("{} {text}", names.len()),
                _ => format!("{} {text}: {}", names.len(), some(&names)),
            };
            Check::new("Of these", verdict, text)
        })
        .collect();
    if kept.len() > asked.len() {
        let text = format!("{} not asked about (--ask)", kept.len() - asked.len());
        checks.push(Check::new("Of these", Verdict::Good, text));
    }
    checks
}

async fn inquire(cluster: &Cluster, asked: &[&Seen<'_>]) -> BTreeMap<usize, Inquiry> {
    let inquiries = asked.iter().enumerate();
    let inquiries = inquiries.map(|(at, seen)| async move { (at, seen.inquire(cluster).await) });
    stream::iter(inquiries)
        .buffer_unordered(INQUIRIES_AT_ONCE)
        .collect()
        .await
}

/// What the operator warned of in the last hour, and was not followed by a restart.
pub(super) fn warnings(events: &Result<Vec<Event>, Unseen>, kept: &[&Seen<'_>]) -> Check {
    let events = match events {
        Ok(events) => events,
        Err(error) => return Check::unseen("Warnings", error),
    };
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for seen in kept {
        let id = &seen.workload.id;
        let about = format!("{} {}/{}", id.kind, id.namespace, id.name);
        let own: Vec<_> = events
            .iter()
            .filter(|event| event.about == about)
            .cloned()
            .collect();
        for event in history::problems(&own) {
            let reason = REASONS.iter().find(|reason| **reason == event.reason);
            by_reason
                .entry(reason.unwrap_or(&"others"))
                .or_default()
                .push(about.clone());
        }
    }
    if by_reason.is_empty() {
        return Check::new("Warnings", Verdict::Good, "none in the last hour");
    }
    let texts = by_reason
        .iter()
        .map(|(reason, names)| format!("{reason}: {}", some(names)));
    Check::new("Warnings", Verdict::Bad, Vec::from_iter(texts).join("\n"))
}

/// The reasons of warnings.
const REASONS: [&str; 8] = [
    "WaitingForConfig",
    "RestartStalled",
    "ConfigHashReverted",
    "RestartedTooOften",
    "InvalidReference",
    "ConfigUnreadable",
    "CronJobNotRun",
    "PatchRefused",
];

/// The first names, the rest as a number.
fn some(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
