//! What the chart says of itself to those who look for one.

use std::fs;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::chart;
use serde_json::{Value, json};

#[test]
fn the_described_definitions_are_those_of_the_chart() -> Result<()> {
    let metadata = fs::read_to_string(chart().join("Chart.yaml"))?;
    let metadata: Value = serde_saphyr::from_str(&metadata)?;
    let described = metadata["annotations"]["artifacthub.io/crds"].as_str();
    let mut described: Vec<Value> = serde_saphyr::from_str(described.context("an annotation")?)?;
    for entry in fs::read_dir(chart().join("files"))? {
        let definition = fs::read(entry?.path())?;
        let definition: Value = serde_json::from_slice(&definition)?;
        let kind = &definition["spec"]["names"]["kind"];
        let version = &definition["spec"]["versions"][0];
        let expected = json!({
            "kind": kind,
            "version": version["name"],
            "name": definition["metadata"]["name"],
            "displayName": kind,
            "description": version["schema"]["openAPIV3Schema"]["description"],
        });
        let count = described.len();
        described.retain(|it| *it != expected);
        ensure!(described.len() + 1 == count, "{expected} in {described:?}");
    }
    ensure!(described.is_empty(), "{described:?}");
    Ok(())
}
