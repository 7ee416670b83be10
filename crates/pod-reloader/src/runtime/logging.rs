//! Sets up the log, and keeps it from saying the same again and again.

use tracing::{Level, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use pod_reloader_core::error::chain;
use pod_reloader_settings::LogFormat;

/// Sends events of `level` and above to standard error.
///
/// The libraries that see answers of the apiserver are kept quiet whatever the level: kube logs a
/// body that it cannot read, and the body may be a Secret.
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

/// A failure that is told once, and not at each look.
#[derive(Default)]
pub(crate) struct Complaint(Option<String>);

impl Complaint {
    /// Tells of `error`, unless that was the last thing told.
    pub(crate) fn warn(&mut self, error: &dyn std::error::Error, consequence: &'static str) {
        let text = chain(error);
        if self.0.as_ref() != Some(&text) {
            warn!(error = text, "{consequence}");
            self.0 = Some(text);
        }
    }

    /// Nothing to complain about any more.
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
