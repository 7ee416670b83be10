//! Watches the objects in which tools store how far their releases are.

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use pod_reloader_core::release::{
    Application, Kustomization, Places, ReleaseObject, ReleaseSecret, Tool,
};
use tokio::task::JoinSet;

use crate::restart::reconcile::Reconciler;
use crate::runtime::budget::Budget;
use crate::runtime::follower::Follower;
use crate::runtime::resources::{Resources, api};

/// Adds a watch of the releases in each of `places`.
pub(super) fn spawn(
    watches: &mut JoinSet<()>,
    client: &Client,
    places: &Places,
    reconciler: &Arc<Reconciler>,
    budget: &Budget,
) {
    for (tool, namespaces) in places {
        for namespace in namespaces {
            let parts = (
                client.clone(),
                namespace.clone(),
                reconciler.clone(),
                budget.clone(),
            );
            match tool {
                Tool::Helm => watches.spawn(watch::<ReleaseSecret>("HelmRelease", parts)),
                Tool::Flux => watches.spawn(watch::<Kustomization>("Kustomization", parts)),
                Tool::ArgoCd => watches.spawn(watch::<Application>("Application", parts)),
            };
        }
    }
}

/// Follows the revisions of the releases in a namespace, or in all of them. The log and metrics call them
/// `kind`.
async fn watch<O: ReleaseObject + Foreign>(
    kind: &'static str,
    (client, namespace, reconciler, budget): (Client, Option<Name>, Arc<Reconciler>, Budget),
) {
    let objects = api(&client, namespace.as_ref(), ());
    let mut objects = Resources::<O>::new(objects, kind, &budget);
    if let Some(selector) = O::SELECTOR {
        objects = objects.with_labels(selector.to_owned());
    }
    let watches = reconciler.metrics().watches.clone();
    let follower = ReleaseFollower {
        reconciler,
        namespace,
    };
    objects.follow(watches, follower).await;
}

struct ReleaseFollower {
    reconciler: Arc<Reconciler>,
    namespace: Option<Name>,
}

impl<O: ReleaseObject> Follower<O> for ReleaseFollower {
    type Noted = ();
    type List = ();

    fn listing(&mut self) {
        let namespace = self.namespace.as_ref();
        self.reconciler.releases().listing(O::TOOL, namespace);
    }

    fn listed(&mut self, object: O) -> Option<()> {
        if let Some(revision) = object.revision() {
            self.reconciler.releases().seen(revision);
        }
        None
    }

    fn all_listed(&mut self, (): ()) {
        let namespace = self.namespace.as_ref();
        self.reconciler.releases().all_listed(O::TOOL, namespace);
    }

    fn gone(&mut self, object: O) {
        if let Some(revision) = object.revision() {
            self.reconciler.releases().gone(&revision);
        }
    }
}
