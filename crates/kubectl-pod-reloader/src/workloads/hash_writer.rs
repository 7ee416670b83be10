//! Tells who wrote the config hash of a workload.

use jiff::Timestamp;
use pod_reloader_core::annotations::{CONFIG_HASH, FIELD_MANAGER};
use pod_reloader_core::kind::WorkloadKind;
use serde_json::Value;

/// The writer of a workload's config hash, by its managed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashWriter {
    /// The operator's loop, with the time of its last write of any kind. The webhook may have written later.
    Operator(Option<Timestamp>),
    /// Somebody else.
    Other {
        /// The field manager.
        manager: String,
        /// True if it applies manifests on the server's side.
        is_applied: bool,
    },
    /// An admission, such as our webhook. The apiserver records no manager for what admissions write.
    Admission,
    /// Nobody can tell.
    Unknown,
}

impl HashWriter {
    /// Reads the managed fields of a workload of this kind.
    pub(super) fn of(kind: WorkloadKind, managed: &Value) -> Self {
        let is_owner = |entry: &&Value| {
            let mut templates = kind.shape().templates.iter();
            templates.any(|template| {
                let path = template.path.iter().chain(&["metadata", "annotations"]);
                owns(&entry["fieldsV1"], path.chain([&CONFIG_HASH]))
            })
        };
        let Some(entries) = managed.as_array().filter(|it| !it.is_empty()) else {
            return Self::Unknown;
        };
        let owners: Vec<_> = entries.iter().filter(is_owner).collect();
        if let Some(own) = owners.iter().find(|it| it["manager"] == FIELD_MANAGER) {
            let at = own["time"].as_str();
            return Self::Operator(at.and_then(|it| it.parse().ok()));
        }
        match owners.first() {
            Some(owner) => Self::Other {
                manager: owner["manager"].as_str().unwrap_or_default().to_owned(),
                is_applied: owner["operation"] == "Apply",
            },
            None => Self::Admission,
        }
    }

    /// Returns the field manager, if there is one.
    pub(crate) fn manager(&self) -> Option<&str> {
        match self {
            Self::Operator(_) => Some(FIELD_MANAGER),
            Self::Other { manager, .. } => Some(manager),
            Self::Admission | Self::Unknown => None,
        }
    }
}

/// Returns true if a set of fields contains the end of the path, or a part of the path as a whole.
fn owns<'a>(fields: &Value, path: impl Iterator<Item = &'a &'a str>) -> bool {
    let mut place = fields;
    for field in path {
        place = &place[format!("f:{field}")];
        if place.as_object().is_some_and(serde_json::Map::is_empty) {
            return true;
        }
    }
    !place.is_null()
}
