//! Remembers which statuses say that the Secrets Store CSI driver has given a pod other versions of secrets.
//!
//! As with config objects, the memory can only say "nothing to do": whatever is decided is decided by live lists. Of a
//! status that was never changed nothing is remembered, and of any other only its name and its generation.

use std::collections::HashMap;
use std::time::Instant;

use crate::name::Name;
use crate::secret_provider_class::{Classes, PodStatus};

/// A SecretProviderClass: its namespace and its name.
pub type Class = (Name, Name);

/// The statuses of each class that were changed since their creation, with their generations.
pub type ChangedStatuses = HashMap<Class, HashMap<Box<str>, i64>>;

/// The statuses that were changed since their creation.
#[derive(Default)]
pub struct Statuses(HashMap<Class, State>);

struct State {
    changed: HashMap<Box<str>, i64>,
    /// The time of the last news of the class.
    news: Instant,
}

impl Statuses {
    /// Takes in a status. Returns its class if a restart may be due because of it.
    pub fn saw(&mut self, status: &PodStatus, now: Instant) -> Option<Class> {
        let (class, name) = place(status)?;
        if status.generation > 1 {
            let state = self.0.entry(class.clone()).or_insert_with(|| State {
                changed: HashMap::new(),
                news: now,
            });
            let known = state.changed.insert(name.into(), status.generation);
            if known != Some(status.generation) {
                state.news = now;
            }
            return Some(class);
        }
        // Another pod may have kept those waiting that were rotated.
        self.gone(status, now)
    }

    /// Takes in that a status is gone. Returns its class if a restart may be due because of that.
    pub fn gone(&mut self, status: &PodStatus, now: Instant) -> Option<Class> {
        let (class, name) = place(status)?;
        let state = self.0.get_mut(&class)?;
        state.changed.remove(name);
        state.news = now;
        if state.changed.is_empty() {
            self.0.remove(&class);
        }
        Some(class)
    }

    /// Takes in a complete list, of a namespace or of all of them. Returns the classes of which a status was changed.
    pub fn listed(
        &mut self,
        namespace: Option<&Name>,
        mut listed: ChangedStatuses,
        now: Instant,
    ) -> Vec<Class> {
        self.0.retain(|class, state| {
            let is_listed = namespace.is_none_or(|namespace| class.0 == *namespace);
            match listed.remove(class) {
                Some(changed) => {
                    if changed != state.changed {
                        *state = State { changed, news: now };
                    }
                    true
                }
                None => !is_listed,
            }
        });
        let new = listed
            .into_iter()
            .map(|(class, changed)| (class, State { changed, news: now }));
        self.0.extend(new);
        self.0.keys().cloned().collect()
    }

    /// Returns the time of the last news of the classes of a workload. `None` if no status was changed, so that nothing
    /// is due.
    pub fn last_news(&self, namespace: &Name, classes: &Classes) -> Option<Instant> {
        let known = &self.0;
        if known.is_empty() {
            return None;
        }
        let of = |class: &Name| Some(known.get(&(namespace.clone(), class.clone()))?.news);
        classes.names.iter().filter_map(of).max()
    }
}

/// Adds a status to a list of those that were changed.
pub fn add_status(changed: &mut ChangedStatuses, status: &PodStatus) {
    if let Some((class, name)) = place(status)
        && status.generation > 1
    {
        let of_class = changed.entry(class).or_default();
        of_class.insert(name.into(), status.generation);
    }
}

fn place(status: &PodStatus) -> Option<(Class, &str)> {
    let (namespace, name) = status.id()?;
    Some(((namespace, status.class.clone()?), name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures::name;

    fn status(name: &str, generation: i64) -> PodStatus {
        let metadata = json!({"name": name, "namespace": "shop", "generation": generation});
        let status = json!({"secretProviderClassName": "db"});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn classes() -> Classes {
        Classes {
            names: [name("db")].into(),
            selector: "app=web".into(),
        }
    }

    fn times() -> (Instant, Instant) {
        let now = Instant::now();
        (now, now + Duration::from_secs(1))
    }

    fn last_news(statuses: &Statuses) -> Option<Instant> {
        statuses.last_news(&name("shop"), &classes())
    }

    #[test]
    fn only_classes_with_changed_statuses_are_remembered() {
        let mut statuses = Statuses::default();
        let (now, later) = times();
        assert_eq!(statuses.saw(&status("a", 1), now), None);
        assert_eq!(last_news(&statuses), None);
        let class = (name("shop"), name("db"));
        assert_eq!(statuses.saw(&status("a", 2), now), Some(class.clone()));
        let first = last_news(&statuses).unwrap();
        // The same once more is no news, and another pod is.
        statuses.saw(&status("a", 2), later);
        assert_eq!(last_news(&statuses), Some(first));
        assert_eq!(statuses.saw(&status("b", 1), later), Some(class.clone()));
        assert!(last_news(&statuses).unwrap() > first);
        assert_eq!(statuses.gone(&status("a", 2), later), Some(class));
        assert_eq!(last_news(&statuses), None);
    }

    #[test]
    fn a_list_replaces_what_was_known_of_its_namespace() {
        let mut statuses = Statuses::default();
        let (now, later) = times();
        statuses.saw(&status("a", 2), now);
        let first = last_news(&statuses);
        let list = |statuses: &[PodStatus]| {
            let mut changed = ChangedStatuses::new();
            for status in statuses {
                add_status(&mut changed, status);
            }
            changed
        };
        assert_eq!(
            statuses
                .listed(None, list(&[status("a", 2), status("b", 1)]), later)
                .len(),
            1
        );
        assert_eq!(last_news(&statuses), first);
        statuses.listed(Some(&name("other")), ChangedStatuses::new(), later);
        assert_eq!(last_news(&statuses), first);
        statuses.listed(Some(&name("shop")), list(&[status("a", 3)]), later);
        assert!(last_news(&statuses) > first);
        statuses.listed(None, list(&[status("a", 1)]), later);
        assert_eq!(last_news(&statuses), None);
    }
}
