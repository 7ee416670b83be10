//! Reads config objects live, by consistent reads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::io::AsyncBufReadExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use kube::Client;
use pod_reloader_core::digest::{ConfigObject, Contents, Presence};
use pod_reloader_core::reference::Reference;
use tokio::sync::Semaphore;

use crate::budget::{Budget, Share};
use crate::client::within;
use crate::error::{CallError, Error, chain};

#[cfg(test)]
mod tests;

/// How many config objects one source reads at once. Those of the webhook and those of the loop, all of
/// them large, leave a quarter of the budget to reviews.
const READS_AT_ONCE: usize = 12;
/// As much as most config objects take, in bytes.
const USUAL: usize = 256 << 10;
/// As much as one mebibyte takes in base64, with its metadata. Only what is full of characters that JSON
/// escapes takes more.
const LARGE: usize = 2 << 20;

/// The apiserver, as a source of config objects. Remembers nothing.
#[derive(Clone)]
pub(crate) struct Source {
    client: Client,
    deadline: Duration,
    reads: Arc<Semaphore>,
    budget: Budget,
}

impl Source {
    /// A source whose reads take `deadline` at most, and what they receive from `budget`.
    pub(crate) fn new(client: Client, deadline: Duration, budget: Budget) -> Self {
        Self {
            client,
            deadline,
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            budget,
        }
    }

    /// What is true of `reference` now: a GET without resourceVersion, which etcd itself answers for.
    ///
    /// The body is digested and dropped.
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
        let presence = match within(self.deadline, self.receive(request)).await {
            Ok(received) => parse(received).await.map(Presence::Present),
            Err(error) if error.is_not_found() => Ok(Presence::Absent),
            Err(error) => Err(error),
        };
        presence.map_err(|source| Error::Read {
            reference: reference.clone(),
            source,
        })
    }

    /// The body of the answer, which counts against the budget as long as the share is there.
    ///
    /// It never goes through the typed calls of the client, which log a body that they cannot read, nor
    /// through those that copy it.
    async fn receive(
        &self,
        request: http::Request<Vec<u8>>,
    ) -> Result<(Vec<u8>, Share), CallError> {
        let mut share = self.budget.share();
        share.grow_in_turn(USUAL).await;
        let mut answer = pin!(self.client.request_stream(request).await?);
        let mut body = Vec::new();
        loop {
            let part = answer.fill_buf().await;
            let part = part.map_err(|error| CallError::Connection(chain(&error)))?;
            if part.is_empty() {
                return Ok((body, share));
            }
            while body.len() + part.len() > share.bytes() {
                grow(&mut share).await?;
                body.reserve_exact(share.bytes() - body.len());
            }
            body.extend_from_slice(part);
            let length = part.len();
            answer.consume_unpin(length);
        }
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

/// A large object keeps no thread of the runtime: who waits for many must see his deadline pass.
async fn parse((body, share): (Vec<u8>, Share)) -> Result<ConfigObject, CallError> {
    if body.len() <= USUAL {
        return Ok(ConfigObject::parse(&body)?);
    }
    let parse = move || {
        let _share = share;
        ConfigObject::parse(&body)
    };
    let parsed = tokio::task::spawn_blocking(parse).await;
    Ok(parsed.expect("nothing ends it but a panic, which goes on here")?)
}

/// Makes room for more of an object. What waits here has no more than the usual share, so it never waits
/// for others of its kind.
async fn grow(share: &mut Share) -> Result<(), CallError> {
    if share.bytes() < LARGE {
        share.grow_in_turn(LARGE - share.bytes()).await;
        Ok(())
    } else {
        share.grow(LARGE).map_err(|_| CallError::NoRoom)
    }
}
