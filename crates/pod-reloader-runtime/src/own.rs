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

    /// Returns the objects of a namespace, or of all of them, that are remembered.
    fn known(&self, place: Option<&Name>) -> Vec<Self::Id>;

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
        let known = self.server.known(place).into_iter();
        let gone = known.filter(|id| !list.contains(id));
        gone.for_each(|id| self.server.gone(&id));
        self.server.all_listed(place, self.left_out);
    }

    fn gone(&mut self, Slim(object): Slim<S::Kind>) {
        if let Some(id) = S::id(&object) {
            self.server.gone(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use parking_lot::Mutex;

    /// Serves ConfigMaps. It has no room for those that are called `large`, and those called `foreign` are not managed.
    #[derive(Default)]
    struct Server {
        known: Mutex<BTreeSet<(Name, Name)>>,
        /// The number of objects without room in each complete list.
        left_out: Mutex<Vec<usize>>,
    }

    impl Server {
        fn names(&self) -> Vec<String> {
            let known = self.known.lock();
            let names = known.iter().map(|(place, name)| format!("{place}/{name}"));
            names.collect()
        }
    }

    impl Serves for Server {
        type Kind = ConfigMap;
        type Id = (Name, Name);

        fn id(object: &ConfigMap) -> Option<(Name, Name)> {
            let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
            let metadata = &object.metadata;
            Some((name(&metadata.namespace)?, name(&metadata.name)?))
        }

        fn seen(&self, id: (Name, Name), _object: ConfigMap) -> Room {
            match id.1.as_str() {
                "large" => Room::LeftOut,
                "foreign" => Room::OutOfScope,
                _ => {
                    self.known.lock().insert(id);
                    Room::Kept
                }
            }
        }

        fn gone(&self, id: &(Name, Name)) {
            self.known.lock().remove(id);
        }

        fn known(&self, place: Option<&Name>) -> Vec<(Name, Name)> {
            let known = self.known.lock();
            let is_there = |id: &&(Name, Name)| place.is_none_or(|place| *place == id.0);
            known.iter().filter(is_there).cloned().collect()
        }

        fn all_listed(&self, _place: Option<&Name>, left_out: usize) {
            self.left_out.lock().push(left_out);
        }
    }

    fn follower(server: &Arc<Server>, place: Option<&str>) -> OwnFollower<Server> {
        OwnFollower {
            server: server.clone(),
            place: place.map(|it| Name::parse(it).unwrap()),
            left_out: 0,
        }
    }

    fn object(called: &str) -> Slim<ConfigMap> {
        let (namespace, name) = called.split_once('/').unwrap();
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        Slim(object)
    }

    /// Brings a complete list.
    fn list(follower: &mut OwnFollower<Server>, objects: &[&str]) {
        follower.listing();
        let ids = objects.iter().filter_map(|it| follower.listed(object(it)));
        let ids: BTreeSet<_> = ids.collect();
        follower.all_listed(ids);
    }

    #[test]
    fn anything_that_the_list_of_its_namespace_lacks_is_gone() {
        let server = Arc::new(Server::default());
        let mut shop = follower(&server, Some("shop"));
        list(&mut shop, &["shop/a", "shop/b"]);
        shop.seen(object("shop/c"));
        list(&mut follower(&server, Some("bank")), &["bank/a"]);
        let all = ["bank/a", "shop/a", "shop/b", "shop/c"];
        assert_eq!(server.names(), all);
        list(&mut shop, &["shop/b", "shop/c"]);
        assert_eq!(server.names(), ["bank/a", "shop/b", "shop/c"]);
        shop.gone(object("shop/b"));
        assert_eq!(server.names(), ["bank/a", "shop/c"]);
        list(&mut follower(&server, None), &["shop/c"]);
        assert_eq!(server.names(), ["shop/c"]);
    }

    #[test]
    fn each_list_counts_its_own_objects_without_room() {
        let server = Arc::new(Server::default());
        let mut follower = follower(&server, None);
        list(&mut follower, &["bank/large", "shop/large", "shop/a"]);
        follower.seen(object("shop/large"));
        // This list fails.
        follower.listing();
        drop(follower.listed(object("shop/large")));
        list(&mut follower, &["shop/large", "shop/foreign"]);
        list(&mut follower, &["shop/a"]);
        assert_eq!(*server.left_out.lock(), [2, 1, 0]);
    }
}
