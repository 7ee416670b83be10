//! Pins: the copies that the pods of one revision use in place of ConfigMaps.
//!
//! A copy is an immutable ConfigMap whose name says which content it has, to those who have the keys of the config hash:
//! names are in pod templates, and from a plain digest, a short content could be guessed. The pod template names the
//! copies in an annotation, [`PINS`](crate::annotations::PINS), and only pods get their names in place of the others. So
//! a revision keeps the configuration that it was rolled out with, and an undo brings it back.

use std::collections::BTreeMap;
use std::fmt;

use crate::annotations::{ALL_CONFIG_MAPS, ON_FAILURE, PIN, REVERTED, UNDONE};
use crate::digest::Digest;
use crate::hash::Keyring;
use crate::name::Name;
use crate::reference::Reference;
use crate::seal::{Claim, Purpose};

/// The maximum number of pins of one pod template, several times the number of objects that a workload may track. The
/// admission policy has the same limit.
pub const MAX_PINS: usize = 1024;

/// The digits of a copy's name.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// The number of digits in a copy's name: 50 bits.
const DIGITS: usize = 10;

/// The copies to use, by the name of the ConfigMap that each stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<Name, Name>);

impl Pins {
    /// Parses a value of the annotation. `None` if it means nothing, or names no copy, or more than [`MAX_PINS`].
    pub fn parse(value: &str) -> Option<Self> {
        let mut pins = BTreeMap::new();
        for pin in value.split(',') {
            if pins.len() == MAX_PINS {
                return None;
            }
            let (source, copy) = pin.trim().split_once('=')?;
            let (source, copy) = (Name::parse(source).ok()?, Name::parse(copy).ok()?);
            if pins.insert(source, copy).is_some() {
                return None;
            }
        }
        Some(Self(pins))
    }

    /// Parses a value of the annotation that we may have written: each copy has the name of one. `None` if it means
    /// something else, or nothing.
    pub fn parse_ours(value: &str) -> Option<Self> {
        let pins = Self::parse(value)?;
        let are_ours = pins.iter().all(|(source, copy)| is_copy_name(source, copy));
        are_ours.then_some(pins)
    }

    /// Returns the copy to use in place of a ConfigMap.
    pub fn get(&self, source: &str) -> Option<&Name> {
        self.0.get(source)
    }

    /// Returns each ConfigMap with the copy to use in its place, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.0.iter()
    }

    /// Returns true if no copy is used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those for which `keeps` holds.
    #[must_use]
    pub fn filtered(&self, keeps: impl Fn(&Name, &Name) -> bool) -> Self {
        let kept = self.iter().filter(|(source, copy)| keeps(source, copy));
        kept.map(|(source, copy)| (source.clone(), copy.clone()))
            .collect()
    }
}

impl FromIterator<(Name, Name)> for Pins {
    fn from_iter<T: IntoIterator<Item = (Name, Name)>>(pins: T) -> Self {
        Self(pins.into_iter().collect())
    }
}

impl fmt::Display for Pins {
    /// Writes `app=app-0123456789,other=other-9876543210`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (source, copy)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{source}={copy}")?;
        }
        Ok(())
    }
}

/// The names of the copies of ConfigMaps in one namespace.
///
/// # Guarantees
///
/// A name that pods have for their content stays, whichever key or earlier version has made it, so neither an upgrade
/// nor another key restarts anything. Only content that has no name yet gets one under the key for writing.
#[derive(Clone, Debug)]
pub struct CopyNames<'a> {
    keys: &'a Keyring,
    namespace: &'a Name,
    /// The names that are there already.
    present: Vec<Pins>,
}

impl<'a> CopyNames<'a> {
    /// Returns the names in a namespace, none of which is there yet.
    pub fn new(keys: &'a Keyring, namespace: &'a Name) -> Self {
        Self {
            keys,
            namespace,
            present: Vec::new(),
        }
    }

    /// Returns the names, of which these are there already.
    #[must_use]
    pub fn and(mut self, present: &Pins) -> Self {
        self.present.push(present.clone());
        self
    }

    /// Returns the name of the copy of a ConfigMap whose content has this digest: the one that is there, or a new one.
    pub fn name_for(&self, source: &Name, digest: &Digest) -> Name {
        let mut present = self
            .present
            .iter()
            .filter_map(|pins| pins.get(source.as_str()));
        match present.find(|name| self.is_name_of(name, source, digest)) {
            Some(name) => name.clone(),
            None => {
                let mac =
                    self.keys
                        .writing()
                        .mac_of(&texts(self.namespace, source, &text_of(digest)));
                named(source, &mac)
            }
        }
    }

    /// Returns true if this is the name of the copy of a ConfigMap whose content has this digest, under any key, or as
    /// earlier versions named it.
    pub fn is_name_of(&self, name: &Name, source: &Name, digest: &Digest) -> bool {
        let digest_text = text_of(digest);
        let texts = texts(self.namespace, source, &digest_text);
        let mut names = self.keys.macs_of(&texts).map(|mac| named(source, &mac));
        names.any(|it| it == *name) || plain_copy_name(source, digest) == *name
    }
}

/// Returns what the digits in the name of a copy are made of.
fn texts<'a>(namespace: &'a Name, source: &'a Name, digest: &'a str) -> [&'a str; 4] {
    ["pin name", namespace.as_str(), source.as_str(), digest]
}

fn text_of(digest: &Digest) -> String {
    hex::encode(digest.as_bytes())
}

/// Returns the name that earlier versions gave to the copy of a ConfigMap whose content has this digest. It tells who
/// reads it 50 bits of the digest.
pub fn plain_copy_name(source: &Name, digest: &Digest) -> Name {
    named(source, digest.as_bytes())
}

fn named(source: &Name, bytes: &[u8; 32]) -> Name {
    let digits = bytes[..DIGITS].iter();
    let digits = digits.map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
    let name = format!("{}-{}", source.stem(DIGITS + 1), digits.collect::<String>());
    Name::parse(&name).expect("the beginning of a name, a dash and digits are a name")
}

/// Returns true if a copy of this ConfigMap could have this name.
pub fn is_copy_name(source: &Name, name: &Name) -> bool {
    let digits = name.as_str().strip_prefix(source.stem(DIGITS + 1));
    let digits = digits.and_then(|rest| rest.strip_prefix('-'));
    digits.is_some_and(|it| it.len() == DIGITS && it.bytes().all(|it| ALPHABET.contains(&it)))
}

/// Returns what a copy of a ConfigMap claims.
pub(crate) fn claim<'a>(copy: &'a Reference, source: &'a Name) -> Claim<'a> {
    Claim {
        purpose: Purpose::Pin,
        object: copy,
        of: source.as_str(),
    }
}

/// The pins of a workload as they are: those of its pods, and those of the content that was undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The copies that its pods use.
    pub pins: Pins,
    /// The content that was undone, whether or not it still is there.
    pub undone: Pins,
}

impl Kept {
    /// Parses the values of both annotations. One that means nothing counts as missing.
    pub fn parse(pins: Option<&str>, undone: Option<&str>) -> Self {
        let parse = |value: Option<&str>| value.and_then(Pins::parse_ours).unwrap_or_default();
        Self {
            pins: parse(pins),
            undone: parse(undone),
        }
    }

    /// Returns the copies in whose favour other content was undone.
    pub fn preferred(&self) -> Pins {
        self.pins
            .filtered(|source, _| self.undone.get(source.as_str()).is_some())
    }
}

/// What a workload says about its pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinning {
    /// The names of the ConfigMaps of which copies are kept. `None` stands for all that are tracked.
    names: Option<Box<[Name]>>,
    /// The value of the annotation [`UNDONE`].
    pub undone: Option<Box<str>>,
    /// True if the old configuration is put back when the workload does not become healthy with the new one.
    pub reverts: bool,
}

impl Pinning {
    /// Reads the annotations of a workload. `None` if it pins nothing.
    pub(crate) fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Box<Self>> {
        let names = pinned(annotation(PIN)?)?;
        Some(Box::new(Self {
            names,
            undone: annotation(UNDONE).map(Into::into),
            reverts: annotation(ON_FAILURE) == Some(REVERTED),
        }))
    }

    /// Returns true if copies of this ConfigMap are kept, provided that it is tracked.
    pub fn includes(&self, name: &Name) -> bool {
        let names = self.names.as_deref();
        names.is_none_or(|names| names.contains(name))
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let names = self.names.iter().flatten();
        size_of_val(self)
            + names
                .map(|it| size_of_val(it) + it.as_str().len())
                .sum::<usize>()
            + self.undone.as_deref().map_or(0, str::len)
    }
}

/// Returns true if a value of the annotation [`PIN`] means something.
pub(crate) fn is_pin(value: &str) -> bool {
    value == "false" || pinned(value).is_some()
}

/// Returns the ConfigMaps that a value of the annotation [`PIN`] asks for: `Some(None)` stands for all of them.
fn pinned(value: &str) -> Option<Option<Box<[Name]>>> {
    match value.trim() {
        ALL_CONFIG_MAPS => Some(None),
        // Somebody who writes this means no ConfigMap of that name.
        "true" | "false" => None,
        list => {
            let names = list.split(',').map(|name| Name::parse(name.trim()));
            let names: Result<Box<[Name]>, _> = names.collect();
            names.ok().map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{digest_of, keyring, name};
    use crate::name::MAX_LENGTH;
    use serde_json::json;

    #[test]
    fn pins_survive_being_written_and_read() {
        let text = "app=app-0123456789,other.one=other.one-abcdefghij";
        let pins = Pins::parse(text).unwrap();
        assert_eq!(pins.to_string(), text);
        assert_eq!(pins.get("app"), Some(&name("app-0123456789")));
        assert_eq!(pins.get("another"), None);
    }

    #[test]
    fn a_value_that_is_wrong_anywhere_means_nothing() {
        for value in [
            "",
            "app",
            "app=",
            "=app",
            "app=a,",
            "app=a,app=b",
            "app=a,app=a",
            "App=a",
            "app=../a",
            "app=a=b",
            "app=a;b=c",
            ",",
        ] {
            assert_eq!(Pins::parse(value), None, "{value:?}");
        }
    }

    #[test]
    fn pins_that_name_no_copies_are_not_ours() {
        assert!(Pins::parse_ours("app=app-0123456789").is_some());
        for value in [
            "app=x",
            "app=app",
            "app=app-012345678w",
            "app=other-0123456789",
            "kube-root-ca.crt=app-v2",
        ] {
            assert!(Pins::parse(value).is_some(), "{value}");
            assert_eq!(Pins::parse_ours(value), None, "{value}");
        }
    }

    #[test]
    fn the_name_of_a_copy_says_what_it_is_a_copy_of_to_those_who_have_the_key() {
        let digests = ["1", "2"].map(|it| digest_of(&json!({"data": {"a": it}})));
        let name_in = |namespace: &str, key: u8, source: &str, digest: &Digest| {
            let (keys, namespace) = (keyring(&[key]), name(namespace));
            CopyNames::new(&keys, &namespace).name_for(&name(source), digest)
        };
        let copy = name_in("shop", 1, "app", &digests[0]);
        assert!(copy.as_str().starts_with("app-") && copy.as_str().len() == "app-".len() + DIGITS);
        assert_eq!(copy, name_in("shop", 1, "app", &digests[0]));
        for other in [
            name_in("shop", 1, "app", &digests[1]),
            name_in("shop", 2, "app", &digests[0]),
            name_in("bank", 1, "app", &digests[0]),
            plain_copy_name(&name("app"), &digests[0]),
        ] {
            assert_ne!(copy, other);
        }
        let digits = |name: &Name| name.as_str().rsplit_once('-').unwrap().1.to_owned();
        assert_ne!(
            digits(&copy),
            digits(&name_in("shop", 1, "web", &digests[0]))
        );
    }

    #[test]
    fn a_name_stays_as_long_as_the_content_does_and_its_key_is_known() {
        let (app, shop) = (name("app"), name("shop"));
        let [one, two] = ["1", "2"].map(|it| digest_of(&json!({"data": {"a": it}})));
        let old = keyring(&[1]);
        let of_old_key = CopyNames::new(&old, &shop).name_for(&app, &one);
        let rotated = keyring(&[2, 1]);
        for earlier in [of_old_key.clone(), plain_copy_name(&app, &one)] {
            let pins = Pins::from_iter([(app.clone(), earlier.clone())]);
            let names = CopyNames::new(&rotated, &shop)
                .and(&Pins::default())
                .and(&pins);
            assert_eq!(names.name_for(&app, &one), earlier);
            let new = names.name_for(&app, &two);
            assert_eq!(
                new,
                CopyNames::new(&keyring(&[2]), &shop).name_for(&app, &two)
            );
            assert!(names.is_name_of(&earlier, &app, &one));
            assert!(!names.is_name_of(&earlier, &app, &two));
        }
        let without = keyring(&[2]);
        let without = CopyNames::new(&without, &shop);
        assert!(!without.is_name_of(&of_old_key, &app, &one));
        assert!(without.is_name_of(&plain_copy_name(&app, &one), &app, &one));
    }

    #[test]
    fn the_longest_name_has_room_for_a_copy() {
        let digest = digest_of(&json!({}));
        for source in [
            "a".repeat(253),
            format!("{}.{}", "a".repeat(241), "b".repeat(11)),
        ] {
            let copy = plain_copy_name(&name(&source), &digest);
            assert!(copy.as_str().len() <= MAX_LENGTH, "{copy}");
            assert!(is_copy_name(&name(&source), &copy));
        }
    }

    #[test]
    fn a_workload_pins_what_it_says() {
        let read = |value: &'static str| Pinning::read(|key| (key == PIN).then_some(value));
        assert!(read("configmaps").unwrap().includes(&name("app")));
        let two = read("app, other").unwrap();
        assert!(two.includes(&name("app")) && two.includes(&name("other")));
        assert!(!two.includes(&name("third")));
        for nothing in ["", "true", "false", "App", "a,,b"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
        assert!(is_pin("false") && !is_pin("true"));
    }
}
