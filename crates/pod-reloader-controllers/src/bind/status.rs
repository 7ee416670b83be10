//! Writes the status of FieldBindings, and tells users when it changes.

use jiff::Timestamp;
use pod_reloader_api::FieldBinding;
use pod_reloader_core::error::chain;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::outcome::ready;
use tokio::time::Instant;
use tracing::{info, warn};

use super::binder::{Binder, STATUS_INTERVAL};
use super::state::StatusChange;
use crate::runtime::status;

impl Binder {
    /// Writes the status of a FieldBinding, if it has another one. Returns the time to try again.
    pub(super) async fn write_status(&self, id: &BindingId) -> Option<Instant> {
        let change = self.state.lock().status(id, Timestamp::now())?;
        if change
            .before
            .as_ref()
            .is_some_and(|it| it.is(&change.after))
        {
            self.show();
            return None;
        }
        match self.calls.write_status(id, &change.after).await {
            Ok(()) => {
                self.report(id, &change);
                self.state.lock().status_written(id, &change.after);
                self.show();
                None
            }
            Err(error) if error.is_not_found() => {
                self.state.lock().has_nobody_to_tell(id);
                None
            }
            Err(error) => {
                self.kit.errors.count(Some(&error));
                let error = chain(&error);
                warn!(binding = %id, error, "cannot write the status of a FieldBinding, trying again");
                Some(Instant::now() + STATUS_INTERVAL * 5)
            }
        }
    }

    /// Tells users that fields have become equal to their keys, or cannot.
    fn report(&self, id: &BindingId, change: &StatusChange) {
        let Some(after) = ready(&change.after) else {
            return;
        };
        if change.before.as_ref().is_some_and(|it| it.tells(after)) {
            return;
        }
        let report = status::report(after, ["FieldsApplied", "FieldsNotApplied"]);
        let (reason, message) = (&*after.reason, &*after.message);
        match report.is_problem {
            true => {
                warn!(binding = %id, reason, detail = message, "fields are not equal to their keys")
            }
            false => info!(binding = %id, detail = message, "fields are equal to their keys"),
        }
        let about = status::about::<FieldBinding>(Some(&id.namespace), &id.name, &change.uid);
        self.kit.events.publish(about, report);
    }
}
