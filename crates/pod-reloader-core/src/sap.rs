//! The config hash of SAP's pod-reloader, so that taking over from it loses no change.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::annotations::{CONFIG_MAPS, SECRETS};
use crate::digest::{Objects, Presence};
use crate::hash::Verdict;
use crate::list::items;
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};
use crate::workload::Workload;

/// Compares `value` with SAP's hash of the objects that `workload` lists. Returns [`Verdict::Foreign`] if
/// it is not such a hash at all.
///
/// SAP's hash is the SHA-256, in hex, of one line `configmap/NAMESPACE/NAME/UID.RESOURCEVERSION` for each
/// listed object in list order, then the same for Secrets. An absent object has nothing after the last
/// slash. The hash covers metadata too, so it is outdated after a change of a label.
///
/// # Caveats
///
/// Lists of more than 4096 items are not compared.
pub fn verify(value: &str, workload: &Workload, objects: &Objects) -> Verdict {
    let listed = [CONFIG_MAPS, SECRETS].map(|list| workload.markers.annotations.get(list));
    if listed.into_iter().flat_map(items).nth(MAX_LISTED).is_some() {
        return Verdict::Foreign;
    }
    match parse(value) {
        None => Verdict::Foreign,
        Some(digest) if Sha256::digest(lines(workload, objects)).as_slice() == digest => {
            Verdict::Current
        }
        Some(_) => Verdict::Outdated,
    }
}

/// Returns true if `value` has the form of SAP's hash.
pub(crate) fn is_hash(value: &str) -> bool {
    parse(value).is_some()
}

fn parse(value: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(value, &mut digest).ok()?;
    (value == value.to_lowercase()).then_some(digest)
}

fn lines(workload: &Workload, objects: &Objects) -> String {
    let mut lines = String::new();
    for kind in ConfigKind::ALL {
        let (list, prefix) = match kind {
            ConfigKind::ConfigMap => (CONFIG_MAPS, "configmap"),
            ConfigKind::Secret => (SECRETS, "secret"),
        };
        for item in items(workload.markers.annotations.get(list)) {
            let namespace = &workload.id.namespace;
            let state = Name::parse(item)
                .ok()
                .and_then(|name| {
                    objects.get(&Reference {
                        kind,
                        namespace: namespace.clone(),
                        name,
                    })
                })
                .and_then(Presence::present)
                .map_or_else(String::new, |object| {
                    format!("{}.{}", object.uid(), object.resource_version())
                });
            writeln!(lines, "{prefix}/{namespace}/{item}/{state}")
                .expect("a String takes everything");
        }
    }
    lines
}

/// The maximum number of items in the lists of a workload. Each item becomes a line.
const MAX_LISTED: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployment, holding, objects};

    #[test]
    fn the_hash_of_the_present_content_is_current() {
        let workload = deployment("web")
            .lists("b, a")
            .annotation("secrets", "s")
            .build();
        let objects = objects(&[("a", holding("1")), ("b", None)]);
        let value = hex::encode(Sha256::digest(
            "configmap/ns/b/\nconfigmap/ns/a/uid-c.7\nsecret/ns/s/\n",
        ));
        assert_eq!(verify(&value, &workload, &objects), Verdict::Current);
        assert_eq!(
            verify(&hex::encode([7; 32]), &workload, &objects),
            Verdict::Outdated
        );
    }

    #[test]
    fn a_value_that_is_not_sha256_in_hex_is_foreign() {
        let workload = deployment("web").lists("a").build();
        for value in ["", "rubbish", &"A".repeat(64), &"a".repeat(63)] {
            assert_eq!(
                verify(value, &workload, &objects(&[])),
                Verdict::Foreign,
                "{value}"
            );
        }
    }
}
