//! FieldBindings: which fields of a custom resource are equal to which keys, and whose a field is.

pub mod kind;
pub mod listed;
pub mod metadata;
pub mod outcome;
pub mod pace;
pub mod path;
pub mod plan;
pub mod rival;
pub mod source;
pub mod value;
mod weight;

use jiff::Timestamp;
use kube_core::ObjectMeta;
use pod_reloader_api::{
    FieldBinding, FieldBindingSpec, MAX_API_VERSION_LENGTH, MAX_FIELDS, MAX_KEY_LENGTH,
    MAX_KIND_LENGTH, ValueType,
};

use self::path::{InvalidPath, Path};
use crate::name::Name;
use crate::reference::Reference;

/// The maximum number of FieldBindings that write to one object.
pub const MAX_BINDINGS: usize = 64;

/// A FieldBinding, as it is worked with.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The name and the namespace.
    pub id: BindingId,
    /// The UID.
    pub uid: Box<str>,
    /// The generation of the spec.
    pub generation: i64,
    /// The object whose keys are written.
    pub source: Reference,
    /// The custom resource whose fields are written.
    pub target: Target,
    /// The fields.
    pub fields: Vec<Field>,
    created: Option<Timestamp>,
}

/// The identity of a FieldBinding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
}

impl std::fmt::Display for BindingId {
    /// Writes `FieldBinding namespace/name`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FieldBinding {}/{}", self.namespace, self.name)
    }
}

/// The custom resource whose fields are written. Its namespace is that of the FieldBinding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The API group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name.
    pub name: Name,
}

/// The identity of a custom resource, in whatever version of its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    group: Box<str>,
    kind: Box<str>,
    name: Name,
}

impl Target {
    /// Returns the identity.
    pub fn id(&self) -> TargetId {
        let parts = self.api_version.split_once('/');
        TargetId {
            group: parts.map_or("", |(group, _)| group).into(),
            kind: self.kind.clone(),
            name: self.name.clone(),
        }
    }
}

/// The order of FieldBindings. Older ones come first, and those of the same second are ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    created: Option<Timestamp>,
    name: Name,
}

/// A field that is equal to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key of the source.
    pub key: Box<str>,
    /// The path of the field.
    pub path: Path,
    /// The type of the field.
    pub value_type: ValueType,
}

/// The reason why a FieldBinding cannot be worked with. The schema of the CRD rules most of them out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBinding {
    /// A name is not one.
    #[error("{0} is not a valid name")]
    Name(&'static str),
    /// The path of a field is not one.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// It has too many fields.
    #[error("spec.fields has more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// A text is too long.
    #[error("{0} is longer than {1} characters")]
    TooLong(&'static str, usize),
}

impl TryFrom<&FieldBinding> for Binding {
    type Error = InvalidBinding;

    fn try_from(object: &FieldBinding) -> Result<Self, InvalidBinding> {
        Self::parse(&object.metadata, &object.spec)
    }
}

impl Binding {
    fn parse(meta: &ObjectMeta, spec: &FieldBindingSpec) -> Result<Self, InvalidBinding> {
        within_limits(spec)?;
        let name = |text: &str, field| Name::parse(text).map_err(|_| InvalidBinding::Name(field));
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let namespace = name(namespace, "metadata.namespace")?;
        let fields = spec.fields.iter().map(|field| {
            Ok(Field {
                key: field.key.as_str().into(),
                path: Path::parse(&field.path)?,
                value_type: field.value_type,
            })
        });
        Ok(Self {
            id: BindingId {
                namespace: namespace.clone(),
                name: name(meta.name.as_deref().unwrap_or_default(), "metadata.name")?,
            },
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            generation: meta.generation.unwrap_or_default(),
            source: Reference {
                kind: spec.source.kind.into(),
                namespace,
                name: name(&spec.source.name, "spec.source.name")?,
            },
            target: Target {
                api_version: spec.target.api_version.as_str().into(),
                kind: spec.target.kind.as_str().into(),
                name: name(&spec.target.name, "spec.target.name")?,
            },
            fields: fields.collect::<Result<_, InvalidPath>>()?,
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
        })
    }
}

/// Refuses what the CRD refuses: a FieldBinding from before an upgrade of the CRD may be longer.
fn within_limits(spec: &FieldBindingSpec) -> Result<(), InvalidBinding> {
    if spec.fields.len() > MAX_FIELDS {
        return Err(InvalidBinding::TooManyFields);
    }
    let keys = spec
        .fields
        .iter()
        .map(|it| ("spec.fields.key", &it.key, MAX_KEY_LENGTH));
    let target = &spec.target;
    let target = [
        (
            "spec.target.apiVersion",
            &target.api_version,
            MAX_API_VERSION_LENGTH,
        ),
        ("spec.target.kind", &target.kind, MAX_KIND_LENGTH),
    ];
    let mut too_long = keys
        .chain(target)
        .filter(|(_, text, most)| text.len() > *most);
    match too_long.next() {
        Some((field, _, most)) => Err(InvalidBinding::TooLong(field, most)),
        None => Ok(()),
    }
}

impl Binding {
    /// Returns its place in the order of the FieldBindings of one object: the oldest of them has the fields that several
    /// name.
    pub fn seniority(&self) -> Seniority {
        Seniority {
            created: self.created,
            name: self.id.name.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kube_core::CustomResourceExt;
    use serde_json::{Value, json};

    /// Returns a FieldBinding of Secret `s3` and Harbor `registry`, with some fields of its own.
    pub(crate) fn object(fields: Value) -> FieldBinding {
        let mut object = json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "FieldBinding",
            "metadata": {
                "name": "harbor-s3", "namespace": "harbor", "uid": "u-1", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "source": {"kind": "Secret", "name": "s3"},
                "target": {"apiVersion": "goharbor.io/v1beta1", "kind": "Harbor", "name": "registry"},
                "fields": [{"key": "accesskey", "path": "spec.s3.accesskey"}],
            },
        });
        json_patch::merge(&mut object, &fields);
        serde_json::from_value(object).unwrap()
    }

    pub(crate) fn binding(fields: Value) -> Binding {
        Binding::try_from(&object(fields)).unwrap()
    }

    #[test]
    fn of_two_for_one_object_the_older_comes_first() {
        let named = |name, created| {
            binding(json!({"metadata": {"name": name, "creationTimestamp": created}})).seniority()
        };
        let older = named("b", "2026-01-01T00:00:00Z");
        assert!(older < named("a", "2026-01-02T00:00:00Z"));
        assert!(older < named("c", "2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_version_does_not_make_another_object() {
        let one = binding(json!({})).target.id();
        let with = |target: Value| binding(json!({"spec": {"target": target}})).target.id();
        assert_eq!(one, with(json!({"apiVersion": "goharbor.io/v1alpha3"})));
        for target in [
            json!({"apiVersion": "example.com/v1beta1"}),
            json!({"kind": "HarborCluster"}),
            json!({"name": "elsewhere"}),
        ] {
            assert_ne!(one, with(target.clone()), "{target}");
        }
    }

    #[test]
    fn a_path_that_is_none_is_said() {
        let object = object(json!({"spec": {"fields": [{"key": "a", "path": "status.phase"}]}}));
        let error = Binding::try_from(&object).unwrap_err();
        assert!(error.to_string().contains("status.phase"), "{error}");
    }

    #[test]
    fn what_the_crd_refuses_is_refused_here() {
        let schema = serde_json::to_value(FieldBinding::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let limit = |path: &str| {
            let limit = schema.pointer(&format!("{spec}/{path}"));
            limit.and_then(Value::as_u64).unwrap() as usize
        };
        let fields = |count: usize| {
            let fields = (0..count).map(|at| json!({"key": "k", "path": format!("spec.f{at}")}));
            json!({"fields": fields.collect::<Vec<_>>()})
        };
        let key = |key: String| json!({"fields": [{"key": key, "path": "spec.a"}]});
        let target = |field: &str, text: String| json!({"target": {field: text}});
        let key_limit = limit("fields/items/properties/key/maxLength");
        let version_limit = limit("target/properties/apiVersion/maxLength");
        let kind_limit = limit("target/properties/kind/maxLength");
        let name_limit = limit("target/properties/name/maxLength");
        let many = limit("fields/maxItems");
        for (most, more) in [
            (fields(many), fields(many + 1)),
            (key("k".repeat(key_limit)), key("k".repeat(key_limit + 1))),
            (
                target("apiVersion", "a".repeat(version_limit)),
                target("apiVersion", "a".repeat(version_limit + 1)),
            ),
            (
                target("kind", "a".repeat(kind_limit)),
                target("kind", "a".repeat(kind_limit + 1)),
            ),
            (
                target("name", named(name_limit)),
                target("name", named(name_limit + 1)),
            ),
        ] {
            assert!(Binding::try_from(&object(json!({"spec": most}))).is_ok());
            assert!(Binding::try_from(&object(json!({"spec": more}))).is_err());
        }
    }

    /// Returns a name of this length.
    fn named(length: usize) -> String {
        format!(
            "{}.a{}",
            vec!["a".repeat(60); 4].join("."),
            "a".repeat(length - 245)
        )
    }
}
