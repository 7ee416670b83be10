//! Restraints: what a user has said about when a workload may be restarted.

use pod_reloader_core::gate::{Gates, Hold};
use pod_reloader_core::staging::{Staged, Staging};
use pod_reloader_core::together::Together;
use serde::Serialize;

use super::findings::Findings;
use crate::gates;
use crate::print::Piece;
use crate::workloads::Seen;

/// Stages, holds, approvals and objects that change together, of one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Restraints {
    /// `None` if its restarts are not staged.
    #[serde(skip_serializing_if = "Option::is_none")]
    staging: Option<Stage>,
    /// True if the workload itself or its Namespace is on hold.
    on_hold: bool,
    #[serde(skip)]
    hold: Option<Hold>,
    /// The tracked objects that are on hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held_by: Vec<String>,
    /// The time when the next restart window opens, if restarts are limited to windows and none is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_opens: Option<String>,
    /// The objects that change together.
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<Objects>,
    /// True if each content has to be approved.
    needs_approval: bool,
    /// The digits of the content that is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<String>,
    /// The digits of the content that is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stage {
    stage: i32,
    soak_seconds: f64,
    deadline_seconds: f64,
    /// The objects whose changes are staged.
    changes_of: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Objects {
    objects: String,
    timeout_seconds: f64,
}

impl Restraints {
    pub(super) fn of(seen: &Seen<'_>, findings: &Findings) -> Self {
        let gates = seen.workload.rare().gates.as_deref();
        let (hold, needs_approval, approved) = gates.map_or((None, false, None), |gates| {
            // Without `..`, so that a gate that is added is not left out here.
            let Gates {
                hold,
                needs_approval,
                approved,
                windows: _,
            } = gates;
            (*hold, *needs_approval, approved.as_deref())
        });
        let held_by = gates::holders(seen, &findings.found.objects);
        Self {
            staging: seen.workload.staged().map(Stage::of),
            on_hold: hold.is_some(),
            hold,
            held_by: held_by
                .map(|it| format!("{} {}", it.kind, it.name))
                .collect(),
            window_opens: gates.and_then(gates::next_opening),
            together: seen.workload.rare().together.as_deref().map(Objects::of),
            needs_approval,
            approved: approved.map(ToOwned::to_owned),
            pending: findings.content().map(ToOwned::to_owned),
        }
    }

    /// Returns the lines of the text.
    pub(super) fn fields(&self) -> Vec<(&'static str, Vec<Piece>)> {
        let mut fields = Vec::new();
        if let Some(stage) = &self.staging {
            fields.push(("Stage", vec![stage.words().into()]));
        }
        let own = self.hold.map(|hold| match hold {
            Hold::Workload => "by its own annotation".to_owned(),
            Hold::Namespace => "by its Namespace".to_owned(),
        });
        let others = self.held_by.iter().map(|it| format!("by {it}"));
        let holds: Vec<Piece> = own.into_iter().chain(others).map(Piece::from).collect();
        if !holds.is_empty() {
            fields.push(("On hold", holds));
        }
        if let Some(opens) = &self.window_opens {
            fields.push(("Window", vec![opens.as_str().into()]));
        }
        if let Some(together) = &self.together {
            fields.push(("Together", vec![together.words().into()]));
        }
        if self.needs_approval {
            fields.push(("Approval", vec![self.approval().into()]));
        }
        fields
    }

    fn approval(&self) -> String {
        let approved = self.approved.as_deref();
        match (self.pending.as_deref(), approved) {
            (Some(pending), Some(approved)) if pending == approved => {
                format!("required; content {pending}, which is due, is approved")
            }
            (Some(pending), Some(approved)) => {
                format!("required for content {pending}; approved is {approved}")
            }
            (Some(pending), None) => format!("required for content {pending}"),
            (None, Some(approved)) => format!("required; approved is content {approved}"),
            (None, None) => "required".to_owned(),
        }
    }
}

impl Objects {
    fn of(together: &Together) -> Self {
        Self {
            objects: together.to_string(),
            timeout_seconds: together.timeout.as_secs_f64(),
        }
    }

    fn words(&self) -> String {
        let Self {
            objects,
            timeout_seconds,
        } = self;
        format!(
            "{objects}: when one has changed, the others are waited for, for {timeout_seconds} s at most"
        )
    }
}

impl Stage {
    fn of(staging: &Staging) -> Self {
        Self {
            stage: staging.stage,
            soak_seconds: staging.soak.as_secs_f64(),
            deadline_seconds: staging.deadline.as_secs_f64(),
            changes_of: match staging.staged {
                Staged::ConfigMaps => "ConfigMaps",
                Staged::Nothing | Staged::Everything => "ConfigMaps and Secrets",
            },
        }
    }

    fn words(&self) -> String {
        let Self {
            stage,
            soak_seconds,
            deadline_seconds,
            changes_of,
        } = self;
        format!(
            "{stage}, for changes of {changes_of}: others follow when it has been healthy for {soak_seconds} s, and it may take {deadline_seconds} s to become healthy"
        )
    }
}
