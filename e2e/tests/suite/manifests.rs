//! The plain manifests and the bases for kustomize: rendered from the chart, applied by kubectl, patched by kustomize.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::{Api, api::ListParams};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map, key_of};
use pod_reloader_e2e::{
    ControlPlane, ControlPlaneOptions, Installation, OLDEST_KUBERNETES, Operator, PATIENCE,
    Programs, chart, done_if, done_with, free_port, mentions, merge, wait_for,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::{golden, helm};
use crate::control_plane::is_of_the_oldest_version;

#[test]
fn the_manifests_are_what_the_chart_renders() -> Result<()> {
    let namespace = format!("{HEADER}{NAMESPACE}");
    let (operator, policy) = rendered()?;
    let operator_file = format!("{HEADER}{}", operator.join("---\n"));
    let policy_file = format!("{HEADER}{}", policy.join("---\n"));
    ensure!(
        operator.len() > 10 && policy.len() == 2,
        "the policy and its binding"
    );
    for (file, content) in [
        ("kustomize/without-policy/namespace.yaml", namespace),
        ("kustomize/without-policy/operator.yaml", operator_file),
        ("kustomize/policy.yaml", policy_file),
    ] {
        ensure!(!content.contains("helm"), "{file} names helm");
        ensure!(!content.contains("caBundle:"), "{file} wipes the caBundle");
        golden(&manifests().join(file), &content)?;
    }
    Ok(())
}

#[test]
fn kustomize_makes_the_objects_of_the_manifests() -> Result<()> {
    let plain = plain_manifests()?;
    for (folder, file) in [
        ("kustomize", "install.yaml"),
        ("kustomize/without-policy", "install-without-policy.yaml"),
    ] {
        // Both through kustomize, so that they are formatted alike.
        let copy = tempfile::tempdir()?;
        fs::copy(plain.path().join(file), copy.path().join(file))?;
        let kustomization = json!({"resources": [file]}).to_string();
        fs::write(copy.path().join("kustomization.yaml"), kustomization)?;
        let of_file = kustomize(copy.path())?;
        ensure!(of_file.matches("\nkind: ").count() > 10, "{of_file}");
        ensure!(kustomize(&manifests().join(folder))? == of_file, "{folder}");
    }
    Ok(())
}

#[test]
fn kustomize_moves_everything_to_another_namespace() -> Result<()> {
    let moved = overlay("tools", &json!({}))?;
    let (before, after) = (
        kustomize(&manifests().join("kustomize"))?,
        kustomize(moved.path())?,
    );
    // Compared without the indentation, which varies.
    let in_words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, after) = (in_words(&before), in_words(&after));
    for place in [
        "namespace: ",
        "values: - kube-system - ",
        "'system:serviceaccount:",
    ] {
        let [stays, moves] = ["pod-reloader", "tools"].map(|name| format!("{place}{name}"));
        ensure!(
            before.contains(&stays) && !before.contains(&moves),
            "{place}"
        );
        ensure!(
            after.matches(&moves).count() >= before.matches(&stays).count(),
            "{place}"
        );
        ensure!(!after.contains(&stays), "{place}: {after}");
    }
    let namespace = "kind: Namespace metadata: labels: ";
    let (_, namespace) = after.split_once(namespace).context("a namespace")?;
    let (namespace, _) = namespace.split_once("---").context("not alone")?;
    ensure!(namespace.ends_with("name: tools "), "{namespace}");
    Ok(())
}

/// Asserts that the manifests alone install a working operator: as they are, and as users change them.
pub(crate) async fn the_manifests_install_a_working_operator(
    control_plane: &ControlPlane,
) -> Result<()> {
    live(control_plane).await?;
    applied_on_the_servers_side(control_plane).await?;
    patched(control_plane).await
}

#[tokio::test]
async fn the_oldest_apiserver_accepts_the_manifests_without_the_policy() -> Result<()> {
    let control_plane = ControlPlane::start(ControlPlaneOptions {
        kubernetes: Some(OLDEST_KUBERNETES.to_owned()),
        ..ControlPlaneOptions::without_running_pods()
    })
    .await?;
    let kubectl = control_plane.kubectl();
    let outcome = async {
        is_of_the_oldest_version(&control_plane).await?;
        let plain = plain_manifests()?;
        let [all, without] = ["install.yaml", "install-without-policy.yaml"]
            .map(|file| format!("--filename={}", plain.path().join(file).display()));
        kubectl.run(&["apply", &without]).await?;
        let refused = kubectl.output(&["apply", &all], "").await?;
        mentions(&refused.stderr, "MutatingAdmissionPolicy")?;
        anyhow::Ok(())
    };
    let outcome = outcome.await;
    control_plane.stop().await;
    outcome
}

/// Applies the manifests, restarts a workload, applies again, and deletes.
async fn live(control_plane: &ControlPlane) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let plain = plain_manifests()?;
    let file = plain.path().join("install.yaml");
    let file = format!("--filename={}", file.display());
    kubectl.run(&["apply", &file]).await?;
    let directory = tempfile::tempdir()?;
    let (_, operator) = operator(control_plane, free_port()?, directory.path()).await?;

    let shop = ["create", "namespace", "shop"];
    kubectl.run(&shop).await?;
    let web = Workload::deployment("web").lists("app");
    write(control_plane, &[config_map("app", "1"), web.manifest()]).await?;
    let first = key(control_plane, |key| key.is_some()).await?;
    write(control_plane, &[config_map("app", "2")]).await?;
    let second = key(control_plane, |key| *key != first).await?;
    let client = control_plane.admin_client().await?;
    let sets: Api<ReplicaSet> = Api::namespaced(client, "shop");
    wait_for("the pods to be replaced", PATIENCE, async || {
        let sets = sets.list_metadata(&ListParams::default()).await?;
        done_if(sets.items.len() > 1, "there is one ReplicaSet at most")
    })
    .await?;

    a_second_apply_changes_nothing(control_plane, &[&*file]).await?;
    operator.stop().await;

    // Deletes everything except the namespace, and so leaves the keys.
    let selector = "--selector=app.kubernetes.io/component=controller";
    kubectl.run(&["delete", &file, selector]).await?;
    let left = left(control_plane).await?;
    ensure!(left == ["namespace/pod-reloader"], "{left:?}");
    let keys = [
        "--namespace=pod-reloader",
        "get",
        "secret",
        "pod-reloader-hash-keys",
    ];
    kubectl.run(&keys).await.context("the keys must stay")?;
    kubectl
        .run(&["delete", &file, "--ignore-not-found"])
        .await?;
    let left = self::left(control_plane).await?;
    ensure!(left.is_empty(), "{left:?}");
    let kept = key(control_plane, |_| true).await?;
    ensure!(kept == second, "deleting it moved a workload");
    kubectl.run(&["delete", "namespace", "shop"]).await?;
    Ok(())
}

/// Applies the manifests on the side of the server, and again, and deletes them.
async fn applied_on_the_servers_side(control_plane: &ControlPlane) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let plain = plain_manifests()?;
    let file = plain.path().join("install.yaml");
    let file = format!("--filename={}", file.display());
    let server_side = ["--server-side", &file];
    kubectl
        .run(&[&["apply"], &server_side[..]].concat())
        .await?;
    let directory = tempfile::tempdir()?;
    let (_, operator) = operator(control_plane, free_port()?, directory.path()).await?;
    a_second_apply_changes_nothing(control_plane, &server_side).await?;
    operator.stop().await;
    kubectl.run(&["delete", &file]).await.map(drop)
}

/// Asserts that a second `kubectl apply` with these arguments, the last of which names the file, changes nothing, once the
/// operator has written its CA.
async fn a_second_apply_changes_nothing(control_plane: &ControlPlane, args: &[&str]) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let file = args.last().context("a file")?;
    let before = wait_for("the CA of the operator", PATIENCE, async || {
        let versions = versions(control_plane, file).await?;
        let has_ca = versions.iter().any(|object| object.contains("caBundle"));
        done_with(has_ca, format!("{versions:#?}"), versions)
    })
    .await?;
    // The output of `kubectl apply` is no measure: it reports the lists of a pod template as changed.
    kubectl
        .run(&[&["diff"], args].concat())
        .await
        .context("it would change something")?;
    kubectl.run(&[&["apply"], args].concat()).await?;
    let after = versions(control_plane, file).await?;
    ensure!(after == before, "{before:#?}\n{after:#?}");
    Ok(())
}

/// Patches what users patch: the image, an argument, the Service.
async fn patched(control_plane: &ControlPlane) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let directory = tempfile::tempdir()?;
    let port = free_port()?;
    let json_patch = |kind: &str, patch: Value| json!({"target": {"kind": kind, "name": "pod-reloader"}, "patch": patch.to_string()});
    let overlay = overlay(
        "pod-reloader",
        &json!({
            "images": [{
                "name": IMAGE,
                "newName": "registry.example.com/reloader",
            }],
            "patches": [
                json_patch("Deployment", json!([{
                    "op": "add", "path": "/spec/template/spec/containers/0/args/-",
                    "value": "--settle-period=200ms",
                }])),
                json_patch("Service", json!([{
                    "op": "replace", "path": "/spec", "value": {
                        "type": "ExternalName", "externalName": "localhost",
                        "ports": [{"name": "webhook", "port": port}],
                    },
                }])),
                json_patch("MutatingWebhookConfiguration", json!([{
                    "op": "replace", "path": "/webhooks/0/clientConfig/service/port",
                    "value": port,
                }])),
            ],
        }),
    )?;
    let folder = format!("--kustomize={}", overlay.path().display());
    kubectl.run(&["apply", &folder]).await?;
    let image = "--output=jsonpath={.spec.template.spec.containers[0].image}";
    let deployment = [
        "--namespace=pod-reloader",
        "get",
        "deployment",
        "pod-reloader",
    ];
    let image = kubectl.run(&[&deployment[..], &[image]].concat()).await?;
    ensure!(
        image.starts_with("registry.example.com/reloader:"),
        "{image}"
    );
    let (installation, operator) = operator(control_plane, port, directory.path()).await?;
    ensure!(
        installation
            .args()
            .contains(&"--settle-period=200ms".to_owned()),
        "{:?}",
        installation.args()
    );

    kubectl.run(&["create", "namespace", "shop"]).await?;
    let web = Workload::deployment("web")
        .lists("app")
        .manifest()
        .to_string();
    let create = [
        "--namespace=shop",
        "create",
        "--dry-run=server",
        "--output=json",
        "--filename=-",
    ];
    wait_for("the webhook to be called", PATIENCE, async || {
        let object = kubectl.run_with_input(&create, &web).await?;
        done_if(object.contains(CONFIG_HASH), object)
    })
    .await?;

    // In another namespace: the apiserver accepts what kustomize has made.
    kubectl.run(&["create", "namespace", "tools"]).await?;
    let moved = self::overlay("tools", &json!({}))?;
    let moved = format!("--kustomize={}", moved.path().display());
    kubectl.run(&["apply", "--dry-run=server", &moved]).await?;
    operator.stop().await;
    // The namespace may take the others along first.
    let delete = ["delete", &folder, "--ignore-not-found"];
    kubectl.run(&delete).await.map(drop)
}

/// Starts the operator of the manifests, with its webhook on `port`, and waits until it is ready.
async fn operator(
    control_plane: &ControlPlane,
    port: u16,
    directory: &Path,
) -> Result<(Installation, Operator)> {
    let name = "pod-reloader";
    let installation = Installation::join(control_plane, name, name, port, directory).await?;
    let token = control_plane
        .service_account_token(name, installation.service_account())
        .await?;
    let kubeconfig = control_plane.kubeconfig_for(token);
    let operator = Operator::start(&installation, &kubeconfig, directory, &[])?;
    operator.ready().await?;
    Ok((installation, operator))
}

async fn write(control_plane: &ControlPlane, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let apply = ["--namespace=shop", "apply", "--filename=-"];
    let kubectl = control_plane.kubectl();
    kubectl.run_with_input(&apply, &list).await.map(|_| ())
}

/// Returns the config hash of `web`, as soon as it is as expected.
async fn key(
    control_plane: &ControlPlane,
    is_expected: impl Fn(&Option<String>) -> bool,
) -> Result<Option<String>> {
    let client = control_plane.admin_client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client, "shop");
    wait_for("the config hash", PATIENCE, async || {
        let web = serde_json::to_value(deployments.get("web").await?)?;
        let key = key_of(&web);
        done_with(is_expected(&key), format!("{key:?}"), key)
    })
    .await
}

/// Returns, for each object of `file`, a version that changes whenever the object is written.
async fn versions(control_plane: &ControlPlane, file: &str) -> Result<Vec<String>> {
    let get = ["get", file, "--output=json"];
    let list: Value = serde_json::from_str(&control_plane.kubectl().run(&get).await?)?;
    let objects = list["items"].as_array().context("a list")?;
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        // Controllers write the status, so the generation is used if there is one.
        let version = match &metadata["generation"] {
            Value::Null => &metadata["resourceVersion"],
            generation => generation,
        };
        let ca_bundle = &object["webhooks"][0]["clientConfig"]["caBundle"];
        let trust = ca_bundle.as_str().map(|ca| format!(" caBundle {ca}"));
        let name = format!("{} {}", object["kind"], metadata["name"]);
        format!(
            "{name} {} {version}{}",
            metadata["uid"],
            trust.unwrap_or_default()
        )
    };
    Ok(objects.iter().map(version).collect())
}

/// Returns everything that is left of the manifests in the cluster.
async fn left(control_plane: &ControlPlane) -> Result<Vec<String>> {
    let kinds = [
        "namespaces",
        "clusterroles",
        "clusterrolebindings",
        "mutatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "flowschemas",
        "prioritylevelconfigurations",
        "roles",
        "rolebindings",
        "serviceaccounts",
        "services",
        "deployments",
        "poddisruptionbudgets",
    ];
    let get = [
        "get",
        &kinds.join(","),
        "--all-namespaces",
        "--selector=app.kubernetes.io/name=pod-reloader",
        "--output=name",
    ];
    let left = control_plane.kubectl().run(&get).await?;
    Ok(left.lines().map(str::to_owned).collect())
}

/// Creates a folder with a user's kustomization, for an operator in `namespace`, with the additions of
/// `more`.
fn overlay(namespace: &str, more: &Value) -> Result<TempDir> {
    let overlay = tempfile::tempdir()?;
    let base = overlay.path().join("base");
    for file in [
        "kustomization.yaml",
        "policy.yaml",
        "without-policy/kustomization.yaml",
        "without-policy/namespace.yaml",
        "without-policy/operator.yaml",
        "namespace/kustomization.yaml",
    ] {
        let copy = base.join(file);
        fs::create_dir_all(copy.parent().context("a file is in a folder")?)?;
        fs::copy(manifests().join("kustomize").join(file), copy)?;
    }
    let within = overlay.path().join("in-namespace");
    fs::create_dir(&within)?;
    let inner = json!({"namespace": namespace, "resources": ["../base"]});
    fs::write(within.join("kustomization.yaml"), inner.to_string())?;
    let mut outer = json!({"resources": ["in-namespace"], "components": ["base/namespace"]});
    merge(&mut outer, more);
    fs::write(overlay.path().join("kustomization.yaml"), outer.to_string())?;
    Ok(overlay)
}

/// Returns the documents of the chart, in the form for kubectl: those of the operator, and those of the
/// policy.
fn rendered() -> Result<(Vec<String>, Vec<String>)> {
    let chart = helm(&[
        "template",
        "pod-reloader",
        "--namespace=pod-reloader",
        "--skip-tests",
        &format!("--set=image.repository={IMAGE}"),
        "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
        ".",
    ])?;
    let of_helm = [
        "# Source: ",
        "helm.sh/chart: ",
        "app.kubernetes.io/managed-by: ",
    ];
    let is_of_helm = |line: &str| of_helm.iter().any(|of| line.trim_start().starts_with(of));
    let documents = chart.split("---\n").map(|document| {
        let lines = document.lines().filter(|line| !is_of_helm(line));
        let lines: Vec<_> = lines.collect();
        lines.join("\n").trim().to_owned() + "\n"
    });
    let documents = documents.filter(|document| document.contains("kind: "));
    let is_policy = |document: &String| document.contains("\nkind: MutatingAdmissionPolicy");
    Ok(documents.partition(|document| !is_policy(document)))
}

/// Returns the folder of the bases for kustomize.
fn manifests() -> PathBuf {
    chart().with_file_name("manifests")
}

/// Returns a folder with the manifests of a release, except for the name of the image.
fn plain_manifests() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(chart().join("../../scripts/release"))
        .arg("manifests")
        .arg(folder.path())
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(folder)
}

/// Placeholder that is not a valid image name, so that nothing can be pulled by it.
const IMAGE: &str = "SET-IMAGE-REPOSITORY";

const HEADER: &str = "# Rendered from the chart by `make manifests`: change that, not this.\n";

const NAMESPACE: &str = "\
apiVersion: v1
kind: Namespace
metadata:
  name: pod-reloader
  labels:
    app.kubernetes.io/name: pod-reloader
    app.kubernetes.io/instance: \"pod-reloader\"
";

fn kustomize(folder: &Path) -> Result<String> {
    let output = Command::new(Programs::find()?.program("kubectl"))
        .arg("kustomize")
        .arg(folder)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}
