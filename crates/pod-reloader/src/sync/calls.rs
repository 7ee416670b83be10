//! The calls that read and write copies, and their errors.

use http::{Method, Request};
use kube::Client;
use pod_reloader_api::ClusterConfigSyncStatus;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::config_sync::content::Object;
use pod_reloader_core::config_sync::outcome::Reason;
use pod_reloader_core::config_sync::{Target, TargetMetadata};
use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::config::request;
use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::objects::one;

/// The apiserver, as sources and copies need it.
#[derive(Clone)]
pub(super) struct Calls {
    client: Client,
    budget: Budget,
}

impl Calls {
    pub(super) fn new(client: Client, budget: Budget) -> Self {
        Self { client, budget }
    }

    /// Reads an object: a GET without resourceVersion, which etcd itself answers.
    pub(super) async fn read(&self, object: &Reference) -> Result<Option<Object>, CallError> {
        match self.call(request::get(object)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn create(
        &self,
        copy: &Reference,
        manifest: Vec<u8>,
    ) -> Result<Target, CallError> {
        let created = self.call::<TargetMetadata>(request::create(copy, manifest));
        Ok(created.await?.into())
    }

    pub(super) async fn replace(
        &self,
        copy: &Reference,
        manifest: Vec<u8>,
    ) -> Result<Target, CallError> {
        let replaced = self.call::<TargetMetadata>(request::replace(copy, manifest));
        Ok(replaced.await?.into())
    }

    /// Deletes a copy, if it is still as it was seen.
    pub(super) async fn delete(&self, copy: &Reference, seen: &Target) -> Result<(), CallError> {
        let request = request::delete(copy, seen.uid(), Some(seen.resource_version()));
        self.call::<IgnoredAny>(request).await?;
        Ok(())
    }

    /// Writes the status of a ClusterConfigSync.
    pub(super) async fn write_status(
        &self,
        sync: &Name,
        status: &ClusterConfigSyncStatus,
    ) -> Result<(), CallError> {
        let path = format!(
            "/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs/{sync}/status?fieldManager={FIELD_MANAGER}"
        );
        // A merge replaces lists. What is left out because it is empty must be said.
        let patch = json!({"status": {
            "observedGeneration": status.observed_generation,
            "selected": status.selected,
            "synced": status.synced,
            "sealed": status.sealed,
            "sourceNamespaceUid": status.source_namespace_uid,
            "conflicts": status.conflicts,
            "conditions": status.conditions,
        }});
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .expect("a Name is safe in a path");
        self.call::<IgnoredAny>(request).await?;
        Ok(())
    }

    async fn call<T: Foreign>(&self, request: Request<Vec<u8>>) -> Result<T, CallError> {
        within(DEADLINE, one(&self.client, request, &self.budget)).await
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
