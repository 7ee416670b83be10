//! The config hash: one value, made under a key, for everything that a workload tracks.

mod entries;

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};

pub use self::entries::entry_name;
use crate::digest::{Content, Contents};
use crate::name::Name;
use crate::reference::Reference;
use crate::secret_provider_class::Rotated;

/// The length of a key, in bytes.
pub const KEY_LENGTH: usize = 32;

/// The value of the config hash annotation: `v1.<key id>.<HMAC-SHA256>`, with the HMAC in lower case hex.
///
/// The hash is an HMAC because anyone who may view workloads can read a pod template: from an unkeyed hash, a
/// short password could be guessed offline.
///
/// A dot and a mark follow if pods were restarted for a [rotation](crate::rotation), or for contents that the same
/// hash stood for before they [reloaded](crate::http_reload) others. The mark is an HMAC, too, and says nothing about
/// the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigHash {
    /// The id of the key that made the hash.
    pub key_id: KeyId,
    mac: [u8; 32],
    rotation: Option<[u8; ROTATION_LENGTH]>,
}

impl ConfigHash {
    /// Parses the value of a config hash annotation. `None` if it is not in our form.
    pub fn parse(value: &str) -> Option<Self> {
        let (key_id, rest) = value.strip_prefix(PREFIX)?.split_once('.')?;
        let (mac, rotation) = match rest.split_once('.') {
            Some((mac, rotation)) => (mac, Some(rotation)),
            None => (rest, None),
        };
        let mut hash = Self {
            key_id: KeyId([0; 4]),
            mac: [0; 32],
            rotation: rotation.map(|_| [0; ROTATION_LENGTH]),
        };
        hex::decode_to_slice(key_id, &mut hash.key_id.0).ok()?;
        hex::decode_to_slice(mac, &mut hash.mac).ok()?;
        if let (Some(own), Some(text)) = (&mut hash.rotation, rotation) {
            hex::decode_to_slice(text, own).ok()?;
        }
        // Only the exact form that we write is accepted, so not hex in upper case.
        (hash.to_string() == value).then_some(hash)
    }

    /// Returns the hash with the mark of the last rotation that `value`, an earlier hash of the workload, carries.
    #[must_use]
    pub fn carrying(self, value: Option<&str>) -> Self {
        let rotation = value.and_then(Self::parse).and_then(|it| it.rotation);
        Self { rotation, ..self }
    }

    /// Returns the hash with the mark of a rotation.
    #[must_use]
    pub(crate) fn rotated(self, keys: &Keyring, namespace: &Name, rotated: &Rotated) -> Self {
        Self {
            rotation: Some(keys.0[0].rotation(namespace, rotated)),
            ..self
        }
    }

    /// Returns a hash of the same contents with another mark: the pod template has this one already, and would not
    /// change.
    #[must_use]
    pub(crate) fn renewed(self, keys: &Keyring) -> Self {
        let mac = keys.0[0].mac_over(&["renewal", &self.to_string()]);
        let rotation = Some(mark(mac));
        Self { rotation, ..self }
    }

    /// Returns the first `length` bytes of the hash, as hex. Both its parts are in them.
    pub(crate) fn beginning(&self, length: usize) -> String {
        let rotation = self.rotation.unwrap_or_default();
        let rotation = rotation.into_iter().chain(std::iter::repeat(0));
        let both = self
            .mac
            .iter()
            .zip(rotation)
            .map(|(one, other)| one ^ other);
        hex::encode(both.take(length).collect::<Vec<_>>())
    }
}

impl fmt::Display for ConfigHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}.{}", self.key_id, hex::encode(self.mac))?;
        match self.rotation {
            Some(rotation) => write!(f, ".{}", hex::encode(rotation)),
            None => Ok(()),
        }
    }
}

/// The id of a key: the first four bytes of its SHA-256, so an id cannot name the wrong key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; 4]);

impl fmt::Display for KeyId {
    /// Writes eight characters of lower case hex.
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
    /// Creates a key from these bytes, which must be random.
    pub fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        let digest = Sha256::new()
            .chain_update(b"pod-reloader key id\0")
            .chain_update(bytes)
            .finalize();
        let id = KeyId(std::array::from_fn(|at| digest[at]));
        Self { id, bytes }
    }

    /// Returns the id of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the bytes of the key, to be stored.
    pub fn as_bytes(&self) -> &[u8; KEY_LENGTH] {
        &self.bytes
    }

    /// Returns the MAC over `contents`.
    fn mac(&self, contents: &Contents<'_>) -> Hmac<Sha256> {
        let mut mac = self.empty_mac();
        for (reference, content) in &contents.0 {
            encode(reference, content, |part| mac.update(part));
        }
        mac
    }

    /// Returns the mark of a rotation.
    fn rotation(&self, namespace: &Name, rotated: &Rotated) -> [u8; ROTATION_LENGTH] {
        let mut mac = self.mac_over(&["rotation", namespace.as_str()]);
        for (class, versions) in rotated {
            add_text(&mut mac, class.as_str());
            mac.update(versions.as_bytes());
        }
        mark(mac)
    }

    /// Returns the MAC over texts, of which the first says what they are for. No other list of texts has the same one.
    pub(crate) fn mac_of(&self, texts: &[&str]) -> [u8; 32] {
        self.mac_over(texts).finalize().into_bytes().into()
    }

    fn mac_over(&self, texts: &[&str]) -> Hmac<Sha256> {
        let mut mac = self.new_mac();
        for text in texts {
            add_text(&mut mac, text);
        }
        mac
    }

    /// Returns the MAC over no contents.
    fn empty_mac(&self) -> Hmac<Sha256> {
        let mut mac = self.new_mac();
        mac.update(PREFIX.as_bytes());
        mac
    }

    fn new_mac(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.bytes).expect("HMAC takes keys of any length")
    }
}

fn add_text(mac: &mut Hmac<Sha256>, text: &str) {
    mac.update(&(text.len() as u64).to_be_bytes());
    mac.update(text.as_bytes());
}

/// Returns the beginning of a MAC.
fn mark(mac: Hmac<Sha256>) -> [u8; ROTATION_LENGTH] {
    let mac = mac.finalize().into_bytes();
    std::array::from_fn(|at| mac[at])
}

/// Passes to `sink` the bytes that the MAC covers for one object. Parts have a fixed length or a length
/// prefix.
pub(crate) fn encode(reference: &Reference, content: &Content<'_>, mut sink: impl FnMut(&[u8])) {
    const ABSENT: u8 = 0;
    const PRESENT: u8 = 1;
    const ENTRIES: u8 = 2;
    fn text(sink: &mut impl FnMut(&[u8]), part: &str) {
        sink(&(part.len() as u64).to_be_bytes());
        sink(part.as_bytes());
    }
    text(&mut sink, reference.kind.as_str());
    text(&mut sink, reference.namespace.as_str());
    text(&mut sink, reference.name.as_str());
    match content {
        Content::Absent => sink(&[ABSENT]),
        Content::Whole(digest) => {
            sink(&[PRESENT]);
            sink(digest.as_bytes());
        }
        Content::Entries(entries) => {
            sink(&[ENTRIES]);
            sink(&(entries.len() as u64).to_be_bytes());
            for (key, digest) in entries {
                text(&mut sink, key);
                match digest {
                    None => sink(&[ABSENT]),
                    Some(digest) => {
                        sink(&[PRESENT]);
                        sink(digest.as_bytes());
                    }
                }
            }
        }
    }
}

/// A config hash to compare with contents, object by object in sorted order.
#[derive(Clone)]
pub struct Comparison {
    mac: Hmac<Sha256>,
    expected: [u8; 32],
}

impl Comparison {
    /// Adds further objects, in the form that [`encode`] gives them.
    pub(crate) fn add(&mut self, encoded: &[u8]) {
        self.mac.update(encoded);
    }

    /// Returns true if the hash stands for everything that was added.
    pub(crate) fn holds(self) -> bool {
        self.mac.verify_slice(&self.expected).is_ok()
    }
}

impl fmt::Debug for HashKey {
    /// Prints the id, and no byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({})", self.id)
    }
}

/// The known keys: the first one is used for writing, all of them for verifying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyring(Vec<HashKey>);

/// The verdict on a config hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The hash stands for the contents, under one of the keys.
    Current,
    /// The hash was made under one of the keys, for other contents.
    Outdated,
    /// The hash is not in our form, or its key is unknown: it says nothing about contents.
    Foreign,
}

impl Keyring {
    /// Creates a keyring with the key for writing first. `None` if there are no keys.
    pub fn new(keys: Vec<HashKey>) -> Option<Self> {
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// Returns the config hash of `contents`, under the first key.
    pub fn hash(&self, contents: &Contents<'_>) -> ConfigHash {
        let key = &self.0[0];
        ConfigHash {
            key_id: key.id,
            mac: key.mac(contents).finalize().into_bytes().into(),
            rotation: None,
        }
    }

    /// Returns the verdict on `value`, given `contents`.
    pub fn verify(&self, value: &str, contents: &Contents<'_>) -> Verdict {
        let Some(hash) = ConfigHash::parse(value) else {
            return Verdict::Foreign;
        };
        match self.key(hash.key_id) {
            None => Verdict::Foreign,
            Some(key) if key.mac(contents).verify_slice(&hash.mac).is_ok() => Verdict::Current,
            Some(_) => Verdict::Outdated,
        }
    }

    /// Returns true if `value` carries the mark of this rotation, under any key.
    pub(crate) fn stands_for_rotation(
        &self,
        value: &str,
        namespace: &Name,
        rotated: &Rotated,
    ) -> bool {
        let own = ConfigHash::parse(value).and_then(|hash| hash.rotation);
        let is_its_own = |key: &HashKey| Some(key.rotation(namespace, rotated)) == own;
        self.0.iter().any(is_its_own)
    }

    /// Prepares `value` for comparison with contents. `None` if it says nothing about contents.
    pub fn comparison(&self, value: &str) -> Option<Comparison> {
        let hash = ConfigHash::parse(value)?;
        Some(Comparison {
            mac: self.key(hash.key_id)?.empty_mac(),
            expected: hash.mac,
        })
    }

    /// Returns true if `value` is in our form and made under one of the keys.
    pub fn knows(&self, value: &str) -> bool {
        ConfigHash::parse(value).is_some_and(|hash| self.has(hash.key_id))
    }

    /// Returns true if `value` is in our form, but its key is unknown: the stored keys may be newer.
    pub fn lacks_key_of(&self, value: &str) -> bool {
        ConfigHash::parse(value).is_some_and(|hash| !self.has(hash.key_id))
    }

    /// Returns true if `value` was made under one of the keys, but not the one for writing.
    pub fn outgrew(&self, value: &str) -> bool {
        ConfigHash::parse(value)
            .is_some_and(|hash| self.0[1..].iter().any(|key| key.id == hash.key_id))
    }

    /// Returns true if the key with this id is known.
    pub fn has(&self, id: KeyId) -> bool {
        self.key(id).is_some()
    }

    /// Returns the key for writing.
    pub(crate) fn writing(&self) -> &HashKey {
        &self.0[0]
    }

    /// Returns the place of the key whose MAC over `texts` begins with these bytes. The key for writing has place 0.
    pub(crate) fn maker(&self, texts: &[&str], beginning: &[u8]) -> Option<usize> {
        let has_made = |key: &HashKey| key.mac_over(texts).verify_truncated_left(beginning);
        self.0.iter().position(|key| has_made(key).is_ok())
    }

    /// Returns the MAC over `texts` under each key, the one for writing first.
    pub(crate) fn macs_of<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> impl Iterator<Item = [u8; 32]> + 'a {
        self.0.iter().map(move |key| key.mac_of(texts))
    }

    fn key(&self, id: KeyId) -> Option<&HashKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

const PREFIX: &str = "v1.";
/// The length of the mark of a rotation or a renewal, in bytes.
const ROTATION_LENGTH: usize = 8;

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::entries::parse_entry_name;
    use super::*;
    use crate::annotations::CONFIG_HASH;
    use crate::fixtures::{hashed_by, holding, keyring, objects};

    #[test]
    fn a_hash_verifies_as_long_as_its_key_is_known() {
        let objects = objects(&[("a", holding("1"))]);
        let contents = Contents::whole(&objects);
        let old = keyring(&[1]).hash(&contents).to_string();
        assert_eq!(keyring(&[2, 1]).verify(&old, &contents), Verdict::Current);
        assert_eq!(keyring(&[2]).verify(&old, &contents), Verdict::Foreign);
        assert!(keyring(&[2]).lacks_key_of(&old));
    }

    #[test]
    fn every_part_of_the_contents_changes_the_hash() {
        let keys = keyring(&[1]);
        let value = keys
            .hash(&Contents::whole(&objects(&[
                ("a", holding("1")),
                ("b", None),
            ])))
            .to_string();
        for other in [
            objects(&[("a", holding("2")), ("b", None)]),
            objects(&[("a", holding("1")), ("b", holding(""))]),
            objects(&[("a", holding("1"))]),
            objects(&[("a", holding("1")), ("c", None)]),
            objects(&[("a", None), ("b", holding("1"))]),
            objects(&[]),
        ] {
            assert_eq!(
                keys.verify(&value, &Contents::whole(&other)),
                Verdict::Outdated,
                "{other:?}"
            );
        }
    }

    #[test]
    fn only_the_form_that_we_write_is_ours() {
        let value = hashed_by(1, &objects(&[]));
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

    fn ids_of(entries: &[(&str, [u8; KEY_LENGTH])]) -> Option<Vec<KeyId>> {
        let entries = entries.iter().map(|(name, bytes)| (*name, &bytes[..]));
        let now = parse_entry_name("20261121T120000Z").unwrap();
        let (keys, _) = Keyring::from_entries(entries, now, SignedDuration::from_mins(2));
        Some(keys?.0.iter().map(|key| key.id).collect())
    }

    #[test]
    fn stored_keys_are_used_newest_first_once_every_replica_can_have_read_them() {
        let id = |byte| HashKey::new([byte; KEY_LENGTH]).id();
        let (old, newer) = (("20250101T000000Z", [1; 32]), ("20261121T115800Z", [2; 32]));
        let (young, future) = (("20261121T115801Z", [3; 32]), ("20261122T000000Z", [4; 32]));
        assert_eq!(ids_of(&[newer, old]), Some(vec![id(2), id(1)]));
        assert_eq!(
            ids_of(&[young, newer, old]),
            Some(vec![id(2), id(1), id(3)])
        );
        assert_eq!(ids_of(&[future, young]), Some(vec![id(3), id(4)]));
        assert_eq!(ids_of(&[future]), Some(vec![id(4)]));
        assert_eq!(ids_of(&[]), None);
    }

    #[test]
    fn entries_that_are_not_hash_keys_are_named() {
        let entries = [
            ("20250101T000000Z", &[1; 31][..]),
            ("rubbish", &[1; 32]),
            ("20250101T000001Z", &[1; 32]),
        ];
        let (keys, rejected) =
            Keyring::from_entries(entries, Timestamp::now(), SignedDuration::ZERO);
        assert_eq!(keys.unwrap().0.len(), 1);
        assert_eq!(rejected, ["20250101T000000Z", "rubbish"]);
        let name = entry_name(Timestamp::now());
        assert!(parse_entry_name(&name).is_some(), "{name}");
    }

    /// A change of the scheme would restart every pod in the world, so it needs a `v2`.
    #[test]
    fn the_scheme_stays_as_it_was_released() {
        let value = hashed_by(1, &objects(&[("a", holding("1")), ("b", None)]));
        assert_eq!(
            value,
            "v1.ac854714.1de96b833f4b2c3317799cb13f5f338ab357892de58140148a0ae6e6e84d2c4c"
        );
    }

    #[test]
    fn the_documented_number_of_bytes_is_the_most_that_a_hash_takes() {
        let (key, mac) = ("0".repeat(8), "0".repeat(64));
        let longest = format!("{PREFIX}{key}.{mac}.{}", "0".repeat(2 * ROTATION_LENGTH));
        assert!(ConfigHash::parse(&longest).is_some());
        let bytes = CONFIG_HASH.len() + longest.len();
        let page = include_str!("../../../docs/troubleshooting.md");
        assert!(page.contains(&format!("the hash needs up to {bytes} bytes")));
    }
}
