//! The content of a copy: what is taken from the source, and whether an object has exactly that.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pod_reloader_api::{DeletionPolicy, GROUP, PROTECT};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::watched::{KIND, MarksOfObject};
use super::{ConfigSync, Seals, Target, Whose};
use crate::name::Name;
use crate::raw;
use crate::reference::ConfigKind;
use crate::seal::{COPY_OF, SEAL};
use crate::texts::Texts;

/// Types of Secrets that are never copied: they mean something only where they are, or belong to another tool.
const NEVER_COPIED: [&str; 3] = [
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
    "helm.sh/release.v1",
];
/// The type of a copy of some keys of a Secret that lack what its type promises.
const OPAQUE: &str = "Opaque";

/// The maximum number of owners that are read. A copy has one, and one more would be enough.
const MAX_OWNERS: usize = 64;

/// A ConfigMap or a Secret, as the apiserver sends it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    metadata: Metadata,
    #[serde(rename = "type")]
    kind: Option<Box<str>>,
    /// The keys and values. Those of Secrets, and binary ones, are in base64, as the apiserver writes it.
    #[serde(default, deserialize_with = "Texts::of_any_size")]
    data: Texts,
    #[serde(default, deserialize_with = "Texts::of_any_size")]
    binary_data: Texts,
    immutable: Option<bool>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<Box<str>>,
    #[serde(default)]
    labels: Texts,
    #[serde(default)]
    annotations: Texts,
    #[serde(default, deserialize_with = "raw::first::<MAX_OWNERS, _, _>")]
    owner_references: Vec<OwnerReference>,
    /// The unparsed list of finalizers.
    finalizers: Option<Box<RawValue>>,
}

/// The error of an object that cannot be read. It says nothing more, because that might be a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object cannot be read")]
pub struct Unreadable;

impl Object {
    /// Parses an object.
    ///
    /// # Errors
    ///
    /// It is no ConfigMap and no Secret.
    pub fn parse(body: &[u8]) -> Result<Self, Unreadable> {
        serde_json::from_slice(body).map_err(|_| Unreadable)
    }

    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Returns what says whose it is.
    pub fn target(&self) -> Target {
        let owners = self.metadata.owner_references.iter();
        let owners = owners.filter(|owner| owner.kind == KIND);
        let marks = MarksOfObject {
            mark: self.metadata.annotations.get(COPY_OF),
            seal: self.metadata.annotations.get(SEAL),
            is_terminating: self.metadata.deletion_timestamp.is_some(),
        };
        Target::new(
            &self.metadata.uid,
            &self.metadata.resource_version,
            owners.map(|owner| &*owner.uid),
            marks,
        )
    }
}

/// The reason why a source is not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCopied {
    /// It is a copy itself.
    #[error("the source is a copy itself")]
    IsCopy,
    /// Objects of its type are never copied.
    #[error("Secrets of this type are never copied")]
    NotAllowed,
    /// It lacks this key.
    #[error("the source has no key {0:?}; copies stay as they are")]
    KeyNotFound(String),
}

/// The content of the copies of a source: the part that is the same in all namespaces.
pub struct Content {
    kind: Option<Box<str>>,
    data: Texts,
    binary_data: Texts,
    /// A digest of everything that a copy is made of. It stays in memory.
    pub digest: [u8; 16],
}

/// Shows no value.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.data.iter().chain(self.binary_data.iter());
        let keys: Vec<_> = all.map(|(key, _)| key).collect();
        f.debug_struct("Content").field("keys", &keys).finish()
    }
}

const JSON: &str = "its keys are texts";

/// The next step towards an exact copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The copy is exact.
    Nothing,
    /// The object is somebody else's, and is not touched.
    LeaveAlone,
    /// The copy is being deleted. What follows, follows once it is gone.
    Wait,
    /// The copy gets the content.
    Replace,
    /// The copy is deleted and created again, because its type cannot change, or because it is immutable.
    Recreate,
}

impl ConfigSync {
    /// Returns the content of the copies of `source`.
    ///
    /// # Errors
    ///
    /// Says why the source is not copied.
    pub fn content(&self, source: Object) -> Result<Content, NotCopied> {
        if source.metadata.annotations.get(COPY_OF).is_some() {
            return Err(NotCopied::IsCopy);
        }
        let kind = source.kind;
        if kind.as_deref().is_some_and(|it| NEVER_COPIED.contains(&it)) {
            return Err(NotCopied::NotAllowed);
        }
        let (mut data, mut binary_data) = (source.data, source.binary_data);
        if let Some(missing) = self
            .keys
            .iter()
            .find(|key| data.get(key).or(binary_data.get(key)).is_none())
        {
            return Err(NotCopied::KeyNotFound(missing.clone()));
        }
        let is_part = !self.keys.is_empty();
        if is_part {
            let part = |data: Texts| -> Texts {
                let is_asked = |key: &str| self.keys.iter().any(|it| it == key);
                data.iter().filter(|(key, _)| is_asked(key)).collect()
            };
            (data, binary_data) = (part(data), part(binary_data));
        }
        let has = |key: &str| data.get(key).is_some();
        let kind = kind.map(|kind| match is_part && !keeps_promise(&kind, has) {
            true => OPAQUE.into(),
            false => kind,
        });
        let mut content = Content {
            kind,
            data,
            binary_data,
            digest: [0; 16],
        };
        content.digest = self.digest(&content);
        Ok(content)
    }

    fn digest(&self, content: &Content) -> [u8; 16] {
        let all = (
            &self.uid,
            self.labels(),
            &self.metadata.annotations,
            self.deletion_policy,
            &content.kind,
            &content.data,
            &content.binary_data,
        );
        let digest = Sha256::digest(serde_json::to_vec(&all).expect(JSON));
        std::array::from_fn(|at| digest[at])
    }

    /// Returns the next step towards an exact copy in a namespace, given the object that is there now.
    pub fn step(
        &self,
        namespace: &Name,
        content: &Content,
        object: &Object,
        seals: &Seals,
    ) -> Step {
        match self.whose(namespace, &object.target(), seals) {
            Whose::Ours | Whose::OursBefore | Whose::OursUnsealed => {}
            Whose::Claimed if self.may_be_sealed(content, object) => {}
            Whose::Claimed | Whose::Foreign => return Step::LeaveAlone,
        }
        if object.metadata.deletion_timestamp.is_some() {
            return Step::Wait;
        }
        if object.immutable == Some(true) || object.kind != content.kind {
            return Step::Recreate;
        }
        let annotations = self.annotations(namespace, &seals.keys);
        let is_exact = has_data_of(object, content)
            && object.metadata.labels == self.labels().into_iter().collect()
            && object.metadata.annotations == annotations.into_iter().collect()
            && object.metadata.owner_references == self.owners();
        match is_exact {
            true => Step::Nothing,
            false => Step::Replace,
        }
    }

    /// Returns true if an object that only says that it is the copy becomes the copy.
    ///
    /// It has the content of the copy already, so all that we write is metadata. Whoever has written the mark can write
    /// the metadata as well, so nobody has us do what they cannot do themselves. In this way, copies of earlier versions
    /// and those of other tools that somebody has marked become ours without a restart. What is protected from those
    /// who write its metadata is protected from us, too, unless a ClusterConfigSync of ours owns it.
    fn may_be_sealed(&self, content: &Content, object: &Object) -> bool {
        let is_protected = object.metadata.labels.get(PROTECT) == Some("always");
        object.kind == content.kind
            && object.immutable != Some(true)
            && has_data_of(object, content)
            && (!is_protected || object.target().is_owned_by(&self.uid))
    }

    /// Returns the copy in a namespace as JSON, in place of `object` if it is there. Finalizers stay: somebody waits
    /// for them.
    pub fn manifest(
        &self,
        namespace: &Name,
        content: &Content,
        object: Option<&Object>,
        seals: &Seals,
    ) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Manifest<'a> {
            api_version: &'static str,
            kind: &'static str,
            metadata: Metadata<'a>,
            #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
            secret_type: Option<&'a str>,
            data: &'a Texts,
            #[serde(skip_serializing_if = "Texts::is_empty")]
            binary_data: &'a Texts,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            name: &'a str,
            namespace: &'a str,
            labels: BTreeMap<String, String>,
            annotations: BTreeMap<String, String>,
            owner_references: Vec<OwnerReference>,
            #[serde(skip_serializing_if = "Option::is_none")]
            uid: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            resource_version: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            finalizers: Option<&'a RawValue>,
        }
        let old = object.map(|object| &object.metadata);
        let metadata = Metadata {
            name: self.source.name.as_str(),
            namespace: namespace.as_str(),
            labels: self.labels(),
            annotations: self.annotations(namespace, &seals.keys),
            owner_references: self.owners(),
            uid: old.map(|it| &*it.uid),
            resource_version: old.map(|it| &*it.resource_version),
            finalizers: old.and_then(|it| it.finalizers.as_deref()),
        };
        let manifest = Manifest {
            api_version: "v1",
            kind: self.source.kind.as_str(),
            metadata,
            secret_type: content
                .kind
                .as_deref()
                .filter(|_| self.source.kind == ConfigKind::Secret),
            data: &content.data,
            binary_data: &content.binary_data,
        };
        serde_json::to_vec(&manifest).expect(JSON)
    }

    /// Returns the owners of each copy. With the owner, the garbage collector deletes the copies.
    fn owners(&self) -> Vec<OwnerReference> {
        let owner = || OwnerReference {
            api_version: format!("{GROUP}/v1alpha1"),
            kind: KIND.to_owned(),
            name: self.name.as_str().to_owned(),
            uid: (*self.uid).to_owned(),
            ..OwnerReference::default()
        };
        match self.deletion_policy {
            DeletionPolicy::Delete => vec![owner()],
            DeletionPolicy::Retain => Vec::new(),
        }
    }
}

/// Returns true if the keys of a Secret are enough for its type: those that `ValidateSecret` in
/// `pkg/apis/core/validation/validation.go` of Kubernetes asks for. Nobody knows what other types promise.
fn keeps_promise(kind: &str, has: impl Fn(&str) -> bool) -> bool {
    match kind {
        "kubernetes.io/tls" => has("tls.crt") && has("tls.key"),
        "kubernetes.io/dockerconfigjson" => has(".dockerconfigjson"),
        "kubernetes.io/dockercfg" => has(".dockercfg"),
        "kubernetes.io/basic-auth" => has("username") || has("password"),
        "kubernetes.io/ssh-auth" => has("ssh-privatekey"),
        _ => false,
    }
}

fn has_data_of(object: &Object, content: &Content) -> bool {
    object.data == content.data && object.binary_data == content.binary_data
}

#[cfg(test)]
mod tests {
    use super::super::marks::tests::{incomplete, seals};
    use super::super::tests::sync;
    use super::*;
    use serde_json::{Value, json};

    fn shop() -> Name {
        Name::parse("shop").unwrap()
    }

    /// Returns Secret `platform/pull`, with some fields of its own.
    fn object(fields: Value) -> Object {
        let mut object = json!({
            "metadata": {"name": "pull", "namespace": "platform", "uid": "u-9", "resourceVersion": "7"},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
        });
        json_patch::merge(&mut object, &fields);
        Object::parse(object.to_string().as_bytes()).unwrap()
    }

    fn content(sync: &ConfigSync) -> Content {
        sync.content(object(json!({}))).unwrap()
    }

    /// Returns the copy in `shop` as the apiserver would store it, with some fields of its own.
    fn copy(sync: &ConfigSync, fields: Value) -> Object {
        patched(sync, &[fields])
    }

    /// Returns the same without a seal.
    fn unsealed(sync: &ConfigSync, fields: Value) -> Object {
        let no_seal = json!({"metadata": {"annotations": {SEAL: null}}});
        patched(sync, &[no_seal, fields])
    }

    fn patched(sync: &ConfigSync, patches: &[Value]) -> Object {
        let manifest = sync.manifest(&shop(), &content(sync), None, &seals(&[1]));
        let mut copy: Value = serde_json::from_slice(&manifest).unwrap();
        copy["metadata"]["uid"] = json!("u-2");
        copy["metadata"]["resourceVersion"] = json!("8");
        for patch in patches {
            json_patch::merge(&mut copy, patch);
        }
        Object::parse(copy.to_string().as_bytes()).unwrap()
    }

    fn step(sync: &ConfigSync, fields: Value) -> Step {
        step_with(sync, fields, &seals(&[1]))
    }

    fn step_with(sync: &ConfigSync, fields: Value, seals: &Seals) -> Step {
        sync.step(&shop(), &content(sync), &copy(sync, fields), seals)
    }

    #[test]
    fn a_copy_as_we_make_it_is_exact() {
        for fields in [
            json!({}),
            json!({"deletionPolicy": "Retain"}),
            json!({"keys": ["tls.crt"]}),
            json!({"template": {"metadata": {"labels": {"team": "shop"}, "annotations": {"a": "b"}}}}),
        ] {
            let sync = sync(json!({"spec": fields}));
            assert_eq!(step(&sync, json!({})), Step::Nothing, "{fields}");
        }
    }

    #[test]
    fn whatever_differs_is_made_exact_again() {
        let sync = sync(json!({}));
        for (fields, expected) in [
            (json!({"data": {"tls.key": "eA=="}}), Step::Replace),
            (json!({"data": {"more": "eA=="}}), Step::Replace),
            (json!({"data": null}), Step::Replace),
            (json!({"metadata": {"labels": null}}), Step::Replace),
            (
                json!({"metadata": {"labels": {"more": "x"}}}),
                Step::Replace,
            ),
            (
                json!({"metadata": {"annotations": {"more": "x"}}}),
                Step::Replace,
            ),
            (
                json!({"metadata": {"ownerReferences": null}}),
                Step::Replace,
            ),
            (json!({"type": "Opaque"}), Step::Recreate),
            (json!({"immutable": true}), Step::Recreate),
            (json!({"immutable": false}), Step::Nothing),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                Step::Wait,
            ),
            (
                json!({"metadata": {"annotations": {COPY_OF: "platform/pull@other"}}}),
                Step::LeaveAlone,
            ),
            (json!({"metadata": {"annotations": null}}), Step::LeaveAlone),
            (
                json!({"metadata": {"annotations": null, "ownerReferences": null}}),
                Step::LeaveAlone,
            ),
            // Others may wait for these.
            (
                json!({"metadata": {"finalizers": ["example.com/wait"]}}),
                Step::Nothing,
            ),
        ] {
            assert_eq!(step(&sync, fields.clone()), expected, "{fields}");
        }
    }

    #[test]
    fn a_copy_that_was_sealed_with_an_earlier_key_gets_another_seal() {
        let sync = sync(json!({}));
        let rotated = seals(&[2, 1]);
        assert_eq!(step_with(&sync, json!({}), &rotated), Step::Replace);
        let old = copy(&sync, json!({}));
        let manifest = sync.manifest(&shop(), &content(&sync), Some(&old), &rotated);
        let mut resealed: Value = serde_json::from_slice(&manifest).unwrap();
        resealed["metadata"]["resourceVersion"] = json!("9");
        let resealed = Object::parse(resealed.to_string().as_bytes()).unwrap();
        let only_new = seals(&[2]);
        let step = sync.step(&shop(), &content(&sync), &resealed, &only_new);
        assert_eq!(step, Step::Nothing, "the earlier key may go");
        assert_eq!(resealed.data, old.data);
    }

    #[test]
    fn what_only_says_that_it_is_the_copy_gets_a_seal_if_it_has_the_content_and_is_left_alone_if_not()
     {
        let sync = sync(json!({}));
        let always = json!({PROTECT: "always"});
        for (fields, expected) in [
            (json!({}), Step::Replace),
            (
                json!({"metadata": {"annotations": {SEAL: "0".repeat(32), "tool": "x"}, "labels": {"tool": "x"}}}),
                Step::Replace,
            ),
            (
                json!({"metadata": {"ownerReferences": null}}),
                Step::Replace,
            ),
            (json!({"metadata": {"labels": always}}), Step::Replace),
            (
                json!({"metadata": {"labels": always, "ownerReferences": null}}),
                Step::LeaveAlone,
            ),
            (json!({"data": {"tls.key": "eA=="}}), Step::LeaveAlone),
            (json!({"data": {"more": "eA=="}}), Step::LeaveAlone),
            (json!({"binaryData": {"more": "eA=="}}), Step::LeaveAlone),
            (json!({"type": "Opaque"}), Step::LeaveAlone),
            (json!({"immutable": true}), Step::LeaveAlone),
        ] {
            let object = unsealed(&sync, fields.clone());
            let step = sync.step(&shop(), &content(&sync), &object, &seals(&[1]));
            assert_eq!(step, expected, "{fields}");
        }
    }

    #[test]
    fn a_copy_of_an_earlier_version_is_taken_over_whatever_its_content() {
        let sync = sync(json!({}));
        let of = |fields: Value| {
            let object = unsealed(&sync, fields);
            sync.step(&shop(), &content(&sync), &object, &incomplete())
        };
        assert_eq!(of(json!({"data": {"tls.key": "eA=="}})), Step::Replace);
        assert_eq!(of(json!({"type": "Opaque"})), Step::Recreate);
        let of_nobody = json!({"data": {"tls.key": "eA=="}, "metadata": {"ownerReferences": null}});
        assert_eq!(of(of_nobody), Step::LeaveAlone);
    }

    #[test]
    fn a_copy_has_no_other_metadata_than_that_of_the_template_and_the_marks() {
        let sync = sync(json!({"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}));
        let source = object(json!({"metadata": {
            "labels": {"app.kubernetes.io/instance": "argo"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Any", "name": "a", "uid": "b"}],
            "finalizers": ["a.b/c"],
        }}));
        let content = sync.content(source).unwrap();
        let manifest: Value =
            serde_json::from_slice(&sync.manifest(&shop(), &content, None, &seals(&[1]))).unwrap();
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "pull",
                "namespace": "shop",
                "labels": {"team": "shop", "pod-reloader.cs.sap.com/copied-from": "platform"},
                "annotations": {
                    "pod-reloader.cs.sap.com/copy-of": "platform/pull@shop",
                    "pod-reloader.cs.sap.com/seal": sync.seal(&shop(), &seals(&[1]).keys),
                },
                "ownerReferences": [{
                    "apiVersion": "pod-reloader.github.io/v1alpha1",
                    "kind": "ClusterConfigSync",
                    "name": "pull",
                    "uid": "u-1",
                }],
            },
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
        });
        assert_eq!(manifest, expected);
    }

    #[test]
    fn a_copy_that_is_replaced_keeps_its_identity_and_its_finalizers() {
        let sync = sync(json!({}));
        let old = copy(&sync, json!({"metadata": {"finalizers": ["a.b/c"]}}));
        let manifest = sync.manifest(&shop(), &content(&sync), Some(&old), &seals(&[1]));
        let metadata = &serde_json::from_slice::<Value>(&manifest).unwrap()["metadata"];
        assert_eq!(metadata["resourceVersion"], "8");
        assert_eq!(metadata["uid"], "u-2");
        assert_eq!(metadata["finalizers"], json!(["a.b/c"]));
    }

    #[test]
    fn some_keys_of_a_secret_keep_its_type_if_they_are_what_it_promises() {
        let keys = [
            "tls.crt",
            "tls.key",
            ".dockerconfigjson",
            ".dockercfg",
            "username",
            "password",
            "ssh-privatekey",
            "more",
        ];
        let data: Value = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!("YQ==")))
            .collect();
        let kind = |of: &str, keys: &[&str]| {
            let sync = sync(json!({"spec": {"keys": keys}}));
            let content = sync
                .content(object(json!({"type": of, "data": data})))
                .unwrap();
            content.kind.unwrap()
        };
        for (of, keys, stays) in [
            ("kubernetes.io/tls", &["tls.crt", "tls.key"][..], true),
            ("kubernetes.io/tls", &["more", "tls.key", "tls.crt"], true),
            ("kubernetes.io/tls", &["tls.crt"], false),
            ("kubernetes.io/tls", &["tls.key", "more"], false),
            (
                "kubernetes.io/dockerconfigjson",
                &[".dockerconfigjson"],
                true,
            ),
            ("kubernetes.io/dockerconfigjson", &[".dockercfg"], false),
            ("kubernetes.io/dockercfg", &[".dockercfg"], true),
            ("kubernetes.io/dockercfg", &["more"], false),
            ("kubernetes.io/basic-auth", &["username"], true),
            ("kubernetes.io/basic-auth", &["password"], true),
            ("kubernetes.io/basic-auth", &["username", "password"], true),
            ("kubernetes.io/basic-auth", &["more"], false),
            ("kubernetes.io/ssh-auth", &["ssh-privatekey"], true),
            ("kubernetes.io/ssh-auth", &["more"], false),
            ("example.com/any", &["more"], false),
            ("Opaque", &["more"], true),
        ] {
            let expected = if stays { of } else { OPAQUE };
            assert_eq!(&*kind(of, keys), expected, "{of} {keys:?}");
        }
        assert_eq!(&*kind("example.com/any", &[]), "example.com/any");
    }

    #[test]
    fn a_part_with_another_type_than_before_is_made_again() {
        let whole = sync(json!({"spec": {"keys": ["tls.crt", "tls.key"]}}));
        let part = sync(json!({"spec": {"keys": ["tls.crt"]}}));
        let of_whole = copy(&whole, json!({}));
        let step = part.step(&shop(), &content(&part), &of_whole, &seals(&[1]));
        assert_eq!(step, Step::Recreate);
    }

    #[test]
    fn some_keys_of_a_secret_make_an_opaque_one() {
        let sync = sync(json!({"spec": {"keys": ["tls.crt"]}}));
        let content = content(&sync);
        assert_eq!(content.kind.as_deref(), Some("Opaque"));
        let keys: Vec<_> = content.data.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["tls.crt"]);
        let missing = sync.content(object(json!({"data": {"tls.crt": null}})));
        assert_eq!(
            missing.unwrap_err(),
            NotCopied::KeyNotFound("tls.crt".to_owned())
        );
    }

    #[test]
    fn a_copy_and_what_belongs_to_one_place_is_no_source() {
        let refused = |fields| sync(json!({})).content(object(fields)).unwrap_err();
        let copy = json!({"metadata": {"annotations": {COPY_OF: "a/b@c"}}});
        assert_eq!(refused(copy), NotCopied::IsCopy);
        for kind in NEVER_COPIED {
            assert_eq!(
                refused(json!({"type": kind})),
                NotCopied::NotAllowed,
                "{kind}"
            );
        }
    }

    #[test]
    fn the_digest_tells_what_makes_copies_differ() {
        let of = |spec: Value, source: Value| {
            let sync = sync(json!({"spec": spec}));
            sync.content(object(source)).unwrap().digest
        };
        let same = of(json!({}), json!({}));
        assert_eq!(
            of(
                json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}),
                json!({})
            ),
            same
        );
        assert_eq!(
            of(
                json!({}),
                json!({"metadata": {"resourceVersion": "99", "labels": {"a": "b"}}})
            ),
            same
        );
        for (spec, source) in [
            (json!({"keys": ["tls.crt"]}), json!({})),
            (json!({"deletionPolicy": "Retain"}), json!({})),
            (
                json!({"template": {"metadata": {"labels": {"a": "b"}}}}),
                json!({}),
            ),
            (
                json!({"template": {"metadata": {"annotations": {"a": "b"}}}}),
                json!({}),
            ),
            (json!({}), json!({"data": {"tls.key": "eA=="}})),
            (json!({}), json!({"type": "Opaque"})),
        ] {
            assert_ne!(of(spec.clone(), source.clone()), same, "{spec} {source}");
        }
    }

    #[test]
    fn no_value_is_shown_by_debug_output() {
        let shown = format!("{:?}", content(&sync(json!({}))));
        assert!(
            shown.contains("tls.crt") && !shown.contains("YQ=="),
            "{shown}"
        );
    }
}
