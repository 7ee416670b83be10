//! Writes the status of FieldBindings, and tells users when it changes.

use jiff::Timestamp;
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::ready::ready;
use tokio::time::Instant;

use super::binder::Binder;
use super::state::StatusChange;
use crate::runtime::status::{Words, Written, write};

const WORDS: Words = Words {
    events: ["FieldsApplied", "FieldsNotApplied"],
    log: [
        "fields are equal to their keys",
        "fields are not equal to their keys",
    ],
};

impl Binder {
    /// Writes the status of a FieldBinding, if it has another one. Returns the time to try again.
    pub(super) async fn write_status(&self, id: &BindingId) -> Option<Instant> {
        let change = self.state.lock().status(id, Timestamp::now())?;
        let StatusChange { uid, before, after } = change;
        let object = (Some(&id.namespace), &id.name, &*uid);
        let ready = ready(&after.conditions);
        match write::<FieldBinding>(&self.kit, object, before, &after, ready, &WORDS).await {
            Written::Done => self.state.lock().status_written(id, &after),
            Written::Known => {}
            Written::Gone => {
                self.state.lock().has_nobody_to_tell(id);
                return None;
            }
            Written::Failed(again) => return Some(again),
        }
        self.show();
        None
    }
}
