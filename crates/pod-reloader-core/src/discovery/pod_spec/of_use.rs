//! Leaves out what names neither a ConfigMap nor a Secret while a pod spec is read.

use serde::{Deserialize, Deserializer};

use super::{
    Container, EnvFrom, EnvVar, Item, MAX_ITEMS, ProjectedSource, Source, ValueFrom, Volume,
    VolumeMount,
};
use crate::raw;

/// The number of items of a list and of the lists in it after which no more items of the list are read.
const ENOUGH: usize = 4 * MAX_ITEMS;

/// An item of a list that may or may not name a ConfigMap or a Secret.
pub(super) trait MayBeOfUse {
    fn is_of_use(&self) -> bool;

    /// Returns the number of items that it is and has.
    fn count(&self) -> usize {
        1
    }
}

impl MayBeOfUse for Container {
    fn is_of_use(&self) -> bool {
        self.count() > 1
    }

    fn count(&self) -> usize {
        1 + self.env.len() + self.env_from.len() + self.volume_mounts.len()
    }
}

impl MayBeOfUse for EnvVar {
    fn is_of_use(&self) -> bool {
        let is_of_use =
            |it: &ValueFrom| it.config_map_key_ref.is_some() || it.secret_key_ref.is_some();
        self.value_from.as_ref().is_some_and(is_of_use)
    }
}

impl MayBeOfUse for EnvFrom {
    fn is_of_use(&self) -> bool {
        self.config_map_ref.is_some() || self.secret_ref.is_some()
    }
}

impl MayBeOfUse for VolumeMount {
    fn is_of_use(&self) -> bool {
        self.name.as_deref().is_some_and(|name| !name.is_empty())
    }
}

impl MayBeOfUse for Volume {
    fn is_of_use(&self) -> bool {
        !(self.sources.is_empty() && self.driver_secrets.is_empty())
            || self.secret_provider_class.is_some()
    }

    fn count(&self) -> usize {
        let sources = self.sources().map(|(_, source)| source.count());
        1 + sources.sum::<usize>() + self.driver_secrets.len()
    }
}

impl MayBeOfUse for ProjectedSource {
    fn is_of_use(&self) -> bool {
        self.config_map.is_some() || self.secret.is_some()
    }

    fn count(&self) -> usize {
        let sources = self.config_map.iter().chain(&self.secret);
        sources.map(|source| source.count()).sum()
    }
}

impl MayBeOfUse for Source {
    fn is_of_use(&self) -> bool {
        self.name.is_some()
    }

    fn count(&self) -> usize {
        1 + self.items.len()
    }
}

impl MayBeOfUse for Item {
    fn is_of_use(&self) -> bool {
        !self.key().is_empty()
    }
}

/// Parses the first useful items of a list, up to [`MAX_ITEMS`], or [`ENOUGH`] with those in them. A request may hold three megabytes of items, and
/// each of them would take some hundred times its size.
pub(super) fn those_of_use<'de, D, T>(deserializer: D) -> Result<Box<[T]>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + MayBeOfUse,
{
    let none = (Vec::new(), 0);
    let (items, _) = raw::fold(deserializer, none, |(items, count), item: T| {
        if items.len() < MAX_ITEMS && *count < ENOUGH && item.is_of_use() {
            *count += item.count();
            items.push(item);
        }
    })?;
    Ok(items.into())
}
