//! Deployments, the objects that they use, and which parts of those are tracked, for the tests of discovery.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use pod_reloader_e2e::oracle::Truth;
use pod_reloader_e2e::workload::{CONFIG_MAPS, SECRETS, Workload};
use pod_reloader_e2e::{Attempt, AuditEvent, PATIENCE, Scene, Snapshot, wait_for};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigKind {
    ConfigMap,
    Secret,
}

impl ConfigKind {
    pub(super) const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// Returns the beginning of the field names of a pod spec for this kind.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::ConfigMap => "configMap",
            Self::Secret => "secret",
        }
    }
}

/// A Deployment, and the tracked parts of the ConfigMap and of the Secret that share its name.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) counts: [Part; 2],
    /// The way in which it uses them, if it is one of those of `pod_specs.rs`.
    pub(super) form: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Nothing,
    /// Nothing, but an immutable object would be tracked, so it is read.
    OfImmutable,
    /// Only the entry [`USED`].
    Key,
    Whole,
}

impl Case {
    /// Creates a case without pods.
    pub(super) fn new(workload: Workload, counts: [Part; 2]) -> Self {
        Self {
            workload: workload.with(&["spec", "replicas"], json!(0)),
            counts,
            form: "",
        }
    }

    pub(super) fn part(&self, kind: ConfigKind) -> Part {
        self.counts[kind as usize]
    }

    /// Returns the tracked part of the object of that kind, as an item of a list.
    pub(super) fn listed(&self, kind: ConfigKind) -> String {
        let name = &self.workload.name;
        match self.part(kind) {
            Part::Nothing | Part::OfImmutable => String::new(),
            Part::Key => format!("{name}[{USED}]"),
            Part::Whole => name.clone(),
        }
    }
}

/// Cases, with the ConfigMap and the Secret of each.
pub(super) struct Config {
    pub(super) cases: Vec<Case>,
    /// Values of the entries [`ENTRIES`], by kind.
    values: [[usize; 2]; 2],
    pub(super) immutable: bool,
}

impl Config {
    pub(super) fn of(cases: impl Into<Vec<Case>>) -> Self {
        Self {
            cases: cases.into(),
            values: [[1; 2]; 2],
            immutable: false,
        }
    }

    pub(super) fn workloads(&self) -> Vec<Workload> {
        let workloads = self.cases.iter().map(|case| &case.workload);
        workloads.cloned().collect()
    }

    /// Returns the objects of these kinds, one for each case.
    pub(super) fn objects(&self, kinds: &[ConfigKind]) -> Vec<Value> {
        let of = |kind: ConfigKind, name: &str| {
            let [used, other] = self.values[kind as usize].map(|value| value.to_string());
            let entries = json!({(USED): used, (OTHER): other});
            let (kind, data) = match kind {
                ConfigKind::ConfigMap => ("ConfigMap", "data"),
                ConfigKind::Secret => ("Secret", "stringData"),
            };
            let metadata = json!({"name": name, "labels": {"suite": "discovery"}});
            json!({
                "apiVersion": "v1", "kind": kind, "metadata": metadata,
                (data): entries, "immutable": self.immutable,
            })
        };
        let names = self.cases.iter().map(|case| &case.workload.name);
        names
            .flat_map(|name| kinds.iter().map(|kind| of(*kind, name)))
            .collect()
    }

    pub(super) async fn delete_objects(&self, scene: &Scene) -> Result<()> {
        let of_suite = ListParams::default().labels(SUITE);
        let (client, namespace) = (&scene.client, &scene.namespace);
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let params = DeleteParams::default();
        config_maps.delete_collection(&params, &of_suite).await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        secrets.delete_collection(&params, &of_suite).await?;
        Ok(())
    }

    /// Gives each entry a new value.
    pub(super) fn renew(&mut self) {
        for value in self.values.as_flattened_mut() {
            *value += 1;
        }
    }

    /// Changes an entry in all objects of a kind. Asserts that exactly the workloads that track it are
    /// restarted, and that of this kind exactly the objects that may be tracked are read.
    pub(super) async fn changes(
        &mut self,
        scene: &Scene,
        kind: ConfigKind,
        entry: usize,
    ) -> Result<()> {
        let workloads = self.workloads();
        let before = scene.snapshots(&workloads).await?;
        let mark = scene.mark().await?;
        self.values[kind as usize][entry] += 1;
        scene.put_all(&self.objects(&[kind])).await?;
        self.right(scene).await?;
        scene.quiet().await?;
        let after = scene.snapshots(&workloads).await?;
        let requests = scene.requests(mark).await?;
        let (read, patched) = (read(&requests), patched(&requests));
        for ((case, before), after) in self.cases.iter().zip(&before).zip(&after) {
            let part = case.part(kind);
            let counts = part == Part::Whole || part == Part::Key && entry == USED_ENTRY;
            let name = &case.workload.name;
            let what = format!(
                "{name}, of {kind:?} {}: {before:?}, {after:?}",
                ENTRIES[entry]
            );
            ensure!(after.new_revisions(before) == usize::from(counts), "{what}");
            ensure!((after.key != before.key) == counts, "{what}");
            let patches = patched.iter().filter(|it| *it == name).count();
            ensure!(
                patches == usize::from(counts),
                "{patches} patches of {what}"
            );
            let is_read = read.contains(&(kind.plural().to_owned(), name.clone()));
            ensure!(is_read == (part != Part::Nothing), "read {is_read}: {what}");
        }
        Ok(())
    }

    /// Returns the hash that each workload must carry, given its tracked objects.
    pub(super) async fn expected_keys(&self, scene: &Scene) -> Result<Vec<Option<String>>> {
        let mut truth = Truth::read(&scene.client, &scene.installation).await?;
        let mut expected = Vec::new();
        for case in &self.cases {
            let [config_maps, secrets] = ConfigKind::ALL.map(|kind| case.listed(kind));
            expected.push(match config_maps.is_empty() && secrets.is_empty() {
                true => None,
                false => {
                    let lists = json!({CONFIG_MAPS: config_maps, SECRETS: secrets});
                    let listing = json!({
                        "metadata": {"namespace": scene.namespace, "annotations": lists},
                    });
                    Some(truth.config_hash(&listing).await?)
                }
            });
        }
        Ok(expected)
    }

    /// Asserts that each workload, just created, has the right hash and one revision.
    pub(super) async fn stamped_at_once(&self, scene: &Scene) -> Result<Vec<Snapshot>> {
        let snapshots = scene.snapshots(&self.workloads()).await?;
        let expected = self.expected_keys(scene).await?;
        for ((case, snapshot), expected) in self.cases.iter().zip(&snapshots).zip(expected) {
            let is_right = snapshot.key == expected && snapshot.revisions.len() == 1;
            let name = &case.workload.name;
            ensure!(is_right, "{name}: {snapshot:?}, expected {expected:?}");
        }
        Ok(snapshots)
    }

    /// Waits until each workload carries the hash of the current state.
    pub(super) async fn right(&self, scene: &Scene) -> Result<()> {
        let expected = self.expected_keys(scene).await?;
        become_these(scene, &self.workloads(), &expected).await
    }

    /// Asserts that each workload with tracked objects is restarted exactly once after `before`, to the hash
    /// of the current state.
    pub(super) async fn each_rolls(
        &self,
        scene: &Scene,
        before: &[Snapshot],
    ) -> Result<Vec<Snapshot>> {
        self.right(scene).await?;
        scene.quiet().await?;
        self.right(scene).await?;
        let after = scene.snapshots(&self.workloads()).await?;
        for ((case, before), after) in self.cases.iter().zip(before).zip(&after) {
            let counts = case.counts != NOTHING;
            let what = format!("{}: {before:?}, {after:?}", case.workload.name);
            ensure!(after.new_revisions(before) == usize::from(counts), "{what}");
            ensure!((after.key != before.key) == counts, "{what}");
        }
        Ok(after)
    }
}

/// Waits until the workloads carry these hashes.
pub(super) async fn become_these(
    scene: &Scene,
    workloads: &[Workload],
    expected: &[Option<String>],
) -> Result<()> {
    wait_for("every hash to be right", PATIENCE, async || {
        let keys = scene.keys(workloads).await?;
        let mut pairs = workloads.iter().zip(&keys).zip(expected);
        Ok(match pairs.find(|((_, key), expected)| key != expected) {
            Some(((workload, key), expected)) => {
                let name = &workload.name;
                Attempt::NotYet(format!("{name}: {key:?}, expected {expected:?}"))
            }
            None => Attempt::Done(()),
        })
    })
    .await
}

/// Returns the config objects that these requests have read: plural and name.
pub(super) fn read(requests: &[AuditEvent]) -> BTreeSet<(String, String)> {
    let of_config = |request: &&AuditEvent| {
        request.verb != "watch" && ["configmaps", "secrets"].contains(&&*request.resource)
    };
    let read = requests.iter().filter(of_config);
    read.map(|request| (request.resource.clone(), request.name.clone()))
        .collect()
}

/// Returns the names of the workloads that these requests have changed, except the sentinel. A patch that
/// came too late is tried again.
pub(super) fn patched(requests: &[AuditEvent]) -> Vec<String> {
    let patches = requests.iter().filter(|request| {
        request.verb == "patch"
            && request.resource == "deployments"
            && request.name != "sentinel"
            && request.code == Some(200)
    });
    patches.map(|request| request.name.clone()).collect()
}

/// The names of the entries of every object. The first is the one that pod templates name, if they name one.
pub(super) const ENTRIES: [&str; 2] = ["log.level", "mode"];
pub(super) const USED_ENTRY: usize = 0;
pub(super) const OTHER_ENTRY: usize = 1;
pub(super) const USED: &str = ENTRIES[USED_ENTRY];
pub(super) const OTHER: &str = ENTRIES[OTHER_ENTRY];

pub(super) const NOTHING: [Part; 2] = [Part::Nothing; 2];
/// Label of the objects of the cases.
const SUITE: &str = "suite=discovery";
