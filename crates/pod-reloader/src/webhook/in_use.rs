//! Answers reviews of protected ConfigMaps and Secrets that somebody deletes: those that pods use are not deleted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Query;
use axum::routing::{MethodRouter, post};
use http::HeaderMap;
use pod_reloader_core::error::chain;
use pod_reloader_core::protect::{Deletion, PROTECT, Protection, denial, warning};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::review::{self, InvalidReview, Request};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::Webhook;
use super::body::{ReviewBody, Timeout, Trouble};
use crate::config::users::Users;

/// The time that is left for the answer.
pub(super) const MARGIN: Duration = Duration::from_millis(200);

/// The cause if the time was over before.
pub(super) const LATE: &str = "no answer of the apiserver in time";

/// The protection of what is in use.
#[derive(Clone)]
pub(crate) struct InUse {
    pub(crate) users: Users,
    /// True if pod templates protect, too.
    pub(crate) templates_protect: bool,
}

impl InUse {
    /// Answers a review. What cannot be found out counts as in use.
    async fn answer(
        self,
        webhook: Arc<Webhook>,
        body: Arc<ReviewBody>,
        deadline: Instant,
    ) -> Result<Vec<u8>, Trouble> {
        let parse = |body: &[u8]| parse(body, Protection::InUse);
        let Parsed { uid, deletion, .. } = webhook.limits.in_turn(&body, deadline, parse).await??;
        // The lists need the memory.
        drop(body);
        let Some(Deletion { object, .. }) = deletion else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let found = timeout_at(deadline - MARGIN, self.users.needing(&object)).await;
        let reason = match found {
            Ok(Ok(found)) if !found.now.is_empty() => denial(&object, &found.now),
            Ok(Ok(found)) if found.later.is_empty() => {
                return Ok(review::response(&uid, &[], &[]));
            }
            Ok(Ok(found)) if self.templates_protect => denial(&object, &found.later),
            Ok(Ok(found)) => {
                let warning = warning(&object, &found.later);
                return Ok(review::response(&uid, &[], &[warning]));
            }
            Ok(Err(error)) => unknown(&object, &chain(&error)),
            Err(_) => unknown(&object, LATE),
        };
        info!(%object, reason, "refused to delete a protected object");
        Ok(review::denial(&uid, &reason))
    }
}

/// The review of a deletion.
pub(super) struct Parsed {
    pub(super) uid: String,
    /// The deletion, if the object has the protection that is asked about.
    pub(super) deletion: Option<Deletion>,
    pub(super) is_dry_run: bool,
}

pub(super) fn parse(body: &[u8], how: Protection) -> Result<Parsed, Trouble> {
    let invalid = |error: InvalidReview| Trouble::Invalid(error.to_string());
    let request = Request::parse(body).map_err(invalid)?;
    Ok(Parsed {
        deletion: Deletion::of(&request, how).map_err(invalid)?,
        is_dry_run: request.dry_run == Some(true),
        uid: request.uid.into_owned(),
    })
}

pub(super) fn unknown(object: &Reference, cause: &str) -> String {
    warn!(%object, cause, "cannot tell who uses a protected object");
    format!(
        "pod-reloader cannot tell who uses {object}, so it is not deleted: try again, or remove its label {PROTECT}"
    )
}

/// Returns the route of these reviews.
pub(super) fn route(webhook: Arc<Webhook>, in_use: InUse) -> MethodRouter<Arc<Webhook>> {
    post(
        move |Query(timeout): Query<Timeout>, headers: HeaderMap, body: Body| async move {
            let answer = |webhook, body, deadline| in_use.answer(webhook, body, deadline);
            webhook.receive(&timeout, &headers, body, answer).await
        },
    )
}
