//! Watches the objects in which tools store how far their releases are.

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use pod_reloader_core::release::{
    Application, Kustomization, Places, ReleaseObject, ReleaseSecret, Tool,
};
use tokio::task::JoinSet;

use crate::restart::releases::ReleaseWait;
use crate::runtime::budget::Budget;
use crate::runtime::follower::Follower;
use crate::runtime::resources::{Resources, api};
use crate::runtime::watch_age::Watches;

/// Adds a watch of the releases in each of `places`.
pub(crate) fn spawn(
    watches: &mut JoinSet<()>,
    client: &Client,
    places: &Places,
    (releases, ages): (&Arc<ReleaseWait>, &Watches),
    budget: &Budget,
) {
    for (tool, namespaces) in places {
        for namespace in namespaces {
            let follower = ReleaseFollower {
                releases: releases.clone(),
                namespace: namespace.clone(),
            };
            let parts = (client.clone(), budget.clone(), ages.clone());
            match tool {
                Tool::Helm => watches.spawn(watch::<ReleaseSecret>("HelmRelease", parts, follower)),
                Tool::Flux => {
                    watches.spawn(watch::<Kustomization>("Kustomization", parts, follower))
                }
                Tool::ArgoCd => watches.spawn(watch::<Application>("Application", parts, follower)),
            };
        }
    }
}

/// Follows the revisions of the releases in a namespace, or in all of them. The log and metrics call them
/// `kind`.
async fn watch<O: ReleaseObject + Foreign>(
    kind: &'static str,
    (client, budget, ages): (Client, Budget, Watches),
    follower: ReleaseFollower,
) {
    let objects = api(&client, follower.namespace.as_ref(), ());
    let mut objects = Resources::<O>::new(objects, kind, &budget);
    if let Some(selector) = O::SELECTOR {
        objects = objects.with_labels(selector.to_owned());
    }
    objects.follow(ages, follower).await;
}

struct ReleaseFollower {
    releases: Arc<ReleaseWait>,
    namespace: Option<Name>,
}

impl<O: ReleaseObject> Follower<O> for ReleaseFollower {
    type Noted = ();
    type List = ();

    fn listing(&mut self) {
        let namespace = self.namespace.as_ref();
        self.releases.listing(O::TOOL, namespace);
    }

    fn listed(&mut self, object: O) -> Option<()> {
        if let Some(revision) = object.revision() {
            self.releases.seen(revision);
        }
        None
    }

    fn all_listed(&mut self, (): ()) {
        let namespace = self.namespace.as_ref();
        self.releases.all_listed(O::TOOL, namespace);
    }

    fn gone(&mut self, object: O) {
        if let Some(revision) = object.revision() {
            self.releases.gone(&revision);
        }
    }
}
