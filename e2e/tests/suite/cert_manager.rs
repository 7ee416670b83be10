//! Tests of what the tests with certificates take for granted about cert-manager.

use std::process;

use anyhow::{Context, Result};
use pod_reloader_e2e::{Attempt, ControlPlane, PATIENCE, wait_for};
use serde_json::{Value, json};

#[tokio::test]
async fn a_certificate_of_a_ca_is_issued_and_its_ca_bundle_injected() -> Result<()> {
    let kubectl = ControlPlane::connect()?.kubectl();
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

    wait_for(
        "the CA of the Secret in the webhook configuration",
        PATIENCE,
        async || {
            let get = async |args: &[&str]| -> Result<Value> {
                let args = [&["get", "--output=json"], args].concat();
                Ok(serde_json::from_str(&kubectl.run(&args).await?)?)
            };
            let secret = get(&["secret", "leaf", &format!("--namespace={namespace}")]).await?;
            let configuration = get(&["mutatingwebhookconfiguration", &webhook]).await?;
            for key in ["tls.crt", "tls.key", "ca.crt"] {
                let value = secret["data"][key].as_str();
                value.with_context(|| format!("no {key} in {secret}"))?;
            }
            let injected = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
            Ok(if *injected == secret["data"]["ca.crt"] {
                Attempt::Done(())
            } else {
                Attempt::NotYet(format!("caBundle {injected}"))
            })
        },
    )
    .await?;
    kubectl
        .run(&["delete", "mutatingwebhookconfiguration", &webhook])
        .await?;
    Ok(())
}
