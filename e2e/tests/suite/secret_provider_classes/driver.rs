//! Plays the Secrets Store CSI driver: mounts a SecretProviderClass for pods, and rotates what is mounted. It writes
//! its statuses as version 1.6 of the driver does, which has no files here.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use pod_reloader_e2e::workload::Workload;
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

/// The driver, for one SecretProviderClass in the namespace of a scene.
pub(super) struct Driver<'a> {
    scene: &'a Scene,
    class: String,
}

impl<'a> Driver<'a> {
    pub(super) fn new(scene: &'a Scene, class: &str) -> Self {
        let class = class.to_owned();
        Self { scene, class }
    }

    /// Adds a volume with the class to a workload, mounted by its container.
    pub(super) fn mounted_by(&self, workload: Workload) -> Workload {
        let mount = json!([{"name": "main", "image": "app:1", "volumeMounts": [self.mount()]}]);
        self.volume(workload)
            .with(&["spec", "template", "spec", "containers"], mount)
    }

    /// Adds a volume with the class to a workload, mounted by an init container.
    pub(super) fn mounted_first_by(&self, workload: Workload) -> Workload {
        let mount = json!([{"name": "first", "image": "app:1", "volumeMounts": [self.mount()]}]);
        self.volume(workload)
            .with(&["spec", "template", "spec", "initContainers"], mount)
    }

    fn mount(&self) -> Value {
        json!({"name": "secrets", "mountPath": "/secrets"})
    }

    fn volume(&self, workload: Workload) -> Workload {
        let csi = json!({
            "driver": "secrets-store.csi.k8s.io",
            "readOnly": true,
            "volumeAttributes": {"secretProviderClass": self.class},
        });
        workload.with(
            &["spec", "template", "spec", "volumes"],
            json!([{"name": "secrets", "csi": csi}]),
        )
    }

    /// Waits until a workload has just these pods, all of its latest revision and ready, and mounts a version for
    /// those for which nothing is mounted. Returns their names.
    pub(super) async fn mounts(
        &self,
        workload: &Workload,
        version: &str,
        count: usize,
    ) -> Result<Vec<String>> {
        let scene = self.scene;
        let what = format!("{count} pods of {}", workload.reference());
        let pods = wait_for(&what, PATIENCE, async || {
            let pods = self.pods(workload).await?;
            for pod in pods.iter().filter(|pod| is_ready(pod)) {
                self.mount_for(pod, version).await?;
            }
            let mut revisions: Vec<_> = pods.iter().map(revision).collect();
            revisions.sort_unstable();
            revisions.dedup();
            let are_all_ready = pods.iter().all(is_ready) && revisions.len() <= 1;
            let state = scene.object(&workload.reference()).await?;
            let (is, seen) = (&state["metadata"], &state["status"]["observedGeneration"]);
            let is_seen = is["generation"] == *seen;
            Ok(match pods.len() == count && are_all_ready && is_seen {
                true => Attempt::Done(pods),
                false => Attempt::NotYet(format!("{} pods, {revisions:?}", pods.len())),
            })
        })
        .await?;
        let names = pods.into_iter().filter_map(|pod| pod.metadata.name);
        Ok(names.collect())
    }

    /// Creates the status of a pod, unless it is there. A pod takes over that of a predecessor with the same name.
    async fn mount_for(&self, pod: &Pod, version: &str) -> Result<()> {
        let namespace = &self.scene.namespace;
        let (name, uid) = (&pod.metadata.name, &pod.metadata.uid);
        let name = name.as_deref().context("a pod has a name")?;
        let uid = uid.as_deref().context("a pod has a UID")?;
        let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
        let directory = format!("/var/lib/kubelet/pods/{uid}/volumes");
        let status: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClassPodStatus",
            "metadata": {
                "name": self.status_of(name),
                "labels": {"internal.secrets-store.csi.k8s.io/node-name": node},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}],
            },
            "status": {
                "podName": name,
                "targetPath": format!("{directory}/kubernetes.io~csi/secrets/mount"),
                "mounted": true,
                "secretProviderClassName": self.class,
                "objects": [{"id": format!("secret/{namespace}"), "version": version}],
            },
        }))?;
        match self.statuses().create(&params(), &status).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(error)) if error.code == 409 => {
                let name = self.status_of(name);
                // It goes with a pod that is gone. Then the next attempt creates it.
                let Some(mut known) = self.statuses().get_opt(&name).await? else {
                    return Ok(());
                };
                if known.metadata.owner_references != status.metadata.owner_references {
                    known.metadata.labels = status.metadata.labels;
                    known.metadata.owner_references = status.metadata.owner_references;
                    known.data = status.data;
                    self.statuses().replace(&name, &params(), &known).await?;
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a pod another version than it has.
    pub(super) async fn rotate(&self, pod: &str, version: &str) -> Result<()> {
        let name = self.status_of(pod);
        let mut status = self.statuses().get(&name).await?;
        let generation = status.metadata.generation;
        status.data["status"]["objects"][0]["version"] = json!(version);
        let status = self.statuses().replace(&name, &params(), &status).await?;
        ensure!(status.metadata.generation > generation, "{status:?}");
        Ok(())
    }

    /// Changes the labels of a pod's status, and nothing else.
    pub(super) async fn label(&self, pod: &str) -> Result<()> {
        let name = self.status_of(pod);
        let mut status = self.statuses().get(&name).await?;
        let labels = status.metadata.labels.get_or_insert_default();
        labels.insert("new-label".to_owned(), "new-value".to_owned());
        self.statuses().replace(&name, &params(), &status).await?;
        Ok(())
    }

    async fn pods(&self, workload: &Workload) -> Result<Vec<Pod>> {
        let scene = self.scene;
        let api: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let of_workload = ListParams::default().labels(&format!("app={}", workload.name));
        let mut pods = api.list(&of_workload).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    fn statuses(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(
            "secrets-store.csi.x-k8s.io",
            "v1",
            "SecretProviderClassPodStatus",
        );
        let plural = "secretproviderclasspodstatuses";
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let scene = self.scene;
        Api::namespaced_with(scene.client.clone(), &scene.namespace, &resource)
    }

    fn status_of(&self, pod: &str) -> String {
        format!("{pod}-{}-{}", self.scene.namespace, self.class)
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some("secrets-store-csi".to_owned()),
        ..PostParams::default()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn revision(pod: &Pod) -> Option<String> {
    let labels = pod.metadata.labels.as_ref()?;
    let hash = labels.get("pod-template-hash");
    hash.or(labels.get("controller-revision-hash")).cloned()
}
