//! The calls that read sources, and read and write custom resources, and their errors.

use http::{Method, Request};
use json_patch::Patch;
use kube::Client;
use pod_reloader_api::FieldBindingStatus;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::outcome::Reason;
use pod_reloader_core::field_binding::source::Source;
use pod_reloader_core::field_binding::{Binding, BindingId};
use pod_reloader_core::foreign::Foreign;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::config::request;
use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::objects::{one, take_of_one};

/// The apiserver, as sources and custom resources need it.
#[derive(Clone)]
pub(super) struct Calls {
    client: Client,
    budget: Budget,
}

impl Calls {
    pub(super) fn new(client: Client, budget: Budget) -> Self {
        Self { client, budget }
    }

    /// Reads the source: a GET without resourceVersion, which etcd itself answers.
    pub(super) async fn source(&self, binding: &Binding) -> Result<Option<Source>, CallError> {
        absent(self.call(request::get(&binding.source)).await)
    }

    /// Reads the custom resource, and returns what `take` takes of it. It is never built: that would take many times the
    /// memory of its text.
    pub(super) async fn target<T>(
        &self,
        binding: &Binding,
        kind: BoundKind,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<Option<T>, CallError> {
        let request = Request::get(path(binding, kind)).body(Vec::new());
        absent(self.take(request.expect(SAFE), take).await)
    }

    /// Writes fields of the custom resource. Returns what `take` takes of what it is now.
    ///
    /// A field that its kind does not have would be dropped without a word, again and again: this makes it an error.
    pub(super) async fn patch<T>(
        &self,
        binding: &Binding,
        kind: BoundKind,
        patch: &Patch,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<T, CallError> {
        let path = format!(
            "{}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict",
            path(binding, kind)
        );
        let body = serde_json::to_vec(patch).expect("a patch is JSON");
        let request = patch_request(path, "application/json-patch+json", body);
        self.take(request, take).await
    }

    /// Writes the status of a FieldBinding.
    pub(super) async fn write_status(
        &self,
        BindingId { namespace, name }: &BindingId,
        status: &FieldBindingStatus,
    ) -> Result<(), CallError> {
        let path = format!(
            "/apis/pod-reloader.github.io/v1alpha1/namespaces/{namespace}/fieldbindings/{name}/status?fieldManager={FIELD_MANAGER}"
        );
        // A merge replaces lists.
        let patch = json!({"status": status}).to_string().into_bytes();
        let request = patch_request(path, "application/merge-patch+json", patch);
        self.call::<IgnoredAny>(request).await?;
        Ok(())
    }

    async fn take<T>(
        &self,
        request: Request<Vec<u8>>,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<T, CallError> {
        let take = |object: &[u8]| match serde_json::from_slice::<&RawValue>(object) {
            Ok(object) => Ok(take(object)),
            Err(_) => Err(CallError::Unreadable),
        };
        let read = take_of_one(&self.client, request, &self.budget, take);
        within(DEADLINE, read).await
    }

    async fn call<T: Foreign>(&self, request: Request<Vec<u8>>) -> Result<T, CallError> {
        within(DEADLINE, one(&self.client, request, &self.budget)).await
    }
}

const SAFE: &str = "names are safe in a path";

fn path(binding: &Binding, kind: BoundKind) -> String {
    let BoundKind {
        group,
        version,
        resource,
        ..
    } = kind;
    let (namespace, name) = (&binding.id.namespace, &binding.target.name);
    format!("/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}")
}

fn patch_request(path: String, content_type: &str, body: Vec<u8>) -> Request<Vec<u8>> {
    let request = Request::builder().method(Method::PATCH).uri(path);
    let request = request.header(http::header::CONTENT_TYPE, content_type);
    request.body(body).expect(SAFE)
}

fn absent<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the reason why a call did not do what it should.
pub(super) fn reason(error: &CallError) -> Reason {
    if error.reason() == "forbidden" && !error.is_of_webhook() {
        Reason::Forbidden
    } else if error.is_refusal() {
        Reason::Rejected
    } else {
        Reason::Failed
    }
}
