//! Measures SAP's pod-reloader, in turns with the floor, as the part `changes` measures the operator. It has the rights of
//! an administrator, and its webhook is called for its own Deployments alone.

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::{
    ByteString, api::admissionregistration::v1::MutatingWebhookConfiguration,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use pod_reloader_e2e::{Process, Program, Scene, free_port};
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use crate::{
    changes::{Bench, Measured},
    clear,
    figures::{Figures, Spread},
    scene,
    subject::{Running, SAP, Subject},
};

/// The environment variable that names the program.
const PROGRAM: &str = "SAP_POD_RELOADER";

/// Returns the program, if there is one.
pub(crate) fn program() -> Option<PathBuf> {
    env::var_os(PROGRAM).map(PathBuf::from)
}

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let program = program().with_context(|| format!("{PROGRAM} does not name a program"))?;
    let scene = scene("0s").await?;
    let bench = Bench::begin(&scene).await?;
    scene.operator.stop().await;
    let program = install(&scene, program).await?;
    let subjects = [Subject::Floor, Subject::Sap];
    let (rounds, changes, crowd) = if quick { (1, 50, 200) } else { (3, 100, 500) };
    bench.create(subjects, "one", 1).await?;
    bench.create(subjects, "crowd", crowd).await?;

    let mut gets = Vec::new();
    let mut measured = [Measured::default(), Measured::default()];
    for _ in 0..rounds {
        gets.extend(bench.gets(changes).await?);
        for (measured, subject) in measured.iter_mut().zip(subjects) {
            let running = match subject {
                Subject::Sap => Running::Other(Process::start(program.clone())?),
                _ => Running::floor(&scene, false).await?,
            };
            let process = running.process();
            let round = bench.round(subject, process, (changes, crowd), measured);
            round.await?;
            running.stop().await;
        }
    }
    let (get, who) = (Spread::of(gets).median, "SAP's pod-reloader: ");
    Measured::compare(measured, get, crowd, who, figures);
    clear(scene).await;
    Ok(())
}

/// Puts the configuration of its webhook in the place of ours, and returns how to run it.
async fn install(scene: &Scene, executable: PathBuf) -> Result<Program> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
    let folder = scene.directory().join(SAP);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("tls.crt"), certificate.pem())?;
    fs::write(folder.join("tls.key"), key.serialize_pem())?;
    let port = free_port()?;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(scene.client.clone());
    configurations
        .delete(&scene.installation.namespace, &DeleteParams::default())
        .await?;
    let webhook = json!({
        "name": "mutate.pod-reloader.cs.sap.com",
        "clientConfig": {
            "url": format!("https://localhost:{port}/mutate"),
            "caBundle": ByteString(certificate.pem().into_bytes()),
        },
        "rules": [{
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "resources": ["deployments", "statefulsets", "daemonsets"],
            "operations": ["CREATE", "UPDATE"],
        }],
        "objectSelector": {"matchLabels": {SAP: "true"}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let configuration = MutatingWebhookConfiguration {
        metadata: ObjectMeta {
            name: Some(SAP.to_owned()),
            ..ObjectMeta::default()
        },
        webhooks: Some(vec![serde_json::from_value(webhook)?]),
    };
    configurations
        .create(&PostParams::default(), &configuration)
        .await?;
    // Time for the apiserver to see the configurations.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let kubeconfig = scene.control_plane.kubeconfig_path();
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--webhook-bind-address=localhost:{port}"),
        format!("--webhook-tls-directory={}", folder.display()),
        "--metrics-bind-address=0".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
    ];
    Ok(Program {
        name: SAP.to_owned(),
        executable,
        args: args.map(Into::into).to_vec(),
        env: Vec::new(),
        log: folder.join("log"),
    })
}
