//! Writes the status of ClusterConfigSyncs, and tells users when it changes.

use jiff::Timestamp;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::{SeenStatus, ready};
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
        let (before, after) = (change.before, change.after);
        if before.as_ref() == Some(&after) {
            self.show();
            return None;
        }
        if change.is_premature {
            return Some(Instant::now() + STATUS_PAUSE);
        }
        let before = before.map(|it| SeenStatus::of(&it, &it.conditions));
        let news = ready(&after.conditions).filter(|it| it.reason != "Syncing");
        let news = news.filter(|it| before.is_none_or(|before| !before.tells(it)));
        let object = (None, name, &*change.uid);
        match write::<ClusterConfigSync>(&self.kit, object, &after, news, &WORDS).await {
            Written::Done => {
                self.state.lock().status_written(name, after);
                self.show();
                None
            }
            Written::Gone => None,
            Written::Failed(again) => Some(again),
        }
    }
}
