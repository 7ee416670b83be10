//! Finds out who uses an object, by the rules of the webhook that refuses to delete it.

use kube::Resource;
use pod_reloader_core::protect::{TemplateKind, Templated};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::Pod;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::{Cluster, Place, Unseen};

/// The users of an object.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Users {
    /// Pods that run, and workloads that are to have pods.
    pub(super) used_by: Vec<String>,
    /// Pod templates that make pods later.
    pub(super) used_later_by: Vec<String>,
    /// Everything that the user may not see.
    #[serde(skip)]
    pub(super) unseen: Vec<String>,
}

impl Users {
    pub(super) async fn of(cluster: &Cluster, object: &Reference) -> Self {
        let mut users = Self::default();
        let found = each(cluster, object, (), |pod: Pod| {
            if pod.needs(object) {
                users.used_by.push(format!("Pod {}", pod.name()));
            }
        });
        let found = found.await;
        users.note(found);
        for kind in TemplateKind::WORKLOADS {
            let found = each(cluster, object, kind, |templated: Templated| {
                if !templated.needs(object) {
                    return;
                }
                let user = format!("{} {}", kind.as_str(), templated.name());
                match templated.is_to_have_pods() {
                    true => users.used_by.push(user),
                    false => users.used_later_by.push(user),
                }
            });
            let found = found.await;
            users.note(found);
        }
        users
    }

    fn note(&mut self, found: Result<(), Unseen>) {
        let unseen = found.err().map(|error| format!("who uses it: {error}"));
        self.unseen.extend(unseen);
    }
}

/// Lists the resources of a kind beside an object, page by page.
async fn each<K: Resource + DeserializeOwned>(
    cluster: &Cluster,
    object: &Reference,
    kind: K::DynamicType,
    mut take: impl FnMut(K),
) -> Result<(), Unseen> {
    let (api_version, plural) = (K::api_version(&kind), K::plural(&kind));
    let place = Place::new(&api_version, &plural, Some(object.namespace.as_str()));
    let mut pages = cluster.pages(place, "");
    while let Some(page) = pages.next().await? {
        page.into_iter().for_each(&mut take);
    }
    Ok(())
}
