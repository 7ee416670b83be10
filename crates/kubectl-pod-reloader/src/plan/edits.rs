//! Tries out manifests: how each object would be stored, next to how it is.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use pod_reloader_core::digest::{Aspects, ConfigObject, Presence};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::plan::Change;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde_json::Value;

use super::manifests::{Id, Manifest, Manifests};
use super::ownership::{applier, remove_unwanted, updated};
use crate::cluster::{Cluster, Place, Trial, Untried};
use crate::operators::Operators;

/// Number of objects that are tried at once.
const TRIALS_AT_ONCE: usize = 8;
/// The field manager of whoever applies an object that nobody has applied before.
const KUBECTL: &str = "kubectl";

/// All edits that manifests make, as far as they can restart anything.
#[derive(Debug, Default)]
pub(super) struct Edits {
    pub(super) config: BTreeMap<Reference, Edit>,
    pub(super) workloads: Vec<WorkloadEdit>,
    /// The objects that the apiserver refuses, with the reason.
    pub(super) refused: Vec<String>,
    /// Everything that could not be tried.
    pub(super) unseen: Vec<String>,
    /// Number of objects of other kinds.
    pub(super) others: usize,
}

/// An edit of one object.
#[derive(Debug)]
pub(super) struct Edit {
    /// The object as it is. `None` if it does not exist.
    pub(super) now: Option<Value>,
    /// The object as it would be stored.
    pub(super) after: Value,
    /// What could not be found out about it.
    unseen: Option<String>,
}

/// An edit of a workload.
#[derive(Debug)]
pub(super) struct WorkloadEdit {
    pub(super) kind: WorkloadKind,
    pub(super) api_version: String,
    pub(super) edit: Edit,
}

/// A kind of object that can restart something.
#[derive(Clone, Copy)]
enum Subject {
    Config(ConfigKind),
    Workload(WorkloadKind),
}

impl Edits {
    /// Tries out manifests as `manager` would apply them, or whoever has applied each of them before.
    pub(super) async fn of(
        cluster: &Cluster,
        operators: &Operators,
        manifests: &Manifests,
        manager: Option<&str>,
    ) -> Self {
        let kinds = operators.kinds();
        let mut edits = Self::default();
        let mut subjects = Vec::new();
        for manifest in manifests.all.values() {
            let Some(subject) = Subject::of(&manifest.id, &kinds) else {
                edits.others += 1;
                continue;
            };
            let id = &manifest.id;
            match Name::parse(&id.name) {
                Ok(name) => subjects.push((subject, name, manifest)),
                Err(reason) => {
                    let why = format!("{id}: that is not a valid name: {reason}");
                    edits.refused.push(why);
                }
            }
        }
        let trials = subjects
            .into_iter()
            .map(|(subject, name, manifest)| async move {
                let edit = edit(cluster, (subject, &name), manifest, manager).await;
                (subject, name, manifest, edit)
            });
        let mut trials = stream::iter(trials).buffered(TRIALS_AT_ONCE);
        while let Some((subject, name, manifest, edit)) = trials.next().await {
            edits.add((subject, name), manifest, edit);
        }
        edits
    }

    fn add(
        &mut self,
        (subject, name): (Subject, Name),
        manifest: &Manifest,
        edit: Result<Edit, Untried>,
    ) {
        let id = &manifest.id;
        let edit = match edit {
            Ok(edit) => edit,
            Err(Untried::NoPlace) => {
                let why = format!("{id}: the cluster does not serve it");
                return self.refused.push(why);
            }
            Err(Untried::Refused(why)) => return self.refused.push(format!("{id}: {why}")),
            Err(Untried::Unseen(error)) => return self.unseen.push(format!("{id}: {error}")),
        };
        let unseen = edit.unseen.iter();
        self.unseen.extend(unseen.map(|it| format!("{id}: {it}")));
        match subject {
            Subject::Config(kind) => {
                let reference = Reference {
                    kind,
                    namespace: id.namespace.clone(),
                    name,
                };
                self.config.insert(reference, edit);
            }
            Subject::Workload(kind) => self.workloads.push(WorkloadEdit {
                kind,
                api_version: manifest.api_version.clone(),
                edit,
            }),
        }
    }
}

impl Subject {
    fn of(id: &Id, kinds: &[WorkloadKind]) -> Option<Self> {
        let config = ConfigKind::ALL.into_iter();
        let mut config = config.filter(|kind| id.group.is_empty() && kind.as_str() == id.kind);
        let mut workloads = kinds.iter().filter(|kind| kind.is(&id.group, &id.kind));
        let workload = || workloads.next().copied().map(Self::Workload);
        config.next().map(Self::Config).or_else(workload)
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Config(kind) => kind.plural(),
            Self::Workload(kind) => kind.shape().plural,
        }
    }
}

impl Edit {
    /// Returns the object as it is, if it is a config object.
    pub(super) fn presence(&self, aspects: Aspects<'_>) -> Option<Presence> {
        presence(self.now.as_ref(), aspects)
    }

    /// Returns the object as it would be stored, if it is a config object.
    pub(super) fn presence_after(&self, aspects: Aspects<'_>) -> Option<Presence> {
        presence(Some(&self.after), aspects)
    }

    /// Returns the change of a config object's content, if there is one.
    pub(super) fn change(&self) -> Option<Change> {
        let none = Aspects::default();
        Change::of(&self.presence(none)?, &self.presence_after(none)?)
    }

    /// Returns true if an edit of a config object can matter to a workload: its content changes, or metadata by which
    /// it is tracked or held.
    pub(super) fn matters(&self) -> bool {
        let Some(now) = &self.now else {
            return true;
        };
        let marks = |object| {
            let presence = presence(Some(object), Aspects::default())?;
            Some(presence.present()?.marks)
        };
        let labels = |object: &Value| {
            let labels = object["metadata"]["labels"].as_object().cloned();
            labels.unwrap_or_default()
        };
        let after = &self.after;
        self.change().is_some() || marks(now) != marks(after) || labels(now) != labels(after)
    }
}

fn presence(object: Option<&Value>, aspects: Aspects<'_>) -> Option<Presence> {
    let Some(object) = object else {
        return Some(Presence::Absent);
    };
    let object = ConfigObject::parse(object.to_string().as_bytes(), aspects);
    object.ok().map(Presence::Present)
}

/// Tries out one manifest.
async fn edit(
    cluster: &Cluster,
    (subject, name): (Subject, &Name),
    manifest: &Manifest,
    manager: Option<&str>,
) -> Result<Edit, Untried> {
    let Manifest {
        id,
        api_version,
        object: manifest,
        names_namespace: _,
    } = manifest;
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if !version.bytes().all(|it| it.is_ascii_alphanumeric()) {
        return Err(Untried::NoPlace);
    }
    let place = Place::new(api_version, subject.plural(), Some(id.namespace.as_str()));
    let name = name.as_str();
    let now: Option<Value> = match cluster.get(place, name).await {
        Ok(object) => Some(object),
        Err(error) if error.is_absent() => None,
        Err(error) => return Err(Untried::Unseen(error)),
    };
    let stored = now.as_ref().unwrap_or(&Value::Null);
    let applier = manager.map(ToOwned::to_owned);
    let applier = applier.or_else(|| applier_of(stored, manifest));
    let applier = applier.as_deref().unwrap_or(KUBECTL);
    let applied = Trial::Apply.run(cluster, (place, name), applier, manifest);
    let mut after = match applied.await {
        // Its namespace or its kind is yet to be created, perhaps by these same manifests.
        Err(Untried::NoPlace) if now.is_none() => manifest.clone(),
        applied => applied?,
    };
    let mut unseen = None;
    if let Some(fields) = updated(stored, applier) {
        let wanted = match subject {
            Subject::Config(_) => Ok(with_string_data(manifest.clone())),
            // Many fields have defaults, and only the apiserver knows them.
            Subject::Workload(_) => {
                let whole = with_version_of(stored, manifest.clone());
                let replaced = Trial::Replace.run(cluster, (place, name), applier, &whole);
                replaced.await
            }
        };
        match wanted {
            Ok(wanted) => remove_unwanted(&mut after, fields, Some(&wanted)),
            Err(error) => unseen = Some(unseen_removals(error)),
        }
    }
    let now = now.map(complete);
    Ok(Edit {
        now,
        after: complete(after),
        unseen,
    })
}

/// Returns a manifest that replaces the stored object as it is now.
fn with_version_of(stored: &Value, mut manifest: Value) -> Value {
    manifest["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    manifest
}

/// Explains why nobody can tell which fields are removed from an object.
fn unseen_removals(error: Untried) -> String {
    let why = match error {
        Untried::NoPlace => "it is gone".to_owned(),
        Untried::Refused(why) => why,
        Untried::Unseen(error) => error.to_string(),
    };
    format!("whether fields are removed from it: {why}")
}

fn applier_of(stored: &Value, manifest: &Value) -> Option<String> {
    applier(stored, &with_string_data(manifest.clone()))
}

/// Returns a manifest with an entry in `data` for each in `stringData`, in which a Secret may have them.
fn with_string_data(mut manifest: Value) -> Value {
    // The apiserver refuses any other data.
    if !manifest["data"].is_null() && !manifest["data"].is_object() {
        return manifest;
    }
    let texts = manifest["stringData"].take();
    for (key, value) in texts.as_object().into_iter().flatten() {
        manifest["data"][key] = value.clone();
    }
    manifest
}

/// Gives an object everything that a stored one has, and drops what is often half of it.
fn complete(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        // What a dry run creates has no version.
        for field in ["uid", "resourceVersion"] {
            metadata.entry(field).or_insert_with(|| "".into());
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_a_secret_are_data_unless_its_data_is_no_map() {
        let texts = json!({"a": "1"});
        let whole = |data: Value| with_string_data(json!({"data": data, "stringData": texts}));
        for data in [json!(""), json!([]), json!(1)] {
            assert_eq!(whole(data.clone())["data"], data);
        }
        assert_eq!(whole(Value::Null)["data"], texts);
        assert_eq!(
            whole(json!({"b": "2"}))["data"],
            json!({"a": "1", "b": "2"})
        );
    }
}
