//! Restarts that are held up: by a halt, or by a restart window that is closed.

use anyhow::Result;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, Scene};
use serde_json::json;

use crate::staged::bad_pods::{BAD, refuses_bad_pods};
use crate::staged::{STAGE, web};

/// Annotation with the times in which a workload may be restarted.
pub(crate) const RESTART_WINDOW: &str = "pod-reloader.cs.sap.com/restart-window";

/// What holds up the restarts of all workloads that track ConfigMap `app`.
#[derive(Clone, Copy)]
pub(crate) enum HeldUp {
    /// The workload that goes first has failed.
    ByHalt,
    /// The restart window of each is closed.
    ByWindow,
}

impl HeldUp {
    /// Returns options with which restarts are staged, if that matters.
    pub(crate) fn options(self) -> Options {
        Options::with_values(match self {
            Self::ByHalt => json!({"staged": {"byDefault": "configmaps", "soak": "1s"}}),
            Self::ByWindow => json!(null),
        })
    }

    /// Returns a workload that will be held up, and that also tracks a ConfigMap of its own name.
    pub(crate) fn among(self, workload: Workload) -> Workload {
        let config_maps = format!("{},app", workload.name);
        let workload = workload.lists(&config_maps);
        match self {
            Self::ByHalt => workload,
            Self::ByWindow => workload.annotated(RESTART_WINDOW, &closed_window()),
        }
    }

    /// Changes ConfigMap `app`, and waits until all of these workloads say that they wait.
    pub(crate) async fn begins(self, scene: &Scene, all: &[Workload]) -> Result<()> {
        let (value, reason) = match self {
            Self::ByHalt => {
                let first = web("first").annotated(STAGE, "0");
                scene.create(&first).await?;
                scene.rolled_out(&first).await?;
                refuses_bad_pods(scene).await?;
                (BAD, "RestartHalted")
            }
            Self::ByWindow => ("2", "RestartPending"),
        };
        scene.apply(&[config_map("app", value)]).await?;
        for workload in all {
            scene.event(workload, reason).await?;
        }
        Ok(())
    }
}

/// Returns a window that is not open now, and does not open during a test.
pub(crate) fn closed_window() -> String {
    window(10)
}

/// Returns a window that is open now, and does not close during a test.
pub(crate) fn open_window() -> String {
    window(-1)
}

/// Returns a window that opens in so many hours, and closes two hours later.
fn window(hours: i64) -> String {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let at = |hours: i64| {
        now.saturating_add(Span::new().hours(hours))
            .strftime("%H:%M")
            .to_string()
    };
    format!("{}-{} UTC", at(hours), at(hours + 2))
}
