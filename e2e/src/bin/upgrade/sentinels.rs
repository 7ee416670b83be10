//! Workloads whose restarts show that the operator has handled everything that happened before.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::ListParams};
use pod_reloader_e2e::features::LEFT_OUT;
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map, secret};
use pod_reloader_e2e::{Scene, done_if, wait_for};
use serde_json::{Value, json};

/// Two Deployments in each namespace: one that lists a ConfigMap, and one that lists a Secret.
///
/// Namespaces take turns in the operator's queue, so that one sentinel for all would not wait for the workloads of the
/// others.
pub(crate) struct Sentinels {
    namespaces: Vec<String>,
    /// Number of times that their config was changed.
    changes: Cell<usize>,
}

/// Namespace and name of a sentinel.
type Id = (String, String);

impl Sentinels {
    /// Creates them.
    pub(crate) async fn create(scene: &Scene, namespaces: &[String]) -> Result<Self> {
        let sentinels = Self {
            namespaces: namespaces.to_vec(),
            changes: Cell::new(0),
        };
        sentinels.change(scene).await?;
        let sentinel = |name| {
            let workload = Workload::deployment(name).labelled(LABEL, "true");
            workload.with(&["spec", "replicas"], json!(0))
        };
        let both = [
            sentinel(OF_CONFIG_MAP).lists(OBJECT),
            sentinel(OF_SECRET).lists_secrets(OBJECT),
        ];
        for namespace in namespaces {
            scene.create_all_in(namespace, &both).await?;
        }
        Ok(sentinels)
    }

    /// Waits until the operator, which was installed with `values`, has handled everything that happened before.
    pub(crate) async fn wait(&self, scene: &Scene, values: &Value) -> Result<()> {
        // The first time, they may have their turn before workloads that a new leader has not listed yet.
        for _ in 0..2 {
            let before = hashes(scene).await?;
            self.change(scene).await?;
            wait_for("the sentinels to be restarted", PATIENCE, async || {
                let after = hashes(scene).await?;
                let is_same = |id: &&Id| after.get(id) == before.get(id);
                let same: Vec<_> = before.keys().filter(is_same).collect();
                let same: Vec<_> = same.iter().filter(|id| is_restarted(values, id)).collect();
                done_if(same.is_empty(), format!("not yet {same:?}"))
            })
            .await?;
        }
        Ok(())
    }

    async fn change(&self, scene: &Scene) -> Result<()> {
        self.changes.set(self.changes.get() + 1);
        let value = self.changes.get().to_string();
        let objects = [config_map(OBJECT, &value), secret(OBJECT, &value)];
        for namespace in &self.namespaces {
            scene.put_all_in(namespace, &objects).await?;
        }
        Ok(())
    }
}

/// Returns true if the operator restarts a sentinel with these values.
fn is_restarted(values: &Value, (namespace, name): &Id) -> bool {
    let leaves_out = [
        &values["ignoreNamespaces"],
        &values["watch"]["namespaceSelector"],
    ];
    let is_left_out = namespace == LEFT_OUT && leaves_out.iter().any(|value| !value.is_null());
    let ignored: BTreeSet<_> = [
        ("ignoreConfigMaps", OF_CONFIG_MAP),
        ("ignoreSecrets", OF_SECRET),
    ]
    .into_iter()
    .filter(|(value, _)| values[value] == true)
    .map(|(_, name)| name)
    .collect();
    !is_left_out && !ignored.contains(&**name)
}

/// Returns the hash of each sentinel.
async fn hashes(scene: &Scene) -> Result<BTreeMap<Id, Option<String>>> {
    let deployments: Api<Deployment> = Api::all(scene.client.clone());
    let list = deployments
        .list(&ListParams::default().labels(LABEL))
        .await?;
    let hash = |deployment: Deployment| {
        let id = deployment.metadata;
        let template = deployment.spec.and_then(|spec| spec.template.metadata);
        let hash = template.and_then(|it| it.annotations?.remove(CONFIG_HASH));
        let id = (
            id.namespace.unwrap_or_default(),
            id.name.unwrap_or_default(),
        );
        (id, hash)
    };
    Ok(list.items.into_iter().map(hash).collect())
}

const OBJECT: &str = "sentinel";
const OF_CONFIG_MAP: &str = "sentinel-config-map";
const OF_SECRET: &str = "sentinel-secret";
const LABEL: &str = "sentinel";
const PATIENCE: Duration = Duration::from_secs(180);
