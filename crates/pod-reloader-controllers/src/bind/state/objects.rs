//! Remembers which objects FieldBindings read and write, and their versions. Nothing is kept of any other object.

use std::collections::{BTreeSet, HashMap};

use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

/// The objects of a kind in a namespace, or in all of them: what one watch brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::bind) struct Watched {
    pub(in crate::bind) what: What,
    /// The namespace. `None` stands for all of them.
    pub(in crate::bind) place: Option<Name>,
}

/// The kind of an object that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::bind) enum What {
    Source(ConfigKind),
    Target(BoundKind),
}

impl What {
    /// Returns the kind as Kubernetes spells it.
    pub(in crate::bind) fn kind(&self) -> &'static str {
        match self {
            Self::Source(kind) => kind.as_str(),
            Self::Target(kind) => kind.kind,
        }
    }
}

/// An object of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::bind) struct ObjectName {
    pub(in crate::bind) namespace: Name,
    pub(in crate::bind) name: Name,
}

/// An object that a FieldBinding reads or writes, and the watch that brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) watched: Watched,
    pub(super) object: ObjectName,
}

/// The objects that FieldBindings read and write.
#[derive(Default)]
pub(in crate::bind) struct Objects {
    /// The objects by name, by namespace, by watch.
    bound: HashMap<Watched, HashMap<Name, HashMap<Name, Bound>>>,
    /// True if there are other watches than when they were last asked for.
    has_news: bool,
    /// The number of lists that have begun.
    lists: u64,
}

/// An object that is bound.
struct Bound {
    /// The names of the FieldBindings that read or write it. They are in its namespace.
    users: BTreeSet<Name>,
    version: Version,
    /// The number of lists that had begun when it was bound.
    since: u64,
}

/// The version of an object.
#[derive(Debug, PartialEq, Eq)]
enum Version {
    /// Nothing is known yet.
    Unknown,
    /// There is no such object.
    Absent,
    Is(Box<str>),
}

impl Objects {
    /// Takes in that a FieldBinding uses an object.
    pub(super) fn bind(&mut self, Use { watched, object }: Use, user: &Name) {
        let objects = self.bound.entry(watched).or_insert_with(|| {
            self.has_news = true;
            HashMap::new()
        });
        let here = objects.entry(object.namespace).or_default();
        let bound = here.entry(object.name).or_insert_with(|| Bound {
            users: BTreeSet::new(),
            version: Version::Unknown,
            since: self.lists,
        });
        bound.users.insert(user.clone());
    }

    /// Takes in that a FieldBinding no longer uses an object.
    pub(super) fn release(&mut self, Use { watched, object }: &Use, user: &Name) {
        let Some(objects) = self.bound.get_mut(watched) else {
            return;
        };
        let Some(here) = objects.get_mut(&object.namespace) else {
            return;
        };
        if let Some(bound) = here.get_mut(&object.name) {
            bound.users.remove(user);
            if bound.users.is_empty() {
                here.remove(&object.name);
            }
        }
        if here.is_empty() {
            objects.remove(&object.namespace);
        }
        if objects.is_empty() {
            self.bound.remove(watched);
            self.has_news = true;
        }
    }

    /// Returns the watches that are needed, if there are others than when they were last asked for.
    pub(in crate::bind) fn news(&mut self) -> Option<BTreeSet<Watched>> {
        let has_news = std::mem::take(&mut self.has_news);
        has_news.then(|| self.bound.keys().cloned().collect())
    }

    /// Returns true if a FieldBinding uses an object.
    pub(in crate::bind) fn is_bound(&self, watched: &Watched, namespace: &str, name: &str) -> bool {
        self.bound(watched, namespace, name).is_some()
    }

    /// Returns true if an object is known to have another version than this one, which is `None` if there was no such
    /// object.
    pub(super) fn differs(&self, used: &Use, version: Option<&str>) -> bool {
        let Use { watched, object } = used;
        let bound = self.bound(watched, object.namespace.as_str(), object.name.as_str());
        bound.is_some_and(|bound| match &bound.version {
            Version::Unknown => false,
            Version::Absent => version.is_some(),
            Version::Is(known) => version != Some(known),
        })
    }

    /// Takes in that a list begins. Returns its number.
    pub(in crate::bind) fn listing(&mut self) -> u64 {
        self.lists += 1;
        self.lists
    }

    /// Takes in the versions of all bound objects that a list has brought. Returns the objects that are news, and the
    /// names of their users.
    pub(super) fn listed(
        &mut self,
        watched: &Watched,
        list: u64,
        mut objects: HashMap<ObjectName, Box<str>>,
    ) -> Vec<(Name, Vec<Name>)> {
        let mut news = Vec::new();
        let all = self.bound.get_mut(watched).into_iter().flatten();
        for (namespace, here) in all {
            for (name, bound) in here {
                let object = ObjectName {
                    namespace: namespace.clone(),
                    name: name.clone(),
                };
                let version = match objects.remove(&object) {
                    Some(version) => Version::Is(version),
                    None if bound.since < list => Version::Absent,
                    // It was bound while the list was read, which may have passed it by then.
                    None => continue,
                };
                if bound.version != version {
                    bound.version = version;
                    news.push((namespace.clone(), bound.users.iter().cloned().collect()));
                }
            }
        }
        news
    }

    /// Takes in the version of an object, or that it is gone. Returns the names of its users if that is news.
    pub(super) fn seen(
        &mut self,
        watched: &Watched,
        object: &ObjectName,
        version: Option<Box<str>>,
    ) -> Vec<Name> {
        let objects = self.bound.get_mut(watched);
        let here = objects.and_then(|it| it.get_mut(&object.namespace));
        let Some(bound) = here.and_then(|it| it.get_mut(&object.name)) else {
            return Vec::new();
        };
        let version = version.map_or(Version::Absent, Version::Is);
        if bound.version == version {
            return Vec::new();
        }
        bound.version = version;
        bound.users.iter().cloned().collect()
    }

    fn bound(&self, watched: &Watched, namespace: &str, name: &str) -> Option<&Bound> {
        self.bound.get(watched)?.get(namespace)?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::{name, stores};

    fn watched() -> Watched {
        Watched {
            what: What::Target(stores()),
            place: None,
        }
    }

    fn used(called: &str) -> Use {
        Use {
            watched: watched(),
            object: object(called),
        }
    }

    fn object(called: &str) -> ObjectName {
        ObjectName {
            namespace: name("ns"),
            name: name(called),
        }
    }

    #[test]
    fn a_kind_is_watched_as_long_as_an_object_of_it_is_bound() {
        let mut objects = Objects::default();
        objects.bind(used("a"), &name("first"));
        assert_eq!(objects.news(), Some(BTreeSet::from([watched()])));
        for called in ["a", "b"] {
            objects.bind(used(called), &name("second"));
        }
        objects.release(&used("a"), &name("first"));
        objects.release(&used("a"), &name("second"));
        assert_eq!(objects.news(), None, "b is bound");
        objects.release(&used("b"), &name("second"));
        assert_eq!(objects.news(), Some(BTreeSet::new()));
    }

    #[test]
    fn nothing_is_kept_of_an_object_that_is_not_bound() {
        let mut objects = Objects::default();
        objects.bind(used("a"), &name("user"));
        let list = objects.listing();
        let all = HashMap::from(["a", "b"].map(|it| (object(it), Box::from("1"))));
        let news = objects.listed(&watched(), list, all);
        assert_eq!(news, [(name("ns"), vec![name("user")])]);
        assert_eq!(objects.seen(&watched(), &object("b"), Some("2".into())), []);
        assert!(!objects.is_bound(&watched(), "ns", "b"));
        assert!(objects.differs(&used("a"), None));
        assert!(!objects.differs(&used("b"), None));
    }

    #[test]
    fn an_object_that_is_bound_while_a_list_is_read_is_not_taken_for_absent() {
        let mut objects = Objects::default();
        objects.bind(used("a"), &name("user"));
        let list = objects.listing();
        objects.bind(used("b"), &name("user"));
        let news = objects.listed(&watched(), list, HashMap::new());
        assert_eq!(news.len(), 1, "a is not there");
        assert!(objects.differs(&used("a"), Some("1")));
        assert!(!objects.differs(&used("b"), Some("1")));
        let list = objects.listing();
        objects.listed(&watched(), list, HashMap::new());
        assert!(objects.differs(&used("b"), Some("1")));
    }

    #[test]
    fn only_the_users_of_an_object_are_told_of_it_and_only_once() {
        let mut objects = Objects::default();
        objects.bind(used("a"), &name("one"));
        objects.bind(used("a"), &name("other"));
        objects.bind(used("b"), &name("third"));
        let mut seen =
            |version: Option<&str>| objects.seen(&watched(), &object("a"), version.map(Into::into));
        assert_eq!(seen(Some("1")), [name("one"), name("other")]);
        assert_eq!(seen(Some("1")), []);
        assert_eq!(seen(None).len(), 2);
    }
}
