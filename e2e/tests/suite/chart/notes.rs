//! What Helm prints after an installation: what is on, the next step, and what to mind.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{IMAGE, helm, template};

#[test]
fn the_notes_warn_of_what_the_values_leave_open() -> Result<()> {
    let open = "The NetworkPolicy lets everybody reach the webhook";
    let ignored = "most network plug-ins ignore the NetworkPolicy";
    let reads = "read all Secrets";
    let runs = "run pods wherever it manages workloads";
    let from = "networkPolicy.enabled=true,networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/24";
    let host = format!("{from},hostNetwork=true");
    for (values, warnings) in [
        ("policy.enabled=true", &[reads, runs][..]),
        ("networkPolicy.enabled=true", &[open, reads, runs][..]),
        (from, &[reads, runs][..]),
        (&*host, &[ignored, reads, runs][..]),
        ("reconcile=observe", &[reads][..]),
        ("ignoreSecrets=true", &[runs][..]),
        ("watch.namespaces={shop},fence.enabled=true", &[][..]),
    ] {
        let notes = notes(values)?;
        for warning in [open, ignored, reads, runs] {
            let is_there = notes.contains(warning);
            ensure!(is_there == warnings.contains(&warning), "{values}: {notes}");
        }
    }
    Ok(())
}

#[test]
fn the_notes_name_what_is_on_and_the_next_step() -> Result<()> {
    let test = "helm test pod-reloader --namespace pod-reloader";
    let all = "pin.enabled=true,sync.enabled=true,webhook.restrictedOtherwise=true,\
               notifications.enabled=true,notifications.existingSecret=chat,namespaceOverride=tools";
    for (values, parts) in [
        ("replicaCount=2", &[test][..]),
        (
            all,
            &[
                "Switched on: pin, sync, notifications.",
                "the Deployment pod-reloader-writer",
                test,
            ][..],
        ),
    ] {
        let notes = notes(values)?;
        for part in parts {
            ensure!(notes.contains(part), "{values}: {part}: {notes}");
        }
    }
    let off = notes("reconcile=none")?;
    ensure!(!off.contains("Switched on:"), "{off}");
    let role = "(needs the Role of the test)";
    ensure!(
        notes("rbac.create=false")?.contains(role),
        "an administrator writes it"
    );
    ensure!(!notes("rbac.create=true")?.contains(role), "it is there");
    Ok(())
}

#[test]
fn the_notes_name_the_test_only_where_it_can_pass() -> Result<()> {
    for values in [
        "reconcile=none",
        // The test is in the namespace `default`, unless a value says otherwise.
        "namespaceOverride=default",
        "ignoreNamespaces={default}",
    ] {
        let notes = notes(values)?;
        ensure!(!notes.contains("helm test"), "{values}: {notes}");
    }
    let elsewhere = notes("namespaceOverride=default,tests.namespace=shop")?;
    ensure!(elsewhere.contains("helm test"), "{elsewhere}");
    Ok(())
}

#[test]
fn the_notes_begin_with_what_the_objects_are() -> Result<()> {
    for values in [
        "replicaCount=2",
        "namespaceOverride=tools,image.tag=v2,autoReloadAll=true",
        "ignoreNamespaces={a,b},global.imageRegistry=mirror.example.com",
        "watch.namespaces={shop,billing},dialects={pod-reloader,wave}",
    ] {
        let notes = notes(values)?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&template(&["--set", values])?)?;
        let object = |kind: &str| {
            let found = objects.iter().find(|object| object["kind"] == kind);
            found.with_context(|| format!("{values}: no {kind}"))
        };
        let deployment = object("Deployment")?;
        let metadata = &deployment["metadata"];
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let installed = format!(
            "pod-reloader {} is installed in the namespace {}, with the image {}.",
            text(&metadata["labels"]["app.kubernetes.io/version"]),
            text(&metadata["namespace"]),
            text(&container["image"])
        );
        let first = notes.trim_start().lines().next();
        ensure!(first == Some(&*installed), "{values}: {installed}: {notes}");

        let manages = notes.lines().find_map(|line| line.split_once(", in "));
        let (which, places) = manages.context("they say where it works")?;
        let asked = which.strip_prefix("It manages the workloads ");
        ensure!(asked == Some(&*asked_for(container)), "{values}: {which}");
        let (operator, places) = match places.strip_prefix("all namespaces except ") {
            Some(others) => ("NotIn", others),
            None => ("In", places),
        };
        let places = places.trim_end_matches([':', '.']).replace(" and ", ", ");
        let named: BTreeSet<_> = places.split(", ").collect();
        let webhook = object("MutatingWebhookConfiguration")?;
        let selector = &webhook["webhooks"][0]["namespaceSelector"]["matchExpressions"];
        let mut expressions = selector.as_array().into_iter().flatten();
        let expression = expressions.find(|it| it["operator"] == operator);
        let selected = expression.context("a selector")?["values"].as_array();
        let selected: BTreeSet<_> = selected.into_iter().flatten().map(text).collect();
        ensure!(named == selected, "{values}: {named:?}, {selected:?}");
    }
    Ok(())
}

/// Returns how the notes call the workloads that the operator with this container manages.
fn asked_for(container: &Value) -> String {
    let mut args = container["args"].as_array().into_iter().flatten().map(text);
    if args.clone().any(|arg| arg == "--auto-reload-all") {
        return "that use ConfigMaps or Secrets and do not opt out".to_owned();
    }
    match args.find_map(|arg| arg.strip_prefix("--dialects=")) {
        Some(dialects) => format!("with annotations of {}", dialects.replace(',', ", ")),
        None => "that ask for it by an annotation".to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn notes(values: &str) -> Result<String> {
    let install = ["install", "pod-reloader", "--namespace=pod-reloader", "."];
    let here = ["--dry-run=client", IMAGE, "--set", values];
    let printed = helm(&[install, here].concat())?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("it has notes")?;
    Ok(notes.to_owned())
}
