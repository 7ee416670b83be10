//! The keys of the config hash. They are read from one Secret of our namespace, which is created if it is
//! missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Api, Client};
use pod_reloader_core::hash::{KEY_LENGTH, Keyring, entry_name};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::error::ReadError;
use crate::runtime::client::{DEADLINE, post_params, within};
use crate::runtime::error::CallError;

/// The time between two reads of the Secret.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// The age that a key must reach before new hashes use it. By then every replica has refreshed twice.
const GRACE: SignedDuration = SignedDuration::from_secs(2 * 60 + 10);

type Entries = BTreeMap<String, ByteString>;

/// The keys as they were last read.
pub struct Keys {
    secrets: Api<Secret>,
    secret: Reference,
    /// True if the Secret is created when it is missing.
    makes: bool,
    last: watch::Sender<Option<Last>>,
    reading: tokio::sync::Mutex<()>,
}

struct Last {
    keyring: Arc<Keyring>,
    entries: Entries,
    began: Instant,
}

impl Keys {
    /// Returns the keys in the Secret `name` of `namespace`, which have not been read yet. The
    /// Secret is created when it is missing.
    pub fn new(client: Client, namespace: &Name, name: &Name) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace.as_str()),
            secret: Reference {
                kind: ConfigKind::Secret,
                namespace: namespace.clone(),
                name: name.clone(),
            },
            makes: true,
            last: watch::Sender::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the same keys, whose Secret is never created by us.
    pub fn made_by_others(self) -> Self {
        Self {
            makes: false,
            ..self
        }
    }

    /// Returns the keys, if they have been read.
    pub fn keyring(&self) -> Option<Arc<Keyring>> {
        let last = self.last.borrow();
        last.as_ref().map(|last| last.keyring.clone())
    }

    /// Waits until the keys have been read, and returns them.
    pub async fn first_read(&self) -> Arc<Keyring> {
        let mut last = self.last.subscribe();
        let last = last.wait_for(Option::is_some).await;
        let last = last.expect("the sender is ours");
        let last = last.as_ref().expect("it was waited for");
        last.keyring.clone()
    }

    /// Returns the keys from a read that began at `since` or later.
    pub async fn read_since(&self, since: Instant) -> Result<Arc<Keyring>, ReadError> {
        let _reading = self.reading.lock().await;
        let recent = {
            let last = self.last.borrow();
            last.as_ref()
                .filter(|last| last.began >= since)
                .map(|last| last.keyring.clone())
        };
        match recent {
            Some(keyring) => Ok(keyring),
            None => self.refresh().await,
        }
    }

    /// Reads the Secret. A missing Secret may be created: with the keys that we know, so that deleting it by
    /// mistake has no effect, or else with a new key.
    async fn refresh(&self) -> Result<Arc<Keyring>, ReadError> {
        let began = Instant::now();
        let entries = match self.entries().await {
            Err(error) if error.is_not_found() && self.makes => match self.create().await {
                // Another replica was faster.
                Err(error) if error.is_conflict() => self.entries().await,
                created => created,
            },
            read => read,
        };
        let entries = entries.map_err(|source| ReadError::Keys {
            secret: self.secret.clone(),
            source,
        })?;
        let pairs = entries
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.0.as_slice()));
        let (keyring, rejected) = Keyring::from_entries(pairs, Timestamp::now(), GRACE);
        for name in rejected {
            warn!(secret = %self.secret, entry = name, "entry is no hash key: a key is named like 20261121T083000Z and has {KEY_LENGTH} bytes");
        }
        let keyring = Arc::new(keyring.ok_or_else(|| ReadError::NoKeys(self.secret.clone()))?);
        self.last.send_replace(Some(Last {
            keyring: keyring.clone(),
            entries,
            began,
        }));
        Ok(keyring)
    }

    async fn entries(&self) -> Result<Entries, CallError> {
        let secret = within(DEADLINE, self.secrets.get(self.secret.name.as_str())).await?;
        Ok(secret.data.unwrap_or_default())
    }

    async fn create(&self) -> Result<Entries, CallError> {
        let known = {
            let last = self.last.borrow();
            last.as_ref().map(|last| last.entries.clone())
        };
        let entries = known.unwrap_or_else(new_key);
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.secret.name.to_string()),
                labels: Some(
                    [(
                        "app.kubernetes.io/name".to_owned(),
                        "pod-reloader".to_owned(),
                    )]
                    .into(),
                ),
                ..ObjectMeta::default()
            },
            data: Some(entries.clone()),
            ..Secret::default()
        };
        let params = post_params();
        within(DEADLINE, self.secrets.create(&params, &secret)).await?;
        info!(secret = %self.secret, "made the hash keys");
        Ok(entries)
    }
}

fn new_key() -> Entries {
    let mut key = vec![0; KEY_LENGTH];
    getrandom::fill(&mut key).expect("the operating system has random bytes");
    [(entry_name(Timestamp::now()), ByteString(key))].into()
}
