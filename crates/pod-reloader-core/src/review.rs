//! Admission reviews: requests from the apiserver, read without copying, and responses to them.

mod raw_workload;
mod template;

use std::borrow::Cow;

use json_patch::PatchOperation;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub(crate) use self::raw_workload::RawWorkload;
pub(crate) use self::template::same_template_but_for_ours;

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
    pub sub_resource: Option<String>,
    /// The namespace of the request.
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
    pub options: Option<Options>,
    /// True if nothing will be stored.
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
    pub username: Option<String>,
}

/// CreateOptions, UpdateOptions or PatchOptions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// The field manager of the write.
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
    let patch = (!patch.is_empty()).then(|| ByteString(serde_json::to_vec(patch).expect(JSON)));
    Response {
        uid,
        allowed: true,
        patch_type: patch.is_some().then_some("JSONPatch"),
        patch,
        warnings,
        status: None,
    }
    .body()
}

/// Returns the body of the response to a review: the write is denied, for this reason.
pub fn denial(uid: &str, message: &str) -> Vec<u8> {
    Response {
        uid,
        allowed: false,
        patch_type: None,
        patch: None,
        warnings: &[],
        status: Some(Denial { code: 403, message }),
    }
    .body()
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
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Denial<'a>>,
}

#[derive(Serialize)]
struct Denial<'a> {
    code: u16,
    message: &'a str,
}

impl Response<'_> {
    /// Returns the review with this response.
    fn body(self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Review<'a> {
            api_version: &'static str,
            kind: &'static str,
            response: Response<'a>,
        }
        let review = Review {
            api_version: API_VERSION,
            kind: KIND,
            response: self,
        };
        serde_json::to_vec(&review).expect(JSON)
    }
}

const JSON: &str = "maps with text keys can be JSON";
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
    fn a_body_that_is_not_a_review_is_refused_with_a_reason() {
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
}
