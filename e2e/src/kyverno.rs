//! Runs Kyverno beside the control plane of a real node: its admission controller and its background controller, under the
//! service accounts of its own manifest.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    beside::{Beside, established},
    control_plane::ControlPlane,
    installation::free_port,
    process::Process,
    programs::go_program,
    real_scene::{LONG, RealScene},
    tool::Tool,
    wait::{Attempt, PATIENCE, wait_for},
};

/// A Kyverno.
pub struct Kyverno {
    kubectl: Tool,
    processes: Vec<Process>,
}

impl Kyverno {
    /// Starts a Kyverno without policies, which may write Secrets and Deployments. [`Kyverno::stop`] must end it.
    ///
    /// # Errors
    /// When it is not built, or does not start.
    pub async fn start(scene: &RealScene) -> Result<Self> {
        let built = go_program("kyverno")?;
        let mut beside = Beside::new(&scene.control_plane, "kyverno", &built)?;
        let kubectl = scene.control_plane.kubectl();
        configure(&kubectl, &built.join("manifests")).await?;
        beside.set("KYVERNO_NAMESPACE", NAMESPACE);
        beside.set("INIT_CONFIG", "kyverno");
        beside.set("METRICS_CONFIG", "kyverno-metrics");
        beside.set("KYVERNO_SVC", "kyverno-svc");
        beside.set_folder("TUF_ROOT", "sigstore")?;
        let processes = run(&mut beside, &scene.control_plane).await?;
        Ok(Self { kubectl, processes })
    }

    /// Applies a ClusterPolicy, and waits until it is in force.
    ///
    /// # Errors
    /// When that takes too long: the error says why it was refused.
    pub async fn enforce(&self, policy: &Value) -> Result<()> {
        let name = policy["metadata"]["name"].as_str().context("no name")?;
        let text = policy.to_string();
        let apply = ["apply", "--filename=-"];
        // Its rights are aggregated by a controller, and its webhooks are registered once it leads.
        wait_for(&format!("the policy {name}"), PATIENCE, async || {
            self.must_run()?;
            let applied = self.kubectl.run_with_input(&apply, &text).await;
            Ok(Attempt::from(applied))
        })
        .await?;
        let timeout = format!("--timeout={}s", LONG.as_secs());
        let ready = [
            "wait",
            "clusterpolicy",
            name,
            "--for=condition=Ready",
            &timeout,
        ];
        self.kubectl.run(&ready).await.map(drop)
    }

    /// Ends it, and removes its webhooks, which would refuse writes.
    pub async fn stop(self) {
        for process in &self.processes {
            process.kill().await;
        }
        let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let own = "--selector=webhook.kyverno.io/managed-by=kyverno";
        if let Err(error) = self.kubectl.run(&["delete", kinds, own]).await {
            tracing::warn!("{error:#}");
        }
    }

    fn must_run(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::must_run)
    }
}

/// Applies what is in its manifest apart from the pods, with rights for its background controller. Removes the policies of an
/// earlier test.
async fn configure(kubectl: &Tool, manifests: &Path) -> Result<()> {
    let file = manifests.join("install-latest-testing.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let is_wanted = |object: &&str| !object.lines().any(|line| line == "kind: Deployment");
    let objects: Vec<&str> = text.split("\n---\n").filter(is_wanted).collect();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    kubectl
        .run_with_input(&apply, &objects.join("\n---\n"))
        .await?;
    established(kubectl, &["crd/clusterpolicies.kyverno.io"]).await?;
    let all = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "kyverno:of-tests",
            // Its admission controller refuses a rule that itself or the other one lacks a right for.
            "labels": {
                "rbac.kyverno.io/aggregate-to-admission-controller": "true",
                "rbac.kyverno.io/aggregate-to-background-controller": "true",
            },
        },
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": all},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": all},
        ],
    });
    kubectl
        .run_with_input(&["apply", "--filename=-"], &role.to_string())
        .await?;
    let delete = ["delete", "clusterpolicies.kyverno.io", "--all"];
    kubectl.run(&delete).await.map(drop)
}

async fn run(beside: &mut Beside, control_plane: &ControlPlane) -> Result<Vec<Process>> {
    let webhook = free_port()?;
    let metrics = free_port()?;
    let admission = [
        "--caSecretName=kyverno-svc.kyverno.svc.kyverno-tls-ca".to_owned(),
        "--tlsSecretName=kyverno-svc.kyverno.svc.kyverno-tls-pair".to_owned(),
        "--backgroundServiceAccountName=system:serviceaccount:kyverno:kyverno-background-controller"
            .to_owned(),
        "--reportsServiceAccountName=system:serviceaccount:kyverno:kyverno-reports-controller"
            .to_owned(),
        // Where the apiserver calls it, instead of a Service.
        format!("--serverIP=127.0.0.1:{webhook}"),
        format!("--webhookServerPort={webhook}"),
        format!("--metricsPort={}", free_port()?),
        "--admissionReports=false".to_owned(),
    ];
    let background = [format!("--metricsPort={metrics}")];
    let mut processes = Vec::new();
    for (account, program, own, port) in [
        (
            "kyverno-admission-controller",
            "kyverno",
            &admission[..],
            webhook,
        ),
        (
            "kyverno-background-controller",
            "background-controller",
            &background[..],
            metrics,
        ),
    ] {
        let token = control_plane.service_account_token(NAMESPACE, account);
        let kubeconfig = beside.directory.join(account);
        control_plane
            .kubeconfig_for(token.await?)
            .write(&kubeconfig)?;
        beside.set("KYVERNO_SERVICEACCOUNT_NAME", account);
        beside.set("KYVERNO_DEPLOYMENT", account);
        beside.set("KYVERNO_POD_NAME", account);
        let common = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--controllerRuntimeMetricsAddress=0".to_owned(),
            "--v=2".to_owned(),
        ];
        let args = [own, &common].concat();
        processes.push(beside.run(account, program, &args, port).await?);
    }
    Ok(processes)
}

/// Namespace of Kyverno.
const NAMESPACE: &str = "kyverno";
