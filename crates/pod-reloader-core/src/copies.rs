//! Decides which copies the pods of a workload use, and which content its user has undone.

use std::collections::BTreeMap;

use serde_json::json;

use crate::digest::{Aspects, ConfigObject, Digest, Objects, Presence};
use crate::hash::Keyring;
use crate::manifest::{Data, config_map};
use crate::mark::{COPY, IS_COPY, Marks, STANDS_IN};
use crate::name::Name;
use crate::pins::{CopyNames, Kept, Pins, claim, plain_copy_name};
use crate::reference::{ConfigKind, Reference};
use crate::seal::{COPY_OF, SEAL};
use crate::workload::Workload;

/// A copy that has to exist before a pod template names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Copy {
    /// The ConfigMap that it is made of.
    pub source: Reference,
    /// The copy's own name.
    pub name: Name,
    /// The digest of its content.
    pub digest: Digest,
}

/// The reason why an object cannot be copied: it is no ConfigMap with the content of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTheContent;

impl Copy {
    /// Returns the copy with this name, if it is one of a ConfigMap with this digest.
    pub fn named(
        name: &Name,
        source: Reference,
        digest: Digest,
        names: &CopyNames<'_>,
    ) -> Option<Self> {
        let is_its_name = names.is_name_of(name, &source.name, &digest);
        is_its_name.then(|| Self {
            source,
            name: name.clone(),
            digest,
        })
    }

    /// Returns its kind, namespace and name.
    pub fn reference(&self) -> Reference {
        Reference::config_map(&self.source.namespace, &self.name)
    }

    /// Returns the copy as JSON, given the ConfigMap as the apiserver sends it.
    ///
    /// # Errors
    ///
    /// The ConfigMap has other content by now.
    pub fn manifest(&self, source: &[u8], keys: &Keyring) -> Result<Vec<u8>, NotTheContent> {
        let object = ConfigObject::parse(source, Aspects::default());
        let is_right = object.is_ok_and(|object| object.digest == self.digest);
        match is_right {
            true => manifest(&self.reference(), &self.source.name, IS_COPY, source, keys),
            false => Err(NotTheContent),
        }
    }

    /// Returns true if this object, which has the copy's name, is the copy.
    pub fn is(&self, object: &ConfigObject) -> bool {
        is_copy(object) && object.digest == self.digest
    }
}

/// Returns what stands in for a copy whose content nobody knows any more, as JSON: it has the content that the ConfigMap
/// has now, as the apiserver sends it.
///
/// # Errors
///
/// That is no ConfigMap.
pub fn stand_in(
    copy: &Reference,
    source_name: &Name,
    source: &[u8],
    keys: &Keyring,
) -> Result<Vec<u8>, NotTheContent> {
    manifest(copy, source_name, STANDS_IN, source, keys)
}

fn manifest(
    copy: &Reference,
    copy_of: &Name,
    label: &str,
    source: &[u8],
    keys: &Keyring,
) -> Result<Vec<u8>, NotTheContent> {
    let data: Data<'_> = serde_json::from_slice(source).map_err(|_| NotTheContent)?;
    let metadata = json!({
        "name": copy.name.as_str(),
        "labels": {COPY: label},
        "annotations": {COPY_OF: copy_of.as_str(), SEAL: keys.seal(&claim(copy, copy_of))},
    });
    Ok(config_map(metadata, true, data))
}

/// The copies that a workload's pins name, as they were read, by the name of the ConfigMap that each stands for.
pub type Copies = BTreeMap<Name, Presence>;

impl Workload {
    /// Returns the copies of these objects that the workload's pods are to use. None if it pins nothing.
    pub fn copies<'a>(
        &'a self,
        objects: &'a Objects,
        names: &'a CopyNames<'_>,
    ) -> impl Iterator<Item = Copy> + 'a {
        let pinned = self.pinned(objects);
        pinned.map(move |(source, digest)| Copy {
            source: source.clone(),
            name: names.name_for(&source.name, digest),
            digest: *digest,
        })
    }

    /// Returns those of these objects of which copies are kept, each with the digest of its content.
    fn pinned<'a>(
        &'a self,
        objects: &'a Objects,
    ) -> impl Iterator<Item = (&'a Reference, &'a Digest)> + 'a {
        let pinning = self
            .rare()
            .pinning
            .as_deref()
            .filter(|_| self.slots().next().is_some());
        let objects = objects.iter().filter(move |_| pinning.is_some());
        objects.filter_map(move |(source, object)| match object {
            Presence::Present(present)
                if source.kind == ConfigKind::ConfigMap
                    && pinning?.includes(&source.name)
                    && self.references.tracks(source, object) =>
            {
                Some((source, &present.digest))
            }
            _ => None,
        })
    }

    /// Returns the names of copies, of which those that the workload has are there already.
    pub fn copy_names<'a>(&'a self, keys: &'a Keyring) -> CopyNames<'a> {
        let Kept { pins, undone } = self.kept();
        let names = CopyNames::new(keys, &self.id.namespace);
        names.and(&pins).and(&undone)
    }

    /// Returns the pins for these objects.
    pub fn pins_for(&self, objects: &Objects, names: &CopyNames<'_>) -> Pins {
        let copies = self.copies(objects, names);
        copies.map(|copy| (copy.source.name, copy.name)).collect()
    }

    /// Returns those pins that matter to the workload: it tracks the ConfigMap, and pins it.
    #[must_use]
    pub fn relevant(&self, pins: &Pins) -> Pins {
        let pinning = self.rare().pinning.as_deref();
        pins.filtered(|source, _| {
            pinning.is_some_and(|it| it.includes(source))
                && self
                    .references
                    .mention(&Reference::config_map(&self.id.namespace, source))
        })
    }

    /// Returns the workload's pins as they are, as far as they matter.
    pub fn kept(&self) -> Kept {
        match self.rare().pinning {
            Some(_) => self.relevant_ones(&Kept::parse(self.pins(), self.undone())),
            None => Kept::default(),
        }
    }

    /// Returns what is undone, as an annotation says it.
    pub(crate) fn undone(&self) -> Option<&str> {
        self.rare().pinning.as_deref()?.undone.as_deref()
    }

    /// Returns those of `kept` that matter to the workload.
    pub(crate) fn relevant_ones(&self, kept: &Kept) -> Kept {
        Kept {
            pins: self.relevant(&kept.pins),
            undone: self.relevant(&kept.undone),
        }
    }

    /// Returns `objects` with the content of `copies` in place of what was undone and is still there, and the
    /// pins of the latter. `copies` are the [preferred](Kept::preferred) ones. `None` if one of them is not there
    /// any more, or is no copy of ours.
    pub fn without_undone(
        &self,
        kept: &Kept,
        objects: Objects,
        copies: &Copies,
        names: &CopyNames<'_>,
    ) -> Option<(Objects, Pins)> {
        let pinned = self.pinned(&objects);
        let pinned = pinned.map(|(source, digest)| (source.name.clone(), *digest));
        let present: BTreeMap<_, _> = pinned.collect();
        let is_present = |source: &Name, copy: &Name| {
            let digest = present.get(source);
            digest.is_some_and(|digest| names.is_name_of(copy, source, digest))
        };
        let undone = kept.undone.filtered(is_present);
        let preferred = kept
            .pins
            .filtered(|source, _| undone.get(source.as_str()).is_some());
        Some((
            self.with_copies(objects, &preferred, copies, names)?,
            undone,
        ))
    }

    /// Returns the pins of the content that is undone when the workload gets `pins`: what it has had so far, or had
    /// undone before, as far as `objects` still have it. What has come since is not undone.
    pub fn undone_by(
        &self,
        pins: &Pins,
        before: &Kept,
        objects: &Objects,
        names: &CopyNames<'_>,
    ) -> Pins {
        let undone = self.pinned(objects).filter_map(|(source, digest)| {
            let name = &source.name;
            let is_present = |copy: &Name| names.is_name_of(copy, name, digest);
            // Pods with these pins have the same content.
            if is_present(pins.get(name.as_str())?) {
                return None;
            }
            let mut had = [&before.pins, &before.undone]
                .into_iter()
                .filter_map(|pins| pins.get(name.as_str()));
            let had = had.find(|copy| is_present(copy))?;
            Some((name.clone(), had.clone()))
        });
        undone.collect()
    }

    /// Returns `objects` with the content of the copies that `pins` names. `None` if one of them is not there,
    /// or is no copy of ours.
    pub fn with_copies(
        &self,
        mut objects: Objects,
        pins: &Pins,
        copies: &Copies,
        names: &CopyNames<'_>,
    ) -> Option<Objects> {
        for (source, copy) in pins.iter() {
            let Some(Presence::Present(object)) = copies.get(source) else {
                return None;
            };
            if !is_copy(object) || !names.is_name_of(copy, source, &object.digest) {
                return None;
            }
            // One that is no longer tracked makes no difference.
            if let Some(presence) =
                objects.get_mut(&Reference::config_map(&self.id.namespace, source))
            {
                *presence = Presence::Present(match presence {
                    Presence::Present(present) => present.with_content_of(object),
                    Presence::Absent => object.clone(),
                });
            }
        }
        Some(objects)
    }

    /// Returns true if its pod templates have this value of the annotation, or none.
    pub fn has_pins(&self, pins: Option<&str>) -> bool {
        self.slots()
            .all(|(_, slot)| slot.state.pins.as_deref() == pins)
    }

    /// Returns the copies that its pod templates name, whether or not it still pins anything.
    pub fn named_copies(&self) -> impl Iterator<Item = Pins> {
        let pins = self.templates.iter().filter_map(|it| it.pins.as_deref());
        pins.filter_map(Pins::parse_ours)
    }

    /// Returns true if the workload has been rolled out without pins, because it pinned nothing then.
    pub(crate) fn lacks_pins(&self, objects: &Objects) -> bool {
        let is_bare = self.slots().any(|(_, slot)| slot.state.pins.is_none());
        is_bare && self.pinned(objects).next().is_some()
    }

    /// Returns true if the workload pins, and was rolled out without copies because they could not be made.
    pub fn is_without_copies(&self) -> bool {
        let is_empty = |pins: &Option<Box<str>>| pins.as_deref() == Some("");
        self.rare().pinning.is_some() && self.slots().any(|(_, slot)| is_empty(&slot.state.pins))
    }
}

/// Returns true if this object, which has the marks of a copy of `source` but no seal, can only be a copy that a version
/// of pod-reloader has made which made no seals: nobody can change its content, and its name is made of that.
pub fn is_of_earlier_version(object: &ConfigObject, source: &Name, name: &Name) -> bool {
    is_copy(object) && plain_copy_name(source, &object.digest) == *name
}

/// Returns true if this object says that we have made it as a copy, and nobody can have changed its content since.
fn is_copy(object: &ConfigObject) -> bool {
    object.marks.contain(Marks::COPY | Marks::IMMUTABLE)
}

#[cfg(test)]
mod tests;
