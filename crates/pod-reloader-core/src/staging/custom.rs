//! The health of a custom resource, by the conventions that most of their controllers follow.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Health;

/// The part of the status of a custom resource that says how it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default, deserialize_with = "number")]
    observed_generation: Option<i64>,
    #[serde(default, deserialize_with = "lenient")]
    conditions: Vec<Condition>,
    /// The phase, as Argo Rollouts has it.
    #[serde(default, deserialize_with = "lenient")]
    phase: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
    #[serde(default, deserialize_with = "number")]
    observed_generation: Option<i64>,
}

/// Returns the health of a custom resource with this status. Without an observed generation, the status may be
/// that of an earlier spec, so it says nothing.
pub(super) fn health(status: &RawValue, generation: i64) -> Health {
    let Ok(status) = serde_json::from_str::<Status>(status.get()) else {
        return Health::Unknown;
    };
    let condition = |name: &str| status.conditions.iter().find(|it| it.name == name);
    let is_true = |name: &str| condition(name).is_some_and(|it| it.status == "True");
    let of_ready = condition("Ready").and_then(|it| it.observed_generation);
    let Some(observed) = status.observed_generation.or(of_ready) else {
        return Health::Unknown;
    };
    if observed < generation || is_true("Reconciling") || is_true("Stalled") {
        return Health::Rolling;
    }
    let is_healthy = match (condition("Ready"), &*status.phase, condition("Available")) {
        (Some(ready), ..) => ready.status == "True",
        (None, "Healthy", _) => true,
        (None, "Progressing" | "Paused" | "Degraded", _) => false,
        (None, _, Some(available)) => available.status == "True",
        (None, _, None) => return Health::Unknown,
    };
    match is_healthy {
        true => Health::Healthy,
        false => Health::Rolling,
    }
}

/// Reads a number. Argo Rollouts writes it as a string.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    })
}

/// Reads a field that may be anything in the status of somebody else's kind.
fn lenient<'de, T: Default + serde::de::DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
