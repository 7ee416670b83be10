//! Finds out which copies of a namespace are in use, and which of them are missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::revision::{CopyMetadata, NamesCopies, Origin, Pod, ReplicaSet};
use pod_reloader_core::workload::Workload;

use super::known::Look;

/// The maximum number of copies of a namespace that are looked after.
const MAX_COPIES: usize = 10_000;
/// The maximum number of missing copies that one look brings back. The others have their turn at the next ones.
const RESTORED_AT_ONCE: usize = 100;
/// The maximum number of workloads and ReplicaSets of a namespace by whose UIDs their revisions and pods are found.
const MAX_OWNERS: usize = 10_000;

/// The copies of a namespace, and what uses them.
///
/// # Guarantees
///
/// It takes memory for each copy that exists, up to [`MAX_COPIES`], for each workload that pins, and for a hundred
/// copies that are missing. Whatever pods and revisions name in addition takes none.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// The copies that exist.
    copies: BTreeMap<Name, Copy>,
    /// True if there are more copies than those.
    pub(super) is_too_large: bool,
    /// The last copy that the look before has tried to bring back, if there may be more.
    reached: Option<Name>,
    /// The first copies behind that one that are in use and do not exist. True stands for the names up to it, whose
    /// turn comes after all others.
    missing: BTreeMap<(bool, Name), Missing>,
    /// The UIDs of the workloads that pin, by their own and by those of their ReplicaSets.
    owners: HashMap<Box<str>, Arc<str>>,
    /// The numbers of pods that were created without regard to their pins, by the UID of their workload.
    unpinned: HashMap<Arc<str>, usize>,
    /// The number of copies that the templates of workloads name, and that have other content than their names say.
    stand_ins: usize,
}

/// A copy that exists.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) uid: Box<str>,
    pub(super) created: Option<Timestamp>,
    pub(super) origin: Origin,
    is_used: bool,
    /// True if it has other content than its name says, and no workload that names it has been taken in yet.
    is_new_stand_in: bool,
}

/// A copy that is in use and does not exist.
#[derive(Debug)]
pub(super) struct Missing {
    /// The name of the ConfigMap that it stands for.
    pub(super) source: Name,
    /// True if pods use it, or new ones would. Otherwise only an undo would.
    pub(super) is_needed: bool,
}

/// The user of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// A workload: its new pods need the copy.
    Workload,
    /// A revision of a workload that pins: an undo would need the copy.
    Revision,
    /// A pod. By itself, it has no copy brought back: anybody who can create pods can name any.
    Pod,
    /// A revision of anything else. It has no copy brought back either.
    OtherRevision,
}

impl Users {
    /// Returns no users. `reached` is the last copy that the look before has tried to bring back.
    pub(super) fn after(reached: Option<Name>) -> Self {
        Self {
            reached,
            ..Self::default()
        }
    }

    /// Takes in a copy that exists. Its users are passed after all copies.
    pub(super) fn copy(&mut self, copy: &CopyMetadata, keys: &Keyring) {
        let Some((_, name)) = copy.place() else {
            return;
        };
        if self.copies.len() == MAX_COPIES {
            self.is_too_large = true;
            return;
        }
        let origin = copy.origin(keys);
        let found = Copy {
            uid: copy.uid().into(),
            created: copy.created(),
            is_used: false,
            // Anybody can set the label.
            is_new_stand_in: copy.stands_in() && origin == Origin::Sealed,
            origin,
        };
        self.copies.insert(name, found);
    }

    /// Takes in a workload. Its revisions and pods are passed after all workloads.
    pub(super) fn workload(&mut self, workload: &Workload) {
        let mut is_pinned = workload.rare().pinning.is_some();
        for pins in workload.named_copies() {
            is_pinned = true;
            self.add(&pins, User::Workload);
        }
        if is_pinned {
            self.add_owner(&workload.uid, (&*workload.uid).into());
        }
    }

    /// Takes in a revision.
    pub(super) fn revision(&mut self, revision: &impl NamesCopies) {
        let Some(pins) = revision.pins() else {
            return;
        };
        let is_owned = |owner: &str| self.owners.contains_key(owner);
        let user = if revision.owner().is_some_and(is_owned) {
            User::Revision
        } else {
            User::OtherRevision
        };
        self.add(&pins, user);
    }

    /// Takes in a ReplicaSet, which is a revision. Its pods are passed after all ReplicaSets.
    pub(super) fn replica_set(&mut self, set: &ReplicaSet) {
        self.revision(set);
        let workload = set.owner().and_then(|owner| self.owners.get(owner));
        if let (Some(workload), Some(uid)) = (workload.cloned(), &set.meta().uid) {
            self.add_owner(uid, workload);
        }
    }

    /// Takes in a pod.
    pub(super) fn pod(&mut self, pod: &Pod) {
        if let Some(pins) = pod.pins() {
            self.add(&pins, User::Pod);
        }
        let workload = pod.owner().and_then(|owner| self.owners.get(owner));
        if let Some(workload) = workload.filter(|_| pod.ignores_pins()) {
            *self.unpinned.entry(workload.clone()).or_default() += 1;
        }
    }

    /// Returns the copies that nobody uses, and that are ours or may be.
    pub(super) fn unused(&self) -> impl Iterator<Item = (&Name, &Copy)> {
        let copies = self.copies.iter();
        copies.filter(|(_, copy)| copy.origin != Origin::Foreign && !copy.is_used)
    }

    /// Returns the copies to bring back.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&Name, &Missing)> {
        self.missing.iter().map(|((_, name), it)| (name, it))
    }

    /// Returns what the look has found, given the copies that cannot be brought back, and the UIDs of those that are
    /// left alone.
    pub(super) fn look(&self, lost: BTreeSet<Name>, left_alone: &BTreeSet<Box<str>>) -> Look {
        let uids = self.copies.values().map(|copy| &copy.uid);
        let last = self.missing.keys().next_back();
        let last = last.filter(|_| self.missing.len() == RESTORED_AT_ONCE);
        Look {
            copies: self.copies.len(),
            unused: self.unused().map(|(_, copy)| copy.uid.clone()).collect(),
            left_alone: uids
                .filter(|it| left_alone.contains(*it))
                .cloned()
                .collect(),
            lost,
            stand_ins: self.stand_ins,
            reached: last.map(|(_, name)| name.clone()),
            unpinned: self.unpinned.clone(),
        }
    }

    fn add(&mut self, pins: &Pins, user: User) {
        for (source, copy) in pins.iter() {
            match self.copies.get_mut(copy) {
                Some(copy) => {
                    copy.is_used = true;
                    if user == User::Workload && std::mem::take(&mut copy.is_new_stand_in) {
                        self.stand_ins += 1;
                    }
                }
                None => self.add_missing(source, copy, user),
            }
        }
    }

    fn add_missing(&mut self, source: &Name, copy: &Name, user: User) {
        // It may be one of those that are not looked after.
        if self.is_too_large {
            return;
        }
        let had_its_turn = self.reached.as_ref().is_some_and(|it| copy <= it);
        let place = (had_its_turn, copy.clone());
        match user {
            User::OtherRevision => {}
            User::Pod => {
                if let Some(missing) = self.missing.get_mut(&place) {
                    missing.is_needed = true;
                }
            }
            User::Workload | User::Revision => {
                let missing = self.missing.entry(place).or_insert_with(|| Missing {
                    source: source.clone(),
                    is_needed: false,
                });
                missing.is_needed |= user == User::Workload;
                if self.missing.len() > RESTORED_AT_ONCE {
                    self.missing.pop_last();
                }
            }
        }
    }

    fn add_owner(&mut self, uid: &str, workload: Arc<str>) {
        if self.owners.len() < MAX_OWNERS {
            self.owners.insert(uid.into(), workload);
        }
    }
}

#[cfg(test)]
mod tests {
    use pod_reloader_core::annotations::{Inherited, PIN, PINS};
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::mark::{COPY, STANDS_IN};
    use pod_reloader_core::object::WorkloadObject;
    use pod_reloader_core::reference::Reference;
    use pod_reloader_core::revision::ControllerRevision;
    use pod_reloader_core::scope::Scope;
    use pod_reloader_core::seal::{COPY_OF, Claim, Purpose, SEAL};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::mock::{keys, name};

    fn read<T: DeserializeOwned>(object: Value) -> T {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    /// Returns the pins of one ConfigMap.
    fn pins(copy: &str) -> Value {
        json!({PINS: format!("app={copy}")})
    }

    fn metadata(name: &str, owner: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Any", "name": "any", "uid": owner, "controller": true});
        json!({"name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner]})
    }

    fn copy(name: &str) -> CopyMetadata {
        labelled(name, "true")
    }

    /// Returns a copy whose label has this value.
    fn labelled(name: &str, label: &str) -> CopyMetadata {
        let own = Reference::config_map(&self::name("shop"), &self::name(name));
        let seal = keys().seal(&Claim {
            purpose: Purpose::Pin,
            object: &own,
            of: "app",
        });
        read(json!({"metadata": {
            "name": name, "namespace": "shop", "uid": name,
            "labels": {COPY: label}, "annotations": {COPY_OF: "app", SEAL: seal},
        }}))
    }

    /// Returns a Deployment that pins, or not, and whose template names a copy.
    fn workload(name: &str, is_pinned: bool, copy: &str) -> Workload {
        let pin = if is_pinned { "configmaps" } else { "false" };
        let pins = if copy.is_empty() {
            json!({})
        } else {
            pins(copy)
        };
        let object: WorkloadObject = read(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "annotations": {PIN: pin}},
            "spec": {"template": {"metadata": {"annotations": pins}}},
        }));
        let scope = Scope::new([], self::name("operator")).and_pins(true);
        let read = scope.read_in(WorkloadKind::DEPLOYMENT, object, &Inherited::default());
        read.unwrap()
    }

    fn replica_set(name: &str, owner: &str, copy: &str) -> ReplicaSet {
        let template = json!({"metadata": {"annotations": pins(copy)}});
        read(json!({"metadata": metadata(name, owner), "spec": {"template": template}}))
    }

    fn controller_revision(owner: &str, copy: &str) -> ControllerRevision {
        let template = json!({"metadata": {"annotations": pins(copy)}});
        read(
            json!({"metadata": metadata("db-1", owner), "revision": 1, "data": {"spec": {"template": template}}}),
        )
    }

    fn pod(owner: &str, copy: &str, uses: &str) -> Pod {
        let mut metadata = metadata("web-1-a", owner);
        metadata["annotations"] = pins(copy);
        let container = json!({"name": "main", "envFrom": [{"configMapRef": {"name": uses}}]});
        read(json!({"metadata": metadata, "spec": {"containers": [container]}}))
    }

    fn missing(users: &Users) -> Vec<(&str, bool)> {
        let missing = users.missing();
        missing
            .map(|(name, it)| (name.as_str(), it.is_needed))
            .collect()
    }

    fn unused(users: &Users) -> Vec<&str> {
        users.unused().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn whatever_names_a_copy_that_exists_uses_it() {
        let mut users = Users::default();
        for at in 0..5 {
            users.copy(&copy(&format!("app-000000000{at}")), &keys());
        }
        let mine = read(json!({"metadata": {"name": "mine", "namespace": "shop"}}));
        users.copy(&mine, &keys());
        users.workload(&workload("web", false, "app-0000000000"));
        users.replica_set(&replica_set("other-1", "other", "app-0000000001"));
        users.revision(&controller_revision("other", "app-0000000002"));
        users.pod(&pod("other", "app-0000000003", "x"));
        assert_eq!(unused(&users), ["app-0000000004"]);
        assert!(missing(&users).is_empty());
    }

    #[test]
    fn workloads_and_revisions_of_those_that_pin_bring_copies_back_and_nothing_else() {
        let mut users = Users::default();
        users.workload(&workload("web", true, ""));
        users.workload(&workload("old", false, "app-0000000000"));
        users.workload(&workload("other", false, ""));
        users.replica_set(&replica_set("web-1", "web", "app-0000000001"));
        users.revision(&controller_revision("old", "app-0000000002"));
        users.replica_set(&replica_set("other-1", "other", "app-0000000003"));
        users.revision(&controller_revision("nobody", "app-0000000004"));
        users.pod(&pod("web-1", "app-0000000005", "x"));
        let expected = [
            ("app-0000000000", true),
            ("app-0000000001", false),
            ("app-0000000002", false),
        ];
        assert_eq!(missing(&users), expected);
        users.pod(&pod("web-1", "app-0000000001", "x"));
        assert_eq!(missing(&users)[1], ("app-0000000001", true));
    }

    #[test]
    fn names_in_pods_take_no_memory() {
        let mut users = Users::default();
        users.workload(&workload("web", true, ""));
        for at in 0..1_000 {
            users.pod(&pod("web", &format!("app-{at:010}"), "x"));
            users.pod(&pod(&format!("owner-{at}"), "app-0000000000", "app"));
        }
        let kept = (
            users.missing.len(),
            users.owners.len(),
            users.unpinned.len(),
        );
        assert_eq!(kept, (0, 1, 0));
    }

    #[test]
    fn copies_that_are_missing_take_turns() {
        let looked = |reached: Option<Name>| {
            let mut users = Users::after(reached);
            for at in (0..250).rev() {
                users.workload(&workload("web", true, &format!("app-{at:010}")));
            }
            let found = missing(&users);
            let ends = (found[0].0.to_owned(), found[found.len() - 1].0.to_owned());
            assert_eq!(found.len(), RESTORED_AT_ONCE);
            let look = users.look(BTreeSet::new(), &BTreeSet::new());
            (ends, look.reached)
        };
        let mut reached = None;
        for (first, last) in [(0, 99), (100, 199), (200, 49), (50, 149)] {
            let ends;
            (ends, reached) = looked(reached);
            assert_eq!(
                ends,
                (format!("app-{first:010}"), format!("app-{last:010}"))
            );
        }
    }

    #[test]
    fn a_few_that_are_missing_are_all_looked_at_each_time() {
        let mut users = Users::default();
        users.workload(&workload("web", true, "app-0000000000"));
        let look = users.look(BTreeSet::new(), &BTreeSet::new());
        assert_eq!(look.reached, None);
    }

    #[test]
    fn with_more_copies_than_are_looked_after_none_counts_as_missing() {
        let mut users = Users::default();
        for at in 0..=MAX_COPIES {
            assert!(!users.is_too_large);
            users.copy(&copy(&format!("app-{at:010}")), &keys());
        }
        users.workload(&workload("web", true, "app-0000000000"));
        users.workload(&workload("api", true, &format!("app-{MAX_COPIES:010}")));
        assert!(users.is_too_large);
        assert!(missing(&users).is_empty());
        assert_eq!(unused(&users).len(), MAX_COPIES - 1);
    }

    #[test]
    fn pods_that_ignore_their_pins_are_counted_for_workloads_that_pin() {
        let mut users = Users::default();
        users.workload(&workload("web", true, ""));
        users.workload(&workload("other", false, ""));
        for (set, owner) in [("web-1", "web"), ("web-2", "web"), ("other-1", "other")] {
            users.replica_set(&replica_set(set, owner, "app-0000000001"));
            users.pod(&pod(set, "app-0000000001", "app"));
        }
        users.pod(&pod("web", "app-0000000001", "app"));
        users.pod(&pod("nobody", "app-0000000001", "app"));
        users.pod(&pod("web-1", "app-0000000001", "app-0000000001"));
        let look = users.look(BTreeSet::new(), &BTreeSet::new());
        assert_eq!(look.unpinned, HashMap::from([("web".into(), 3)]));
    }

    #[test]
    fn a_stand_in_that_new_pods_use_is_counted_once() {
        let mut users = Users::default();
        for at in 0..2 {
            let name = format!("app-000000000{at}");
            users.copy(&labelled(&name, STANDS_IN), &keys());
        }
        users.copy(&copy("app-0000000002"), &keys());
        let theirs = json!({COPY: STANDS_IN});
        let theirs = read(json!({"metadata": {
            "name": "app-0000000003", "namespace": "shop", "labels": theirs,
        }}));
        users.copy(&theirs, &keys());
        for at in [0, 0, 2, 3] {
            users.workload(&workload("web", true, &format!("app-000000000{at}")));
        }
        users.replica_set(&replica_set("web-1", "web", "app-0000000001"));
        let look = users.look(BTreeSet::new(), &BTreeSet::new());
        assert_eq!(look.stand_ins, 1);
    }
}
