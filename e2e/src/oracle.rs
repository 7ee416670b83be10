//! Computes the expected config hash, in a second implementation that shares no code with the first.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client, api::DynamicObject, discovery::ApiResource};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    installation::Installation,
    workload::{CONFIG_MAPS, SECRETS},
};

/// Age from which the operator writes with a key.
const GRACE: SignedDuration = SignedDuration::from_secs(130);

/// Computes the config hash that `workload`, an object of the cluster, must carry: the hash of the current
/// state, under the newest key of `installation` that every replica can have read.
///
/// # Errors
/// When something cannot be read.
pub async fn config_hash(
    client: &Client,
    workload: &Value,
    installation: &Installation,
) -> Result<String> {
    let mut truth = Truth::read(client, installation).await?;
    truth.config_hash(workload).await
}

/// The state of config objects for many workloads. Each config object is read once, when it is first needed.
pub struct Truth<'a> {
    client: &'a Client,
    key: Vec<u8>,
    /// Digests by object; `None` if the object is absent.
    digests: HashMap<ConfigObject, Option<Digests>>,
}

/// Digests of one config object.
struct Digests {
    whole: Vec<u8>,
    entries: BTreeMap<String, Vec<u8>>,
}

/// Kind, namespace and name of an object.
type ConfigObject = (&'static str, String, String);

impl<'a> Truth<'a> {
    /// Reads the key. Config objects are read later.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(client: &'a Client, installation: &Installation) -> Result<Self> {
        Ok(Self {
            client,
            key: writing_key(client, installation).await?,
            digests: HashMap::new(),
        })
    }

    /// Takes in a config object as it is stored, so that it is not read.
    pub fn take_in(&mut self, kind: &'static str, namespace: &str, name: &str, object: &Value) {
        let object_id = (kind, namespace.to_owned(), name.to_owned());
        self.digests.insert(object_id, Some(digests(object)));
    }

    /// Computes a config hash like the function [`config_hash`].
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn config_hash(&mut self, workload: &Value) -> Result<String> {
        let namespace = workload["metadata"]["namespace"]
            .as_str()
            .context("no namespace")?;
        let mut message = b"v1.".to_vec();
        for (annotation, kind) in [(CONFIG_MAPS, "ConfigMap"), (SECRETS, "Secret")] {
            let list = workload["metadata"]["annotations"][annotation]
                .as_str()
                .unwrap_or_default();
            for (name, keys) in items(list) {
                for part in [kind, namespace, name] {
                    push(&mut message, part);
                }
                match (self.digests_of(kind, namespace, name).await?, keys) {
                    (None, _) => message.push(0),
                    (Some(digests), None) => {
                        message.push(1);
                        message.extend(&digests.whole);
                    }
                    (Some(digests), Some(keys)) => {
                        message.push(2);
                        message.extend((keys.len() as u64).to_be_bytes());
                        for key in keys {
                            push(&mut message, key);
                            let digest = digests.entries.get(key);
                            message.push(digest.is_some().into());
                            message.extend(digest.into_iter().flatten());
                        }
                    }
                }
            }
        }
        let id = Sha256::new()
            .chain_update("pod-reloader key id\0")
            .chain_update(&self.key)
            .finalize();
        let mac = Hmac::<Sha256>::new_from_slice(&self.key)?
            .chain_update(message)
            .finalize()
            .into_bytes();
        Ok(format!("v1.{}.{}", hex(&id[..4]), hex(&mac)))
    }

    async fn digests_of(
        &mut self,
        kind: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<&Digests>> {
        let digests = match self.digests.entry((kind, namespace.into(), name.into())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let object = read(self.client, kind, namespace, name).await?;
                unknown.insert(object.as_ref().map(digests))
            }
        };
        Ok(digests.as_ref())
    }
}

/// Parses a list into names, sorted, each with its keys. `None` means the whole object.
fn items(list: &str) -> BTreeMap<&str, Option<BTreeSet<&str>>> {
    let mut items = BTreeMap::new();
    // A comma inside brackets does not end an item.
    for part in list.split_inclusive(']') {
        let (whole, keyed) = match part.strip_suffix(']').and_then(|it| it.split_once('[')) {
            Some((names, keys)) => {
                let (whole, name) = names.rsplit_once(',').unwrap_or(("", names));
                (whole, Some((name.trim(), keys)))
            }
            None => (part, None),
        };
        for name in separated(whole) {
            items.insert(name, None);
        }
        if let Some((name, keys)) = keyed {
            let known = items.entry(name).or_insert_with(|| Some(BTreeSet::new()));
            known.iter_mut().for_each(|it| it.extend(separated(keys)));
        }
    }
    items
}

fn separated(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// Returns the newest key that every replica can have read.
async fn writing_key(client: &Client, installation: &Installation) -> Result<Vec<u8>> {
    let keys: Api<Secret> = Api::namespaced(client.clone(), &installation.namespace);
    let keys = keys
        .get(&installation.hash_keys())
        .await?
        .data
        .unwrap_or_default();
    let settled = keys
        .range(..=entry_name(Timestamp::now() - GRACE))
        .next_back();
    let writing = settled.or_else(|| keys.first_key_value());
    let (_, ByteString(key)) = writing.context("there are no keys")?;
    Ok(key.clone())
}

/// Returns the entry name of a key that is made at `time`.
fn entry_name(time: Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

async fn read(client: &Client, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>> {
    let resource = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    };
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    Ok(objects.get_opt(name).await?.map(|object| object.data))
}

/// Reads the key under which `installation` names new copies.
///
/// # Errors
/// When it cannot be read.
pub async fn naming_key(client: &Client, installation: &Installation) -> Result<Vec<u8>> {
    writing_key(client, installation).await
}

/// Computes the name of the copy of a ConfigMap `source` of this namespace with this data.
///
/// # Errors
/// When `key` is no key.
pub fn copy_name(
    key: &[u8],
    namespace: &str,
    source: &str,
    data: &[(&str, &str)],
) -> Result<String> {
    let data: BTreeMap<_, _> = data.iter().copied().collect();
    let digest = digests(&serde_json::json!({ "data": data })).whole;
    let mut message = Vec::new();
    for part in ["pin name", namespace, source, &hex(&digest)] {
        push(&mut message, part);
    }
    let mac = Hmac::<Sha256>::new_from_slice(key)?
        .chain_update(message)
        .finalize()
        .into_bytes();
    let digits = mac.iter().take(10).map(|byte| match byte % 32 {
        digit @ 0..10 => char::from(b'0' + digit),
        letter => char::from(b'a' + letter - 10),
    });
    Ok(format!("{source}-{}", digits.collect::<String>()))
}

fn digests(object: &Value) -> Digests {
    let (mut whole, mut entries) = (Vec::new(), BTreeMap::new());
    for (tag, member) in [(1, "data"), (2, "binaryData")] {
        let values: BTreeMap<String, String> =
            serde_json::from_value(object[member].clone()).unwrap_or_default();
        for (key, value) in values {
            let mut entry = vec![tag];
            push(&mut entry, &key);
            push(&mut entry, &value);
            whole.extend(&entry);
            entries.insert(key, Sha256::digest(entry).to_vec());
        }
    }
    Digests {
        whole: Sha256::digest(whole).to_vec(),
        entries,
    }
}

fn push(message: &mut Vec<u8>, part: &str) {
    message.extend((part.len() as u64).to_be_bytes());
    message.extend(part.as_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
