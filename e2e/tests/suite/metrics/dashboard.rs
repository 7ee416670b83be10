//! The dashboard: its panels stand side by side, and the chart renders it unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use pod_reloader_e2e::chart;
use serde_json::{Value, json};

use super::queries::{Expression, words_after};
use crate::chart::template;

#[test]
fn panels_of_the_dashboard_stand_side_by_side() -> Result<()> {
    let Dashboard { panels, .. } = dashboard()?;
    let mut taken = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in &panels {
        let title = panel["title"].as_str().context("a panel has a title")?;
        ensure!(
            ids.insert(panel["id"].as_u64().context("a panel has an id")?),
            "{title}"
        );
        let at = |what: &str| {
            panel["gridPos"][what]
                .as_u64()
                .with_context(|| format!("{what} of {title}"))
        };
        let (x, y, w, h) = (at("x")?, at("y")?, at("w")?, at("h")?);
        ensure!(w > 0 && h > 0 && x + w <= 24, "{title} is {w} wide at {x}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            if let Some(other) = taken.insert(place, title) {
                bail!("{title} covers {other} at {place:?}");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        ensure!(panel["description"].is_string(), "{title} is not explained");
        let targets = panel["targets"].as_array().context("a panel has targets")?;
        let names: BTreeSet<_> = targets.iter().map(|it| it["refId"].as_str()).collect();
        ensure!(
            !targets.is_empty() && names.len() == targets.len(),
            "{title}: {names:?}"
        );
        for it in targets.iter().chain([panel]) {
            ensure!(
                it["datasource"]["uid"] == "${datasource}",
                "{title} names a data source"
            );
        }
    }
    Ok(())
}

#[test]
fn the_dashboard_is_installed_verbatim_and_only_if_it_is_enabled() -> Result<()> {
    let shown = ["--show-only=templates/dashboard.yaml"];
    ensure!(template(&shown).is_err(), "nobody asked for it");
    let set = ["--set=grafanaDashboard.enabled=true", shown[0]];
    let object: Value = serde_saphyr::from_str(&template(&set)?)?;
    ensure!(
        object["metadata"]["labels"]["grafana_dashboard"] == "1",
        "{object}"
    );
    let text = object["data"]["pod-reloader.json"]
        .as_str()
        .context("it has no dashboard")?;
    ensure!(text == fs::read_to_string(dashboard_file())?);
    Ok(())
}

pub(super) struct Dashboard {
    panels: Vec<Value>,
    pub(super) queries: Vec<Expression>,
}

pub(super) fn dashboard() -> Result<Dashboard> {
    let text = fs::read_to_string(dashboard_file())?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let list = |value: &Value| value.as_array().cloned().context("a list");
    let panels = list(&dashboard["panels"])?;
    let mut queries = Vec::new();
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
    {
        let text = |what: &str| target[what].as_str().with_context(|| target.to_string());
        queries.push(Expression {
            text: text("expr")?.to_owned(),
            shown_labels: words_after(text("legendFormat")?, "{{"),
        });
    }
    let variables = list(&dashboard["templating"]["list"])?;
    let sources = variables.iter().filter(|it| it["type"] == "datasource");
    let sources: Vec<_> = sources.map(|it| (&it["name"], &it["query"])).collect();
    ensure!(
        sources == [(&json!("datasource"), &json!("prometheus"))],
        "{sources:?}"
    );
    for variable in variables.iter().filter(|it| it["type"] == "query") {
        let asked = variable["query"]["query"].as_str().unwrap_or_default();
        let inner = asked
            .strip_prefix("label_values(")
            .and_then(|it| it.strip_suffix(')'));
        let (text, label) = inner
            .and_then(|it| it.split_once(", "))
            .context(asked.to_owned())?;
        queries.push(Expression {
            text: text.to_owned(),
            shown_labels: vec![label.to_owned()],
        });
    }
    Ok(Dashboard { panels, queries })
}

fn dashboard_file() -> PathBuf {
    chart().join("dashboards/pod-reloader.json")
}
