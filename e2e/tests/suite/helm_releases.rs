//! Releases of an application with real helm, 3 and 4: one rollout if something changed, and otherwise none.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, Scene, Tool};
use serde_json::{Value, json};

use crate::order::{gap, rounds};

/// Longer than the default: beside other tests, helm takes its time.
const SETTLE_PERIOD: Duration = Duration::from_secs(12);

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
    Scene::play(with_a_long_settle_period(), async |scene| {
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
async fn a_chart_that_carries_a_hash_conflicts_on_the_server_side_once_the_loop_has_moved_it()
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

/// Makes releases that change a ConfigMap and the Deployment that lists it, with 50 objects in between.
async fn each_release_is_one_rollout(flavour: Flavour) -> Result<()> {
    Scene::play(with_a_long_settle_period(), async |scene| {
        let app = App::new(scene, flavour, 50)?;
        app.install().await?;
        let mut before = scene.snapshot(&app.workload()).await?;
        let (mut gaps, mut counts) = (Vec::new(), Vec::new());
        let rounds = rounds()?;
        for round in 2.. {
            if counts.len() == rounds {
                break;
            }
            ensure!(round < 2 + 3 * rounds, "helm is too slow here: {gaps:?}");
            let mark = scene.mark().await?;
            app.upgrade(&[&format!("--set=config={round},image={round}")])
                .await?;
            let gap = gap(scene, mark, app.name, app.name).await?;
            gaps.push(gap);
            scene.quiet().await?;
            let after = scene.snapshot(&app.workload()).await?;
            // A gap longer than the settle period promises nothing.
            if gap < SETTLE_PERIOD {
                counts.push(after.new_revisions(&before));
            }
            let expected = scene.expected_key(&app.workload()).await?;
            ensure!(after.key == Some(expected), "wrong hash: {after:?}");
            before = after;
        }
        let once = counts.iter().filter(|&&count| count == 1).count();
        let report = format!(
            "{}: {once} of {} releases were one rollout; from ConfigMap to Deployment at most {:?}",
            app.name,
            counts.len(),
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
enum Flavour {
    /// Helm 4 with server-side apply, its default.
    ServerSide,
    /// Helm 4 with patches that it computes itself.
    ClientSide,
    /// Helm 3.
    Helm3,
}

impl Flavour {
    const ALL: [Self; 3] = [Self::ServerSide, Self::ClientSide, Self::Helm3];

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
    fn ways_to_force(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::ServerSide => [&[], &["--force-conflicts"]],
            Self::ClientSide => [&[], &["--force-replace"]],
            Self::Helm3 => [&[], &["--force"]],
        }
    }
}

/// An application installed by a user's chart. Release, ConfigMap and Deployment have the same name.
struct App<'a> {
    scene: &'a Scene,
    flavour: Flavour,
    name: &'static str,
    chart: String,
}

impl<'a> App<'a> {
    /// Writes the chart, with `others` Roles and Services, which helm writes after ConfigMaps and before
    /// Deployments.
    fn new(scene: &'a Scene, flavour: Flavour, others: usize) -> Result<Self> {
        Self::with(scene, flavour, others, |web| web)
    }

    /// Creates an application like [`App::new`], with a Deployment that `change` modifies.
    fn with(
        scene: &'a Scene,
        flavour: Flavour,
        others: usize,
        change: fn(Workload) -> Workload,
    ) -> Result<Self> {
        let name = flavour.name();
        let chart = scene.directory().join(name);
        let metadata = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"});
        let values = json!({"config": 1, "image": 1});
        let others = (0..others).map(|number| match number % 2 {
            0 => role(&format!("{name}-{number}")),
            _ => service(&format!("{name}-{number}")),
        });
        let web = change(deployment(name));
        let templates: Vec<String> = [config_map(name, CONFIG), web.manifest()]
            .into_iter()
            .chain(others)
            .map(|manifest| manifest.to_string())
            .collect();
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

    fn workload(&self) -> Workload {
        deployment(self.name)
    }

    async fn install(&self) -> Result<()> {
        let args = [&["install", self.name, &self.chart], self.flavour.args()];
        self.helm(&args.concat()).await
    }

    async fn upgrade(&self, args: &[&str]) -> Result<()> {
        let upgrade = ["upgrade", self.name, &self.chart];
        let args = [&upgrade, self.flavour.args(), args];
        self.helm(&args.concat()).await
    }

    /// Rolls back to the first release.
    async fn rollback(&self) -> Result<()> {
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

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": {"config": CONFIG}},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

fn with_a_long_settle_period() -> Options {
    Options {
        settle_period: "12s",
        ..Options::default()
    }
}

const CONFIG: &str = "{{ .Values.config }}";
