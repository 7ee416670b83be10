//! Builds workloads and config objects for tests.

use serde_json::{Value, json};

/// The kinds of workload that the operator manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    /// Returns the kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

/// Annotation that holds the config hash.
pub const CONFIG_HASH: &str = "pod-reloader.cs.sap.com/config-hash";
/// Annotation that lists ConfigMaps.
pub const CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/configmaps";
/// Annotation that lists Secrets.
pub const SECRETS: &str = "pod-reloader.cs.sap.com/secrets";
/// Annotation that says what an unverifiable config hash stands for.
pub const BASELINE: &str = "pod-reloader.cs.sap.com/baseline";

/// A manifest of a workload, with one replica of one container.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    manifest: Value,
}

impl Workload {
    /// Returns a workload that lists nothing.
    pub fn new(kind: Kind, name: &str) -> Self {
        let labels = json!({"app": name});
        let mut manifest = json!({
            "apiVersion": "apps/v1",
            "kind": kind.as_str(),
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
                },
            },
        });
        if kind != Kind::DaemonSet {
            manifest["spec"]["replicas"] = json!(1);
        }
        if kind == Kind::StatefulSet {
            manifest["spec"]["serviceName"] = json!(name);
        }
        Self {
            kind,
            name: name.to_owned(),
            manifest,
        }
    }

    /// Returns a Deployment that lists nothing.
    pub fn deployment(name: &str) -> Self {
        Self::new(Kind::Deployment, name)
    }

    /// Returns a Deployment that lists nothing, and has no pods: they are most of a rollout's cost.
    pub fn podless(name: &str) -> Self {
        Self::deployment(name).without_pods()
    }

    /// Lists ConfigMaps, comma-separated.
    #[must_use]
    pub fn lists(self, config_maps: &str) -> Self {
        self.annotated(CONFIG_MAPS, config_maps)
    }

    /// Lists Secrets, comma-separated.
    #[must_use]
    pub fn lists_secrets(self, secrets: &str) -> Self {
        self.annotated(SECRETS, secrets)
    }

    /// Sets an annotation of the workload's own metadata.
    #[must_use]
    pub fn annotated(self, key: &str, value: &str) -> Self {
        self.with(&["metadata", "annotations", key], json!(value))
    }

    /// Sets a label of the workload's own metadata.
    #[must_use]
    pub fn labelled(self, key: &str, value: &str) -> Self {
        self.with(&["metadata", "labels", key], json!(value))
    }

    /// Sets the config hash on its pod template.
    #[must_use]
    pub fn stamped(self, value: &str) -> Self {
        self.with(
            &["spec", "template", "metadata", "annotations", CONFIG_HASH],
            json!(value),
        )
    }

    /// Sets the image of its container.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        self
    }

    /// Makes it cheap: it has no pods, but its revisions are created anyway.
    #[must_use]
    pub fn without_pods(self) -> Self {
        match self.kind {
            Kind::DaemonSet => self.with(
                &["spec", "template", "spec", "nodeSelector"],
                json!({"no": "node"}),
            ),
            _ => self.with(&["spec", "replicas"], json!(0)),
        }
    }

    /// Makes it unable to start without this ConfigMap.
    #[must_use]
    pub fn requires(mut self, config_map: &str) -> Self {
        self.manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": config_map}}]);
        self
    }

    /// Makes it unable to start without this Secret.
    #[must_use]
    pub fn requires_secret(mut self, secret: &str) -> Self {
        self.manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"secretRef": {"name": secret}}]);
        self
    }

    /// Sets any other field.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: Value) -> Self {
        let place = path
            .iter()
            .fold(&mut self.manifest, |place, member| &mut place[*member]);
        *place = value;
        self
    }

    /// Returns `deployment/NAME` and the like, as kubectl accepts it.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.kind.as_str().to_lowercase(), self.name)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> Value {
        self.manifest.clone()
    }
}

/// Returns the config hash of a workload, as the apiserver shows it.
pub fn key_of(object: &Value) -> Option<String> {
    object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]
        .as_str()
        .map(str::to_owned)
}

/// Returns the config hash of a workload in JSON, as kubectl prints it.
///
/// # Errors
/// When the text is not JSON.
pub fn key_in(object: &str) -> serde_json::Result<Option<String>> {
    serde_json::from_str(object).map(|object| key_of(&object))
}

/// Returns a ConfigMap with the single key `key`.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"key": value},
    })
}

/// Returns a Secret with the single key `key`.
pub fn secret(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"key": value},
    })
}

/// Returns a ConfigMap and a Secret with this name, as [`config_map`] and [`secret`] do.
pub fn both_kinds(name: &str, value: &str) -> [Value; 2] {
    [config_map(name, value), secret(name, value)]
}
