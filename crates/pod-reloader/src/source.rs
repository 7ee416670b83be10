//! Reads config objects live, by consistent reads.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use kube::Client;
use pod_reloader_core::digest::{ConfigObject, Contents, Presence};
use pod_reloader_core::reference::Reference;
use tokio::sync::Semaphore;

use crate::client::within;
use crate::error::{CallError, Error};

/// How many config objects one source reads at once.
const READS_AT_ONCE: usize = 16;

/// The apiserver, as a source of config objects. Remembers nothing.
#[derive(Clone)]
pub(crate) struct Source {
    client: Client,
    deadline: Duration,
    reads: Arc<Semaphore>,
}

impl Source {
    /// A source whose reads take `deadline` at most.
    pub(crate) fn new(client: Client, deadline: Duration) -> Self {
        Self {
            client,
            deadline,
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// What is true of `reference` now: a GET without resourceVersion, which etcd itself answers for.
    ///
    /// The body is digested and dropped. It never goes through the typed calls of the client, which
    /// log a body that they cannot read.
    pub(crate) async fn read(&self, reference: &Reference) -> Result<Presence, Error> {
        let _read = self
            .reads
            .acquire()
            .await
            .expect("the semaphore is never closed");
        let Reference {
            kind,
            namespace,
            name,
        } = reference;
        let path = format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.plural());
        let request = http::Request::get(path)
            .body(Vec::new())
            .expect("a Name is safe in a path");
        let answer = within(self.deadline, self.client.request_text(request)).await;
        let presence = match answer {
            Ok(body) => ConfigObject::parse(body.as_bytes())
                .map(Presence::Present)
                .map_err(CallError::from),
            Err(error) if error.is_not_found() => Ok(Presence::Absent),
            Err(error) => Err(error),
        };
        presence.map_err(|source| Error::Read {
            reference: reference.clone(),
            source,
        })
    }

    /// What is true of each of `references` now. One that cannot be read is an error for all.
    pub(crate) async fn contents(
        &self,
        references: impl Iterator<Item = &Reference>,
    ) -> Result<Contents, Error> {
        stream::iter(references.cloned())
            .map(|reference| async move { Ok((reference.clone(), self.read(&reference).await?)) })
            .buffer_unordered(READS_AT_ONCE)
            .try_collect()
            .await
    }
}
