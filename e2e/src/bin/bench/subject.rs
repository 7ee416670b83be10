//! The subject of a measurement: the operator, or the floor or SAP's pod-reloader in its place.

use anyhow::Result;
use pod_reloader_e2e::{
    Process, Scene, crowd,
    workload::{Workload, config_map, secret},
};
use serde_json::{Value, json};

use crate::another_role;
use crate::floor::{CONCERNS, STAMP};

/// A label of the Deployments of SAP's pod-reloader, and the beginning of their names.
pub(crate) const SAP: &str = "sap";

/// A program that changes pod templates when ConfigMaps change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Floor,
    /// The floor that also reads what an operator has to.
    ReadingFloor,
    Operator,
    Sap,
}

impl Subject {
    pub(crate) const BOTH: [Self; 2] = [Self::Floor, Self::Operator];

    /// Returns the name of one of its ConfigMaps, with which the names of its Deployments begin.
    pub(crate) fn name(self, of: &str) -> String {
        match self {
            Self::Floor => format!("floor-{of}"),
            Self::ReadingFloor => format!("reading-floor-{of}"),
            Self::Operator => format!("ours-{of}"),
            Self::Sap => format!("{SAP}-{of}"),
        }
    }

    /// Returns a ConfigMap that concerns this many Deployments.
    pub(crate) fn config_map(self, of: &str, concerned: usize) -> Value {
        let mut object = config_map(&self.name(of), "0");
        if matches!(self, Self::Floor | Self::ReadingFloor) {
            object["metadata"]["labels"] = json!({CONCERNS: concerned.to_string()});
        }
        object
    }

    /// Returns the ConfigMap of this name and so many other objects, half of all Secrets, and the Deployment of the
    /// operator that lists all of them.
    pub(crate) fn with_others(of: &str, others: usize) -> (Vec<Value>, Workload) {
        let name = Self::Operator.name(of);
        let names = |is_secret: bool| {
            let numbers = (1..=others).filter(move |number| (number % 2 == 1) == is_secret);
            let names = numbers.map(|number| format!("{name}-{number}"));
            names.collect::<Vec<_>>()
        };
        let (secrets, config_maps) = (names(true), [vec![name.clone()], names(false)].concat());
        let workload = Workload::deployment(&format!("{name}-0"))
            .with(&["spec", "replicas"], json!(0))
            .lists(&config_maps.join(","))
            .lists_secrets(&secrets.join(","));
        let config_maps = config_maps.iter().map(|name| config_map(name, "0"));
        let secrets = secrets.iter().map(|name| secret(name, "0"));
        (config_maps.chain(secrets).collect(), workload)
    }

    /// Returns the Deployments that the ConfigMap of this name concerns.
    pub(crate) fn deployments(self, of: &str, count: usize) -> Vec<Workload> {
        let name = self.name(of);
        let concerned = |workload: Workload| match self {
            Self::Operator => workload.lists(&name),
            Self::Sap => workload.lists(&name).labelled(SAP, "true"),
            Self::Floor | Self::ReadingFloor => workload.with(
                &["spec", "template", "metadata", "annotations", STAMP],
                json!("0"),
            ),
        };
        crowd(&name, count).into_iter().map(concerned).collect()
    }
}

/// The subject that runs, while the other one does not.
pub(crate) enum Running<'a> {
    Other(Process),
    Operator(&'a Scene),
}

impl<'a> Running<'a> {
    /// Starts the operator or the floor. Neither of them must be running.
    pub(crate) async fn start(scene: &'a Scene, subject: Subject) -> Result<Self> {
        if subject == Subject::Operator {
            scene.operator.start_again().await?;
            return Ok(Self::Operator(scene));
        }
        Self::floor(scene, subject == Subject::ReadingFloor).await
    }

    /// Starts the floor, which also reads if it `reads`.
    pub(crate) async fn floor(scene: &'a Scene, reads: bool) -> Result<Self> {
        // The floor has the operator's user, because it takes an apiserver time to recognise a user and to
        // log his requests.
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
        let mut args = vec![kubeconfig, namespace];
        args.extend(reads.then(|| "--reads".to_owned()));
        let floor = another_role(scene, "floor", &args)?;
        Ok(Self::Other(floor))
    }

    pub(crate) fn process(&self) -> &Process {
        match self {
            Self::Other(process) => process,
            Self::Operator(scene) => scene.operator.process(),
        }
    }

    pub(crate) async fn stop(self) {
        match self {
            Self::Other(process) => process.kill().await,
            Self::Operator(scene) => scene.operator.stop().await,
        }
    }
}
