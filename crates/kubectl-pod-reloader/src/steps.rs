//! The steps in which workloads restart if their restarts are staged.

use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::stages::{Due, steps};
use pod_reloader_core::staging::Health;
use pod_reloader_core::workload::WorkloadId;
use serde::Serialize;

use crate::gates;
use crate::workloads::Seen;

/// The heading of the steps in an answer.
pub(crate) const HEADING: &str = "In steps, each when the one before has been healthy for its soak";

/// A workload that a change restarts, and its place in the stages.
#[derive(Debug)]
pub(crate) struct Restarted {
    id: WorkloadId,
    /// `None` if its restart is not staged.
    stage: Option<i32>,
    is_healthy: bool,
    /// True if others wait for it.
    counts: bool,
}

/// The order of restarts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Steps {
    /// Workloads whose restarts are not staged.
    at_once: Vec<String>,
    /// The others. Each step begins when the one before has been healthy for its soak.
    steps: Vec<Vec<String>>,
}

impl Restarted {
    /// Returns the place of a workload that changes of objects of these kinds restart. `None` if its users have to
    /// open a gate first.
    pub(crate) fn of(seen: &Seen<'_>, mut kinds: impl Iterator<Item = ConfigKind>) -> Option<Self> {
        let workload = &seen.workload;
        if workload
            .rare()
            .gates
            .as_deref()
            .is_some_and(gates::need_somebody)
        {
            return None;
        }
        let staging = workload.staged();
        let staging = staging.filter(|it| kinds.any(|kind| it.staged.includes(kind)));
        let health = staging.map_or(Health::Unknown, |it| it.health);
        Some(Self {
            id: (*workload.id).clone(),
            stage: staging.map(|it| it.stage),
            is_healthy: health == Health::Healthy,
            counts: health != Health::Unknown && workload.stall.is_none(),
        })
    }
}

impl Steps {
    /// Returns `None` if no restart is staged.
    pub(crate) fn of<'a>(restarted: impl Iterator<Item = &'a Restarted>) -> Option<Self> {
        let mut at_once = Vec::new();
        let mut staged = Vec::new();
        for it in restarted {
            match it.stage {
                None => at_once.push(named(&it.id)),
                Some(stage) => staged.push(Due {
                    id: &it.id,
                    stage,
                    is_healthy: it.is_healthy,
                    counts: it.counts,
                }),
            }
        }
        let names = |step: Vec<&WorkloadId>| step.into_iter().map(named).collect();
        let steps: Vec<_> = steps(&staged).into_iter().map(names).collect();
        (!steps.is_empty()).then_some(Self { at_once, steps })
    }

    /// Returns the lines of the text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let at_once = match &*self.at_once {
            [] => None,
            names => Some(format!("at once: {}", names.join(", "))),
        };
        let steps = self.steps.iter().zip(1..);
        let steps = steps.map(|(names, number)| format!("{number}. {}", names.join(", ")));
        at_once.into_iter().chain(steps).collect()
    }
}

fn named(id: &WorkloadId) -> String {
    format!("{} {}", id.kind, id.name)
}
