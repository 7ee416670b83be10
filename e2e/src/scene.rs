//! A test on a control plane: an operator of its own, and a namespace that only it looks after.

mod crowd;
mod objects;
mod replicas;
mod rights;
mod server_side;

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    slice::from_ref,
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use futures::FutureExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::replicas::{Replicas, kubeconfig};
pub use self::{crowd::crowd, replicas::Replica, server_side::try_apply};
use crate::{
    apply::{api_of, apply},
    audit::{AuditEvent, AuditLog, Mark},
    control_plane::ControlPlane,
    credentials::random_hex,
    failure,
    installation::{
        Installation, create_namespace, delete_namespace, delete_release, empty_namespace,
        empty_operators_namespace, has_own_values, merge,
    },
    operator::Operator,
    oracle::{self, Truth},
    proxy::{Proxy, Selection},
    tool::Tool,
    version::Version,
    wait::{Attempt, PATIENCE, done_if, wait_for},
    workload::{BASELINE, Workload, config_map, key_of},
};

/// Stands for the namespace of the scene in the values, the labels and the selection of [`Options`].
pub const THIS_NAMESPACE: &str = "THIS-NAMESPACE";

/// The processes of the chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tested {
    /// The one that answers reviews and restarts workloads.
    #[default]
    Controller,
    /// The one that writes Secrets and custom resources.
    Writer,
}

/// Settings of a [`Scene`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's `--settle-period`.
    pub settle_period: &'static str,
    /// The process that the test is about: [`Scene::operator`]. If the chart renders both, the other one runs beside it.
    pub tested: Tested,
    /// Further arguments of the operator.
    pub args: Vec<String>,
    /// Failure policy of the webhook.
    pub failure_policy: &'static str,
    /// True if the webhook configuration has match conditions.
    pub match_conditions: bool,
    /// True if the operator reaches the apiserver through a proxy that can break.
    pub proxied: bool,
    /// Objects of a kind that the operator sees in lists and watches, so that it leaves alone those of other tests. The
    /// operator reaches the apiserver through a proxy then, as with `proxied`.
    pub selection: Option<Selection>,
    /// Number of replicas behind a balancer, which elect a leader. With 0 there is one operator, which leads,
    /// and which the apiserver calls directly. Replicas do not wait for calls to drain, unless `args` say so.
    pub replicas: usize,
    /// True if the operator runs from the start.
    pub running: bool,
    /// True if it looks after every namespace, not just that of the scene. So it does, too, in a run with values of its
    /// own: some features of the chart are for all namespaces.
    pub everywhere: bool,
    /// Further values of the chart. Unless they say otherwise, the webhook has more time than the chart gives
    /// it.
    pub values: Value,
    /// Labels of the workloads' namespace, such as `stage=live`.
    pub namespace_labels: Vec<String>,
    /// Version that is installed.
    pub version: Version,
    /// True if the chart is installed as a Helm release, which a test can upgrade. Otherwise its objects are
    /// created directly, which is much faster.
    pub released: bool,
}

impl Default for Options {
    /// Returns options with a webhook whose failures fail writes, so that a test notices them.
    fn default() -> Self {
        Self {
            settle_period: "300ms",
            tested: Tested::default(),
            args: Vec::new(),
            failure_policy: "Fail",
            match_conditions: true,
            proxied: false,
            selection: None,
            replicas: 0,
            running: true,
            everywhere: false,
            values: Value::Null,
            namespace_labels: Vec::new(),
            version: Version::present(),
            released: false,
        }
    }
}

impl Options {
    /// Returns the defaults, with these values of the chart.
    pub fn with_values(values: Value) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }

    /// Returns the defaults, with this `--settle-period`.
    pub fn settling(settle_period: &'static str) -> Self {
        Self {
            settle_period,
            ..Self::default()
        }
    }

    /// Returns the defaults, with a webhook whose failures are ignored.
    pub fn ignoring() -> Self {
        Self {
            failure_policy: "Ignore",
            ..Self::default()
        }
    }

    /// Returns the defaults, with a proxy before the apiserver.
    pub fn proxied() -> Self {
        Self {
            proxied: true,
            ..Self::default()
        }
    }

    /// Returns the defaults, with a Helm release.
    pub fn released() -> Self {
        Self {
            released: true,
            ..Self::default()
        }
    }
}

/// An operator, and a namespace that only it looks after.
pub struct Scene {
    /// Control plane that the scene uses.
    pub control_plane: ControlPlane,
    /// Namespace of the workloads.
    pub namespace: String,
    /// The operator's installation in the cluster.
    pub installation: Installation,
    /// The operator, or the first of its replicas.
    pub operator: Operator,
    /// Client of an administrator.
    pub client: Client,
    /// Proxy between that operator and the apiserver, if [`Options::proxied`] or [`Options::selection`] asks for it.
    pub proxy: Option<Proxy>,
    replicas: Replicas,
    /// The process of the chart that the test is not about, if there are two.
    other: Option<Other>,
    audit_log: AuditLog,
    /// Position in the audit log before the operator existed.
    began: Mark,
    options: Options,
    directory: TempDir,
}

/// The process of the chart that a test is not about.
struct Other {
    installation: Installation,
    replica: Replica,
}

/// The state of a workload at some point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Config hash on its pod template.
    pub key: Option<String>,
    /// Names of its ReplicaSets or ControllerRevisions. Rollouts are recognised by these and not by pods,
    /// because kwok makes pods Ready even if a Secret is missing.
    pub revisions: BTreeSet<String>,
}

impl Snapshot {
    /// Counts the revisions that `before` lacks: rollouts to something new.
    pub fn new_revisions(&self, before: &Self) -> usize {
        self.revisions.difference(&before.revisions).count()
    }
}

impl Scene {
    /// Runs one test: sets the scene, runs `test`, shows what happened if it failed, and cleans up.
    ///
    /// # Errors
    /// Errors of the test.
    pub async fn play(options: Options, test: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<()> {
        Self::play_on(ControlPlane::connect()?, options, test).await
    }

    /// Runs a test like [`Scene::play`], on a control plane that the test may break and that is stopped in
    /// the end.
    ///
    /// # Errors
    /// Errors of the test.
    pub async fn play_on(
        control_plane: ControlPlane,
        options: Options,
        test: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let scene = Self::set(control_plane, &namespace_name()?, options).await?;
        let outcome = AssertUnwindSafe(test(&scene)).catch_unwind().await;
        if !matches!(outcome, Ok(Ok(()))) {
            scene.show().await;
        }
        scene.clear().await;
        scene.control_plane.stop().await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Installs an operator named `NAMESPACE-op`, and creates the namespace.
    ///
    /// # Errors
    /// When the operator or the apiserver does not answer. What explains it is printed, as when a test fails, and the
    /// operator is removed: a webhook that cannot be called would fail other tests.
    pub async fn set(
        control_plane: ControlPlane,
        namespace: &str,
        options: Options,
    ) -> Result<Self> {
        let options = options.of(namespace);
        let namespace = namespace.to_owned();
        let audit_log = control_plane.audit_log().await?;
        let began = audit_log.end()?;
        let directory = tempfile::Builder::new()
            .prefix("pod-reloader-e2e-")
            .tempdir()?;
        let client = control_plane.admin_client().await?;
        // The chart creates Roles in the managed namespaces.
        create_namespace(&client, &namespace, &options.namespace_labels).await?;
        let installation = Installation::create(
            &control_plane,
            &format!("{namespace}-op"),
            directory.path(),
            options.version.clone(),
            &options.values(&namespace),
            options.released,
        )
        .await?;
        let writer = installation.writer().await?;
        let (installation, other) = match options.tested {
            Tested::Controller => (installation, writer),
            Tested::Writer => (
                writer.context("the chart renders no writer")?,
                Some(installation),
            ),
        };
        let (replicas, first) =
            Replicas::start(&control_plane, &installation, directory.path(), &options).await?;
        let other = match other {
            Some(installation) => {
                let directory = directory.path().join("other");
                let replica =
                    Replica::start(&control_plane, &installation, &directory, &options).await?;
                Some(Other {
                    installation,
                    replica,
                })
            }
            None => None,
        };
        let scene = Self {
            audit_log,
            began,
            control_plane,
            namespace,
            installation,
            operator: first.operator,
            client,
            proxy: first.proxy,
            replicas,
            other,
            options,
            directory,
        };
        let begun = scene.begin().await;
        if begun.is_err() {
            scene.show().await;
            scene.clear().await;
        }
        begun.map(|()| scene)
    }

    /// Waits until the processes are ready and the webhook is called. Then stops them, unless they are to run.
    async fn begin(&self) -> Result<()> {
        for replica in self.processes() {
            replica.operator.ready().await?;
        }
        self.webhook_called().await?;
        if !self.options.running {
            for replica in self.processes() {
                replica.operator.stop().await;
            }
        }
        Ok(())
    }

    /// Runs `test` with another namespace, NAMESPACE-`suffix`, which has the labels of the first one and is
    /// deleted in the end.
    ///
    /// # Errors
    /// Errors of the test.
    pub async fn with_namespace(
        &self,
        suffix: &str,
        test: impl AsyncFnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let name = format!("{}-{suffix}", self.namespace);
        create_namespace(&self.client, &name, &self.options.namespace_labels).await?;
        let outcome = test(&name).await;
        delete_namespace(&self.client, &name).await?;
        outcome
    }

    /// Deletes what other tests would have to list, in a namespace that the test has created, and leaves the namespace. To
    /// delete it would take more than a hundred requests of the controller manager.
    ///
    /// # Errors
    /// When that is refused, or the apiserver does not answer.
    pub async fn empty_namespace(&self, name: &str) -> Result<()> {
        empty_namespace(&self.client, name).await
    }

    /// Returns the process of the chart that the test is not about.
    ///
    /// # Errors
    /// When the chart renders one process only.
    pub fn other(&self) -> Result<&Operator> {
        Ok(&self.the_other()?.replica.operator)
    }

    /// Returns the installation of that process.
    ///
    /// # Errors
    /// Same as [`Scene::other`].
    pub fn others_installation(&self) -> Result<&Installation> {
        Ok(&self.the_other()?.installation)
    }

    fn the_other(&self) -> Result<&Other> {
        let other = self.other.as_ref();
        other.context("the chart renders one process only")
    }

    /// Returns all replicas, and that process.
    pub fn processes(&self) -> impl Iterator<Item = Replica> {
        let other = self.other.as_ref().map(|it| it.replica.clone());
        self.replicas().into_iter().chain(other)
    }

    /// Waits until the apiserver calls the webhook.
    async fn webhook_called(&self) -> Result<()> {
        if !self.options.match_conditions {
            let patch = json!([{"op": "remove", "path": "/webhooks/0/matchConditions"}]);
            self.patch_webhook(&patch).await?;
        }
        wait_for("the apiserver to call the webhook", PATIENCE, async || {
            Ok(match self.is_webhook_called().await {
                Ok(true) => Attempt::Done(()),
                Ok(false) => Attempt::NotYet("it was not called".to_owned()),
                Err(error) => Attempt::NotYet(format!("{error:#}")),
            })
        })
        .await
    }

    /// Returns true if a Deployment that is created in a dry run gets a config hash.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn is_webhook_called(&self) -> Result<bool> {
        let probe = Workload::deployment("probe").lists("absent").manifest();
        let created = self.try_create(&self.namespace, &probe).await?;
        Ok(key_of(&created).is_some())
    }

    /// Returns kubectl as an administrator. [`Scene::kubectl`] also sets the namespace.
    pub fn tool(&self) -> Tool {
        self.control_plane.kubectl()
    }

    /// Waits until a metric of the operator has this value, like [`Operator::shows`].
    ///
    /// # Errors
    /// Same as [`Operator::shows`].
    pub async fn shows(&self, name: &str, value: &str) -> Result<()> {
        self.operator.shows(name, value).await
    }

    /// Returns a client with the token of the operator.
    ///
    /// # Errors
    /// When the apiserver gives no token.
    pub async fn operators_client(&self) -> Result<Client> {
        self.client_of(&self.installation).await
    }

    /// Returns a client with the token of an installation.
    ///
    /// # Errors
    /// When the apiserver gives no token.
    pub async fn client_of(&self, installation: &Installation) -> Result<Client> {
        let token = self
            .control_plane
            .service_account_token(&installation.namespace, installation.service_account())
            .await?;
        self.control_plane.kubeconfig_for(token).client().await
    }

    /// Runs kubectl in the operator's own namespace.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn operators_kubectl(&self, args: &[&str]) -> Result<String> {
        let namespaced = [&["--namespace", &*self.installation.namespace], args].concat();
        self.tool().run(&namespaced).await
    }

    /// Runs kubectl in the namespace of the workloads.
    ///
    /// # Errors
    /// When it exits with a code other than 0.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with_input(args, "").await
    }

    /// Runs kubectl like [`Scene::kubectl`], with `input` on standard input.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let output = self.kubectl_output(args, input).await?;
        ensure!(
            output.code == Some(0),
            "kubectl {} ended by {:?}\n{}{}",
            args.join(" "),
            output.code,
            output.stderr,
            output.stdout
        );
        Ok(output.stdout)
    }

    /// Runs kubectl like [`Scene::kubectl_with_input`]. Also returns standard error, which has the warnings.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl_output(&self, args: &[&str], input: &str) -> Result<crate::tool::Output> {
        // `kubectl replace` reads before it writes, and fails if a controller writes the status in between. A
        // user would follow the message and try again.
        const ATTEMPTS: usize = 10;
        let namespaced = [&["--namespace", &self.namespace], args].concat();
        for _ in 1..ATTEMPTS {
            let output = self.tool().output(&namespaced, input).await?;
            if output.code == Some(0) || !output.stderr.contains("the object has been modified") {
                return Ok(output);
            }
        }
        self.tool().output(&namespaced, input).await
    }

    /// Runs `kubectl apply` for these manifests, in this order. Avoids a process if it can.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn apply(&self, manifests: &[Value]) -> Result<()> {
        if apply(&self.client, &self.namespace, manifests).await? {
            return Ok(());
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests}).to_string();
        self.kubectl_with_input(&["apply", "--filename=-"], &list)
            .await
            .map(|_| ())
    }

    /// Returns the config hash of a workload.
    ///
    /// # Errors
    /// When there is no such workload.
    pub async fn key(&self, workload: &Workload) -> Result<Option<String>> {
        Ok(key_of(&self.stored(&self.namespace, workload).await?))
    }

    /// Computes, independently of the operator, the config hash that a workload must have.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn expected_key(&self, workload: &Workload) -> Result<String> {
        let object = self.stored(&self.namespace, workload).await?;
        oracle::config_hash(&self.client, &object, &self.installation).await
    }

    /// Returns config hash and revisions of a workload, once its controller has seen the latest generation.
    ///
    /// # Errors
    /// When that takes longer than [`PATIENCE`].
    pub async fn snapshot(&self, workload: &Workload) -> Result<Snapshot> {
        self.snapshot_in(&self.namespace, workload).await
    }

    /// Takes a snapshot like [`Scene::snapshot`], in another namespace.
    ///
    /// # Errors
    /// Same as [`Scene::snapshot`].
    pub async fn snapshot_in(&self, namespace: &str, workload: &Workload) -> Result<Snapshot> {
        let mut snapshots = self.snapshots_in(namespace, &[workload]).await?;
        snapshots.pop().context("one workload has one snapshot")
    }

    /// Creates a workload, and waits until its controller has seen it.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create(&self, workload: &Workload) -> Result<Snapshot> {
        self.apply(&[workload.manifest()]).await?;
        self.snapshot(workload).await
    }

    /// Creates ConfigMap `app`, and a workload that lists it, like [`Scene::create`]. Also returns the workload.
    ///
    /// # Errors
    /// Same as [`Scene::create`].
    pub async fn create_listing(&self, workload: Workload) -> Result<(Workload, Snapshot)> {
        self.apply(&[config_map("app", "1")]).await?;
        let workload = workload.lists("app");
        let created = self.create(&workload).await?;
        Ok((workload, created))
    }

    /// Waits until a workload carries the hash of the current state.
    ///
    /// # Errors
    /// When it does not within [`PATIENCE`].
    pub async fn right(&self, workload: &Workload) -> Result<()> {
        self.right_by(workload, &[]).await
    }

    /// Waits like [`Scene::right`]. Takes config objects as they were stored, each after its kind, and reads only others.
    async fn right_by(&self, workload: &Workload, known: &[(&'static str, Value)]) -> Result<()> {
        let what = format!("{} to carry the hash of what is true", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let object = self.stored(&self.namespace, workload).await?;
            let key = key_of(&object);
            let mut truth = Truth::read(&self.client, &self.installation).await?;
            for &(kind, ref stored) in known {
                let name = stored["metadata"]["name"].as_str().unwrap_or_default();
                truth.take_in(kind, &self.namespace, name, stored);
            }
            let expected = truth.config_hash(&object).await?;
            done_if(
                key.as_deref() == Some(&expected),
                format!("{key:?}, expected {expected}"),
            )
        })
        .await
    }

    /// Waits until a workload has this baseline, or none.
    ///
    /// # Errors
    /// When it still has another one after [`PATIENCE`].
    pub async fn has_baseline(&self, workload: &Workload, expected: Option<&str>) -> Result<()> {
        let name = workload.reference();
        let what = format!("the baseline of {name}");
        wait_for(&what, PATIENCE, async || {
            let object = self.object(&name).await?;
            let baseline = &object["metadata"]["annotations"][BASELINE];
            done_if(
                baseline.as_str() == expected,
                format!("{baseline}, expected {expected:?}"),
            )
        })
        .await
    }

    /// Asserts that the pods of a workload are restarted exactly once after `before`, with the hash of the
    /// current state.
    ///
    /// # Errors
    /// When they are not restarted, or more than once.
    pub async fn rolls_once(&self, workload: &Workload, before: &Snapshot) -> Result<Snapshot> {
        let all = self.each_rolls_once(from_ref(workload), from_ref(before));
        let mut after = all.await?;
        after.pop().context("one workload has one snapshot")
    }

    /// Waits until a workload has another config hash than `before`.
    ///
    /// # Errors
    /// When that takes longer than [`PATIENCE`].
    pub async fn gets_another_key(
        &self,
        workload: &Workload,
        before: &Option<String>,
    ) -> Result<()> {
        let reference = workload.reference();
        let what = format!("{reference} to get another config hash than {before:?}");
        wait_for(&what, PATIENCE, async || {
            Ok(match self.key(workload).await? {
                key if key == *before => Attempt::NotYet("the same".to_owned()),
                _ => Attempt::Done(()),
            })
        })
        .await
    }

    /// Asserts that the pods of a workload have not been restarted since `before`, and that nothing is
    /// pending that would restart them.
    ///
    /// # Errors
    /// When they have.
    pub async fn rolls_not(&self, workload: &Workload, before: &Snapshot) -> Result<()> {
        self.each_rolls_not(from_ref(workload), from_ref(before))
            .await
    }

    /// Waits until the operator has handled everything that happened before. To see that, it makes one more
    /// change, which takes the same way through the same watches and the same settle period, and waits for
    /// its effect.
    ///
    /// # Errors
    /// When it does not arrive within [`PATIENCE`].
    pub async fn quiet(&self) -> Result<()> {
        // No pods: nobody looks at them, and they are most of a rollout's cost.
        let sentinel = Workload::deployment("sentinel")
            .lists("sentinel")
            .lists_secrets("sentinel")
            .with(&["spec", "replicas"], json!(0));
        let value = random_hex()?;
        let before = match self.key(&sentinel).await {
            Ok(key) => key,
            Err(_) => {
                self.apply(&[
                    config_map("sentinel", ""),
                    crate::workload::secret("sentinel", ""),
                    sentinel.manifest(),
                ])
                .await?;
                self.key(&sentinel).await?
            }
        };
        let mut known = Vec::new();
        for (kind, object) in [
            ("ConfigMap", config_map("sentinel", &value)),
            ("Secret", crate::workload::secret("sentinel", &value)),
        ] {
            // Mostly it is there, so this does not read it first, as `apply` does.
            let api = api_of(&self.client, Some(&self.namespace), &object)?;
            let params = PatchParams::default();
            let changed = api.patch("sentinel", &params, &Patch::Merge(&object)).await;
            match changed {
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    self.apply(&[object]).await?;
                }
                changed => known.push((kind, serde_json::to_value(changed?)?)),
            }
        }
        self.gets_another_key(&sentinel, &before).await?;
        self.right_by(&sentinel, &known).await
    }

    /// Waits for an Event of this reason about a workload, and returns its text.
    ///
    /// # Errors
    /// When there is none within [`PATIENCE`].
    pub async fn event(&self, workload: &Workload, reason: &str) -> Result<String> {
        self.event_that(workload, reason, |of, _| of == reason)
            .await
    }

    /// Waits for an Event about a workload for whose reason and text `is_meant` holds, and returns its text. A failure
    /// calls it `what`.
    ///
    /// # Errors
    /// When there is none within [`PATIENCE`].
    pub async fn event_that(
        &self,
        workload: &Workload,
        what: &str,
        is_meant: impl Fn(&str, &str) -> bool,
    ) -> Result<String> {
        let what = format!("an Event {what} about {}", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let events = self.events(workload).await?;
            let found = events.iter().find(|(reason, note)| is_meant(reason, note));
            Ok(match found {
                Some((_, note)) => Attempt::Done(note.clone()),
                None => Attempt::NotYet(format!("{events:?}")),
            })
        })
        .await
    }

    /// Returns the reasons and texts of the operator's Events about a workload.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn events(&self, workload: &Workload) -> Result<Vec<(String, String)>> {
        let events = self.events_in(&self.namespace).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(events
            .iter()
            .filter(|event| {
                event["reportingController"] == "pod-reloader"
                    && event["regarding"]["kind"] == workload.kind.as_str()
                    && event["regarding"]["name"] == workload.name.as_str()
            })
            .map(|event| (text(&event["reason"]), text(&event["note"])))
            .collect())
    }

    /// Returns the CA bundle of the webhook configuration, in PEM.
    ///
    /// # Errors
    /// When it cannot be read, or its webhooks do not all have the same.
    pub async fn ca_bundle(&self) -> Result<String> {
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let configuration = configurations.get(&self.installation.namespace).await?;
        let webhooks = configuration.webhooks.unwrap_or_default();
        let bundles = webhooks.into_iter().map(|it| it.client_config.ca_bundle);
        let bundles: BTreeSet<_> = bundles.map(|it| it.unwrap_or_default().0).collect();
        let [bundle] = Vec::from_iter(bundles)
            .try_into()
            .map_err(|all: Vec<_>| anyhow!("{} bundles", all.len()))?;
        Ok(String::from_utf8(bundle)?)
    }

    /// Returns a position in the audit log, after everything that was answered before.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn mark(&self) -> Result<Mark> {
        self.audit_log.mark().await
    }

    /// Returns the position in the audit log before the operator existed.
    pub fn began(&self) -> Mark {
        self.began
    }

    /// Returns the operator's requests to the apiserver since `mark`, except those for its Lease, its own
    /// Secrets and its webhook configuration.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn requests(&self, mark: Mark) -> Result<Vec<AuditEvent>> {
        self.requests_of(&self.installation, mark).await
    }

    /// Returns requests like [`Scene::requests`], of another installation.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn requests_of(
        &self,
        installation: &Installation,
        mark: Mark,
    ) -> Result<Vec<AuditEvent>> {
        let username = installation.username();
        let mut events = self.audit_log.naming(&username, mark).await?;
        let own = &self.installation.namespace;
        events.retain(|event| event.user == username);
        events.retain(|event| {
            event.namespace != *own && event.resource != "mutatingwebhookconfigurations"
        });
        Ok(events)
    }

    /// Returns what an installation has watched since `mark`: the paths and the selectors of the URLs. It leaves out what
    /// [`Scene::requests`] leaves out.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn watches_of(
        &self,
        installation: &Installation,
        mark: Mark,
    ) -> Result<BTreeSet<String>> {
        let requests = self.requests_of(installation, mark).await?;
        Ok(requests.iter().filter_map(watched).collect())
    }

    /// Returns everybody's requests to the apiserver since `mark` whose entry in the log contains `text`, such as the name of a
    /// namespace or of a user: to parse those of all other tests takes long. Leaves out those of `kubectl pod-reloader`: other
    /// tests have it ask about every workload of the cluster.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn requests_naming(&self, text: &str, mark: Mark) -> Result<Vec<AuditEvent>> {
        let mut events = self.audit_log.naming(text, mark).await?;
        events.retain(|event| !is_of_plugin(event));
        Ok(events)
    }

    /// Returns the requests of `kubectl pod-reloader` to the apiserver since `mark`, except those about
    /// namespaces of other tests, which may have it write meanwhile.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn requests_of_plugin(&self, mark: Mark) -> Result<Vec<AuditEvent>> {
        let mut events = self.audit_log.naming("kubectl-pod-reloader/", mark).await?;
        let own = ["", &self.namespace, &self.installation.namespace];
        events.retain(|event| is_of_plugin(event) && own.contains(&&*event.namespace));
        Ok(events)
    }

    /// Starts an operator of the same installation with arguments other than those of [`Options`], and waits
    /// until it is ready. The one that ran before must have been stopped.
    ///
    /// # Errors
    /// Same as [`Operator::start`] and [`Operator::ready`].
    pub async fn start_operator(&self, args: &[&str]) -> Result<Operator> {
        self.start_replica(&self.installation, self.directory.path(), args)
            .await
    }

    /// Starts one more replica, whose webhook nobody calls. Otherwise like [`Scene::start_operator`].
    ///
    /// # Errors
    /// Same as [`Scene::start_operator`].
    pub async fn start_another(&self, args: &[&str]) -> Result<Operator> {
        let replica = self.installation.another_replica()?;
        let directory = self
            .directory
            .path()
            .join(format!("replica-{}", replica.port));
        self.start_replica(&replica, &directory, args).await
    }

    /// Starts an operator of `installation`, which may have been upgraded since the scene was set, and waits
    /// until it is ready. The operator's files are below `directory`.
    ///
    /// # Errors
    /// Same as [`Scene::start_operator`].
    pub async fn start_replica(
        &self,
        installation: &Installation,
        directory: &Path,
        args: &[&str],
    ) -> Result<Operator> {
        let proxy = self.proxy.as_ref();
        let kubeconfig = kubeconfig(&self.control_plane, installation, proxy).await?;
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let operator = Operator::start(installation, &kubeconfig, directory, &args)?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Returns the values of the chart with which the operator was installed.
    pub fn values(&self) -> Value {
        let values = self.options.values(&self.namespace);
        self.installation.values(&values)
    }

    /// Returns a directory for files of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Prints the end of each operator's log, Events, objects, the webhook configuration, and the CA and the certificate
    /// of the webhook. Copies the whole logs of operators and control plane to cargo's build folder.
    async fn show(&self) {
        match self.keep_logs() {
            Ok(kept) => eprintln!("--- the logs are in {}", kept.display()),
            Err(error) => eprintln!("--- the logs cannot be kept: {error:#}"),
        }
        for replica in self.processes() {
            let log = replica.operator.log().unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(200).collect();
            eprintln!("--- log of the operator");
            lines.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        for args in [
            &["get", "events.events.k8s.io"][..],
            &[
                "get",
                "deployments,statefulsets,daemonsets,configmaps",
                "--output=yaml",
            ],
            &[
                "get",
                "mutatingwebhookconfiguration",
                &self.installation.namespace,
                "--output=yaml",
            ],
        ] {
            failure::print(args, self.kubectl(args).await);
        }
        // Without the private keys. The webhook configuration has the CA in the same form.
        let secret = format!("{}-tls", self.installation.namespace);
        let certificates = r#"--output=jsonpath={.data.ca\.crt}{"\n"}{.data.tls\.crt}"#;
        let args = ["get", "secret", &secret, certificates];
        failure::print(&args, self.operators_kubectl(&args).await);
    }

    fn keep_logs(&self) -> Result<PathBuf> {
        let kept = failure::keep_logs(&self.control_plane, &self.namespace)?;
        for replica in self.processes() {
            let log = format!("operator-{}.log", replica.port);
            fs::write(kept.join(log), replica.operator.log()?)?;
        }
        Ok(kept)
    }

    async fn clear(&self) {
        for replica in self.processes() {
            replica.operator.process().kill().await;
        }
        if self.control_plane.is_own() {
            return;
        }
        // Anything left dies with the control plane.
        let own = self.installation.namespace.as_str();
        let both = [self.namespace.as_str(), own];
        // Helm would also delete what a release has in these. Without one, nobody has to list the rest.
        let namespaces = match self.options.released {
            true => &both[..],
            false => &[],
        };
        let _ = delete_release(&self.client, namespaces, own).await;
        let _ = empty_namespace(&self.client, &self.namespace).await;
        let _ = empty_operators_namespace(&self.client, own).await;
    }
}

impl Options {
    /// Returns the chart's values for an operator that looks after `namespace`.
    pub fn values(&self, namespace: &str) -> Value {
        let everywhere = self.everywhere || has_own_values();
        let mut values = json!({
            "settlePeriod": self.settle_period,
            // Other tests may keep the machine busy.
            "webhook": {"failurePolicy": self.failure_policy, "timeoutSeconds": 10},
            "watch": {"namespaces": if everywhere { vec![] } else { vec![namespace] }},
        });
        merge(&mut values, &self.values);
        let values = values.to_string().replace(THIS_NAMESPACE, namespace);
        serde_json::from_str(&values).expect("the name of a namespace needs no escapes in JSON")
    }

    /// Returns the options for the scene in `namespace`.
    fn of(mut self, namespace: &str) -> Self {
        for label in &mut self.namespace_labels {
            *label = label.replace(THIS_NAMESPACE, namespace);
        }
        let replacing = |selection: Selection| selection.replacing(THIS_NAMESPACE, namespace);
        let selection = self.selection.map(replacing);
        Self { selection, ..self }
    }

    /// Returns true if replicas reach the apiserver through proxies.
    fn has_proxies(&self) -> bool {
        self.proxied || self.selection.is_some()
    }
}

fn is_of_plugin(event: &AuditEvent) -> bool {
    event.user_agent.starts_with("kubectl-pod-reloader/")
}

/// Returns what a request watches: the path and the selectors of its URL. `None` if it is no watch.
///
/// A watch is a call that ends after a minute and is made again.
fn watched(request: &AuditEvent) -> Option<String> {
    let is_watch = request.verb == "watch";
    let (path, query) = request.uri.split_once('?').filter(|_| is_watch)?;
    let selectors = query.split('&').filter(|it| it.contains("Selector="));
    Some(selectors.fold(path.to_owned(), |path, it| format!("{path} {it}")))
}

/// Returns the name of the test as a namespace.
fn namespace_name() -> Result<String> {
    let test = thread::current().name().unwrap_or_default().to_owned();
    let name = test
        .rsplit("::")
        .next()
        .context("a split has at least one part")?
        .replace('_', "-");
    let short = name.chars().take(40).collect::<String>();
    Ok(format!(
        "{}-{}",
        short.trim_matches('-'),
        &random_hex()?[..5]
    ))
}
