//! Releases of Flux and Argo CD that are slow, or whose controller dies: one rollout each. The tests write
//! what the controllers write, because no controller runs here.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams, Request},
};
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{ControlPlane, Options, Scene};
use serde_json::{Value, json};

use crate::chart::profiles::installed;
use crate::custom::managed::install_to_stay;
use crate::order::rounds;
use crate::watches;

#[tokio::test]
async fn a_slow_sync_is_one_rollout_whether_or_not_it_writes_the_workload() -> Result<()> {
    play(waiting("60s"), async |scene| {
        let mut waits = 0;
        for tool in Tool::OF_THE_CLUSTER {
            each_release_is_one_rollout(scene, tool, &mut waits).await?;
        }
        watches::are_as_documented(scene).await
    })
    .await
}

#[tokio::test]
async fn with_the_profile_for_argo_cd_a_slow_sync_is_one_rollout() -> Result<()> {
    let options = installed("argocd", &json!({}))?;
    play(options, async |scene| {
        each_release_is_one_rollout(scene, Tool::ArgoCd, &mut 0).await
    })
    .await
}

/// Asserts that a Helm release that Flux stores in another namespace is one rollout. The operator looks after all namespaces.
pub(crate) async fn a_release_in_another_namespace_is_one_rollout(
    control_plane: ControlPlane,
) -> Result<()> {
    create_namespaces(&control_plane).await?;
    let options = Options {
        everywhere: true,
        ..Options::default()
    };
    Scene::play_on(control_plane, options, async |scene| {
        each_release_is_one_rollout(scene, Tool::HelmRelease, &mut 0).await
    })
    .await
}

#[tokio::test]
async fn a_sync_whose_controller_dies_holds_nobody_back_for_long() -> Result<()> {
    play(waiting("3s"), async |scene| {
        for tool in Tool::OF_THE_CLUSTER {
            let app = App::deploy(scene, tool).await?;
            let before = scene.snapshot(&app.web).await?;
            app.reports(&app.begins()).await?;
            app.writes_config("2").await?;
            let note = scene.event(&app.web, "ReleaseUnfinished").await?;
            ensure!(note.contains(&app.shown()), "{note}");
            scene.rolls_once(&app.web, &before).await?;
        }
        Ok(())
    })
    .await
}

/// Makes releases that write the workload, and releases that do not. `waits` counts the waits.
async fn each_release_is_one_rollout(scene: &Scene, tool: Tool, waits: &mut usize) -> Result<()> {
    let app = App::deploy(scene, tool).await?;
    for round in 0..rounds()? {
        let before = scene.snapshot(&app.web).await?;
        app.reports(&app.begins()).await?;
        app.writes_config(&format!("{round} a")).await?;
        *waits += 1;
        app.is_waited_for(*waits).await?;
        let image = format!("app:{round}");
        app.writes(&app.web.clone().image(&image).manifest())
            .await?;
        app.reports(&app.ends()).await?;
        scene.rolls_once(&app.web, &before).await?;

        let before = scene.snapshot(&app.web).await?;
        app.reports(&app.begins()).await?;
        app.writes_config(&format!("{round} b")).await?;
        *waits += 1;
        app.is_waited_for(*waits).await?;
        // The health checks, or a hook, may wait for the new pods.
        app.reports(&app.checks()).await?;
        scene.rolls_once(&app.web, &before).await?;
        app.reports(&app.ends()).await?;
    }
    Ok(())
}

/// Returns options for an operator that may read Kustomizations everywhere, and the Applications of one
/// namespace.
fn waiting(wait: &str) -> Options {
    Options::with_values(json!({
        "releaseWait": wait,
        "flux": {"enabled": true},
        "argoCD": {"enabled": true, "namespaces": [ARGO_CD]},
    }))
}

/// Runs a test where the kinds and the namespaces of both tools exist.
async fn play(options: Options, test: impl AsyncFnOnce(&Scene) -> Result<()>) -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    for name in ["kustomizations", "applications"] {
        install_to_stay(&control_plane, &crd(name)).await?;
    }
    create_namespaces(&control_plane).await?;
    Scene::play_on(control_plane, options, test).await
}

async fn create_namespaces(control_plane: &ControlPlane) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(control_plane.admin_client().await?);
    for name in [ARGO_CD, FLUX] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let params = PatchParams::apply("user");
        namespaces
            .patch(name, &params, &Patch::Apply(namespace))
            .await?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Tool {
    Kustomization,
    /// A `HelmRelease` of Flux, stored in another namespace than its objects.
    HelmRelease,
    ArgoCd,
}

impl Tool {
    /// Those whose releases are found wherever the operator works.
    const OF_THE_CLUSTER: [Self; 2] = [Self::Kustomization, Self::ArgoCd];
}

/// An application that a tool deploys.
struct App<'a> {
    scene: &'a Scene,
    tool: Tool,
    /// The name of the Kustomization or Application, which no other test uses.
    name: String,
    web: Workload,
}

impl<'a> App<'a> {
    /// Deploys the application, and creates the object that stands for its release.
    async fn deploy(scene: &'a Scene, tool: Tool) -> Result<Self> {
        let name = match tool {
            Tool::Kustomization => "kustomization",
            Tool::HelmRelease => "helm-release",
            Tool::ArgoCd => "argo",
        };
        let name = format!("{name}-{}", &scene.namespace[scene.namespace.len() - 5..]);
        let app = Self {
            scene,
            tool,
            web: Workload::deployment(&name).lists(&name),
            name,
        };
        let (api_version, kind) = match tool {
            Tool::Kustomization => ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            Tool::HelmRelease => ("v1", "Secret"),
            Tool::ArgoCd => ("argoproj.io/v1alpha1", "Application"),
        };
        let mut metadata = json!({"name": app.stored(), "namespace": app.namespace()});
        if tool == Tool::HelmRelease {
            metadata["labels"] = json!({
                "owner": "helm", "name": app.name, "version": "1", "status": "deployed",
            });
        }
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        scene.create_object(&object).await?;
        app.writes_config("1").await?;
        app.writes(&app.web.manifest()).await?;
        scene.right(&app.web).await?;
        Ok(app)
    }

    /// Returns the name of the object in which the tool stores the release.
    fn stored(&self) -> String {
        match self.tool {
            Tool::Kustomization | Tool::ArgoCd => self.name.clone(),
            Tool::HelmRelease => format!("sh.helm.release.v1.{}.v1", self.name),
        }
    }

    /// Returns the namespace in which the tool stores the release.
    fn namespace(&self) -> &str {
        match self.tool {
            Tool::Kustomization => &self.scene.namespace,
            Tool::HelmRelease => FLUX,
            Tool::ArgoCd => ARGO_CD,
        }
    }

    /// Returns how the operator names the release.
    fn shown(&self) -> String {
        let kind = match self.tool {
            Tool::Kustomization => "Kustomization",
            Tool::HelmRelease => "Helm release",
            Tool::ArgoCd => "Application",
        };
        format!("{kind} {}/{}", self.namespace(), self.name)
    }

    async fn writes_config(&self, value: &str) -> Result<()> {
        let name = &self.web.name;
        self.writes(&config_map(name, value)).await
    }

    /// Applies an object with the metadata of the tool.
    async fn writes(&self, manifest: &Value) -> Result<()> {
        let mut manifest = manifest.clone();
        match self.tool {
            Tool::Kustomization => {
                manifest["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] =
                    json!(self.name);
                manifest["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/namespace"] =
                    json!(self.namespace());
            }
            Tool::HelmRelease => {
                let metadata = &mut manifest["metadata"];
                metadata["labels"]["helm.toolkit.fluxcd.io/name"] = json!(self.name);
                metadata["labels"]["helm.toolkit.fluxcd.io/namespace"] = json!(FLUX);
                metadata["annotations"]["meta.helm.sh/release-name"] = json!(self.name);
                metadata["annotations"]["meta.helm.sh/release-namespace"] =
                    json!(self.scene.namespace);
            }
            Tool::ArgoCd => {
                let id = format!("{}:apps/Deployment:ns/name", self.name);
                manifest["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = json!(id);
            }
        }
        let namespace = Some(&*self.scene.namespace);
        let applied = self
            .scene
            .server_side_apply(namespace, "kubectl", &manifest);
        applied.await.map(drop)
    }

    /// Writes how far the release is.
    async fn reports(&self, patch: &Value) -> Result<()> {
        let (version, resource) = match self.tool {
            Tool::Kustomization => ("apis/kustomize.toolkit.fluxcd.io/v1", "kustomizations"),
            Tool::HelmRelease => ("api/v1", "secrets"),
            Tool::ArgoCd => ("apis/argoproj.io/v1alpha1", "applications"),
        };
        let namespace = self.namespace();
        let request = Request::new(format!("/{version}/namespaces/{namespace}/{resource}"));
        let stored = self.stored();
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        let request = match self.tool {
            Tool::Kustomization => request.patch_subresource("status", &stored, &params, &patch)?,
            Tool::HelmRelease | Tool::ArgoCd => request.patch(&stored, &params, &patch)?,
        };
        self.scene.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Returns what the tool writes when the release begins.
    fn begins(&self) -> Value {
        match self.tool {
            Tool::Kustomization => reconciling("Detecting drift for revision main@sha1:2"),
            Tool::HelmRelease => {
                labelled(json!({"status": "pending-upgrade", "createdAt": "1790000000"}))
            }
            Tool::ArgoCd => self.syncing("Running", &[]),
        }
    }

    /// Returns what the tool writes when everything is applied: a hook begins, or the health is checked.
    fn checks(&self) -> Value {
        match self.tool {
            Tool::Kustomization => reconciling("Running health checks for revision main@sha1:2"),
            Tool::HelmRelease => labelled(json!({"createdAt": null})),
            Tool::ArgoCd => self.syncing("Running", &[&self.web.name]),
        }
    }

    /// Returns what the tool writes when the release has ended.
    fn ends(&self) -> Value {
        match self.tool {
            Tool::Kustomization => json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"},
            ]}}),
            Tool::HelmRelease => labelled(json!({"status": "deployed", "createdAt": null})),
            Tool::ArgoCd => self.syncing("Succeeded", &[&self.web.name]),
        }
    }

    /// Waits until `waits` restarts have waited for releases, the last one for this release.
    async fn is_waited_for(&self, waits: usize) -> Result<()> {
        let operator = &self.scene.operator;
        let metric = "pod_reloader_release_waits_total";
        operator.shows(metric, &waits.to_string()).await?;
        let note = self.scene.event(&self.web, "WaitingForRelease").await?;
        ensure!(note.contains(&self.shown()), "{note}");
        Ok(())
    }

    /// Returns the operation of an Application that has applied these Deployments.
    fn syncing(&self, phase: &str, applied: &[&str]) -> Value {
        let applied = applied.iter().map(|name| {
            json!({
                "group": "apps", "version": "v1", "kind": "Deployment", "name": name,
                "namespace": self.scene.namespace, "status": "Synced", "syncPhase": "Sync",
            })
        });
        let is_under_way = phase == "Running";
        json!({
            "operation": is_under_way.then(|| json!({"sync": {}})),
            "status": {"operationState": {
                "phase": phase,
                "startedAt": "2026-01-01T00:00:00Z",
                "syncResult": {"revision": "2", "resources": applied.collect::<Vec<_>>()},
            }},
        })
    }
}

fn reconciling(message: &str) -> Value {
    json!({"status": {"conditions": [
        {"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "Reconciliation in progress"},
        {"type": "Reconciling", "status": "True", "reason": "Progressing", "message": message},
    ]}})
}

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

/// The namespace of Argo CD.
const ARGO_CD: &str = "argocd";

/// The namespace of HelmReleases.
const FLUX: &str = "flux-system";
