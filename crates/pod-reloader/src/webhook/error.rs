//! The error of a route: the HTTP status of a review that gets no answer.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use pod_reloader_core::review::InvalidReview;

/// The reason why a review gets only an HTTP error. The failurePolicy then decides.
#[derive(Debug)]
pub(super) enum Trouble {
    Invalid(String),
    NotJson,
    TooLarge {
        /// The maximum length of a review, in bytes.
        limit: usize,
    },
    Slow,
    Overloaded,
    NotReady(&'static str),
}

impl From<InvalidReview> for Trouble {
    fn from(error: InvalidReview) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        // The apiserver tries again after 429 and 503, but only if the answer says when.
        let later = [(header::RETRY_AFTER, "1")];
        match self {
            Self::Invalid(problem) => (StatusCode::BAD_REQUEST, problem).into_response(),
            Self::NotJson => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json").into_response()
            }
            Self::TooLarge { limit } => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the review is larger than {} MiB", limit >> 20),
            )
                .into_response(),
            Self::Slow => (
                StatusCode::REQUEST_TIMEOUT,
                "the review did not arrive in time",
            )
                .into_response(),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                later,
                "too many reviews at once",
            )
                .into_response(),
            Self::NotReady(obstacle) => {
                (StatusCode::SERVICE_UNAVAILABLE, later, obstacle).into_response()
            }
        }
    }
}
