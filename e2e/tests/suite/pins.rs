//! Pins: pods use copies of ConfigMaps, which their pod template names.

mod kept;
mod pods;

use pod_reloader_e2e::{Options, merge};
use serde_json::{Value, json};

/// Annotation of a pod template, with the copies that its pods use.
const PINS: &str = "pod-reloader.cs.sap.com/pins";

/// Returns options with pins and these values, and with a webhook that may fail.
fn pinning(values: &Value) -> Options {
    let mut all = json!({"pin": {"enabled": true}});
    merge(&mut all, values);
    Options {
        failure_policy: "Ignore",
        values: all,
        ..Options::default()
    }
}
