//! Makes the copies of ConfigMaps that pods use, and reads them.

use futures::future::try_join_all;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::copies::{Copies, Copy, NotTheContent, manifest};
use pod_reloader_core::digest::{DataKeys, Presence};
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::Workload;
use serde_json::json;

use super::error::ReadError;
use super::source::Source;
use crate::runtime::error::CallError;

/// The reason why a copy is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCopied {
    /// The ConfigMap has changed since it was read.
    #[error("ConfigMap {0} has changed meanwhile")]
    Changed(Name),
    /// An object that is no copy of it has the name.
    #[error("ConfigMap {0} is there already, and is no copy of pod-reloader")]
    Taken(Name),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("creating ConfigMap {copy}")]
    Create {
        copy: Name,
        #[source]
        source: CallError,
    },
}

/// What became of a copy that was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restored {
    /// It is there again.
    Copy,
    /// Its content is not known any more. What has its name now has the present content.
    WithPresentContent,
    /// The ConfigMap is gone, too.
    Nothing,
}

impl Source {
    /// Reads the copies that `pins` names, with the keys that matter to `workload`.
    pub(crate) async fn copies(
        &self,
        workload: &Workload,
        pins: &Pins,
    ) -> Result<Copies, ReadError> {
        let of = |name| config_map(&workload.id.namespace, name);
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
    pub(crate) async fn make(&self, copies: &[Copy]) -> Result<usize, NotCopied> {
        let made = copies.iter().map(|copy| self.make_one(copy));
        Ok(try_join_all(made).await?.into_iter().sum())
    }

    async fn make_one(&self, copy: &Copy) -> Result<usize, NotCopied> {
        if self.is_there(copy).await? {
            return Ok(0);
        }
        let (body, _share) = match self.receive(&copy.source).await {
            Ok(received) => received,
            Err(error) if error.is_not_found() => {
                return Err(NotCopied::Changed(copy.source.name.clone()));
            }
            Err(source) => {
                let reference = copy.source.clone();
                return Err(ReadError::Object { reference, source }.into());
            }
        };
        let manifest = copy.manifest(&body);
        let manifest =
            manifest.map_err(|NotTheContent| NotCopied::Changed(copy.source.name.clone()))?;
        drop(body);
        let size = manifest.len();
        match self
            .create(&copy.source.namespace, &copy.name, manifest)
            .await
        {
            Err(NotCopied::Create { source, .. })
                if source.is_conflict() && self.is_there(copy).await? =>
            {
                Ok(0)
            }
            created => created.map(|()| size),
        }
    }

    /// Makes the copy with this name anew. If `source` has other content by now, what has this name gets that
    /// content: pods that name it could not start otherwise.
    pub(crate) async fn restore(
        &self,
        source: &Reference,
        name: &Name,
    ) -> Result<Restored, NotCopied> {
        let Presence::Present(object) = self.read(source, DataKeys::new()).await? else {
            return Ok(Restored::Nothing);
        };
        if let Some(copy) = Copy::named(name, source.clone(), object.digest) {
            self.make_one(&copy).await?;
            return Ok(Restored::Copy);
        }
        let received = self.receive(source).await;
        let (body, _share) = received.map_err(|error| ReadError::Object {
            reference: source.clone(),
            source: error,
        })?;
        let manifest = manifest(name, &source.name, &body);
        let manifest = manifest.map_err(|NotTheContent| NotCopied::Changed(source.name.clone()))?;
        drop(body);
        self.create(&source.namespace, name, manifest).await?;
        Ok(Restored::WithPresentContent)
    }

    /// Deletes a copy, if it still is the one with this UID.
    pub(crate) async fn delete(&self, copy: &Reference, uid: &str) -> Result<(), CallError> {
        let path = format!(
            "/api/v1/namespaces/{}/configmaps/{}",
            copy.namespace, copy.name
        );
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
        });
        let request = http::Request::delete(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, METADATA_ONLY)
            .body(options.to_string().into_bytes())
            .expect("a Name is safe in a path");
        self.send(request).await
    }

    async fn create(
        &self,
        namespace: &Name,
        copy: &Name,
        manifest: Vec<u8>,
    ) -> Result<(), NotCopied> {
        let path =
            format!("/api/v1/namespaces/{namespace}/configmaps?fieldManager={FIELD_MANAGER}");
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, METADATA_ONLY)
            .body(manifest)
            .expect("a Name is safe in a path");
        let created = self.send(request).await;
        created.map_err(|source| NotCopied::Create {
            copy: copy.clone(),
            source,
        })
    }

    /// Returns true if the copy is there.
    async fn is_there(&self, copy: &Copy) -> Result<bool, NotCopied> {
        let own = config_map(&copy.source.namespace, &copy.name);
        match self.read(&own, DataKeys::new()).await? {
            Presence::Present(object) if copy.is(&object) => Ok(true),
            Presence::Present(_) => Err(NotCopied::Taken(copy.name.clone())),
            Presence::Absent => Ok(false),
        }
    }
}

/// The media type of an answer that leaves the content out.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Returns the reference to a ConfigMap.
pub(crate) fn config_map(namespace: &Name, name: &Name) -> Reference {
    Reference {
        kind: ConfigKind::ConfigMap,
        namespace: namespace.clone(),
        name: name.clone(),
    }
}
