//! Finds out what uses ConfigMaps and Secrets, by live lists: nothing that is remembered could be too old.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::try_join_all;
use kube::core::DynamicResourceScope;
use kube::{Client, Resource};
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use pod_reloader_core::protect::{OwnedBy, Owners, TemplateKind, Templated};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::Pod;
use tokio::sync::Semaphore;

use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// The maximum number of namespaces that are listed at once.
const AT_ONCE: usize = 4;
/// The maximum number of lists by which the owners of pods are found. A pod of a Deployment takes two.
const MAX_LISTS: usize = 8;

/// Pods, workloads and their revisions.
#[derive(Clone)]
pub struct Users {
    client: Client,
    budget: Budget,
    turns: Arc<Semaphore>,
}

/// The users that do not do without an object.
pub struct Needing {
    /// Pods that run and stay, and workloads that are to have pods: their controllers may not have created them yet.
    pub now: Vec<String>,
    /// Pod templates that make pods later.
    pub later: Vec<String>,
}

impl Users {
    /// Returns the users that `client` lists, which draws memory from `budget`.
    pub fn new(client: Client, budget: Budget) -> Self {
        Self {
            client,
            budget,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the pods and workloads that do not do without an object. Pods that the garbage collector is about to delete
    /// are left out, unless a workload needs the object, too.
    pub async fn needing(&self, object: &Reference) -> Result<Needing, CallError> {
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        let namespace = &object.namespace;
        let workloads = TemplateKind::WORKLOADS.map(|kind| {
            self.list(namespace, kind, move |it: &Templated| {
                let name = || format!("{} {}", kind.as_str(), it.name());
                let user = || (it.is_to_have_pods(), name());
                it.needs(object).then(user).into_iter().collect()
            })
        });
        // Workloads first: a pod that is not there yet then belongs to one of them.
        let workloads = try_join_all(workloads).await?.concat();
        let (now, later): (Vec<_>, Vec<_>) = workloads.into_iter().partition(|(is_now, _)| *is_now);
        let pods = match now.is_empty() {
            true => self.staying(object).await?,
            false => self.pods(object).await?,
        };
        let names = |users: Vec<(bool, String)>| users.into_iter().map(|(_, name)| name);
        let pods = pods.into_iter().map(|(name, _)| name);
        Ok(Needing {
            now: pods.chain(names(now)).collect(),
            later: names(later).collect(),
        })
    }

    /// Returns the pods that do not do without an object, and their owners.
    async fn pods(&self, object: &Reference) -> Result<Vec<(String, OwnedBy)>, CallError> {
        let pods = self.list(&object.namespace, (), |pod: &Pod| {
            let user = || (format!("Pod {}", pod.name()), pod.owned_by());
            pod.needs(object).then(user).into_iter().collect()
        });
        pods.await
    }

    /// Returns those of them that the garbage collector is not about to delete.
    ///
    /// What is orphaned between two of the lists seems to have lost its owner. But it names its owner no longer before that
    /// one is gone, so everything is listed once more before the last pod counts as one that goes.
    async fn staying(&self, object: &Reference) -> Result<Vec<(String, OwnedBy)>, CallError> {
        for _ in 0..2 {
            let mut pods = self.pods(object).await?;
            if pods.is_empty() {
                break;
            }
            let owners = self.owners(&object.namespace, &pods).await?;
            pods.retain(|(_, owned_by)| !owners.go(owned_by));
            if !pods.is_empty() {
                return Ok(pods);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the owners of pods, and the owners of these. Each is listed after what names it: one that is missing then
    /// is gone, and not still to come.
    async fn owners(
        &self,
        namespace: &Name,
        pods: &[(String, OwnedBy)],
    ) -> Result<Owners, CallError> {
        let mut owners = Owners::default();
        let mut looked_for = owners.to_look_for(pods.iter().map(|(_, owned_by)| owned_by));
        for _ in 0..MAX_LISTS {
            let Some((kind, uids)) = looked_for.pop_first() else {
                break;
            };
            let there = self.list(namespace, kind, |it: &Templated| {
                it.among(&uids).into_iter().collect()
            });
            let there = there.await?;
            for (kind, uids) in owners.found(uids, there) {
                looked_for.entry(kind).or_default().extend(uids);
            }
        }
        Ok(owners)
    }

    /// Returns those of these objects of a namespace that pods, workloads or their revisions name, each with its users.
    pub async fn naming<'a>(
        &self,
        namespace: &Name,
        objects: &'a [Reference],
    ) -> Result<BTreeMap<&'a Reference, Vec<String>>, CallError> {
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        let of_kind = |kind: TemplateKind| {
            self.list(namespace, kind, move |it: &Templated| {
                let named = objects.iter().filter(|object| it.names(object));
                let user = || format!("{} {}", kind.as_str(), it.name());
                named.map(|object| (object, user())).collect()
            })
        };
        // In this order nothing is missed: names go from workloads to revisions, and from there to pods.
        let workloads = try_join_all(TemplateKind::WORKLOADS.map(of_kind)).await?;
        let revisions = try_join_all(TemplateKind::REVISIONS.map(of_kind)).await?;
        let pods = self.list(namespace, (), |pod: &Pod| {
            let named = objects.iter().filter(|object| pod.names(object));
            let user = || format!("Pod {}", pod.name());
            named.map(|object| (object, user())).collect()
        });
        let lists = [vec![pods.await?], workloads, revisions].concat();
        let mut users = BTreeMap::<_, Vec<_>>::new();
        for (object, user) in lists.into_iter().flatten() {
            users.entry(object).or_default().push(user);
        }
        Ok(users)
    }

    /// Lists the objects of a kind in a namespace, and returns what `pick` makes of them.
    async fn list<K, T>(
        &self,
        namespace: &Name,
        kind: K::DynamicType,
        pick: impl Fn(&K) -> Vec<T>,
    ) -> Result<Vec<T>, CallError>
    where
        K: Resource<Scope = DynamicResourceScope> + Foreign,
    {
        let all = api(&self.client, Some(namespace), kind);
        let all = Resources::<K>::new(all, "a protected object's user", &self.budget);
        let mut picked = Vec::new();
        let mut unreadable = None;
        all.list_all(&mut PAGE.clone(), |item| match item {
            Ok(item) => picked.extend(pick(&item)),
            Err(error) => unreadable = Some(error),
        })
        .await?;
        unreadable.map_or(Ok(picked), Err)
    }
}
