//! Reads how objects are protected whose deletion is reviewed.

use kube::Client;
use pod_reloader_core::protect::{Deletion, Protected, ProtectedMetadata, Protection};

use crate::request;
use crate::runtime::budget::Budget;
use crate::runtime::calls::{Calls, if_there};
use crate::runtime::error::CallError;

/// The apiserver, as a source of the metadata of these objects.
#[derive(Clone)]
pub struct ProtectedReads(Calls);

impl ProtectedReads {
    /// Returns reads by `client`, which draw memory from `budget`.
    pub fn new(client: Client, budget: Budget) -> Self {
        Self(Calls::new(client, budget))
    }

    /// Returns the object that a review is about, by a consistent read of its metadata. `None` if it is not there, or is
    /// another one, or is not protected in this way.
    pub async fn protected(
        &self,
        deletion: &Deletion,
        how: Protection,
    ) -> Result<Option<Protected>, CallError> {
        let request = request::get_metadata(&deletion.object);
        let read = self.0.call::<ProtectedMetadata>(request);
        let Some(metadata) = if_there(read.await)? else {
            return Ok(None);
        };
        match metadata.is_whole() {
            true => Ok(metadata.protected(deletion, how)),
            false => Err(CallError::Unreadable),
        }
    }
}
