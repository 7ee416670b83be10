//! Which workloads are kept, and which of them reference a config object.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::digest::DataKeys;
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};
use crate::workload::{Workload, WorkloadId};

/// The most workloads of one namespace that are remembered as left out. Further ones come back when
/// everything is listed again.
pub const MAX_LEFT_OUT: usize = 1000;

/// The kept workloads and their references, both ways. Knows neither network nor time.
///
/// # Guarantees
/// The workloads of one namespace weigh no more than its share. What is managed stays managed: a
/// namespace that is full takes in no further workload until one of its own goes or becomes smaller.
#[derive(Debug)]
pub struct Index {
    /// The most that the workloads of one namespace may weigh together, in bytes.
    share: usize,
    workloads: HashMap<Arc<WorkloadId>, Arc<Workload>>,
    /// Sorted. Most objects are named by one or a few workloads.
    consumers: HashMap<Reference, Vec<Arc<WorkloadId>>>,
    /// The workloads with regular expressions for names of a kind, by namespace.
    with_patterns: HashMap<(ConfigKind, Name), BTreeSet<Arc<WorkloadId>>>,
    namespaces: HashMap<Name, Namespace>,
}

/// How full a namespace is.
#[derive(Debug, Default)]
struct Namespace {
    /// The weight of its managed workloads.
    weight: usize,
    /// The workloads for which there is no room, each with its weight: at most [`MAX_LEFT_OUT`].
    left_out: BTreeMap<WorkloadId, usize>,
}

/// What became of a workload that was handed to the index.
#[derive(Debug)]
pub enum Applied {
    /// It was known as it is.
    Unchanged,
    /// It is managed as it is now.
    Managed(Turned),
    /// Its namespace has no room for it, so it is not managed.
    LeftOut(LeftOut),
}

/// A workload that is not managed because its namespace has no room for it.
#[derive(Debug)]
pub struct LeftOut {
    /// The workload.
    pub workload: Arc<Workload>,
    /// For which objects that matters, where it was managed before.
    pub turned: Option<Turned>,
    /// Whether it was not known to be left out.
    pub is_news: bool,
    /// Whether it is the first of its namespace.
    pub is_first: bool,
}

/// For which objects a change of the index matters: what is remembered of them may have missed events.
#[derive(Debug, Default)]
pub struct Turned {
    /// Those that nobody tracks any more, or nobody tracked before.
    pub references: Vec<Reference>,
    /// All of a kind in a namespace: a regular expression was added there, or taken away. What is known
    /// of those that [stay tracked](Index::stays_tracked) is still good.
    pub namespaces: Vec<(ConfigKind, Name)>,
    before: Option<Arc<Workload>>,
    now: Option<Arc<Workload>>,
}

impl Default for Index {
    /// Without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Index {
    /// An empty index, in which the workloads of one namespace weigh at most `share` bytes together.
    pub fn new(share: usize) -> Self {
        Self {
            share,
            workloads: HashMap::new(),
            consumers: HashMap::new(),
            with_patterns: HashMap::new(),
            namespaces: HashMap::new(),
        }
    }

    /// Takes in a workload that is kept, as it is now, if its namespace has room for it.
    pub fn apply(&mut self, workload: Workload) -> Applied {
        let before = self.workloads.get(&workload.id).cloned();
        if before.as_ref().is_some_and(|before| **before == workload) {
            return Applied::Unchanged;
        }
        let weight = workload.weight();
        let freed = before.as_ref().map_or(0, |before| before.weight());
        if (self.weight(&workload.id.namespace) - freed).saturating_add(weight) > self.share {
            return Applied::LeftOut(self.leave_out(Arc::new(workload), weight));
        }
        if let Some(before) = before
            .as_ref()
            .filter(|it| it.references == workload.references)
        {
            self.replace(before, workload, weight);
            return Applied::Managed(Turned::default());
        }
        self.remove(&workload.id);
        let now = Arc::new(workload);
        self.insert(now.clone(), weight);
        Applied::Managed(self.turned(before, Some(now)))
    }

    /// Forgets a workload: it is gone, or no longer kept. Where it was managed, says for which objects it
    /// matters.
    pub fn delete(&mut self, id: &WorkloadId) -> Option<Turned> {
        let before = self.remove(id);
        if let Some(namespace) = self.namespaces.get_mut(&id.namespace) {
            namespace.left_out.remove(id);
            if namespace.weight == 0 && namespace.left_out.is_empty() {
                self.namespaces.remove(&id.namespace);
            }
        }
        Some(self.turned(Some(before?), None))
    }

    /// The workload, if it is kept.
    pub fn workload(&self, id: &WorkloadId) -> Option<Arc<Workload>> {
        self.workloads.get(id).cloned()
    }

    /// All that are kept.
    pub fn workloads(&self) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.keys().map(|id| &**id)
    }

    /// The workloads that the object may count for.
    pub fn workloads_of<'a>(
        &'a self,
        reference: &'a Reference,
    ) -> impl Iterator<Item = &'a WorkloadId> {
        let named = self.consumers.get(reference).into_iter().flatten();
        let all = named.chain(
            self.matching(reference)
                .filter(|id| !self.is_named_by(reference, id)),
        );
        all.map(|id| &**id)
    }

    /// The keys of an object that decide about any workload by themselves.
    pub fn data_keys(&self, reference: &Reference) -> DataKeys {
        let consumers = self.workloads_of(reference);
        let consumers = consumers.filter_map(|id| self.workloads.get(id));
        let keys: BTreeSet<&str> = consumers.flat_map(|it| it.data_keys(reference)).collect();
        keys.into_iter().map(Into::into).collect()
    }

    /// Whether the object may count for any workload.
    pub fn is_referenced(&self, reference: &Reference) -> bool {
        self.consumers.contains_key(reference) || self.matching(reference).next().is_some()
    }

    /// Whether a workload tracked the object before `turned` that tracks it still: then no event of it
    /// was missed.
    pub fn stays_tracked(&self, reference: &Reference, turned: &Turned) -> bool {
        let mentions = |workload: &Option<Arc<Workload>>| {
            workload
                .as_ref()
                .is_some_and(|workload| workload.references.mention(reference))
        };
        let turned_id = turned.before.as_ref().or(turned.now.as_ref());
        let turned_id = turned_id.map(|workload| &workload.id);
        let is_other = |id: &WorkloadId| Some(id) != turned_id;
        self.workloads_of(reference).any(is_other)
            || mentions(&turned.before) && mentions(&turned.now)
    }

    /// Whether any workload has a regular expression for names of a kind in a namespace.
    pub fn has_patterns(&self, place: &(ConfigKind, Name)) -> bool {
        self.with_patterns.contains_key(place)
    }

    /// How many objects are named, and how many references to them there are: one for each object of each
    /// workload. What regular expressions match is no part of it.
    pub fn referenced(&self) -> (usize, usize) {
        let references = self.consumers.values().map(Vec::len).sum();
        (self.consumers.len(), references)
    }

    /// How much the managed workloads of a namespace weigh, in bytes.
    pub fn weight(&self, namespace: &Name) -> usize {
        self.namespaces.get(namespace).map_or(0, |it| it.weight)
    }

    /// Whether the workload is remembered as left out.
    pub fn is_left_out(&self, id: &WorkloadId) -> bool {
        let namespace = self.namespaces.get(&id.namespace);
        namespace.is_some_and(|it| it.left_out.contains_key(id))
    }

    /// The workloads that are remembered as left out.
    pub fn left_out(&self) -> impl Iterator<Item = &WorkloadId> {
        self.namespaces.values().flat_map(|it| it.left_out.keys())
    }

    /// The workloads of a namespace that were left out and that there is room for now: by their names,
    /// as long as they fit.
    pub fn that_fit(&self, namespace: &Name) -> Vec<WorkloadId> {
        let Some(namespace) = self.namespaces.get(namespace) else {
            return Vec::new();
        };
        let mut room = self.share - namespace.weight;
        let mut fits = |weight: usize| {
            let rest = room.checked_sub(weight);
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        let left_out = namespace.left_out.iter();
        let fitting = left_out.filter(|(_, weight)| fits(**weight));
        fitting.map(|(id, _)| id.clone()).collect()
    }

    /// Stops managing a workload, as its namespace has no room for it at this weight.
    fn leave_out(&mut self, workload: Arc<Workload>, weight: usize) -> LeftOut {
        let id = &workload.id;
        let before = self.remove(id);
        let turned = before.map(|before| self.turned(Some(before), None));
        let namespace = self.namespaces.entry(id.namespace.clone()).or_default();
        let left_out = &mut namespace.left_out;
        let is_first = left_out.is_empty();
        let is_known = left_out.contains_key(id);
        let is_news = !is_known && left_out.len() < MAX_LEFT_OUT;
        if is_known || is_news {
            left_out.insert(id.clone(), weight);
        }
        LeftOut {
            workload,
            turned,
            is_news,
            is_first,
        }
    }

    /// Replaces a workload by what it is now, with the same references.
    fn replace(&mut self, before: &Workload, now: Workload, weight: usize) {
        if let Some(namespace) = self.namespaces.get_mut(&now.id.namespace) {
            namespace.weight = namespace.weight - before.weight() + weight;
        }
        if let Some(workload) = self.workloads.get_mut(&now.id) {
            *workload = Arc::new(now);
        }
    }

    fn insert(&mut self, workload: Arc<Workload>, weight: usize) {
        let id = Arc::new(workload.id.clone());
        for reference in workload.references.named() {
            let consumers = self.consumers.entry(reference.clone());
            let consumers = consumers.or_insert_with(|| Vec::with_capacity(1));
            if let Err(at) = consumers.binary_search(&id) {
                consumers.insert(at, id.clone());
            }
        }
        for place in places(&workload) {
            let workloads = self.with_patterns.entry(place).or_default();
            workloads.insert(id.clone());
        }
        let namespace = self.namespaces.entry(id.namespace.clone()).or_default();
        namespace.weight += weight;
        namespace.left_out.remove(&*id);
        self.workloads.insert(id, workload);
    }

    fn remove(&mut self, id: &WorkloadId) -> Option<Arc<Workload>> {
        let workload = self.workloads.remove(id)?;
        for reference in workload.references.named() {
            if let Some(consumers) = self.consumers.get_mut(reference) {
                if let Ok(at) = consumers.binary_search_by(|own| (**own).cmp(id)) {
                    consumers.remove(at);
                }
                if consumers.is_empty() {
                    self.consumers.remove(reference);
                }
            }
        }
        for place in places(&workload) {
            if let Some(workloads) = self.with_patterns.get_mut(&place) {
                workloads.remove(id);
                if workloads.is_empty() {
                    self.with_patterns.remove(&place);
                }
            }
        }
        if let Some(namespace) = self.namespaces.get_mut(&id.namespace) {
            namespace.weight -= workload.weight();
        }
        Some(workload)
    }

    /// For which objects it matters that a workload was replaced, came, or went, as the index has it by now.
    fn turned(&self, before: Option<Arc<Workload>>, now: Option<Arc<Workload>>) -> Turned {
        let mut turned = Turned {
            before,
            now,
            ..Turned::default()
        };
        let both = || turned.now.iter().chain(&turned.before);
        let named = both().flat_map(|workload| workload.references.named());
        let named: BTreeSet<_> = named.collect();
        let is_news = |reference: &&Reference| !self.stays_tracked(reference, &turned);
        let references = named.into_iter().filter(is_news).cloned().collect();
        let namespaces: BTreeSet<_> = both().flat_map(|workload| places(workload)).collect();
        let keeps_patterns = match (&turned.before, &turned.now) {
            (Some(before), Some(now)) => before.references.same_patterns(&now.references),
            _ => false,
        };
        if !keeps_patterns {
            turned.namespaces = namespaces.into_iter().collect();
        }
        turned.references = references;
        turned
    }

    fn matching<'a>(
        &'a self,
        reference: &'a Reference,
    ) -> impl Iterator<Item = &'a Arc<WorkloadId>> {
        let place = || (reference.kind, reference.namespace.clone());
        // Most clusters have none, and this is asked for each event of each object.
        let there = match self.with_patterns.is_empty() {
            true => None,
            false => self.with_patterns.get(&place()),
        };
        there.into_iter().flatten().filter(|id| {
            let workload = self.workloads.get(*id);
            workload.is_some_and(|workload| workload.references.matches(reference))
        })
    }

    fn is_named_by(&self, reference: &Reference, id: &WorkloadId) -> bool {
        let consumers = self.consumers.get(reference);
        consumers.is_some_and(|it| it.binary_search_by(|own| (**own).cmp(id)).is_ok())
    }
}

fn places(workload: &Workload) -> impl Iterator<Item = (ConfigKind, Name)> {
    let kinds = workload.references.pattern_kinds();
    kinds.map(|kind| (kind, workload.id.namespace.clone()))
}

#[cfg(test)]
mod tests;
