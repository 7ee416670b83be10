//! The objects of the users: config objects, the workloads that list them, and the changes of both.

use pod_reloader_e2e::CANARY;
use pod_reloader_e2e::workload::{Kind, Workload};
use serde_json::{Value, json};

use crate::random::Random;

/// Everything that the users have created.
#[derive(Debug, Default)]
pub(crate) struct Population {
    pub(crate) config_objects: Vec<ConfigObject>,
    pub(crate) workloads: Vec<Kept>,
}

/// A ConfigMap or a Secret.
#[derive(Clone, Debug)]
pub(crate) struct ConfigObject {
    pub(crate) is_secret: bool,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Number of times that its content was changed, or that it was deleted or created again.
    pub(crate) changes: usize,
    pub(crate) deletion: Deletion,
}

/// The progress of a deletion. Each object is deleted at most once: two deletions would leave a workload that
/// lists nothing else in the same state twice, which would look like a hash that moved back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    NotYet,
    Now,
    Over,
}

/// A workload that the operator manages.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) namespace: String,
    pub(crate) workload: Workload,
    /// Indices of the config objects that it lists.
    lists: Vec<usize>,
    /// Number of changes of those objects before it was created.
    changes_before: usize,
    /// Number of changes of those objects before it was deleted.
    changes_at_the_end: Option<usize>,
    /// Number of times that a user has changed its pod template.
    pub(crate) edits: usize,
}

impl Population {
    /// Plans config objects and workloads for a number of namespaces.
    pub(crate) fn new(workloads: usize, random: &mut Random) -> Self {
        let mut population = Self::default();
        for at in 0..NAMESPACES * CONFIG_OBJECTS_IN_EACH {
            population.add_config_object(at % NAMESPACES);
        }
        for at in 0..workloads {
            population.add_workload(at % NAMESPACES, random);
        }
        population
    }

    pub(crate) fn namespaces() -> impl Iterator<Item = String> {
        (0..NAMESPACES).map(namespace)
    }

    /// Plans a config object, and returns its index.
    pub(crate) fn add_config_object(&mut self, at_namespace: usize) -> usize {
        let at = self.config_objects.len();
        self.config_objects.push(ConfigObject {
            is_secret: at / NAMESPACES % 2 == 1,
            namespace: namespace(at_namespace),
            name: format!("config-{at}"),
            changes: 0,
            deletion: Deletion::NotYet,
        });
        at
    }

    /// Plans a workload that lists one to three config objects, and returns its index.
    pub(crate) fn add_workload(&mut self, at_namespace: usize, random: &mut Random) -> usize {
        let namespace = namespace(at_namespace);
        let candidates: Vec<usize> = (0..self.config_objects.len())
            .filter(|at| self.config_objects[*at].namespace == namespace)
            .collect();
        let mut lists: Vec<usize> = (0..=random.below(3))
            .map(|_| *random.one(&candidates))
            .collect();
        lists.sort_unstable();
        lists.dedup();
        let kind = match random.below(10) {
            0 => Kind::StatefulSet,
            1 => Kind::DaemonSet,
            _ => Kind::Deployment,
        };
        let at = self.workloads.len();
        let listed: Vec<_> = lists.iter().map(|at| &self.config_objects[*at]).collect();
        let requires = random.below(5) == 0;
        let pins = random.below(5) == 0;
        self.workloads.push(Kept {
            namespace,
            workload: workload(kind, &format!("workload-{at}"), &listed, requires, pins),
            changes_before: listed.iter().map(|object| object.changes).sum(),
            changes_at_the_end: None,
            lists,
            edits: 0,
        });
        at
    }

    /// Returns true if the workload has not been deleted.
    pub(crate) fn lives(&self, at: usize) -> bool {
        self.workloads[at].changes_at_the_end.is_none()
    }

    /// Records that a workload is deleted.
    pub(crate) fn delete_workload(&mut self, at: usize) {
        self.workloads[at].changes_at_the_end = Some(self.changes(at));
    }

    /// Returns the number of revisions that a workload may have: one for its creation, one for each change of
    /// an object that it lists, and one for each change of its template by a user.
    pub(crate) fn may_have_revisions(&self, at: usize) -> usize {
        let kept = &self.workloads[at];
        let changes = kept.changes_at_the_end.unwrap_or(self.changes(at));
        1 + kept.edits + changes - kept.changes_before
    }

    fn changes(&self, at: usize) -> usize {
        let lists = &self.workloads[at].lists;
        lists
            .iter()
            .map(|at| self.config_objects[*at].changes)
            .sum()
    }
}

impl ConfigObject {
    pub(crate) fn kind(&self) -> &'static str {
        match self.is_secret {
            true => "Secret",
            false => "ConfigMap",
        }
    }

    /// Returns the manifest with content that the object has never had, as [`ConfigObject::changes`] only
    /// grows.
    pub(crate) fn manifest(&self) -> Value {
        let content = format!("{CANARY}{}-{}", self.name, self.changes);
        let value = match self.is_secret {
            true => json!(k8s_openapi::ByteString(content.into())),
            false => json!(content),
        };
        json!({
            "apiVersion": "v1",
            "kind": self.kind(),
            "metadata": {"name": self.name},
            "data": {"key": value},
        })
    }
}

/// Returns a workload without pods: only revisions are counted, and those are created anyway.
fn workload(
    kind: Kind,
    name: &str,
    listed: &[&ConfigObject],
    requires: bool,
    pins: bool,
) -> Workload {
    let names = |are_secrets: bool| {
        let names = listed
            .iter()
            .filter(|object| object.is_secret == are_secrets);
        names
            .map(|object| object.name.as_str())
            .collect::<Vec<_>>()
            .join(",")
    };
    let mut workload = Workload::new(kind, name).without_pods();
    workload = workload.lists(&names(false)).lists_secrets(&names(true));
    if pins {
        // Means nothing unless pins are switched on.
        workload = workload.annotated(PIN, "configmaps");
    }
    match listed.first() {
        Some(first) if requires && first.is_secret => workload.requires_secret(&first.name),
        Some(first) if requires => workload.requires(&first.name),
        _ => workload,
    }
}

fn namespace(at: usize) -> String {
    format!("soak-{at}")
}

pub(crate) const NAMESPACES: usize = 20;
const PIN: &str = "pod-reloader.cs.sap.com/pin";
const CONFIG_OBJECTS_IN_EACH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_what_a_workload_lists_may_roll_it_once() {
        let mut random = Random::new(1);
        let mut population = Population::new(1, &mut random);
        let listed = population.workloads[0].lists[0];
        assert_eq!(population.may_have_revisions(0), 1);

        population.config_objects[listed].changes += 2;
        population.workloads[0].edits += 1;
        assert_eq!(population.may_have_revisions(0), 4);

        population.delete_workload(0);
        population.config_objects[listed].changes += 1;
        assert_eq!(population.may_have_revisions(0), 4);
        assert!(!population.lives(0));
    }
}
