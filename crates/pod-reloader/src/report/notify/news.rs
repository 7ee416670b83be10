//! News of a workload, reduced to what may leave the cluster: names, and words of ours.
//!
//! No error of the apiserver, no name of a data key and nothing that a user wrote is included. Policies
//! quote what they refuse, and the readers of a chat may not be allowed to read the cluster.

use pod_reloader_core::decision::Cause;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Workload, WorkloadId};

use crate::metrics::cause_label;
use crate::report::notice::{Headline, Notice};

/// News of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct News {
    pub(super) topic: Topic,
    /// The config objects that the news is about. Sorted, because the order of their changes does not
    /// matter.
    pub(super) objects: Vec<Reference>,
    pub(super) api_version: String,
    pub(super) workload: WorkloadId,
}

/// The topic of the news, apart from the workload and the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Topic {
    /// The reason of the corresponding Event.
    pub(super) reason: &'static str,
    /// True if somebody has to do something about it.
    pub(super) is_problem: bool,
    /// The cause of a restart, as the metrics name it.
    pub(super) cause: Option<&'static str>,
    /// The cause in words, for a line that names no object.
    pub(super) why: Option<&'static str>,
    pub(super) headline: Headline,
}

impl News {
    /// Returns the news that `notice` brings of `workload`. `None` if only the users of the
    /// workload need to know.
    pub(super) fn of(workload: &Workload, notice: &Notice) -> Option<Self> {
        let mut objects = objects(notice);
        objects.sort();
        objects.dedup();
        Some(Self {
            topic: Topic::of(notice)?,
            objects,
            api_version: workload.api_version().to_owned(),
            workload: (*workload.id).clone(),
        })
    }
}

impl Topic {
    fn of(notice: &Notice) -> Option<Self> {
        let headline = notice.traits().headline?;
        let cause = match notice {
            Notice::Restarted(cause, _)
            | Notice::WouldRestart(cause, ..)
            | Notice::Stalled(cause, ..) => Some(*cause),
            Notice::Reloaded(..) => Some(Cause::Changed),
            _ => None,
        };
        Some(Self {
            reason: notice.reason(),
            is_problem: notice.is_problem(),
            cause: cause.map(cause_label),
            why: cause.map(why),
            headline,
        })
    }
}

fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::FirstStamp => "first config hash",
        Cause::Changed => "changed while pod-reloader was not watching",
        Cause::ChangedBeforeTakeover => "changed before pod-reloader took over",
        Cause::Pinned => "first copies of its config",
        Cause::Rotated => "mounted secrets were rotated",
    }
}

fn objects(notice: &Notice) -> Vec<Reference> {
    match notice {
        Notice::Restarted(Cause::Changed, changed)
        | Notice::Reloaded(_, changed)
        | Notice::WouldRestart(Cause::Changed, changed, _)
        | Notice::Stalled(Cause::Changed, changed, _) => changed.clone(),
        Notice::MissingConfig(missing) => missing.iter().map(|it| it.reference.clone()).collect(),
        Notice::Unreadable(reference, _) => vec![reference.clone()],
        // These are about no object, or their cause is none.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reference, restarted, workload};
    use super::*;
    use pod_reloader_core::discovery::Unmet;

    #[test]
    fn text_of_others_is_never_sent() {
        let secret = "hunter2";
        for notice in [
            Notice::Unreadable(reference("a"), secret.to_owned()),
            Notice::Refused(secret.to_owned()),
            Notice::NotRun(secret.to_owned()),
            Notice::MissingConfig(vec![Unmet {
                reference: reference("a"),
                key: Some(secret.into()),
                is_binary: false,
            }]),
        ] {
            let news = News::of(&workload("web"), &notice).unwrap();
            assert!(!format!("{news:?}").contains(secret), "{news:?}");
            assert!(news.topic.is_problem);
        }
    }

    #[test]
    fn keys_of_one_object_are_one_object() {
        let missing = ["k", "l"].map(|key| Unmet {
            reference: reference("a"),
            key: Some(key.into()),
            is_binary: false,
        });
        let news = News::of(&workload("web"), &Notice::MissingConfig(missing.into())).unwrap();
        assert_eq!(news.objects, [reference("a")]);
    }

    #[test]
    fn the_order_of_changes_makes_no_difference() {
        let news = [["a", "b"], ["b", "a"]].map(|names| restarted("web", &names));
        assert_eq!(news[0], news[1]);
    }

    #[test]
    fn a_first_hash_is_nobodys_change() {
        let notice = Notice::Restarted(Cause::FirstStamp, vec![reference("a")]);
        let news = News::of(&workload("web"), &notice).unwrap();
        assert_eq!(news.objects, []);
        assert!(!news.topic.is_problem);
    }
}
