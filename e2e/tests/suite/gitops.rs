//! Syncs as Argo CD and Flux make them, through kubectl under their field managers: one rollout for a
//! release, and no drift.

mod own_chart;
mod waiting;

use std::{collections::BTreeSet, slice};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{Options, Output, Scene, Snapshot, full};
use serde_json::{Value, json};

#[tokio::test]
async fn a_sync_that_changes_config_and_workload_is_one_rollout() -> Result<()> {
    let options = Options {
        settle_period: "10s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let mut apps = deployed(scene).await?;
        for app in &mut apps {
            app.config = config_map(app.name, "2");
            app.web = app.web.clone().image("app:2");
            app.sync().await?;
        }
        each_rolled(scene, &mut apps, 1).await
    })
    .await
}

#[tokio::test]
async fn self_heal_without_a_hash_in_git_rolls_nothing_and_sees_no_drift() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        // Once with the hash that the webhook has set, once with one that the loop has set.
        let mut apps = deployed(scene).await?;
        each_heals(scene, &mut apps).await?;
        each_config_changes(scene, &mut apps).await?;
        each_heals(scene, &mut apps).await
    })
    .await
}

#[tokio::test]
async fn self_heal_with_a_stale_hash_in_git_gets_a_warning_no_rollout_and_no_drift() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let mut apps = deployed(scene).await?;
        for app in &mut apps {
            app.commit_the_hash()?;
            app.sync().await?;
        }
        each_config_changes(scene, &mut apps).await?;
        each_heals(scene, &mut apps).await?;
        // Removes the hash from Git again, as the warning says.
        for app in &mut apps {
            app.web = web(app.name);
        }
        each_heals(scene, &mut apps).await
    })
    .await
}

#[tokio::test]
async fn apply_without_force_conflicts_over_a_stale_hash_in_git_and_over_nothing_else() -> Result<()>
{
    Scene::play(Options::default(), async |scene| {
        let mut apps = deployed(scene).await?;
        each_config_changes(scene, &mut apps).await?;
        for app in &mut apps {
            let apply = [
                "apply",
                SERVER_SIDE,
                app.way.field_manager(),
                "--filename=-",
            ];
            let output = scene.kubectl_output(&apply, &app.git()).await?;
            assert_eq!(
                (output.code, &*output.stderr),
                (Some(0), ""),
                "{}",
                app.name
            );

            app.web = app.web.clone().stamped("stale");
            let output = scene.kubectl_output(&apply, &app.git()).await?;
            let conflict = format!("conflict with \"pod-reloader\" using apps/v1: {PATH_OF_KEY}");
            ensure!(output.code == Some(1), "{}: {output:?}", app.name);
            ensure!(
                output.stderr.contains(&conflict),
                "{}: {output:?}",
                app.name
            );
        }
        each_rolled(scene, &mut apps, 0).await
    })
    .await
}

#[tokio::test]
async fn a_first_deployment_passes_the_dry_run_of_everything() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let mut app = App::new(scene, Sync::Flux);
        app.web = app.web.requires(app.name);
        app.sync().await?;
        each_rolled(scene, slice::from_mut(&mut app), 1).await
    })
    .await
}

/// The tool that syncs, and its way to do so.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Argo CD with `ServerSideApply=true`.
    ArgoServerSide,
    /// Argo CD with its defaults.
    ArgoClientSide,
    /// Argo CD with `Replace=true`.
    ArgoReplace,
    /// Flux's kustomize-controller.
    Flux,
    /// A human's `kubectl apply`.
    Kubectl,
    /// A human's `kubectl apply --server-side`, which fails over a conflict.
    KubectlServerSide,
}

impl Sync {
    /// All ways. At the end are those that write as an earlier one does, under another field manager.
    const ALL: &'static [Self] = &[
        Self::ArgoClientSide,
        Self::ArgoReplace,
        Self::Flux,
        Self::KubectlServerSide,
        Self::ArgoServerSide,
        Self::Kubectl,
    ];

    /// Returns the ways of Argo CD and Flux: at full size all of them, and otherwise those that write differently.
    fn by_tools() -> &'static [Self] {
        match full() {
            true => &[
                Self::ArgoClientSide,
                Self::ArgoReplace,
                Self::Flux,
                Self::ArgoServerSide,
            ],
            false => &Self::ALL[..3],
        }
    }

    /// Returns the ways of Argo CD, Flux and kubectl, as many as [`Sync::by_tools`] says.
    pub(crate) fn by_all() -> &'static [Self] {
        match full() {
            true => Self::ALL,
            false => &Self::ALL[..4],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ArgoServerSide => "argo-server-side",
            Self::ArgoClientSide => "argo-client-side",
            Self::ArgoReplace => "argo-replace",
            Self::Flux => "flux",
            Self::Kubectl => "kubectl",
            Self::KubectlServerSide => "kubectl-server-side",
        }
    }

    fn field_manager(self) -> &'static str {
        match self {
            Self::Flux => FLUX,
            Self::Kubectl => "--field-manager=kubectl-client-side-apply",
            Self::KubectlServerSide => "--field-manager=kubectl",
            Self::ArgoServerSide | Self::ArgoClientSide | Self::ArgoReplace => ARGO,
        }
    }

    fn args(self) -> &'static [&'static str] {
        match self {
            Self::ArgoServerSide => &["apply", SERVER_SIDE, FORCE, ARGO, "--filename=-"],
            Self::ArgoClientSide => &["apply", ARGO, "--filename=-"],
            Self::ArgoReplace => &["replace", ARGO, "--filename=-"],
            Self::Flux => &["apply", SERVER_SIDE, FORCE, FLUX, "--filename=-"],
            Self::Kubectl => &["apply", "--filename=-"],
            Self::KubectlServerSide => &["apply", SERVER_SIDE, "--filename=-"],
        }
    }
}

/// An application in Git. Its ConfigMap and Deployment have the same name.
pub(crate) struct App<'a> {
    scene: &'a Scene,
    way: Sync,
    pub(crate) name: &'static str,
    pub(crate) config: Value,
    pub(crate) web: Workload,
    /// State of its Deployment at the last look.
    pub(crate) before: Snapshot,
}

impl<'a> App<'a> {
    fn new(scene: &'a Scene, way: Sync) -> Self {
        let name = way.name();
        Self {
            scene,
            way,
            name,
            config: config_map(name, "1"),
            web: web(name),
            before: Snapshot {
                key: None,
                revisions: BTreeSet::new(),
            },
        }
    }

    fn git(&self) -> String {
        let items = [&self.config, &self.web.manifest()];
        json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
    }

    /// Pins the current hash, as happens when somebody exports the live object.
    fn commit_the_hash(&mut self) -> Result<()> {
        let key = self.before.key.as_ref().context("no hash")?;
        self.web = self.web.clone().stamped(key);
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<Output> {
        self.sync_by(self.way.args()).await
    }

    async fn sync_by(&self, args: &[&str]) -> Result<Output> {
        let git = self.git();
        if self.way == Sync::Flux {
            let dry_run = [args, &["--dry-run=server"]].concat();
            self.scene.kubectl_with_input(&dry_run, &git).await?;
        }
        let output = self.scene.kubectl_output(args, &git).await?;
        ensure!(output.code == Some(0), "{}: {output:?}", self.name);
        Ok(output)
    }
}

fn web(name: &str) -> Workload {
    Workload::deployment(name).lists(name)
}

/// Deploys an application for each way to sync, into an empty namespace.
async fn deployed(scene: &Scene) -> Result<Vec<App<'_>>> {
    deployed_by(scene, Sync::by_tools(), |web| web).await
}

/// Deploys an application for each of these ways to sync, with a Deployment that `change` modifies.
pub(crate) async fn deployed_by<'a>(
    scene: &'a Scene,
    ways: &[Sync],
    change: impl Fn(Workload) -> Workload,
) -> Result<Vec<App<'a>>> {
    let app = |way: &Sync| {
        let app = App::new(scene, *way);
        let web = change(app.web.clone());
        App { web, ..app }
    };
    let mut apps: Vec<_> = ways.iter().map(app).collect();
    for app in &apps {
        match app.way {
            // A replace needs an existing object, so this one is created.
            Sync::ArgoReplace => app.sync_by(&["create", ARGO, "--filename=-"]).await?,
            _ => app.sync().await?,
        };
    }
    each_rolled(scene, &mut apps, 1).await?;
    Ok(apps)
}

/// Asserts that syncs of what is already in Git restart nothing, that no sync is needed after them, and
/// that a sync that writes a hash is warned each time.
async fn each_heals(scene: &Scene, apps: &mut [App<'_>]) -> Result<()> {
    let rounds = if full() { 5 } else { 1 };
    for app in &*apps {
        for _ in 0..rounds {
            let output = app.sync().await?;
            let is_warned = output
                .stderr
                .contains(&format!("remove {CONFIG_HASH} from your manifest"));
            ensure!(
                is_warned == app.git().contains(CONFIG_HASH),
                "{}: {output:?}",
                app.name
            );
        }
    }
    each_rolled(scene, apps, 0).await?;
    each_has_no_drift(scene, apps).await
}

/// Asserts that no sync is needed, using each tool's own comparison.
pub(crate) async fn each_has_no_drift(scene: &Scene, apps: &[App<'_>]) -> Result<()> {
    for app in apps {
        let git = app.git();
        let kubectl = async |args: &[&str]| scene.kubectl_with_input(args, &git).await;
        no_drift(app.way, &kubectl).await.context(app.name)?;
    }
    Ok(())
}

/// Syncs a change of only the ConfigMap, so that the loop sets the hash.
async fn each_config_changes(scene: &Scene, apps: &mut [App<'_>]) -> Result<()> {
    for app in &mut *apps {
        app.config = config_map(app.name, "2");
        app.sync().await?;
    }
    each_rolled(scene, apps, 1).await
}

/// Asserts that each application has been rolled this often since the last look, and that nothing is pending
/// that would roll it.
pub(crate) async fn each_rolled(scene: &Scene, apps: &mut [App<'_>], times: usize) -> Result<()> {
    for app in &*apps {
        scene.right(&app.web).await?;
    }
    scene.quiet().await?;
    for app in apps {
        let after = scene.snapshot(&app.web).await?;
        let new = after.new_revisions(&app.before);
        ensure!(new == times, "{}: {:?}, {after:?}", app.name, app.before);
        let expected = scene.expected_key(&app.web).await?;
        ensure!(after.key == Some(expected), "{}: {after:?}", app.name);
        app.before = after;
    }
    Ok(())
}

/// Asserts that a sync would change nothing, using the tool's own comparison.
async fn no_drift(way: Sync, kubectl: &impl AsyncFn(&[&str]) -> Result<String>) -> Result<()> {
    // Same comparison as Argo CD's server-side diff with IncludeMutationWebhook=true, and as Flux.
    let dry_run = [
        "apply",
        SERVER_SIDE,
        FORCE,
        way.field_manager(),
        "--dry-run=server",
    ];
    let json = ["--output=json", "--filename=-"];
    let predicted = objects(&kubectl(&[&dry_run, &json[..]].concat()).await?)?;
    let live = objects(&kubectl(&[&["get"], &json[..]].concat()).await?)?;
    ensure!(predicted.len() == live.len());
    for (predicted, live) in predicted.iter().zip(&live) {
        ensure!(predicted == live, "drift\n{predicted}\n{live}");
    }
    let manager = way.field_manager();
    match way {
        Sync::ArgoClientSide | Sync::Kubectl => {
            kubectl(&["diff", manager, "--filename=-"]).await?;
        }
        Sync::KubectlServerSide => {
            kubectl(&["diff", SERVER_SIDE, FORCE, manager, "--filename=-"]).await?;
        }
        Sync::ArgoServerSide | Sync::ArgoReplace | Sync::Flux => {}
    }
    Ok(())
}

/// Returns the objects of a List, without the fields that change with every write or by controllers.
fn objects(list: &str) -> Result<Vec<Value>> {
    let list: Value = serde_json::from_str(list)?;
    let objects = list["items"].as_array().context("no list")?.iter().cloned();
    Ok(objects
        .map(|mut object| {
            for member in ["managedFields", "resourceVersion"] {
                object["metadata"]
                    .as_object_mut()
                    .map(|metadata| metadata.remove(member));
            }
            object.as_object_mut().map(|object| object.remove("status"));
            object
        })
        .collect())
}

const ARGO: &str = "--field-manager=argocd-controller";
const FLUX: &str = "--field-manager=kustomize-controller";
const PATH_OF_KEY: &str = ".spec.template.metadata.annotations.pod-reloader.cs.sap.com/config-hash";
const SERVER_SIDE: &str = "--server-side";
const FORCE: &str = "--force-conflicts";
