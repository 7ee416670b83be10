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
        if before.as_ref().is_some_and(|it| it.is(&after)) {
            self.show();
            return None;
        }
        let news = ready(&after.conditions);
        let news = news.filter(|it| before.is_none_or(|before| !before.tells(it)));
        let object = (Some(&id.namespace), &id.name, &*uid);
        match write::<FieldBinding>(&self.kit, object, &after, news, &WORDS).await {
            Written::Done => {
                self.state.lock().status_written(id, &after);
                self.show();
                None
            }
            Written::Gone => {
                self.state.lock().has_nobody_to_tell(id);
                None
            }
            Written::Failed(again) => Some(again),
        }
    }
}
