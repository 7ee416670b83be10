//! Syncs as Argo CD and Flux make them, under their field managers: one rollout for a release, and no drift.

mod own_chart;
mod waiting;

use std::{collections::BTreeSet, slice};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{Options, Scene, Snapshot, full};
use serde_json::{Value, json};

#[tokio::test]
async fn a_sync_that_changes_config_and_workload_is_one_rollout() -> Result<()> {
    Scene::play(Options::settling("10s"), async |scene| {
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
            let manager = format!("--field-manager={}", app.way.field_manager());
            let apply = ["apply", SERVER_SIDE, &manager, "--filename=-"];
            let output = scene.kubectl_output(&apply, &list(&app.git())).await?;
            assert_eq!(
                (output.code, &*output.stderr),
                (Some(0), ""),
                "{}",
                app.name
            );

            app.web = app.web.clone().stamped("stale");
            let output = scene.kubectl_output(&apply, &list(&app.git())).await?;
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
            Self::Flux => "kustomize-controller",
            Self::Kubectl => "kubectl-client-side-apply",
            Self::KubectlServerSide => "kubectl",
            Self::ArgoServerSide | Self::ArgoClientSide | Self::ArgoReplace => "argocd-controller",
        }
    }

    /// Writes objects in `namespace`, that of the workloads, or those of which each names its own. Returns the warnings.
    async fn write(
        self,
        scene: &Scene,
        namespace: Option<&str>,
        objects: &[Value],
    ) -> Result<String> {
        let command: &[&str] = match self {
            Self::ArgoClientSide | Self::Kubectl => &["apply"],
            Self::ArgoReplace => &["replace"],
            Self::KubectlServerSide => &["apply", SERVER_SIDE],
            // kubectl would send the same requests.
            Self::ArgoServerSide | Self::Flux => {
                let mut warnings = String::new();
                for object in objects {
                    let applied = scene.server_side_apply(namespace, self.field_manager(), object);
                    warnings.push_str(&applied.await?);
                }
                return Ok(warnings);
            }
        };
        self.kubectl(scene, namespace, command, objects).await
    }

    /// Runs a command of kubectl like [`Sync::write`].
    async fn kubectl(
        self,
        scene: &Scene,
        namespace: Option<&str>,
        command: &[&str],
        objects: &[Value],
    ) -> Result<String> {
        let manager = format!("--field-manager={}", self.field_manager());
        let args = [command, &[&*manager, "--filename=-"]].concat();
        let input = list(objects);
        let output = match namespace {
            Some(_) => scene.kubectl_output(&args, &input).await?,
            None => scene.tool().output(&args, &input).await?,
        };
        ensure!(output.code == Some(0), "{args:?}: {output:?}");
        Ok(output.stderr)
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

    fn git(&self) -> [Value; 2] {
        [self.config.clone(), self.web.manifest()]
    }

    /// Pins the current hash, as happens when somebody exports the live object.
    fn commit_the_hash(&mut self) -> Result<()> {
        let key = self.before.key.as_ref().context("no hash")?;
        self.web = self.web.clone().stamped(key);
        Ok(())
    }

    /// Syncs what is in Git, and returns the warnings.
    pub(crate) async fn sync(&self) -> Result<String> {
        let git = self.git();
        let namespace = Some(&*self.scene.namespace);
        if self.way == Sync::Flux {
            // Of everything, before anything is written.
            let manager = self.way.field_manager();
            for object in &git {
                let tried = self.scene.try_server_side_apply(namespace, manager, object);
                tried.await.context(self.name)?;
            }
        }
        let written = self.way.write(self.scene, namespace, &git);
        written.await.context(self.name)
    }
}

/// Returns objects as kubectl reads them.
fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
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
            Sync::ArgoReplace => {
                let namespace = Some(&*scene.namespace);
                let git = app.git();
                let create = app.way.kubectl(scene, namespace, &["create"], &git);
                create.await?
            }
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
            let warnings = app.sync().await?;
            let is_warned = warnings.contains(&format!("remove {CONFIG_HASH} from your manifest"));
            let is_in_git = list(&app.git()).contains(CONFIG_HASH);
            ensure!(is_warned == is_in_git, "{}: {warnings}", app.name);
        }
    }
    each_rolled(scene, apps, 0).await?;
    each_has_no_drift(scene, apps).await
}

/// Asserts that no sync is needed, using each tool's own comparison.
pub(crate) async fn each_has_no_drift(scene: &Scene, apps: &[App<'_>]) -> Result<()> {
    for app in apps {
        let namespace = Some(&*scene.namespace);
        let compared = no_drift(scene, app.way, namespace, &app.git()).await;
        compared.context(app.name)?;
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
async fn no_drift(
    scene: &Scene,
    way: Sync,
    namespace: Option<&str>,
    objects: &[Value],
) -> Result<()> {
    let manager = way.field_manager();
    for object in objects {
        // Same comparison as Argo CD's server-side diff with IncludeMutationWebhook=true, and as Flux.
        let predicted = scene.try_server_side_apply(namespace, manager, object);
        let predicted = compared(predicted.await?);
        let live = compared(scene.live(namespace, object).await?);
        ensure!(predicted == live, "drift\n{predicted}\n{live}");
    }
    let diff: &[&str] = match way {
        Sync::ArgoClientSide | Sync::Kubectl => &["diff"],
        Sync::KubectlServerSide => &["diff", SERVER_SIDE, FORCE],
        Sync::ArgoServerSide | Sync::ArgoReplace | Sync::Flux => return Ok(()),
    };
    way.kubectl(scene, namespace, diff, objects).await.map(drop)
}

/// Returns an object without the fields that change with every write or by controllers.
fn compared(mut object: Value) -> Value {
    for member in ["managedFields", "resourceVersion"] {
        object["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.remove(member));
    }
    object.as_object_mut().map(|object| object.remove("status"));
    object
}

const PATH_OF_KEY: &str = ".spec.template.metadata.annotations.pod-reloader.cs.sap.com/config-hash";
const SERVER_SIDE: &str = "--server-side";
const FORCE: &str = "--force-conflicts";
