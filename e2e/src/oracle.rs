//! Says what a config hash must be, by a second implementation that shares no code with the first.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

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

/// How old a key must be before the operator writes with it.
const GRACE: SignedDuration = SignedDuration::from_secs(130);

/// The config hash that `workload`, an object of the cluster, must carry: what is true now, under the
/// newest key of `installation` that every replica can have read.
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

/// What is true from one moment on, for many workloads: each config object is read once.
pub struct Truth<'a> {
    client: &'a Client,
    key: Vec<u8>,
    /// None is absent.
    digests: HashMap<ConfigObject, Option<Vec<u8>>>,
}

/// Kind, namespace and name.
type ConfigObject = (&'static str, String, String);

impl<'a> Truth<'a> {
    /// Reads the key.
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

    /// As [`config_hash`].
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
            let mut names: Vec<&str> = list
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                for part in [kind, namespace, name] {
                    push(&mut message, part);
                }
                match self.digest_of(kind, namespace, name).await? {
                    None => message.push(0),
                    Some(digest) => {
                        message.push(1);
                        message.extend(digest);
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

    async fn digest_of(
        &mut self,
        kind: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<&[u8]>> {
        let digest = match self.digests.entry((kind, namespace.into(), name.into())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let object = read(self.client, kind, namespace, name).await?;
                unknown.insert(object.as_ref().map(digest))
            }
        };
        Ok(digest.as_deref())
    }
}

/// The newest key that every replica can have read.
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

/// The name of the entry of a key that is made at `time`.
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

fn digest(object: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    for (tag, member) in [(1, "data"), (2, "binaryData")] {
        let entries: BTreeMap<String, String> =
            serde_json::from_value(object[member].clone()).unwrap_or_default();
        for (key, value) in entries {
            message.push(tag);
            push(&mut message, &key);
            push(&mut message, &value);
        }
    }
    Sha256::digest(message).to_vec()
}

fn push(message: &mut Vec<u8>, part: &str) {
    message.extend((part.len() as u64).to_be_bytes());
    message.extend(part.as_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
