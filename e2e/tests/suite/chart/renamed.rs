//! Values that had another name or other words: the chart refuses the old ones, and names the new ones.

use std::fs;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::chart;
use serde::Deserialize;

use super::template;

/// A row of the chart's table.
#[derive(Deserialize)]
struct Renamed {
    value: String,
    /// The only word that is refused; without one, every word is.
    word: Option<String>,
    now: String,
}

#[test]
fn an_old_name_or_word_is_refused_with_the_new_one() -> Result<()> {
    for Renamed { value, word, now } in table()? {
        let set = format!("{value}={}", word.as_deref().unwrap_or("x"));
        let error = template(&["--set", &set]).err().context(set.clone())?;
        let complaint = format!("is now {now} (docs/values.md#renamed-values)");
        ensure!(format!("{error}").contains(&complaint), "{set}: {error}");
    }
    Ok(())
}

/// As with `--reuse-values`, where the earlier defaults take the place of the chart's.
#[test]
fn what_the_earlier_defaults_lack_hides_no_old_name() -> Result<()> {
    let earlier = "watch.workloadSelector=null,watch.namespaceSelector=null,staged.byDefault=null,\
                   fieldBindings.enabled=null,notifications.send=null,namespaceAnnotations=false,\
                   staged.default=false,notifications.notifyOn=restarts";
    for (reconcile, now) in [("on", "restart"), ("off", "none")] {
        let set = format!("{earlier},reconcile={reconcile}");
        let error = template(&["--set", &set]).err().context(set)?;
        let complaint = format!("reconcile: {reconcile} is now reconcile: {now}");
        ensure!(format!("{error}").contains(&complaint), "{error}");
    }
    Ok(())
}

#[test]
fn every_renamed_value_is_documented() -> Result<()> {
    let page = fs::read_to_string(chart().join("../../docs/values.md"))?;
    let (_, section) = page
        .split_once("\n## Renamed values\n")
        .context("no section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    for Renamed { value, now, .. } in table()? {
        let names_both = |line: &str| line.contains(&value) && line.contains(&format!("`{now}`"));
        ensure!(section.lines().any(names_both), "{value}: {now}");
    }
    Ok(())
}

fn table() -> Result<Vec<Renamed>> {
    let table = fs::read_to_string(chart().join("renamed.yaml"))?;
    Ok(serde_saphyr::from_str(&table)?)
}

/// Somebody who has set up one of these features before, and does not switch it on, must not lose it in silence.
#[test]
fn what_is_set_up_and_not_switched_on_is_refused() -> Result<()> {
    for (set, complaint) in [
        ("flux.namespaces={flux-system}", "set flux.enabled to true"),
        ("argoCD.namespaces={*}", "set argoCD.enabled to true"),
        (
            "notifications.existingSecret=chat",
            "set notifications.enabled to true",
        ),
        (
            "notifications.enabled=true",
            "notifications.enabled needs notifications.existingSecret",
        ),
        (
            "flux.enabled=true,flux.namespaces=null",
            "flux.enabled needs flux.namespaces",
        ),
    ] {
        let error = template(&["--set", set]).err().context(set)?;
        ensure!(format!("{error}").contains(complaint), "{set}: {error}");
    }
    Ok(())
}
