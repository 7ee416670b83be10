//! Pod templates, wherever they are in an object.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::annotations;
use crate::discovery::PodSpec;
use crate::kind::FieldPath;
use crate::review::fields;
use crate::workload::{TemplateState, annotations_size};

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodTemplate {
    pub(super) metadata: Option<TemplateMetadata>,
    pub(super) spec: Option<PodSpec>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TemplateMetadata {
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// Returns the number of fields that exist on a path that starts with `spec`, and the value at its end.
/// `None` if one of them is not an object.
pub(super) fn found<'a>(
    spec: Option<&'a RawValue>,
    path: &[&str],
) -> Option<(usize, Option<&'a RawValue>)> {
    let Some(mut place) = spec.filter(|spec| spec.get() != "null") else {
        return Some((0, None));
    };
    for (depth, field) in path.iter().enumerate().skip(1) {
        match fields(place).ok()?.remove(*field) {
            Some(inner) => place = inner,
            None => return Some((depth, None)),
        }
    }
    Some((path.len(), Some(place)))
}

/// Parses a value. One that cannot be parsed is treated as missing.
pub(super) fn read_as<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// A pod template, and the number of fields that exist on the path to the config hash annotation. `None` if
/// one of them is not an object.
pub(super) struct Found {
    pub(super) depth: Option<usize>,
    pub(super) template: PodTemplate,
}

impl Found {
    /// Finds a template in an object whose schema is unknown.
    pub(super) fn at(spec: Option<&RawValue>, path: FieldPath) -> Self {
        let to_key = [path, &["metadata", "annotations", annotations::CONFIG_HASH]].concat();
        let depth = found(spec, &to_key).map(|(depth, _)| depth.min(to_key.len() - 1));
        let part = |below: &[&str]| found(spec, &[path, below].concat())?.1;
        let annotations = part(&["metadata", "annotations"]).and_then(read_as);
        let ours = || {
            let of = |key: &'static str| {
                let value: String = part(&["metadata", "annotations", key]).and_then(read_as)?;
                Some((key.to_owned(), value))
            };
            let ours = [annotations::CONFIG_HASH, annotations::PINS];
            Some(ours.into_iter().filter_map(of).collect::<BTreeMap<_, _>>())
        };
        let template = PodTemplate {
            // If other values are not strings, only ours are of use.
            metadata: Some(TemplateMetadata {
                annotations: annotations.or_else(ours),
            }),
            spec: part(&["spec"]).and_then(read_as),
        };
        Self { depth, template }
    }

    pub(super) fn annotations(&self) -> Option<&BTreeMap<String, String>> {
        self.template.metadata.as_ref()?.annotations.as_ref()
    }

    pub(super) fn state(&self) -> TemplateState {
        let own = |key: &str| {
            let value = self.annotations().and_then(|it| it.get(key));
            value.map(|value| value.as_str().into())
        };
        TemplateState {
            depth: self.depth,
            config_hash: own(annotations::CONFIG_HASH),
            pins: own(annotations::PINS),
            annotations_size: self.annotations().map_or(0, annotations_size),
        }
    }
}
