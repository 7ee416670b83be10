//! What a controller works with, whatever it does.

use std::time::Duration;

use crate::budget::Budget;
use crate::calls::Calls;
use crate::client::Clients;
use crate::controller::ControllerErrors;
use crate::events::Events;
use crate::watch_age::Watches;

/// The parts that every controller needs. Cloning is cheap.
#[derive(Clone)]
pub struct Kit {
    /// The clients of the apiserver.
    pub clients: Clients,
    /// Grants turns to long objects that are read.
    pub budget: Budget,
    /// The running watches of the process.
    pub watches: Watches,
    /// Takes the Events about what the controller does.
    pub events: Events,
    /// The failures of this controller.
    pub errors: ControllerErrors,
    /// The period after which everything is listed again.
    pub resync_period: Duration,
}

impl Kit {
    /// Returns the calls about single objects.
    pub fn calls(&self) -> Calls {
        Calls::new(self.clients.reconcile.clone(), self.budget.clone())
    }
}
