//! Collects what the operator's Events say of each workload.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_reloader_core::name::Name;

use crate::cluster::{Cluster, Unseen};
use crate::events::{self, Event};

/// What Events say, by workload.
#[derive(Debug, Default)]
pub(super) struct Reports(BTreeMap<String, OneReport>);

/// The Events of one workload, as far as they matter.
#[derive(Debug)]
struct OneReport {
    latest: Event,
    restarted: Option<Timestamp>,
}

impl Reports {
    /// Reads the Events of a namespace, or of all.
    pub(super) async fn read(cluster: &Cluster, namespace: Option<&Name>) -> Result<Self, Unseen> {
        let mut reports = Self::default();
        let namespace = namespace.map(Name::as_str);
        events::each(cluster, namespace, "", |event| reports.add(event)).await?;
        Ok(reports)
    }

    fn add(&mut self, event: Event) {
        let restarted = event.is_of_a_hash().then_some(event.at);
        match self.0.get_mut(&event.about) {
            Some(known) => {
                known.restarted = known.restarted.max(restarted);
                if event.at > known.latest.at {
                    known.latest = event;
                }
            }
            None => {
                let about = event.about.clone();
                let latest = event;
                self.0.insert(about, OneReport { latest, restarted });
            }
        }
    }

    /// Returns the newest Event about a workload: `Deployment shop/web`.
    pub(super) fn latest(&self, about: &str) -> Option<&Event> {
        self.0.get(about).map(|report| &report.latest)
    }

    /// Returns the time of the newest Event about a restart.
    pub(super) fn restarted(&self, about: &str) -> Option<Timestamp> {
        self.0.get(about)?.restarted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_event_counts_in_whatever_order_they_come() {
        let event = |second: i64, reason: &str| Event {
            at: Timestamp::from_second(second).unwrap(),
            reason: reason.to_owned(),
            message: String::new(),
            is_warning: false,
            about: "Deployment shop/web".to_owned(),
            related: None,
        };
        let mut reports = Reports::default();
        for (second, reason) in [
            (2, "ConfigChanged"),
            (4, "WaitingForStage"),
            (1, "ConfigChanged"),
            (3, "RestartPending"),
        ] {
            reports.add(event(second, reason));
        }
        let latest = reports.latest("Deployment shop/web").unwrap();
        assert_eq!(latest.reason, "WaitingForStage");
        let restarted = reports.restarted("Deployment shop/web");
        assert_eq!(restarted, Some(Timestamp::from_second(2).unwrap()));
        assert_eq!(reports.latest("Deployment shop/api"), None);
    }
}
