//! Pod templates, wherever they are in an object.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::annotations::{self, OF_TEMPLATES};
use crate::discovery::PodSpec;
use crate::kind::FieldPath;
use crate::raw::{self, is_null, member, read_as};
use crate::texts::{Builder, Texts};
use crate::workload::TemplateState;

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct PodTemplate {
    pub(super) metadata: Option<TemplateMetadata>,
    pub(super) spec: Option<PodSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct TemplateMetadata {
    pub(super) annotations: Option<Annotations>,
    pub(super) labels: Option<Texts>,
}

/// The annotations of a pod template.
#[derive(Clone, Debug, Default)]
pub(super) struct Annotations {
    all: Texts,
    /// Ours. They are there even if all together are too many: it may be ours that makes them too many.
    ours: Texts,
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = <(Builder, Builder)>::default();
        let (all, ours) = raw::fold_map(deserializer, found, |(all, ours), key, value| {
            all.add(key, value);
            if OF_TEMPLATES.contains(&key) {
                ours.add(key, value);
            }
        })?;
        Ok(Self {
            all: all.build(),
            ours: ours.build(),
        })
    }
}

impl PodTemplate {
    /// Returns an annotation of ours.
    fn own(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.annotations.as_ref()?.ours.get(key)
    }

    /// Gives it these annotations of ours, and no others.
    pub(super) fn give(&mut self, ours: &[(&str, &str)]) {
        let has_none = OF_TEMPLATES.iter().all(|key| self.own(key).is_none());
        if ours.is_empty() && has_none {
            return;
        }
        let metadata = self.metadata.get_or_insert_default();
        let own = metadata.annotations.get_or_insert_default();
        let others = own.all.iter();
        let others = others.filter(|(key, _)| !OF_TEMPLATES.contains(key));
        own.all = others.chain(ours.iter().copied()).collect();
        own.ours = ours.iter().copied().collect();
    }
}

/// Returns the number of fields that exist on a path that starts with `spec`, and the value at its end.
/// `None` if one of them is not an object.
pub(super) fn found<'a>(
    spec: Option<&'a RawValue>,
    path: &[&str],
) -> Option<(usize, Option<&'a RawValue>)> {
    let Some(mut place) = spec.filter(|spec| !is_null(spec)) else {
        return Some((0, None));
    };
    for (depth, field) in path.iter().enumerate().skip(1) {
        match member(place, field).ok()?.filter(|it| !is_null(it)) {
            Some(inner) => place = inner,
            None => return Some((depth, None)),
        }
    }
    Some((path.len(), Some(place)))
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
                Some((key, value))
            };
            let ours: Texts = OF_TEMPLATES.into_iter().filter_map(of).collect();
            Some(Annotations {
                all: ours.clone(),
                ours,
            })
        };
        let template = PodTemplate {
            // If other values are not strings, only ours are of use.
            metadata: Some(TemplateMetadata {
                annotations: annotations.or_else(ours),
                labels: part(&["metadata", "labels"]).and_then(read_as),
            }),
            spec: part(&["spec"]).and_then(read_as),
        };
        Self { depth, template }
    }

    fn own(&self) -> Option<&Annotations> {
        self.template.metadata.as_ref()?.annotations.as_ref()
    }

    /// Returns the annotations, if there are any.
    pub(super) fn annotations(&self) -> Option<&Texts> {
        Some(&self.own()?.all)
    }

    /// Returns the labels, if there are any.
    pub(super) fn labels(&self) -> Option<&Texts> {
        self.template.metadata.as_ref()?.labels.as_ref()
    }

    pub(super) fn state(&self) -> TemplateState {
        let own = |key: &str| {
            let value = self.own().and_then(|it| it.ours.get(key));
            value.map(Into::into)
        };
        TemplateState {
            depth: self.depth.and_then(|depth| u16::try_from(depth).ok()),
            config_hash: own(annotations::CONFIG_HASH),
            pins: own(annotations::PINS),
            annotations_size: self.annotations().map_or(0, Texts::size),
        }
    }
}
