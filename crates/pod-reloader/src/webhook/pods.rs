//! Answers reviews of new pods: they use the copies of ConfigMaps that their annotation names.

use pod_reloader_core::pinned_pod::use_copies;
use pod_reloader_core::review::{self, InvalidReview, Request};

use super::body::Received;
use super::error::Trouble;

/// Answers a review from the review alone, without a read and without the hash keys.
pub(super) async fn answer(review: Received) -> Result<Vec<u8>, Trouble> {
    Ok(review.in_turn(answered).await??)
}

fn answered(body: &[u8]) -> Result<Vec<u8>, InvalidReview> {
    let request = Request::parse(body)?;
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
