//! Mocks for tests: those of the runtime, and what the operator has in addition.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt};

use crate::metrics::Metrics;
use crate::runtime::budget::Budget;
use crate::runtime::events::Events;
use crate::runtime::kit::Kit;
pub(crate) use crate::runtime::mock::*;

/// Returns the parts of a controller, all of whose calls are made by one client.
pub(crate) fn kit(client: &Client, metrics: &Metrics, controller: &'static str) -> Kit {
    let (events, _) = Events::new(client.clone());
    Kit {
        clients: clients(client),
        budget: Budget::new(),
        watches: metrics.watches.clone(),
        events,
        errors: metrics.errors.of(controller),
        resync_period: Duration::from_secs(600),
    }
}

/// Our own log of this thread since it was made, and as long as it exists.
pub(crate) struct Log {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn begin() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let own = Targets::new().with_target("pod_reloader", LevelFilter::TRACE);
        let layer = fmt::layer().with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(own));
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock()).into_owned()
    }
}
