//! What Helm prints after an installation: what is on, the next step, and what to mind.

use anyhow::{Context, Result, ensure};

use super::{IMAGE, helm};

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
                "installed in the namespace tools",
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

fn notes(values: &str) -> Result<String> {
    let install = ["install", "pod-reloader", "--namespace=pod-reloader", "."];
    let here = ["--dry-run=client", IMAGE, "--set", values];
    let printed = helm(&[install, here].concat())?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("it has notes")?;
    Ok(notes.to_owned())
}
