//! Custom resources that the operator manages, and how they change.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kube::api::{ListParams, Patch, PatchParams, Request};
use pod_reloader_e2e::workload::{BASELINE, CONFIG_HASH, CONFIG_MAPS, SECRETS};
use pod_reloader_e2e::{Attempt, ControlPlane, Mark, PATIENCE, Scene, done_with, oracle, wait_for};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// Annotation that says how a workload is restarted.
const RESTART: &str = "pod-reloader.cs.sap.com/restart";
/// Resources that the operator writes in addition to workloads.
const NO_WORKLOADS: [&str; 2] = ["events", "selfsubjectreviews"];

/// A custom resource, and the field that shows when it was restarted.
#[derive(Clone)]
pub(crate) struct Managed {
    pub(super) name: String,
    pub(crate) manifest: Value,
    /// Resource and group, as kubectl accepts them.
    pub(super) resource: String,
    /// Path of the config hash or of the time.
    field: String,
    is_by_time: bool,
}

/// The state of a custom resource at some point in time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    /// Config hash, or time of the last restart.
    pub(crate) value: Option<String>,
    pub(super) baseline: Option<String>,
    pub(crate) generation: i64,
}

impl Managed {
    /// Returns a Rollout of Argo.
    pub(crate) fn rollout(name: &str) -> Self {
        let spec = json!({"replicas": 1, "template": template()});
        Self::new(["rollouts", "argoproj.io/v1alpha1", "Rollout"], name, spec)
    }

    /// Returns a Service of Knative.
    pub(super) fn knative(name: &str) -> Self {
        let spec = json!({"template": template()});
        Self::new(
            ["services", "serving.knative.dev/v1", "Service"],
            name,
            spec,
        )
    }

    /// Returns a KafkaConnect of Strimzi, without any template.
    pub(super) fn kafka_connect(name: &str) -> Self {
        let spec = json!({"replicas": 1, "bootstrapServers": "kafka:9092"});
        let kind = ["kafkaconnects", "kafka.strimzi.io/v1beta2", "KafkaConnect"];
        Self::new(kind, name, spec).with_template("/spec/template/pod")
    }

    /// Returns a Cluster of CloudNativePG, which is restarted by a time in an annotation.
    pub(super) fn cluster(name: &str) -> Self {
        let cluster = Self::new(
            ["clusters", "postgresql.cnpg.io/v1", "Cluster"],
            name,
            json!({"instances": 1}),
        );
        Self {
            field: "/metadata/annotations/kubectl.kubernetes.io~1restartedAt".to_owned(),
            is_by_time: true,
            ..cluster
        }
    }

    /// Returns a CronJob that does not run by itself during a test.
    pub(super) fn cron_job(name: &str) -> Self {
        let mut template = template();
        template["spec"]["restartPolicy"] = json!("Never");
        let spec = json!({
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"spec": {"template": template}},
        });
        Self::new(["cronjobs", "batch/v1", "CronJob"], name, spec)
            .with_template("/spec/jobTemplate/spec/template")
    }

    fn new([plural, api_version, kind]: [&str; 3], name: &str, spec: Value) -> Self {
        let group = api_version.split('/').next().unwrap_or_default();
        let managed = Self {
            name: name.to_owned(),
            manifest: json!({
                "apiVersion": api_version,
                "kind": kind,
                "metadata": {"name": name},
                "spec": spec,
            }),
            resource: format!("{plural}.{group}"),
            field: String::new(),
            is_by_time: false,
        };
        managed.with_template("/spec/template")
    }

    /// Sets the path of the pod template.
    fn with_template(self, template: &str) -> Self {
        let key = CONFIG_HASH.replace('/', "~1");
        let field = format!("{template}/metadata/annotations/{key}");
        Self { field, ..self }
    }

    /// Moves the resource to another API group.
    pub(super) fn of_group(mut self, group: &str) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&self.manifest["apiVersion"]);
        let (old, version) = api_version.split_once('/').unwrap_or_default();
        self.resource = self.resource.replace(old, group);
        self.manifest["apiVersion"] = json!(format!("{group}/{version}"));
        self
    }

    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.manifest["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// Lists a ConfigMap and a Secret of this name.
    pub(super) fn lists(self, name: &str) -> Self {
        self.annotated(CONFIG_MAPS, name).annotated(SECRETS, name)
    }

    /// Uses a ConfigMap and a Secret of this name in its pod spec, and opts in with `auto`.
    pub(super) fn finds(mut self, name: &str) -> Self {
        let source = json!([{"configMapRef": {"name": name}}, {"secretRef": {"name": name}}]);
        self.manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] = source;
        self.annotated("pod-reloader.cs.sap.com/auto", "true")
    }

    /// Makes it a Rollout that is restarted by a time in its spec.
    pub(super) fn by_time(self) -> Self {
        Self {
            field: "/spec/restartAt".to_owned(),
            is_by_time: true,
            ..self.annotated(RESTART, "at")
        }
    }

    /// Returns `rollouts.argoproj.io/NAME` and the like, as kubectl accepts it.
    pub(super) fn reference(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }

    pub(crate) async fn state(&self, scene: &Scene) -> Result<State> {
        let api_version = self.manifest["apiVersion"].as_str().unwrap_or_default();
        let (plural, _) = self.resource.split_once('.').unwrap_or_default();
        let object = scene.custom_object(api_version, plural, &self.name).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(State {
            value: object.pointer(&self.field).and_then(text),
            baseline: text(&object["metadata"]["annotations"][BASELINE]),
            generation: object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default(),
        })
    }

    /// Returns the hash of the current state of the ConfigMap and the Secret `name`.
    pub(super) async fn hash(scene: &Scene, name: &str) -> Result<String> {
        let lists = json!({"metadata": {
            "namespace": scene.namespace,
            "annotations": {CONFIG_MAPS: name, SECRETS: name},
        }});
        oracle::config_hash(&scene.client, &lists, &scene.installation).await
    }

    /// Waits until the resource stands for the current state of the ConfigMap and the Secret `name`: by its
    /// config hash, or by its baseline.
    pub(super) async fn right(&self, scene: &Scene, name: &str) -> Result<State> {
        let what = format!("the hash of {}", self.reference());
        wait_for(&what, PATIENCE, async || {
            let hash = Self::hash(scene, name).await?;
            let state = self.state(scene).await?;
            let is_right = match self.is_by_time {
                true => state.baseline == Some(format!("at={hash}")),
                false => state.value.as_ref() == Some(&hash),
            };
            done_with(is_right, format!("{state:?}, expected {hash}"), state)
        })
        .await
    }

    /// Asserts that `after` is one restart later than `before`.
    fn is_once_after(&self, before: &State, after: &State) -> Result<()> {
        let name = &self.name;
        ensure!(before.value != after.value, "{name}: {before:?}, {after:?}");
        let is_in_spec = self.field.starts_with("/spec");
        let changes = after.generation - before.generation;
        ensure!(
            changes == i64::from(is_in_spec),
            "{name}: {before:?}, {after:?}"
        );
        if !self.is_by_time {
            return Ok(());
        }
        let time = after.value.as_deref().context("no time")?;
        let is_utc_second = time.len() == "2026-01-01T00:00:00Z".len() && time.ends_with('Z');
        ensure!(is_utc_second, "{name}: {time}");
        let age = jiff::Timestamp::now().duration_since(time.parse()?);
        ensure!(age.as_secs().abs() < 600, "{name}: {time}");
        Ok(())
    }
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "app:1"}]}})
}

/// Creates resources, and waits until they are managed: with the hash of `name`, and without a restart.
pub(super) async fn created(scene: &Scene, all: &[Managed], name: &str) -> Result<Vec<State>> {
    let manifests: Vec<_> = all.iter().map(|managed| managed.manifest.clone()).collect();
    scene.apply(&manifests).await?;
    let mut states = Vec::new();
    for managed in all {
        let state = managed.right(scene, name).await?;
        ensure!(!managed.is_by_time || state.value.is_none(), "{state:?}");
        states.push(state);
    }
    scene.quiet().await?;
    Ok(states)
}

/// Asserts that each resource was restarted once since `before`, to the current state of `name`, by one write
/// since `mark`.
pub(super) async fn each_once(
    scene: &Scene,
    mark: Mark,
    all: &[Managed],
    before: &[State],
    name: &str,
) -> Result<Vec<State>> {
    each_once_if(scene, mark, all, before, name, |done, _| done == 1).await
}

/// Asserts the same of an operator that was killed while it wrote. Its write may have failed, or the apiserver
/// may have carried it out but reported a timeout, because nobody waited for the answer.
pub(super) async fn each_once_though_killed(
    scene: &Scene,
    mark: Mark,
    all: &[Managed],
    before: &[State],
    name: &str,
) -> Result<Vec<State>> {
    let is_one = |done, timed_out| done == 1 || (done == 0 && timed_out == 1);
    each_once_if(scene, mark, all, before, name, is_one).await
}

/// Asserts the same, where `is_one` says whether so many writes that were done, and that timed out, are one.
async fn each_once_if(
    scene: &Scene,
    mark: Mark,
    all: &[Managed],
    before: &[State],
    name: &str,
    is_one: impl Fn(usize, usize) -> bool,
) -> Result<Vec<State>> {
    for managed in all {
        managed.right(scene, name).await?;
    }
    scene.quiet().await?;
    let writes = writes(scene, mark).await?;
    let mut states = Vec::new();
    for (managed, before) in all.iter().zip(before) {
        let state = managed.state(scene).await?;
        managed.is_once_after(before, &state)?;
        let bodies = writes.get(&managed.name).map_or(&[][..], Vec::as_slice);
        let answered = |code: &str| bodies.iter().filter(|body| body.starts_with(code)).count();
        let (done, timed_out) = (answered("Some(20"), answered("Some(504"));
        ensure!(
            is_one(done, timed_out),
            "{}: {done} writes: {bodies:?}",
            managed.name
        );
        states.push(state);
    }
    Ok(states)
}

/// Asserts that the operator has written nothing since `mark`, once it has handled everything before, and
/// that the state is still `before`.
pub(super) async fn none(
    scene: &Scene,
    mark: Mark,
    all: &[Managed],
    before: &[State],
) -> Result<()> {
    scene.quiet().await?;
    let writes = writes(scene, mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    for (managed, before) in all.iter().zip(before) {
        let state = managed.state(scene).await?;
        ensure!(state == *before, "{}: {before:?}, {state:?}", managed.name);
    }
    Ok(())
}

/// Returns the bodies of the operator's patches since `mark`, by name of the workload, except those of the
/// sentinel.
pub(super) async fn writes(scene: &Scene, mark: Mark) -> Result<BTreeMap<String, Vec<String>>> {
    let mut writes: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for request in scene.requests(mark).await? {
        let is_write = ["patch", "create", "update"].contains(&&*request.verb);
        let is_workload = !NO_WORKLOADS.contains(&&*request.resource) && request.name != "sentinel";
        if is_write && is_workload && request.stage == "ResponseComplete" {
            let body = request.request_object.unwrap_or_default();
            let all = writes.entry(request.name).or_default();
            all.push(format!("{:?}: {body}", request.code));
        }
    }
    Ok(writes)
}

/// Installs a definition like [`install`], which nobody changes or deletes: once for all tests on a control plane.
pub(crate) async fn install_to_stay(
    control_plane: &ControlPlane,
    definition: &Value,
) -> Result<()> {
    static INSTALLED: Mutex<BTreeSet<String>> = Mutex::const_new(BTreeSet::new());
    let key = format!("{} {definition}", control_plane.logs_dir().display());
    let mut installed = INSTALLED.lock().await;
    if !installed.contains(&key) {
        install(control_plane, definition).await?;
        installed.insert(key);
    }
    Ok(())
}

/// Installs a definition, and waits until its resources are served.
pub(crate) async fn install(control_plane: &ControlPlane, definition: &Value) -> Result<()> {
    let client = control_plane.admin_client().await?;
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let definitions = Request::new("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let params = PatchParams::apply("user").force().validation_strict();
    let apply = definitions.patch(name, &params, &Patch::Apply(definition))?;
    client.request::<Value>(apply).await?;
    let version = definition["spec"]["versions"][0]["name"].as_str();
    let version = version.context("a definition has versions")?;
    let (plural, group) = name.split_once('.').context("it is PLURAL.GROUP")?;
    let resources = Request::new(format!("/apis/{group}/{version}/{plural}"));
    wait_for(&format!("{name} to be served"), PATIENCE, async || {
        let list = resources.list(&ListParams::default().limit(1))?;
        let listed = client.request::<Value>(list).await;
        let is_discovered = control_plane.serves(name).await?;
        Ok(match (listed, is_discovered) {
            (Ok(_), true) => Attempt::Done(()),
            (Ok(_), false) => Attempt::NotYet("clients do not discover it".to_owned()),
            (Err(error), _) => Attempt::NotYet(error.to_string()),
        })
    })
    .await
}
