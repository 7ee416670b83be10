//! Builders of workloads, config objects and keys for the tests of this crate.

use serde_json::{Value, json};

use crate::annotations::{self, Inherited};
use crate::dialects::Dialects;
use crate::digest::{Aspects, ConfigObject, Contents, Digest, Objects, Presence};
use crate::hash::{HashKey, Keyring};
use crate::kind::WorkloadKind;
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

use crate::object::{Object, WorkloadObject};
use crate::workload::{Reading, Workload, WorkloadId};

/// A Deployment in the namespace `ns`.
pub(crate) fn deployment(name: &str) -> Builder {
    Builder(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "ns", "uid": "uid-1", "generation": 3},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": {"volumes": [], "containers": []}}},
    }))
}

pub(crate) struct Builder(Value);

impl Builder {
    pub(crate) fn lists(self, config_maps: &str) -> Self {
        self.annotation("configmaps", config_maps)
    }

    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][format!("pod-reloader.cs.sap.com/{key}")] = json!(value);
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][format!("pod-reloader.cs.sap.com/{key}")] = json!(value);
        self
    }

    pub(crate) fn stamped(mut self, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["annotations"][annotations::CONFIG_HASH] =
            json!(value);
        self
    }

    pub(crate) fn requires(mut self, config_map: &str, key: Option<&str>) -> Self {
        let items = key.map(|key| json!([{"key": key, "path": key}]));
        let spec = &mut self.0["spec"]["template"]["spec"];
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            let name = format!("needed-{}", volumes.len());
            volumes.push(json!({"name": name, "configMap": {"name": config_map, "items": items}}));
            if let Some(containers) = spec["containers"].as_array_mut() {
                let mounts = json!([{"name": name, "mountPath": "/needed"}]);
                containers.push(json!({"name": name, "volumeMounts": mounts}));
            }
        }
        self
    }

    /// Makes the pods take a variable from a key of a ConfigMap or Secret: `source` is one of `configMapKeyRef` and
    /// `secretKeyRef`.
    pub(crate) fn takes(mut self, source: &str, name: &str, key: &str) -> Self {
        let from = json!({(source): {"name": name, "key": key}});
        let container = json!({"name": "takes", "env": [{"name": "A", "valueFrom": from}]});
        if let Some(containers) = self.0["spec"]["template"]["spec"]["containers"].as_array_mut() {
            containers.push(container);
        }
        self
    }

    pub(crate) fn image(mut self, image: &str) -> Self {
        let spec = &mut self.0["spec"]["template"]["spec"];
        let others = spec["containers"].as_array().into_iter().flatten();
        let others = others.filter(|it| it["name"] != "main").cloned();
        let main = json!({"name": "main", "image": image});
        let containers: Value = [main].into_iter().chain(others).collect();
        spec["containers"] = containers;
        self
    }

    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(parent).unwrap()[field] = value;
        self
    }

    pub(crate) fn json(self) -> Value {
        self.0
    }

    /// Sets an annotation of any dialect.
    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = json!(value);
        self
    }

    pub(crate) fn build(self) -> Workload {
        self.read_in(Dialects::default())
    }

    pub(crate) fn read_in(self, dialects: Dialects) -> Workload {
        let object: WorkloadObject = serde_json::from_value(self.0).unwrap();
        object
            .into_workload(
                WorkloadKind::DEPLOYMENT,
                &Reading::new(dialects, []),
                &Inherited::default(),
            )
            .unwrap()
    }
}

/// Returns a ConfigMap with the given `data` and `binaryData`.
pub(crate) fn config_map(content: &Value) -> ConfigObject {
    let mut object = content.clone();
    object["metadata"] = json!({"uid": "uid-c", "resourceVersion": "7"});
    ConfigObject::parse(object.to_string().as_bytes(), Aspects::default()).unwrap()
}

/// Returns a ConfigMap whose only value is `value`.
pub(crate) fn holding(value: &str) -> Option<ConfigObject> {
    Some(config_map(&json!({"data": {"key": value}})))
}

pub(crate) fn digest_of(content: &Value) -> Digest {
    config_map(content).digest
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Returns what names a Deployment in the namespace `ns`.
pub(crate) fn id(text: &str) -> WorkloadId {
    WorkloadId {
        kind: WorkloadKind::DEPLOYMENT,
        namespace: name("ns"),
        name: text.into(),
    }
}

pub(crate) fn reference(text: &str) -> Reference {
    Reference {
        kind: ConfigKind::ConfigMap,
        namespace: name("ns"),
        name: name(text),
    }
}

/// Returns ConfigMaps by name; `None` is absent.
pub(crate) fn objects(objects: &[(&str, Option<ConfigObject>)]) -> Objects {
    let presence = |object: &Option<_>| object.clone().map_or(Presence::Absent, Presence::Present);
    objects
        .iter()
        .map(|(name, object)| (reference(name), presence(object)))
        .collect()
}

/// Returns keys made of one repeated byte each, newest first.
pub(crate) fn keyring(bytes: &[u8]) -> Keyring {
    Keyring::new(bytes.iter().map(|&byte| HashKey::new([byte; 32])).collect()).unwrap()
}

/// Returns the config hash of these objects by a key made of one repeated byte.
pub(crate) fn hashed_by(key: u8, objects: &Objects) -> String {
    let contents = Contents::whole(objects);
    keyring(&[key]).hash(&contents).to_string()
}

impl From<Value> for Builder {
    fn from(object: Value) -> Self {
        Self(object)
    }
}
