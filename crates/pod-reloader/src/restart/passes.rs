//! The part of a workload's memory that passes over it leave behind.

use std::time::Duration;

use pod_reloader_core::gate;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::release::Release;
use pod_reloader_core::sync_status::Waiting;
use tokio::time::Instant;

use crate::report::notice::Notice;

/// The first pause after which objects are read again that the pods lack and that are not tracked. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What passes over a workload have found and reported. A workload at rest has none, unless it has bad items.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// The restart that is due.
    pub(crate) pending: Option<Pending>,
    /// The time since which the pods could not start.
    pub(crate) missing_since: Option<Instant>,
    /// When objects are read again that are not tracked, if the pods could not start without one of them.
    pub(crate) look: Option<Look>,
    /// The number of passes in a row that failed in the same way: refused, or otherwise.
    pub(crate) failures: u32,
    /// True if the last failure was a refusal.
    pub(crate) refused: bool,
    /// The last notice to the user, and when it was published, so as not to repeat it.
    pub(crate) last_notice: Option<(Notice, Instant)>,
    /// The digits of the content that was due when that notice was last reported.
    last_notice_content: Option<Box<str>>,
    /// The reason to wait that the last pass has found. `None` if it has found none.
    found: Option<Found>,
    /// True if the pass in progress has found it, too.
    is_found_again: bool,
    /// The bad items that were last reported to the user.
    pub(crate) last_rejected: Vec<Rejected>,
}

/// When objects that are not tracked are read again: no watch shows when they come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) next: Instant,
    /// The pause that ends then.
    pause: Duration,
}

impl Look {
    /// Returns the first look after the pods lacked something, or after news.
    pub(crate) fn first() -> Self {
        Self {
            next: Instant::now() + FIRST_PAUSE,
            pause: FIRST_PAUSE,
        }
    }

    /// Returns the next look, after a longer pause if this one is over.
    pub(crate) fn then(self) -> Self {
        let now = Instant::now();
        if now < self.next {
            return self;
        }
        let pause = (self.pause * 2).min(LONGEST_PAUSE);
        Self {
            next: now + pause,
            pause,
        }
    }
}

/// A restart that is due.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) since: Instant,
    /// The time since which its objects have been settling.
    pub(crate) settling_since: Instant,
    /// The config hash that the restart would write. It stands for everything that is tracked, and nothing
    /// else.
    pub(crate) config_hash: Box<str>,
    /// The time when that hash last changed.
    pub(crate) changed: Instant,
    /// The release that the restart waits for.
    pub(crate) awaits: Option<Release>,
    /// The time since when it has waited for releases.
    pub(crate) waiting_since: Option<Instant>,
    /// The time when the last such wait ended.
    pub(crate) release_ended: Option<Instant>,
}

/// A reason to wait that a pass has found.
#[derive(Debug)]
struct Found {
    /// The UID of the workload.
    uid: Box<str>,
    /// The digits of the content that was due. `None` if none was known to be.
    content: Option<Box<str>>,
    /// The notice that says it, if that is not the last notice to the user.
    notice: Option<Box<Notice>>,
}

impl Passes {
    /// Returns the last notice to the user.
    pub(crate) fn last_notice(&self) -> Option<&Notice> {
        self.last_notice.as_ref().map(|(notice, _)| notice)
    }

    /// Notes that a pass begins.
    pub(crate) fn pass_begins(&mut self) {
        self.is_found_again = false;
    }

    /// Notes that a pass has ended. A reason to wait that it has not found is over: not every end of a wait is reported.
    pub(crate) fn pass_ended(&mut self) {
        if !self.is_found_again {
            self.found = None;
        }
    }

    /// Notes that this pass reports the last notice to the user, of the workload with this UID.
    pub(crate) fn finds_last_notice(&mut self, uid: &str) {
        self.last_notice_content = self.content_due();
        self.finds(uid, None);
    }

    /// Returns true if the last notice to the user is about the content that is due.
    pub(crate) fn is_last_notice_of_content_due(&self) -> bool {
        self.last_notice_content == self.content_due()
    }

    /// Notes that this pass finds what a notice says that the user is not told now, of the workload with this UID.
    pub(crate) fn finds_untold(&mut self, uid: &str, notice: Notice) {
        self.finds(uid, Some(Box::new(notice)));
    }

    fn finds(&mut self, uid: &str, notice: Option<Box<Notice>>) {
        self.found = Some(Found {
            uid: uid.into(),
            content: self.content_due(),
            notice,
        });
        self.is_found_again = true;
    }

    /// Returns what the last pass has found that a workload waits for before it gets the content with these digits. `None`
    /// if that pass was about other content.
    pub(crate) fn waits_for(&self, uid: &str, content: Option<&str>) -> Option<Waiting> {
        let found = self.found.as_ref().filter(|found| *found.uid == *uid)?;
        // A pass that has failed leaves nothing pending.
        let due = self.content_due();
        let is_of_last_pass = due.is_none() || due == found.content;
        let is_asked = found.content.is_none() || found.content.as_deref() == content;
        if !(is_of_last_pass && is_asked) {
            return None;
        }
        let notice = found.notice.as_deref().or_else(|| self.last_notice());
        notice?.waiting()
    }

    /// Returns the digits of the content that is due by the last pass.
    fn content_due(&self) -> Option<Box<str>> {
        let pending = self.pending.as_ref()?;
        Some(gate::digits(&pending.config_hash).into())
    }
}
