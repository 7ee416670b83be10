//! Definitions of custom resources of other people's operators. All but that of Harbors are reduced to the fields that
//! tests write.

use serde_json::{Value, json};

/// The definition of Harbors.
const HARBORS: &str = include_str!("crds/harbors.yaml");

/// Returns the CustomResourceDefinition of a resource: `rollouts` of Argo Rollouts, `kafkaconnects` of
/// Strimzi, `services` of Knative, `clusters` of CloudNativePG, `kustomizations` of Flux, `applications` of
/// Argo CD, `podmonitors`, `servicemonitors` and `prometheusrules` of the Prometheus Operator,
/// `secretproviderclasspodstatuses` of the Secrets Store CSI driver or `harbors` of harbor-operator. The paths of fields
/// are those of the real definitions. No controller acts on these resources here. `stores` are nobody's: they have lists
/// of each kind, and rules whose messages repeat values.
///
/// # Panics
/// For any other name.
pub fn crd(name: &str) -> Value {
    let of_prometheus =
        |kind| definition(name, ["monitoring.coreos.com", "v1", kind], any_object());
    match name {
        "rollouts" => definition(
            name,
            ["argoproj.io", "v1alpha1", "Rollout"],
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
            name,
            ["kafka.strimzi.io", "v1beta2", "KafkaConnect"],
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
            name,
            ["serving.knative.dev", "v1", "Service"],
            object(json!({"template": template(), "traffic": any_list()})),
        ),
        "clusters" => definition(
            name,
            ["postgresql.cnpg.io", "v1", "Cluster"],
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
            name,
            ["kustomize.toolkit.fluxcd.io", "v1", "Kustomization"],
            any_object(),
        ),
        "podmonitors" => of_prometheus("PodMonitor"),
        "servicemonitors" => of_prometheus("ServiceMonitor"),
        "prometheusrules" => of_prometheus("PrometheusRule"),
        // Unlike the other definitions, this one has no subresource for the status.
        "applications" => {
            let mut definition = definition(
                name,
                ["argoproj.io", "v1alpha1", "Application"],
                any_object(),
            );
            let version = &mut definition["spec"]["versions"][0];
            version["subresources"] = json!({});
            version["schema"]["openAPIV3Schema"]["properties"]["operation"] = any_object();
            definition
        }
        "harbors" => serde_saphyr::from_str(HARBORS).expect("it is YAML"),
        "stores" => definition(name, ["example.com", "v1", "Store"], store()),
        // As in version 1.6 of the driver, but for descriptions and the deprecated version v1alpha1. It has no
        // subresource for the status either, and no spec.
        "secretproviderclasspodstatuses" => {
            let mut definition = definition(
                name,
                [
                    "secrets-store.csi.x-k8s.io",
                    "v1",
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

fn definition(plural: &str, [group, version, kind]: [&str; 3], spec: Value) -> Value {
    let singular = kind.to_lowercase();
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
