//! Somebody reverts the config hash within the write itself: the operator does not spin, and wins in the end.

use std::time::Duration;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{
    Mark, Options, PATIENCE, Scene, done_if, full, lacks_mutating_policies, wait_for,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The policy acts like a webhook that does nothing but record on each update when it saw it.
#[tokio::test]
async fn a_policy_that_replaces_template_annotations_causes_few_patches_and_no_storm() -> Result<()>
{
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    // The fence would take the policy's changes for those of the operator.
    let options = Options::with_values(json!({"fence": {"enabled": false}}));
    Scene::play(options, async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.quiet().await?;
        let policy = hostile_policy(scene);
        scene.apply(&policy).await?;
        in_force(scene, &web).await?;
        let (mark, began) = (scene.mark().await?, Instant::now());
        scene.apply(&[config_map("app", "2")]).await?;
        let note = scene.event(&web, "PatchRefused").await?;
        ensure!(note.contains("reverts it"), "{note}");
        scene.shows("pod_reloader_refused_workloads", "1").await?;
        if full() {
            // The claim is about ten minutes.
            sleep(Duration::from_secs(600).saturating_sub(began.elapsed())).await;
        }
        let patches = patches(scene, mark).await?;
        let most = if full() { 20 } else { 8 };
        println!("{patches} patches in {:?}", began.elapsed());
        ensure!(patches <= most, "{patches} patches");
        let revisions = scene.snapshot(&web).await?.new_revisions(&before);
        ensure!(revisions <= most + 1, "{revisions} revisions");

        for object in &policy {
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            scene.tool().run(&["delete", kind, name]).await?;
        }
        let gone = Instant::now();
        wait_for("the hash to be set", PATIENCE, async || {
            let (key, expected) = (scene.key(&web).await?, scene.expected_key(&web).await?);
            done_if(key == Some(expected), "it is not")
        })
        .await?;
        println!("set {:?} after the policy was deleted", gone.elapsed());
        scene.shows("pod_reloader_refused_workloads", "0").await
    })
    .await
}

/// Waits until an update of `web` loses its hash.
async fn in_force(scene: &Scene, web: &Workload) -> Result<()> {
    let reference = web.reference();
    let patch = r#"--patch={"metadata": {"labels": {"a": "b"}}}"#;
    // Other commands than patch may print what they have sent, not what came back.
    let label = ["patch", &*reference, "--type=merge", patch];
    let label = [&label[..], &["--dry-run=server", "--output=json"]].concat();
    wait_for("the policy to be in force", PATIENCE, async || {
        let object = scene.kubectl(&label).await?;
        done_if(object.contains(NOTE), "it is not")
    })
    .await
}

/// Returns how often the operator has patched a Deployment since `mark`.
async fn patches(scene: &Scene, mark: Mark) -> Result<usize> {
    let requests = scene.requests(mark).await?;
    let patches = requests
        .iter()
        .filter(|it| it.verb == "patch" && it.resource == "deployments" && it.name == "web");
    Ok(patches.count())
}

/// Returns a policy that replaces all annotations of the pod template by one that differs each time.
fn hostile_policy(scene: &Scene) -> [Value; 2] {
    let name = format!("{}-hostile", scene.namespace);
    let of = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}});
    let rule = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"],
        "operations": ["UPDATE"], "resources": ["deployments"],
    });
    let expression = format!(
        r#"[JSONPatch{{op: "add", path: "/spec/template/metadata/annotations",
            value: {{"{NOTE}": string(oldObject.metadata.generation)}}}}]"#
    );
    let policy = json!({
        "reinvocationPolicy": "Never",
        "matchConstraints": {"namespaceSelector": namespace, "resourceRules": [rule]},
        "matchConditions": [{"name": "web", "expression": "object.metadata.name == 'web'"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    });
    [
        of("MutatingAdmissionPolicy", policy),
        of(
            "MutatingAdmissionPolicyBinding",
            json!({"policyName": name}),
        ),
    ]
}

const NOTE: &str = "example.com/admitted-at";
