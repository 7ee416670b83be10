//! Reads and writes the ConfigMaps that are kept while they are in use.

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::kept::{Content, KeptMetadata};
use pod_reloader_core::reference::Reference;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::request;
use crate::runtime::budget::Budget;
use crate::runtime::calls::{Calls, if_there};
use crate::runtime::error::CallError;

/// The maximum number of contents that are in memory at once.
const AT_ONCE: usize = 4;

/// The apiserver, as these ConfigMaps need it.
#[derive(Clone)]
pub struct KeptCalls {
    calls: Calls,
    turns: Arc<Semaphore>,
}

impl KeptCalls {
    /// Returns calls by `client`, which draw memory from `budget`.
    pub fn new(client: Client, budget: Budget) -> Self {
        Self {
            calls: Calls::new(client, budget),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Reads metadata by a consistent read. `None` if there is no such object.
    pub async fn metadata(&self, object: &Reference) -> Result<Option<KeptMetadata>, CallError> {
        if_there(self.calls.call(request::get_metadata(object)).await)
    }

    /// Reads an object as a whole, by a consistent read. `None` if there is no such object.
    pub async fn whole(&self, object: &Reference) -> Result<Option<KeptMetadata>, CallError> {
        let _turn = self.turn().await;
        if_there(self.calls.call(request::get(object)).await)
    }

    /// Creates an object from the content of another one, by a consistent read. Returns false, and creates nothing, if
    /// `make` makes nothing of that.
    pub async fn copy(
        &self,
        from: &Reference,
        to: &Reference,
        make: impl FnOnce(Content) -> Option<Vec<u8>>,
    ) -> Result<bool, CallError> {
        let _turn = self.turn().await;
        let content = self.calls.call(request::get(from)).await?;
        let Some(manifest) = make(content) else {
            return Ok(false);
        };
        self.calls.send(request::create(to, manifest)).await?;
        Ok(true)
    }

    /// Deletes an object, if it still is this one, and in this version if one is given. Returns false if it is not.
    pub async fn delete(
        &self,
        object: &Reference,
        uid: &str,
        resource_version: Option<&str>,
    ) -> Result<bool, CallError> {
        let request = request::delete(object, uid, resource_version);
        match self.calls.send(request).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn turn(&self) -> SemaphorePermit<'_> {
        let turn = self.turns.acquire().await;
        turn.expect("the semaphore is never closed")
    }
}
