//! Follows the custom resources that a controller serves.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::{Api, Resource};
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use pod_reloader_core::slim::Slim;

use crate::follower::Follower;
use crate::kit::Kit;
use crate::resources::Resources;

/// What becomes of a custom resource that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Its namespace is not managed.
    OutOfScope,
    /// It is remembered.
    Kept,
    /// There is no room for it, so nothing is remembered of it.
    LeftOut,
}

/// The handler of a controller that has custom resources of its own.
pub trait Serves: Send + Sync + 'static {
    /// Their kind.
    type Kind: Resource;

    /// The identity of one: its name, with its namespace if it is in one.
    type Id: Clone + Ord + Send;

    /// Returns the identity of an object. `None` if it has none that is valid.
    fn id(object: &Self::Kind) -> Option<Self::Id>;

    /// Takes in an object that is new or has changed.
    fn seen(&self, id: Self::Id, object: Self::Kind) -> Room;

    /// Takes in that an object is gone.
    fn gone(&self, id: &Self::Id);

    /// Returns the objects of a namespace, or of all of them, that are remembered but not listed.
    fn without(&self, place: Option<&Name>, listed: &BTreeSet<Self::Id>) -> Vec<Self::Id>;

    /// Takes in that all objects of a namespace, or of all of them, have been listed, and the number of those for which
    /// there is no room.
    fn all_listed(&self, _place: Option<&Name>, _left_out: usize) {}
}

/// Follows the custom resources of `api`, for ever: those of a namespace, or of all of them. The log calls them `kind`.
pub async fn follow<S: Serves>(
    kit: Kit,
    server: Arc<S>,
    kind: &'static str,
    api: Api<Slim<S::Kind>>,
    place: Option<Name>,
) where
    Slim<S::Kind>: Foreign,
{
    let follower = OwnFollower {
        server,
        place,
        left_out: 0,
    };
    let all = Resources::new(api, kind, &kit.budget);
    all.follow(kit.watches, follower).await;
}

struct OwnFollower<S> {
    server: Arc<S>,
    /// The namespace. `None` stands for all of them.
    place: Option<Name>,
    /// The number of objects of the current list for which there is no room.
    left_out: usize,
}

impl<S: Serves> Follower<Slim<S::Kind>> for OwnFollower<S> {
    type Noted = S::Id;
    type List = BTreeSet<S::Id>;

    fn listing(&mut self) {
        self.left_out = 0;
    }

    fn listed(&mut self, Slim(object): Slim<S::Kind>) -> Option<S::Id> {
        let id = S::id(&object)?;
        let room = self.server.seen(id.clone(), object);
        self.left_out += usize::from(room == Room::LeftOut);
        (room == Room::Kept).then_some(id)
    }

    fn all_listed(&mut self, list: BTreeSet<S::Id>) {
        let place = self.place.as_ref();
        let gone = self.server.without(place, &list);
        gone.iter().for_each(|id| self.server.gone(id));
        self.server.all_listed(place, self.left_out);
    }

    fn gone(&mut self, Slim(object): Slim<S::Kind>) {
        if let Some(id) = S::id(&object) {
            self.server.gone(&id);
        }
    }
}
