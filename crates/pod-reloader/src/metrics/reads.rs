//! Counts the reads of config objects.

use pod_reloader_core::digest::Presence;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Labels;
use crate::runtime::error::CallError;

/// A part that reads config objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// The webhook.
    Admission,
    /// The reconcile loop.
    Reconcile,
}

/// Counts the reads of one reader.
#[derive(Clone)]
pub(crate) struct Reads {
    pub(super) counted: Family<Labels<3>, Counter>,
    pub(super) by: Reader,
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
        let labels = read_labels(self.by, verb, result);
        self.counted.get_or_create(&labels).inc();
    }
}

/// The verbs and results that [`Reads`] distinguishes.
pub(super) const READS: [(&str, &str); 5] = [
    ("get", "present"),
    ("get", "absent"),
    ("get", "error"),
    ("list", "listed"),
    ("list", "error"),
];

pub(super) fn read_labels(by: Reader, verb: &'static str, result: &'static str) -> Labels<3> {
    let by = match by {
        Reader::Admission => "admission",
        Reader::Reconcile => "reconcile",
    };
    [("by", by), ("verb", verb), ("result", result)]
}
