//! References: the config objects that a workload lists.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::{Deserialize, Deserializer};

use crate::name::{InvalidName, Name};

/// The most distinct references that one workload may have.
pub const MAX_REFERENCES: usize = 256;

/// The most items that are named as rejected: a workload may hold 40,000 of them.
const MAX_REJECTED: usize = 20;

/// The kinds of config object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl ConfigKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    /// The kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// The resource in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One config object that a workload depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// ConfigMap or Secret.
    pub kind: ConfigKind,
    /// The namespace of the object, which is that of the workload.
    pub namespace: Name,
    /// The name of the object.
    pub name: Name,
}

impl fmt::Display for Reference {
    /// `ConfigMap namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A config object of which only the metadata is asked for, and of that only the identity is read: the
/// rest may be large, and is in nobody's way.
#[derive(Clone, Debug, Deserialize)]
pub struct ConfigMetadata {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
}

impl ConfigMetadata {
    /// Which object it is. `None` where its names are none, which the apiserver never sends.
    pub fn reference(&self, kind: ConfigKind) -> Option<Reference> {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some(Reference {
            kind,
            namespace: name(&self.metadata.namespace)?,
            name: name(&self.metadata.name)?,
        })
    }

    /// Its resourceVersion.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
    let identity = Identity::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: identity.name,
        namespace: identity.namespace,
        resource_version: identity.resource_version,
        ..ObjectMeta::default()
    })
}

impl Resource for ConfigMetadata {
    type DynamicType = ConfigKind;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(kind: &ConfigKind) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(_: &ConfigKind) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &ConfigKind) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(kind: &ConfigKind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the two lists of a workload come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The references, sorted, at most [`MAX_REFERENCES`].
    pub accepted: BTreeSet<Reference>,
    /// What was left out, and why.
    pub rejected: Vec<Rejected>,
}

/// An item of a list that is no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Not the name of an object.
    #[error("{kind} {item} is not a valid name: {reason}")]
    Name {
        /// Of which list.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
        /// What is wrong with it.
        #[source]
        reason: InvalidName,
    },
    /// So many more that are not the name of an object either.
    #[error("{0} more items are no valid names")]
    Others(usize),
    /// One of more than [`MAX_REFERENCES`] distinct names.
    #[error("{kind} {name} is left out: a workload may list {MAX_REFERENCES} distinct names")]
    TooMany {
        /// Of which list.
        kind: ConfigKind,
        /// The first name that is left out.
        name: Name,
    },
}

/// Reads the two lists of a workload in `namespace`.
///
/// Blanks around names, empty items and duplicates are ignored, and order does not matter.
/// Of more than [`MAX_REFERENCES`] the first in sorted order count, and one [`Rejected::TooMany`]
/// names the first that does not.
pub fn references(
    namespace: &Name,
    config_maps: Option<&str>,
    secrets: Option<&str>,
) -> References {
    let lists = [
        (ConfigKind::ConfigMap, config_maps),
        (ConfigKind::Secret, secrets),
    ];
    let mut references = References::default();
    let mut others = 0;
    for (kind, list) in lists {
        let distinct: BTreeSet<_> = items(list).collect();
        for item in distinct {
            match Name::parse(item) {
                Ok(name) => {
                    let namespace = namespace.clone();
                    references.accepted.insert(Reference {
                        kind,
                        namespace,
                        name,
                    });
                    // One too many is enough to name it.
                    if references.accepted.len() > MAX_REFERENCES + 1 {
                        references.accepted.pop_last();
                    }
                }
                Err(_) if references.rejected.len() == MAX_REJECTED => others += 1,
                Err(reason) => {
                    let item = quoted(item);
                    references
                        .rejected
                        .push(Rejected::Name { kind, item, reason });
                }
            }
        }
    }
    if others > 0 {
        references.rejected.push(Rejected::Others(others));
    }
    if let Some(first) = references.accepted.iter().nth(MAX_REFERENCES).cloned() {
        references.accepted.split_off(&first);
        references.rejected.push(Rejected::TooMany {
            kind: first.kind,
            name: first.name,
        });
    }
    references
}

/// The items of a list as they stand in it, without blanks and empty ones.
pub(crate) fn items(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// `item` in quotes, as [`escaped`].
pub(crate) fn quoted(item: &str) -> String {
    format!("\"{}\"", escaped(item))
}

/// `text` with control characters escaped, cut to a length that fits a warning.
pub(crate) fn escaped(text: &str) -> String {
    const SHOWN: usize = 40;
    let escaped: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    let more = if text.chars().nth(SHOWN).is_some() {
        "..."
    } else {
        ""
    };
    format!("{escaped}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(config_maps: &str, secrets: &str) -> Vec<String> {
        let namespace = Name::parse("ns").unwrap();
        references(&namespace, Some(config_maps), Some(secrets))
            .accepted
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn blanks_empty_items_and_duplicates_are_ignored() {
        assert_eq!(
            accepted(" b, a ,,b,\ta\n,", ","),
            ["ConfigMap ns/a", "ConfigMap ns/b"]
        );
    }

    #[test]
    fn the_same_name_in_both_lists_is_two_references() {
        assert_eq!(accepted("a", "a"), ["ConfigMap ns/a", "Secret ns/a"]);
    }

    #[test]
    fn order_does_not_matter() {
        assert_eq!(accepted("c,a,b", "z,y"), accepted("b,c,a", "y,z"));
    }

    #[test]
    fn a_bad_name_is_named_once_and_the_good_ones_count() {
        let namespace = Name::parse("ns").unwrap();
        let references = references(&namespace, Some("good,?limit=1,?limit=1"), None);
        assert_eq!(references.accepted.len(), 1);
        assert_eq!(references.rejected.len(), 1);
        assert_eq!(
            references.rejected[0].to_string(),
            "ConfigMap \"?limit=1\" is not a valid name: \
             a name has only lower case letters, digits, '-' and '.'"
        );
    }

    #[test]
    fn a_bad_item_is_shown_short_and_on_one_line() {
        let item = format!("a\n\0{}", "X".repeat(100_000));
        let shown = quoted(&item);
        assert!(
            shown.len() < 80 && !shown.contains('\n') && !shown.contains('\0'),
            "{shown}"
        );
    }

    #[test]
    fn of_many_bad_items_some_are_named_and_the_rest_counted() {
        let list: Vec<String> = (0..40_000).map(|n| format!("?{n}")).collect();
        let references = references(&Name::parse("ns").unwrap(), Some(&list.join(",")), None);
        assert_eq!(references.rejected.len(), MAX_REJECTED + 1);
        assert_eq!(
            references.rejected[MAX_REJECTED],
            Rejected::Others(40_000 - MAX_REJECTED)
        );
    }

    #[test]
    fn of_ten_thousand_names_the_first_256_count() {
        let list: Vec<String> = (0..10_000).map(|n| format!("n{n:05}")).collect();
        let namespace = Name::parse("ns").unwrap();
        let references = references(&namespace, Some(&list.join(",")), Some("s"));
        assert_eq!(references.accepted.len(), MAX_REFERENCES);
        assert_eq!(references.accepted.last().unwrap().name.as_str(), "n00255");
        assert_eq!(references.rejected.len(), 1);
        assert!(
            references.rejected[0]
                .to_string()
                .starts_with("ConfigMap n00256 is left out")
        );
    }
}
