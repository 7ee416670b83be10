//! Says what a config hash must be, by a second implementation that shares no code with the first.

use std::collections::BTreeMap;

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
            match read(client, kind, namespace, name).await? {
                None => message.push(0),
                Some(object) => {
                    message.push(1);
                    message.extend(digest(&object));
                }
            }
        }
    }
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
    let id = Sha256::new()
        .chain_update("pod-reloader key id\0")
        .chain_update(key)
        .finalize();
    let mac = Hmac::<Sha256>::new_from_slice(key)?
        .chain_update(message)
        .finalize()
        .into_bytes();
    Ok(format!("v1.{}.{}", hex(&id[..4]), hex(&mac)))
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
