//! Sets up the log, and prevents it from repeating the same failure.

use tracing::{Level, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use pod_reloader_core::error::chain;
use pod_reloader_settings::LogFormat;

/// Sends events of `level` and above to standard error.
///
/// Libraries that see answers of the apiserver are silenced at every level: kube logs a body that it cannot
/// read, and the body may be a Secret.
pub(crate) fn init(format: LogFormat, level: Level) {
    let layer = match format {
        LogFormat::Text => fmt::layer()
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter(level)))
        .init();
}

fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(
            ["pod_reloader", "pod_reloader_core", "webhook_certs"].map(|own| (own, level)),
        )
        .with_targets(
            [
                "kube_client",
                "kube_runtime",
                "hyper",
                "hyper_util",
                "h2",
                "tower",
                "rustls",
            ]
            .map(|name| (name, LevelFilter::OFF)),
        )
}

/// A failure that is logged once, and not again each time it repeats.
#[derive(Default)]
pub(crate) struct Complaint(Option<String>);

impl Complaint {
    /// Logs `error`, unless it was the last one logged.
    pub(crate) fn warn(&mut self, error: &dyn std::error::Error, consequence: &'static str) {
        let text = chain(error);
        if self.0.as_ref() != Some(&text) {
            warn!(error = text, "{consequence}");
            self.0 = Some(text);
        }
    }

    /// Notes that the failure is over.
    pub(crate) fn settled(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_makes_a_library_log_what_it_received() {
        let filter = filter(Level::TRACE);
        assert!(filter.would_enable("pod_reloader::watch", &Level::TRACE));
        assert!(!filter.would_enable("kube_client::client", &Level::ERROR));
        assert!(!filter.would_enable("kube_runtime::watcher", &Level::ERROR));
    }
}
