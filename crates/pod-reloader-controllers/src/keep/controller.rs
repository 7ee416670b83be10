//! The controller of kept ConfigMaps, for one term of leadership at a time.

use std::sync::Arc;
use std::time::Duration;

use pod_reloader_core::scope::Scope;
use tokio::task::JoinSet;
use tracing::info;

use super::keeper::Keeper;
use crate::live::keys::Keys;
use crate::runtime::controller::{Controller, beside_watches};
use crate::runtime::kit::Kit;

/// Returns the controller, which the log calls `name`. It works in `scope`, with `keys` for seals. `period` is the longest
/// time between two looks at who uses what was brought back.
pub fn keeping(
    name: &'static str,
    kit: Kit,
    scope: Scope,
    keys: Arc<Keys>,
    period: Duration,
) -> Controller {
    Controller::new(name, move || {
        term(kit.clone(), scope.clone(), keys.clone(), period)
    })
}

async fn term(kit: Kit, scope: Scope, keys: Arc<Keys>, period: Duration) {
    info!("keeping ConfigMaps that are in use");
    let namespaces = scope.watched();
    let resync_period = kit.resync_period;
    let keeper = Arc::new(Keeper::new(kit, scope, keys, period));
    let watches = || {
        let all = namespaces.iter().cloned();
        all.map(|namespace| keeper.clone().watch(namespace))
            .collect::<JoinSet<_>>()
    };
    beside_watches(keeper.worker.run(&keeper), resync_period, watches).await;
}
