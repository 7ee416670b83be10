//! Checks what pods lack in order to start, against a kubelet that walks over the JSON of pod spec and objects.
//!
//! It follows `makeEnvironmentVariables` in `pkg/kubelet/kubelet_pods.go`, `processPodVolumes` of the volume manager,
//! `MakePayload` in `pkg/volume/configmap` and `pkg/volume/secret`, `collectData` in `pkg/volume/projected`, and what
//! the drivers of Kubernetes 1.36 read, but goes on after an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::PodSpec;
use pod_reloader_core::annotations as keys;
use pod_reloader_core::digest::{Aspects, ConfigObject, Objects, Presence};
use pod_reloader_core::discovery::Unmet;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::WorkloadObject;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::Workload;
use serde_json::{Value, json};

use crate::annotations::is_subdomain;
use crate::choices::Choices;
use crate::pod_spec::{DRIVERS, pod_spec};

/// Makes a workload and objects, and checks what its pods lack.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut spec = accepted(pod_spec(&mut choices));
    for volume in members(&mut spec, "volumes") {
        if volume["iscsi"].is_object() && choices.flag() {
            volume["iscsi"]["chapAuthSession"] = json!(true);
        }
    }
    let cluster = Cluster::of(&mut choices);
    let lists = match choices.number() % 3 {
        0 => json!({keys::AUTO: "true"}),
        1 => json!({keys::CONFIG_MAPS: "one", keys::SECRETS: "two.three,absent"}),
        _ => json!({keys::CONFIG_MAPS: ""}),
    };
    let workload = workload(&spec, &lists);
    let missing: BTreeSet<_> = workload.missing(&cluster.as_read()).collect();
    assert_eq!(missing, kubelet(&spec, &cluster), "{spec}\n{:?}", cluster.0);
}

/// The ConfigMaps and Secrets, as the apiserver sends them. An absent one is `null`.
struct Cluster(BTreeMap<(ConfigKind, &'static str), Value>);

impl Cluster {
    fn of(choices: &mut Choices<'_>) -> Self {
        let mut objects = BTreeMap::new();
        for kind in ConfigKind::ALL {
            for name in ["one", "two", "two.three"] {
                let object = match choices.number() % 4 {
                    0 => Value::Null,
                    _ => object(kind, choices),
                };
                objects.insert((kind, name), object);
            }
        }
        Self(objects)
    }

    fn get(&self, kind: ConfigKind, name: &str) -> &Value {
        let found = self.0.iter().find(|(own, _)| **own == (kind, name));
        found.map_or(&Value::Null, |(_, object)| object)
    }

    fn as_read(&self) -> Objects {
        let read = |(&(kind, name), object): (&(ConfigKind, &str), &Value)| {
            let presence = match object {
                Value::Null => Presence::Absent,
                object => {
                    let text = object.to_string();
                    let object = ConfigObject::parse(text.as_bytes(), Aspects::default());
                    Presence::Present(object.expect("it is a config object"))
                }
            };
            (reference(kind, name), presence)
        };
        self.0.iter().map(read).collect()
    }
}

/// Returns an object with some of the keys that pod specs name.
fn object(kind: ConfigKind, choices: &mut Choices<'_>) -> Value {
    let mut object = json!({"metadata": {"uid": "u", "resourceVersion": "1"}});
    for key in ["a", "b", "app.yaml", "d"] {
        match (choices.number() % 4, kind) {
            (0, _) => {}
            (1, ConfigKind::ConfigMap) => object["binaryData"][key] = json!("/w=="),
            _ => object["data"][key] = json!("MQ=="),
        }
    }
    object
}

/// Returns a pod spec as the apiserver stores it: without fields that it does not know, and without the second of two
/// members that exclude each other.
fn accepted(spec: Value) -> Value {
    let typed: PodSpec = serde_json::from_value(spec).expect("it is a pod spec");
    let mut spec = json!(typed);
    spec["ephemeralContainers"] = json!(null);
    for list in ["initContainers", "containers"] {
        for container in members(&mut spec, list) {
            for variable in members(container, "env") {
                let is_first = variable["valueFrom"]["configMapKeyRef"].is_object();
                if is_first {
                    variable["valueFrom"]["secretKeyRef"] = json!(null);
                }
            }
            for variables in members(container, "envFrom") {
                if variables["configMapRef"].is_object() {
                    variables["secretRef"] = json!(null);
                }
            }
        }
    }
    for volume in members(&mut spec, "volumes") {
        if volume["projected"].is_null() {
            continue;
        }
        for source in members(&mut volume["projected"], "sources") {
            if source["configMap"].is_object() {
                source["secret"] = json!(null);
            }
        }
    }
    spec
}

fn members<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let members = value.get_mut(list).and_then(Value::as_array_mut);
    members.into_iter().flatten()
}

fn workload(spec: &Value, lists: &Value) -> Workload {
    static SCOPE: LazyLock<Scope> = LazyLock::new(|| {
        let own = Name::parse("operator").expect("it is a name");
        Scope::new([], own)
    });
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "annotations": lists},
        "spec": {"template": {"spec": spec}},
    });
    let object: WorkloadObject =
        serde_json::from_str(&object.to_string()).expect("it is a Deployment");
    let workload = SCOPE.read(WorkloadKind::DEPLOYMENT, object);
    workload.expect("its namespace has a name")
}

/// Returns each error that keeps a pod from starting.
fn kubelet(spec: &Value, cluster: &Cluster) -> BTreeSet<Unmet> {
    let mut errors = Errors {
        cluster,
        errors: BTreeSet::new(),
    };
    let containers = list(spec, "initContainers").chain(list(spec, "containers"));
    let mut mounted = BTreeSet::new();
    for container in containers {
        for from in list(container, "envFrom") {
            errors.object(ConfigKind::ConfigMap, &from["configMapRef"], "name");
            errors.object(ConfigKind::Secret, &from["secretRef"], "name");
        }
        for variable in list(container, "env") {
            let from = &variable["valueFrom"];
            errors.variable(ConfigKind::ConfigMap, &from["configMapKeyRef"]);
            errors.variable(ConfigKind::Secret, &from["secretKeyRef"]);
        }
        mounted.extend(list(container, "volumeMounts").map(|it| text(it, "name")));
    }
    for volume in list(spec, "volumes") {
        let name = text(volume, "name");
        if !name.is_empty() && mounted.contains(name) {
            errors.volume(volume);
        }
    }
    errors.errors
}

struct Errors<'a> {
    cluster: &'a Cluster,
    errors: BTreeSet<Unmet>,
}

impl<'a> Errors<'a> {
    fn volume(&mut self, volume: &Value) {
        self.files(ConfigKind::ConfigMap, &volume["configMap"], "name");
        self.files(ConfigKind::Secret, &volume["secret"], "secretName");
        for source in list(&volume["projected"], "sources") {
            self.files(ConfigKind::ConfigMap, &source["configMap"], "name");
            self.files(ConfigKind::Secret, &source["secret"], "name");
        }
        self.object(ConfigKind::Secret, &volume["azureFile"], "secretName");
        self.object(
            ConfigKind::Secret,
            &volume["csi"]["nodePublishSecretRef"],
            "name",
        );
        for driver in DRIVERS {
            let source = &volume[driver];
            let is_read = match driver {
                "iscsi" => source["chapAuthSession"] == true,
                // `TranslateInTreeInlineVolumeToCSI` leaves it out.
                "cinder" => false,
                _ => true,
            };
            if is_read {
                self.object(ConfigKind::Secret, &source["secretRef"], "name");
            }
        }
    }

    fn variable(&mut self, kind: ConfigKind, source: &Value) {
        let Some((object, reference)) = self.object(kind, source, "name") else {
            return;
        };
        let key = text(source, "key");
        if object["data"].get(key).is_none() && source["optional"] != true {
            self.errors.insert(Unmet {
                reference,
                key: Some(key.into()),
                is_binary: object["binaryData"].get(key).is_some(),
            });
        }
    }

    fn files(&mut self, kind: ConfigKind, source: &Value, name: &str) {
        let Some((object, reference)) = self.object(kind, source, name) else {
            return;
        };
        for item in list(source, "items") {
            let key = text(item, "key");
            let is_there = ["data", "binaryData"]
                .iter()
                .any(|map| object[*map].get(key).is_some());
            if !is_there && source["optional"] != true {
                self.errors.insert(Unmet {
                    reference: reference.clone(),
                    key: Some(key.into()),
                    is_binary: false,
                });
            }
        }
    }

    /// Gets an object. Names that no object can have are passed over: such a pod never starts, whatever is written.
    fn object(
        &mut self,
        kind: ConfigKind,
        source: &Value,
        name: &str,
    ) -> Option<(&'a Value, Reference)> {
        let name = text(source, name);
        if !is_subdomain(name) {
            return None;
        }
        let (object, reference) = (self.cluster.get(kind, name), reference(kind, name));
        if !object.is_null() {
            return Some((object, reference));
        }
        if source["optional"] != true {
            self.errors.insert(Unmet {
                reference,
                key: None,
                is_binary: false,
            });
        }
        None
    }
}

fn reference(kind: ConfigKind, name: &str) -> Reference {
    let parse = |name| Name::parse(name).expect("it is a name");
    Reference {
        kind,
        namespace: parse("ns"),
        name: parse(name),
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
