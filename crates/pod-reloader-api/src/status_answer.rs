//! The answer to a status query, as data for programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of a [`StatusAnswer`]. New fields and new words leave it as it is: readers skip fields that they
/// do not know, and show words that they do not know as they are. A field that changes its meaning needs another version.
pub const STATUS_ANSWER_VERSION: u32 = 1;

/// The sync status of a workload, and what its restart waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusAnswer {
    /// The version of this form: see [`STATUS_ANSWER_VERSION`].
    pub version: u32,
    /// `Current`, `RestartDue`, `MissingConfig`, `BaselineDue`, `NotManaged` or `Unknown`.
    pub status: String,
    /// The cause of a restart that is due: `Changed`, `ChangedBeforeTakeover`, `FirstHash`, `FirstPins` or `Rotated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The digits by which users name the content that is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The version of the replica that answers.
    pub operator: String,
    /// The time at which the certificate of that replica expires, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<String>,
    /// The time of the answer, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<String>,
    /// True if the replica that answers runs the loop. Another one knows only what the workload and its objects show.
    #[serde(default)]
    pub leads: bool,
    /// The reason why the workload is not restarted yet, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Waiting>,
}

/// The reason why a restart that is due waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The reason of the Event about it, such as `WaitingForStage`.
    pub reason: String,
    /// True if it is a problem: the Event about it is a warning.
    #[serde(default)]
    pub is_problem: bool,
    /// The objects for which the workload waits, or which hold it back: three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<NamedObject>,
    /// The workload for which it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<NamedObject>,
    /// The release for which it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<NamedObject>,
    /// The time at which the wait ends, in RFC 3339, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The sentence of the Event, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The kind and the name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedObject {
    /// The kind, such as `Deployment`. A release of Helm has the kind `HelmRelease`.
    pub kind: String,
    /// The namespace, if it is known and the object can be in another one than the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_documented_fields_are_those_of_the_schema() {
        let page = include_str!("../../../docs/kubectl.md");
        let mut names = Vec::new();
        let schema = schemars::schema_for!(StatusAnswer).to_value();
        let definitions = schema["$defs"].as_object().into_iter().flatten();
        for part in definitions.map(|(_, part)| part).chain([&schema]) {
            names.extend(part["properties"].as_object().unwrap().keys());
        }
        assert!(names.len() > 15, "{names:?}");
        let is_missing = |name: &&&String| !page.contains(&format!("`{name}`"));
        let missing: Vec<_> = names.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_field_of_a_newer_version_is_skipped() {
        let newer = json!({
            "version": 1, "status": "OnHoliday", "operator": "9.0.0", "mood": {"is": "good"},
            "waitsFor": {"reason": "WaitingForSpring", "season": ["winter"]},
        });
        let answer: StatusAnswer = serde_json::from_value(newer).unwrap();
        assert_eq!(answer.waits_for.unwrap().reason, "WaitingForSpring");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let answer = StatusAnswer {
            version: STATUS_ANSWER_VERSION,
            status: "Current".to_owned(),
            operator: "0.1.0".to_owned(),
            ..StatusAnswer::default()
        };
        let written: Value = serde_json::to_value(&answer).unwrap();
        let expected =
            json!({"version": 1, "status": "Current", "operator": "0.1.0", "leads": false});
        assert_eq!(written, expected);
    }
}
