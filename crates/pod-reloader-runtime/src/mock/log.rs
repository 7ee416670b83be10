//! The log that a test looks at.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt};

/// What the operator has logged on this thread since this was made, and as long as it exists.
pub struct Log {
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
    /// Begins with an empty log.
    pub fn begin() -> Self {
        let text = Text::default();
        let writer = text.clone();
        // A target is a beginning of names: this one stands for all crates that are named after the operator.
        let own = Targets::new().with_target("pod_reloader", LevelFilter::TRACE);
        let layer = fmt::layer().with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(own));
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Returns what was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock()).into_owned()
    }
}
