//! The metrics of FieldBindings.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use pod_reloader_core::field_binding::outcome::REASONS;

use crate::runtime::controller::TermMetrics;
use crate::runtime::counted::{Counted, Label};

/// The metrics of this controller. They are shown only where it is switched on.
#[derive(Clone, Default)]
pub(super) struct BindMetrics {
    /// FieldBindings, by the reason of their condition.
    bindings: Family<[(&'static str, &'static str); 1], Gauge>,
    pub(super) writes: Counted<Written>,
}

/// The result of a write to a custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The fields have their values.
    Applied,
    /// Somebody else has changed the object meanwhile. It is read again.
    Conflict,
    /// The cluster does not accept it.
    Refused,
    /// There was no usable answer.
    Failed,
}

impl Label for Written {
    const NAME: &'static str = "result";
    const ALL: &'static [Self] = &[Self::Applied, Self::Conflict, Self::Refused, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl BindMetrics {
    /// Returns metrics that are shown among `ours`.
    pub(super) fn registered(ours: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.reset();
        ours.register(
            "field_bindings",
            "FieldBindings, by the reason of their condition Ready",
            metrics.bindings.clone(),
        );
        ours.register(
            "field_binding_writes",
            "Writes to custom resources for FieldBindings",
            metrics.writes.family(),
        );
        metrics
    }

    /// Shows how many FieldBindings there are for each reason.
    pub(super) fn show(&self, count: impl Fn(&str) -> usize) {
        for reason in REASONS {
            let gauge = self.bindings.get_or_create(&[("reason", reason)]);
            gauge.set(count(reason) as i64);
        }
    }
}

impl TermMetrics for BindMetrics {
    fn reset(&self) {
        self.show(|_| 0);
    }
}
