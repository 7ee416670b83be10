//! Definitions of custom resources of other people's operators, reduced to the fields that tests write.

use serde_json::{Value, json};

/// Returns the CustomResourceDefinition of a resource: `rollouts` of Argo Rollouts, `kafkaconnects` of
/// Strimzi, `services` of Knative, `clusters` of CloudNativePG, `kustomizations` of Flux, `applications` of
/// Argo CD, `podmonitors`, `servicemonitors` and `prometheusrules` of the Prometheus Operator, `secretproviderclasspodstatuses` of
/// the Secrets Store CSI driver or `harbors` of harbor-operator. The paths of fields are those of the real
/// definitions. No controller acts on these resources here. `stores` are nobody's: they have lists of each kind, and
/// rules whose messages repeat values.
///
/// # Panics
/// For any other name.
pub fn crd(name: &str) -> Value {
    match name {
        "rollouts" => definition(
            ["argoproj.io", "v1alpha1", "rollouts", "rollout", "Rollout"],
            object(json!({
                "replicas": {"type": "integer"},
                "paused": {"type": "boolean"},
                "restartAt": {"type": "string", "format": "date-time"},
                "selector": any_object(),
                "strategy": any_object(),
                "workloadRef": any_object(),
                "template": template(),
            })),
        ),
        "kafkaconnects" => definition(
            [
                "kafka.strimzi.io",
                "v1beta2",
                "kafkaconnects",
                "kafkaconnect",
                "KafkaConnect",
            ],
            object(json!({
                "replicas": {"type": "integer"},
                "bootstrapServers": {"type": "string"},
                "config": any_object(),
                "externalConfiguration": any_object(),
                // Unlike in the other definitions, fields that are not named here are dropped.
                "template": object(json!({
                    "pod": object(json!({"metadata": metadata(), "volumes": any_list()})),
                    "connectContainer": object(json!({"env": any_list()})),
                })),
            })),
        ),
        "services" => definition(
            [
                "serving.knative.dev",
                "v1",
                "services",
                "service",
                "Service",
            ],
            object(json!({"template": template(), "traffic": any_list()})),
        ),
        "clusters" => definition(
            ["postgresql.cnpg.io", "v1", "clusters", "cluster", "Cluster"],
            object(json!({
                "instances": {"type": "integer"},
                "imageName": {"type": "string"},
                "storage": any_object(),
                "env": any_list(),
                "envFrom": any_list(),
                "projectedVolumeTemplate": any_object(),
            })),
        ),
        "kustomizations" => definition(
            [
                "kustomize.toolkit.fluxcd.io",
                "v1",
                "kustomizations",
                "kustomization",
                "Kustomization",
            ],
            any_object(),
        ),
        "podmonitors" => definition(
            [
                "monitoring.coreos.com",
                "v1",
                "podmonitors",
                "podmonitor",
                "PodMonitor",
            ],
            any_object(),
        ),
        "servicemonitors" => definition(
            [
                "monitoring.coreos.com",
                "v1",
                "servicemonitors",
                "servicemonitor",
                "ServiceMonitor",
            ],
            any_object(),
        ),
        "prometheusrules" => definition(
            [
                "monitoring.coreos.com",
                "v1",
                "prometheusrules",
                "prometheusrule",
                "PrometheusRule",
            ],
            any_object(),
        ),
        // Unlike the other definitions, this one has no subresource for the status.
        "applications" => {
            let mut definition = definition(
                [
                    "argoproj.io",
                    "v1alpha1",
                    "applications",
                    "application",
                    "Application",
                ],
                any_object(),
            );
            let version = &mut definition["spec"]["versions"][0];
            version["subresources"] = json!({});
            version["schema"]["openAPIV3Schema"]["properties"]["operation"] = any_object();
            definition
        }
        "harbors" => definition(
            ["goharbor.io", "v1beta1", "harbors", "harbor", "Harbor"],
            harbor(),
        ),
        "stores" => definition(["example.com", "v1", "stores", "store", "Store"], store()),
        // As in version 1.6 of the driver, but for descriptions and the deprecated version v1alpha1. It has no
        // subresource for the status either, and no spec.
        "secretproviderclasspodstatuses" => {
            let mut definition = definition(
                [
                    "secrets-store.csi.x-k8s.io",
                    "v1",
                    "secretproviderclasspodstatuses",
                    "secretproviderclasspodstatus",
                    "SecretProviderClassPodStatus",
                ],
                any_object(),
            );
            let text = || json!({"type": "string"});
            let mounted = object(json!({"id": text(), "version": text()}));
            let status = object(json!({
                "mounted": {"type": "boolean"},
                "objects": {"type": "array", "items": mounted},
                "podName": text(),
                "secretProviderClassName": text(),
                "targetPath": text(),
            }));
            let version = &mut definition["spec"]["versions"][0];
            version["subresources"] = json!({});
            version["schema"]["openAPIV3Schema"] = object(json!({"status": status}));
            definition
        }
        _ => panic!("{name}: there is no such definition"),
    }
}

fn definition([group, version, plural, singular, kind]: [&str; 5], spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "scope": "Namespaced",
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": object(json!({"spec": spec, "status": any_object()}))},
            }],
        },
    })
}

/// Returns the spec of Harbors of harbor-operator (v1beta1): names, types, patterns, defaults and required fields as it
/// ships them. Left out are all components (some are required there), all storage but S3 and file systems, the proxy,
/// network, tracing and images, and parts of the exposure, of Redis and of the tuning of S3.
fn harbor() -> Value {
    let text = json!({"type": "string"});
    let name = json!({"type": "string", "pattern": r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"});
    let switch = |default: bool| json!({"type": "boolean", "default": default});
    let port =
        json!({"type": "integer", "format": "int32", "minimum": 0, "exclusiveMinimum": true});
    let host = || {
        let host = json!({"host": {"type": "string", "minLength": 1}, "port": port.clone()});
        required(object(host), &["host"])
    };
    let s3 = object(json!({
        "accesskey": text,
        "secretkeyRef": name,
        "region": text,
        "regionendpoint": text,
        "bucket": text,
        "rootdirectory": text,
        "storageclass": {"type": "string", "default": "STANDARD"},
        "encrypt": switch(false),
        "skipverify": switch(false),
        "certificateRef": name,
        "secure": switch(true),
        "v4auth": switch(true),
        "chunksize": {"type": "integer", "format": "int64", "minimum": 5_242_880},
    }));
    let file_system = object(json!({"registryPersistentVolume": object(json!({
        "claimName": text,
        "maxthreads": {"type": "integer", "format": "int32", "minimum": 25, "default": 100},
        "prefix": text,
    }))}));
    let database = object(json!({
        "hosts": {"type": "array", "minItems": 1, "items": host()},
        "username": {"type": "string", "minLength": 1},
        "passwordRef": name,
        "sslMode": {"type": "string", "enum": ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]},
        "prefix": text,
    }));
    let ingress = required(object(json!({"host": text})), &["host"]);
    let spec = object(json!({
        "externalURL": {"type": "string", "pattern": "https?://.*"},
        "version": {"type": "string", "pattern": r"[0-9]+\.[0-9]+\.[0-9]+"},
        "harborAdminPasswordRef": name,
        "logLevel": {"type": "string", "default": "info", "enum": ["debug", "info", "warning", "error", "fatal"]},
        "updateStrategyType": {"type": "string", "default": "RollingUpdate"},
        "internalTLS": object(json!({"enabled": switch(false)})),
        "imageChartStorage": object(json!({
            "redirect": object(json!({"disable": switch(false)})),
            "filesystem": required(file_system, &["registryPersistentVolume"]),
            "s3": required(s3, &["bucket", "region"]),
        })),
        "database": required(database, &["hosts"]),
        "redis": host(),
        "expose": required(object(json!({"core": object(json!({"ingress": ingress}))})), &["core"]),
    }));
    let fields = [
        "database",
        "expose",
        "externalURL",
        "harborAdminPasswordRef",
        "imageChartStorage",
        "redis",
        "version",
    ];
    required(spec, &fields)
}

fn store() -> Value {
    let user = || {
        let users = json!({"name": {"type": "string"}, "role": {"type": "string"}, "password": {"type": "string"}});
        required(object(users), &["name"])
    };
    object(json!({
        // Nobody owns an element of this list alone.
        "users": {"type": "array", "items": user()},
        "accounts": {
            "type": "array",
            "items": user(),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "port": {"type": "integer"},
        "tls": {"type": "boolean"},
        "password": {"type": "string"},
        "code": {"type": "string", "pattern": "^[0-9]+$"},
        "token": {
            "type": "string",
            "maxLength": 1000,
            "x-kubernetes-validations": [{
                "rule": "!self.startsWith('bad')",
                "message": "the token is bad",
                "messageExpression": "'the token ' + self + ' is bad'",
            }],
        },
        "large": {"type": "string"},
        "items": any_list(),
    }))
}

/// Makes fields of an object required.
fn required(mut schema: Value, fields: &[&str]) -> Value {
    schema["required"] = json!(fields);
    schema
}

/// Returns a pod template whose pod may have any form.
fn template() -> Value {
    object(json!({"metadata": metadata(), "spec": any_object()}))
}

fn metadata() -> Value {
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    object(json!({"annotations": strings, "labels": strings}))
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn any_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn any_list() -> Value {
    json!({"type": "array", "items": any_object()})
}
