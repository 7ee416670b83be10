//! A test on a real node: a release of the chart whose pods run, and a namespace for pods that answer.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    sync::Once,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    answers::{ask, container},
    components::RealNode,
    control_plane::ControlPlane,
    credentials::random_hex,
    description::CONTROL_PLANE_VARIABLE,
    failure,
    installation::{create_namespace, delete_namespace, merge},
    machine::MachineProcess,
    tool::Output,
    version::chart,
    wait::{Attempt, PATIENCE, done_if, wait_for},
    workload::{CONFIG_HASH, Kind, Workload, config_map, key_of},
};

/// A release of the chart on a real node, and a namespace. There is one release at a time: it looks after all
/// namespaces.
pub struct RealScene {
    /// Control plane of the node.
    pub control_plane: ControlPlane,
    /// The node.
    pub node: RealNode,
    /// Client of an administrator.
    pub client: Client,
    /// Namespace of the workloads.
    pub namespace: String,
}

/// A version of chart and operator.
#[derive(Clone, Copy, Debug)]
enum Release {
    /// The earlier version of the node.
    Earlier,
    /// That of these sources.
    Current,
}

impl RealScene {
    /// Runs one test with a release of the chart with `values`, shows what happened if it failed, and cleans up. Without
    /// a real node, it does nothing and says so, or fails if [`NEEDED_VARIABLE`] is set.
    ///
    /// # Errors
    /// Errors of the test, or of the installation.
    pub async fn play(
        name: &str,
        values: Value,
        test: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        Self::play_release(name, Release::Current, values, test).await
    }

    /// Runs a test like [`RealScene::play`], with a release of the earlier version that the node has. If it has none, that
    /// is a release of these sources, too.
    ///
    /// # Errors
    /// Same as [`RealScene::play`].
    pub async fn play_earlier(
        name: &str,
        values: Value,
        test: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        Self::play_release(name, Release::Earlier, values, test).await
    }

    async fn play_release(
        name: &str,
        release: Release,
        values: Value,
        test: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let Some((control_plane, node)) = real_node()? else {
            return Ok(());
        };
        let client = control_plane.admin_client().await?;
        let namespace = format!("{name}-{}", &random_hex()?[..5]);
        create_namespace(&client, &namespace, &[]).await?;
        let scene = Self {
            control_plane,
            node,
            client,
            namespace,
        };
        let played = async {
            scene.is_alone().await?;
            scene.install(release, &values).await?;
            test(&scene).await
        };
        let outcome = AssertUnwindSafe(played).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(()))) {
            scene.show().await;
        }
        scene.clear().await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Waits until no operator of an earlier test runs any more.
    async fn is_alone(&self) -> Result<()> {
        wait_for("earlier operators to end", PATIENCE, async || {
            let running = self.operator_processes()?.len();
            Ok(match running {
                0 => Attempt::Done(()),
                _ => Attempt::NotYet(format!("{running} run")),
            })
        })
        .await
    }

    /// Upgrades the release to chart and operator of these sources, as [`RealScene::play`] installs them.
    ///
    /// # Errors
    /// When helm or the apiserver refuses, or the pods do not become ready.
    pub async fn upgrade(&self, values: &Value) -> Result<()> {
        self.install(Release::Current, values).await
    }

    /// Installs or upgrades the release, with `values` and the image alone, and waits until its pods are ready and the
    /// apiserver calls the webhook.
    async fn install(&self, release: Release, values: &Value) -> Result<()> {
        let (chart, operator) = match (release, &self.node.earlier) {
            (Release::Earlier, Some(earlier)) => (earlier.chart.clone(), &earlier.operator),
            (Release::Earlier, None) | (Release::Current, _) => (chart(), &self.node.operator),
        };
        let mut all = operator.values();
        merge(&mut all, values);
        let chart = chart.display().to_string();
        let args = [
            "upgrade",
            "--install",
            RELEASE,
            &chart,
            "--create-namespace",
            "--wait",
        ];
        let args = [&args[..], &["--timeout=5m", "--values=-"], &OF_RELEASE].concat();
        let helm = self.control_plane.helm();
        helm.run_with_input(&args, &all.to_string()).await?;
        self.webhook_called().await
    }

    /// Runs a command of helm on the release.
    ///
    /// # Errors
    /// When helm fails.
    pub async fn helm(&self, command: &str, args: &[&str]) -> Result<String> {
        let args = [&[command, RELEASE], args, &OF_RELEASE[..]].concat();
        self.control_plane.helm().run(&args).await
    }

    /// Waits until the webhook sets a hash, without storing anything.
    async fn webhook_called(&self) -> Result<()> {
        let trial = Workload::deployment("trial").lists("none").manifest();
        let trial: Deployment = serde_json::from_value(trial)?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let deployments = self.deployments();
        wait_for("the webhook to be called", PATIENCE, async || {
            let created = match deployments.create(&dry_run, &trial).await {
                Ok(created) => created,
                // A webhook that must not fail refuses until then.
                Err(error) => return Ok(Attempt::NotYet(error.to_string())),
            };
            Ok(match key_of(&serde_json::to_value(created)?) {
                Some(_) => Attempt::Done(()),
                None => Attempt::NotYet(format!("no annotation {CONFIG_HASH}")),
            })
        })
        .await
    }

    /// Waits until pinned copies are put into new pods, without storing a pod.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn pins_are_in_force(&self) -> Result<()> {
        const COPY: &str = "app-0123456789";
        let pod = json!({
            "metadata": {"name": "trial", "annotations": {PINS: format!("app={COPY}")}},
            "spec": {
                "containers": [{"name": "main", "image": "app", "envFrom": [{"configMapRef": {"name": "app"}}]}],
            },
        });
        let pod: Pod = serde_json::from_value(pod)?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        wait_for("a pod to be pinned", PATIENCE, async || {
            // The default service account may not be there yet.
            Ok(match pods.create(&dry_run, &pod).await {
                Ok(pod) if json!(pod)["spec"].to_string().contains(COPY) => Attempt::Done(()),
                Ok(_) => Attempt::NotYet("its ConfigMap is not a copy".to_owned()),
                Err(error) => Attempt::NotYet(error.to_string()),
            })
        })
        .await
    }

    /// Runs kubectl in the namespace of the workloads.
    ///
    /// # Errors
    /// When kubectl fails.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let args = [args, &["--namespace", &self.namespace]].concat();
        self.control_plane.kubectl().run(&args).await
    }

    /// Runs kubectl like [`RealScene::kubectl`], and returns the output whatever the exit code.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl_output(&self, args: &[&str]) -> Result<Output> {
        let args = [args, &["--namespace", &self.namespace]].concat();
        self.control_plane.kubectl().output(&args, "").await
    }

    /// Applies manifests with kubectl.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn apply(&self, manifests: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        let apply = ["apply", "--filename=-", "--namespace", &self.namespace];
        let kubectl = self.control_plane.kubectl();
        let applied = kubectl.run_with_input(&apply, &list.to_string()).await;
        applied.map(drop)
    }

    /// Applies a ConfigMap with the single key `key`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        self.apply(&[config_map(name, value)]).await
    }

    /// Returns a Deployment of pods that answer, with further fields of container and pod. It is managed by `auto`.
    pub fn answering(&self, name: &str, replicas: usize, fields: &Value, pod: &Value) -> Workload {
        self.answering_as(Kind::Deployment, name, replicas, fields, pod)
    }

    /// Returns a workload like [`RealScene::answering`], of a kind that has a number of replicas.
    pub fn answering_as(
        &self,
        kind: Kind,
        name: &str,
        replicas: usize,
        fields: &Value,
        pod: &Value,
    ) -> Workload {
        let mut spec = json!({
            "terminationGracePeriodSeconds": 5,
            "containers": [container(&self.node, fields)],
        });
        merge(&mut spec, pod);
        Workload::new(kind, name)
            .annotated(AUTO, "true")
            .with(&["spec", "replicas"], json!(replicas))
            .with(&["spec", "template", "spec"], spec)
    }

    /// Applies a workload, and waits until all its pods are ready.
    ///
    /// # Errors
    /// When it is refused, or a pod does not become ready.
    pub async fn create(&self, workload: &Workload) -> Result<()> {
        self.apply(&[workload.manifest()]).await?;
        match workload.kind {
            Kind::Deployment => self.rolled_out(&workload.name).await,
            _ => self.set_rolled_out(workload).await,
        }
    }

    /// Waits until all pods of a StatefulSet or DaemonSet have its pod template, and are ready.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn set_rolled_out(&self, workload: &Workload) -> Result<()> {
        let timeout = format!("--timeout={}s", LONG.as_secs());
        let status = ["rollout", "status", &workload.reference(), &timeout];
        self.kubectl(&status).await.map(drop)
    }

    /// Waits until a Deployment has exactly the pods that it should have, and they are ready.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn rolled_out(&self, name: &str) -> Result<()> {
        wait_for(&format!("{name} to be rolled out"), LONG, async || {
            Ok(match self.unfinished(name).await? {
                None => Attempt::Done(()),
                Some(reason) => Attempt::NotYet(reason),
            })
        })
        .await
    }

    async fn unfinished(&self, name: &str) -> Result<Option<String>> {
        let deployment = self.deployments().get(name).await?;
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let status = deployment.status.unwrap_or_default();
        let is_observed = status.observed_generation >= deployment.metadata.generation;
        let counts = [
            status.replicas,
            status.updated_replicas,
            status.available_replicas,
        ];
        let pods = self.pods(name).await?.len();
        let has_pods = counts.iter().all(|count| *count == wanted)
            && wanted.and_then(|wanted| usize::try_from(wanted).ok()) == Some(pods);
        let reason = || format!("{counts:?} of {wanted:?}, {pods} pods that do not end");
        Ok((!is_observed || !has_pods).then(reason))
    }

    /// Returns the ReplicaSets of a Deployment: one for each pod template that it has had.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn revisions(&self, name: &str) -> Result<BTreeSet<String>> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let sets = sets.list(&of_app(name)).await?.items.into_iter();
        Ok(sets.filter_map(|set| set.metadata.name).collect())
    }

    /// Waits until a Deployment has one revision more than `before` and is rolled out. Fails if it has two more.
    ///
    /// # Errors
    /// When that takes too long, or there are more.
    pub async fn rolls_once(&self, name: &str, before: &BTreeSet<String>) -> Result<()> {
        wait_for(&format!("a rollout of {name}"), LONG, async || {
            let new = self.new_revisions(name, before).await?;
            ensure!(new <= 1, "{name} has {new} rollouts for one change");
            Ok(match (new, self.unfinished(name).await?) {
                (1, None) => Attempt::Done(()),
                (_, reason) => Attempt::NotYet(format!("{new} rollouts; {reason:?}")),
            })
        })
        .await
    }

    /// Counts the revisions that are not in `before`.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn new_revisions(&self, name: &str, before: &BTreeSet<String>) -> Result<usize> {
        Ok(self.revisions(name).await?.difference(before).count())
    }

    /// Returns the pods of a workload that do not end.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn pods(&self, app: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut pods = pods.list(&of_app(app)).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Returns the pods of the operator that do not end.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn operators(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), RELEASE);
        let of_release =
            format!("app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component=controller");
        let mut pods = pods
            .list(&ListParams::default().labels(&of_release))
            .await?
            .items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until every pod of a workload answers with `expected`.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn all_answer(&self, app: &str, path: &str, expected: &str) -> Result<()> {
        let what = format!("every pod of {app} to answer {path} with {expected:?}");
        wait_for(&what, LONG, async || {
            let answers = self.answers(app, path).await?;
            let is_right = |answer: &Option<String>| answer.as_deref() == Some(expected);
            done_if(
                !answers.is_empty() && answers.iter().all(is_right),
                format!("{answers:?}"),
            )
        })
        .await
    }

    /// Returns the answer of each pod of a workload; `None` for one that does not answer.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn answers(&self, app: &str, path: &str) -> Result<Vec<Option<String>>> {
        let mut answers = Vec::new();
        for pod in self.pods(app).await? {
            answers.push(match address(&pod) {
                Some(address) => ask(&address, path).await.ok().flatten(),
                None => None,
            });
        }
        Ok(answers)
    }

    /// Waits for an Event with this reason, and returns the text of all of them.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn event(&self, reason: &str) -> Result<String> {
        let of_reason = format!("--field-selector=reason={reason}");
        let texts = "--output=jsonpath={.items[*].message}";
        let events = ["get", "events", &of_reason, texts];
        wait_for(&format!("an Event {reason}"), LONG, async || {
            let texts = self.kubectl(&events).await?;
            Ok(match texts.is_empty() {
                false => Attempt::Done(texts),
                true => Attempt::NotYet("none".to_owned()),
            })
        })
        .await
    }

    /// Returns the processes of the operator's containers.
    ///
    /// # Errors
    /// When there is no `/proc`.
    pub fn operator_processes(&self) -> Result<Vec<MachineProcess>> {
        let mut all = MachineProcess::all()?;
        let of_node = &self.node.cgroup;
        all.retain(|it| it.executable == Path::new("/pod-reloader") && it.is_in_cgroup(of_node));
        Ok(all)
    }

    /// Returns the process of a program of the node, such as `kubelet`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn node_process(&self, program: &str) -> Result<MachineProcess> {
        let executable = self.control_plane.bin(program);
        // The folder may have links.
        let executable = fs::canonicalize(&executable).unwrap_or(executable);
        let mut all = MachineProcess::all()?.into_iter();
        let found = all.find(|it| it.executable == executable);
        found.with_context(|| format!("{program} does not run"))
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Prints pods, Events and the end of the operator's logs. Copies the logs of the control plane to cargo's build
    /// folder.
    async fn show(&self) {
        match failure::keep_logs(&self.control_plane, &self.namespace) {
            Ok(kept) => eprintln!("--- the logs are in {}", kept.display()),
            Err(error) => eprintln!("--- the logs cannot be kept: {error:#}"),
        }
        let kubectl = self.control_plane.kubectl();
        let of_release = format!("--selector=app.kubernetes.io/instance={RELEASE}");
        for args in [
            &[
                "get",
                "pods,replicasets",
                "--all-namespaces",
                "--output=wide",
            ][..],
            &["get", "events", "--all-namespaces"],
            &["describe", "pods", "--namespace", &self.namespace],
            &["describe", "pods", "--namespace", RELEASE],
            &[
                "logs",
                "--tail=200",
                "--prefix",
                "--namespace",
                RELEASE,
                &of_release,
            ],
        ] {
            failure::print(args, kubectl.run(args).await);
        }
    }

    async fn clear(&self) {
        // What is left dies with the cluster.
        let _ = delete_namespace(&self.client, &self.namespace).await;
        let _ = self
            .helm("uninstall", &["--wait", "--ignore-not-found"])
            .await;
    }
}

/// Returns the address of a pod, once it has one.
pub fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

/// Returns how often the containers of a pod have been started again.
pub fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let containers = containers.unwrap_or_default().iter();
    containers.map(|container| container.restart_count).sum()
}

/// Returns the real node that this process is on; `None`, and a line, if there is none and none is needed.
fn real_node() -> Result<Option<(ControlPlane, RealNode)>> {
    static SAID: Once = Once::new();
    if env::var_os(CONTROL_PLANE_VARIABLE).is_some() {
        let control_plane = ControlPlane::connect()?;
        if let Some(node) = control_plane.real_node().cloned() {
            return Ok(Some((control_plane, node)));
        }
    }
    ensure!(
        env::var_os(NEEDED_VARIABLE).is_none(),
        "there is no real node here, and {NEEDED_VARIABLE} is set"
    );
    SAID.call_once(|| {
        // Not by a macro, whose output is shown only if the test fails.
        let said = b"the tests on a real node do nothing here: `make test-real` runs them\n";
        let _ = std::io::stderr().write_all(said);
    });
    Ok(None)
}

fn of_app(name: &str) -> ListParams {
    ListParams::default().labels(&format!("app={name}"))
}

/// Variable that makes tests fail where there is no real node.
pub const NEEDED_VARIABLE: &str = "POD_RELOADER_NEEDS_REAL_NODE";

/// Name and namespace of the release.
pub const RELEASE: &str = "pod-reloader";
const OF_RELEASE: [&str; 2] = ["--namespace", RELEASE];

/// Annotation by which a workload tracks what its pod template uses.
pub const AUTO: &str = "pod-reloader.cs.sap.com/auto";

/// Annotation of a pod template with the pinned copies that its pods use.
const PINS: &str = "pod-reloader.cs.sap.com/pins";

/// Time limit for what takes a minute on a machine that is not busy: pulls of images, rollouts, updates of volumes.
pub const LONG: Duration = Duration::from_secs(240);
