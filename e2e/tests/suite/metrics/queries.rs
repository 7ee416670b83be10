//! Checks that everything that dashboard and alerts query exists: series, labels, and their values.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Attempt, Options, Scene, done_with, wait_for};
use serde_json::json;

use super::alerts::alerts;
use super::dashboard::dashboard;
use super::exposition::{Exposition, Labels};
use super::promql::{Query, Selector};
use super::{PATIENCE, of_all_controllers};

/// Labels that Prometheus adds to everything that it scrapes.
const OF_TARGETS: [&str; 2] = ["job", "instance"];

#[tokio::test]
async fn dashboard_and_alerts_query_metrics_that_exist() -> Result<()> {
    let options = Options {
        failure_policy: "Ignore",
        ..of_all_controllers()
    };
    Scene::play(options, async |scene| {
        scene.quiet().await?;
        scene.shows("pod_reloader_workloads", "1").await?;
        let ours = wait_for("a watch and a key to be shown", PATIENCE, async || {
            let shown = Exposition::parse(&scene.operator.metrics().await?)?;
            let is_there = |name: &str| shown.series.contains_key(name);
            let all = is_there("pod_reloader_watch_last_answer_timestamp_seconds")
                && is_there("pod_reloader_hashes");
            done_with(all, format!("{:?}", shown.series.keys()), shown)
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
                // Prometheus writes this one itself, for each target.
                if selector.series == "up" {
                    continue;
                }
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

/// Returns the apiserver's metrics after it could not call the webhook, with either failure policy.
async fn apiserver_that_missed_the_webhook(scene: &Scene) -> Result<Exposition> {
    scene.operator.stop().await;
    scene.is_webhook_called().await?;
    let fail = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
    scene.patch_webhook(&fail).await?;
    wait_for("a write to be refused", PATIENCE, async || {
        Ok(match scene.is_webhook_called().await {
            Ok(_) => Attempt::NotYet("it was let through".to_owned()),
            Err(_) => Attempt::Done(()),
        })
    })
    .await?;
    Exposition::parse(&scene.tool().run(&["get", "--raw", "/metrics"]).await?)
}

/// Asserts that a selector can match something in `shown`.
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
            let has = |labels: &Labels| labels.get(label).is_some_and(|it| it == value);
            ensure!(all.iter().any(has), "{series} never has {label}={value}");
        }
    }
    Ok(())
}

/// A query to Prometheus, and the labels of its result that people see.
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) shown_labels: Vec<String>,
}

/// Returns the word after each `mark` in a text.
pub(super) fn words_after(text: &str, mark: &str) -> Vec<String> {
    let after = text.split(mark).skip(1);
    let word = |it: &str| {
        it.chars()
            .take_while(|it| it.is_alphanumeric() || *it == '_')
            .collect()
    };
    after.map(word).collect()
}
