//! What a controller works with, whatever it does.

use std::time::Duration;

use crate::runtime::budget::Budget;
use crate::runtime::calls::Calls;
use crate::runtime::client::Clients;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::events::Events;
use crate::runtime::watch_age::Watches;

/// The parts that every controller needs. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Kit {
    pub(crate) clients: Clients,
    /// Grants turns to long objects that are read.
    pub(crate) budget: Budget,
    pub(crate) watches: Watches,
    pub(crate) events: Events,
    /// The failures of this controller.
    pub(crate) errors: ControllerErrors,
    /// The period after which everything is listed again.
    pub(crate) resync_period: Duration,
}

impl Kit {
    /// Returns the calls about single objects.
    pub(crate) fn calls(&self) -> Calls {
        Calls::new(self.clients.reconcile.clone(), self.budget.clone())
    }
}
