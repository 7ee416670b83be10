//! Acts as the users: they change config and workloads, create and delete them, and touch them needlessly.

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
    },
};
use pod_reloader_e2e::workload::Kind;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::{
    outage::Outage,
    population::{Deletion, NAMESPACES, Population},
    random::Random,
};

/// The users, and what they have created.
pub(crate) struct Users {
    pub(crate) population: Population,
    client: Client,
    random: Random,
    outage: Arc<Outage>,
    counts: Arc<Mutex<Counts>>,
    /// Counter for names and images that have not been used before.
    next: usize,
}

/// The actions of the users, counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Config objects whose content was changed, or that were deleted or created again.
    pub(crate) config_changes: usize,
    /// Config objects that were written without a change of content.
    pub(crate) touches: usize,
    /// Images and scales of workloads that were set, and workloads that were created or deleted.
    pub(crate) edits: usize,
    /// Duration of the slowest write that did not fail.
    pub(crate) slowest: Duration,
    /// Writes that failed while the control plane was down.
    pub(crate) lost_to_outages: usize,
    /// Errors of writes that failed for any other reason.
    pub(crate) failed: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Change,
    Label,
    Repeat,
    DeleteConfig,
    Image,
    Scale,
    CreateWorkload,
    DeleteWorkload,
}

impl Users {
    /// Creates namespaces, config objects and workloads.
    ///
    /// # Errors
    /// When the apiserver refuses one.
    pub(crate) async fn settle(
        client: Client,
        workloads: usize,
        mut random: Random,
        outage: Arc<Outage>,
    ) -> Result<Self> {
        let users = Self {
            population: Population::new(workloads, &mut random),
            client,
            random,
            outage,
            counts: Arc::default(),
            next: 0,
        };
        let namespaces: Api<DynamicObject> =
            Api::all_with(users.client.clone(), &resource("", "Namespace"));
        for name in Population::namespaces() {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let namespace = serde_json::from_value(namespace)?;
            namespaces
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        let config = 0..users.population.config_objects.len();
        let config = stream::iter(config)
            .map(|at| users.apply_config(at))
            .buffer_unordered(AT_ONCE);
        let mut all: Vec<_> = config.collect().await;
        let workloads = 0..users.population.workloads.len();
        let workloads = stream::iter(workloads)
            .map(|at| users.create_workload(at))
            .buffer_unordered(AT_ONCE);
        all.extend(workloads.collect::<Vec<_>>().await);
        ensure!(
            all.iter().all(|is_made| *is_made),
            "{:?}",
            users.counts().failed
        );
        *users.counts() = Counts::default();
        Ok(users)
    }

    /// Returns the counts, which go on changing.
    pub(crate) fn counted(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.counts)
    }

    /// Acts until `end`. Every minute, two percent of the config objects change, half a percent of the
    /// workloads get another image, and half a percent another scale.
    pub(crate) async fn act_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let acts = self.acts_of_a_minute();
            let mut pace = interval(Duration::from_secs(60) / acts.len() as u32);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for act in acts {
                pace.tick().await;
                if Instant::now() >= end {
                    break;
                }
                self.act(act).await;
            }
        }
    }

    /// Creates deleted config objects again: a workload that requires one waits for it.
    pub(crate) async fn restore_config(&mut self) {
        for at in 0..self.population.config_objects.len() {
            if self.population.config_objects[at].deletion == Deletion::Now {
                self.restore(at).await;
            }
        }
    }

    fn acts_of_a_minute(&mut self) -> Vec<Act> {
        let config = self.population.config_objects.len();
        let workloads = self.population.workloads.len();
        let rates = [
            (Act::Change, config / 50),
            (Act::Label, config / 100),
            (Act::Repeat, config / 100),
            (Act::DeleteConfig, config / 400),
            (Act::Image, workloads / 200),
            (Act::Scale, workloads / 200),
            (Act::CreateWorkload, workloads / 1000),
            (Act::DeleteWorkload, workloads / 1000),
        ];
        let acts = rates
            .into_iter()
            .flat_map(|(act, rate)| std::iter::repeat_n(act, rate.max(1)));
        let mut acts: Vec<_> = acts.collect();
        self.random.shuffle(&mut acts);
        acts
    }

    async fn act(&mut self, act: Act) {
        let config = self.random.below(self.population.config_objects.len());
        let workload = self.random.below(self.population.workloads.len());
        match act {
            Act::Change => self.change(config).await,
            Act::Label => self.label(config).await,
            Act::Repeat => self.repeat(config).await,
            Act::DeleteConfig => self.delete_config(config).await,
            Act::CreateWorkload => self.create().await,
            _ if !self.population.lives(workload) => (),
            Act::Image => self.image(workload).await,
            Act::Scale => self.scale(workload).await,
            Act::DeleteWorkload => self.delete_workload(workload).await,
        }
    }

    async fn change(&mut self, at: usize) {
        if self.population.config_objects[at].deletion == Deletion::Now {
            return self.restore(at).await;
        }
        self.population.config_objects[at].changes += 1;
        self.counts().config_changes += 1;
        self.apply_config(at).await;
    }

    async fn restore(&mut self, at: usize) {
        let object = &mut self.population.config_objects[at];
        object.deletion = Deletion::Over;
        object.changes += 1;
        self.counts().config_changes += 1;
        self.apply_config(at).await;
    }

    async fn apply_config(&self, at: usize) -> bool {
        let object = &self.population.config_objects[at];
        let (api, manifest) = (self.config(at), object.manifest());
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let apply = async {
            api.patch(&object.name, &parameters, &Patch::Apply(&manifest))
                .await
        };
        self.attempt(&object.name, apply).await.is_some()
    }

    /// Changes the resourceVersion of an object, but not its content.
    async fn label(&mut self, at: usize) {
        if self.population.config_objects[at].deletion == Deletion::Now {
            return;
        }
        self.counts().touches += 1;
        let label = json!({"metadata": {"labels": {"touched": self.unique()}}});
        self.merge(
            &self.config(at),
            &self.population.config_objects[at].name,
            &label,
        )
        .await;
    }

    /// Writes an object exactly as it was read.
    async fn repeat(&mut self, at: usize) {
        let object = &self.population.config_objects[at];
        if object.deletion == Deletion::Now {
            return;
        }
        self.counts().touches += 1;
        let api = self.config(at);
        let replace = async {
            let read = api.get(&object.name).await?;
            api.replace(&object.name, &PostParams::default(), &read)
                .await
        };
        self.attempt(&object.name, replace).await;
    }

    async fn delete_config(&mut self, at: usize) {
        let api = self.config(at);
        let object = &mut self.population.config_objects[at];
        if object.deletion != Deletion::NotYet {
            return;
        }
        object.deletion = Deletion::Now;
        object.changes += 1;
        let name = object.name.clone();
        self.counts().config_changes += 1;
        let parameters = DeleteParams::default();
        self.attempt(&name, async { api.delete(&name, &parameters).await })
            .await;
    }

    async fn create(&mut self) {
        let namespace = self.random.below(NAMESPACES);
        if self.random.below(2) == 0 {
            let config = self.population.add_config_object(namespace);
            self.apply_config(config).await;
        }
        let at = self.population.add_workload(namespace, &mut self.random);
        self.counts().edits += 1;
        self.create_workload(at).await;
    }

    async fn create_workload(&self, at: usize) -> bool {
        let kept = &self.population.workloads[at];
        let api = self.workload(at);
        let create = async {
            let manifest = serde_json::from_value(kept.workload.manifest())
                .map_err(kube::Error::SerdeError)?;
            api.create(&PostParams::default(), &manifest).await
        };
        self.attempt(&kept.workload.name, create).await.is_some()
    }

    async fn image(&mut self, at: usize) {
        let image = format!("app:{}", self.unique());
        let containers = json!([{"name": "main", "image": image}]);
        let edit = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.population.workloads[at].edits += 1;
        self.counts().edits += 1;
        let (api, name) = (
            self.workload(at),
            &self.population.workloads[at].workload.name,
        );
        let parameters = PatchParams::default();
        let patch = async { api.patch(name, &parameters, &Patch::Strategic(&edit)).await };
        self.attempt(name, patch).await;
    }

    /// Scales a workload. A DaemonSet has no scale: it gets a label of its own.
    async fn scale(&mut self, at: usize) {
        self.counts().edits += 1;
        let edit = match self.population.workloads[at].workload.kind {
            Kind::DaemonSet => json!({"metadata": {"labels": {"touched": self.unique()}}}),
            Kind::Deployment | Kind::StatefulSet => {
                json!({"spec": {"replicas": self.random.below(2)}})
            }
        };
        let name = &self.population.workloads[at].workload.name;
        self.merge(&self.workload(at), name, &edit).await;
    }

    async fn delete_workload(&mut self, at: usize) {
        self.population.delete_workload(at);
        self.counts().edits += 1;
        let (api, name) = (
            self.workload(at),
            &self.population.workloads[at].workload.name,
        );
        let parameters = DeleteParams::default();
        self.attempt(name, async { api.delete(name, &parameters).await })
            .await;
    }

    async fn merge(&self, api: &Api<DynamicObject>, name: &str, edit: &Value) {
        let parameters = PatchParams::default();
        let patch = async { api.patch(name, &parameters, &Patch::Merge(edit)).await };
        self.attempt(name, patch).await;
    }

    /// Makes a call, and counts it if it fails.
    async fn attempt<T>(
        &self,
        name: &str,
        call: impl IntoFuture<Output = kube::Result<T>>,
    ) -> Option<T> {
        let began = Instant::now();
        let error = match timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => {
                let mut counts = self.counts();
                if !self.outage.is_felt() {
                    counts.slowest = counts.slowest.max(began.elapsed());
                }
                return Some(answer);
            }
            Ok(Err(error)) => format!("{name}: {error}"),
            Err(_) => format!("{name}: no answer within {PATIENCE:?}"),
        };
        let mut counts = self.counts();
        if self.outage.is_felt() {
            counts.lost_to_outages += 1;
        } else {
            counts.failed.push(error);
        }
        None
    }

    fn unique(&mut self) -> String {
        self.next += 1;
        self.next.to_string()
    }

    fn config(&self, at: usize) -> Api<DynamicObject> {
        let object = &self.population.config_objects[at];
        let resource = resource("", object.kind());
        Api::namespaced_with(self.client.clone(), &object.namespace, &resource)
    }

    fn workload(&self, at: usize) -> Api<DynamicObject> {
        let kept = &self.population.workloads[at];
        let resource = resource("apps", kept.workload.kind.as_str());
        Api::namespaced_with(self.client.clone(), &kept.namespace, &resource)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

const FIELD_MANAGER: &str = "soak";
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
