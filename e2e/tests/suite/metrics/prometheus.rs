//! The metrics, the alerts and the dashboard, as seen by a real Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kube::{Client, Config};
use pod_reloader_e2e::{
    Attempt, PATIENCE, Process, Program, Scene, done_if, free_port, prometheus, wait_for,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::alerts::alerts;
use super::dashboard::dashboard;
use super::of_all_controllers;

/// Job name that a PodMonitor gives to the targets of release pod-reloader in namespace pod-reloader.
const JOB: &str = "pod-reloader/pod-reloader";
/// The same for the writer of that release.
const WRITERS_JOB: &str = "pod-reloader/pod-reloader-writer";

#[tokio::test]
async fn each_alert_fires_when_it_should_and_not_before() -> Result<()> {
    let Some(programs) = programs()? else {
        return Ok(());
    };
    let directory = TempDir::new()?;
    let rules = rules()?;
    fs::write(directory.path().join("rules.yaml"), rules.to_string())?;
    let mut fired = BTreeSet::new();
    let mut test = Command::new(programs.join("promtool"));
    test.args(["test", "rules"]).current_dir(directory.path());
    for (name, text) in [
        ("alerts.yaml", include_str!("alerts.yaml")),
        ("slow-alerts.yaml", include_str!("slow-alerts.yaml")),
    ] {
        fs::write(directory.path().join(name), text)?;
        test.arg(name);
        fired.extend(firing(&serde_saphyr::from_str(text)?));
    }
    let all: BTreeSet<_> = alerts()?.into_iter().map(|it| it.name).collect();
    ensure!(
        fired == all,
        "firing in a test {fired:?}, in the chart {all:?}"
    );
    let output = test.output().await?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_prometheus_has_an_answer_to_every_query_and_no_alert() -> Result<()> {
    let Some(programs) = programs()? else {
        return Ok(());
    };
    Scene::play(of_all_controllers(), async |scene| {
        // One workload is managed, and has been restarted.
        scene.quiet().await?;
        let prometheus = Prometheus::start(&programs, &scene.operator.metrics_address())?;
        // Before the first scrape, and after one that took too long, the alert about a missing leader is
        // pending.
        wait_for(
            "two scrapes, three looks at each rule, and no alert",
            2 * PATIENCE,
            async || {
                prometheus.process.must_run()?;
                let looks = "min(prometheus_rule_group_iterations_total) >= 3 \
                         and on () (min(sum_over_time(up[2m])) >= 2) unless on () ALERTS";
                Ok(match prometheus.query(looks).await {
                    Ok(found) if found.is_empty() => {
                        Attempt::NotYet(format!("{:?}", prometheus.query("ALERTS or up").await))
                    }
                    Ok(_) => Attempt::Done(()),
                    Err(error) => Attempt::NotYet(format!("{error:#}")),
                })
            },
        )
        .await?;
        for wrong in [
            "prometheus_rule_evaluation_failures_total > 0",
            "max_over_time(ALERTS{alertstate=\"firing\"}[10m])",
        ] {
            let found = prometheus.query(wrong).await?;
            ensure!(found.is_empty(), "{wrong}: {found:?}");
        }
        for query in dashboard()?.queries {
            let text = query.text.replace("$job", JOB);
            let text = text
                .replace("$__rate_interval", "5m")
                .replace("$__interval", "5m");
            // Only a scrape of the apiserver has these.
            let is_theirs = text.contains("apiserver_");
            // After a scrape that took too long, nothing answers until the next one.
            wait_for(&format!("an answer to {text}"), PATIENCE, async || {
                let found = prometheus.query(&text).await?;
                done_if(is_theirs || !found.is_empty(), "none")
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// A Prometheus that scrapes one operator, which runs all controllers, also as the writer, and evaluates the rules of the
/// chart.
struct Prometheus {
    process: Process,
    client: Client,
    _directory: TempDir,
}

impl Prometheus {
    fn start(programs: &Path, target: &str) -> Result<Self> {
        let directory = TempDir::new()?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let scraped = |job: &str, target: &str| json!({"job_name": job, "static_configs": [{"targets": [target]}]});
        let config = json!({
            "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                scraped(JOB, target),
                scraped(WRITERS_JOB, target),
                scraped("itself", &address),
            ],
        });
        let file = |name: &str| directory.path().join(name);
        fs::write(file("rules.yaml"), rules()?.to_string())?;
        fs::write(file("prometheus.yaml"), config.to_string())?;
        let argument = |name: &str, path: &Path| format!("--{name}={}", path.display()).into();
        let program = Program {
            name: "prometheus".to_owned(),
            executable: programs.join("prometheus"),
            args: vec![
                argument("config.file", &file("prometheus.yaml")),
                argument("storage.tsdb.path", &file("data")),
                format!("--web.listen-address={address}").into(),
            ],
            env: Vec::new(),
            log: file("log"),
        };
        // Any client of HTTP would do.
        let mut client = Config::new(format!("http://{address}").parse()?);
        client.default_retry = false;
        Ok(Self {
            process: Process::start(program)?,
            client: Client::try_from(client)?,
            _directory: directory,
        })
    }

    /// Returns the current result of an expression.
    async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let query = expression.bytes().map(|byte| format!("%{byte:02X}"));
        let path = format!("/api/v1/query?query={}", query.collect::<String>());
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = self.client.request::<Value>(request).await;
        let answer = answer.with_context(|| expression.to_owned())?;
        let result = answer["data"]["result"].as_array();
        result
            .cloned()
            .with_context(|| format!("{expression}: {answer}"))
    }
}

/// Returns the alerts as a file of rules. The URLs of runbooks have a test of their own.
fn rules() -> Result<Value> {
    let mut rules: Vec<_> = alerts()?.into_iter().map(|alert| alert.rule).collect();
    for rule in &mut rules {
        let annotations = rule["annotations"].as_object_mut();
        annotations
            .context("an alert has annotations")?
            .remove("runbook_url");
    }
    Ok(json!({"groups": [{"name": "pod-reloader", "rules": rules}]}))
}

/// Returns the alerts that a file of tests expects to fire.
fn firing(file: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let tests = list(&file["tests"]).into_iter();
    let expected = tests.flat_map(|test| list(&test["alert_rule_test"]));
    let fires = expected.filter(|it| !list(&it["exp_alerts"]).is_empty());
    fires
        .filter_map(|it| it["alertname"].as_str().map(str::to_owned))
        .collect()
}

fn programs() -> Result<Option<PathBuf>> {
    let programs = prometheus()?;
    if programs.is_none() {
        eprintln!("skipped: there is to be no Prometheus");
    }
    Ok(programs)
}
