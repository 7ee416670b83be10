//! Remembers what is known of FieldBindings, of their sources and of their targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use pod_reloader_api::FieldBindingStatus;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::outcome::{self, Outcome, Reason};
use pod_reloader_core::field_binding::pace::Pace;
use pod_reloader_core::field_binding::{Binding, BindingId, InvalidBinding};
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::SeenStatus;
use pod_reloader_core::scope::Scope;
use tokio::time::Instant;

use self::counts::Counts;
use self::left_out::{LeftOut, Untold};
pub(super) use self::objects::{ObjectName, Watched, What};
use self::objects::{Objects, Use};
use self::targets::{Targets, TooMany};
use crate::runtime::share::{Charge, Shares};

mod counts;
mod left_out;
mod news;
mod objects;
mod targets;
#[cfg(test)]
mod tests;

/// The memory that the FieldBindings of one namespace may take, in bytes.
const NAMESPACE_MEMORY: usize = 2 << 20;
/// The memory that all FieldBindings may take, in bytes.
const MEMORY: usize = 32 << 20;

/// The digest of a value.
pub(super) type Digest = [u8; 16];

/// What is known.
pub(super) struct State {
    kinds: Arc<[BoundKind]>,
    scope: Scope,
    bindings: BTreeMap<BindingId, Known>,
    /// The namespaces whose FieldBindings have all been listed. `None` stands for all namespaces.
    listed: BTreeSet<Option<Name>>,
    /// The sources and targets.
    pub(super) objects: Objects,
    /// The FieldBindings of each target.
    targets: Targets,
    counts: Counts,
    shares: Shares,
    left_out: LeftOut,
}

/// What is known of a FieldBinding.
struct Known {
    /// Its UID and generation.
    version: (Box<str>, i64),
    binding: Result<Arc<Binding>, InvalidBinding>,
    status: Option<SeenStatus>,
    /// The time at which the status was last written.
    status_written: Option<Instant>,
    memory: Memory,
    /// Raised each time that its fields are to be looked at although neither source nor target has changed.
    epoch: u64,
    /// What its namespace is charged for it.
    _charge: Charge,
}

/// What is remembered of the last look at the fields of a FieldBinding. It holds no value.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// True if there is nothing to do until the source or the target changes.
    pub(super) is_settled: bool,
    /// The resourceVersion of the source, if there was one.
    pub(super) source: Option<Box<str>>,
    /// The version of the target's spec, if there was one.
    pub(super) target: Option<Box<str>>,
    /// The digests of the values that the fields should have.
    pub(super) wanted: Vec<Result<Digest, Reason>>,
    /// The digests of the values that the fields have had since they were first bound.
    pub(super) applied: Vec<Option<Digest>>,
    /// The state of each field. There is none before the first look.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) pace: Pace,
    /// The number of failures in a row.
    pub(super) failures: u32,
}

impl Memory {
    /// Returns true if somebody else keeps changing a field, or its key.
    pub(super) fn is_contended(&self) -> bool {
        let contended = |it: &Outcome| matches!(it, Err(Reason::Contended(_)));
        self.outcomes.iter().any(contended)
    }
}

/// The fields of a FieldBinding that are to be looked at.
pub(super) struct Task {
    pub(super) binding: Arc<Binding>,
    /// The kind of the target, or why its fields are not written at all.
    pub(super) kind: Result<BoundKind, Reason>,
    /// The older FieldBindings of the target.
    pub(super) older: Vec<Arc<Binding>>,
    /// True if the source has another version than when it was last read.
    pub(super) has_other_source: bool,
    /// True if the target has another version than when it was last read.
    pub(super) has_other_target: bool,
    /// The epoch in which the look began.
    epoch: u64,
    pub(super) memory: Memory,
}

impl State {
    /// Returns a state in which nothing is known.
    pub(super) fn new(kinds: Arc<[BoundKind]>, scope: Scope) -> Self {
        Self {
            kinds,
            scope,
            bindings: BTreeMap::new(),
            listed: BTreeSet::new(),
            objects: Objects::default(),
            targets: Targets::default(),
            counts: Counts::default(),
            shares: Shares::new(NAMESPACE_MEMORY, MEMORY),
            left_out: LeftOut::default(),
        }
    }

    /// Returns the fields to look at. `None` if there is nothing to do.
    pub(super) fn task(&self, id: &BindingId) -> Option<Task> {
        // One that has not been listed yet may be older, and have the fields.
        if !self.listed.contains(&self.place(&id.namespace)) {
            return None;
        }
        let known = self.bindings.get(id)?;
        let binding = known.binding.as_ref().ok()?;
        let memory = &known.memory;
        let kind = self.kind(binding);
        let differs = |used: &Use, known: &Option<Box<str>>| {
            memory.outcomes.is_empty() || self.objects.differs(used, known.as_deref())
        };
        let target = kind.as_ref().ok().map(|kind| self.target(binding, *kind));
        let older = self.targets.older(binding);
        let task = Task {
            has_other_source: differs(&self.source(binding), &memory.source),
            has_other_target: target.is_some_and(|used| differs(&used, &memory.target)),
            binding: binding.clone(),
            kind: kind.and_then(|kind| match &older {
                Ok(_) => Ok(kind),
                Err(TooMany) => Err(Reason::TooManyBindings),
            }),
            older: older.unwrap_or_default(),
            epoch: known.epoch,
            memory: memory.clone(),
        };
        let is_news = task.has_other_source || task.has_other_target;
        (is_news || !memory.is_settled).then_some(task)
    }

    /// Notes what a look at the fields of a FieldBinding has brought, unless it is another one by now.
    pub(super) fn looked(&mut self, task: &Task, memory: Memory) {
        let binding = &task.binding;
        if let Some(known) = self.bindings.get_mut(&binding.id)
            && known.version == (binding.uid.clone(), binding.generation)
        {
            known.memory = memory;
            // Fields that have become its own meanwhile, or no longer are, have not been looked at.
            known.memory.is_settled &= known.epoch == task.epoch;
        }
    }

    /// Returns the status that a FieldBinding should have. `None` as long as that is not known.
    pub(super) fn status(&self, id: &BindingId, now: Timestamp) -> Option<StatusChange> {
        let Some(known) = self.bindings.get(id) else {
            return self.status_left_out(id, now);
        };
        let (before, generation) = (known.status.as_ref(), known.version.1);
        let after = match &known.binding {
            Err(error) => outcome::invalid(before, generation, error, now),
            Ok(_) if known.memory.outcomes.is_empty() => return None,
            Ok(binding) => {
                let fields = binding.fields.iter().zip(&known.memory.outcomes);
                outcome::status(before, generation, fields, now)
            }
        };
        Some(StatusChange {
            uid: known.version.0.clone(),
            before: known.status.clone(),
            after,
        })
    }

    fn status_left_out(&self, id: &BindingId, now: Timestamp) -> Option<StatusChange> {
        let Untold { version, status } = self.left_out.untold(id)?;
        Some(StatusChange {
            uid: version.0.clone(),
            before: status.clone(),
            after: outcome::left_out(status.as_ref(), version.1, now),
        })
    }

    /// Returns true if users are to be told of the status of a FieldBinding.
    pub(super) fn has_status(&self, id: &BindingId) -> bool {
        self.is_kept(id) || self.left_out.untold(id).is_some()
    }

    /// Notes that a FieldBinding has no users to tell, as it is gone.
    pub(super) fn has_nobody_to_tell(&mut self, id: &BindingId) {
        self.left_out.remove(id);
    }

    /// Returns true if there is room for a FieldBinding.
    pub(super) fn is_kept(&self, id: &BindingId) -> bool {
        self.bindings.contains_key(id)
    }

    /// Notes the status that a FieldBinding has got.
    pub(super) fn status_written(&mut self, id: &BindingId, status: &FieldBindingStatus) {
        self.left_out.remove(id);
        self.status_seen(id, Some(status));
        if let Some(known) = self.bindings.get_mut(id) {
            known.status_written = Some(Instant::now());
        }
    }

    fn status_seen(&mut self, id: &BindingId, status: Option<&FieldBindingStatus>) {
        let status = status.map(|it| SeenStatus::of(it, &it.conditions));
        if let Some(known) = self.bindings.get_mut(id) {
            self.counts.remove(known.status.as_ref());
            self.counts.add(status.as_ref());
            known.status = status;
        }
    }

    /// Returns the time at which the status of a FieldBinding was last written.
    pub(super) fn status_written_at(&self, id: &BindingId) -> Option<Instant> {
        self.bindings.get(id)?.status_written
    }

    /// Returns the number of FieldBindings whose condition has this reason.
    pub(super) fn count(&self, reason: &str) -> usize {
        self.counts.of(reason) + self.left_out.count(reason)
    }

    /// Returns the kind of the target, or why its fields are not written.
    fn kind(&self, binding: &Binding) -> Result<BoundKind, Reason> {
        // We have no right to read what is never tracked.
        if !self.scope.tracks(binding.source.kind) {
            return Err(Reason::Forbidden);
        }
        let kind = self.kinds.iter().find(|kind| kind.is_of(&binding.target));
        kind.copied().ok_or(Reason::KindNotAllowed)
    }

    /// Returns the place that a watch of something in this namespace has.
    fn place(&self, namespace: &Name) -> Option<Name> {
        self.scope.namespaces().map(|_| namespace.clone())
    }

    /// Returns the objects that a FieldBinding reads and writes. There are none if its fields are not written.
    fn uses(&self, binding: &Binding) -> Vec<Use> {
        match self.kind(binding) {
            Ok(kind) => vec![self.source(binding), self.target(binding, kind)],
            Err(_) => Vec::new(),
        }
    }

    fn source(&self, binding: &Binding) -> Use {
        let what = What::Source(binding.source.kind);
        self.used(what, binding, &binding.source.name)
    }

    fn target(&self, binding: &Binding, kind: BoundKind) -> Use {
        self.used(What::Target(kind), binding, &binding.target.name)
    }

    fn used(&self, what: What, binding: &Binding, name: &Name) -> Use {
        let namespace = &binding.id.namespace;
        Use {
            watched: Watched {
                what,
                place: self.place(namespace),
            },
            object: ObjectName {
                namespace: namespace.clone(),
                name: name.clone(),
            },
        }
    }
}

/// The status that a FieldBinding has, and the one that it should have.
#[derive(Debug)]
pub(super) struct StatusChange {
    pub(super) uid: Box<str>,
    pub(super) before: Option<SeenStatus>,
    pub(super) after: FieldBindingStatus,
}
