//! Remembers which FieldBindings write to the same object, and which of them are older.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pod_reloader_core::field_binding::{Binding, BindingId, MAX_BINDINGS, Seniority, TargetId};
use pod_reloader_core::name::Name;

/// The FieldBindings of each object, the oldest first.
#[derive(Default)]
pub(super) struct Targets(HashMap<(Name, TargetId), BTreeMap<Seniority, Arc<Binding>>>);

/// The error of a FieldBinding of an object to which as many older ones write as may.
#[derive(Debug)]
pub(super) struct TooMany;

impl Targets {
    pub(super) fn insert(&mut self, binding: &Arc<Binding>) {
        let all = self.0.entry(key(binding)).or_default();
        all.insert(binding.seniority(), binding.clone());
    }

    pub(super) fn remove(&mut self, binding: &Binding) {
        let key = key(binding);
        if let Some(all) = self.0.get_mut(&key) {
            all.remove(&binding.seniority());
            if all.is_empty() {
                self.0.remove(&key);
            }
        }
    }

    /// Returns the older FieldBindings of the same object.
    pub(super) fn older(&self, binding: &Binding) -> Result<Vec<Arc<Binding>>, TooMany> {
        let all = self.0.get(&key(binding)).into_iter();
        let older = all.flat_map(|it| it.range(..binding.seniority()));
        let older: Vec<_> = older.take(MAX_BINDINGS).map(|(_, it)| it.clone()).collect();
        match older.len() < MAX_BINDINGS {
            true => Ok(older),
            false => Err(TooMany),
        }
    }

    /// Returns the FieldBindings that may get fields, or lose fields, as this one of the same object comes or goes:
    /// younger ones, as far as they write to the object with it or without it.
    pub(super) fn affected(&self, binding: &Binding) -> Vec<BindingId> {
        let seniority = binding.seniority();
        let all = self.0.get(&key(binding)).into_iter().flatten();
        let writers = all.take(MAX_BINDINGS + 1);
        let younger = writers.filter(|(other, _)| **other > seniority);
        younger.map(|(_, it)| it.id.clone()).collect()
    }
}

fn key(binding: &Binding) -> (Name, TargetId) {
    (binding.id.namespace.clone(), binding.target.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::binding;
    use serde_json::json;

    /// Returns the FieldBinding of one object that was created in this second.
    fn of_second(second: usize) -> Arc<Binding> {
        let (minute, second) = (second / 60, second % 60);
        let created = format!("2026-01-01T00:{minute:02}:{second:02}Z");
        let called = format!("of-{minute}-{second}");
        let (_, object) = binding(
            &called,
            &json!({"metadata": {"creationTimestamp": created}}),
        );
        Arc::new(Binding::try_from(&object).unwrap())
    }

    fn targets(seconds: impl Iterator<Item = usize>) -> Targets {
        let mut targets = Targets::default();
        seconds.for_each(|it| targets.insert(&of_second(it)));
        targets
    }

    #[test]
    fn the_oldest_write_and_one_that_goes_makes_room_for_the_next() {
        let mut targets = targets(0..1000);
        assert_eq!(targets.older(&of_second(63)).unwrap().len(), 63);
        assert!(targets.older(&of_second(64)).is_err());
        assert!(targets.older(&of_second(999)).is_err());
        targets.remove(&of_second(7));
        assert_eq!(targets.older(&of_second(64)).unwrap().len(), 63);
        assert!(targets.affected(&of_second(7)).contains(&of_second(64).id));
    }

    #[test]
    fn one_that_comes_affects_no_older_one_and_not_more_than_can_write() {
        let mut targets = targets(1..1000);
        assert_eq!(targets.affected(&of_second(1000)), []);
        targets.insert(&of_second(0));
        let affected = targets.affected(&of_second(0));
        assert_eq!(affected.len(), MAX_BINDINGS);
        assert!(
            affected.contains(&of_second(64).id),
            "it has no room any more"
        );
    }
}
