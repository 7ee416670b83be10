//! The state of the copies, as the status of a ClusterConfigSync tells it.

use jiff::Timestamp;
use pod_reloader_api::{ClusterConfigSyncStatus, Conflict};

use super::InvalidSync;
use super::content::NotCopied;
use crate::name::Name;
use crate::ready::{condition, ready};
use crate::words;

/// The maximum number of conflicts that are shown.
const MAX_CONFLICTS: usize = 50;
/// The maximum number of namespaces that the message of the condition names.
const MAX_NAMED: usize = 3;
/// What one namespace does with a copy, and what others do.
const HAVE: [&str; 2] = ["has", "have"];

/// The state of the copy in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not known yet, or the copy is still to be written.
    Pending,
    /// The copy is exact.
    Synced,
    /// There is no exact copy, and somebody has to do something about it.
    Failed(Reason),
}

/// The reason why a namespace has no exact copy. The words of the apiserver are left out, because they may quote a
/// value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An object that is not ours has the name.
    #[error("an object that is not a copy of the source has the name")]
    ExistsNotOurs,
    /// An older ClusterConfigSync has copies of that name there.
    #[error("ClusterConfigSync {0} is older and has copies of that name here")]
    OtherSync(Name),
    /// The quota of the namespace is used up.
    #[error("the quota of the namespace is used up")]
    QuotaExceeded,
    /// The operator has no right to write the copy, or a policy forbids it.
    #[error("pod-reloader is not allowed to write the copy")]
    Forbidden,
    /// The apiserver, or a webhook, does not accept the copy.
    #[error("the cluster does not accept the copy")]
    Refused,
    /// The apiserver could not be asked. It is asked again.
    #[error("the copy could not be written, trying again")]
    Failed,
}

impl Reason {
    /// Returns the reason in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ExistsNotOurs => "ExistsNotOurs",
            Self::OtherSync(_) => "OtherSync",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::Forbidden => "Forbidden",
            Self::Refused => "Refused",
            Self::Failed => "Failed",
        }
    }
}

/// The reason why no namespace gets a copy, or a new content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The spec cannot be worked with.
    #[error(transparent)]
    Invalid(InvalidSync),
    /// The Namespace of the source was deleted and made again since the spec was written. Whoever wrote the spec was
    /// asked about the source in the earlier one.
    #[error(
        "the namespace of the source was deleted and made again; copies stay as they are until the spec is changed, by somebody who may read the source"
    )]
    SourceNamespaceReplaced,
    /// There is no source.
    #[error("the source does not exist; copies stay as they are")]
    SourceNotFound,
    /// The operator may not read the source.
    #[error("pod-reloader is not allowed to read the source")]
    SourceForbidden,
    /// The source is not copied.
    #[error(transparent)]
    Source(NotCopied),
}

impl Obstacle {
    /// Returns the reason in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidSpec",
            Self::SourceNamespaceReplaced => "SourceNamespaceReplaced",
            Self::SourceNotFound => "SourceNotFound",
            Self::SourceForbidden => "SourceForbidden",
            Self::Source(NotCopied::IsCopy) => "SourceIsCopy",
            Self::Source(NotCopied::NotAllowed) => "SourceNotAllowed",
            Self::Source(NotCopied::KeyNotFound(_)) => "KeyNotFound",
        }
    }
}

/// What a status notes for those who read it later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted<'a> {
    /// True once all copies have a seal.
    pub sealed: bool,
    /// The UID of the source's Namespace for the spec of this generation. Empty if it has not been seen.
    pub source_namespace_uid: &'a str,
}

/// Returns the status of a ClusterConfigSync of this generation, given the one that it has.
///
/// `namespaces` are those that are to have a copy, in their order. With an obstacle, they are as they are left.
pub fn status<'a>(
    previous: Option<&ClusterConfigSyncStatus>,
    generation: i64,
    obstacle: Option<&Obstacle>,
    namespaces: impl Iterator<Item = (&'a Name, &'a Outcome)>,
    noted: Noted<'_>,
    now: Timestamp,
) -> ClusterConfigSyncStatus {
    let (mut selected, mut synced, mut failed) = (0, 0, Vec::new());
    for (namespace, outcome) in namespaces {
        selected += 1;
        match outcome {
            Outcome::Pending => {}
            Outcome::Synced => synced += 1,
            Outcome::Failed(reason) => failed.push((namespace, reason)),
        }
    }
    let (status, reason, message) = if let Some(obstacle) = obstacle {
        ("False", obstacle.as_str(), obstacle.to_string())
    } else if !failed.is_empty() {
        ("False", "Conflict", conflicts(&failed, selected))
    } else if synced < selected {
        let namespaces = words::part(synced, selected, "namespace", HAVE);
        let message = format!("{namespaces} an exact copy");
        ("False", "Syncing", message)
    } else {
        let namespaces = words::count(selected, "namespace");
        let have = words::either(&selected, HAVE);
        let message = format!("{namespaces} {have} an exact copy");
        ("True", "Synced", message)
    };
    let before = previous.and_then(|it| ready(&it.conditions));
    let before = before.map(|it| (&*it.status, it.last_transition_time.0));
    let said = (status, reason, message);
    ClusterConfigSyncStatus {
        observed_generation: generation,
        selected,
        synced,
        sealed: noted.sealed,
        source_namespace_uid: noted.source_namespace_uid.to_owned(),
        conflicts: failed
            .iter()
            .take(MAX_CONFLICTS)
            .map(|(namespace, reason)| Conflict {
                namespace: namespace.as_str().to_owned(),
                reason: reason.as_str().to_owned(),
                message: reason.to_string(),
            })
            .collect(),
        conditions: vec![condition(before, generation, said, now)],
    }
}

fn conflicts(failed: &[(&Name, &Reason)], selected: u32) -> String {
    let named = failed.iter();
    let named = named.map(|(namespace, reason)| format!("{namespace} ({})", reason.as_str()));
    let named = words::some(named, MAX_NAMED);
    let namespaces = words::part(failed.len(), selected as usize, "namespace", HAVE);
    format!("{namespaces} no exact copy: {named}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns the status with these outcomes, in namespaces `n0`, `n1` and so on.
    fn of(
        previous: Option<&ClusterConfigSyncStatus>,
        obstacle: Option<&Obstacle>,
        outcomes: &[Outcome],
        now: i64,
    ) -> ClusterConfigSyncStatus {
        let names = (0..outcomes.len()).map(|at| Name::parse(&format!("n{at}")).unwrap());
        let names: Vec<_> = names.collect();
        let noted = Noted {
            sealed: true,
            source_namespace_uid: "u-1",
        };
        let outcomes = names.iter().zip(outcomes);
        status(previous, 3, obstacle, outcomes, noted, at(now))
    }

    fn said(status: &ClusterConfigSyncStatus) -> (&str, &str, &str) {
        let ready = ready(&status.conditions).unwrap();
        (&ready.status, &ready.reason, &ready.message)
    }

    #[test]
    fn it_is_ready_once_every_namespace_has_an_exact_copy() {
        let all = [Outcome::Synced, Outcome::Synced];
        let done = of(None, None, &all, 1);
        assert_eq!(
            said(&done),
            ("True", "Synced", "2 namespaces have an exact copy")
        );
        assert_eq!(
            (done.selected, done.synced, done.observed_generation),
            (2, 2, 3)
        );
        let under_way = of(None, None, &[Outcome::Synced, Outcome::Pending], 1);
        let expected = ("False", "Syncing", "1 of 2 namespaces has an exact copy");
        assert_eq!(said(&under_way), expected);
        let one = of(None, None, &[Outcome::Synced], 1);
        assert_eq!(said(&one).2, "1 namespace has an exact copy");
        let one = of(None, None, &[Outcome::Pending], 1);
        assert_eq!(said(&one).2, "0 of 1 namespace has an exact copy");
        assert_eq!(
            said(&of(None, None, &[], 1)).0,
            "True",
            "nothing is left to do"
        );
    }

    #[test]
    fn each_namespace_without_a_copy_has_its_reason() {
        let other = Reason::OtherSync(Name::parse("older").unwrap());
        let outcomes = [
            Reason::ExistsNotOurs,
            other,
            Reason::Forbidden,
            Reason::QuotaExceeded,
        ];
        let status = of(None, None, &outcomes.map(Outcome::Failed), 1);
        let expected = "4 of 4 namespaces have no exact copy: n0 (ExistsNotOurs), n1 (OtherSync), n2 (Forbidden) and 1 more";
        assert_eq!(said(&status), ("False", "Conflict", expected));
        let conflicts: Vec<_> = status
            .conflicts
            .iter()
            .map(|it| (&*it.namespace, &*it.reason))
            .collect();
        assert_eq!(conflicts[1], ("n1", "OtherSync"));
        assert_eq!(conflicts.len(), 4);
        let many = vec![Outcome::Failed(Reason::Failed); 1000];
        assert_eq!(of(None, None, &many, 1).conflicts.len(), MAX_CONFLICTS);
    }

    #[test]
    fn an_obstacle_is_named_and_the_copies_that_are_there_are_counted() {
        let obstacle = Obstacle::Source(NotCopied::KeyNotFound("ca.crt".to_owned()));
        let status = of(
            None,
            Some(&obstacle),
            &[Outcome::Synced, Outcome::Pending],
            1,
        );
        let expected = "the source has no key \"ca.crt\"; copies stay as they are";
        assert_eq!(said(&status), ("False", "KeyNotFound", expected));
        assert_eq!((status.selected, status.synced), (2, 1));
    }

    #[test]
    fn it_notes_what_later_leaders_go_by() {
        let status = of(None, None, &[], 1);
        assert!(status.sealed);
        assert_eq!(status.source_namespace_uid, "u-1");
    }

    #[test]
    fn the_time_of_the_condition_is_that_of_its_last_change() {
        let first = of(None, None, &[Outcome::Pending], 1);
        let second = of(Some(&first), None, &[Outcome::Failed(Reason::Failed)], 2);
        let third = of(Some(&second), None, &[Outcome::Synced], 3);
        let fourth = of(Some(&third), None, &[Outcome::Synced], 4);
        let times = [&first, &second, &third].map(|it| it.conditions[0].last_transition_time.0);
        assert_eq!(times, [at(1), at(1), at(3)]);
        assert_eq!(third, fourth, "nothing needs to be written");
    }
}
