//! The policy for workloads keeps pins beside the hash while the webhook is down, and leaves an undo alone.

use anyhow::{Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use pod_reloader_e2e::workload::{CONFIG_HASH, CONFIG_MAPS, Workload};
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_if, lacks_mutating_policies, wait_for};
use serde_json::{Value, json};

use super::{PINS, pinning};

#[tokio::test]
async fn the_policy_keeps_pins_as_it_keeps_the_hash_and_leaves_an_undo_alone() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    let options = Options {
        running: false,
        ..pinning(&json!({"customResources": ["cronjobs"], "fence": {"enabled": true}}))
    };
    Scene::play(options, async |scene| {
        let stored = json!({CONFIG_HASH: "h1", PINS: "app=app-1111111111"});
        let unpinned = json!({CONFIG_HASH: "h1"});
        let undo = json!({CONFIG_HASH: "h2", PINS: "app=app-2222222222"});
        for (name, annotations) in [("pinned", &stored), ("unpinned", &unpinned)] {
            scene
                .apply(&[deployment(name, annotations), cron_job(name, annotations)])
                .await?;
        }
        for kind in [DEPLOYMENT, CRON_JOB] {
            wait_for("the policy to keep pins", PATIENCE, async || {
                let kept = kind.patched(scene, "pinned", &json!({PINS: null})).await?;
                done_if(kept == stored, kept.to_string())
            })
            .await?;
            for write in [
                json!({PINS: ""}),
                json!({CONFIG_HASH: null}),
                json!({CONFIG_HASH: null, PINS: null}),
                json!({CONFIG_HASH: "evil"}),
                json!({CONFIG_HASH: "evil", PINS: ""}),
                json!(null),
            ] {
                let kept = kind.patched(scene, "pinned", &write).await?;
                ensure!(kept == stored, "{kind:?}, {write}: {kept}");
            }
            let kept = json!({CONFIG_HASH: "evil"});
            let kept = kind.patched(scene, "unpinned", &kept).await?;
            ensure!(kept == unpinned, "{kind:?}: {kept}");
            for name in ["pinned", "unpinned"] {
                let undone = kind.patched(scene, name, &undo).await?;
                ensure!(undone == undo, "{kind:?}, {name}: {undone}");
            }
        }
        Ok(())
    })
    .await
}

/// A kind of workload, and the path to the metadata of its pod template.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: &'static str,
    kind: &'static str,
    metadata: &'static [&'static str],
}

const DEPLOYMENT: Place = Place {
    group: "apps",
    kind: "Deployment",
    metadata: &["spec", "template", "metadata"],
};
const CRON_JOB: Place = Place {
    group: "batch",
    kind: "CronJob",
    metadata: &["spec", "jobTemplate", "spec", "template", "metadata"],
};

impl Place {
    /// Returns hash and pins as a write of these annotations would leave them.
    async fn patched(self, scene: &Scene, name: &str, annotations: &Value) -> Result<Value> {
        let kind = GroupVersionKind::gvk(self.group, "v1", self.kind);
        let api: Api<DynamicObject> = Api::namespaced_with(
            scene.client.clone(),
            &scene.namespace,
            &ApiResource::from_gvk(&kind),
        );
        let path = self.metadata.iter().rev();
        let patch = path.fold(
            json!({"annotations": annotations}),
            |inner, field| json!({*field: inner}),
        );
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patched = api.patch(name, &dry_run, &Patch::Merge(&patch)).await?;
        let path = self.metadata.iter();
        let metadata = path.fold(&patched.data, |outer, field| &outer[*field]);
        Ok(metadata["annotations"].clone())
    }
}

fn deployment(name: &str, annotations: &Value) -> Value {
    Workload::deployment(name)
        .lists("app")
        .with(
            &["spec", "template", "metadata", "annotations"],
            annotations.clone(),
        )
        .with(&["spec", "replicas"], json!(0))
        .manifest()
}

fn cron_job(name: &str, annotations: &Value) -> Value {
    let pod = json!({
        "containers": [{"name": "main", "image": "app"}],
        "restartPolicy": "Never",
    });
    let template = json!({"metadata": {"annotations": annotations}, "spec": pod});
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "annotations": {CONFIG_MAPS: "app"}},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}},
    })
}
