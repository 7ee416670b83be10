//! Checks what the Events say about workloads.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::sync_status::SyncStatus;

use super::{Managed, NAMED, Replies};
use crate::cluster::Unseen;
use crate::events::{self, Event};
use crate::print::{Verdict, some};
use crate::status::Check;
use crate::workloads::Reply;

/// Number of reasons that are shown.
const REASONS: usize = 30;

/// Warnings of the last hour that were not followed by a restart, by workload.
pub(in crate::status) struct Warnings<'a> {
    problems: BTreeMap<&'a str, Vec<&'a Event>>,
    /// The newest Events, be they warnings or not.
    latest: BTreeMap<&'a str, &'a Event>,
}

impl<'a> Warnings<'a> {
    /// Collects warnings from all Events, which come newest first.
    pub(in crate::status) fn of(events: &'a [Event]) -> Self {
        let mut by_workload: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in events {
            by_workload.entry(&event.about).or_default().push(event);
        }
        let newest = by_workload.iter();
        let latest = newest.filter_map(|(about, events)| Some((*about, *events.first()?)));
        let latest = latest.collect();
        let problems = by_workload.into_iter();
        let problems = problems.map(|(about, events)| (about, events::problems(events)));
        Self {
            latest,
            problems: problems.collect(),
        }
    }

    pub(super) fn of_one(&self, managed: &Managed<'_>) -> &[&'a Event] {
        let problems = self.problems.get(&*managed.name());
        problems.map_or(&[], Vec::as_slice)
    }

    pub(super) fn latest(&self, managed: &Managed<'_>) -> Option<&'a Event> {
        self.latest.get(&*managed.name()).copied()
    }

    /// Reports the warnings that still hold, given the answers.
    fn check(&self, managed: &[&Managed<'_>], replies: &Replies) -> Check {
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut by_namespace: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (at, managed) in managed.iter().enumerate() {
            let is_current = matches!(
                replies.get(&at),
                Some(Reply::Answered(report)) if report.sync_status == SyncStatus::Current
            );
            let namespace = managed.seen.workload.id.namespace.as_str();
            let events = self.of_one(managed).iter();
            for event in events.filter(|event| holds(event, managed, is_current)) {
                let reason = event.shown_reason();
                by_reason.entry(reason).or_default().push(managed.name());
                by_namespace.entry(namespace).or_default().insert(reason);
            }
        }
        if by_reason.is_empty() {
            return Check::new("Warnings", Verdict::Good, "none in the last hour");
        }
        let shown = some_of_each(&by_namespace);
        let texts = by_reason
            .iter()
            .filter(|(reason, _)| shown.contains(**reason))
            .map(|(reason, names)| format!("{reason}: {}", some(names, NAMED)));
        let more = by_reason.len() - shown.len();
        let more = (more > 0).then(|| format!("and {more} more reasons"));
        let texts = texts.chain(more);
        Check::of_lines("Warnings", Verdict::Bad, texts.collect())
    }
}

/// Reports the warnings, or that they cannot be seen.
pub(in crate::status) fn warned(
    warnings: Result<&Warnings<'_>, &&Unseen>,
    managed: &[&Managed<'_>],
    replies: &Replies,
) -> Check {
    match warnings {
        Ok(warnings) => warnings.check(managed, replies),
        Err(error) => Check::unseen("Warnings", error),
    }
}

/// Returns true if a warning still holds. Most are about a hash that was not written: they are over once the
/// workload is up to date.
fn holds(event: &Event, managed: &Managed<'_>, is_current: bool) -> bool {
    let references = &managed.seen.workload.references;
    match &*event.reason {
        "RestartStalled" => managed.is_stalled,
        // Depends on the current annotations, and on what their patterns match, which only the operator knows.
        "InvalidReference" => {
            !references.rejected.is_empty() || references.pattern_kinds().next().is_some()
        }
        // Nobody makes up for a missed run.
        "CronJobNotRun" => true,
        _ => !is_current,
    }
}

/// Returns the reasons that are shown, of those in each namespace. The namespaces take turns: a user who writes Events with
/// many reasons in one of them does not displace the reasons of others.
fn some_of_each<'a>(by_namespace: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut shown = BTreeSet::new();
    // Each turn adds a reason, unless all are shown.
    for turn in 0..REASONS {
        for reasons in by_namespace.values() {
            if shown.len() == REASONS {
                return shown;
            }
            shown.extend(reasons.iter().nth(turn).copied());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{Event, REASONS, Warnings, some_of_each};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn warnings_are_found_by_what_they_are_about() {
        let event = |second: i64, about: &str, reason: &str| Event {
            at: jiff::Timestamp::from_second(second).unwrap(),
            reason: reason.to_owned(),
            message: String::new(),
            is_warning: reason != "ConfigChanged",
            about: about.to_owned(),
            related: None,
        };
        let events = [
            event(5, "Deployment a/web", "PatchRefused"),
            event(4, "Deployment b/web", "ConfigChanged"),
            event(3, "Deployment a/web", "ConfigChanged"),
            event(2, "Deployment a/web", "MissingConfig"),
            event(1, "Deployment b/web", "PatchRefused"),
        ];
        let warnings = Warnings::of(&events);
        assert_eq!(warnings.problems["Deployment a/web"], [&events[0]]);
        assert!(warnings.problems["Deployment b/web"].is_empty());
        assert_eq!(warnings.latest["Deployment b/web"], &events[1]);
    }

    #[test]
    fn many_reasons_of_one_namespace_do_not_displace_those_of_others() {
        let invented: Vec<_> = (0..1000).map(|number| format!("A{number:04}")).collect();
        let invented: BTreeSet<&str> = invented.iter().map(|reason| &**reason).collect();
        let real = BTreeSet::from(["MissingConfig", "PatchRefused"]);
        for (one, other) in [("a", "b"), ("b", "a")] {
            let all = BTreeMap::from([(one, invented.clone()), (other, real.clone())]);
            let shown = some_of_each(&all);
            assert_eq!(shown.len(), REASONS);
            assert!(real.is_subset(&shown), "{shown:?}");
        }
        assert_eq!(some_of_each(&BTreeMap::from([("a", real.clone())])), real);
    }

    /// The operator has a test that it has the same reasons as the document.
    #[test]
    fn every_documented_warning_is_shown_by_its_reason() {
        let document = include_str!("../../../../../docs/operating.md");
        let warnings = document.lines().filter_map(|line| {
            let (reason, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            rest.starts_with("Warning | ").then_some(reason)
        });
        let warnings: BTreeSet<_> = warnings.collect();
        assert!(!warnings.is_empty() && warnings.len() < REASONS);
        let all = BTreeMap::from([("shop", warnings.clone())]);
        assert_eq!(some_of_each(&all), warnings);
        let is_word = |reason: &&str| reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(warnings.iter().all(is_word));
    }
}
