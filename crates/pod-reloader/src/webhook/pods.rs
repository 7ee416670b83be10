//! Answers reviews of new pods: they use the copies of ConfigMaps that their annotation names.

use std::sync::Arc;

use pod_reloader_core::pinned_pod::use_copies;
use pod_reloader_core::review::{self, InvalidReview, Request};
use tokio::time::Instant;

use super::Webhook;
use super::body::{LARGE_REVIEW, ReviewBody, Trouble, beside};

/// Answers a review from the review alone, without a read and without the hash keys.
pub(super) async fn answer(
    webhook: Arc<Webhook>,
    body: ReviewBody,
    deadline: Instant,
) -> Result<Vec<u8>, Trouble> {
    let answer = if body.bytes.len() <= LARGE_REVIEW {
        answered(&body)
    } else {
        let answer = move || answered(&body);
        let answer = beside(&webhook.limits.large_reviews, deadline, answer).await;
        answer.ok_or(Trouble::Overloaded)?
    };
    answer.map_err(|error| Trouble::Invalid(error.to_string()))
}

fn answered(body: &ReviewBody) -> Result<Vec<u8>, InvalidReview> {
    let request = Request::parse(&body.bytes)?;
    let is_new_pod = request.operation == "CREATE"
        && request.kind.group.is_empty()
        && request.kind.kind == "Pod"
        && request.sub_resource.as_deref().is_none_or(str::is_empty);
    let patch = match is_new_pod {
        true => use_copies(request.object.ok_or(InvalidReview::NoObject("object"))?),
        false => Vec::new(),
    };
    Ok(review::response(&request.uid, &patch, &[]))
}
