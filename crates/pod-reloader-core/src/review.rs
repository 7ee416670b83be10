//! Admission reviews: requests from the apiserver, read without copying, and responses to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use json_patch::PatchOperation;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::annotations;
use crate::kind::WorkloadKind;

/// The request of an `admission.k8s.io/v1` AdmissionReview. Fields that are not needed are skipped, and the
/// two objects are left unparsed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// The id to echo in the response.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// The kind of the objects.
    #[serde(borrow)]
    pub kind: GroupKind<'a>,
    /// The subresource: `scale`, `status` and the like.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// The namespace of the request.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    /// The user who makes the request.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it would be stored.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it is stored.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// The options of the request.
    #[serde(default)]
    pub options: Option<Options>,
    /// True if nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

/// An API group and kind.
#[derive(Debug, Deserialize)]
pub struct GroupKind<'a> {
    /// The API group, empty for core.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// The kind.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
}

/// The user who makes a request.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo {
    /// The user name: `system:serviceaccount:NAMESPACE:NAME` and the like.
    #[serde(default)]
    pub username: Option<String>,
}

/// CreateOptions, UpdateOptions or PatchOptions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// The field manager of the write.
    #[serde(default)]
    pub field_manager: Option<String>,
}

impl<'a> Request<'a> {
    /// Parses the body of a call.
    ///
    /// # Errors
    ///
    /// Says why the body is not a review of version v1 with a request and a UID.
    pub fn parse(body: &'a [u8]) -> Result<Self, InvalidReview> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Review<'a> {
            #[serde(borrow, default)]
            api_version: Cow<'a, str>,
            #[serde(borrow, default)]
            kind: Cow<'a, str>,
            #[serde(borrow, default)]
            request: Option<Request<'a>>,
        }
        let review: Review<'_> = serde_json::from_slice(body).map_err(InvalidReview::at)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(InvalidReview::Version);
        }
        let request = review.request.ok_or(InvalidReview::NoRequest)?;
        if request.uid.is_empty() {
            return Err(InvalidReview::NoUid);
        }
        Ok(request)
    }
}

/// The reason why a call cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum InvalidReview {
    /// A body that is not JSON, or not shaped like a review. The parser's text is dropped: it quotes the
    /// body.
    #[error("the body is no AdmissionReview (line {line}, column {column})")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// A body of another kind or version.
    #[error("the body is no AdmissionReview of {API_VERSION}")]
    Version,
    /// A review without a request.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// A request without a UID.
    #[error("the AdmissionReview has no request.uid")]
    NoUid,
    /// A create without the object, or an update without the old one.
    #[error("the AdmissionReview has no request.{0}")]
    NoObject(&'static str),
}

impl InvalidReview {
    pub(crate) fn at(error: serde_json::Error) -> Self {
        Self::Json {
            line: error.line(),
            column: error.column(),
        }
    }
}

/// Returns the body of the response to a review: the write is allowed, with `patch` and `warnings`.
pub fn response(uid: &str, patch: &[PatchOperation], warnings: &[String]) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Review<'a> {
        api_version: &'static str,
        kind: &'static str,
        response: Response<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Response<'a> {
        uid: &'a str,
        allowed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch_type: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        patch: Option<ByteString>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        warnings: &'a [String],
    }
    let json = "maps with text keys can be JSON";
    let patch = (!patch.is_empty()).then(|| ByteString(serde_json::to_vec(patch).expect(json)));
    let patch_type = patch.is_some().then_some("JSONPatch");
    let response = Response {
        uid,
        allowed: true,
        patch_type,
        patch,
        warnings,
    };
    serde_json::to_vec(&Review {
        api_version: API_VERSION,
        kind: KIND,
        response,
    })
    .expect(json)
}

/// A workload in a review, taken apart as far as the answer needs.
pub(crate) struct RawWorkload<'a> {
    /// The pod templates, in the order that the kind lists them, as far as they exist.
    templates: Vec<Option<&'a RawValue>>,
    managed_fields: Option<&'a RawValue>,
    /// The baseline in the metadata.
    pub(crate) baseline: Option<String>,
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
            annotations: Option<BTreeMap<String, String>>,
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
            let templates = templates.map(|template| inner(object.spec?, &template.path[1..]));
            (object.metadata, templates.collect())
        };
        let mut annotations = metadata.annotations.unwrap_or_default();
        Ok(Self {
            templates,
            managed_fields: metadata.managed_fields,
            baseline: annotations.remove(annotations::BASELINE),
        })
    }

    /// Returns the config hash of each template.
    pub(crate) fn config_hashes(&self) -> Vec<Option<Box<str>>> {
        #[derive(Deserialize)]
        struct PodTemplate {
            metadata: Option<Metadata>,
        }
        #[derive(Deserialize)]
        struct Metadata {
            annotations: Option<BTreeMap<String, String>>,
        }
        let of = |template: &RawValue| match serde_json::from_str(template.get()) {
            Ok(PodTemplate { metadata }) => metadata?.annotations?.remove(annotations::CONFIG_HASH),
            // In a custom resource, other annotations may not be strings.
            Err(_) => {
                let path = ["metadata", "annotations", annotations::CONFIG_HASH];
                serde_json::from_str(inner(template, &path)?.get()).ok()
            }
        };
        let templates = self.templates.iter();
        templates
            .map(|template| of((*template)?).map(Into::into))
            .collect()
    }

    /// Returns true if both have the same pod templates apart from the config hash annotation. An absent
    /// map equals an empty one.
    ///
    /// The apiserver serialises both objects of a review in the same order, so their texts are compared.
    /// Only if those differ are they parsed, in case another webhook reordered them.
    pub(crate) fn same_templates_but_for_key(
        &self,
        other: &Self,
    ) -> Result<bool, serde_json::Error> {
        for pair in self.templates.iter().zip(&other.templates) {
            let is_same = match pair {
                (None, None) => true,
                (Some(one), Some(other)) => same_template_but_for_key(one, other)?,
                // A template that holds nothing but the config hash annotation was created for it.
                (Some(one), None) | (None, Some(one)) => Template::of(one)?.is_empty(),
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if the write of `manager` set the config hash annotation itself, according to the
    /// managed fields. These are settled before any admission, so they show it even if a policy has already
    /// put the old value back. Managed fields that cannot be parsed claim nothing.
    pub(crate) fn claims_config_hash(&self, kind: WorkloadKind, manager: &str) -> bool {
        let paths = kind.shape().templates;
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Entry<'a> {
            manager: Option<Cow<'a, str>>,
            #[serde(borrow)]
            fields_v1: Option<&'a RawValue>,
        }
        let names_key = |text: &&RawValue| text.get().contains(annotations::CONFIG_HASH_FIELD);
        let entries = self.managed_fields.filter(names_key);
        entries
            .and_then(|entries| serde_json::from_str::<Vec<Entry<'_>>>(entries.get()).ok())
            .unwrap_or_default()
            .into_iter()
            .filter(|entry| entry.manager.as_deref() == Some(manager))
            .filter_map(|entry| entry.fields_v1.filter(names_key))
            .filter_map(|fields| serde_json::from_str(fields.get()).ok())
            .any(|fields: serde_json::Value| {
                paths.iter().any(|template| {
                    let path = template.path.iter().chain(&["metadata", "annotations"]);
                    let place = path.fold(&fields, |place, field| &place[format!("f:{field}")]);
                    place.get(annotations::CONFIG_HASH_FIELD).is_some()
                })
            })
    }
}

/// Returns the value at the end of a path, if there is one.
fn inner<'a>(object: &'a RawValue, path: &[&str]) -> Option<&'a RawValue> {
    let below = |place: &'a RawValue, field: &&str| fields(place).ok()?.remove(*field);
    path.iter().try_fold(object, below)
}

fn same_template_but_for_key(one: &RawValue, other: &RawValue) -> Result<bool, serde_json::Error> {
    if one.get() == other.get() {
        return Ok(true);
    }
    let (Ok(one), Ok(other)) = (Template::of(one), Template::of(other)) else {
        return Ok(false);
    };
    Ok(one.annotations == other.annotations
        && same_fields(&one.metadata, &other.metadata, MAX_DEPTH)
        && same_fields(&one.rest, &other.rest, MAX_DEPTH))
}

/// A pod template, taken apart as far as a comparison needs.
struct Template<'a> {
    /// Everything except the metadata.
    rest: Fields<'a>,
    /// The metadata except the annotations.
    metadata: Fields<'a>,
    /// The annotations except the config hash.
    annotations: BTreeMap<String, String>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl<'a> Template<'a> {
    fn of(template: &'a RawValue) -> Result<Self, serde_json::Error> {
        let mut rest = fields(template)?;
        let mut metadata = rest
            .remove("metadata")
            .map(fields)
            .transpose()?
            .unwrap_or_default();
        let mut annotations: BTreeMap<String, String> = match metadata.remove("annotations") {
            Some(annotations) => serde_json::from_str(annotations.get())?,
            None => BTreeMap::new(),
        };
        annotations.remove(annotations::CONFIG_HASH);
        Ok(Self {
            rest,
            metadata,
            annotations,
        })
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.metadata.is_empty() && self.annotations.is_empty()
    }
}

/// Returns the members of an object, except those that are `null`.
pub(crate) fn fields(object: &RawValue) -> Result<Fields<'_>, serde_json::Error> {
    let mut fields: Fields<'_> = serde_json::from_str(object.get())?;
    fields.retain(|_, value| value.get() != "null");
    Ok(fields)
}

fn same_fields(one: &Fields<'_>, other: &Fields<'_>, depth: usize) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|((name, one), (other_name, other))| {
                name == other_name && same_value(one, other, depth)
            })
}

/// Returns true if both are the same apart from the order of members. Only values whose texts differ are
/// parsed, one level at a time: parsing all of a large template at once would take many times its size.
fn same_value(one: &RawValue, other: &RawValue, depth: usize) -> bool {
    let (one, other) = (one.get(), other.get());
    if one == other {
        return true;
    }
    let Some(depth) = depth.checked_sub(1) else {
        return false;
    };
    match (one.as_bytes().first(), other.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => both::<Fields<'_>>(one, other)
            .is_some_and(|(one, other)| same_fields(&one, &other, depth)),
        (Some(b'['), Some(b'[')) => {
            both::<Vec<&RawValue>>(one, other).is_some_and(|(one, other)| {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(&other)
                        .all(|(one, other)| same_value(one, other, depth))
            })
        }
        _ => both::<serde_json::Value>(one, other).is_some_and(|(one, other)| one == other),
    }
}

fn both<'a, T: Deserialize<'a>>(one: &'a str, other: &'a str) -> Option<(T, T)> {
    let parsed = |text| serde_json::from_str(text).ok();
    Some((parsed(one)?, parsed(other)?))
}

/// The maximum depth to which a pod template is compared, if its text differs from the old one's.
const MAX_DEPTH: usize = 128;
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(body: &serde_json::Value) -> String {
        Request::parse(body.to_string().as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn what_is_no_review_is_refused_by_name() {
        let kind = json!({"group": "apps", "kind": "Deployment"});
        assert_eq!(
            error(&json!(1)),
            "the body is no AdmissionReview (line 1, column 1)"
        );
        assert_eq!(
            error(&json!({})),
            "the body is no AdmissionReview of admission.k8s.io/v1"
        );
        let old = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"});
        assert_eq!(
            error(&old),
            "the body is no AdmissionReview of admission.k8s.io/v1"
        );
        let review = |request| json!({"apiVersion": API_VERSION, "kind": KIND, "request": request});
        assert_eq!(
            error(&review(json!(null))),
            "the AdmissionReview has no request"
        );
        let request = json!({"uid": "", "kind": kind, "operation": "CREATE"});
        assert_eq!(
            error(&review(request)),
            "the AdmissionReview has no request.uid"
        );
        assert!(Request::parse(b"").is_err() && Request::parse(b"{\"a\":").is_err());
    }

    #[test]
    fn an_error_quotes_nothing_of_the_body() {
        let body = json!({"apiVersion": API_VERSION, "kind": KIND, "request": "hunter2"});
        assert!(
            !format!("{} {:?}", error(&body), Request::parse(b"\"hunter2\"")).contains("hunter2")
        );
    }

    fn same(one: &serde_json::Value, other: &serde_json::Value) -> bool {
        let [one, other] = [one, other].map(|template| {
            serde_json::value::to_raw_value(&json!({"spec": {"template": template}})).unwrap()
        });
        let [one, other] =
            [&one, &other].map(|raw| RawWorkload::of(raw, WorkloadKind::DEPLOYMENT).unwrap());
        one.same_templates_but_for_key(&other).unwrap()
    }

    #[test]
    fn templates_that_differ_in_key_alone_are_the_same() {
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
    fn any_other_difference_counts() {
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
    fn what_differs_far_down_is_a_difference_and_its_order_is_none() {
        let template = |text: &str| {
            let depth = 50;
            let text = format!("{}{text}{}", "{\"a\":[1,".repeat(depth), "]}".repeat(depth));
            serde_json::value::RawValue::from_string(text).unwrap()
        };
        let same = |one: &str, other: &str| same_value(&template(one), &template(other), MAX_DEPTH);
        assert!(same(r#"{"x":1,"y":"\u0061"}"#, r#"{"y":"a", "x":1}"#));
        assert!(!same(r#"{"x":1,"y":2}"#, r#"{"x":2,"y":1}"#));
        assert!(!same("[1,2]", "[2,1]") && !same("[1]", "[1,1]") && !same("[]", "{}"));
        assert!(!same("null", r#"{"x":null}"#));
    }

    #[test]
    fn what_is_too_deep_counts_as_a_difference() {
        let nested = |text: &str| {
            let text = format!("{}{text}{}", "[".repeat(100_000), "]".repeat(100_000));
            serde_json::value::RawValue::from_string(text)
        };
        if let (Ok(one), Ok(other)) = (nested("1"), nested(" 1")) {
            assert!(!same_value(&one, &other, MAX_DEPTH));
        }
    }

    #[test]
    fn another_order_of_members_is_no_difference() {
        let read = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
        let one = read(r#"{"spec":{"template":{"spec":{"a":{"x":1,"y":2}},"metadata":{}}}}"#);
        let other = read(r#"{"spec":{"template":{"spec":{"a":{"y":2,"x":1}}}}}"#);
        let [one, other] =
            [&one, &other].map(|raw| RawWorkload::of(raw, WorkloadKind::DEPLOYMENT).unwrap());
        assert!(one.same_templates_but_for_key(&other).unwrap());
    }
}
