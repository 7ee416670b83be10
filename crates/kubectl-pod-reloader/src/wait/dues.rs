//! For how long the content of workloads has been due.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use pod_reloader_core::sync_status::Report;
use tokio::time::Instant;

use crate::args::Target;
use crate::workloads::Seen;

/// Time that the operator may take beyond the settle period to say what it waits for.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// The operator's settle period, if it cannot be seen.
const SETTLE_PERIOD: Duration = Duration::from_secs(5);

/// Since when the content of each workload has been seen to be due.
#[derive(Default)]
pub(super) struct Dues(RefCell<BTreeMap<String, Due>>);

struct Due {
    content: Option<String>,
    since: Instant,
}

impl Dues {
    /// Returns for how long the content has been due that the operator names.
    pub(super) fn due_for(&self, target: &Target, report: &Report) -> Duration {
        let now = Instant::now();
        let new = || Due {
            content: report.content.clone(),
            since: now,
        };
        let mut dues = self.0.borrow_mut();
        let due = dues.entry(target.shown()).or_insert_with(new);
        if due.content != report.content {
            *due = new();
        }
        now - due.since
    }
}

/// Returns true if a halt of which the newest Event speaks is about the content that has been due for so long. Otherwise,
/// the operator may not have had the time to say something else.
pub(super) fn is_of_this_content(seen: &Seen<'_>, due_for: Duration) -> bool {
    let of_operator = seen.operator.map(|it| it.args.settle_period);
    let settle_period = seen.workload.rare().settle_period.or(of_operator);
    due_for >= settle_period.unwrap_or(SETTLE_PERIOD) + GRACE
}
