//! The error of a route: the HTTP status of a review that gets no answer.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use pod_reloader_core::review::InvalidReview;

/// The reason why a review gets only an HTTP error. The failurePolicy then decides.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Invalid(String),
    #[error("send application/json")]
    NotJson,
    #[error("the review is larger than {} MiB", .limit >> 20)]
    TooLarge {
        /// The maximum length of a review, in bytes.
        limit: usize,
    },
    #[error("the review did not arrive in time")]
    Slow,
    #[error("too many reviews at once")]
    Overloaded,
    #[error("{0}")]
    NotReady(&'static str),
}

impl From<InvalidReview> for Trouble {
    fn from(error: InvalidReview) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded | Self::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = (status, self.to_string()).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            // The apiserver tries again after 429 and 503, but only if the answer says when.
            let second = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, second);
        }
        response
    }
}
