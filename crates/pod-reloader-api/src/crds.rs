//! The definitions of the custom resources, and how the chart has them.

use std::fs;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{ClusterConfigSync, FieldBinding, GROUP};

/// The folder with the definitions in the chart. Each file has the plural of its kind as its name.
const FILES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../charts/pod-reloader/files"
);

/// Formats of numbers, and those of texts that we use, of `supportedVersionedFormats` in
/// `pkg/apiserver/validation/formats.go` of apiextensions-apiserver. It warns of any other.
const FORMATS: [(&str, &[&str]); 3] = [
    ("integer", &["int32", "int64"]),
    ("number", &["float", "double"]),
    ("string", &["date-time"]),
];

/// Returns the definition of each custom resource. `make golden` writes them, and their fields in the documents.
pub(crate) fn crds() -> Vec<CustomResourceDefinition> {
    vec![ClusterConfigSync::crd(), FieldBinding::crd()]
}

/// The end-to-end tests take the files for the list of all custom resources.
#[test]
fn the_chart_has_the_definitions_of_these_types_and_no_others() {
    let mut names = Vec::new();
    for crd in crds() {
        let name = format!("{}.json", crd.spec.names.plural);
        let path = format!("{FILES}/{name}");
        let mut current = serde_json::to_string_pretty(&crd).unwrap();
        current.push('\n');
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &current).unwrap();
        }
        let file = fs::read_to_string(&path).unwrap();
        assert!(file == current, "{path} differs: `make golden` writes it");
        names.push(name);
    }
    let files = fs::read_dir(FILES).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}

#[test]
fn the_group_of_every_definition_is_ours() {
    for crd in crds() {
        assert_eq!(crd.spec.group, GROUP);
    }
}

#[test]
fn the_documents_name_every_kind() {
    let operating = include_str!("../../../docs/operating.md");
    let (_, uninstall) = operating.split_once("\n## Uninstall\n").unwrap();
    for (page, text) in [
        ("operating.md#uninstall", uninstall),
        ("rights.md", include_str!("../../../docs/rights.md")),
    ] {
        for crd in crds() {
            let kind = crd.spec.names.kind;
            assert!(text.contains(&kind), "{page} does not name {kind}");
        }
    }
}

#[test]
fn the_schemas_have_no_format_that_kubernetes_does_not_know() {
    fn check(schema: &Value) {
        if let (Some(kind), Some(format)) = (schema["type"].as_str(), schema["format"].as_str()) {
            let known = FORMATS.iter().find(|(it, _)| *it == kind);
            let is_known = known.is_some_and(|(_, formats)| formats.contains(&format));
            assert!(is_known, "{kind} has the format {format}");
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(check),
            Value::Array(items) => items.iter().for_each(check),
            _ => {}
        }
    }
    for crd in crds() {
        check(&serde_json::to_value(crd).unwrap());
    }
}
