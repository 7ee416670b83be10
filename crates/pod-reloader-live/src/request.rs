//! Requests that read and write ConfigMaps and Secrets.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Builder;
use http::{Method, Request};
use kube::Resource;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, Reference};
use serde_json::json;

/// The media type of an answer that leaves the content out.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Returns the request for an object.
pub fn get(object: &Reference) -> Request<Vec<u8>> {
    finish(Request::get(path_of(object)), Vec::new())
}

/// Returns the request for the metadata of an object.
pub fn get_metadata(object: &Reference) -> Request<Vec<u8>> {
    let request = Request::get(path_of(object)).header(ACCEPT, METADATA_ONLY);
    finish(request, Vec::new())
}

/// Returns the request that creates an object. The answer has only its metadata.
pub fn create(object: &Reference, manifest: Vec<u8>) -> Request<Vec<u8>> {
    let path = path(object.kind, &object.namespace);
    write(Method::POST, &path, manifest)
}

/// Returns the request that puts a manifest in the place of an object. The answer has only its metadata.
pub fn replace(object: &Reference, manifest: Vec<u8>) -> Request<Vec<u8>> {
    write(Method::PUT, &path_of(object), manifest)
}

/// Returns the request that deletes an object, if it still is the one with this UID and, if given, with this
/// resourceVersion.
pub fn delete(object: &Reference, uid: &str, resource_version: Option<&str>) -> Request<Vec<u8>> {
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid, "resourceVersion": resource_version},
    });
    let request = json_request(Request::delete(path_of(object)));
    finish(request, options.to_string().into_bytes())
}

fn write(method: Method, path: &str, manifest: Vec<u8>) -> Request<Vec<u8>> {
    let uri = format!("{path}?fieldManager={FIELD_MANAGER}");
    finish(
        json_request(Request::builder().method(method).uri(uri)),
        manifest,
    )
}

fn json_request(request: Builder) -> Builder {
    request
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, METADATA_ONLY)
}

fn path(kind: ConfigKind, namespace: &Name) -> String {
    ConfigMetadata::url_path(&kind, Some(namespace.as_str()))
}

fn path_of(object: &Reference) -> String {
    format!("{}/{}", path(object.kind, &object.namespace), object.name)
}

fn finish(request: Builder, body: Vec<u8>) -> Request<Vec<u8>> {
    request.body(body).expect("a Name is safe in a path")
}
