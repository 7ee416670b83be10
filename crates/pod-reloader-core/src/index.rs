//! The index: the managed workloads, and which of them reference a config object.

mod consumers;
mod left_out;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use self::consumers::Consumers;
use crate::digest::DataKeys;
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};
use crate::workload::{Workload, WorkloadId};

/// The maximum number of workloads remembered as left out in one namespace. Any others come back when
/// everything is listed again.
pub const MAX_LEFT_OUT: usize = 1000;

/// The managed workloads and their references, in both directions. Knows neither network nor time. Its user may note an
/// `N` of each workload, which stays as long as the workload is managed.
///
/// # Guarantees
///
/// The workloads of one namespace weigh no more than its share. A managed workload stays managed unless it
/// outgrows the room itself: a full namespace takes in no further workload until one of its own is removed or
/// becomes smaller.
#[derive(Debug)]
pub struct Index<N = ()> {
    /// The maximum total weight of the workloads of one namespace, in bytes.
    share: usize,
    workloads: HashMap<Arc<WorkloadId>, Entry<N>>,
    /// The workloads that name an object.
    consumers: HashMap<Arc<Reference>, Consumers>,
    /// The workloads that have regular expressions for names of a kind, by namespace.
    with_patterns: HashMap<(ConfigKind, Name), BTreeSet<Arc<WorkloadId>>>,
    /// The workloads that track a SecretProviderClass, by namespace and class.
    by_class: HashMap<(Name, Name), BTreeSet<Arc<WorkloadId>>>,
    namespaces: HashMap<Name, Namespace>,
}

#[derive(Debug)]
struct Entry<N> {
    workload: Arc<Workload>,
    note: N,
}

/// The room taken in a namespace.
#[derive(Debug, Default)]
struct Namespace {
    /// The total weight of the managed workloads.
    weight: usize,
    /// The workloads for which there is no room, each with its weight: at most [`MAX_LEFT_OUT`].
    left_out: BTreeMap<WorkloadId, usize>,
}

/// The result of giving a workload to the index.
#[derive(Debug)]
pub enum Applied {
    /// The index already held exactly this workload.
    Unchanged,
    /// The workload is managed in its new state.
    Managed(Affected),
    /// The workload is not managed, because its namespace has no room for it.
    LeftOut(LeftOut),
}

/// A workload that is not managed because its namespace has no room for it.
#[derive(Debug)]
pub struct LeftOut {
    /// The workload.
    pub workload: Arc<Workload>,
    /// The affected objects, if the workload was managed before.
    pub affected: Option<Affected>,
    /// True if it was not yet remembered as left out, and now is.
    pub is_news: bool,
    /// True if it is the first workload of its namespace to be left out.
    pub is_first: bool,
}

/// The objects affected by a change of the index: what is remembered of them may have missed events.
#[derive(Debug, Default)]
pub struct Affected {
    /// The objects that are no longer tracked by any workload, or were tracked by none before.
    pub references: Vec<Reference>,
    /// All objects of a kind in a namespace, because a regular expression was added or removed there. What
    /// is remembered of objects that [stay tracked](Index::stays_tracked) is still valid.
    pub namespaces: Vec<(ConfigKind, Name)>,
    before: Option<Arc<Workload>>,
    now: Option<Arc<Workload>>,
}

impl Default for Index {
    /// Creates an index without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl<N: Default> Index<N> {
    /// Creates an empty index, in which the workloads of one namespace may weigh at most `share` bytes.
    pub fn new(share: usize) -> Self {
        Self {
            share,
            workloads: HashMap::new(),
            consumers: HashMap::new(),
            with_patterns: HashMap::new(),
            by_class: HashMap::new(),
            namespaces: HashMap::new(),
        }
    }

    /// Adds or updates a managed workload, if its namespace has room for it.
    pub fn apply(&mut self, mut workload: Workload) -> Applied {
        let before = self.workload(&workload.id);
        if before.as_ref().is_some_and(|before| **before == workload) {
            return Applied::Unchanged;
        }
        self.share_references(&mut workload);
        let weight = workload.weight();
        let freed = before.as_ref().map_or(0, |before| before.weight());
        if (self.weight(&workload.id.namespace) - freed).saturating_add(weight) > self.share {
            return Applied::LeftOut(self.leave_out(Arc::new(workload), weight));
        }
        if let Some(before) = before.as_ref().filter(|it| {
            it.references == workload.references && it.rare().classes == workload.rare().classes
        }) {
            self.replace(before, workload, weight);
            return Applied::Managed(Affected::default());
        }
        let removed = self.remove(&workload.id);
        let now = Arc::new(workload);
        let entry = Entry {
            workload: now.clone(),
            note: removed.map(|it| it.note).unwrap_or_default(),
        };
        self.insert(entry, weight);
        Applied::Managed(self.affected(before, Some(now)))
    }

    /// Removes a workload that is gone or no longer managed. Returns the affected objects if it was in
    /// the index.
    pub fn delete(&mut self, id: &WorkloadId) -> Option<Affected> {
        let before = self.remove(id);
        if let Some(namespace) = self.namespaces.get_mut(&id.namespace) {
            namespace.left_out.remove(id);
            if namespace.weight == 0 && namespace.left_out.is_empty() {
                self.namespaces.remove(&id.namespace);
            }
        }
        Some(self.affected(Some(before?.workload), None))
    }

    /// Returns the workload, if it is managed.
    pub fn workload(&self, id: &WorkloadId) -> Option<Arc<Workload>> {
        Some(self.workloads.get(id)?.workload.clone())
    }

    /// Returns the note of a workload, if it is managed.
    pub fn note(&self, id: &WorkloadId) -> Option<&N> {
        Some(&self.workloads.get(id)?.note)
    }

    /// Returns the note of a workload to change, if it is managed.
    pub fn note_mut(&mut self, id: &WorkloadId) -> Option<&mut N> {
        Some(&mut self.workloads.get_mut(id)?.note)
    }

    /// Returns the reference to an object that a workload names, for another table to share.
    pub fn shared_reference(&self, reference: &Reference) -> Option<Arc<Reference>> {
        let (reference, _) = self.consumers.get_key_value(reference)?;
        Some(reference.clone())
    }

    /// Returns all managed workloads.
    pub fn workloads(&self) -> impl ExactSizeIterator<Item = &WorkloadId> {
        self.workloads.keys().map(|id| &**id)
    }

    /// Returns the workloads that may track the object.
    pub fn workloads_of<'a>(
        &'a self,
        reference: &'a Reference,
    ) -> impl Iterator<Item = &'a WorkloadId> {
        let consumers = self.consumers.get(reference);
        let named = consumers.map_or(&[][..], Consumers::all);
        let matching = self.matching(reference);
        let others = matching.filter(move |id| consumers.is_none_or(|it| !it.contain(id)));
        named.iter().chain(others).map(|id| &**id)
    }

    /// Returns the workloads that track a SecretProviderClass in a namespace.
    pub fn workloads_of_class(
        &self,
        namespace: &Name,
        class: &Name,
    ) -> impl Iterator<Item = &WorkloadId> {
        let place = (namespace.clone(), class.clone());
        let workloads = self.by_class.get(&place).into_iter().flatten();
        workloads.map(|id| &**id)
    }

    /// Returns the keys of an object that matter individually to any workload.
    pub fn data_keys(&self, reference: &Reference) -> DataKeys {
        let consumers = self.workloads_of(reference);
        let consumers = consumers.filter_map(|id| self.workloads.get(id));
        let keys: BTreeSet<&str> = consumers
            .flat_map(|it| it.workload.data_keys(reference))
            .collect();
        keys.into_iter().map(Into::into).collect()
    }

    /// Returns true if any workload may track the object.
    pub fn is_referenced(&self, reference: &Reference) -> bool {
        self.consumers.contains_key(reference) || self.matching(reference).next().is_some()
    }

    /// Returns true if a workload that tracked the object before `affected` still tracks it, so no event was
    /// missed.
    pub fn stays_tracked(&self, reference: &Reference, affected: &Affected) -> bool {
        let mentions = |workload: &Option<Arc<Workload>>| {
            workload
                .as_ref()
                .is_some_and(|workload| workload.references.mention(reference))
        };
        let changed = affected.before.as_ref().or(affected.now.as_ref());
        let changed = changed.map(|workload| &*workload.id);
        let is_other = |id: &WorkloadId| Some(id) != changed;
        self.workloads_of(reference).any(is_other)
            || mentions(&affected.before) && mentions(&affected.now)
    }

    /// Returns true if any workload has a regular expression for names of a kind in a namespace.
    pub fn has_patterns(&self, place: &(ConfigKind, Name)) -> bool {
        self.with_patterns.contains_key(place)
    }

    /// Returns the number of named objects, and the number of references to them: one for each object of
    /// each workload. Matches of regular expressions are not included.
    pub fn referenced(&self) -> (usize, usize) {
        let references = self.consumers.values().map(|it| it.all().len()).sum();
        (self.consumers.len(), references)
    }

    /// Returns the total weight of a namespace's managed workloads, in bytes.
    pub fn weight(&self, namespace: &Name) -> usize {
        self.namespaces.get(namespace).map_or(0, |it| it.weight)
    }

    /// Makes a workload use what the index has anyway: its identity, or else the name of its namespace, and the
    /// references to objects that others name.
    fn share_references(&self, workload: &mut Workload) {
        if let Some((id, _)) = self.workloads.get_key_value(&workload.id) {
            workload.id = id.clone();
        } else if let Some((namespace, _)) = self.namespaces.get_key_value(&workload.id.namespace) {
            Arc::make_mut(&mut workload.id).namespace = namespace.clone();
        }
        let namespace = workload.id.namespace.clone();
        workload.share_references(|reference| {
            debug_assert_eq!(
                reference.namespace, namespace,
                "a reference is into its own namespace"
            );
            let known = self.shared_reference(reference);
            known.unwrap_or_else(|| {
                Arc::new(Reference {
                    namespace: namespace.clone(),
                    ..reference.clone()
                })
            })
        });
    }

    /// Replaces a workload by its new state, which has the same references.
    fn replace(&mut self, before: &Workload, now: Workload, weight: usize) {
        if let Some(namespace) = self.namespaces.get_mut(&now.id.namespace) {
            namespace.weight = namespace.weight - before.weight() + weight;
        }
        if let Some(entry) = self.workloads.get_mut(&now.id) {
            entry.workload = Arc::new(now);
        }
    }

    fn insert(&mut self, entry: Entry<N>, weight: usize) {
        let workload = &entry.workload;
        let id = workload.id.clone();
        for reference in workload.references.shared() {
            let consumers = self.consumers.entry(reference.clone());
            let consumers = consumers.or_insert_with(|| Consumers::One(id.clone()));
            consumers.insert(&id);
        }
        for place in places(workload) {
            let workloads = self.with_patterns.entry(place).or_default();
            workloads.insert(id.clone());
        }
        for place in classes(workload) {
            let workloads = self.by_class.entry(place).or_default();
            workloads.insert(id.clone());
        }
        let namespace = self.namespaces.entry(id.namespace.clone()).or_default();
        namespace.weight += weight;
        namespace.left_out.remove(&*id);
        self.workloads.insert(id, entry);
    }

    fn remove(&mut self, id: &WorkloadId) -> Option<Entry<N>> {
        let entry = self.workloads.remove(id)?;
        let workload = &entry.workload;
        for reference in workload.references.named() {
            let consumers = self.consumers.get_mut(reference);
            if consumers.is_some_and(|consumers| consumers.remove(id)) {
                self.consumers.remove(reference);
            }
        }
        for place in places(workload) {
            if let Some(workloads) = self.with_patterns.get_mut(&place) {
                workloads.remove(id);
                if workloads.is_empty() {
                    self.with_patterns.remove(&place);
                }
            }
        }
        for place in classes(workload) {
            if let Some(workloads) = self.by_class.get_mut(&place) {
                workloads.remove(id);
                if workloads.is_empty() {
                    self.by_class.remove(&place);
                }
            }
        }
        if let Some(namespace) = self.namespaces.get_mut(&id.namespace) {
            namespace.weight -= workload.weight();
        }
        Some(entry)
    }

    /// Returns the objects affected by a change of a workload, which the index already contains.
    fn affected(&self, before: Option<Arc<Workload>>, now: Option<Arc<Workload>>) -> Affected {
        let mut affected = Affected {
            before,
            now,
            ..Affected::default()
        };
        let both = || affected.now.iter().chain(&affected.before);
        let named = both().flat_map(|workload| workload.references.named());
        let named: BTreeSet<_> = named.collect();
        let is_news = |reference: &&Reference| !self.stays_tracked(reference, &affected);
        let references = named.into_iter().filter(is_news).cloned().collect();
        let namespaces: BTreeSet<_> = both().flat_map(|workload| places(workload)).collect();
        let same_patterns = match (&affected.before, &affected.now) {
            (Some(before), Some(now)) => before.references.same_patterns(&now.references),
            _ => false,
        };
        if !same_patterns {
            affected.namespaces = namespaces.into_iter().collect();
        }
        affected.references = references;
        affected
    }

    fn matching<'a>(
        &'a self,
        reference: &'a Reference,
    ) -> impl Iterator<Item = &'a Arc<WorkloadId>> {
        let place = || (reference.kind, reference.namespace.clone());
        // Most clusters have no patterns, and this runs for each event of each object.
        let there = match self.with_patterns.is_empty() {
            true => None,
            false => self.with_patterns.get(&place()),
        };
        there.into_iter().flatten().filter(|id| {
            let entry = self.workloads.get(*id);
            entry.is_some_and(|it| it.workload.references.matches(reference))
        })
    }
}

fn places(workload: &Workload) -> impl Iterator<Item = (ConfigKind, Name)> {
    let kinds = workload.references.pattern_kinds();
    kinds.map(|kind| (kind, workload.id.namespace.clone()))
}

fn classes(workload: &Workload) -> impl Iterator<Item = (Name, Name)> {
    let names = workload.rare().classes.iter().flat_map(|it| &it.names);
    names.map(|class| (workload.id.namespace.clone(), class.clone()))
}

#[cfg(test)]
mod tests;
