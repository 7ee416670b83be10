//! Settings: the annotations and labels by which people tell pod-reloader what to do with a workload. Those that people
//! alone have set outlive the workload, if it comes back.

mod deleted;

use json_patch::Patch;

pub use self::deleted::{Deleted, MEMORY};
use crate::annotations::{KEYS, PREFIX, Place};
use crate::managers::{are_all, is_by_hand};
use crate::object::{Metadata, Object};
use crate::patch;
use crate::scope::Scope;
use crate::texts::Texts;
use crate::workload::{Reading, Workload};

/// The maximum number of settings of a workload that outlive it. With more, none do: who has set each of them is looked
/// for in all of its managed fields.
pub const MAX_SETTINGS: usize = 64;
/// The maximum total size of their keys and values, in bytes.
pub const MAX_SIZE: usize = 16 << 10;
/// The maximum size of the managed fields, multiplied by the number of settings, in bytes: they are read once for each.
/// Anybody can write long ones, and all events of a watch wait meanwhile.
const MAX_READ: usize = 8 << 20;

/// Returns true if this annotation or label is a setting. What we write ourselves is none.
pub(crate) fn is_setting(key: &str, place: Place, reading: &Reading) -> bool {
    let own = KEYS.iter().find(|own| own.key == key);
    match (own, place) {
        (Some(own), _) => own.place == place && !own.is_ours,
        (None, Place::Label) => reading.dialects.label_keys().any(|it| it == key),
        (None, _) => !key.starts_with(PREFIX) && reading.reads_annotation(key),
    }
}

/// The settings of a workload that outlive it. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting(Vec<Setting>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    place: Place,
    key: Box<str>,
    value: Box<str>,
}

impl Lasting {
    /// Returns the settings of a workload as it was deleted that people alone have set: with kubectl or our plugin, or
    /// before we put them back. Any other field manager may be a tool whose settings go with its manifest.
    ///
    /// `None` if there are none, or more than [`MAX_SETTINGS`], or if they are larger than [`MAX_SIZE`], or if the managed
    /// fields are too long.
    pub fn of(object: &impl Object, scope: &Scope) -> Option<Self> {
        let metadata = object.metadata();
        let managed_fields = metadata.managed_fields.as_deref()?;
        let all = settings(metadata, scope.reading()).take(MAX_SETTINGS + 1);
        let all: Vec<_> = all.collect();
        if all.len() > MAX_SETTINGS || all.len() * managed_fields.get().len() > MAX_READ {
            return None;
        }
        let is_lasting = |(place, key, _): &(Place, &str, &str)| {
            are_all(managed_fields, *place, key, is_by_hand)
        };
        let lasting: Vec<_> = all.into_iter().filter(is_lasting).collect();
        let sizes = lasting
            .iter()
            .map(|(_, key, value)| key.len() + value.len());
        let is_small = sizes.sum::<usize>() <= MAX_SIZE;
        let owned = |(place, key, value): (Place, &str, &str)| Setting {
            place,
            key: key.into(),
            value: value.into(),
        };
        Self::unless_empty(lasting.into_iter().map(owned)).filter(|_| is_small)
    }

    /// Returns those settings about which a workload says nothing. `None` if there are none.
    pub fn lacking_in(&self, object: &impl Object) -> Option<Self> {
        let metadata = object.metadata();
        let is_lacking = |it: &&Setting| {
            let texts = match it.place {
                Place::Label => metadata.labels.as_ref(),
                _ => metadata.annotations.as_ref(),
            };
            texts.and_then(|texts| texts.get(&it.key)).is_none()
        };
        Self::unless_empty(self.0.iter().filter(is_lacking).cloned())
    }

    /// Returns the loop's patch that adds these settings to a workload that lacks them. It fails if that is another
    /// workload by now, or has one of them. `None` if Kubernetes would refuse so many annotations.
    pub fn patch(&self, workload: &Workload) -> Option<Patch> {
        let annotations = self.0.iter().filter(|it| it.place == Place::Annotation);
        let sizes = annotations.map(|it| it.key.len() + it.value.len());
        let has_room = workload.markers.has_room_of(sizes.sum());
        let all = self.0.iter().map(|it| (it.place, &*it.key, &*it.value));
        has_room.then(|| patch::add_settings(workload, all))
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|it| &*it.key)
    }

    fn unless_empty(settings: impl Iterator<Item = Setting>) -> Option<Self> {
        let settings: Vec<_> = settings.collect();
        (!settings.is_empty()).then_some(Self(settings))
    }
}

/// Returns the settings of a workload, each with its place, its key and its value.
fn settings<'a>(
    metadata: &'a Metadata,
    reading: &'a Reading,
) -> impl Iterator<Item = (Place, &'a str, &'a str)> {
    let places = [
        (Place::Annotation, metadata.annotations.as_ref()),
        (Place::Label, metadata.labels.as_ref()),
    ];
    places.into_iter().flat_map(move |(place, texts)| {
        let all = texts.into_iter().flat_map(Texts::iter);
        let settings = all.filter(move |(key, _)| is_setting(key, place, reading));
        settings.map(move |(key, value)| (place, key, value))
    })
}

#[cfg(test)]
mod tests;
