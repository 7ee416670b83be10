//! Remembers which statuses say that the Secrets Store CSI driver has given a pod other versions of secrets.
//!
//! As with config objects, the memory can only say "nothing to do": whatever is decided is decided by live lists. Of a
//! status that was never changed nothing is remembered, and of any other only its name and its generation.

use std::collections::HashMap;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use pod_reloader_core::secret_provider_class::{Classes, PodStatus};
use tokio::time::Instant;

use crate::runtime::logging::Complaint;

/// A SecretProviderClass: its namespace and its name.
pub(crate) type Class = (Name, Name);

/// The statuses of each class that were changed since their creation, with their generations.
pub(crate) type Changed = HashMap<Class, HashMap<Box<str>, i64>>;

/// The statuses that were changed since their creation.
#[derive(Default)]
pub(crate) struct Rotations {
    classes: Mutex<HashMap<Class, State>>,
    /// What failed when live lists were read, so that it is logged once.
    pub(super) complaint: Mutex<Complaint>,
}

struct State {
    changed: HashMap<Box<str>, i64>,
    /// The time of the last news of the class.
    news: Instant,
}

impl Rotations {
    /// Takes in a status. Returns its class if a restart may be due because of it.
    pub(crate) fn saw(&self, status: &PodStatus) -> Option<Class> {
        let (class, name) = place(status)?;
        let mut classes = self.classes.lock();
        if status.generation > 1 {
            let state = classes.entry(class.clone()).or_insert_with(|| State {
                changed: HashMap::new(),
                news: Instant::now(),
            });
            let known = state.changed.insert(name.into(), status.generation);
            if known != Some(status.generation) {
                state.news = Instant::now();
            }
            return Some(class);
        }
        // Another pod may have kept those waiting that were rotated.
        let state = classes.get_mut(&class)?;
        state.changed.remove(name);
        state.news = Instant::now();
        tidy(&mut classes, &class);
        Some(class)
    }

    /// Takes in that a status is gone. Returns its class if a restart may be due because of that.
    pub(crate) fn gone(&self, status: &PodStatus) -> Option<Class> {
        let (class, name) = place(status)?;
        let mut classes = self.classes.lock();
        let state = classes.get_mut(&class)?;
        state.changed.remove(name);
        state.news = Instant::now();
        tidy(&mut classes, &class);
        Some(class)
    }

    /// Takes in a complete list, of a namespace or of all of them. Returns the classes of which a status was changed.
    pub(crate) fn listed(&self, namespace: Option<&Name>, mut listed: Changed) -> Vec<Class> {
        let mut classes = self.classes.lock();
        classes.retain(|class, state| {
            let is_listed = namespace.is_none_or(|namespace| class.0 == *namespace);
            match listed.remove(class) {
                Some(changed) => {
                    if changed != state.changed {
                        *state = State {
                            changed,
                            news: Instant::now(),
                        };
                    }
                    true
                }
                None => !is_listed,
            }
        });
        let new = listed.into_iter().map(|(class, changed)| {
            let news = Instant::now();
            (class, State { changed, news })
        });
        classes.extend(new);
        classes.keys().cloned().collect()
    }

    /// Returns the time of the last news of the classes of a workload. `None` if no status was changed, so that nothing
    /// is due.
    pub(crate) fn last_news(&self, namespace: &Name, classes: &Classes) -> Option<Instant> {
        let known = self.classes.lock();
        if known.is_empty() {
            return None;
        }
        let of = |class: &Name| Some(known.get(&(namespace.clone(), class.clone()))?.news);
        classes.names.iter().filter_map(of).max()
    }
}

/// Adds a status to a list of those that were changed.
pub(crate) fn add(changed: &mut Changed, status: &PodStatus) {
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

fn tidy(classes: &mut HashMap<Class, State>, class: &Class) {
    if classes.get(class).is_some_and(|it| it.changed.is_empty()) {
        classes.remove(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(name: &str, generation: i64) -> PodStatus {
        let metadata = json!({"name": name, "namespace": "shop", "generation": generation});
        let status = json!({"secretProviderClassName": "db"});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn classes() -> Classes {
        Classes {
            names: [name("db")].into(),
            selector: "app=web".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_classes_with_changed_statuses_are_remembered() {
        let rotations = Rotations::default();
        let last_news = || rotations.last_news(&name("shop"), &classes());
        assert_eq!(rotations.saw(&status("a", 1)), None);
        assert_eq!(last_news(), None);
        let class = (name("shop"), name("db"));
        assert_eq!(rotations.saw(&status("a", 2)), Some(class.clone()));
        let first = last_news().unwrap();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        // The same once more is no news, and another pod is.
        rotations.saw(&status("a", 2));
        assert_eq!(last_news(), Some(first));
        assert_eq!(rotations.saw(&status("b", 1)), Some(class.clone()));
        assert!(last_news().unwrap() > first);
        assert_eq!(rotations.gone(&status("a", 2)), Some(class));
        assert_eq!(last_news(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_replaces_what_was_known_of_its_namespace() {
        let rotations = Rotations::default();
        let last_news = || rotations.last_news(&name("shop"), &classes());
        rotations.saw(&status("a", 2));
        let first = last_news();
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        let list = |statuses: &[PodStatus]| {
            let mut changed = Changed::new();
            for status in statuses {
                add(&mut changed, status);
            }
            changed
        };
        assert_eq!(
            rotations
                .listed(None, list(&[status("a", 2), status("b", 1)]))
                .len(),
            1
        );
        assert_eq!(last_news(), first);
        rotations.listed(Some(&name("other")), Changed::new());
        assert_eq!(last_news(), first);
        rotations.listed(Some(&name("shop")), list(&[status("a", 3)]));
        assert!(last_news() > first);
        rotations.listed(None, list(&[status("a", 1)]));
        assert_eq!(last_news(), None);
    }
}
