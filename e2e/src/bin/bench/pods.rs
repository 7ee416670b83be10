//! Measures what the policy for new pods adds to their creation.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clear,
    figures::{Figures, Spread},
    scene_with, without_controllers,
};

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let scene = scene_with("0s", json!({"pin": {"enabled": true}})).await?;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let policy = Policy::of(&scene, pods.clone()).await?;
    without_controllers(&scene).await?;
    let rounds = if quick { 1 } else { 5 };
    let mut without = Vec::new();
    let mut with = Vec::new();
    let mut pinned = Vec::new();
    for round in 0..rounds {
        policy.unbind().await?;
        for number in 0..EACH {
            let name = format!("without-{round}-{number}");
            without.push(creation(&pods, &name, None).await?);
        }
        policy.bind().await?;
        for number in 0..EACH {
            let name = format!("with-{round}-{number}");
            with.push(creation(&pods, &name, None).await?);
            let name = format!("pinned-{round}-{number}");
            pinned.push(creation(&pods, &name, Some(PINS)).await?);
        }
    }
    let [without, with, pinned] = [without, with, pinned].map(Spread::of);
    figures.compare(
        "creation of a pod without pins; floor: without the policy",
        without,
        with,
        "1.1 x floor",
    );
    figures.compare(
        "creation of a pod with 24 pinned names; floor: the same",
        without,
        pinned,
        "2 x floor",
    );
    clear(scene).await;
    Ok(())
}

/// The policy for new pods, which applies to them while it has a binding.
struct Policy {
    bindings: Api<DynamicObject>,
    binding: DynamicObject,
    pods: Api<Pod>,
}

impl Policy {
    /// Finds the policy of the chart, and waits until it pins pods.
    async fn of(scene: &Scene, pods: Api<Pod>) -> Result<Self> {
        let group = "admissionregistration.k8s.io";
        let kind = GroupVersionKind::gvk(group, "v1", "MutatingAdmissionPolicyBinding");
        let bindings = Api::all_with(scene.client.clone(), &ApiResource::from_gvk(&kind));
        let name = format!("{}-pins", scene.installation.namespace);
        let mut binding: DynamicObject = bindings.get(&name).await?;
        binding.metadata.resource_version = None;
        binding.metadata.uid = None;
        binding.metadata.managed_fields = None;
        let policy = Self {
            bindings,
            binding,
            pods,
        };
        policy.awaited(COPY).await?;
        Ok(policy)
    }

    async fn bind(&self) -> Result<()> {
        let params = PostParams::default();
        let created = self.bindings.create(&params, &self.binding).await;
        created.context("binding the policy")?;
        self.awaited(COPY).await
    }

    async fn unbind(&self) -> Result<()> {
        let name = self.binding.metadata.name.as_deref().unwrap_or_default();
        self.bindings.delete(name, &DeleteParams::default()).await?;
        self.awaited("app").await
    }

    /// Waits until a pinned pod would use this ConfigMap.
    async fn awaited(&self, expected: &str) -> Result<()> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let pod = pod("probe", Some(PINS))?;
        wait_for("the policy to come or go", PATIENCE, async || {
            let created = match self.pods.create(&dry_run, &pod).await {
                Ok(created) => serde_json::to_value(created)?,
                // A new namespace has no service account yet.
                Err(error) => return Ok(Attempt::NotYet(error.to_string())),
            };
            let name = &created["spec"]["volumes"][0]["configMap"]["name"];
            done_if(name == expected, name.to_string())
        })
        .await
    }
}

async fn creation(pods: &Api<Pod>, name: &str, pins: Option<&str>) -> Result<Duration> {
    let pod = pod(name, pins)?;
    let began = Instant::now();
    pods.create(&PostParams::default(), &pod).await?;
    Ok(began.elapsed())
}

/// Returns a pod that names ConfigMap `app` 24 times: in two volumes, and 22 times in three containers.
fn pod(name: &str, pins: Option<&str>) -> Result<Pod> {
    let variable = |number: usize| {
        let source = json!({"name": "app", "key": "key"});
        json!({"name": format!("V{number}"), "valueFrom": {"configMapKeyRef": source}})
    };
    let container = |name: &str, variables: usize| {
        json!({
            "name": name,
            "image": "app:1",
            "env": (0..variables).map(variable).collect::<Vec<Value>>(),
            "envFrom": [{"configMapRef": {"name": "app"}}],
        })
    };
    let pod = json!({
        "metadata": {"name": name, "annotations": pins.map(|pins| json!({ANNOTATION: pins}))},
        "spec": {
            "automountServiceAccountToken": false,
            "volumes": [
                {"name": "app", "configMap": {"name": "app"}},
                {"name": "all", "projected": {"sources": [{"configMap": {"name": "app"}}]}},
            ],
            "containers": [container("a", 7), container("b", 6), container("c", 6)],
        },
    });
    Ok(serde_json::from_value(pod)?)
}

/// Number of pods of each sort in a round.
const EACH: usize = 100;
const ANNOTATION: &str = "pod-reloader.cs.sap.com/pins";
const COPY: &str = "app-0123456789";
const PINS: &str = "app=app-0123456789";
