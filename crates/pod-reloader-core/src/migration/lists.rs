//! Our lists of objects in annotations.

use crate::annotations as keys;
use crate::extent::Extent;
use crate::reference::{ConfigKind, Reference};

/// Returns an object as an item of our list.
pub(super) fn item(reference: &Reference, extent: &Extent) -> String {
    let name = &reference.name;
    match extent {
        Extent::All => name.to_string(),
        Extent::Named(keys) => {
            let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
            format!("{name}[{}]", keys.join(","))
        }
    }
}

/// Returns our list of objects of a kind.
pub(super) fn list_key(kind: ConfigKind) -> &'static str {
    match kind {
        ConfigKind::ConfigMap => keys::CONFIG_MAPS,
        ConfigKind::Secret => keys::SECRETS,
    }
}

/// Returns our list of objects of a kind that are left out.
pub(super) fn exclude_key(kind: ConfigKind) -> &'static str {
    match kind {
        ConfigKind::ConfigMap => keys::EXCLUDE_CONFIG_MAPS,
        ConfigKind::Secret => keys::EXCLUDE_SECRETS,
    }
}
