//! The controller of kept ConfigMaps, for one term of leadership at a time.

use std::sync::Arc;
use std::time::Duration;

use pod_reloader_core::scope::Scope;
use tokio::task::JoinSet;
use tracing::info;

use super::keeper::Keeper;
use crate::live::keys::Keys;
use crate::runtime::controller::{Terms, beside_watches};
use crate::runtime::kit::Kit;

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub struct Keeping {
    /// The parts that every controller needs.
    pub kit: Kit,
    /// The keys of the seals.
    pub keys: Arc<Keys>,
    /// The namespaces to work in.
    pub scope: Scope,
    /// The longest time between two looks at who uses what was brought back.
    pub period: Duration,
}

impl Terms for Keeping {
    async fn term(self) {
        info!("keeping ConfigMaps that are in use");
        let namespaces = self.scope.watched();
        let resync_period = self.kit.resync_period;
        let keeper = Keeper::new(self.kit, self.scope, self.keys, self.period);
        let keeper = Arc::new(keeper);
        let watches = || {
            let all = namespaces.iter().cloned();
            all.map(|namespace| keeper.clone().watch(namespace))
                .collect::<JoinSet<_>>()
        };
        beside_watches(keeper.worker.run(&keeper), resync_period, watches).await;
    }
}
