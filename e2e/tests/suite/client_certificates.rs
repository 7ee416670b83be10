//! An apiserver with a client certificate, and a webhook that lets in nobody else.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    ControlPlane, ControlPlaneOptions, Scene, THIS_NAMESPACE,
    caller::{Caller, create, request},
    load::under_load,
    workload::Workload,
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::profiles::{installed, restarts};

#[tokio::test]
async fn with_the_hardened_profile_an_apiserver_with_a_client_certificate_is_let_in_and_nobody_else()
-> Result<()> {
    let (ours, other) = (Authority::new()?, Authority::new()?);
    let directory = TempDir::new()?;
    let configuration = admission_configuration(directory.path(), &ours.issue()?)?;
    let control_plane = ControlPlane::start(ControlPlaneOptions {
        apiserver_args: vec![format!("--admission-control-config-file={configuration}")],
        ..ControlPlaneOptions::without_cert_manager()
    })
    .await?;
    let kubectl = control_plane.kubectl();
    let metadata = json!({"name": "client-ca", "namespace": "known-op"});
    for manifest in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "known-op"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"ca.crt": ours.pem}}),
    ] {
        let create = ["create", "--filename=-"];
        kubectl
            .run_with_input(&create, &manifest.to_string())
            .await?;
    }
    let apiserver = json!([{"ipBlock": {"cidr": "127.0.0.1/32"}}]);
    // The harness mounts Secrets only, and the apiserver is on this machine.
    let user = json!({
        "watch": {"namespaces": [THIS_NAMESPACE]},
        "webhook": {"clientCA": {"configMap": "", "secret": "client-ca"}},
        "networkPolicy": {"webhookFrom": apiserver, "egress": [{"to": apiserver}]},
    });
    let options = installed("hardened", &user)?;
    let scene = Scene::set(control_plane, "known", options).await?;
    let test = async {
        lets_in(&scene, &ours, &other).await?;
        restarts(&scene).await
    };
    let played = under_load(&scene, 2, test).await;
    let log = scene.operator.log()?;
    scene.operator.stop().await;
    scene.control_plane.stop().await;
    played.map(drop).map_err(|error| error.context(log))
}

/// Calls without a certificate, with one of another CA, and with the right one.
async fn lets_in(scene: &Scene, ours: &Authority, other: &Authority) -> Result<()> {
    let nobody = Caller::of(scene).await?;
    let with = |pair: Pair| nobody.with_certificate(&pair.chain, &pair.key);
    let (stranger, friend) = (with(other.issue()?)?, with(ours.issue()?)?);
    let workload = Workload::deployment("web").lists("load");
    let review = create(&scene.namespace, &workload).to_string();
    let review = request(Duration::from_secs(10), &review);
    for refused in [&nobody, &stranger] {
        let answered = refused.send(&review).await;
        ensure!(answered.is_err(), "{answered:?}");
    }
    let answered = friend.send(&review).await?;
    ensure!(answered.status == 200, "{answered:?}");
    Ok(())
}

/// Returns the configuration file that makes an apiserver show `pair` to every webhook.
fn admission_configuration(directory: &Path, pair: &Pair) -> Result<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let write = |name: &str, content: &Value| fs::write(file(name), content.to_string());
    fs::write(file("client.crt"), &pair.chain)?;
    fs::write(file("client.key"), &pair.key)?;
    let user = json!({"client-certificate": file("client.crt"), "client-key": file("client.key")});
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "*", "user": user}],
    });
    write("kubeconfig", &kubeconfig)?;
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{
            "name": "MutatingAdmissionWebhook",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": file("kubeconfig"),
            },
        }],
    });
    write("admission.json", &configuration)?;
    Ok(file("admission.json"))
}

/// A CA that issues certificates of clients.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

struct Pair {
    chain: String,
    key: String,
}

impl Authority {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self {
            pem: params.self_signed(&key)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    fn issue(&self) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Ok(Pair {
            chain: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}
