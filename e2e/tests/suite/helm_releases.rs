//! Releases of an application with real helm, 3 and 4: one rollout if something changed, and otherwise none.
//!
//! The settle period is shorter than the time between the writes of a release, so the operator has to wait
//! for the release itself.

mod under_way;
mod waiting;

use std::{env, fs};

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, Scene, Tool};
use serde_json::{Value, json};

use crate::order::{gap, rounds};

#[tokio::test]
async fn each_release_of_helm_4_on_the_server_side_is_one_rollout() -> Result<()> {
    each_release_is_one_rollout(Flavour::ServerSide).await
}

#[tokio::test]
async fn each_release_of_helm_4_on_the_client_side_is_one_rollout() -> Result<()> {
    each_release_is_one_rollout(Flavour::ClientSide).await
}

#[tokio::test]
async fn each_release_of_helm_3_is_one_rollout() -> Result<()> {
    each_release_is_one_rollout(Flavour::Helm3).await
}

#[tokio::test]
async fn a_rollback_is_one_rollout_back_to_the_first_replica_set() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let mut apps = Vec::new();
        for flavour in Flavour::ALL {
            let app = App::new(scene, flavour, 0)?;
            app.install().await?;
            let first = scene.snapshot(&app.workload()).await?;
            app.upgrade(&["--set=config=2,image=2"]).await?;
            apps.push((app, first));
        }
        scene.quiet().await?;
        let mut rolled_back = Vec::new();
        for (app, first) in apps {
            let second = scene.snapshot(&app.workload()).await?;
            assert_eq!(second.new_revisions(&first), 1, "{}", app.name);
            app.rollback().await?;
            rolled_back.push((app, first, second));
        }
        scene.quiet().await?;
        for (app, first, second) in rolled_back {
            let third = scene.snapshot(&app.workload()).await?;
            assert_eq!(third.key, first.key, "{}", app.name);
            assert_eq!(third.revisions, second.revisions, "{}", app.name);
            // The third revision is the first ReplicaSet again; two rollouts would have made a fourth.
            let object = scene.object(&app.workload().reference()).await?;
            let revision = &object["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            assert_eq!(revision, "3", "{}", app.name);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_release_that_changes_nothing_is_no_rollout_even_if_forced() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        for flavour in Flavour::ALL {
            let app = App::new(scene, flavour, 2)?;
            app.install().await?;
            let mut before = scene.snapshot(&app.workload()).await?;
            // Once with the hash that the webhook has set, once with one that the loop has set.
            for config in ["1", "2"] {
                let values = format!("--set=config={config}");
                if config == "2" {
                    app.upgrade(&[&values]).await?;
                    before = scene.rolls_once(&app.workload(), &before).await?;
                }
                for force in flavour.ways_to_force() {
                    app.upgrade(&[&[values.as_str()], force].concat()).await?;
                    let key = scene.key(&app.workload()).await?;
                    ensure!(key == before.key, "{} {force:?}: {key:?}", app.name);
                }
                scene.rolls_not(&app.workload(), &before).await?;
            }
        }
        Ok(())
    })
    .await
}

/// Helm 4 applies without force, and a conflict fails the release: a hash does not belong in a chart.
#[tokio::test]
async fn a_chart_with_a_hash_conflicts_on_the_server_side_once_the_loop_has_changed_it()
-> Result<()> {
    Scene::play(Options::default(), async |scene| {
        for flavour in Flavour::ALL {
            let app = App::with(scene, flavour, 0, |web| web.stamped("stale"))?;
            app.install().await?;
            let before = scene.snapshot(&app.workload()).await?;
            app.upgrade(&["--set=config=2"]).await?;
            scene.rolls_once(&app.workload(), &before).await?;

            let again = app.upgrade(&["--set=config=2"]).await;
            let error = again.err().map(|error| error.to_string());
            let conflicts = error
                .as_ref()
                .is_some_and(|error| error.contains("conflict with \"pod-reloader\""));
            ensure!(
                conflicts == matches!(flavour, Flavour::ServerSide),
                "{error:?}"
            );
            ensure!(conflicts || error.is_none(), "{error:?}");
        }
        Ok(())
    })
    .await
}

/// Makes releases that change a ConfigMap and the Deployment that lists it, with 50 objects in between, or as
/// many as the variable `OTHERS` says. The variable `QPS` slows helm down.
async fn each_release_is_one_rollout(flavour: Flavour) -> Result<()> {
    let pace = env::var("QPS").map(|qps| [format!("--qps={qps}"), "--burst-limit=1".to_owned()]);
    let pace: Vec<&str> = pace.iter().flatten().map(String::as_str).collect();
    Scene::play(Options::default(), async |scene| {
        let others = env::var("OTHERS").unwrap_or_else(|_| "50".to_owned());
        let app = App::new(scene, flavour, others.parse()?)?;
        app.install().await?;
        let mut before = scene.snapshot(&app.workload()).await?;
        let (mut gaps, mut counts) = (Vec::new(), Vec::new());
        for round in 2..2 + rounds()? {
            let mark = scene.mark().await?;
            let values = format!("--set=config={round},image={round}");
            app.upgrade(&[&[values.as_str()], &*pace].concat()).await?;
            gaps.push(gap(scene, mark, app.name, app.name).await?);
            scene.quiet().await?;
            let after = scene.snapshot(&app.workload()).await?;
            counts.push(after.new_revisions(&before));
            let expected = scene.expected_key(&app.workload()).await?;
            ensure!(after.key == Some(expected), "wrong hash: {after:?}");
            before = after;
        }
        let once = counts.iter().filter(|&&count| count == 1).count();
        let report = format!(
            "{}: {once} of {} releases were one rollout; from ConfigMap to Deployment {:?} to {:?}",
            app.name,
            counts.len(),
            gaps.iter().min().copied().unwrap_or_default(),
            gaps.iter().max().copied().unwrap_or_default()
        );
        println!("{report}");
        ensure!(once == counts.len(), "{report}\n{counts:?}\n{gaps:?}");
        Ok(())
    })
    .await
}

/// A version of Helm, and the way in which it writes.
#[derive(Clone, Copy)]
pub(crate) enum Flavour {
    /// Helm 4 with server-side apply, its default.
    ServerSide,
    /// Helm 4 with patches that it computes itself.
    ClientSide,
    /// Helm 3.
    Helm3,
}

impl Flavour {
    pub(crate) const ALL: [Self; 3] = [Self::ServerSide, Self::ClientSide, Self::Helm3];

    fn name(self) -> &'static str {
        match self {
            Self::ServerSide => "helm-4-server-side",
            Self::ClientSide => "helm-4-client-side",
            Self::Helm3 => "helm-3",
        }
    }

    fn tool(self, scene: &Scene) -> Tool {
        match self {
            Self::ServerSide | Self::ClientSide => scene.control_plane.helm(),
            Self::Helm3 => scene.control_plane.helm3(),
        }
    }

    fn args(self) -> &'static [&'static str] {
        match self {
            Self::ServerSide | Self::Helm3 => &[],
            Self::ClientSide => &["--server-side=false"],
        }
    }

    /// Returns further arguments of `helm upgrade`: without force, and with force.
    pub(crate) fn ways_to_force(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::ServerSide => [&[], &["--force-conflicts"]],
            Self::ClientSide => [&[], &["--force-replace"]],
            Self::Helm3 => [&[], &["--force"]],
        }
    }
}

/// An application installed by a user's chart. Release, ConfigMap and Deployment have the same name.
pub(crate) struct App<'a> {
    scene: &'a Scene,
    pub(crate) flavour: Flavour,
    pub(crate) name: &'static str,
    chart: String,
}

impl<'a> App<'a> {
    /// Writes the chart, with `others` Roles and Services, which helm writes after ConfigMaps and before
    /// Deployments.
    fn new(scene: &'a Scene, flavour: Flavour, others: usize) -> Result<Self> {
        Self::with(scene, flavour, others, |web| web)
    }

    /// Creates an application like [`App::new`], with a Deployment that `change` modifies.
    pub(crate) fn with(
        scene: &'a Scene,
        flavour: Flavour,
        others: usize,
        change: fn(Workload) -> Workload,
    ) -> Result<Self> {
        let name = flavour.name();
        let others = (0..others).map(|number| match number % 2 {
            0 => role(&format!("{name}-{number}")),
            _ => service(&format!("{name}-{number}"), CONFIG),
        });
        let web = change(deployment(name)).manifest();
        let manifests = [config_map(name, CONFIG), web].into_iter().chain(others);
        Self::of(scene, flavour, name, manifests)
    }

    /// Creates an application of these objects.
    fn of(
        scene: &'a Scene,
        flavour: Flavour,
        name: &'static str,
        manifests: impl IntoIterator<Item = Value>,
    ) -> Result<Self> {
        let chart = scene.directory().join(name);
        let metadata = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"});
        let values = json!({"config": 1, "image": 1, "scheduler": "default-scheduler"});
        let templates: Vec<String> = manifests.into_iter().map(|it| it.to_string()).collect();
        fs::create_dir_all(chart.join("templates"))?;
        for (path, content) in [
            ("Chart.yaml", metadata.to_string()),
            ("values.yaml", values.to_string()),
            ("templates/app.yaml", templates.join("\n---\n")),
        ] {
            fs::write(chart.join(path), content)?;
        }
        Ok(Self {
            scene,
            flavour,
            name,
            chart: chart.display().to_string(),
        })
    }

    pub(crate) fn workload(&self) -> Workload {
        deployment(self.name)
    }

    pub(crate) async fn install(&self) -> Result<()> {
        let install = ["install", self.name, &self.chart, UNCHECKED];
        let args = [&install, self.flavour.args()];
        self.helm(&args.concat()).await
    }

    pub(crate) async fn upgrade(&self, args: &[&str]) -> Result<()> {
        let upgrade = ["upgrade", self.name, &self.chart, UNCHECKED];
        let args = [&upgrade, self.flavour.args(), args];
        self.helm(&args.concat()).await
    }

    /// Rolls back to the first release.
    pub(crate) async fn rollback(&self) -> Result<()> {
        let args = [&["rollback", self.name, "1"], self.flavour.args()];
        self.helm(&args.concat()).await
    }

    async fn helm(&self, args: &[&str]) -> Result<()> {
        let args = [&["--namespace", &self.scene.namespace], args].concat();
        self.flavour.tool(self.scene).run(&args).await.map(|_| ())
    }
}

fn deployment(name: &str) -> Workload {
    Workload::deployment(name)
        .lists(name)
        .image("app:{{ .Values.image }}")
        .with(&["spec", "revisionHistoryLimit"], json!(200))
}

fn role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "annotations": {"config": CONFIG}},
        "rules": [],
    })
}

pub(crate) fn service(name: &str, config: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": {"config": config}},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

const CONFIG: &str = "{{ .Values.config }}";

/// Without it, Helm reads the schemas of all kinds before it writes, for which it and the apiserver take a second of
/// processor time. It writes the same.
const UNCHECKED: &str = "--disable-openapi-validation";
