//! The manifest of a ConfigMap of ours that has the content of another one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::reference::ConfigKind;

/// The data of a ConfigMap, as the apiserver sends it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Data<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) binary_data: Option<&'a RawValue>,
}

/// Returns a ConfigMap with this metadata and data, as JSON.
pub(crate) fn config_map(metadata: Value, is_immutable: bool, data: Data<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest<'a> {
        api_version: &'static str,
        kind: &'static str,
        metadata: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        immutable: Option<bool>,
        #[serde(flatten)]
        data: Data<'a>,
    }
    let manifest = Manifest {
        api_version: "v1",
        kind: ConfigKind::ConfigMap.as_str(),
        metadata,
        immutable: is_immutable.then_some(true),
        data,
    };
    serde_json::to_vec(&manifest).expect("its keys are texts")
}
