//! The release of the operator, which is upgraded as users do it.

use anyhow::Result;
use pod_reloader_e2e::{
    ControlPlane, ControlPlaneOptions, Operator, Options, Scene, Version, merge,
};
use serde_json::{Value, json};

use crate::population::Kept;
use crate::sentinels::Sentinels;

/// A release of the chart with two replicas, and the control plane that it is installed in.
pub(crate) struct Release {
    pub(crate) scene: Scene,
    options: Options,
    /// The process that writes Secrets and custom resources, while a feature needs it.
    writer: Option<Operator>,
    sentinels: Option<Sentinels>,
}

impl Release {
    /// Installs a version.
    pub(crate) async fn install(version: Version) -> Result<Self> {
        let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
        let options = Options {
            settle_period: "1s",
            failure_policy: "Ignore",
            replicas: 2,
            everywhere: true,
            version,
            ..Options::released()
        };
        let scene = Scene::set(control_plane, "upgrade", options.clone()).await?;
        Ok(Self {
            scene,
            options,
            writer: None,
            sentinels: None,
        })
    }

    /// Creates the sentinels, one pair in each namespace.
    pub(crate) async fn watch_over(&mut self, namespaces: &[String]) -> Result<()> {
        self.sentinels = Some(Sentinels::create(&self.scene, namespaces).await?);
        self.quiet(&json!({})).await
    }

    /// Upgrades the release to a version, and waits until everything is done that follows from that.
    pub(crate) async fn upgrade(&mut self, version: Version) -> Result<()> {
        self.scene.installation.version = version;
        let values = self.values(&json!({}));
        self.scene.installation.upgrade(&values).await?;
        self.replace_replicas().await?;
        self.quiet(&json!({})).await
    }

    /// Upgrades the release to these values, in addition to its own, and waits like [`Release::upgrade`].
    pub(crate) async fn switch(&mut self, values: &Value) -> Result<()> {
        let args = self.scene.installation.args();
        let all = self.values(values);
        self.scene.installation.upgrade(&all).await?;
        // As a Deployment does, which replaces its pods only if their template is another one.
        if self.scene.installation.args() != args {
            self.replace_replicas().await?;
        }
        self.replace_writer().await?;
        self.quiet(values).await
    }

    /// Waits until a leader has handled everything that happened before.
    pub(crate) async fn quiet(&self, values: &Value) -> Result<()> {
        self.scene.leader().await?;
        match &self.sentinels {
            Some(sentinels) => sentinels.wait(&self.scene, values).await,
            None => Ok(()),
        }
    }

    /// Returns the manifest of the release, as Helm has it.
    pub(crate) async fn manifest(&self) -> Result<String> {
        let name = &self.scene.installation.namespace;
        let get = ["get", "manifest", name, "--namespace", name];
        self.scene.installation.helm.run(&get).await
    }

    /// Starts a new replica, and when it is ready, stops an old one, until all are new.
    async fn replace_replicas(&self) -> Result<()> {
        for old in self.scene.replicas() {
            self.scene.add_replica().await?;
            old.operator.stop().await;
            self.scene.forget(&old);
        }
        Ok(())
    }

    /// Stops the writer, and starts another one if the chart renders one.
    async fn replace_writer(&mut self) -> Result<()> {
        if let Some(old) = self.writer.take() {
            old.stop().await;
        }
        if let Some(writer) = self.scene.installation.writer().await? {
            let directory = self.scene.directory().join("writer");
            let started = self.scene.start_replica(&writer, &directory, &[]);
            self.writer = Some(started.await?);
        }
        Ok(())
    }

    fn values(&self, values: &Value) -> Value {
        let mut all = self.options.values(&self.scene.namespace);
        merge(&mut all, values);
        all
    }

    /// Returns what all replicas have logged about a workload, those that are gone among them.
    pub(crate) fn said_of(&self, of: &Kept) -> Vec<String> {
        let mut said = Vec::new();
        for entry in std::fs::read_dir(self.scene.directory())
            .into_iter()
            .flatten()
            .flatten()
        {
            let log = std::fs::read_to_string(entry.path().join("operator.log"));
            let log = log.unwrap_or_default();
            let is_of =
                |line: &&str| line.contains(&of.namespace) && line.contains(&of.workload.name);
            let lines = log.lines().filter(is_of);
            said.extend(lines.map(str::to_owned));
        }
        said.sort();
        said
    }

    /// Stops everything.
    pub(crate) async fn stop(self) {
        for replica in self.scene.replicas() {
            replica.operator.process().kill().await;
        }
        drop(self.writer);
        self.scene.control_plane.stop().await;
    }
}
