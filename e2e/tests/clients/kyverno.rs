//! Policies of Kyverno that copy a Secret, restart what uses it, and refuse deletions: beside ours, and moved to ours.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    Attempt, RealScene,
    kyverno::Kyverno,
    real_scene::LONG,
    wait_for,
    workload::{Workload, secret},
};
use serde_json::{Value, json};

use crate::claims::{VARIABLE, every_feature, is_idle};

#[tokio::test]
async fn policies_work_beside_ours_and_move_to_ours_without_a_restart() -> Result<()> {
    RealScene::play("kyverno", every_feature()?, async |scene| {
        let kyverno = Kyverno::start(scene).await?;
        let played = async {
            let policies = Policies::of(scene).await?;
            policies.work_beside_ours(&kyverno).await?;
            policies.move_to_ours().await
        };
        let outcome = played.await;
        kyverno.stop().await;
        outcome
    })
    .await
}

/// The policies of one test. The Secret `base` of another namespace has a copy in the namespace of the scene. The
/// Deployment `web` uses the copy, and the ConfigMap `guarded`.
struct Policies<'a> {
    scene: &'a RealScene,
    /// Namespace of the source.
    source: String,
    web: Workload,
}

impl<'a> Policies<'a> {
    async fn of(scene: &'a RealScene) -> Result<Self> {
        let source = format!("{}-source", scene.namespace);
        scene.kubectl(&["create", "namespace", &source]).await?;
        let container = json!({"envFrom": [
            {"prefix": "ALL_", "secretRef": {"name": "base"}},
            {"prefix": "GUARDED_", "configMapRef": {"name": "guarded"}},
        ]});
        let web = scene.answering("web", 2, &container, &json!({}));
        scene.set("guarded", "1").await?;
        let policies = Self { scene, source, web };
        policies.change("1").await?;
        Ok(policies)
    }

    /// A change of the source is one rollout, which Kyverno and we write together.
    async fn work_beside_ours(&self, kyverno: &Kyverno) -> Result<()> {
        let Self { scene, web, .. } = self;
        for rule in [self.clones(), self.restarts(), self.guards()] {
            kyverno.enforce(&rule).await?;
        }
        wait_for("the copy", LONG, async || {
            Ok(Attempt::from(self.uid_of_copy().await))
        })
        .await?;
        scene.create(web).await?;
        let before = scene.revisions("web").await?;

        self.change("2").await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", VARIABLE, "2").await?;
        is_idle(scene, "other").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts for one change");
        let path = "--output=jsonpath={.spec.template.metadata.annotations}";
        let annotations = scene.kubectl(&["get", "deployment", "web", path]).await?;
        ensure!(annotations.contains(RESTARTED), "{annotations}");
        self.cannot_delete(GUARDS).await
    }

    /// Moves them as `docs/migration/kyverno.md` says: the copy is the same object, and no pod is restarted.
    async fn move_to_ours(&self) -> Result<()> {
        let Self { scene, source, .. } = self;
        let before = scene.revisions("web").await?;
        let uid = self.uid_of_copy().await?;
        let off = r#"--patch=[{"op": "replace", "path": "/spec/rules/0/generate/synchronize", "value": false}]"#;
        let switch = ["patch", "clusterpolicy", CLONES, "--type=json", off];
        scene.kubectl(&switch).await?;
        let delete = ["delete", "clusterpolicy", CLONES, RESTARTS, GUARDS];
        scene.kubectl(&delete).await?;
        let copy_of = format!(
            "pod-reloader.cs.sap.com/copy-of={source}/base@{}",
            scene.namespace
        );
        scene
            .kubectl(&["annotate", "secret", "base", &copy_of])
            .await?;
        let name = &scene.namespace;
        let sync = json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "metadata": {"name": name},
            "spec": {
                "source": {"kind": "Secret", "namespace": source, "name": "base"},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            },
        });
        self.apply_outside(&sync).await?;
        let ready = ["--for=condition=Ready", "--timeout=120s"];
        let wait = [&["wait", "clusterconfigsync", name], &ready[..]].concat();
        scene.kubectl(&wait).await?;
        let protect = "pod-reloader.cs.sap.com/protect=in-use";
        scene
            .kubectl(&["label", "configmap", "guarded", protect])
            .await?;

        is_idle(scene, "another").await?;
        let after = self.uid_of_copy().await?;
        ensure!(uid == after, "the copy {uid} became {after}");
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 0, "{rollouts} rollouts of a move");
        self.cannot_delete("guarded is in use by Pod").await?;

        self.change("3").await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", VARIABLE, "3").await?;
        scene
            .kubectl(&["delete", "clusterconfigsync", name])
            .await
            .map(drop)
    }

    async fn change(&self, content: &str) -> Result<()> {
        let mut base = secret("base", content);
        base["metadata"]["namespace"] = json!(self.source);
        self.apply_outside(&base).await
    }

    /// Applies an object that is not in the namespace of the scene.
    async fn apply_outside(&self, object: &Value) -> Result<()> {
        let kubectl = self.scene.control_plane.kubectl();
        let apply = ["apply", "--filename=-"];
        let applied = kubectl.run_with_input(&apply, &object.to_string()).await;
        applied.map(drop)
    }

    async fn uid_of_copy(&self) -> Result<String> {
        let uid = "--output=jsonpath={.metadata.uid}";
        self.scene.kubectl(&["get", "secret", "base", uid]).await
    }

    /// The ConfigMap cannot be deleted, for a reason with these words.
    async fn cannot_delete(&self, words: &str) -> Result<()> {
        let delete = ["delete", "configmap", "guarded"];
        let refused = self.scene.kubectl_output(&delete).await?;
        let is_refused = refused.code == Some(1) && refused.stderr.contains(words);
        ensure!(is_refused, "{refused:?}");
        Ok(())
    }

    /// Returns the policy that copies the Secret to the namespace of the scene.
    fn clones(&self) -> Value {
        policy(
            CLONES,
            &json!({
                "match": {"any": [{"resources": {
                    "kinds": ["Namespace"],
                    "names": [self.scene.namespace],
                }}]},
                "generate": {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": "base",
                    "namespace": "{{request.object.metadata.name}}",
                    "synchronize": true,
                    "generateExisting": true,
                    "clone": {"namespace": self.source, "name": "base"},
                },
            }),
        )
    }

    /// Returns the policy that restarts the Deployment when the copy changes.
    fn restarts(&self) -> Value {
        let namespace = &self.scene.namespace;
        let version = "{{request.object.metadata.resourceVersion}}";
        policy(
            RESTARTS,
            &json!({
                // The copy is written by Kyverno itself.
                "skipBackgroundRequests": false,
                "match": {"any": [{"resources": {
                    "kinds": ["Secret"],
                    "names": ["base"],
                    "namespaces": [namespace],
                    "operations": ["UPDATE"],
                }}]},
                "mutate": {
                    "targets": [{
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": "web",
                        "namespace": namespace,
                    }],
                    "patchStrategicMerge": {"spec": {"template": {"metadata": {
                        "annotations": {RESTARTED: version},
                    }}}},
                },
            }),
        )
    }

    /// Returns the policy that refuses to delete the ConfigMap.
    fn guards(&self) -> Value {
        policy(
            GUARDS,
            &json!({
                "match": {"any": [{"resources": {
                    "kinds": ["ConfigMap"],
                    "names": ["guarded"],
                    "namespaces": [self.scene.namespace],
                    "operations": ["DELETE"],
                }}]},
                "validate": {"failureAction": "Enforce", "message": "guarded", "deny": {}},
            }),
        )
    }
}

fn policy(name: &str, rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["name"] = json!(name);
    json!({
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"background": false, "rules": [rule]},
    })
}

const CLONES: &str = "clone-base";
const RESTARTS: &str = "restart-on-change";
const GUARDS: &str = "refuse-deletion";
/// Annotation by which the policy restarts pods.
const RESTARTED: &str = "ops.corp.com/triggerrestart";
