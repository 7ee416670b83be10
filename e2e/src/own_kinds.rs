//! The kinds of custom resources of pod-reloader itself, as the chart defines them.

use std::{fs, sync::LazyLock};

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::version::chart;

/// A kind of custom resource of pod-reloader itself.
#[derive(Debug)]
pub struct OwnKind {
    /// The kind, such as `FieldBinding`.
    pub kind: String,
    /// The API group and version.
    pub api_version: String,
    /// The name of the resource in paths.
    pub plural: String,
    /// The name by which a reference calls an object.
    pub singular: String,
    /// The name of the definition.
    pub definition: String,
    /// True if its objects have a namespace.
    pub is_namespaced: bool,
}

/// Returns all of them. A test of `pod-reloader-api` compares the chart with its types.
///
/// # Panics
/// When the definitions in the chart cannot be read.
pub fn own_kinds() -> &'static [OwnKind] {
    static KINDS: LazyLock<Vec<OwnKind>> =
        LazyLock::new(|| read().expect("the chart defines our kinds"));
    &KINDS
}

fn read() -> Result<Vec<OwnKind>> {
    let mut kinds = Vec::new();
    for entry in fs::read_dir(chart().join("files"))? {
        let definition: CustomResourceDefinition =
            serde_json::from_slice(&fs::read(entry?.path())?)?;
        let spec = definition.spec;
        kinds.push(OwnKind {
            api_version: format!("{}/{}", spec.group, spec.versions[0].name),
            definition: format!("{}.{}", spec.names.plural, spec.group),
            kind: spec.names.kind,
            plural: spec.names.plural,
            singular: spec.names.singular.unwrap_or_default(),
            is_namespaced: spec.scope == "Namespaced",
        });
    }
    Ok(kinds)
}
