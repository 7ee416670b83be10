//! Sets up the log.

use pod_reloader_settings::LogFormat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Sends events of `level` and above to standard error.
///
/// Libraries that see answers of the apiserver are silenced at every level: kube logs a body that it cannot
/// read, and the body may be a Secret.
pub(crate) fn init(format: LogFormat, level: Level) {
    let layer = layer(format, std::io::stderr);
    tracing_subscriber::registry()
        .with(layer.with_filter(filter(level)))
        .init();
}

/// Returns what writes each event as one line.
fn layer<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    match format {
        LogFormat::Text => fmt::layer()
            .with_ansi(false)
            .map_event_format(OneLine)
            .with_writer(writer)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(writer)
            .boxed(),
    }
}

/// A text format that escapes line breaks and control characters. Names and messages can come from anyone who writes
/// objects, and must not look like events of their own. JSON has escapes of its own.
struct OneLine<F>(F);

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut text = String::new();
        self.0
            .format_event(context, Writer::new(&mut text), event)?;
        for character in text.strip_suffix('\n').unwrap_or(&text).chars() {
            match character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
                true => write!(writer, "{}", character.escape_default())?,
                false => writer.write_char(character)?,
            }
        }
        writer.write_char('\n')
    }
}

fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        // A target is a beginning of names: the first one stands for all crates that are named after the operator.
        .with_targets(["pod_reloader", "webhook_certs"].map(|own| (own, level)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt;
    use pod_reloader_api::FieldBinding;
    use serde_json::Value;
    use tracing::warn;
    use tracing_subscriber::Registry;

    /// Returns what the log has in this format after `logs`.
    fn written(format: LogFormat, logs: impl FnOnce()) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let layer = layer::<Registry, _>(format, file.reopen().unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), logs);
        std::fs::read_to_string(file.path()).unwrap()
    }

    /// A value that would like to be an event of its own.
    const FORGED: &str =
        "x\r\n2026-01-01T00:00:00Z ERROR pod_reloader: forged\u{1b}[1A\u{85}\u{2028}\u{2029}\n";

    #[test]
    fn an_event_is_one_line_of_text_whatever_its_values_are() {
        let logs = || warn!(detail = FORGED, name = %FORGED, debug = ?FORGED, "about {FORGED}");
        let text = written(LogFormat::Text, logs);
        let line = text.strip_suffix('\n').unwrap();
        let breaks = |character: char| {
            character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
        };
        assert!(!line.contains(breaks), "{line:?}");
        assert_eq!(line.matches("forged").count(), 4, "{line}");
    }

    #[test]
    fn an_event_is_one_line_of_json_with_the_values_as_they_are() {
        let logs = || warn!(detail = FORGED, name = %FORGED, "refused");
        let text = written(LogFormat::Json, logs);
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        for (field, value) in [("message", "refused"), ("detail", FORGED), ("name", FORGED)] {
            assert_eq!(line[field], value);
        }
    }

    /// The path is in the status, in Events and in the log.
    #[test]
    fn the_crd_takes_no_path_of_a_field_with_a_control_character() {
        let crd = serde_json::to_value(FieldBinding::crd()).unwrap();
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fields/items/properties/path/pattern";
        let pattern = crd.pointer(path).and_then(Value::as_str).unwrap();
        let pattern = regex::Regex::new(pattern).unwrap();
        let characters = ["", "\u{e4}", "\n", "\r", "\u{1b}", "\u{7f}", "\u{85}"];
        for character in characters {
            let is_taken = !character.contains(char::is_control);
            for path in [
                format!("spec.x{character}"),
                format!("spec[x{character}]"),
                format!("spec.a[x{character}=y].b"),
                format!("spec.a[x=y{character}].b"),
            ] {
                assert_eq!(pattern.is_match(&path), is_taken, "{path:?}");
            }
        }
    }

    #[test]
    fn each_crate_of_ours_logs_at_the_level_of_the_settings() {
        for own in [
            "pod_reloader::restart::watch",
            "pod_reloader_live::keys",
            "pod_reloader_controllers::sync::copy",
            "pod_reloader_core::hash",
            "pod_reloader_runtime::leader",
            "webhook_certs",
        ] {
            for level in [Level::ERROR, Level::INFO, Level::DEBUG] {
                let filter = filter(level);
                assert!(filter.would_enable(own, &level), "{own}");
                assert!(!filter.would_enable(own, &Level::TRACE), "{own}");
            }
        }
    }

    #[test]
    fn no_level_makes_a_library_log_what_it_received() {
        let filter = filter(Level::TRACE);
        assert!(!filter.would_enable("kube_client::client", &Level::ERROR));
        assert!(!filter.would_enable("kube_runtime::watcher", &Level::ERROR));
    }
}
