//! Tells the webhook of this replica what restarts wait for, as the loop has last reported it.

use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::sync_status::Waiting;
use pod_reloader_core::workload::{Workload, WorkloadId};

use crate::restart::memory::{Memories, WeakMemories};

/// What restarts wait for, while this replica runs the loop. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct LoopStatus(Arc<Mutex<WeakMemories>>);

/// What the loop of this replica says about a workload.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Remembered {
    /// True if this replica runs the loop.
    pub(crate) leads: bool,
    /// The reason why the workload is not restarted yet, if the loop has reported one.
    pub(crate) waits_for: Option<Waiting>,
}

/// The identity of a workload that somebody asks about.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: WorkloadId,
    /// The UID, which only users know who can read the workload, or something that names it. Anybody can invent a review.
    pub(crate) uid: Box<str>,
}

impl Asked {
    pub(crate) fn about(workload: &Workload) -> Self {
        Self {
            id: (*workload.id).clone(),
            uid: workload.uid.clone(),
        }
    }
}

impl LoopStatus {
    /// Notes that a term begins. Nothing is told any more when its memories are gone.
    pub(crate) fn term_begins(&self, memories: &Memories) {
        *self.0.lock() = memories.downgrade();
    }

    /// Returns what a workload waits for before it gets the content with these digits. `None` stands for a workload of
    /// which no content is due.
    pub(crate) fn of(&self, asked: &Asked, content: Option<&str>) -> Remembered {
        let Some(memories) = self.0.lock().upgrade() else {
            return Remembered::default();
        };
        let waits_for = memories.with(&asked.id, |memory| {
            memory.passes.as_deref()?.waits_for(&asked.uid, content)
        });
        Remembered {
            leads: true,
            waits_for,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::id;
    use crate::report::notice::Notice;
    use crate::restart::passes::{Passes, Pending};
    use pod_reloader_core::gate::Closed;
    use tokio::time::Instant;

    const UID: &str = "7d6f";

    fn web() -> Asked {
        Asked {
            id: id("web"),
            uid: UID.into(),
        }
    }

    fn hash(digits: &str) -> String {
        format!("v1.dcdaaec6.{digits}{}", "0".repeat(56))
    }

    /// Notes that a pass has found this content due.
    fn due(memories: &Memories, digits: &str) {
        let now = Instant::now();
        memories.with(&web().id, |memory| {
            memory.passes.get_or_insert_default().pending = Some(Pending {
                since: now,
                settling_since: now,
                config_hash: hash(digits).into(),
                changed: now,
                awaits: None,
                waiting_since: None,
                release_ended: None,
            });
        });
    }

    /// Notes that the loop has reported a hold.
    fn held(memories: &Memories) {
        memories.with(&web().id, |memory| {
            let passes = memory.passes.get_or_insert_default();
            passes.last_notice = Some((Notice::Gated(Closed::Held), Instant::now()));
            passes.finds_last_notice(UID);
        });
    }

    fn reason(status: &LoopStatus, asked: &Asked, content: Option<&str>) -> Option<String> {
        let remembered = status.of(asked, content);
        assert!(remembered.leads);
        remembered.waits_for.map(|waiting| waiting.reason)
    }

    #[test]
    fn what_was_reported_of_the_content_that_is_due_is_told() {
        let (status, memories) = (LoopStatus::default(), Memories::default());
        status.term_begins(&memories);
        assert_eq!(reason(&status, &web(), Some("48a63946")), None);
        due(&memories, "48a63946");
        held(&memories);
        let told = reason(&status, &web(), Some("48a63946"));
        assert_eq!(told.as_deref(), Some("RestartPending"));
        // The objects have changed, and the loop does not know it yet.
        assert_eq!(reason(&status, &web(), Some("00000000")), None);
        // The loop knows it, and has not reported anything about it.
        due(&memories, "00000000");
        for content in ["48a63946", "00000000"] {
            assert_eq!(reason(&status, &web(), Some(content)), None);
        }
    }

    /// Lets a pass do this.
    fn pass(memories: &Memories, does: impl FnOnce()) {
        let act = |act: fn(&mut Passes)| {
            memories.with(&web().id, |memory| {
                act(memory.passes.get_or_insert_default());
            });
        };
        act(Passes::pass_begins);
        does();
        act(Passes::pass_ended);
    }

    #[test]
    fn what_the_last_pass_has_not_found_is_over() {
        let (status, memories) = (LoopStatus::default(), Memories::default());
        status.term_begins(&memories);
        due(&memories, "48a63946");
        let told = || reason(&status, &web(), Some("48a63946"));
        pass(&memories, || held(&memories));
        assert_eq!(told().as_deref(), Some("RestartPending"));
        pass(&memories, || {
            held(&memories);
            assert!(told().is_some());
        });
        assert!(told().is_some());
        pass(&memories, || assert!(told().is_some()));
        assert_eq!(told(), None);
    }

    #[test]
    fn a_failure_is_told_although_it_leaves_nothing_pending() {
        let (status, memories) = (LoopStatus::default(), Memories::default());
        status.term_begins(&memories);
        due(&memories, "48a63946");
        held(&memories);
        memories.with(&web().id, |memory| {
            memory.passes.get_or_insert_default().pending = None;
        });
        assert!(reason(&status, &web(), Some("48a63946")).is_some());
        assert_eq!(reason(&status, &web(), Some("00000000")), None);
    }

    #[test]
    fn a_review_that_somebody_has_invented_is_told_nothing() {
        let (status, memories) = (LoopStatus::default(), Memories::default());
        status.term_begins(&memories);
        held(&memories);
        assert!(reason(&status, &web(), None).is_some());
        let invented = Asked {
            uid: "".into(),
            ..web()
        };
        assert_eq!(reason(&status, &invented, None), None);
    }

    #[test]
    fn nothing_is_told_after_the_term() {
        let status = LoopStatus::default();
        assert_eq!(status.of(&web(), None), Remembered::default());
        let memories = Memories::default();
        status.term_begins(&memories);
        held(&memories);
        drop(memories);
        assert_eq!(status.of(&web(), None), Remembered::default());
    }
}
