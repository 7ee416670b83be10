//! The match conditions of webhook and policy: the workloads that they select, given the active dialects.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use pod_reloader_e2e::workload::{CONFIG_HASH, CONFIG_MAPS, Kind, SECRETS, Workload, key_of};
use pod_reloader_e2e::{
    Attempt, Options, PATIENCE, Scene, dialects, lacks_mutating_policies, wait_for,
};
use serde_json::{Value, json};

use crate::dialects::opted_in_by_others;

#[tokio::test]
async fn exactly_the_annotations_of_the_dialects_that_are_on_are_read() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    let of_all = named("case", cases());
    for dialect in dialects() {
        let opts_in = |case: &Case| case.dialect == dialect && case.says == Says::OptsIn;
        ensure!(of_all.iter().any(opts_in), "{dialect} has no case");
    }
    Scene::play(Options::released(), async |scene| {
        // From here on, a write that calls the webhook fails.
        scene.operator.stop().await;
        let mut created = BTreeSet::new();
        for choice in choices() {
            let cases: Vec<_> = of_all.iter().chain(&choice.own).collect();
            let looked_at = looked_at(scene, &choice, &cases, &mut created).await;
            looked_at.context(choice.name)?;
        }

        // Namespaces are selected whatever a workload says, so a few cases show which ones are ignored.
        let few: Vec<_> = of_all.iter().take(3).collect();
        let none = vec![false; few.len()];
        let ignoring = json!({
            "ignoreNamespaces": [scene.namespace],
            "dialects": dialects(),
            "autoReloadAll": true,
        });
        upgrade(scene, &ignoring).await?;
        // The policy first: Helm writes it after the webhook, and it shows that the upgrade is in force.
        keeps(scene, &few, &none).await?;
        calls_for(scene, &few, &none).await
    })
    .await
}

/// Upgrades to the values of a choice. Asserts for each case if the webhook is called for it, and if the policy
/// preserves its hash.
async fn looked_at(
    scene: &Scene,
    choice: &Choice,
    cases: &[&Case],
    created: &mut BTreeSet<String>,
) -> Result<()> {
    let expected: Vec<_> = cases.iter().map(|case| (choice.expected)(case)).collect();
    let called: Vec<_> = expected.iter().map(|[is_called, _]| *is_called).collect();
    let kept: Vec<_> = expected.iter().map(|[_, is_kept]| *is_kept).collect();
    upgrade(scene, &choice.values).await?;
    calls_for(scene, cases, &called).await?;
    without_metadata(scene).await?;
    fail_by(scene, "Ignore").await?;
    for case in cases {
        if created.insert(case.name.clone()) {
            create(scene, case).await?;
        }
    }
    keeps(scene, cases, &kept).await
}

/// Values that choose dialects, and what follows from them.
struct Choice {
    name: &'static str,
    values: Value,
    /// Cases beside those of all choices.
    own: Vec<Case>,
    /// Says of a case if the webhook is called, and if the policy preserves the hash.
    expected: fn(&Case) -> [bool; 2],
}

fn choices() -> [Choice; 5] {
    [
        Choice {
            name: "by default, only our own annotations are read",
            values: json!({}),
            own: Vec::new(),
            expected: |case| case.in_dialects(&[OURS]),
        },
        Choice {
            name: "the annotations of every dialect are read",
            values: json!({
                "dialects": dialects(),
                "secretProviderClasses": {"enabled": true},
            }),
            own: named("class", of_classes()),
            expected: |case| case.in_dialects(&dialects()),
        },
        Choice {
            name: "the annotations of a dialect that is off are not read",
            values: json!({"dialects": ["stackable", "stakater"]}),
            own: Vec::new(),
            expected: |case| case.in_dialects(&["stackable", "stakater"]),
        },
        Choice {
            name: "with autoReloadAll, only workloads that opt out are left alone",
            values: json!({"dialects": dialects(), "autoReloadAll": true}),
            own: named("otherwise-in", otherwise_in()),
            expected: |case| {
                let is_kept = case.says != Says::OptsOut;
                [is_kept, is_kept]
            },
        },
        Choice {
            name: "with autoReloadAll and without our dialect, no workload is left alone",
            values: json!({"dialects": ["stakater"], "autoReloadAll": true}),
            own: Vec::new(),
            expected: |_| [true, true],
        },
    ]
}

/// Returns cases about SecretProviderClasses.
fn of_classes() -> [Case; 4] {
    [
        (
            OURS,
            "pod-reloader.cs.sap.com/secretproviderclasses",
            Says::OptsIn,
        ),
        (
            "stakater",
            "secretproviderclass.reloader.stakater.com/auto",
            Says::OptsIn,
        ),
        (
            "stakater",
            "secretproviderclass.reloader.stakater.com/reload",
            Says::OptsIn,
        ),
        (
            "stakater",
            "secretproviderclasses.exclude.reloader.stakater.com/reload",
            Says::SomethingElse,
        ),
    ]
    .map(|(dialect, key, says)| {
        let workload = Workload::deployment("one").annotated(key, "true");
        Case::new(dialect, workload, says)
    })
}

/// Returns cases that opt out, and in again by something else.
fn otherwise_in() -> [Case; 2] {
    [
        (SECRETS, "app"),
        ("wave.pusher.com/update-on-config-change", "true"),
    ]
    .map(|(key, value)| {
        let opts_out = Workload::deployment("one").annotated(AUTO, "false");
        Case::new("", opts_out.annotated(key, value), Says::OptsIn)
    })
}

/// Gives each case a name for its object.
fn named(prefix: &str, cases: impl IntoIterator<Item = Case>) -> Vec<Case> {
    let cases = cases.into_iter().enumerate();
    let named = cases.map(|(index, case)| Case {
        name: format!("{prefix}-{index}"),
        ..case
    });
    named.collect()
}

/// A workload, and what it says in which dialect.
struct Case {
    /// Name of its object, once it has one.
    name: String,
    dialect: &'static str,
    workload: Workload,
    says: Says,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    OptsIn,
    OptsOut,
    /// An annotation of the dialect that does not opt in.
    SomethingElse,
    Nothing,
}

impl Case {
    fn new(dialect: &'static str, workload: Workload, says: Says) -> Self {
        Self {
            name: String::new(),
            dialect,
            workload,
            says,
        }
    }

    /// Returns the object to write: with a hash, and without pods.
    fn object(&self, name: &str) -> Result<DynamicObject> {
        let named = self.workload.clone().stamped(HASH);
        let mut manifest = named.with(&["metadata", "name"], json!(name)).manifest();
        if self.workload.kind != Kind::DaemonSet {
            manifest["spec"]["replicas"] = json!(0);
        }
        Ok(serde_json::from_value(manifest)?)
    }

    /// Returns, given the active dialects, if the webhook is called and if the policy preserves the hash.
    fn in_dialects(&self, dialects: &[impl AsRef<str>]) -> [bool; 2] {
        let is_read = dialects.iter().any(|it| it.as_ref() == self.dialect);
        [
            is_read && self.says != Says::Nothing,
            is_read && self.says == Says::OptsIn,
        ]
    }
}

/// Returns cases of every dialect, among them the workloads of `dialects.rs`.
fn cases() -> Vec<Case> {
    use Says::{Nothing, OptsIn, OptsOut, SomethingElse};
    let one = || Workload::deployment("one");
    let annotations = [
        (OURS, CONFIG_MAPS, "app", OptsIn),
        // An object may have this name.
        (OURS, SECRETS, "false", OptsIn),
        (OURS, AUTO, "true", OptsIn),
        (OURS, AUTO, "secrets", OptsIn),
        (OURS, AUTO, "false", OptsOut),
        (
            OURS,
            "pod-reloader.cs.sap.com/config-maps",
            "app",
            SomethingElse,
        ),
        ("stakater", "reloader.stakater.com/auto", "true", OptsIn),
        (
            "stakater",
            "configmap.reloader.stakater.com/auto",
            "true",
            OptsIn,
        ),
        (
            "stakater",
            "secret.reloader.stakater.com/auto",
            "true",
            OptsIn,
        ),
        (
            "stakater",
            "secret.reloader.stakater.com/reload",
            "a.*",
            OptsIn,
        ),
        (
            "stakater",
            "reloader.stakater.com/auto",
            "false",
            SomethingElse,
        ),
        (
            "stakater",
            "secrets.exclude.reloader.stakater.com/reload",
            "a",
            SomethingElse,
        ),
        (
            "wave",
            "wave.pusher.com/extra-secrets",
            "app",
            SomethingElse,
        ),
        (
            "stackable",
            "restarter.stackable.tech/ignore-secret.0",
            "app",
            Nothing,
        ),
        (
            "trigger-controller",
            "trigger.k8s.io/triggering-configMaps",
            "app",
            OptsIn,
        ),
        (
            "trigger-controller",
            "trigger.k8s.io/triggering-secrets",
            "app",
            OptsIn,
        ),
        (
            "trigger-controller",
            "trigger.k8s.io/note",
            "x",
            SomethingElse,
        ),
        ("fabric8", "configmap.fabric8.io/note", "x", SomethingElse),
        (
            "infisical",
            "secrets.infisical.com/auto-reload",
            "false",
            SomethingElse,
        ),
        (
            "infisical",
            "secrets.infisical.com/managed-secret.app",
            "1",
            Nothing,
        ),
        (
            "onepassword",
            "operator.1password.io/item-name",
            "app",
            Nothing,
        ),
        ("", "example.com/auto", "true", Nothing),
    ];
    let annotated = annotations
        .map(|(dialect, key, value, says)| Case::new(dialect, one().annotated(key, value), says));
    let of_template = [
        ("stakater", "reloader.stakater.com/auto", "true", OptsIn),
        (
            "stakater",
            "secret.reloader.stakater.com/reload",
            "a.*",
            OptsIn,
        ),
        (
            "stakater",
            "reloader.stakater.com/last-reloaded-from",
            "{}",
            SomethingElse,
        ),
        // In the wrong place, so it gets a warning.
        (OURS, CONFIG_MAPS, "app", SomethingElse),
        (
            "wave",
            "wave.pusher.com/update-on-config-change",
            "true",
            SomethingElse,
        ),
        ("", "example.com/auto", "true", Nothing),
    ];
    let of_template = of_template.map(|(dialect, key, value, says)| {
        let path = ["spec", "template", "metadata", "annotations", key];
        Case::new(dialect, one().with(&path, json!(value)), says)
    });
    let enabled = "restarter.stackable.tech/enabled";
    let labelled = [
        ("stackable", enabled, "true", OptsIn),
        ("stackable", enabled, "false", SomethingElse),
        (OURS, CONFIG_MAPS, "app", SomethingElse),
        (OURS, "pod-reloader.cs.sap.com/disabled", "false", Nothing),
        ("", "team", "shop", Nothing),
    ];
    let labelled = labelled.map(|(dialect, key, value, says)| {
        let workload = Workload::new(Kind::StatefulSet, "one").labelled(key, value);
        Case::new(dialect, workload, says)
    });
    let labelled_pods = [
        ("stackable", enabled, "true", SomethingElse),
        // In the wrong place, too.
        (
            OURS,
            "pod-reloader.cs.sap.com/ignored",
            "true",
            SomethingElse,
        ),
        ("", "team", "shop", Nothing),
    ];
    let labelled_pods = labelled_pods.map(|(dialect, key, value, says)| {
        let path = ["spec", "template", "metadata", "labels", key];
        let workload = Workload::new(Kind::StatefulSet, "one").with(&path, json!(value));
        Case::new(dialect, workload, says)
    });
    let bare = Kind::ALL.map(|kind| Case::new("", Workload::new(kind, "one"), Nothing));
    let both = one().annotated(AUTO, "false").lists("app");
    let mut cases: Vec<_> = annotated.into_iter().chain(of_template).collect();
    cases.extend(labelled.into_iter().chain(labelled_pods).chain(bare));
    let of_others = opted_in_by_others();
    cases.extend(of_others.map(|(dialect, workload)| Case::new(dialect, workload, OptsIn)));
    cases.push(Case::new(OURS, both, OptsIn));
    cases
}

/// Upgrades to these values, and to a webhook whose outage fails writes.
async fn upgrade(scene: &Scene, values: &Value) -> Result<()> {
    // Otherwise the upgrade would be a conflict: the field no longer belongs to Helm.
    fail_by(scene, "Fail").await?;
    let options = Options {
        failure_policy: "Fail",
        values: values.clone(),
        ..Options::default()
    };
    let mut installation = scene.installation.clone();
    let values = options.values(&scene.namespace);
    installation.upgrade(&values).await
}

/// Sets the failure policy of the webhook, which is all that the chart makes of that value.
async fn fail_by(scene: &Scene, failure_policy: &str) -> Result<()> {
    let path = "/webhooks/0/failurePolicy";
    let patch = json!([{"op": "replace", "path": path, "value": failure_policy}]);
    scene.patch_webhook(&patch).await
}

/// Waits until exactly the cases for which the webhook must be called are refused. The webhook is down.
async fn calls_for(scene: &Scene, cases: &[&Case], expected: &[bool]) -> Result<()> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("the webhook to be called", PATIENCE, async || {
        for (case, expected) in cases.iter().zip(expected) {
            let created = workloads(scene, case.workload.kind)
                .create(&dry_run, &case.object("new")?)
                .await;
            let is_called = match created {
                Ok(_) => false,
                Err(kube::Error::Api(status)) if status.message.contains(UNREACHABLE) => true,
                Err(error) => return Err(error.into()),
            };
            if is_called != *expected {
                return Ok(not_yet(case, is_called));
            }
        }
        Ok(Attempt::Done(()))
    })
    .await
}

/// Waits until the policy restores the hash of exactly the cases that it must preserve, and the outage of the webhook
/// stops no write of them.
async fn keeps(scene: &Scene, cases: &[&Case], expected: &[bool]) -> Result<()> {
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let rubbish =
        json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: "rubbish"}}}}});
    wait_for("the policy to keep the hash", PATIENCE, async || {
        for (case, expected) in cases.iter().zip(expected) {
            let patched = workloads(scene, case.workload.kind)
                .patch(&case.name, &dry_run, &Patch::Merge(&rubbish))
                .await;
            let patched = match patched {
                Err(kube::Error::Api(status)) if status.message.contains(UNREACHABLE) => {
                    return Ok(Attempt::NotYet(status.message.clone()));
                }
                patched => patched?,
            };
            let key = key_of(&serde_json::to_value(patched)?);
            let is_kept = key.as_deref() == Some(HASH);
            if is_kept != *expected {
                return Ok(not_yet(case, is_kept));
            }
        }
        Ok(Attempt::Done(()))
    })
    .await
}

/// Returns the first case that is not as expected. After an upgrade, it takes a moment until all of them are, and the
/// others need not be asked for meanwhile.
fn not_yet(case: &Case, seen: bool) -> Attempt<()> {
    Attempt::NotYet(format!("{seen}: {}", case.workload.manifest()))
}

/// Creates a case with a hash, once an outage of the webhook is ignored.
async fn create(scene: &Scene, case: &Case) -> Result<()> {
    let object = case.object(&case.name)?;
    wait_for("an outage to be ignored", PATIENCE, async || {
        let api = workloads(scene, case.workload.kind);
        Ok(match api.create(&PostParams::default(), &object).await {
            Ok(_) => Attempt::Done(()),
            Err(kube::Error::Api(status)) if status.message.contains(UNREACHABLE) => {
                Attempt::NotYet(status.message.clone())
            }
            Err(error) => return Err(error.into()),
        })
    })
    .await
}

/// Asserts that no condition fails on a pod template without metadata, which the apiserver refuses later.
async fn without_metadata(scene: &Scene) -> Result<()> {
    let bare = Workload::deployment("bare").with(&["spec", "template", "metadata"], Value::Null);
    let manifest = bare.manifest().to_string();
    let create = ["create", "--filename=-"];
    let refused = scene.kubectl_output(&create, &manifest).await?.stderr;
    let is_invalid = refused.contains("spec.template.metadata.labels");
    ensure!(is_invalid || refused.contains(UNREACHABLE), "{refused}");
    Ok(())
}

fn workloads(scene: &Scene, kind: Kind) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind.as_str()));
    Api::namespaced_with(scene.client.clone(), &scene.namespace, &resource)
}

const OURS: &str = "pod-reloader";
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
/// The hash that the policy must preserve.
const HASH: &str = "hash";
/// Error of the apiserver when it calls the webhook, but not when a condition fails.
const UNREACHABLE: &str = "connection refused";
