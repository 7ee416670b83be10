//! Tests of what the tests with certificates take for granted about cert-manager.

use std::process;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use pod_reloader_e2e::{ControlPlane, PATIENCE, done_if, wait_for};
use serde_json::json;

#[tokio::test]
async fn a_certificate_of_a_ca_is_issued_and_its_ca_bundle_injected() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    let kubectl = control_plane.kubectl();
    let namespace = format!("certificates-{}", process::id());
    let webhook = format!("certificates-{}", process::id());
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": { "name": "self-signed", "namespace": namespace },
            "spec": { "selfSigned": {} },
        }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": { "name": "ca", "namespace": namespace },
            "spec": {
                "isCA": true, "commonName": "ca", "secretName": "ca",
                "issuerRef": { "name": "self-signed" },
            },
        }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": { "name": "ca", "namespace": namespace },
            "spec": { "ca": { "secretName": "ca" } },
        }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": { "name": "leaf", "namespace": namespace },
            "spec": {
                "dnsNames": [format!("x.{namespace}.svc")], "secretName": "leaf",
                "issuerRef": { "name": "ca" },
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": webhook,
                "annotations": { "cert-manager.io/inject-ca-from": format!("{namespace}/leaf") },
            },
            "webhooks": [{
                "name": "certificates.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": { "service": { "name": "x", "namespace": namespace } },
            }],
        }),
    ];
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });

    kubectl
        .run_with_input(&["apply", "--filename=-"], &list.to_string())
        .await?;
    kubectl
        .run(&[
            "wait",
            "certificate",
            "leaf",
            &format!("--namespace={namespace}"),
            "--for=condition=Ready",
            "--timeout=30s",
        ])
        .await?;

    let client = control_plane.admin_client().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client);
    wait_for(
        "the CA of the Secret in the webhook configuration",
        PATIENCE,
        async || {
            let secret = serde_json::to_value(secrets.get("leaf").await?)?;
            let configuration = serde_json::to_value(configurations.get(&webhook).await?)?;
            for key in ["tls.crt", "tls.key", "ca.crt"] {
                let value = secret["data"][key].as_str();
                value.with_context(|| format!("no {key} in {secret}"))?;
            }
            let injected = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
            done_if(
                *injected == secret["data"]["ca.crt"],
                format!("caBundle {injected}"),
            )
        },
    )
    .await?;
    kubectl
        .run(&["delete", "mutatingwebhookconfiguration", &webhook])
        .await?;
    Ok(())
}
