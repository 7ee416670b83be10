//! Who is measured: the operator, or the floor in its place.

use anyhow::Result;
use pod_reloader_e2e::{
    Process, Scene, crowd,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};

use crate::another_role;
use crate::floor::{CONCERNS, STAMP};

/// Somebody who changes pod templates when ConfigMaps change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Floor,
    Operator,
}

impl Subject {
    pub(crate) const BOTH: [Self; 2] = [Self::Floor, Self::Operator];

    /// The name of one of its ConfigMaps, which the names of its Deployments begin with.
    pub(crate) fn name(self, of: &str) -> String {
        match self {
            Self::Floor => format!("floor-{of}"),
            Self::Operator => format!("ours-{of}"),
        }
    }

    /// A ConfigMap that concerns so many Deployments.
    pub(crate) fn config_map(self, of: &str, concerned: usize) -> Value {
        let mut object = config_map(&self.name(of), "0");
        if self == Self::Floor {
            object["metadata"]["labels"] = json!({CONCERNS: concerned.to_string()});
        }
        object
    }

    /// The Deployments that the ConfigMap of this name concerns.
    pub(crate) fn deployments(self, of: &str, count: usize) -> Vec<Workload> {
        let name = self.name(of);
        let concerned = |workload: Workload| match self {
            Self::Operator => workload.lists(&name),
            Self::Floor => workload.with(
                &["spec", "template", "metadata", "annotations", STAMP],
                json!("0"),
            ),
        };
        crowd(&name, count).into_iter().map(concerned).collect()
    }
}

/// The one of both that runs; the other does not.
pub(crate) enum Running<'a> {
    Floor(Process),
    Operator(&'a Scene),
}

impl<'a> Running<'a> {
    /// Starts `subject`. The operator must not run before.
    pub(crate) async fn start(scene: &'a Scene, subject: Subject) -> Result<Self> {
        if subject == Subject::Operator {
            scene.operator.start_again().await?;
            return Ok(Self::Operator(scene));
        }
        // As the operator: how an apiserver knows a user, and logs what he does, takes time too.
        let installation = &scene.installation;
        let token = scene
            .control_plane
            .service_account_token(&installation.namespace, installation.service_account())
            .await?;
        let kubeconfig = scene.directory().join("floor.kubeconfig");
        scene
            .control_plane
            .kubeconfig_for(token)
            .write(&kubeconfig)?;
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let namespace = format!("--namespace={}", scene.namespace);
        let floor = another_role(scene, "floor", &[kubeconfig, namespace])?;
        Ok(Self::Floor(floor))
    }

    pub(crate) fn process(&self) -> &Process {
        match self {
            Self::Floor(process) => process,
            Self::Operator(scene) => scene.operator.process(),
        }
    }

    pub(crate) async fn stop(self) {
        match self {
            Self::Floor(process) => process.kill().await,
            Self::Operator(scene) => scene.operator.stop().await,
        }
    }
}
