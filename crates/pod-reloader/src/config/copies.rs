//! Makes the copies of ConfigMaps that pods use, and reads them.

use futures::future::try_join_all;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::copies::{Copies, Copy, NotTheContent};
use pod_reloader_core::digest::{DataKeys, Presence};
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::Workload;

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
        let path = format!(
            "/api/v1/namespaces/{}/configmaps?fieldManager={FIELD_MANAGER}",
            copy.source.namespace
        );
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, METADATA_ONLY)
            .body(manifest)
            .expect("a Name is safe in a path");
        match self.send(request).await {
            Ok(()) => Ok(size),
            Err(error) if error.is_conflict() && self.is_there(copy).await? => Ok(0),
            Err(source) => Err(NotCopied::Create {
                copy: copy.name.clone(),
                source,
            }),
        }
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
