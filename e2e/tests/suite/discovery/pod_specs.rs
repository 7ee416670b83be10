//! Every way in which a pod template can name a ConfigMap or Secret.

use pod_reloader_e2e::merge;
use pod_reloader_e2e::workload::Workload;
use serde_json::{Value, json};

use super::cases::{Case, ConfigKind, NOTHING, Part, USED};

/// Returns a workload that uses all of the ConfigMap and of the Secret that share its name.
pub(super) fn uses_both(name: &str) -> Workload {
    let env_from = json!([{"configMapRef": {"name": name}}, {"secretRef": {"name": name}}]);
    let mut containers = container();
    containers[0]["envFrom"] = env_from;
    with_spec(Workload::podless(name), json!({"containers": containers}))
}

/// Returns a Deployment named `name` for each way in which a pod template can name a ConfigMap or Secret.
pub(super) fn references(name: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, spec, part) in FORMS {
        for kind in ConfigKind::ALL {
            let source = Source::new(kind, name);
            cases.push(source.case(form, part, spec(&source)));
        }
    }
    let secret = Source::new(ConfigKind::Secret, name);
    for driver in DRIVERS {
        cases.push(secret.case(driver, Part::Whole, secret.driver(driver)));
    }
    cases.push(secret.case(IMAGE_PULL, Part::Whole, secret.image_pull()));
    cases
}

/// Returns Deployments with different names, for one of each sort of these ways.
pub(super) fn few_references(suffix: &str) -> Vec<Case> {
    let named = |form: &str, kind| Source::new(kind, &format!("{form}{suffix}"));
    let mut cases = optional_references(suffix, false);
    let driven = named("csi", ConfigKind::Secret);
    cases.push(driven.case("csi", Part::Whole, driven.driver("csi")));
    let pulled = named(IMAGE_PULL, ConfigKind::Secret);
    cases.push(pulled.case(IMAGE_PULL, Part::Whole, pulled.image_pull()));
    cases
}

/// Does the same for those ways that let an object be absent, if it is `optional`.
pub(super) fn optional_references(suffix: &str, optional: bool) -> Vec<Case> {
    let few: [(_, _, Spec, _); 4] = [
        ("env", ConfigKind::ConfigMap, Source::env, Part::Key),
        (
            "env-from",
            ConfigKind::Secret,
            Source::env_from,
            Part::Whole,
        ),
        ("volume", ConfigKind::ConfigMap, Source::volume, Part::Whole),
        (
            "projected-items",
            ConfigKind::Secret,
            Source::projected_items,
            Part::Key,
        ),
    ];
    let case = |(form, kind, spec, part): (&'static str, _, Spec, _)| {
        let source = Source {
            optional,
            ..Source::new(kind, &format!("{form}{suffix}"))
        };
        source.case(form, part, spec(&source))
    };
    few.map(case).into()
}

pub(super) fn with_spec(workload: Workload, spec: Value) -> Workload {
    let members = spec.as_object().cloned().unwrap_or_default();
    members
        .into_iter()
        .fold(workload, |workload, (member, value)| {
            workload.with(&["spec", "template", "spec", &member], value)
        })
}

pub(super) fn container() -> Value {
    json!([{"name": "main", "image": "app:1"}])
}

/// Returns references to things that are neither ConfigMap nor Secret. Not every version of Kubernetes has pod
/// certificates.
pub(super) fn foreign_references(with_pod_certificate: bool) -> Value {
    let mut spec = json!({
        "containers": container(),
        "serviceAccountName": "absent",
        "volumes": [
            {"name": "provided", "csi": {
                "driver": "secrets-store.csi.k8s.io", "readOnly": true,
                "volumeAttributes": {"secretProviderClass": "absent"},
            }},
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "absent"}},
            {"name": "trust", "projected": {"sources": [
                {"clusterTrustBundle": {"name": "absent", "path": "ca.pem", "optional": true}},
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
                {"downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]}},
            ]}},
        ],
    });
    let trust = &mut spec["volumes"][2]["projected"]["sources"];
    if let (true, Some(sources)) = (with_pod_certificate, trust.as_array_mut()) {
        sources.push(json!({"podCertificate": {
            "signerName": "example.com/signer", "keyType": "ED25519",
            "credentialBundlePath": "bundle.pem",
        }}));
    }
    spec
}

/// A way in which a pod template names an object.
pub(super) type Spec = fn(&Source) -> Value;

/// An object that a pod template names.
pub(super) struct Source {
    pub(super) kind: ConfigKind,
    pub(super) name: String,
    pub(super) optional: bool,
}

impl Source {
    pub(super) fn new(kind: ConfigKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            optional: false,
        }
    }

    /// Returns a Deployment with the name of the object and this pod spec, for which `part` is tracked.
    fn case(&self, form: &'static str, part: Part, spec: Value) -> Case {
        let workload = with_spec(Workload::podless(&self.name), spec);
        let mut case = Case::new(workload, NOTHING);
        case.counts[self.kind as usize] = part;
        case.form = form;
        case
    }

    fn image_pull(&self) -> Value {
        json!({"imagePullSecrets": [{"name": self.name}]})
    }

    pub(super) fn variables(&self) -> Value {
        let member = format!("{}KeyRef", self.kind.member());
        let from = json!({"name": self.name, "key": USED, "optional": self.optional});
        json!([{"name": "LEVEL", "valueFrom": {(member): from}}])
    }

    pub(super) fn all_variables(&self) -> Value {
        let member = format!("{}Ref", self.kind.member());
        json!([{(member): {"name": self.name, "optional": self.optional}}])
    }

    /// Returns the volume `config`, made from the object directly or projected.
    pub(super) fn volumes(&self, projected: bool, items: Value) -> Value {
        let name = match self.kind {
            ConfigKind::Secret if !projected => "secretName",
            _ => "name",
        };
        let source = json!({(name): self.name, "optional": self.optional, "items": items});
        let source = json!({(self.kind.member()): source});
        let mut volume = match projected {
            true => json!({"projected": {"sources": [source]}}),
            false => source,
        };
        volume["name"] = json!("config");
        json!([volume])
    }

    pub(super) fn env(&self) -> Value {
        json!({"containers": main(json!({"env": self.variables()}))})
    }

    pub(super) fn env_from(&self) -> Value {
        json!({"containers": main(json!({"envFrom": self.all_variables()}))})
    }

    pub(super) fn init_env(&self) -> Value {
        json!({"initContainers": init(json!({"env": self.variables()}))})
    }

    pub(super) fn init_env_from(&self) -> Value {
        json!({"initContainers": init(json!({"envFrom": self.all_variables()}))})
    }

    pub(super) fn sidecar_env(&self) -> Value {
        let fields = json!({"restartPolicy": "Always", "env": self.variables()});
        json!({"initContainers": init(fields)})
    }

    pub(super) fn sidecar_env_from(&self) -> Value {
        let fields = json!({"restartPolicy": "Always", "envFrom": self.all_variables()});
        json!({"initContainers": init(fields)})
    }

    pub(super) fn volume(&self) -> Value {
        mounted(self.volumes(false, json!(null)), json!({}))
    }

    pub(super) fn unmounted(&self) -> Value {
        json!({"volumes": self.volumes(false, json!(null))})
    }

    pub(super) fn items(&self) -> Value {
        mounted(self.volumes(false, item()), json!({}))
    }

    pub(super) fn projected(&self) -> Value {
        mounted(self.volumes(true, json!(null)), json!({}))
    }

    pub(super) fn projected_items(&self) -> Value {
        mounted(self.volumes(true, item()), json!({}))
    }

    pub(super) fn init_volume(&self) -> Value {
        let mounts = json!({"volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]});
        let volumes = self.volumes(false, json!(null));
        json!({"volumes": volumes, "initContainers": init(mounts)})
    }

    pub(super) fn sidecar_volume(&self) -> Value {
        let mut spec = self.init_volume();
        spec["initContainers"][0]["restartPolicy"] = json!("Always");
        spec
    }

    pub(super) fn sub_path(&self) -> Value {
        mounted(self.volumes(false, json!(null)), json!({"subPath": USED}))
    }

    pub(super) fn sub_path_of_items(&self) -> Value {
        mounted(self.volumes(true, item()), json!({"subPath": "below"}))
    }

    pub(super) fn sub_path_expr(&self) -> Value {
        let mount = json!({"subPathExpr": "$(LEVEL)"});
        mounted(self.volumes(false, json!(null)), mount)
    }

    /// Returns a volume of this driver, which needs the Secret.
    pub(super) fn driver(&self, driver: &str) -> Value {
        let secret = json!({"name": self.name});
        let (monitors, name) = (json!(["127.0.0.1:6789"]), &self.name);
        let volume = match driver {
            "csi" => json!({"driver": "csi.example.com", "nodePublishSecretRef": secret}),
            "azureFile" => json!({"secretName": name, "shareName": "share"}),
            "cephfs" => json!({"monitors": monitors, "secretRef": secret}),
            "flexVolume" => json!({"driver": "example.com/flex", "secretRef": secret}),
            "iscsi" => json!({
                "targetPortal": "127.0.0.1:3260", "iqn": "iqn.2026-11.com.example:app", "lun": 0,
                "chapAuthSession": true, "secretRef": secret,
            }),
            "rbd" => json!({"monitors": monitors, "image": "app", "secretRef": secret}),
            "scaleIO" => json!({
                "gateway": "https://127.0.0.1", "system": "app", "volumeName": "app",
                "secretRef": secret,
            }),
            _ => json!({"volumeName": "app", "secretRef": secret}),
        };
        // The kubelet asks no driver for a volume that nothing mounts.
        let mounts = json!({"volumeMounts": [{"name": "driven", "mountPath": "/driven"}]});
        json!({
            "volumes": [{"name": "driven", (driver): volume}],
            "initContainers": init(mounts),
        })
    }
}

/// Returns the container with these fields.
pub(super) fn main(fields: Value) -> Value {
    let mut containers = container();
    merge(&mut containers[0], &fields);
    containers
}

/// Returns an init container with these fields.
pub(super) fn init(fields: Value) -> Value {
    let mut containers = json!([{"name": "first", "image": "app:1"}]);
    merge(&mut containers[0], &fields);
    containers
}

/// Returns these volumes, and the container with a mount of `config` that has these fields.
pub(super) fn mounted(volumes: Value, fields: Value) -> Value {
    let mut mount = json!({"name": "config", "mountPath": "/etc/app"});
    merge(&mut mount, &fields);
    json!({"volumes": volumes, "containers": main(json!({"volumeMounts": [mount]}))})
}

pub(super) fn item() -> Value {
    json!([{"key": USED, "path": "below/level"}])
}

/// Every way in which a pod template can name an object of either kind, and the part that is then tracked.
pub(super) const FORMS: [(&str, Spec, Part); 16] = [
    ("env", Source::env, Part::Key),
    ("env-from", Source::env_from, Part::Whole),
    ("init-env", Source::init_env, Part::Key),
    ("init-env-from", Source::init_env_from, Part::Whole),
    ("sidecar-env", Source::sidecar_env, Part::Key),
    ("sidecar-env-from", Source::sidecar_env_from, Part::Whole),
    ("volume", Source::volume, Part::Whole),
    ("unmounted", Source::unmounted, Part::Whole),
    ("items", Source::items, Part::Key),
    ("projected", Source::projected, Part::Whole),
    ("projected-items", Source::projected_items, Part::Key),
    ("init-volume", Source::init_volume, Part::Whole),
    ("sidecar-volume", Source::sidecar_volume, Part::Whole),
    ("sub-path", Source::sub_path, Part::Key),
    ("sub-path-of-items", Source::sub_path_of_items, Part::Key),
    ("sub-path-expr", Source::sub_path_expr, Part::Whole),
];

/// Drivers of volumes that need a Secret.
pub(super) const DRIVERS: [&str; 8] = [
    "csi",
    "azureFile",
    "cephfs",
    "flexVolume",
    "iscsi",
    "rbd",
    "scaleIO",
    "storageos",
];
pub(super) const IMAGE_PULL: &str = "image-pull";
