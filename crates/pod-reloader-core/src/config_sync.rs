//! ClusterConfigSyncs: which namespaces get a copy of an object, and whose an object is that has its name.

pub mod content;
mod marks;
pub mod outcome;
pub mod pace;
mod watched;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_core::Selector;
use pod_reloader_api::{ClusterConfigSync, CopiedMetadata, DeletionPolicy, OUR_PREFIX, PROTECT};

pub use self::marks::{Seals, Whose};
pub use self::watched::{NamespaceLabels, NamespaceMetadata, Target, TargetMetadata};
use crate::hash::Keyring;
use crate::name::Name;
use crate::reference::Reference;
use crate::seal::{COPY_OF, SEAL};

/// The label of a copy with the namespace of its source, by which people find copies.
pub const COPIED_FROM: &str = "pod-reloader.cs.sap.com/copied-from";

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
    /// Copies would get a label or an annotation of ours, which has a meaning of its own.
    #[error(
        "spec.template.metadata.{0} has a key of pod-reloader, and copies may only have the label pod-reloader.cs.sap.com/protect of them"
    )]
    Template(&'static str),
}

impl TryFrom<&ClusterConfigSync> for ConfigSync {
    type Error = InvalidSync;

    fn try_from(object: &ClusterConfigSync) -> Result<Self, InvalidSync> {
        let (meta, spec) = (&object.metadata, &object.spec);
        let name = |text: &str, field| Name::parse(text).map_err(|_| InvalidSync::Name(field));
        let namespaces = Selector::try_from(spec.namespace_selector.clone());
        let metadata = &spec.template.metadata;
        if metadata
            .labels
            .keys()
            .any(|key| is_ours(key) && key != PROTECT)
        {
            return Err(InvalidSync::Template("labels"));
        }
        if metadata.annotations.keys().any(|key| is_ours(key)) {
            return Err(InvalidSync::Template("annotations"));
        }
        Ok(Self {
            name: name(meta.name.as_deref().unwrap_or_default(), "metadata.name")?,
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            source: Reference {
                kind: spec.source.kind.into(),
                namespace: name(&spec.source.namespace, "spec.source.namespace")?,
                name: name(&spec.source.name, "spec.source.name")?,
            },
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            namespaces: namespaces.map_err(|error| InvalidSync::Selector(error.to_string()))?,
            keys: spec.keys.clone(),
            metadata: metadata.clone(),
            deletion_policy: spec.deletion_policy,
        })
    }
}

impl ConfigSync {
    /// Returns true if this namespace is to have a copy. `own` is the namespace of the operator.
    pub fn selects(&self, namespace: &Name, labels: &NamespaceLabels, own: &Name) -> bool {
        !labels.is_terminating
            && !self.spares(namespace, own)
            && labels.are_selected_by(&self.namespaces)
    }

    /// Returns true if nothing is ever written or deleted in this namespace, whatever its labels are. `own` is the
    /// namespace of the operator.
    pub fn spares(&self, namespace: &Name, own: &Name) -> bool {
        namespace == own
            || *namespace == self.source.namespace
            || namespace.as_str().starts_with("kube-")
    }

    /// Returns the copy in this namespace.
    pub fn copy_in(&self, namespace: &Name) -> Reference {
        Reference {
            namespace: namespace.clone(),
            ..self.source.clone()
        }
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

    /// Returns true if the object is to be deleted now that its namespace is not selected. `successor` is the
    /// ClusterConfigSync that is to have it instead. If it has the same source, it takes the copy over.
    pub fn removes(
        &self,
        namespace: &Name,
        target: &Target,
        successor: Option<&Self>,
        seals: &Seals,
    ) -> bool {
        self.deletion_policy == DeletionPolicy::Delete
            && self.whose(namespace, target, seals).is_ours()
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
    fn annotations(&self, namespace: &Name, keys: &Keyring) -> BTreeMap<String, String> {
        let mut annotations = self.metadata.annotations.clone();
        annotations.insert(COPY_OF.to_owned(), self.mark(namespace));
        annotations.insert(SEAL.to_owned(), self.seal(namespace, keys));
        annotations
    }
}

/// Returns true if the key of a label or an annotation is one of those whose meaning we define.
fn is_ours(key: &str) -> bool {
    key.starts_with(OUR_PREFIX)
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
    use crate::fixtures::name;
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

    fn labels(metadata: Value) -> NamespaceLabels {
        let namespace: NamespaceMetadata =
            serde_json::from_value(json!({"metadata": metadata})).unwrap();
        namespace.labels()
    }

    pub(crate) fn target(metadata: Value) -> Target {
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
        // Nor is anything deleted there.
        for namespace in ["platform", "operator", "kube-system"] {
            assert!(
                all.spares(&name(namespace), &name("operator")),
                "{namespace}"
            );
        }
        assert!(!all.spares(&name("shop"), &name("operator")));
    }

    #[test]
    fn a_namespace_that_is_made_again_has_another_uid() {
        let made = |uid: &str| labels(json!({"uid": uid, "labels": {"stage": "live"}}));
        assert_eq!(made("u-1").uid(), "u-1");
        assert_ne!(made("u-1"), made("u-2"));
        let live = sync(json!({"spec": {"namespaceSelector": {"matchLabels": {"stage": "live"}}}}));
        assert!(live.selects(&name("shop"), &made("u-1"), &name("operator")));
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

    fn invalid(fields: Value) -> InvalidSync {
        let mut object = json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "metadata": {"name": "pull"},
            "spec": {
                "source": {"kind": "Secret", "namespace": "platform", "name": "pull"},
                "namespaceSelector": {},
            },
        });
        json_patch::merge(&mut object, &json!({"spec": fields}));
        let object: ClusterConfigSync = serde_json::from_value(object).unwrap();
        ConfigSync::try_from(&object).unwrap_err()
    }

    #[test]
    fn a_selector_that_is_none_is_said() {
        let near = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
        let error = invalid(json!({"namespaceSelector": near}));
        assert!(matches!(error, InvalidSync::Selector(_)), "{error}");
    }

    #[test]
    fn a_template_gives_copies_no_label_or_annotation_of_ours_but_the_protection() {
        let protected = json!({"labels": {"pod-reloader.cs.sap.com/protect": "always", "a": "b"}});
        sync(json!({"spec": {"template": {"metadata": protected}}}));
        for (field, key) in [
            ("labels", "pod-reloader.cs.sap.com/kept"),
            ("labels", "pod-reloader.cs.sap.com/copied-from"),
            ("labels", "pod-reloader.cs.sap.com/copy"),
            ("annotations", "pod-reloader.cs.sap.com/seal"),
            ("annotations", "pod-reloader.cs.sap.com/protect"),
            ("annotations", "pod-reloader.cs.sap.com/hold"),
        ] {
            let error = invalid(json!({"template": {"metadata": {field: {key: "true"}}}}));
            assert_eq!(error, InvalidSync::Template(field), "{key}");
        }
    }
}
