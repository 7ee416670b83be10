//! Answers status queries: by the rule of the loop, and by what the loop remembers where this replica runs it.

use std::sync::Arc;

use jiff::Timestamp;
use pod_reloader_core::admission::{Answer, Pending};
use pod_reloader_core::gate::Closed;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::sync_status::{Report, SyncStatus, Waiting};
use tokio::time::Instant;

use super::Webhook;
use super::body::beside;
use crate::report::notice::Notice;
use crate::restart::loop_status::{Asked, Remembered};

impl Webhook {
    /// Answers a status query by what its answer depends on.
    pub(super) async fn answer_status_query(
        &self,
        pending: Pending,
        keys: Arc<Keyring>,
        deadline: Instant,
    ) -> Answer {
        let asked = Asked::about(pending.workload());
        let first_stamp = self.first_stamp;
        let Some((facts, newest)) = self.read_facts(&pending, &keys, deadline).await else {
            let unknown = pending.answer(None, &keys, first_stamp);
            return self.with_report(unknown, Some(&asked), None);
        };
        let pending = Arc::new(pending);
        let queried = pending.clone();
        let answer = move || {
            let answer = queried.answer(facts.as_ref(), &newest, first_stamp);
            let closed = queried.closed(facts.as_ref(), &answer, Timestamp::now());
            (answer, closed)
        };
        let answer = beside(&self.limits.status_queries, deadline, answer).await;
        let unknown = || (pending.answer(None, &keys, first_stamp), None);
        let (answer, closed) = answer.unwrap_or_else(unknown);
        self.with_report(answer, Some(&asked), closed)
    }

    /// Adds the report to an answer, if it is one to a status query. `asked` is the workload, if it is managed and stored,
    /// and `closed` a gate that the workload or its objects show.
    pub(super) fn with_report(
        &self,
        mut answer: Answer,
        asked: Option<&Asked>,
        closed: Option<Closed>,
    ) -> Answer {
        if let Some(sync_status) = answer.sync_status {
            let report = self.report(sync_status, &mut answer, asked, closed);
            // It comes first, because the apiserver truncates warnings that are too long in total.
            answer.warnings.insert(0, report.to_string());
        }
        answer
    }

    fn report(
        &self,
        sync_status: SyncStatus,
        answer: &mut Answer,
        asked: Option<&Asked>,
        closed: Option<Closed>,
    ) -> Report {
        let content = answer.due_content.take();
        let remembered = asked.map(|asked| self.loop_status.of(asked, content.as_deref()));
        let Remembered { leads, waits_for } = remembered.unwrap_or_default();
        let waits_for = match sync_status {
            SyncStatus::Due(_) => first_of(closed, waits_for),
            SyncStatus::MissingConfig => {
                Notice::MissingConfig(std::mem::take(&mut answer.missing)).waiting()
            }
            SyncStatus::Unknown => waits_for,
            SyncStatus::Current | SyncStatus::BaselineDue | SyncStatus::NotManaged => None,
        };
        let certificate = self.certificate.current();
        Report {
            sync_status,
            content,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            not_after: certificate.and_then(|it| Timestamp::try_from(it.not_after()).ok()),
            observed_at: Some(Timestamp::now()),
            leads,
            waits_for,
        }
    }
}

/// Returns what a restart waits for, given the gate that the workload or its objects show, and what the loop has found.
fn first_of(closed: Option<Closed>, found: Option<Waiting>) -> Option<Waiting> {
    // A window keeps nobody back whose certificate expires first. Only the loop knows that, and then it finds what comes
    // after the gates.
    let is_past_window = matches!(closed, Some(Closed::Until(_))) && found.is_some();
    let shown = closed.filter(|_| !is_past_window);
    // Otherwise, what is shown now is newer than what the loop has found.
    let shown = shown.and_then(|closed| Notice::Gated(closed).waiting());
    shown.or(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Zoned;
    use pod_reloader_core::limit::Full;

    #[test]
    fn a_gate_that_is_shown_comes_first_unless_the_loop_is_past_the_window() {
        let opens: Zoned = "2026-11-28T02:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let found = || Notice::Gated(Closed::Held).waiting();
        let told = |closed, found| first_of(closed, found).map(|waiting| waiting.message);
        let message = |notice: Notice| Some(notice.note());
        let until = || Closed::Until(opens.clone());
        assert_eq!(told(None, None), None);
        assert_eq!(told(None, found()), message(Notice::Gated(Closed::Held)));
        let window = told(Some(until()), None);
        assert_eq!(window, message(Notice::Gated(until())));
        let slot = || Notice::AwaitsSlot(Full::Cluster(3));
        assert_eq!(told(Some(until()), slot().waiting()), message(slot()));
        let held = told(Some(Closed::Held), slot().waiting());
        assert_eq!(held, message(Notice::Gated(Closed::Held)));
    }
}
