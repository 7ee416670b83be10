//! Requests that read and write ConfigMaps and Secrets.

use http::Request;
use http::header::{ACCEPT, HeaderValue};
use kube::Resource;
use kube::api::{DeleteParams, GetParams, Preconditions};
use kube::core::request::{Error, Request as Requests};
use pod_reloader_core::reference::{ConfigMetadata, Reference};

use crate::runtime::client::post_params;

/// The media type of an answer that leaves the content out.
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// Returns the request for an object.
pub fn get(object: &Reference) -> Request<Vec<u8>> {
    built(requests(object).get(object.name.as_str(), &GetParams::default()))
}

/// Returns the request for the metadata of an object.
pub fn get_metadata(object: &Reference) -> Request<Vec<u8>> {
    built(requests(object).get_metadata(object.name.as_str(), &GetParams::default()))
}

/// Returns the request that creates an object. The answer has only its metadata.
pub fn create(object: &Reference, manifest: Vec<u8>) -> Request<Vec<u8>> {
    for_metadata(requests(object).create(&post_params(), manifest))
}

/// Returns the request that puts a manifest in the place of an object. The answer has only its metadata.
pub fn replace(object: &Reference, manifest: Vec<u8>) -> Request<Vec<u8>> {
    for_metadata(requests(object).replace(object.name.as_str(), &post_params(), manifest))
}

/// Returns the request that deletes an object, if it still is the one with this UID and, if given, with this
/// resourceVersion.
pub fn delete(object: &Reference, uid: &str, resource_version: Option<&str>) -> Request<Vec<u8>> {
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: resource_version.map(ToOwned::to_owned),
    };
    let params = DeleteParams::default().preconditions(preconditions);
    for_metadata(requests(object).delete(object.name.as_str(), &params))
}

/// Returns the requests for the objects of the kind and the namespace of `object`.
fn requests(object: &Reference) -> Requests {
    let namespace = object.namespace.as_str();
    Requests::new(ConfigMetadata::url_path(&object.kind, Some(namespace)))
}

fn for_metadata(request: Result<Request<Vec<u8>>, Error>) -> Request<Vec<u8>> {
    let mut request = built(request);
    request.headers_mut().insert(ACCEPT, METADATA_ONLY);
    request
}

fn built(request: Result<Request<Vec<u8>>, Error>) -> Request<Vec<u8>> {
    request.expect("a Name is safe in a path")
}
