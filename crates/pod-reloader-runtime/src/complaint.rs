//! Prevents the log from repeating the same failure.

use pod_reloader_core::error::chain;
use tracing::warn;

/// A failure that is logged once, and not again each time it repeats.
#[derive(Default)]
pub struct Complaint(Option<String>);

impl Complaint {
    /// Logs `error`, unless it was the last one logged.
    pub fn warn(&mut self, error: &dyn std::error::Error, consequence: &'static str) {
        let text = chain(error);
        if self.0.as_ref() != Some(&text) {
            warn!(error = text, "{consequence}");
            self.0 = Some(text);
        }
    }

    /// Notes that the failure is over.
    pub fn settled(&mut self) {
        self.0 = None;
    }
}
