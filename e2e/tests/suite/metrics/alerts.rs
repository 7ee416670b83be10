//! The alerts of the chart: each has a runbook, and concerns only this release.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::mentions;
use serde_json::Value;

use super::queries::{Expression, words_after};
use crate::chart::template;

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() -> Result<()> {
    let runbooks = include_str!("../../../../docs/runbooks.md");
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
        // GitHub makes anchors of titles this way.
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
    let default = release(",podMonitor.enabled=true")?.to_string();
    mentions(&default, r#"job=\"pod-reloader/pod-reloader\""#)?;
    ensure!(
        !default.contains("apiserver_"),
        "its metrics may not be there"
    );
    let own = release(",prometheusRule.selector=job=\"mine\"")?.to_string();
    ensure!(
        own.contains(r#"job=\"mine\""#) && !own.contains(r#"job=\"pod-reloader"#),
        "{own}"
    );
    let off = release(",podMonitor.enabled=true,reconcile=none")?.to_string();
    ensure!(
        !off.contains("PodReloaderNoLeader"),
        "nobody is to lead: {off}"
    );
    mentions(&off, "PodReloaderCertificateExpiresSoon")?;
    ensure!(
        !default.contains("PodReloaderConfigNotSynced"),
        "nothing is copied: {default}"
    );
    ensure!(
        !default.contains("PodReloaderFieldsNotApplied"),
        "no field is bound: {default}"
    );
    ensure!(
        !default.contains("PodReloaderCopies") && !default.contains("PodReloaderPodsNotPinned"),
        "nothing is pinned: {default}"
    );
    Ok(())
}

pub(super) struct Alert {
    pub(super) name: String,
    pub(super) query: Expression,
    pub(super) rule: Value,
}

/// Returns all alerts of the chart.
pub(super) fn alerts() -> Result<Vec<Alert>> {
    let all = "podMonitor.enabled=true,notifications.enabled=true,notifications.existingSecret=chat,sync.enabled=true,fieldBindings.enabled=true,prometheusRule.enabled=true,prometheusRule.apiserver=true,\
               pin.enabled=true,webhook.restrictedOtherwise=true,prometheusRule.runbookUrl=https://example.com/runbooks";
    let bound = r#"fieldBindings.kinds=[{"group":"example.com","version":"v1","resource":"stores","kind":"Store"}]"#;
    let object = rules(&["--set", all, "--set-json", bound])?;
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
