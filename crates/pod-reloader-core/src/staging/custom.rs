//! The health of a custom resource, by the conventions that most of their controllers follow.

use serde_json::value::RawValue;

use super::Health;
use crate::raw::{at, elements, read_as};

/// What the conditions say.
#[derive(Default)]
struct Conditions {
    ready: Option<Condition>,
    is_available: Option<bool>,
    /// True if one says that the controller is at work, or that it is stuck.
    is_rolling: bool,
}

/// The condition `Ready`.
struct Condition {
    is_true: bool,
    observed_generation: Option<i64>,
}

impl Conditions {
    /// Reads conditions. They may be anything in the status of somebody else's kind: what cannot be read is skipped.
    fn of(conditions: &RawValue) -> Self {
        let mut found = Self::default();
        for condition in elements(conditions.get()).into_iter().flatten() {
            found.add(condition);
        }
        found
    }

    fn add(&mut self, condition: &RawValue) {
        let text = |name: &str| read_as::<String>(at(condition, &[name])?);
        let (Some(name), Some(status)) = (text("type"), text("status")) else {
            return;
        };
        let is_true = status == "True";
        match &*name {
            "Ready" if self.ready.is_none() => {
                let observed_generation = at(condition, &["observedGeneration"]).and_then(number);
                self.ready = Some(Condition {
                    is_true,
                    observed_generation,
                });
            }
            "Available" => self.is_available = self.is_available.or(Some(is_true)),
            "Reconciling" | "Stalled" => self.is_rolling |= is_true,
            _ => {}
        }
    }
}

/// Returns the health of a custom resource with this status. Without an observed generation, the status may be
/// that of an earlier spec, so it says nothing.
pub(super) fn health(status: &RawValue, generation: i64) -> Health {
    let conditions = at(status, &["conditions"]);
    let conditions = conditions.map(Conditions::of).unwrap_or_default();
    let of_status = at(status, &["observedGeneration"]).and_then(number);
    let of_ready = conditions.ready.as_ref();
    let of_ready = of_ready.and_then(|it| it.observed_generation);
    let Some(observed) = of_status.or(of_ready) else {
        return Health::Unknown;
    };
    if observed < generation || conditions.is_rolling {
        return Health::Rolling;
    }
    // The phase, as Argo Rollouts has it.
    let phase = at(status, &["phase"]).and_then(read_as::<String>);
    let is_healthy = match (conditions.ready, phase.as_deref(), conditions.is_available) {
        (Some(ready), ..) => ready.is_true,
        (None, Some("Healthy"), _) => true,
        (None, Some("Progressing" | "Paused" | "Degraded"), _) => false,
        (None, _, Some(is_available)) => is_available,
        (None, _, None) => return Health::Unknown,
    };
    match is_healthy {
        true => Health::Healthy,
        false => Health::Rolling,
    }
}

/// Reads a number. Argo Rollouts writes it as a string.
fn number(value: &RawValue) -> Option<i64> {
    read_as(value).or_else(|| read_as::<String>(value)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn health_of(status: Value) -> Health {
        let status = RawValue::from_string(status.to_string()).unwrap();
        health(&status, 7)
    }

    fn ready(status: &str) -> Value {
        json!([{"type": "Other", "status": "False"}, {"type": "Ready", "status": status}])
    }

    #[test]
    fn a_custom_resource_is_healthy_when_it_says_so_of_its_present_spec() {
        for (status, expected) in [
            (
                json!({"observedGeneration": 7, "conditions": ready("True")}),
                Health::Healthy,
            ),
            (
                json!({"observedGeneration": 6, "conditions": ready("True")}),
                Health::Rolling,
            ),
            (
                json!({"observedGeneration": 7, "conditions": ready("False")}),
                Health::Rolling,
            ),
            (
                json!({"observedGeneration": 7, "conditions": ready("Unknown")}),
                Health::Rolling,
            ),
            // It may speak of an earlier spec.
            (json!({"conditions": ready("True")}), Health::Unknown),
            (
                json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 7}]}),
                Health::Healthy,
            ),
            (
                json!({"observedGeneration": 7, "conditions": [
                    {"type": "Ready", "status": "True"}, {"type": "Reconciling", "status": "True"},
                ]}),
                Health::Rolling,
            ),
            (
                json!({"observedGeneration": 7, "conditions": [{"type": "Available", "status": "True"}]}),
                Health::Healthy,
            ),
            // Argo Rollouts.
            (
                json!({"observedGeneration": "7", "phase": "Healthy"}),
                Health::Healthy,
            ),
            (
                json!({"observedGeneration": "6", "phase": "Healthy"}),
                Health::Rolling,
            ),
            (
                json!({"observedGeneration": "7", "phase": "Paused"}),
                Health::Rolling,
            ),
            (
                json!({"observedGeneration": "7", "phase": "Degraded"}),
                Health::Rolling,
            ),
            // It says nothing that is known.
            (
                json!({"observedGeneration": 7, "phase": "Fine"}),
                Health::Unknown,
            ),
            (json!({"observedGeneration": 7}), Health::Unknown),
            (
                json!({"observedGeneration": {}, "conditions": ready("True")}),
                Health::Unknown,
            ),
            (
                json!({"observedGeneration": 7, "conditions": "none", "phase": 3}),
                Health::Unknown,
            ),
            (json!("fine"), Health::Unknown),
            (json!(null), Health::Unknown),
        ] {
            assert_eq!(health_of(status.clone()), expected, "{status}");
        }
    }
}
