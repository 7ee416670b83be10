//! The inputs: a Deployment as the apiserver sends it, and the two objects that it lists.

use pod_reloader_core::annotations::Inherited;
use pod_reloader_core::digest::{
    Aspects, ConfigObject, Contents, DataKeys, NotAConfigObject, Presence,
};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::scope::Scope;

use pod_reloader_core::object::{Object, WorkloadObject};
use pod_reloader_core::workload::{Reading, Workload};

/// Returns a review of 8 KB that does not change the pod template.
pub(crate) fn review_that_keeps() -> Vec<u8> {
    let old = config_hash("blue");
    review(
        &deployment("1.27.3", 3, &old),
        &deployment("1.27.3", 4, &old),
    )
}

/// Returns a review of 8 KB with another image.
pub(crate) fn review_that_reads() -> Vec<u8> {
    let old = config_hash("blue");
    review(
        &deployment("1.27.3", 3, &old),
        &deployment("1.28.0", 3, &old),
    )
}

/// Returns the Deployment with this config hash.
pub(crate) fn stamped(config_hash: &str) -> String {
    deployment("1.27.3", 3, config_hash)
}

/// Parses the Deployment `json` into what the rules need.
pub(crate) fn workload(json: &str) -> Workload {
    let object: WorkloadObject = serde_json::from_str(json).expect("it is a Deployment");
    object
        .into_workload(
            WorkloadKind::DEPLOYMENT,
            &Reading::default(),
            &Inherited::default(),
        )
        .expect("its namespace is a name")
}

/// Returns the config hash of the Deployment if its ConfigMap says `color`.
pub(crate) fn config_hash(color: &str) -> String {
    let objects = objects(color).into_iter();
    let contents = objects.map(|(reference, json)| (reference, present(&json)));
    keys()
        .hash(&Contents::whole(&contents.collect()))
        .to_string()
}

/// Returns the objects that the Deployment lists, with a ConfigMap that says `color`.
pub(crate) fn objects(color: &str) -> [(Reference, String); 2] {
    [
        (
            reference(ConfigKind::ConfigMap, "web-config"),
            config_map(color),
        ),
        (
            reference(ConfigKind::Secret, "web-password"),
            secret(4 << 10),
        ),
    ]
}

/// Returns an object as present, with its digest.
pub(crate) fn present(json: &str) -> Presence {
    let object = parsed(json);
    Presence::Present(object.expect("it is a ConfigMap or Secret"))
}

/// Parses an object, with the key that the Deployment names.
pub(crate) fn parsed(json: &str) -> Result<ConfigObject, NotAConfigObject> {
    let aspects = Aspects {
        keys: Some(&DataKeys::from(["part-0".into()])),
        ..Aspects::default()
    };
    ConfigObject::parse(json.as_bytes(), aspects)
}

/// Returns the reference to an object in the namespace of the Deployment.
pub(crate) fn reference(kind: ConfigKind, name: &str) -> Reference {
    Reference {
        kind,
        namespace: self::name("shop"),
        name: self::name(name),
    }
}

/// Returns a ConfigMap of 0.7 KB.
fn config_map(color: &str) -> String {
    compact(CONFIG_MAP).replace("COLOR", color)
}

/// Returns a Secret with four values of `bytes` in total, in base64.
pub(crate) fn secret(bytes: usize) -> String {
    let value = "cG9kLXJlbG9hZGVy".repeat(bytes / 4 / 16);
    compact(SECRET).replace("VALUE", &value)
}

/// Returns the scope of an operator that manages all namespaces.
pub(crate) fn scope() -> Scope {
    Scope::new([], name("pod-reloader"))
}

/// Returns a keyring of one key.
pub(crate) fn keys() -> Keyring {
    Keyring::new(vec![HashKey::new([7; 32])]).expect("it is one key")
}

/// Parses a name.
pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("it is a name")
}

fn deployment(tag: &str, replicas: u32, config_hash: &str) -> String {
    compact(DEPLOYMENT)
        .replace("IMAGE_TAG", tag)
        .replace("REPLICAS", &replicas.to_string())
        .replace("CONFIG_HASH", config_hash)
}

fn review(old: &str, new: &str) -> Vec<u8> {
    compact(REVIEW)
        .replace("NEW", new)
        .replace("OLD", old)
        .into()
}

/// Removes line breaks and blanks, which the apiserver does not send.
fn compact(json: &str) -> String {
    json.lines().map(str::trim_start).collect()
}

// The Deployment, with its members in the order in which the apiserver serialises them.
const DEPLOYMENT: &str = include_str!("deployment.json");
const REVIEW: &str = include_str!("review.json");
const CONFIG_MAP: &str = include_str!("config-map.json");
const SECRET: &str = include_str!("secret.json");
