//! Shared parts of the tests of faults: workloads, edits while something is broken, and counters.

use std::{cell::Cell, time::Duration};

use anyhow::{Context, Result};
use http::Method;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use pod_reloader_e2e::proxy::{Requests, Rule, RuleInForce};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{
    CANARY, ControlPlane, ControlPlaneOptions, Options, PATIENCE, Scene, done_if, full, wait_for,
};
use serde_json::json;
use tokio::time::{interval, timeout};

/// Returns options with two replicas, each behind a proxy of its own.
pub(crate) fn replicated() -> Options {
    Options {
        replicas: 2,
        proxied: true,
        ..Options::default()
    }
}

/// Starts a control plane that may be broken, whose apiserver gets these further arguments.
pub(crate) async fn own_control_plane(apiserver_args: &[&str]) -> Result<ControlPlane> {
    // The workloads have no pods.
    ControlPlane::start(ControlPlaneOptions {
        apiserver_args: apiserver_args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..ControlPlaneOptions::without_running_pods()
    })
    .await
}

/// Creates a few workloads of each kind that list ConfigMap and Secret `app`.
pub(crate) async fn workloads(scene: &Scene) -> Result<Vec<Workload>> {
    so_many_workloads(scene, if full() { 4 } else { 2 }).await
}

/// Creates this number of workloads of each kind that list ConfigMap and Secret `app`.
pub(crate) async fn so_many_workloads(scene: &Scene, of_each_kind: usize) -> Result<Vec<Workload>> {
    let workloads: Vec<_> = Kind::ALL
        .into_iter()
        .flat_map(|kind| {
            (0..of_each_kind)
                .map(move |number| Workload::new(kind, &format!("web-{number}")).without_pods())
        })
        .map(|workload| workload.lists("app").lists_secrets("app"))
        .collect();
    let config = [config_map("app", "0"), secret("app", CANARY)];
    let manifests = workloads.iter().map(Workload::manifest);
    let manifests: Vec<_> = config.into_iter().chain(manifests).collect();
    scene.apply(&manifests).await?;
    Ok(workloads)
}

/// Changes ConfigMap `app`.
pub(crate) async fn change(scene: &Scene, value: &str) -> Result<()> {
    scene.apply(&[config_map("app", value)]).await
}

/// Changes Secret `app` twenty times a second until `fault` is over, as often as the apiserver allows, and
/// once more afterwards. Returns the number of tries.
pub(crate) async fn under_edits(
    scene: &Scene,
    row: &str,
    fault: impl Future<Output = Result<()>>,
) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let known = Cell::new(None);
    let write = async |number: usize| -> Result<()> {
        let version = match known.take() {
            None => secrets.get_metadata("app").await?.resource_version(),
            version => version,
        };
        // An edit that nobody waits for any more is refused if it arrives after the last one: it names the version
        // that it changes. No fault repeats a value of another: that would change nothing.
        let edit = json!({
            "metadata": {"resourceVersion": version},
            "stringData": {"key": format!("{CANARY}{row} {number}")},
        });
        let (params, edit) = (PatchParams::default(), Patch::Merge(&edit));
        let edited = secrets.patch("app", &params, &edit).await?;
        known.set(edited.resource_version());
        Ok(())
    };
    let edit = async |number: usize| -> Result<()> {
        timeout(Duration::from_secs(1), write(number)).await?
    };
    let mut tries = 0;
    let edits = async {
        let mut pace = interval(Duration::from_millis(50));
        loop {
            pace.tick().await;
            tries += 1;
            // An edit may fail: the apiserver is down or frozen.
            let _ = edit(tries).await;
        }
    };
    tokio::select! {
        never = edits => never,
        ended = fault => ended?,
    }
    // All the others may have failed.
    wait_for("an edit after the fault", PATIENCE, async || {
        Ok(edit(tries + 1).await.into())
    })
    .await?;
    Ok(tries + 1)
}

/// Adds a rule to the proxies of all replicas.
pub(crate) fn everywhere(scene: &Scene, rule: &Rule) -> Result<Rules> {
    let rules = scene.replicas().into_iter().map(|replica| {
        let proxy = replica.proxy()?;
        anyhow::Ok(proxy.add(rule.clone()))
    });
    Ok(Rules(rules.collect::<Result<_>>()?))
}

/// One rule in many proxies.
pub(crate) struct Rules(Vec<RuleInForce>);

impl Rules {
    /// Returns how often the rule has applied, over all proxies.
    pub(crate) fn applied(&self) -> u64 {
        self.0.iter().map(|rule| rule.hits().applied).sum()
    }

    /// Waits until the rule has applied this often, over all proxies.
    pub(crate) async fn have_applied(&self, times: u64) -> Result<()> {
        let what = format!("{:?} to apply {times} times", self.0.first());
        wait_for(&what, PATIENCE, async || {
            done_if(self.applied() >= times, format!("{}", self.applied()))
        })
        .await
    }

    /// Removes the rule from all proxies.
    pub(crate) fn remove(&self) {
        self.0.iter().for_each(RuleInForce::remove);
    }
}

/// Selects the lists that watches begin with.
pub(crate) fn lists() -> Requests {
    Requests::any().except_watches().query("limit=")
}

/// Selects patches of workloads.
pub(crate) fn patches() -> Requests {
    Requests::under("/apis/apps/v1/").method(Method::PATCH)
}

/// Selects reads of ConfigMap `app`.
pub(crate) fn reads(scene: &Scene) -> Requests {
    let path = format!("/api/v1/namespaces/{}/configmaps/app", scene.namespace);
    Requests::exactly(path).method(Method::GET)
}

/// Returns the sum of an operator's counter over all replicas.
pub(crate) async fn counted(scene: &Scene, counter: &str) -> Result<u64> {
    let mut sum = 0;
    for replica in scene.replicas() {
        let metrics = replica.operator.metrics().await?;
        let shown = metrics
            .lines()
            .find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '))
            .with_context(|| format!("no metric {counter}"))?;
        sum += shown.parse::<u64>()?;
    }
    Ok(sum)
}
