//! Definitions of custom resources of other people's operators, reduced to the fields that tests write.

use serde_json::{Value, json};

/// Returns the CustomResourceDefinition of a resource: `rollouts` of Argo Rollouts, `kafkaconnects` of
/// Strimzi, `services` of Knative, `clusters` of CloudNativePG, `kustomizations` of Flux or `applications` of
/// Argo CD. The paths of fields are those of the real
/// definitions. No controller acts on these resources here.
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
