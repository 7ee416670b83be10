//! Reads how objects are protected whose deletion is reviewed.

use kube::Client;
use pod_reloader_core::protect::{Deletion, Protected, ProtectedMetadata, Protection};

use crate::config::request;
use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::objects::one;

/// The apiserver, as a source of the metadata of these objects.
#[derive(Clone)]
pub(crate) struct ProtectedReads {
    client: Client,
    budget: Budget,
}

impl ProtectedReads {
    pub(crate) fn new(client: Client, budget: Budget) -> Self {
        Self { client, budget }
    }

    /// Returns the object that a review is about, by a consistent read of its metadata. `None` if it is not there, or is
    /// another one, or is not protected in this way.
    pub(crate) async fn protected(
        &self,
        deletion: &Deletion,
        how: Protection,
    ) -> Result<Option<Protected>, CallError> {
        let request = request::get_metadata(&deletion.object);
        let read = within(DEADLINE, one(&self.client, request, &self.budget));
        let metadata: ProtectedMetadata = match read.await {
            Ok(metadata) => metadata,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        match metadata.is_whole() {
            true => Ok(metadata.protected(deletion, how)),
            false => Err(CallError::Unreadable),
        }
    }
}
