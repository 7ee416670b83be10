//! The config hash: what everything that a workload references comes to, under a key.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};

use crate::digest::{Contents, Presence};

/// The length of a key, in bytes.
pub const KEY_LENGTH: usize = 32;

/// The value of KEY: `v1.<key id>.<HMAC-SHA256>`, with the HMAC in lower case hex.
///
/// It is keyed because everybody who may view workloads can read a pod template: an unkeyed hash of
/// a short password could be guessed offline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigHash {
    key_id: KeyId,
    mac: [u8; 32],
}

impl ConfigHash {
    /// Reads the value of KEY. `None` where it is not in our form.
    pub fn parse(value: &str) -> Option<Self> {
        let (key_id, mac) = value.strip_prefix(PREFIX)?.split_once('.')?;
        let mut hash = Self {
            key_id: KeyId([0; 4]),
            mac: [0; 32],
        };
        hex::decode_to_slice(key_id, &mut hash.key_id.0).ok()?;
        hex::decode_to_slice(mac, &mut hash.mac).ok()?;
        // Only what we would write ourselves: hex in upper case is not.
        (hash.to_string() == value).then_some(hash)
    }

    /// Under which key it was made.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }
}

impl fmt::Display for ConfigHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}.{}", self.key_id, hex::encode(self.mac))
    }
}

/// Which key: the first four bytes of its SHA-256, so that an id cannot name the wrong key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; 4]);

impl fmt::Display for KeyId {
    /// Eight characters of lower case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// One key of the config hash.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey {
    id: KeyId,
    bytes: [u8; KEY_LENGTH],
}

impl HashKey {
    /// A key of these bytes, which must be random.
    pub fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        let mut id = KeyId([0; 4]);
        let digest = Sha256::new()
            .chain_update(b"pod-reloader key id\0")
            .chain_update(bytes)
            .finalize();
        id.0.copy_from_slice(&digest[..4]);
        Self { id, bytes }
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Its bytes, to be stored.
    pub fn as_bytes(&self) -> &[u8; KEY_LENGTH] {
        &self.bytes
    }

    /// The MAC over `contents`. Every part has a fixed length or its length before it.
    fn mac(&self, contents: &Contents) -> Hmac<Sha256> {
        const ABSENT: u8 = 0;
        const PRESENT: u8 = 1;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.bytes).expect("HMAC takes keys of any length");
        mac.update(PREFIX.as_bytes());
        for (reference, presence) in contents {
            for part in [
                reference.kind.as_str(),
                reference.namespace.as_str(),
                reference.name.as_str(),
            ] {
                mac.update(&(part.len() as u64).to_be_bytes());
                mac.update(part.as_bytes());
            }
            match presence {
                Presence::Absent => mac.update(&[ABSENT]),
                Presence::Present(object) => {
                    mac.update(&[PRESENT]);
                    mac.update(object.digest.as_bytes());
                }
            }
        }
        mac
    }
}

impl fmt::Debug for HashKey {
    /// Prints the id and no byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({})", self.id)
    }
}

/// The keys that are known: the first is used for writing, all of them for verifying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyring(Vec<HashKey>);

/// What a value of KEY is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands for the contents, under any of the keys.
    Current,
    /// It was made under one of the keys, for other contents.
    Outdated,
    /// It is not in our form, or its key is not known: it says nothing about contents.
    Foreign,
}

impl Keyring {
    /// The given keys, the one to write with first. `None` without any.
    pub fn new(keys: Vec<HashKey>) -> Option<Self> {
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// The config hash of `contents`, under the first key.
    pub fn hash(&self, contents: &Contents) -> ConfigHash {
        let key = &self.0[0];
        ConfigHash {
            key_id: key.id,
            mac: key.mac(contents).finalize().into_bytes().into(),
        }
    }

    /// Whether `value` stands for `contents`.
    pub fn verify(&self, value: &str, contents: &Contents) -> Verdict {
        let Some(hash) = ConfigHash::parse(value) else {
            return Verdict::Foreign;
        };
        match self.key(hash.key_id) {
            None => Verdict::Foreign,
            Some(key) if key.mac(contents).verify_slice(&hash.mac).is_ok() => Verdict::Current,
            Some(_) => Verdict::Outdated,
        }
    }

    /// Whether `value` is in our form and made under one of the keys.
    pub fn knows(&self, value: &str) -> bool {
        ConfigHash::parse(value).is_some_and(|hash| self.key(hash.key_id).is_some())
    }

    /// Whether `value` is in our form, but its key is not here: the stored keys may be newer.
    pub fn lacks_key_of(&self, value: &str) -> bool {
        ConfigHash::parse(value).is_some_and(|hash| self.key(hash.key_id).is_none())
    }

    fn key(&self, id: KeyId) -> Option<&HashKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

const PREFIX: &str = "v1.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{contents, holding, keyring};

    #[test]
    fn a_hash_verifies_as_long_as_its_key_is_known() {
        let contents = contents(&[("a", holding("1"))]);
        let old = keyring(&[1]).hash(&contents).to_string();
        assert_eq!(keyring(&[2, 1]).verify(&old, &contents), Verdict::Current);
        assert_eq!(keyring(&[2]).verify(&old, &contents), Verdict::Foreign);
        assert!(keyring(&[2]).lacks_key_of(&old));
    }

    #[test]
    fn every_part_of_the_contents_counts() {
        let keys = keyring(&[1]);
        let value = keys
            .hash(&contents(&[("a", holding("1")), ("b", None)]))
            .to_string();
        for other in [
            contents(&[("a", holding("2")), ("b", None)]),
            contents(&[("a", holding("1")), ("b", holding(""))]),
            contents(&[("a", holding("1"))]),
            contents(&[("a", holding("1")), ("c", None)]),
            contents(&[("a", None), ("b", holding("1"))]),
            contents(&[]),
        ] {
            assert_eq!(keys.verify(&value, &other), Verdict::Outdated, "{other:?}");
        }
    }

    #[test]
    fn only_the_form_that_we_write_is_ours() {
        let value = keyring(&[1]).hash(&contents(&[])).to_string();
        assert_eq!(value.len(), "v1.01234567.".len() + 64);
        assert_eq!(
            ConfigHash::parse(&value).map(|hash| hash.to_string()),
            Some(value.clone())
        );
        let upper = value.to_uppercase();
        for other in [
            "",
            "v1.",
            "rubbish",
            &value[1..],
            &value[..value.len() - 2],
            &upper,
            &format!("{value} "),
        ] {
            assert_eq!(ConfigHash::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        let key = HashKey::new([0x41; KEY_LENGTH]);
        let printed = format!("{key:?} {:?}", Keyring::new(vec![key.clone()]));
        assert!(
            !printed.contains("65") && !printed.contains("AAAA"),
            "{printed}"
        );
    }

    /// A change of the scheme would restart every pod in the world: it needs a `v2`.
    #[test]
    fn the_scheme_stays_as_it_was_released() {
        let value = keyring(&[1])
            .hash(&contents(&[("a", holding("1")), ("b", None)]))
            .to_string();
        assert_eq!(
            value,
            "v1.ac854714.1de96b833f4b2c3317799cb13f5f338ab357892de58140148a0ae6e6e84d2c4c"
        );
    }
}
