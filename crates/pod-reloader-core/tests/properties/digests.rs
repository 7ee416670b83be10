//! Checks that contents are equal exactly if their digests are.

use std::collections::BTreeMap;

use pod_reloader_core::digest::{Aspects, ConfigObject, Contents, Objects, Presence};
use pod_reloader_core::hash::{HashKey, Keyring, Verdict};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde_json::json;

use crate::choices::Choices;

/// Makes two similar contents, and compares them with their digests.
pub(crate) fn hold(bytes: &[u8]) {
    let _: Result<_, _> = ConfigObject::parse(bytes, Aspects::default());
    let mut choices = Choices::new(bytes);
    let one = Content::chosen(&mut choices);
    let mut other = one.clone();
    while !choices.is_empty() {
        other.change(&mut choices);
        let digests = [&one, &other].map(|content| content.parsed(false).digest);
        assert_eq!(one == other, digests[0] == digests[1], "{one:?} {other:?}");
    }
    assert_eq!(
        other.parsed(false).digest,
        other.parsed(true).digest,
        "the order counts: {other:?}"
    );
    hold_of_workloads(&one, &other, &mut Choices::new(bytes));
}

/// Does the same for everything that a workload lists.
fn hold_of_workloads(one: &Content, other: &Content, choices: &mut Choices<'_>) {
    let both = [one, other];
    let mut chosen = || -> BTreeMap<Reference, Option<&Content>> {
        (0..choices.number() % 4)
            .map(|_| {
                let object = choices.flag().then(|| *choices.one(&both));
                (reference(choices), object)
            })
            .collect()
    };
    let (one, other) = (chosen(), chosen());
    let keys = Keyring::new(vec![HashKey::new([1; 32])]).expect("there is one");
    let hash = keys.hash(&Contents::whole(&objects(&one))).to_string();
    let verdict = keys.verify(&hash, &Contents::whole(&objects(&other)));
    assert_eq!(
        one == other,
        verdict == Verdict::Current,
        "{one:?} {other:?}"
    );
}

fn reference(choices: &mut Choices<'_>) -> Reference {
    let mut name =
        || Name::parse(choices.one::<&str>(&["a", "b", "ab", "a.b"])).expect("it is one");
    let (namespace, name) = (name(), name());
    let kind = *choices.one(&ConfigKind::ALL);
    Reference {
        kind,
        namespace,
        name,
    }
}

fn objects(objects: &BTreeMap<Reference, Option<&Content>>) -> Objects {
    let present = |content: &Content| Presence::Present(content.parsed(false));
    objects
        .iter()
        .map(|(reference, object)| {
            let presence = object.map_or(Presence::Absent, present);
            (reference.clone(), presence)
        })
        .collect()
}

/// The content of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    data: BTreeMap<String, String>,
    binary_data: BTreeMap<String, String>,
}

impl Content {
    fn chosen(choices: &mut Choices<'_>) -> Self {
        let mut content = Self::default();
        for _ in 0..choices.number() % 6 {
            content.change(choices);
        }
        content
    }

    /// Makes one small change. Some of these would be invisible to a digest without frames.
    fn change(&mut self, choices: &mut Choices<'_>) {
        let (entries, others) = if choices.flag() {
            (&mut self.binary_data, &mut self.data)
        } else {
            (&mut self.data, &mut self.binary_data)
        };
        let key = text(choices);
        match choices.number() % 5 {
            0 => {
                entries.insert(key, text(choices));
            }
            1 => {
                entries.remove(&key);
            }
            2 => others.extend(entries.remove_entry(&key)),
            3 => std::mem::swap(entries, others),
            _ => {
                // A character moves from a value to its key.
                if let Some((key, value)) = entries.pop_first() {
                    let mut rest = value.chars();
                    let taken: String = rest.by_ref().take(1).collect();
                    entries.insert(key + &taken, rest.collect());
                }
            }
        }
    }

    /// Parses the content as the apiserver would serialise it, or with everything in reverse order.
    fn parsed(&self, reversed: bool) -> ConfigObject {
        let mut members = [
            format!("\"data\":{}", object(&self.data, reversed)),
            format!("\"binaryData\":{}", object(&self.binary_data, reversed)),
            "\"metadata\":{\"uid\":\"1\",\"resourceVersion\":\"1\"}".to_owned(),
        ];
        if reversed {
            members.reverse();
        }
        let json = format!("{{{}}}", members.join(","));
        ConfigObject::parse(json.as_bytes(), Aspects::default()).expect("it is a ConfigMap")
    }
}

fn object(entries: &BTreeMap<String, String>, reversed: bool) -> String {
    let mut members: Vec<_> = entries
        .iter()
        .map(|(key, value)| format!("{}:{}", json!(key), json!(value)))
        .collect();
    if reversed {
        members.reverse();
    }
    format!("{{{}}}", members.join(","))
}

/// Returns a text that looks like frames and numbers, and could run into the next one.
fn text(choices: &mut Choices<'_>) -> String {
    let parts = [
        "",
        "a",
        "b",
        "=",
        "\n",
        "\u{1}",
        "\u{2}",
        "\0\0\0\0\0\0\0\u{1}",
        "ä",
        "aaaa",
    ];
    (0..choices.number() % 3)
        .map(|_| *choices.one(&parts))
        .collect()
}
