//! ClusterConfigSyncs: which namespaces get a copy of an object, and whose an object is that has its name.

pub mod content;
pub mod outcome;
pub mod pace;
mod watched;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_core::Selector;
use pod_reloader_api::{ClusterConfigSync, CopiedMetadata, DeletionPolicy, SourceKind};

pub use self::watched::{NamespaceLabels, NamespaceMetadata, Target, TargetMetadata};
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

/// The annotation of a copy that names its source and its own namespace: `NAMESPACE/NAME@NAMESPACE`. A copy that
/// somebody clones into another namespace has the wrong one.
pub const COPY_OF: &str = "pod-reloader.github.io/copy-of";
/// The label of a copy with the namespace of its source, by which people find copies.
pub const COPIED_FROM: &str = "pod-reloader.github.io/copied-from";

/// A ClusterConfigSync, as it is worked with.
#[derive(Clone, Debug)]
pub struct ConfigSync {
    /// The name.
    pub name: Name,
    /// The UID.
    pub uid: Box<str>,
    /// The generation of the spec.
    pub generation: i64,
    /// The object that is copied.
    pub source: Reference,
    created: Option<Timestamp>,
    namespaces: Selector,
    /// The keys to copy. All of them, if there are none.
    keys: Vec<String>,
    metadata: CopiedMetadata,
    deletion_policy: DeletionPolicy,
}

/// The reason why a ClusterConfigSync cannot be worked with. The schema of the CRD rules most of them out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSync {
    /// A name is not one.
    #[error("{0} is not a valid name")]
    Name(&'static str),
    /// The selector is not one.
    #[error("spec.namespaceSelector is not valid: {0}")]
    Selector(String),
}

impl TryFrom<&ClusterConfigSync> for ConfigSync {
    type Error = InvalidSync;

    fn try_from(object: &ClusterConfigSync) -> Result<Self, InvalidSync> {
        let (meta, spec) = (&object.metadata, &object.spec);
        let name = |text: &str, field| Name::parse(text).map_err(|_| InvalidSync::Name(field));
        let namespaces = Selector::try_from(spec.namespace_selector.clone());
        Ok(Self {
            name: name(meta.name.as_deref().unwrap_or_default(), "metadata.name")?,
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            source: Reference {
                kind: match spec.source.kind {
                    SourceKind::ConfigMap => ConfigKind::ConfigMap,
                    SourceKind::Secret => ConfigKind::Secret,
                },
                namespace: name(&spec.source.namespace, "spec.source.namespace")?,
                name: name(&spec.source.name, "spec.source.name")?,
            },
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            namespaces: namespaces.map_err(|error| InvalidSync::Selector(error.to_string()))?,
            keys: spec.keys.clone(),
            metadata: spec.template.metadata.clone(),
            deletion_policy: spec.deletion_policy,
        })
    }
}

impl ConfigSync {
    /// Returns true if this namespace is to have a copy. `own` is the namespace of the operator.
    pub fn selects(&self, namespace: &Name, labels: &NamespaceLabels, own: &Name) -> bool {
        !labels.is_terminating
            && namespace != own
            && *namespace != self.source.namespace
            && !namespace.as_str().starts_with("kube-")
            && labels.are_selected_by(&self.namespaces)
    }

    /// Returns true if its copies have the same names as those of another one.
    pub fn competes_with(&self, other: &Self) -> bool {
        self.name != other.name
            && (self.source.kind, &self.source.name) == (other.source.kind, &other.source.name)
    }

    /// Returns true if a namespace that both select gets its copy from this one: from the older.
    pub fn precedes(&self, other: &Self) -> bool {
        (self.created, &self.name) < (other.created, &other.name)
    }

    /// Returns the mark of the copy in this namespace.
    pub fn mark(&self, namespace: &Name) -> String {
        let Reference {
            namespace: from,
            name,
            ..
        } = &self.source;
        format!("{from}/{name}@{namespace}")
    }

    /// Returns true if the object with the name of the copy in this namespace is that copy. A mark says so; one that
    /// names anything else says that it is not. Without a mark, its owner does.
    pub fn owns(&self, namespace: &Name, target: &Target) -> bool {
        match target.mark() {
            Some(mark) => mark == self.mark(namespace),
            None => target.is_owned_by(&self.uid),
        }
    }

    /// Returns true if the object is to be deleted now that its namespace is not selected. `successor` is the
    /// ClusterConfigSync that is to have it instead. If it has the same source, it takes the copy over.
    pub fn removes(&self, namespace: &Name, target: &Target, successor: Option<&Self>) -> bool {
        self.deletion_policy == DeletionPolicy::Delete
            && self.owns(namespace, target)
            && target.is_owned_by(&self.uid)
            && successor.is_none_or(|it| it.source != self.source)
    }

    /// Returns the labels of each copy.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.metadata.labels.clone();
        labels.insert(
            COPIED_FROM.to_owned(),
            self.source.namespace.as_str().to_owned(),
        );
        labels
    }

    /// Returns the annotations of the copy in this namespace.
    fn annotations(&self, namespace: &Name) -> BTreeMap<String, String> {
        let mut annotations = self.metadata.annotations.clone();
        annotations.insert(COPY_OF.to_owned(), self.mark(namespace));
        annotations
    }
}

/// Returns the source that the mark of an object names. `None` if it is not the mark of a copy with this name in this
/// namespace, such as that of a clone.
pub fn source_of(object: &Reference, mark: &str) -> Option<Reference> {
    let (source, here) = mark.split_once('@')?;
    let (namespace, name) = source.split_once('/')?;
    let is_its = here == object.namespace.as_str() && name == object.name.as_str();
    Some(Reference {
        namespace: Name::parse(namespace).ok().filter(|_| is_its)?,
        ..object.clone()
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a ClusterConfigSync of Secret `platform/pull`, with some fields of its own.
    pub(crate) fn sync(fields: Value) -> ConfigSync {
        let mut object = json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "metadata": {"name": "pull", "uid": "u-1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "source": {"kind": "Secret", "namespace": "platform", "name": "pull"},
                "namespaceSelector": {},
            },
        });
        json_patch::merge(&mut object, &fields);
        let object: ClusterConfigSync = serde_json::from_value(object).unwrap();
        ConfigSync::try_from(&object).unwrap()
    }

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn labels(metadata: Value) -> NamespaceLabels {
        let namespace: NamespaceMetadata =
            serde_json::from_value(json!({"metadata": metadata})).unwrap();
        namespace.labels()
    }

    fn target(metadata: Value) -> Target {
        let object = json!({"metadata": metadata});
        let object: TargetMetadata = serde_json::from_value(object).unwrap();
        object.into()
    }

    fn selects(sync: &ConfigSync, namespace: &str, metadata: Value) -> bool {
        sync.selects(&name(namespace), &labels(metadata), &name("operator"))
    }

    #[test]
    fn namespaces_are_picked_by_their_labels() {
        let live = sync(json!({"spec": {"namespaceSelector": {"matchLabels": {"stage": "live"}}}}));
        assert!(selects(&live, "shop", json!({"labels": {"stage": "live"}})));
        assert!(!selects(
            &live,
            "shop",
            json!({"labels": {"stage": "test"}})
        ));
        assert!(!selects(&live, "shop", json!({})));
        let others = sync(json!({"spec": {"namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["sandbox"]},
        ]}}}));
        let named = |name| json!({"labels": {"kubernetes.io/metadata.name": name}});
        assert!(selects(&others, "shop", named("shop")));
        assert!(!selects(&others, "sandbox", named("sandbox")));
    }

    #[test]
    fn some_namespaces_never_get_a_copy() {
        let all = sync(json!({}));
        assert!(selects(&all, "shop", json!({})));
        for namespace in ["platform", "operator", "kube-system", "kube-public"] {
            assert!(!selects(&all, namespace, json!({})), "{namespace}");
        }
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!selects(&all, "shop", terminating));
    }

    #[test]
    fn an_object_is_ours_by_its_mark_and_without_one_by_its_owner() {
        let sync = sync(json!({}));
        let owns = |metadata| sync.owns(&name("shop"), &target(metadata));
        let marked = |mark| json!({"annotations": {COPY_OF: mark}});
        let owner = json!([{"apiVersion": "pod-reloader.github.io/v1alpha1", "kind": "ClusterConfigSync", "name": "pull", "uid": "u-1"}]);
        assert!(owns(marked("platform/pull@shop")));
        assert!(owns(json!({"ownerReferences": owner})));
        assert!(!owns(json!({})));
        for other in [
            "platform/pull@elsewhere",
            "other/pull@shop",
            "platform/pull",
            "",
        ] {
            assert!(!owns(marked(other)), "{other}");
            let cloned = json!({"annotations": {COPY_OF: other}, "ownerReferences": owner});
            assert!(!owns(cloned), "{other}");
        }
    }

    #[test]
    fn a_copy_names_its_source_and_a_clone_of_it_names_none() {
        let sync = sync(json!({}));
        let here = |namespace: &str| Reference {
            namespace: name(namespace),
            ..sync.source.clone()
        };
        let mark = sync.mark(&name("shop"));
        assert_eq!(source_of(&here("shop"), &mark), Some(sync.source.clone()));
        assert_eq!(source_of(&here("elsewhere"), &mark), None);
        for mark in [
            "",
            "pull@shop",
            "platform/pull",
            "/pull@shop",
            "platform/other@shop",
            "a/b/pull@shop",
        ] {
            assert_eq!(source_of(&here("shop"), mark), None, "{mark}");
        }
    }

    #[test]
    fn only_what_it_owns_is_deleted_where_it_is_not_wanted_any_more() {
        let owner = json!([{"apiVersion": "v1", "kind": "ClusterConfigSync", "name": "pull", "uid": "u-1"}]);
        let owned = target(
            json!({"annotations": {COPY_OF: "platform/pull@shop"}, "ownerReferences": owner}),
        );
        let retained = target(json!({"annotations": {COPY_OF: "platform/pull@shop"}}));
        let shop = name("shop");
        let ours = sync(json!({}));
        assert!(ours.removes(&shop, &owned, None));
        assert!(!ours.removes(&shop, &retained, None));
        let retain = sync(json!({"spec": {"deletionPolicy": "Retain"}}));
        assert!(!retain.removes(&shop, &owned, None));
        let same = sync(json!({"metadata": {"name": "older", "uid": "u-0"}}));
        assert!(
            !ours.removes(&shop, &owned, Some(&same)),
            "it takes it over"
        );
        let other = sync(json!({"spec": {"source": {"namespace": "elsewhere"}}}));
        assert!(ours.removes(&shop, &owned, Some(&other)));
    }

    #[test]
    fn of_two_for_one_name_the_older_has_the_namespace() {
        let named =
            |name, created| sync(json!({"metadata": {"name": name, "creationTimestamp": created}}));
        let older = named("b", "2026-01-01T00:00:00Z");
        let newer = named("a", "2026-01-02T00:00:00Z");
        assert!(older.competes_with(&newer) && older.precedes(&newer) && !newer.precedes(&older));
        let twin = named("c", "2026-01-01T00:00:00Z");
        assert!(older.precedes(&twin) && !twin.precedes(&older));
        let config_map =
            sync(json!({"metadata": {"name": "z"}, "spec": {"source": {"kind": "ConfigMap"}}}));
        assert!(!older.competes_with(&config_map));
        assert!(!older.competes_with(&older));
    }

    #[test]
    fn a_selector_that_is_none_is_said() {
        let object: ClusterConfigSync = serde_json::from_value(json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "metadata": {"name": "pull"},
            "spec": {
                "source": {"kind": "Secret", "namespace": "platform", "name": "pull"},
                "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]},
            },
        }))
        .unwrap();
        let error = ConfigSync::try_from(&object).unwrap_err();
        assert!(matches!(error, InvalidSync::Selector(_)), "{error}");
    }
}
