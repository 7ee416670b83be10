//! Makes the copies of ConfigMaps that pods use, and reads them.

use futures::future::try_join_all;
use pod_reloader_core::copies::{Copies, Copy, is_of_earlier_version, stand_in};
use pod_reloader_core::digest::{DataKeys, Presence};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::mark::Marks;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::{CopyNames, Pins};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::revision::{CopyMetadata, Origin};
use pod_reloader_core::workload::Workload;

use crate::error::{ReadError, in_own_words};
use crate::request;
use crate::runtime::calls::if_there;
use crate::runtime::error::CallError;
use crate::source::Source;

/// The reason why a copy is not there.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    /// The ConfigMap has changed since it was read.
    #[error("ConfigMap {0} has changed meanwhile")]
    Changed(Name),
    /// An object that is no copy of it has the name.
    #[error("ConfigMap {0} is there already, and is no copy of pod-reloader")]
    Taken(Name),
    /// What it is made of, or what has its name, cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The apiserver has not created it, or not deleted what has its name.
    #[error("creating ConfigMap {copy}")]
    Create {
        /// The name of the copy.
        copy: Name,
        /// The cause.
        #[source]
        source: CallError,
    },
}

impl NotCopied {
    /// Returns the text for an Event. What the apiserver says may quote a value.
    pub fn shown(&self) -> String {
        match self {
            Self::Create { copy, source } => {
                let why = in_own_words(source);
                format!("ConfigMap {copy} cannot be created: {why}")
            }
            Self::Read(error) => format!("ConfigMaps cannot be read ({})", error.reason()),
            Self::Changed(_) | Self::Taken(_) => self.to_string(),
        }
    }

    /// Returns the reason as one of a closed set of words: what the apiserver says may quote a value.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Changed(_) => "changed",
            Self::Taken(_) => "taken",
            Self::Read(error) => error.reason(),
            Self::Create { source, .. } => source.reason(),
        }
    }
}

/// What became of a copy that was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It is there again.
    Copy,
    /// Its content is not known any more. What has its name now has the present content.
    WithPresentContent,
    /// The ConfigMap is gone, too.
    Nothing,
}

impl Source {
    /// Reads the copies that `pins` names, with the keys that matter to `workload`.
    pub async fn copies(&self, workload: &Workload, pins: &Pins) -> Result<Copies, ReadError> {
        let of = |name| Reference::config_map(&workload.id.namespace, name);
        let mut reads = Vec::new();
        for (source, copy) in pins.iter() {
            let (reference, copy) = (of(source), of(copy));
            let keys = workload.data_keys(&reference).map(Into::into).collect();
            reads.push(async move {
                let presence = self.read(&copy, keys).await?;
                Ok::<_, ReadError>((source.clone(), presence))
            });
        }
        Ok(try_join_all(reads).await?.into_iter().collect())
    }

    /// Makes sure that these copies are there. Returns the bytes of those that were made.
    pub async fn make(&self, copies: &[Copy], keys: &Keyring) -> Result<usize, NotCopied> {
        let made = copies.iter().map(|copy| self.make_one(copy, keys));
        Ok(try_join_all(made).await?.into_iter().sum())
    }

    async fn make_one(&self, copy: &Copy, keys: &Keyring) -> Result<usize, NotCopied> {
        match self.state_of(copy).await? {
            State::IsThere => return Ok(0),
            State::IsMissing => {}
            // Nobody knew the content when pods needed something with that name, or it only looks like ours.
            State::HasOtherContent(uid) => {
                let own = copy.reference();
                if !self.have_made(&own, &uid, keys).await? {
                    return Err(NotCopied::Taken(copy.name.clone()));
                }
                let deleted = self.delete(&own, &uid).await;
                deleted.map_err(|source| NotCopied::Create {
                    copy: copy.name.clone(),
                    source,
                })?;
            }
        }
        let make = |body: &[u8]| copy.manifest(body, keys).ok();
        let Some(manifest) = self.take(&copy.source, make).await?.flatten() else {
            return Err(NotCopied::Changed(copy.source.name.clone()));
        };
        let size = manifest.len();
        match self
            .create(&copy.source.namespace, &copy.name, manifest)
            .await
        {
            Err(NotCopied::Create { source, .. })
                if source.is_conflict() && matches!(self.state_of(copy).await?, State::IsThere) =>
            {
                Ok(0)
            }
            created => created.map(|()| size),
        }
    }

    /// Returns what `take` takes of a ConfigMap. `None` if it is gone. Nothing is held of the budget afterwards: whoever
    /// waits for more must hold nothing.
    async fn take<T>(
        &self,
        object: &Reference,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, ReadError> {
        let _turn = self.turn().await;
        match if_there(self.receive(object).await) {
            Ok(received) => Ok(received.map(|(body, _share)| take(&body))),
            Err(source) => Err(ReadError::Object {
                reference: object.clone(),
                source,
            }),
        }
    }

    /// Makes the copy with this name anew. If `source` has other content by now and `may_differ` is true, what has this
    /// name gets that content: pods that name it could not start otherwise.
    pub async fn restore(
        &self,
        source: &Reference,
        name: &Name,
        may_differ: bool,
        keys: &Keyring,
    ) -> Result<Restored, NotCopied> {
        let Presence::Present(object) = self.read(source, DataKeys::new()).await? else {
            return Ok(Restored::Nothing);
        };
        let names = CopyNames::new(keys, &source.namespace);
        if let Some(copy) = Copy::named(name, source.clone(), object.digest, &names) {
            self.make_one(&copy, keys).await?;
            return Ok(Restored::Copy);
        }
        if !may_differ {
            return Ok(Restored::Nothing);
        }
        let copy = Reference::config_map(&source.namespace, name);
        let make = |body: &[u8]| stand_in(&copy, &source.name, body, keys).ok();
        let Some(manifest) = self.take(source, make).await?.flatten() else {
            return Ok(Restored::Nothing);
        };
        self.create(&source.namespace, name, manifest).await?;
        Ok(Restored::WithPresentContent)
    }

    /// Returns true if what has the name of a copy is the object with this UID, and we have made it.
    async fn have_made(
        &self,
        copy: &Reference,
        uid: &str,
        keys: &Keyring,
    ) -> Result<bool, ReadError> {
        let is_ours = |body: &[u8]| {
            let metadata = serde_json::from_slice::<CopyMetadata>(body);
            metadata.is_ok_and(|it| it.uid() == uid && it.origin(keys) == Origin::Sealed)
        };
        Ok(self.take(copy, is_ours).await?.unwrap_or_default())
    }

    /// Returns true if the object with this UID, which has the marks of a copy of `source` but no seal, is one that an
    /// earlier version has made.
    pub async fn is_of_earlier_version(
        &self,
        copy: &Reference,
        uid: &str,
        source: &Name,
    ) -> Result<bool, ReadError> {
        Ok(match self.read(copy, DataKeys::new()).await? {
            Presence::Present(object) => {
                object.uid() == uid && is_of_earlier_version(&object, source, &copy.name)
            }
            Presence::Absent => false,
        })
    }

    /// Deletes a copy, if it still is the one with this UID.
    pub async fn delete(&self, copy: &Reference, uid: &str) -> Result<(), CallError> {
        let request = request::delete(copy, uid, None);
        self.send(request).await
    }

    async fn create(
        &self,
        namespace: &Name,
        copy: &Name,
        manifest: Vec<u8>,
    ) -> Result<(), NotCopied> {
        let request = request::create(&Reference::config_map(namespace, copy), manifest);
        let _turn = self.turn().await;
        let created = self.send(request).await;
        created.map_err(|source| NotCopied::Create {
            copy: copy.clone(),
            source,
        })
    }

    /// Returns what there is with the name of the copy.
    async fn state_of(&self, copy: &Copy) -> Result<State, NotCopied> {
        match self.read(&copy.reference(), DataKeys::new()).await? {
            Presence::Present(object) if copy.is(&object) => Ok(State::IsThere),
            Presence::Present(object) if object.marks.contain(Marks::IMMUTABLE) => {
                Ok(State::HasOtherContent(object.uid().into()))
            }
            Presence::Present(_) => Err(NotCopied::Taken(copy.name.clone())),
            Presence::Absent => Ok(State::IsMissing),
        }
    }
}

/// What there is with the name of a copy.
enum State {
    /// The copy.
    IsThere,
    /// Nothing.
    IsMissing,
    /// An object with this UID that may stand in for the copy, because nobody knew its content.
    HasOtherContent(Box<str>),
}
