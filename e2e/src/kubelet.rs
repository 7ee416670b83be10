//! Acts as the kubelets for the pods of the chart: their containers run as processes beside the control
//! plane.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Request};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    control_plane::ControlPlane,
    installation::{Installation, free_port},
    operator::Operator,
    programs::of_the_workspace,
    tool::Tool,
    wait::{Attempt, PATIENCE, wait_for},
};

/// Runs the operators of all releases of the chart in one cluster.
///
/// kwok makes the pods Ready, whatever runs in them. A Deployment with replicas has one process, with the
/// arguments of its container. The process is ready when [`Kubelet::sync`] returns.
pub struct Kubelet<'a> {
    control_plane: &'a ControlPlane,
    args: Vec<String>,
    directory: PathBuf,
    running: Mutex<BTreeMap<Place, Running>>,
    ports: std::sync::Mutex<BTreeMap<String, u16>>,
}

/// Namespace and name of a Deployment.
type Place = (String, String);

struct Running {
    /// Pod template that it was started for.
    template: Value,
    operator: Operator,
    /// Keeps the mounted Secrets up to date.
    _installation: Installation,
}

impl<'a> Kubelet<'a> {
    /// Creates a kubelet that runs nothing yet. Each process will get `args` in addition to those of its
    /// container. Files are below `directory`.
    pub fn new(control_plane: &'a ControlPlane, args: &[&str], directory: &Path) -> Self {
        Self {
            control_plane,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            directory: directory.to_owned(),
            running: Mutex::default(),
            ports: std::sync::Mutex::default(),
        }
    }

    /// Returns the values by which the apiserver reaches the process of a release: through a Service of type
    /// ExternalName.
    ///
    /// # Errors
    /// When every port is taken.
    pub fn values(&self, release: &str) -> Result<Value> {
        let port = self.port(release)?;
        Ok(json!({"service": {"type": "ExternalName", "externalName": "localhost", "port": port}}))
    }

    /// Starts, replaces and stops processes to match the Deployments, and waits until each is ready.
    ///
    /// # Errors
    /// When a process does not become ready.
    pub async fn sync(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let client = self.control_plane.admin_client().await?;
        let of_the_chart = ListParams::default().labels(OF_THE_CHART);
        let list = Request::new("/apis/apps/v1/deployments").list(&of_the_chart)?;
        let list: Value = client.request(list).await?;
        let mut wanted = BTreeMap::new();
        for deployment in list["items"].as_array().into_iter().flatten() {
            let place = ["namespace", "name"].map(|field| text(&deployment["metadata"][field]));
            let [namespace, name] = place;
            let spec = &deployment["spec"];
            if spec["replicas"].as_u64() > Some(0) {
                let release = text(&deployment["metadata"]["annotations"][RELEASE]);
                wanted.insert((namespace, name), (release, spec["template"].clone()));
            }
        }
        let stays = |place: &Place, running: &Running| {
            wanted
                .get(place)
                .is_some_and(|(_, template)| *template == running.template)
        };
        for (place, replaced) in std::mem::take(&mut *running) {
            match stays(&place, &replaced) {
                true => drop(running.insert(place, replaced)),
                false => replaced.operator.stop().await,
            }
        }
        for (place, (release, template)) in wanted {
            if let Entry::Vacant(entry) = running.entry(place) {
                let started = self.start(entry.key(), &release, template).await?;
                entry.insert(started);
            }
        }
        for running in running.values() {
            running.operator.ready().await?;
        }
        Ok(())
    }

    /// Returns the logs of all operators that run now.
    pub async fn logs(&self) -> String {
        let running = self.running.lock().await;
        let logs = running.values().map(|running| running.operator.log());
        logs.filter_map(Result::ok).collect()
    }

    /// Runs the containers of the next pod of `helm test`.
    ///
    /// # Errors
    /// Same as [`play_test_pod`].
    pub async fn test(&self) -> Result<()> {
        let selector = format!("--selector={OF_THE_CHART}");
        play_test_pod(self.control_plane, &self.directory, &selector).await
    }

    async fn start(
        &self,
        (namespace, name): &Place,
        release: &str,
        template: Value,
    ) -> Result<Running> {
        let port = self.port(release)?;
        // Each process has a directory of its own, so that the log of a replaced one stays.
        let directory = self.directory.join(format!("{namespace}-{name}-{port}"));
        let installation =
            Installation::join(self.control_plane, namespace, name, port, &directory).await?;
        let account = installation.service_account();
        let token = self
            .control_plane
            .service_account_token(namespace, account)
            .await?;
        let kubeconfig = self.control_plane.kubeconfig_for(token);
        Ok(Running {
            template,
            operator: Operator::start(&installation, &kubeconfig, &directory, &self.args)?,
            _installation: installation,
        })
    }

    fn port(&self, release: &str) -> Result<u16> {
        let mut ports = self.ports.lock().expect("nobody panics with it");
        if let Some(port) = ports.get(release) {
            return Ok(*port);
        }
        let port = free_port()?;
        ports.insert(release.to_owned(), port);
        Ok(port)
    }
}

/// Acts as the kubelet for the `helm test` pod that `selector` selects, in any namespace: runs its
/// containers, which are the operator's program, one after the other, as its service account.
///
/// # Errors
/// When no such pod appears within a minute. A container that fails is reported in the pod's status.
pub async fn play_test_pod(
    control_plane: &ControlPlane,
    directory: &Path,
    selector: &str,
) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let list = ["get", "pods", "--all-namespaces", selector, JSON];
    let pod = wait_for("the pod of helm test", PATIENCE, async || {
        let list: Value = serde_json::from_str(&kubectl.run(&list).await?)?;
        let pods = list["items"].as_array().into_iter().flatten();
        let mut tests = pods.filter(|pod| {
            let hook = &pod["metadata"]["annotations"]["helm.sh/hook"];
            hook == "test" && pod["status"]["phase"] != "Succeeded"
        });
        Ok(match tests.next() {
            Some(pod) => Attempt::Done(pod.clone()),
            None => Attempt::NotYet("there is none".to_owned()),
        })
    })
    .await?;
    let [namespace, name] = ["namespace", "name"].map(|field| text(&pod["metadata"][field]));
    let spec = &pod["spec"];
    let account = spec["serviceAccountName"].as_str();
    let account = account.context("a service account")?;
    let token = control_plane
        .service_account_token(&namespace, account)
        .await?;
    let kubeconfig = directory.join("test-pod.kubeconfig");
    control_plane.kubeconfig_for(token).write(&kubeconfig)?;
    let operator = of_the_workspace("pod-reloader").context("the operator is not built")?;
    let operator = Tool::new(operator, kubeconfig, directory.to_owned());
    let containers = ["initContainers", "containers"].map(|list| spec[list].as_array());
    let mut phase = "Succeeded";
    for container in containers.into_iter().flatten().flatten() {
        ensure!(container["command"].is_null(), "{container}");
        let args: Vec<String> = serde_json::from_value(container["args"].clone())?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if let Err(error) = operator.run(&args).await {
            eprintln!("{}: {error:#}", container["name"]);
            phase = "Failed";
            break;
        }
    }
    let patch = json!({"status": {"phase": phase}}).to_string();
    let patch = [
        "patch",
        "pod",
        &name,
        "--namespace",
        &namespace,
        "--subresource=status",
        "--patch",
        &patch,
    ];
    kubectl.run(&patch).await.map(|_| ())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Label of everything that the chart creates.
const OF_THE_CHART: &str = "app.kubernetes.io/name=pod-reloader";
/// Annotation in which Helm names the release.
const RELEASE: &str = "meta.helm.sh/release-name";
const JSON: &str = "--output=json";
