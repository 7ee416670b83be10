//! Remembers the ConfigMaps that we have stored and restored, each at the expense of its namespace.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::kept::{Kept, Original, Role};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use tokio::time::Instant;

use crate::runtime::share::{Charge, Shares};

/// The memory that the ConfigMaps of one namespace may take, in bytes.
const NAMESPACE_MEMORY: usize = 4 << 20;
/// The memory that all of them may take, in bytes.
const MEMORY: usize = 32 << 20;
/// The memory that one of them takes, apart from names, in bytes: here, in the queue, and while it is handled.
const ENTRY: usize = 768;
/// The maximum number of times that something is tried that the apiserver does not allow. While it starts, it may refuse
/// what it allows a minute later.
pub(super) const TRIES: u32 = 7;

/// The ConfigMaps that are ours.
pub(super) struct Known {
    /// They, by namespace and name.
    namespaces: BTreeMap<Name, BTreeMap<Name, Entry>>,
    shares: Shares,
    /// The namespaces that have more than there is room for.
    full: BTreeSet<Name>,
}

struct Entry {
    kept: Kept,
    /// The time at which it was seen first.
    since: Instant,
    /// The number of times that the apiserver has not allowed what was to be done with this version.
    denials: u32,
    /// True unless a list has begun that has not shown it yet.
    is_shown: bool,
    _charge: Charge,
}

/// The error of a ConfigMap for which there is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// True if it is the first one of its namespace.
    pub(super) is_first: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            namespaces: BTreeMap::new(),
            shares: Shares::new(NAMESPACE_MEMORY, MEMORY),
            full: BTreeSet::new(),
        }
    }
}

impl Known {
    /// Takes in one that is ours as it is now.
    ///
    /// # Errors
    ///
    /// There is no room for it.
    pub(super) fn insert(
        &mut self,
        object: &Reference,
        kept: Kept,
        now: Instant,
    ) -> Result<(), LeftOut> {
        let (mut since, mut denials) = (now, 0);
        if let Some(before) = self.take(object)
            && before.kept.uid == kept.uid
        {
            since = before.since;
            if before.kept.resource_version == kept.resource_version {
                denials = before.denials;
            }
        }
        let charge = self
            .shares
            .charge(&object.namespace, weight(object, &kept))
            .map_err(|_| LeftOut {
                is_first: self.full.insert(object.namespace.clone()),
            })?;
        let entry = Entry {
            kept,
            since,
            denials,
            is_shown: true,
            _charge: charge,
        };
        let here = self.namespaces.entry(object.namespace.clone()).or_default();
        here.insert(object.name.clone(), entry);
        Ok(())
    }

    /// Forgets one that is gone, or is not ours any more.
    pub(super) fn remove(&mut self, object: &Reference) {
        self.take(object);
        if !self.namespaces.contains_key(&object.namespace) {
            self.full.remove(&object.namespace);
        }
    }

    /// Takes in that a list of those in a namespace begins, or of all of them.
    pub(super) fn listing(&mut self, place: Option<&Name>) {
        for (_, here) in self.places(place) {
            here.values_mut().for_each(|entry| entry.is_shown = false);
        }
    }

    /// Takes in that such a list is complete: what it has not shown is gone.
    pub(super) fn listed(&mut self, place: Option<&Name>) {
        for (_, here) in self.places(place) {
            here.retain(|_, entry| entry.is_shown);
        }
        self.namespaces.retain(|_, here| !here.is_empty());
        let namespaces = &self.namespaces;
        self.full
            .retain(|namespace| namespaces.contains_key(namespace));
    }

    /// Returns all that there are in a namespace, or everywhere, each with what it is for.
    pub(super) fn all(&self, place: Option<&Name>) -> impl Iterator<Item = (Reference, &Role)> {
        let all = self.namespaces.iter();
        let all = all.filter(move |(namespace, _)| place.is_none_or(|it| it == *namespace));
        all.flat_map(|(namespace, here)| {
            let here = here.iter();
            here.map(move |(name, it)| (Reference::config_map(namespace, name), &it.kept.role))
        })
    }

    /// Returns one with which something is to be done, and the time at which it was seen first.
    pub(super) fn to_do(&self, object: &Reference) -> Option<(Kept, Instant)> {
        let entry = self.namespaces.get(&object.namespace)?.get(&object.name)?;
        (entry.denials < TRIES).then(|| (entry.kept.clone(), entry.since))
    }

    /// Returns those in a namespace that were restored and may be deleted, and the time at which the last of them was
    /// seen first. `None` if there are none.
    pub(super) fn restored(
        &self,
        namespace: &Name,
    ) -> Option<(BTreeMap<Reference, Kept>, Instant)> {
        let mut restored = BTreeMap::new();
        let mut last = None;
        for (name, entry) in self.namespaces.get(namespace)? {
            if entry.kept.role == Role::Restored && entry.denials < TRIES {
                let object = Reference::config_map(namespace, name);
                restored.insert(object, entry.kept.clone());
                last = last.max(Some(entry.since));
            }
        }
        Some((restored, last?))
    }

    /// Returns true if a later one is stored for the same object.
    pub(super) fn is_superseded(&self, namespace: &Name, kept: &Kept, original: &Original) -> bool {
        let here = self.namespaces.get(namespace).into_iter().flatten();
        kept.is_superseded(original, here.map(|(_, entry)| &entry.kept))
    }

    /// Notes that the apiserver does not allow what was to be done with this version. Returns how often that has
    /// happened, if it is to be tried again.
    pub(super) fn denied(&mut self, object: &Reference, kept: &Kept) -> Option<u32> {
        let here = self.namespaces.get_mut(&object.namespace)?;
        let entry = here.get_mut(&object.name).filter(|it| it.kept == *kept)?;
        entry.denials += 1;
        (entry.denials < TRIES).then_some(entry.denials)
    }

    fn take(&mut self, object: &Reference) -> Option<Entry> {
        let here = self.namespaces.get_mut(&object.namespace)?;
        let entry = here.remove(&object.name);
        if here.is_empty() {
            self.namespaces.remove(&object.namespace);
        }
        entry
    }

    fn places(
        &mut self,
        place: Option<&Name>,
    ) -> impl Iterator<Item = (&Name, &mut BTreeMap<Name, Entry>)> {
        let all = self.namespaces.iter_mut();
        all.filter(move |(namespace, _)| place.is_none_or(|it| it == *namespace))
    }
}

/// Returns the memory that one takes, in bytes.
fn weight(object: &Reference, kept: &Kept) -> usize {
    let original = match &kept.role {
        Role::Stored(original) => original.name.as_str().len(),
        Role::Restored => 0,
    };
    ENTRY + object.name.as_str().len() + original
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_reloader_core::kept::{KEPT, KeptMetadata};
    use serde_json::json;

    use super::*;
    use crate::mock::{keys, name};

    fn object(namespace: &str, object: &str) -> Reference {
        Reference::config_map(&name(namespace), &name(object))
    }

    fn restored(version: &str) -> Kept {
        let metadata = json!({
            "name": "app", "namespace": "shop", "uid": "u", "resourceVersion": version,
            "labels": {KEPT: "true"},
            "managedFields": [{"manager": "pod-reloader"}],
        });
        let metadata: KeptMetadata = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        metadata.kept(&keys()).unwrap()
    }

    impl Known {
        fn sees(&mut self, namespace: &str, object: &str) -> Result<(), LeftOut> {
            self.insert(
                &self::object(namespace, object),
                restored("1"),
                Instant::now(),
            )
        }

        fn count(&self) -> usize {
            self.all(None).count()
        }
    }

    #[test]
    fn a_namespace_with_too_many_is_told_once_and_leaves_the_others_their_room() {
        let mut known = Known::default();
        let mut left_out = Vec::new();
        for at in 0..10_000 {
            left_out.extend(known.sees("eve", &format!("app-{at}")).err());
        }
        let count = known.count();
        assert!((4_000..9_000).contains(&count), "{count}");
        assert_eq!(left_out.len(), 10_000 - count);
        let told = left_out.iter().filter(|it| it.is_first);
        assert_eq!(told.count(), 1);
        assert_eq!(known.sees("shop", "app"), Ok(()));
        known.remove(&object("eve", "app-0"));
        assert_eq!(known.sees("eve", "another"), Ok(()));
    }

    #[test]
    fn what_a_list_does_not_show_is_gone_in_its_namespace_only() {
        let mut known = Known::default();
        for (namespace, object) in [("eve", "app"), ("shop", "app"), ("shop", "other")] {
            known.sees(namespace, object).unwrap();
        }
        known.listing(Some(&name("shop")));
        known.sees("shop", "other").unwrap();
        known.listed(Some(&name("shop")));
        let all: Vec<_> = known.all(None).map(|(it, _)| it).collect();
        assert_eq!(all, [object("eve", "app"), object("shop", "other")]);
        known.listing(None);
        known.listed(None);
        assert_eq!(known.count(), 0);
    }

    #[test]
    fn what_is_not_allowed_is_not_tried_again_until_there_is_another_version() {
        let mut known = Known::default();
        let app = object("shop", "app");
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        known.insert(&app, restored("1"), now).unwrap();
        let tries = (1..=TRIES).map(|_| known.denied(&app, &restored("1")));
        let tries: Vec<_> = tries.collect();
        assert_eq!(tries[..2], [Some(1), Some(2)]);
        assert_eq!(tries.last(), Some(&None));
        // A list shows it again.
        known.insert(&app, restored("1"), later).unwrap();
        assert_eq!(known.to_do(&app), None);
        assert_eq!(known.restored(&app.namespace), None);
        known.insert(&app, restored("2"), later).unwrap();
        assert_eq!(known.to_do(&app), Some((restored("2"), now)));
        assert_eq!(known.denied(&app, &restored("1")), None, "an old version");
        let expected = BTreeMap::from([(app.clone(), restored("2"))]);
        assert_eq!(known.restored(&app.namespace), Some((expected, now)));
    }
}
