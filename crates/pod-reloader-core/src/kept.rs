//! Decides what becomes of ConfigMaps that are deleted while they are in use: they are stored, and come back.
//!
//! Before such a ConfigMap goes, its content is stored in a ConfigMap of ours with another name. Once it has gone, one
//! with its name is restored from that, and then the stored one goes. Whatever breaks off in between, one of the two is
//! there.
//!
//! A stored one has a [seal](crate::seal). Whoever may create ConfigMaps may give one the same label and annotation, and
//! cannot seal it: it is neither restored nor deleted.

use std::time::Duration;

use jiff::Timestamp;
use kube_core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::hash::Keyring;
use crate::manifest::{Data, config_map};
use crate::metadata::{Managers, Metadata, Wanted, resource};
use crate::name::Name;
use crate::protect::Protected;
use crate::reference::Reference;
use crate::seal::{Claim, Purpose, SEAL, Sealed};

/// The label of the ConfigMaps that are stored or restored.
pub const KEPT: &str = "pod-reloader.cs.sap.com/kept";
/// The annotation of a stored ConfigMap that says of which object it is: `NAME/UID/RESOURCEVERSION`.
pub const KEPT_OBJECT: &str = "pod-reloader.cs.sap.com/kept-object";
const STORED: &str = "stored";
const RESTORED: &str = "true";

/// The number of hexadecimal digits in the name of a stored ConfigMap.
const DIGITS: usize = 10;
/// The part of such a name before the digits.
const INFIX: &str = "-kept-";
/// The maximum length of a UID, in bytes. Kubernetes makes UIDs of 36.
const MAX_UID: usize = 64;
/// The maximum length of a resourceVersion, in bytes. Kubernetes makes them of numbers.
const MAX_VERSION: usize = 32;
/// The time after which a deletion that has not happened is not expected any more. No request takes nearly as long, and
/// clocks may differ.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// The time for which all reviews of one version of an object share a place, in seconds. What a later one of them finds
/// there is younger than this, so the other half of [`ABANDONED`] is left for the deletion that it reviews.
const SHARED: i64 = 30 * 60;
/// The shortest and the longest time between two looks at an object that is about to be deleted.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));

/// The object of which a stored ConfigMap has the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// The name.
    pub name: Name,
    uid: Box<str>,
    resource_version: Box<str>,
}

impl Original {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (name, uid, version) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || uid.len() > MAX_UID || version.len() > MAX_VERSION {
            return None;
        }
        Some(Self {
            name: Name::parse(name).ok()?,
            uid: uid.into(),
            resource_version: version.into(),
        })
    }

    fn text(&self) -> String {
        format!("{}/{}/{}", self.name, self.uid, self.resource_version)
    }
}

impl From<&Protected> for Original {
    fn from(protected: &Protected) -> Self {
        Self {
            name: protected.object.name.clone(),
            uid: protected.uid.clone(),
            resource_version: protected.resource_version.clone(),
        }
    }
}

/// Returns the place where an object is stored that is to be deleted, at this time.
///
/// # Guarantees
///
/// All reviews of one version of an object have the same place for half an hour, so a thousand of them store it once.
/// Nothing that one of them has stored is dropped before the deletion that another one reviews: as long as the object
/// has this UID and version, only its age ends its time, or another one that is stored for the same name later and
/// comes back in its place. An object of another version, or with another UID, has another place.
pub fn stored(object: &Reference, original: &Original, now: Timestamp) -> Reference {
    let part = now.as_second().div_euclid(SHARED);
    let digits = hex::encode(Sha256::digest(format!("{}/{part}", original.text())));
    let stem = object.name.stem(INFIX.len() + DIGITS);
    let name = format!("{stem}{INFIX}{}", &digits[..DIGITS]);
    Reference {
        name: Name::parse(&name).expect("the beginning of a name, a dash and digits are a name"),
        ..object.clone()
    }
}

/// Returns true if an object can be stored under this name.
fn is_place(object: &Name, name: &str) -> bool {
    let rest = name.strip_prefix(object.stem(INFIX.len() + DIGITS));
    let digits = rest.and_then(|rest| rest.strip_prefix(INFIX));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.is_some_and(|it| it.len() == DIGITS && it.bytes().all(is_digit))
}

/// The content of a ConfigMap, as the apiserver sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    metadata: Version,
    data: Option<Box<RawValue>>,
    binary_data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    uid: Box<str>,
    resource_version: Box<str>,
}

impl Content {
    /// Returns true if this is the content that the object has.
    pub fn is_of(&self, original: &Original) -> bool {
        let version = &self.metadata;
        version.uid == original.uid && version.resource_version == original.resource_version
    }

    /// Returns the ConfigMap that stores this content at a place, as JSON. Nobody can change it.
    pub fn to_store(&self, place: &Reference, original: &Original, keys: &Keyring) -> Vec<u8> {
        let of = original.text();
        let seal = keys.seal(&claim(place, &of));
        let metadata = json!({
            "name": place.name.as_str(),
            "labels": {KEPT: STORED},
            "annotations": {KEPT_OBJECT: of, SEAL: seal},
        });
        self.manifest(metadata, true)
    }

    /// Returns the ConfigMap that has this content again, as JSON. No tool takes it for one of its own, and whoever
    /// writes it next may change it.
    pub fn to_restore(&self, name: &Name) -> Vec<u8> {
        let metadata = json!({"name": name.as_str(), "labels": {KEPT: RESTORED}});
        self.manifest(metadata, false)
    }

    fn manifest(&self, metadata: serde_json::Value, is_immutable: bool) -> Vec<u8> {
        let data = Data {
            data: self.data.as_deref(),
            binary_data: self.binary_data.as_deref(),
        };
        config_map(metadata, is_immutable, data)
    }
}

/// Returns what a ConfigMap claims that stores an object.
fn claim<'a>(place: &'a Reference, of: &'a str) -> Claim<'a> {
    Claim {
        purpose: Purpose::Store,
        object: place,
        of,
    }
}

/// The metadata of a ConfigMap, as far as it says what is to become of it.
#[derive(Clone, Debug, Deserialize)]
pub struct KeptMetadata {
    metadata: Metadata<Self>,
    /// `None` also if nothing but the metadata was read.
    immutable: Option<bool>,
}

impl Wanted for KeptMetadata {
    const LABELS: &'static [&'static str] = &[KEPT];
    const ANNOTATIONS: &'static [&'static str] = &[KEPT_OBJECT, SEAL];
}

resource!(
    KeptMetadata, DynamicResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "ConfigMap", plural: "configmaps"
);

/// A ConfigMap that we have stored or restored, and that nobody else has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The UID.
    pub uid: Box<str>,
    /// The resourceVersion.
    pub resource_version: Box<str>,
    /// The time of creation, if it is known.
    created: Option<Timestamp>,
    /// What it is for.
    pub role: Role,
}

/// What a ConfigMap of ours is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It stores the content of this object.
    Stored(Original),
    /// It is there in place of one that was deleted.
    Restored,
}

impl KeptMetadata {
    /// Returns the object. `None` if its name is invalid, which the apiserver never sends.
    pub fn reference(&self) -> Option<Reference> {
        let (namespace, name) = self.metadata.place()?;
        Some(Reference::config_map(&namespace, &name))
    }

    /// Returns it if it is ours. `None` if somebody else has written it, or put the label on it: then it is theirs.
    ///
    /// # Guarantees
    ///
    /// It asks for no less than the policy that guards our writes, so whatever is ours here, the policy lets us delete.
    /// There is one exception: metadata does not say whether what we have stored is still immutable.
    pub fn kept(&self, keys: &Keyring) -> Option<Kept> {
        let metadata = &self.metadata;
        let uid = metadata.uid.as_deref();
        let version = metadata.resource_version.as_deref();
        Some(Kept {
            uid: uid.filter(|it| it.len() <= MAX_UID)?.into(),
            resource_version: version.filter(|it| it.len() <= MAX_VERSION)?.into(),
            created: metadata.created(),
            role: self.role(keys)?,
        })
    }

    /// Returns true if it stores an object as a version of pod-reloader did that made no seals. Anybody may have made it,
    /// so it is neither restored nor deleted.
    pub fn is_unsealed(&self) -> bool {
        self.is_bare()
            && self.metadata.label(KEPT) == Some(STORED)
            && self.metadata.counts.annotations == 1
            && self.original().is_some()
    }

    /// Returns true if it was read as a whole, and stores this object for good: nobody can change its content.
    pub fn stores(&self, original: &Original, keys: &Keyring) -> bool {
        let stored = Role::Stored(original.clone());
        self.immutable == Some(true) && self.kept(keys).is_some_and(|it| it.role == stored)
    }

    fn role(&self, keys: &Keyring) -> Option<Role> {
        let metadata = &self.metadata;
        if !self.is_bare() {
            return None;
        }
        match metadata.label(KEPT)? {
            // This one has no seal: with an annotation of ours, some tool may take it for something of its own. It needs
            // none. The label alone makes an object ours only if it has nothing else, and then we do no more than delete
            // it when nothing uses it. So whoever puts the label on has taken every other label off, and can empty the
            // object as well. An object that is protected from them has a second label, which they cannot take off.
            RESTORED if !metadata.has_annotations => Some(Role::Restored),
            STORED if metadata.counts.annotations == 2 => {
                let original = self.original()?;
                let (place, of) = (self.reference()?, original.text());
                let sealed = keys.sealed(&claim(&place, &of), metadata.annotation(SEAL));
                (sealed != Sealed::Never).then_some(Role::Stored(original))
            }
            _ => None,
        }
    }

    /// Returns the object that it says it stores, if its name is that of a place of it.
    fn original(&self) -> Option<Original> {
        let original = Original::parse(self.metadata.annotation(KEPT_OBJECT)?)?;
        is_place(&original.name, self.metadata.name.as_deref()?).then_some(original)
    }

    /// Returns true if it has one label, neither owners nor finalizers, and nobody else has written it.
    fn is_bare(&self) -> bool {
        let metadata = &self.metadata;
        // Somebody may have removed all managers, too.
        metadata.managers == Managers::Us
            && metadata.owners().next().is_none()
            && metadata.counts.finalizers == 0
            && metadata.counts.labels == 1
    }
}

/// What is to become of a stored ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its object has gone: it comes back.
    Restore,
    /// Its object is about to go.
    Wait,
    /// Nobody needs it any more: its object stays, has come back, or somebody has written another one.
    Drop,
}

impl Kept {
    /// Returns the step for a stored ConfigMap, given what has the name of its object.
    pub fn step(&self, original: &Original, there: Option<&KeptMetadata>, now: Timestamp) -> Step {
        let Some(there) = there.map(|it| &it.metadata) else {
            return Step::Restore;
        };
        if there.uid.as_deref() != Some(&original.uid) {
            return Step::Drop;
        }
        if there.deletion_timestamp.is_some() {
            return Step::Wait;
        }
        // A deletion applies to the version that was reviewed. Another version is reviewed again.
        if there.resource_version.as_deref() != Some(&original.resource_version) {
            return Step::Drop;
        }
        let age = self.created.map(|created| now.duration_since(created));
        match age.is_some_and(|age| age.unsigned_abs() > ABANDONED) {
            true => Step::Drop,
            false => Step::Wait,
        }
    }

    /// Returns true if a later one is stored for the same name: `self` must not come back in its place.
    pub fn is_superseded<'a>(
        &self,
        original: &Original,
        others: impl IntoIterator<Item = &'a Self>,
    ) -> bool {
        let order = |it: &Self| (it.created, it.resource_version.parse::<u64>().ok());
        others.into_iter().any(|other| {
            let same_name = matches!(&other.role, Role::Stored(it) if it.name == original.name);
            same_name && order(other) > order(self)
        })
    }
}

/// Returns the time until the next look at an object that is about to be deleted, by the time since the first one.
pub fn pause(since: Duration) -> Duration {
    (since / 4).clamp(PAUSES.0, PAUSES.1)
}

#[cfg(test)]
mod tests;
