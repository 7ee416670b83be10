//! Metrics match their documentation, and count what they say.

mod alerts;
mod dashboard;
mod exposition;
mod prometheus;
mod promql;
mod queries;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_if, wait_for};
use serde_json::json;

use self::exposition::Exposition;

#[tokio::test]
async fn the_metrics_are_those_of_the_docs() -> Result<()> {
    let values = json!({"customResources": ["argo-rollouts"]});
    let options = Options {
        values,
        ..of_all_controllers()
    };
    Scene::play(options, async |scene| {
        scene.quiet().await?;
        let key = scene.key(&Workload::podless("sentinel")).await?;
        let key_id = key.as_deref().and_then(|key| key.split('.').nth(1));
        let key_id = key_id.context("the sentinel has no hash")?;
        let hashes = format!("pod_reloader_hashes{{key_id=\"{key_id}\"}}");
        scene.shows(&hashes, "1").await?;
        for (name, value) in [
            ("pod_reloader_workloads", "1"),
            ("pod_reloader_config_objects", "2"),
            ("pod_reloader_references", "2"),
            ("pod_reloader_digests", "2"),
            ("pod_reloader_leading", "1"),
            ("pod_reloader_missing_config_workloads", "0"),
            ("pod_reloader_foreign_hash_workloads", "0"),
            (r#"pod_reloader_reconcile_mode{mode="restart"}"#, "1"),
        ] {
            scene.shows(name, value).await?;
        }
        let text = scene.operator.metrics().await?;
        ensure!(text.ends_with("# EOF\n"), "{text}");
        let of_rollouts = r#"pod_reloader_restarts_total{kind="Rollout",cause="changed"} 0"#;
        ensure!(
            text.lines().any(|line| line == of_rollouts),
            "a kind that is not there yet begins at zero, too: {text}"
        );
        // The number depends on how far apart the writes of a busy machine are.
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
async fn a_change_is_measured_from_its_event_to_its_patch() -> Result<()> {
    Scene::play(Options::settling("2s"), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.shows("pod_reloader_workloads", "1").await?;
        scene.shows("pod_reloader_digests", "1").await?;
        let count = "pod_reloader_change_to_patch_seconds_count";
        scene.shows(count, "0").await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.shows(count, "1").await?;
        let sum = value(scene, "pod_reloader_change_to_patch_seconds_sum").await?;
        ensure!(
            (2.0..30.0).contains(&sum),
            "{sum} s, of which the settle period is two"
        );
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_release_that_follows_its_config_saves_a_restart() -> Result<()> {
    Scene::play(Options::settling("10s"), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.shows("pod_reloader_digests", "1").await?;
        let looked =
            r#"pod_reloader_config_reads_total{by="reconcile",verb="get",result="present"}"#;
        let reads = value(scene, looked).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        wait_for("the loop to see the change", PATIENCE, async || {
            let now = value(scene, looked).await?;
            done_if(now > reads, format!("{now} reads"))
        })
        .await?;
        let containers = json!([{"name": "main", "image": "app:2"}]);
        let image = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        scene.patch(&web, &image).await?;
        scene
            .shows("pod_reloader_saved_restarts_total", "1")
            .await?;
        let by_loop = r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"}"#;
        scene.shows(by_loop, "0").await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?} {after:?}");
        scene.right(&web).await
    })
    .await
}

/// Returns options of an operator that shows the metrics of copies, of bound fields, of kept ConfigMaps and of namespaces, too. It has no right to make
/// any: the ClusterConfigSyncs in the cluster are those of other tests.
fn of_all_controllers() -> Options {
    Options {
        args: ["--sync", "--protect", "--metrics-by-namespace", BOUND]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    }
}

const BOUND: &str = r#"--field-bindings-kinds=[{"group":"example.com","version":"v1","resource":"stores","kind":"Store"}]"#;

/// Returns the value of a metric of the operator, given by name and labels.
async fn value(scene: &Scene, name: &str) -> Result<f64> {
    let text = scene.operator.metrics().await?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("{name} is not in\n{text}"))?;
    Ok(value.parse()?)
}

/// A row of the table of all metrics.
#[derive(Debug)]
struct Row {
    name: String,
    kind: String,
    unit: String,
    /// Labels with their values, or with none if any value is possible.
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
    /// Returns the name under which the metric is documented and queried.
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
