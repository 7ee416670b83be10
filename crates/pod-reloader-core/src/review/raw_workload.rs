//! Workloads in a review, taken apart as far as the answer needs.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::template::{is_empty, same_template_but_for_ours};
use crate::annotations::{self, Place};
use crate::kind::WorkloadKind;
use crate::managers::{self, Entry};
use crate::raw::{self, Text, at, read_as};
use crate::texts::Texts;

/// A workload in a review, taken apart as far as the answer needs.
pub(crate) struct RawWorkload<'a> {
    /// The pod templates, in the order that the kind lists them, as far as they exist.
    templates: Vec<Option<&'a RawValue>>,
    /// True if it has a UID. Whoever updates an object without one has not read it: the apiserver gives it its UID later.
    pub(crate) has_uid: bool,
    annotations: Option<&'a RawValue>,
    labels: Option<&'a RawValue>,
    managed_fields: Option<&'a RawValue>,
    /// The baseline in the metadata.
    pub(crate) baseline: Option<String>,
    /// The pins of what was undone, in the metadata.
    pub(crate) undone: Option<String>,
    /// The manifest that was applied last, if somebody applies it on the client's side.
    last_applied: Option<String>,
}

impl<'a> RawWorkload<'a> {
    /// Takes apart a serialised workload of this kind.
    pub(crate) fn of(object: &'a RawValue, kind: WorkloadKind) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Object<'a, Spec> {
            #[serde(borrow, default)]
            metadata: Metadata<'a>,
            spec: Option<Spec>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            #[serde(borrow)]
            uid: Option<Text<'a>>,
            #[serde(borrow)]
            annotations: Option<&'a RawValue>,
            #[serde(borrow)]
            labels: Option<&'a RawValue>,
            #[serde(borrow)]
            managed_fields: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct WithTemplate<'a> {
            #[serde(borrow)]
            template: &'a RawValue,
        }
        let (metadata, templates) = if kind.is_built_in() {
            let object: Object<'_, WithTemplate<'_>> = serde_json::from_str(object.get())?;
            let template = object.spec.map(|spec| spec.template);
            (object.metadata, vec![template])
        } else {
            let object: Object<'_, &RawValue> = serde_json::from_str(object.get())?;
            let templates = kind.shape().templates.iter();
            let templates = templates.map(|template| at(object.spec?, &template.path[1..]));
            (object.metadata, templates.collect())
        };
        let keys = [annotations::BASELINE, annotations::UNDONE, LAST_APPLIED];
        let of_use = |it: &'a RawValue| Texts::among(&keys, it);
        let own = metadata.annotations.map(of_use).transpose()?;
        let own = own.unwrap_or_default();
        let annotation = |key: &str| own.get(key).map(Into::into);
        Ok(Self {
            templates,
            has_uid: metadata.uid.is_some_and(|uid| !uid.is_empty()),
            annotations: metadata.annotations,
            labels: metadata.labels,
            managed_fields: metadata.managed_fields,
            baseline: annotation(annotations::BASELINE),
            undone: annotation(annotations::UNDONE),
            last_applied: annotation(LAST_APPLIED),
        })
    }

    /// Returns the annotations or the labels that are wanted, of both, if they are not the same.
    pub(crate) fn texts_unlike(
        &self,
        other: &Self,
        place: Place,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<[Texts; 2]> {
        let of = |workload: &Self| match place {
            Place::Label => workload.labels.map(RawValue::get),
            _ => workload.annotations.map(RawValue::get),
        };
        let read = |text: Option<&str>| {
            let mut text = serde_json::Deserializer::from_str(text?);
            Texts::those(&is_wanted, &mut text).ok()
        };
        let (own, other) = (of(self), of(other));
        (own != other).then(|| [own, other].map(|text| read(text).unwrap_or_default()))
    }

    /// Returns true if `is_one` holds for everybody who has set this annotation or label of the metadata: see
    /// [`managers::are_all`].
    pub(crate) fn is_set_only_by(
        &self,
        place: Place,
        key: &str,
        is_one: impl Fn(&str) -> bool,
    ) -> bool {
        let entries = self.managed_fields;
        entries.is_some_and(|entries| managers::are_all(entries, place, key, is_one))
    }

    /// Returns config hash and pins of each template.
    pub(crate) fn stamps(&self) -> Vec<[Option<Box<str>>; 2]> {
        let of = |template: &RawValue| {
            let annotations = at(template, &["metadata", "annotations"]);
            annotations::OF_TEMPLATES.map(|key| read_as(at(annotations?, &[key])?))
        };
        let templates = self.templates.iter();
        templates
            .map(|template| template.map(of).unwrap_or_default())
            .collect()
    }

    /// Returns true if both have the same pod templates apart from our annotations. An absent map equals an
    /// empty one.
    ///
    /// The apiserver serialises both objects of a review in the same order, so their texts are compared.
    /// Only if those differ are they parsed, in case another webhook reordered them.
    pub(crate) fn same_templates_but_for_ours(&self, other: &Self) -> bool {
        let mut pairs = self.templates.iter().zip(&other.templates);
        pairs.all(|pair| match pair {
            (None, None) => true,
            (Some(one), Some(other)) => same_template_but_for_ours(one, other),
            // A template that holds nothing but our annotations was created for them.
            (Some(one), None) | (None, Some(one)) => is_empty(one),
        })
    }

    /// Returns true if the write of `manager` set the config hash annotation itself, according to the
    /// managed fields. These are settled before any admission, so they show it even if a policy has already
    /// put the old value back. Managed fields that cannot be parsed claim nothing.
    pub(crate) fn claims_config_hash(&self, kind: WorkloadKind, manager: &str) -> bool {
        self.is_owned(kind, annotations::CONFIG_HASH_FIELD, |entry| {
            entry.manager.as_deref() == Some(manager)
        })
    }

    /// Returns true if pins stand in a manifest that somebody applies, on the client's side or on the server's.
    pub(crate) fn applies_pins(&self, kind: WorkloadKind) -> bool {
        let by_server = |entry: &Entry<'_>| entry.operation.as_deref() == Some("Apply");
        let is_last_applied = |manifest: &str| {
            let manifest = serde_json::from_str::<&RawValue>(manifest).ok();
            kind.shape().templates.iter().any(|template| {
                let path = [
                    template.path,
                    &["metadata", "annotations", annotations::PINS],
                ]
                .concat();
                manifest.is_some_and(|it| at(it, &path).is_some())
            })
        };
        let last_applied = self.last_applied.as_deref();
        last_applied.is_some_and(|it| it.contains(annotations::PINS) && is_last_applied(it))
            || self.is_owned(kind, annotations::PINS_FIELD, by_server)
    }

    /// Returns true if the managed fields have an entry for which `is_meant` holds with this annotation of a pod
    /// template.
    fn is_owned(
        &self,
        kind: WorkloadKind,
        field: &str,
        is_meant: impl Fn(&Entry<'_>) -> bool,
    ) -> bool {
        let templates = kind.shape().templates.iter();
        let paths: Vec<Vec<_>> = templates
            .map(|template| {
                let path = template.path.iter().chain(&["metadata", "annotations"]);
                path.map(|name| format!("f:{name}")).collect()
            })
            .collect();
        let names_key = |text: &&RawValue| text.get().contains(field);
        let has_field = |fields: &RawValue| {
            names_key(&fields)
                && paths.iter().any(|path| {
                    let path = path.iter().map(String::as_str).chain([field]);
                    at(fields, &path.collect::<Vec<_>>()).is_some()
                })
        };
        let add = |is_owned: &mut bool, entry: Entry<'_>| {
            *is_owned = *is_owned || (is_meant(&entry) && entry.fields_v1.is_some_and(has_field));
        };
        let entries = self.managed_fields.filter(names_key);
        entries.is_some_and(|entries| {
            let mut entries = serde_json::Deserializer::from_str(entries.get());
            raw::fold(&mut entries, false, add).unwrap_or_default()
        })
    }
}

/// The annotation in which `kubectl apply` stores the manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
        let [one, other] = [one, other].map(|template| {
            serde_json::value::to_raw_value(&json!({"spec": {"template": template}})).unwrap()
        });
        let [one, other] =
            [&one, &other].map(|raw| RawWorkload::of(raw, WorkloadKind::DEPLOYMENT).unwrap());
        one.same_templates_but_for_ours(&other)
    }

    #[test]
    fn templates_that_differ_only_in_the_config_hash_are_the_same() {
        let stamped = |annotations| json!({"metadata": {"annotations": annotations, "labels": {"a": "b"}}, "spec": {}});
        let bare = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
        assert!(same(
            &bare,
            &stamped(json!({annotations::CONFIG_HASH: "x"}))
        ));
        assert!(same(&bare, &stamped(json!({}))));
        assert!(same(&bare, &stamped(json!(null))));
        assert!(!same(&bare, &stamped(json!({"other": "x"}))));
    }

    #[test]
    fn any_other_difference_makes_templates_differ() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"image": "1"}]}});
        for (pointer, value) in [
            ("/spec/containers/0/image", json!("2")),
            ("/metadata/labels/a", json!("c")),
            ("/metadata/labels", json!({})),
            ("/spec/fieldOfTheFuture", json!(1)),
            ("/fieldOfTheFuture", json!(1)),
            ("/metadata/fieldOfTheFuture", json!(1)),
        ] {
            let mut other = template.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let parent = other.pointer_mut(parent).unwrap();
            match field.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[field] = value,
            }
            assert!(!same(&template, &other), "{pointer}");
        }
    }

    #[test]
    fn another_order_of_members_is_no_difference() {
        let read = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
        let one = read(r#"{"spec":{"template":{"spec":{"a":{"x":1,"y":2}},"metadata":{}}}}"#);
        let other = read(r#"{"spec":{"template":{"spec":{"a":{"y":2,"x":1}}}}}"#);
        let [one, other] =
            [&one, &other].map(|raw| RawWorkload::of(raw, WorkloadKind::DEPLOYMENT).unwrap());
        assert!(one.same_templates_but_for_ours(&other));
    }
}
