//! The part of a workload's memory that passes over it leave behind.

use std::time::Duration;

use pod_reloader_core::references::Rejected;
use pod_reloader_core::release::Release;
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

impl Passes {
    /// Returns the last notice to the user.
    pub(crate) fn last_notice(&self) -> Option<&Notice> {
        self.last_notice.as_ref().map(|(notice, _)| notice)
    }
}
