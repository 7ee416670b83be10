//! What can be watched: metrics are as they are documented, dashboard and alerts ask for what is there, and
//! every alert has its runbook.

mod exposition;
mod promql;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Attempt, Options, Scene, chart, wait_for};
use serde_json::{Value, json};

use self::exposition::Exposition;
use self::promql::{Query, Selector};
use super::chart::template;

/// What Prometheus adds to what it scrapes.
const OF_TARGETS: [&str; 2] = ["job", "instance"];

#[tokio::test]
async fn the_metrics_are_those_of_the_docs() -> Result<()> {
    let values = json!({"customResources": ["argo-rollouts"]});
    let options = Options {
        values,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.quiet().await?;
        let key = scene.key(&Workload::deployment("sentinel")).await?;
        let key_id = key.as_deref().and_then(|key| key.split('.').nth(1));
        let key_id = key_id.context("the sentinel has no hash")?;
        let hashes = format!("pod_reloader_hashes{{key_id=\"{key_id}\"}}");
        scene.operator.shows(&hashes, "1").await?;
        for (name, value) in [
            ("pod_reloader_workloads", "1"),
            ("pod_reloader_config_objects", "2"),
            ("pod_reloader_references", "2"),
            ("pod_reloader_digests", "2"),
            ("pod_reloader_leading", "1"),
            ("pod_reloader_waiting_workloads", "0"),
            ("pod_reloader_foreign_hash_workloads", "0"),
            (r#"pod_reloader_reconcile_mode{mode="on"}"#, "1"),
        ] {
            scene.operator.shows(name, value).await?;
        }
        let text = scene.operator.metrics().await?;
        ensure!(text.ends_with("# EOF\n"), "{text}");
        let of_rollouts = r#"pod_reloader_restarts_total{kind="Rollout",cause="changed"} 0"#;
        ensure!(
            text.lines().any(|line| line == of_rollouts),
            "a kind that is not there yet begins at zero, too: {text}"
        );
        // How many depends on how far apart the writes of a busy machine are.
        let restarts = r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"} "#;
        ensure!(text.contains(restarts), "{text}");
        let shown = Exposition::parse(&text)?;
        let shown_names: BTreeSet<_> = shown
            .families
            .iter()
            .map(|it| it.1.documented(it.0))
            .collect();
        let rows = documented()?;
        let names: BTreeSet<_> = rows.iter().map(|row| row.name.clone()).collect();
        ensure!(
            rows.len() == names.len() && names == shown_names,
            "documented {names:#?}, shown {shown_names:#?}"
        );
        for row in rows {
            row.is_shown(&shown).with_context(|| format!("{row:?}"))?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dashboard_and_alerts_ask_for_what_is_there() -> Result<()> {
    let options = Options {
        failure_policy: "Ignore",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.quiet().await?;
        scene.operator.shows("pod_reloader_workloads", "1").await?;
        let ours = wait_for("a watch and a key to be shown", PATIENCE, async || {
            let shown = Exposition::parse(&scene.operator.metrics().await?)?;
            let is_there = |name: &str| shown.series.contains_key(name);
            let all = is_there("pod_reloader_watch_heard_timestamp_seconds")
                && is_there("pod_reloader_hashes");
            Ok(match all {
                true => Attempt::Done(shown),
                false => Attempt::NotYet(format!("{:?}", shown.series.keys())),
            })
        })
        .await?;
        let apiservers = apiserver_that_missed_the_webhook(scene).await?;
        let all: Vec<_> = alerts()?
            .into_iter()
            .map(|it| it.query)
            .chain(dashboard()?.queries)
            .collect();
        ensure!(all.len() > 40, "{} queries", all.len());
        for Expression { text, shown_labels } in all {
            let query = Query::parse(&text)?;
            ensure!(!query.selectors.is_empty(), "{text} asks for nothing");
            let mut labels = BTreeSet::from(OF_TARGETS);
            for selector in &query.selectors {
                let source = match selector.series.starts_with("apiserver_") {
                    true => &apiservers,
                    false => &ours,
                };
                is_there(selector, source).context(text.clone())?;
                labels.extend(source.labels(&selector.series));
            }
            for label in &query.grouping {
                ensure!(
                    labels.contains(&**label),
                    "{text} groups by {label}, which nothing has"
                );
            }
            for label in shown_labels {
                let is_left = query.grouping.contains(&label)
                    || (query.grouping.is_empty() && labels.contains(&*label));
                ensure!(is_left, "{text} leaves no {label} to be shown");
            }
        }
        Ok(())
    })
    .await
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() -> Result<()> {
    let runbooks = include_str!("../../../docs/runbooks.md");
    let mut sections = BTreeMap::new();
    for section in runbooks.split("\n## ").skip(1) {
        let (title, text) = section.split_once('\n').context("a title ends")?;
        ensure!(
            text.contains("```console\nkubectl "),
            "{title} names no command"
        );
        sections.insert(title, text);
    }
    let alerts = alerts()?;
    let names: BTreeSet<_> = alerts.iter().map(|alert| &*alert.name).collect();
    ensure!(
        names.len() == alerts.len(),
        "two of {names:?} have one name"
    );
    ensure!(
        names == sections.keys().copied().collect(),
        "{names:?} {:?}",
        sections.keys()
    );
    for alert in alerts {
        let said = |what: &str| {
            alert.rule["annotations"][what]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        // As GitHub makes anchors of titles.
        let url = format!("https://example.com/runbooks#{}", alert.name.to_lowercase());
        ensure!(said("runbook_url") == url, "{}", alert.rule);
        ensure!(
            !said("summary").is_empty() && !said("description").is_empty(),
            "{}",
            alert.rule
        );
        let severity = alert.rule["labels"]["severity"]
            .as_str()
            .unwrap_or_default();
        ensure!(
            ["critical", "warning", "info"].contains(&severity),
            "{}",
            alert.rule
        );
        ensure!(alert.rule["for"].is_string(), "{}", alert.rule);
    }
    Ok(())
}

#[test]
fn alerts_are_about_this_release_and_what_it_does() -> Result<()> {
    let release = |more: &str| rules(&["--set", &format!("prometheusRule.enabled=true{more}")]);
    let default = release("")?.to_string();
    ensure!(
        default.contains(r#"job=\"pod-reloader/pod-reloader\""#),
        "{default}"
    );
    ensure!(
        !default.contains("apiserver_"),
        "its metrics may not be there"
    );
    let own = release(",prometheusRule.selector=job=\"mine\"")?.to_string();
    ensure!(
        own.contains(r#"job=\"mine\""#) && !own.contains(r#"job=\"pod-reloader"#),
        "{own}"
    );
    let off = release(",reconcile=off")?.to_string();
    ensure!(
        !off.contains("PodReloaderNoLeader"),
        "nobody is to lead: {off}"
    );
    ensure!(off.contains("PodReloaderCertificateExpiresSoon"), "{off}");
    Ok(())
}

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
                anyhow::bail!("{title} covers {other} at {place:?}");
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
fn the_dashboard_is_made_as_it_is_and_only_where_it_is_wanted() -> Result<()> {
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

#[tokio::test]
async fn a_change_is_measured_from_its_event_to_its_patch() -> Result<()> {
    let options = Options {
        settle_period: "2s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::deployment("web").lists("app");
        let before = scene.create(&web).await?;
        scene.operator.shows("pod_reloader_workloads", "1").await?;
        scene.operator.shows("pod_reloader_digests", "1").await?;
        let count = "pod_reloader_change_to_patch_seconds_count";
        scene.operator.shows(count, "0").await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.operator.shows(count, "1").await?;
        let text = scene.operator.metrics().await?;
        let sum = "pod_reloader_change_to_patch_seconds_sum ";
        let sum = text
            .lines()
            .find_map(|line| line.strip_prefix(sum))
            .context("a sum")?;
        let sum: f64 = sum.parse()?;
        ensure!(
            (2.0..10.0).contains(&sum),
            "{sum} s, of which the settle period is two"
        );
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_release_that_follows_its_config_saves_a_restart() -> Result<()> {
    let options = Options {
        settle_period: "10s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::deployment("web").lists("app");
        let before = scene.create(&web).await?;
        scene.operator.shows("pod_reloader_digests", "1").await?;
        let looked =
            r#"pod_reloader_config_reads_total{by="reconcile",verb="get",result="present"}"#;
        scene.operator.shows(looked, "1").await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.operator.shows(looked, "2").await?;
        scene
            .apply(&[web.clone().image("app:2").manifest()])
            .await?;
        scene
            .operator
            .shows("pod_reloader_saved_restarts_total", "1")
            .await?;
        let by_loop = r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"}"#;
        scene.operator.shows(by_loop, "0").await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?} {after:?}");
        scene.right(&web).await
    })
    .await
}

/// What the apiserver counts once it could not call the webhook, with either failure policy.
async fn apiserver_that_missed_the_webhook(scene: &Scene) -> Result<Exposition> {
    let web = Workload::deployment("missed")
        .lists("absent")
        .manifest()
        .to_string();
    let create = ["create", "--dry-run=server", "--filename=-"];
    scene.operator.stop().await;
    scene.kubectl_with_input(&create, &web).await?;
    let fail = r#"[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]"#;
    let configuration = &scene.installation.namespace;
    let patch = [
        "patch",
        "mutatingwebhookconfiguration",
        configuration,
        "--type=json",
        "--patch",
        fail,
    ];
    scene.tool().run(&patch).await?;
    wait_for("a write to be refused", PATIENCE, async || {
        Ok(match scene.kubectl_with_input(&create, &web).await {
            Ok(_) => Attempt::NotYet("it was let through".to_owned()),
            Err(_) => Attempt::Done(()),
        })
    })
    .await?;
    Exposition::parse(&scene.tool().run(&["get", "--raw", "/metrics"]).await?)
}

/// A row of the table of all metrics.
#[derive(Debug)]
struct Row {
    name: String,
    kind: String,
    unit: String,
    /// Each with its values, or none where they are open.
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn documented() -> Result<Vec<Row>> {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, meaning] = cells[..] else {
            anyhow::bail!("{line}");
        };
        ensure!(!meaning.is_empty(), "{line}");
        let in_ticks = |text: &str| -> Vec<String> {
            text.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let labels = labels
            .split(';')
            .filter(|label| !label.is_empty())
            .map(|label| {
                let mut words = in_ticks(label).into_iter();
                let name = words.next().with_context(|| line.to_owned())?;
                Ok((name, words.collect()))
            });
        Ok(Row {
            name: name.trim_matches('`').to_owned(),
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            labels: labels.collect::<Result<_>>()?,
        })
    })
    .collect()
}

impl exposition::Family {
    /// The name that it is documented under, and asked for by.
    fn documented(&self, name: &str) -> String {
        match &*self.kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        }
    }
}

impl Row {
    fn is_shown(&self, shown: &Exposition) -> Result<()> {
        let family = shown
            .families
            .iter()
            .find(|it| it.1.documented(it.0) == self.name);
        let (_, family) = family.context("it is not shown")?;
        ensure!(family.kind == self.kind, "it is a {}", family.kind);
        ensure!(family.unit == self.unit, "its unit is {:?}", family.unit);
        ensure!(!family.help.is_empty(), "it is not explained");
        let has_prefix = ["pod_reloader_", "process_"]
            .iter()
            .any(|it| self.name.starts_with(it));
        ensure!(has_prefix, "it has no prefix");
        let series = match &*self.kind {
            "histogram" => format!("{}_bucket", self.name),
            _ => self.name.clone(),
        };
        let series = shown.series.get(&series).context("it has no series")?;
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (label, value) in series.iter().flatten().filter(|it| it.0 != "le") {
            values
                .entry(label.clone())
                .or_default()
                .insert(value.clone());
        }
        ensure!(
            values.keys().eq(self.labels.keys()),
            "it has {:?}",
            values.keys()
        );
        for (label, documented) in self.labels.iter().filter(|it| !it.1.is_empty()) {
            ensure!(
                values[label] == *documented,
                "{label} is any of {:?}",
                values[label]
            );
        }
        Ok(())
    }
}

/// Claims that a selector can pick something of `shown`.
fn is_there(selector: &Selector, shown: &Exposition) -> Result<()> {
    let series = &selector.series;
    let all = shown
        .series
        .get(series)
        .with_context(|| format!("there is no {series}"))?;
    for matcher in &selector.matchers {
        let label = &*matcher.label;
        if OF_TARGETS.contains(&label) {
            continue;
        }
        ensure!(
            shown.labels(series).contains(label),
            "{series} has no label {label}"
        );
        let alternatives: Vec<_> = match &*matcher.operator {
            "=~" | "!~" => matcher.value.split('|').collect(),
            _ => vec![&*matcher.value],
        };
        for value in alternatives {
            let has = |labels: &exposition::Labels| labels.get(label).is_some_and(|it| it == value);
            ensure!(all.iter().any(has), "{series} never has {label}={value}");
        }
    }
    Ok(())
}

/// What is asked of Prometheus, and which labels of the answer are shown to people.
struct Expression {
    text: String,
    shown_labels: Vec<String>,
}

struct Alert {
    name: String,
    query: Expression,
    rule: Value,
}

/// All alerts of the chart.
fn alerts() -> Result<Vec<Alert>> {
    let all = "prometheusRule.enabled=true,prometheusRule.apiserver=true,\
               prometheusRule.runbookUrl=https://example.com/runbooks";
    let object = rules(&["--set", all])?;
    let groups = object["spec"]["groups"]
        .as_array()
        .context("rules have groups")?;
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules
        .map(|rule| {
            let text = |value: &Value| value.as_str().map(str::to_owned).context(rule.to_string());
            let said = rule["annotations"].to_string();
            Ok(Alert {
                name: text(&rule["alert"])?,
                query: Expression {
                    text: text(&rule["expr"])?,
                    shown_labels: words_after(&said, "$labels."),
                },
                rule: rule.clone(),
            })
        })
        .collect()
}

fn rules(args: &[&str]) -> Result<Value> {
    let shown = ["--show-only=templates/prometheusrule.yaml"];
    Ok(serde_saphyr::from_str(&template(
        &[args, &shown].concat(),
    )?)?)
}

struct Dashboard {
    panels: Vec<Value>,
    queries: Vec<Expression>,
}

fn dashboard() -> Result<Dashboard> {
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

fn dashboard_file() -> std::path::PathBuf {
    chart().join("dashboards/pod-reloader.json")
}

/// The word that stands after each `mark` in a text.
fn words_after(text: &str, mark: &str) -> Vec<String> {
    let after = text.split(mark).skip(1);
    let word = |it: &str| {
        it.chars()
            .take_while(|it| it.is_alphanumeric() || *it == '_')
            .collect()
    };
    after.map(word).collect()
}

const PATIENCE: Duration = Duration::from_secs(60);
