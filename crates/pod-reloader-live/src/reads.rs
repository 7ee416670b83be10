//! Counts the reads of config objects.

use pod_reloader_core::digest::Presence;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::runtime::error::CallError;

type Labels = [(&'static str, &'static str); 3];

/// A part that reads config objects.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// The webhook.
    Admission,
    /// The reconcile loop.
    Reconcile,
}

/// Counts the reads of all readers. All series are shown from the start. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct AllReads(Family<Labels, Counter>);

impl Default for AllReads {
    fn default() -> Self {
        let all = Self(Family::default());
        for by in [Reader::Admission, Reader::Reconcile] {
            for (verb, result) in READS {
                drop(all.0.get_or_create(&labels(by, verb, result)));
            }
        }
        all
    }
}

impl AllReads {
    /// Returns the metric, to be registered.
    pub fn family(&self) -> Family<Labels, Counter> {
        self.0.clone()
    }

    /// Returns the counters of one reader.
    pub fn by(&self, by: Reader) -> Reads {
        Reads {
            counted: self.0.clone(),
            by,
        }
    }
}

/// Counts the reads of one reader.
#[derive(Clone, Debug)]
pub struct Reads {
    counted: Family<Labels, Counter>,
    by: Reader,
}

impl Reads {
    /// Counts a GET of one object.
    pub(crate) fn get(&self, read: Result<&Presence, &CallError>) {
        self.count(match read {
            Ok(Presence::Present(_)) => READS[0],
            Ok(Presence::Absent) => READS[1],
            Err(_) => READS[2],
        });
    }

    /// Counts a LIST of names, or a page of one.
    pub(crate) fn list<T>(&self, listed: &Result<T, CallError>) {
        self.count(match listed {
            Ok(_) => READS[3],
            Err(_) => READS[4],
        });
    }

    fn count(&self, (verb, result): (&'static str, &'static str)) {
        let labels = labels(self.by, verb, result);
        self.counted.get_or_create(&labels).inc();
    }
}

/// The verbs and results that [`Reads`] distinguishes.
const READS: [(&str, &str); 5] = [
    ("get", "present"),
    ("get", "absent"),
    ("get", "error"),
    ("list", "listed"),
    ("list", "error"),
];

fn labels(by: Reader, verb: &'static str, result: &'static str) -> Labels {
    let by = match by {
        Reader::Admission => "admission",
        Reader::Reconcile => "reconcile",
    };
    [("by", by), ("verb", verb), ("result", result)]
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn all_series_are_shown_before_the_first_read() {
        let mut registry = Registry::default();
        registry.register("reads", "Reads", AllReads::default().family());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for by in ["admission", "reconcile"] {
            for (verb, result) in READS {
                let labels = format!(r#"by="{by}",verb="{verb}",result="{result}""#);
                let series = format!("reads_total{{{labels}}} 0\n");
                assert!(text.contains(&series), "{series} is not in\n{text}");
            }
        }
    }
}
