//! Writes the status of ClusterConfigSyncs, and tells users when it changes.

use jiff::Timestamp;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::ready;
use tokio::time::Instant;

use super::syncer::{STATUS_PAUSE, Syncer};
use crate::runtime::status::{Words, Written, write};

const WORDS: Words = Words {
    events: ["ConfigSynced", "ConfigNotSynced"],
    log: ["in sync", "not in sync"],
};

impl Syncer {
    /// Writes the status of a ClusterConfigSync, if it has another one. Returns the time to try again.
    pub(super) async fn write_status(&self, name: &Name) -> Option<Instant> {
        let keys = self.own.keys.first_read().await;
        let change = self.state.lock().status(name, Timestamp::now(), &keys)?;
        if change.is_premature {
            return Some(Instant::now() + STATUS_PAUSE);
        }
        let (before, after) = (change.before, change.after);
        let object = (None, name, &*change.uid);
        let told = ready(&after.conditions).filter(|it| it.reason != "Syncing");
        match write::<ClusterConfigSync>(&self.kit, object, before, &after, told, &WORDS).await {
            Written::Done => self.state.lock().status_written(name, after),
            Written::Known => {}
            Written::Gone => return None,
            Written::Failed(again) => return Some(again),
        }
        self.show();
        None
    }
}
