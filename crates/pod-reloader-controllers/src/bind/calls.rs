//! The calls that read sources, and read and write custom resources, and their errors.

use kube::Resource;
use kube::api::{GetParams, Patch};
use kube::core::Request;
use pod_reloader_core::field_binding::Binding;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::field_binding::outcome::Reason;
use pod_reloader_core::field_binding::source::Source;
use serde_json::value::RawValue;

use crate::live::request;
use crate::runtime::calls::{Calls, if_there};
use crate::runtime::client::patch_params;
use crate::runtime::error::CallError;

/// The apiserver, as sources and custom resources need it.
#[derive(Clone)]
pub(super) struct BindCalls(pub(super) Calls);

impl BindCalls {
    /// Reads the source: a GET without resourceVersion, which etcd itself answers.
    pub(super) async fn source(&self, binding: &Binding) -> Result<Option<Source>, CallError> {
        if_there(self.0.call(request::get(&binding.source)).await)
    }

    /// Reads the custom resource, and returns what `take` takes of it.
    pub(super) async fn target<T>(
        &self,
        binding: &Binding,
        kind: BoundKind,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<Option<T>, CallError> {
        let name = binding.target.name.as_str();
        let request = requests(binding, kind).get(name, &GetParams::default());
        if_there(self.0.take(request.expect(SAFE), take).await)
    }

    /// Writes fields of the custom resource. Returns what `take` takes of what it is now.
    ///
    /// A field that its kind does not have would be dropped without a word, again and again: this makes it an error.
    pub(super) async fn patch<T>(
        &self,
        binding: &Binding,
        kind: BoundKind,
        patch: json_patch::Patch,
        take: impl FnOnce(&RawValue) -> T,
    ) -> Result<T, CallError> {
        let name = binding.target.name.as_str();
        let params = patch_params().validation_strict();
        let request = requests(binding, kind).patch(name, &params, &Patch::<()>::Json(patch));
        self.0.take(request.expect(SAFE), take).await
    }
}

const SAFE: &str = "names are safe in a path";

/// Returns the requests for the custom resources of a kind in the namespace of the binding.
fn requests(binding: &Binding, kind: BoundKind) -> Request {
    let namespace = binding.id.namespace.as_str();
    let path = BoundMetadata::url_path(&kind.api_resource(), Some(namespace));
    Request::new(path)
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
