//! The calls that read and write copies, and their errors.

use http::Request;
use pod_reloader_core::config_sync::content::Object;
use pod_reloader_core::config_sync::outcome::Reason;
use pod_reloader_core::config_sync::{Target, TargetMetadata};
use pod_reloader_core::reference::Reference;

use crate::live::request;
use crate::runtime::calls::{Calls, if_there};
use crate::runtime::error::CallError;

/// The apiserver, as sources and copies need it.
#[derive(Clone)]
pub(super) struct SyncCalls(pub(super) Calls);

impl SyncCalls {
    /// Reads an object: a GET without resourceVersion, which etcd itself answers.
    pub(super) async fn read(&self, object: &Reference) -> Result<Option<Object>, CallError> {
        if_there(self.0.call(request::get(object)).await)
    }

    /// Sends the request that creates a copy or replaces it.
    pub(super) async fn write(&self, request: Request<Vec<u8>>) -> Result<Target, CallError> {
        Ok(self.0.call::<TargetMetadata>(request).await?.into())
    }

    /// Deletes a copy, if it is still as it was seen.
    pub(super) async fn delete(&self, copy: &Reference, seen: &Target) -> Result<(), CallError> {
        let request = request::delete(copy, seen.uid(), Some(seen.resource_version()));
        self.0.send(request).await
    }
}

/// Returns the reason why a copy could not be written. `None` if its namespace is gone, or about to be.
pub(super) fn reason(error: &CallError) -> Option<Reason> {
    let says =
        |words| matches!(error, CallError::Refused { message, .. } if message.contains(words));
    if error.is_of_a_namespace_that_goes() {
        None
    } else if says("exceeded quota") {
        Some(Reason::QuotaExceeded)
    } else if error.reason() == "forbidden" {
        Some(Reason::Forbidden)
    } else if error.is_refusal() {
        Some(Reason::Refused)
    } else {
        Some(Reason::Failed)
    }
}
