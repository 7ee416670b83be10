//! Writes the status of ClusterConfigSyncs, and tells users when it changes.

use jiff::Timestamp;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::outcome::ready;
use pod_reloader_core::error::chain;
use pod_reloader_core::name::Name;
use tokio::time::Instant;
use tracing::{info, warn};

use super::state::StatusChange;
use super::syncer::{STATUS_PAUSE, Syncer};
use crate::runtime::status;

impl Syncer {
    /// Writes the status of a ClusterConfigSync, if it has another one. Returns the time to try again.
    pub(super) async fn write_status(&self, name: &Name) -> Option<Instant> {
        let keys = self.own.keys.first_read().await;
        let change = self.state.lock().status(name, Timestamp::now(), &keys)?;
        if change.before.as_ref() == Some(&change.after) {
            self.show();
            return None;
        }
        if change.is_premature {
            return Some(Instant::now() + STATUS_PAUSE);
        }
        match self.calls.write_status(name, &change.after).await {
            Ok(()) => {
                self.report(name, &change);
                self.state.lock().status_written(name, change.after);
                self.show();
                None
            }
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                self.kit.errors.count(Some(&error));
                let error = chain(&error);
                warn!(sync = %name, error, "cannot write the status of a ClusterConfigSync, trying again");
                Some(Instant::now() + STATUS_PAUSE * 5)
            }
        }
    }

    /// Tells users that copies have become exact, or cannot.
    fn report(&self, name: &Name, change: &StatusChange) {
        let before = change.before.as_ref().and_then(ready);
        let Some(after) = ready(&change.after) else {
            return;
        };
        let is_news =
            before.is_none_or(|it| (&it.status, &it.reason) != (&after.status, &after.reason));
        if !is_news || after.reason == "Syncing" {
            return;
        }
        let report = status::report(after, ["ConfigSynced", "ConfigNotSynced"]);
        let (reason, message) = (&*after.reason, &*after.message);
        match report.is_problem {
            true => warn!(sync = %name, reason, detail = message, "not in sync"),
            false => info!(sync = %name, detail = message, "in sync"),
        }
        let about = status::about::<ClusterConfigSync>(None, name, &change.uid);
        self.kit.events.publish(about, report);
    }
}
