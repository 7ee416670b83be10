//! The metadata of copies of ConfigMaps, and where they come from.

use jiff::Timestamp;
use kube_core::DynamicResourceScope;
use serde::Deserialize;

use crate::hash::Keyring;
use crate::mark::{COPY, STANDS_IN};
use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;
use crate::pins::{claim, is_copy_name};
use crate::reference::Reference;
use crate::seal::{COPY_OF, SEAL, Sealed};

/// The metadata of a ConfigMap with the label of copies.
#[derive(Clone, Debug, Deserialize)]
pub struct CopyMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for CopyMetadata {
    const LABELS: &'static [&'static str] = &[COPY];
    const ANNOTATIONS: &'static [&'static str] = &[COPY_OF, SEAL];
}

/// The origin of a ConfigMap with the label of copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We have made it.
    Sealed,
    /// It has all marks of a copy of this ConfigMap but the seal. A version of pod-reloader that made no seals may have
    /// made it, or anybody else: [its content](crate::copies::is_of_earlier_version) tells.
    Unsealed(Name),
    /// Somebody else has made it.
    Foreign,
}

impl CopyMetadata {
    /// Returns the namespace and the name. `None` if one is invalid, which the apiserver never sends.
    pub fn place(&self) -> Option<(Name, Name)> {
        self.metadata.place()
    }

    /// Returns the name of the ConfigMap that it was made of, if it is one of our copies: somebody may have put the
    /// label on another object.
    pub fn source(&self) -> Option<Name> {
        let source = self.metadata.annotation(COPY_OF)?;
        let source = Name::parse(source).ok()?;
        let (_, name) = self.place()?;
        is_copy_name(&source, &name).then_some(source)
    }

    /// Returns where it comes from.
    pub fn origin(&self, keys: &Keyring) -> Origin {
        let Some((source, (namespace, name))) = self.source().zip(self.place()) else {
            return Origin::Foreign;
        };
        let Some(seal) = self.metadata.annotation(SEAL) else {
            return Origin::Unsealed(source);
        };
        let copy = Reference::config_map(&namespace, &name);
        match keys.sealed(&claim(&copy, &source), Some(seal)) {
            Sealed::Now | Sealed::Before => Origin::Sealed,
            Sealed::Never => Origin::Foreign,
        }
    }

    /// Returns true if it says that it has other content than its name says, which nobody knows any more.
    pub fn stands_in(&self) -> bool {
        self.metadata.label(COPY) == Some(STANDS_IN)
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns when it was made, if that is known.
    pub fn created(&self) -> Option<Timestamp> {
        self.metadata.created()
    }
}

resource!(
    CopyMetadata, DynamicResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "ConfigMap", plural: "configmaps"
);
