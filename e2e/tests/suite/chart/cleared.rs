//! The lists of kinds by which the harness deletes what the chart renders are complete.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{OF_A_RELEASE, OF_THE_CLUSTER};
use serde_json::Value;

use super::goldens::{Rendering, renderings};

/// Kinds that the chart renders and that `delete_release` leaves.
const LEFT: [(&str, &str); 6] = [
    // It stays, as with Helm: all scenes share the definitions.
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    // Tests delete all of a namespace.
    ("v1", "ConfigMap"),
    // No Prometheus Operator runs that would act on these.
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
    // The pod of `helm test`, which Helm deletes once it has succeeded.
    ("v1", "Pod"),
];

#[test]
fn every_kind_that_the_chart_renders_goes_with_its_release_or_stays_for_a_reason() -> Result<()> {
    let mut rendered = BTreeSet::new();
    for Rendering { name, text } in renderings()? {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        for object in objects.iter().filter(|it| !it.is_null()) {
            let kind = object["kind"].as_str();
            let kind = kind.with_context(|| format!("{name}: no kind: {object}"))?;
            let version = object["apiVersion"].as_str();
            let version = version.with_context(|| format!("{name}: no version: {object}"))?;
            let deleted: &[(&str, &str)] = match object["metadata"]["namespace"].is_null() {
                true => &OF_THE_CLUSTER,
                false => &OF_A_RELEASE,
            };
            let mut known = deleted.iter().chain(&LEFT);
            let is_known = known.any(|of| *of == (version, kind));
            ensure!(is_known, "{name}: nothing deletes {version} {kind}");
            rendered.insert((version.to_owned(), kind.to_owned()));
        }
    }
    let known = OF_THE_CLUSTER.iter().chain(&OF_A_RELEASE).chain(&LEFT);
    for (version, kind) in known {
        let is_rendered = rendered.contains(&((*version).to_owned(), (*kind).to_owned()));
        ensure!(is_rendered, "nothing renders {version} {kind}");
    }
    Ok(())
}
