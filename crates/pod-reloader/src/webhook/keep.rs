//! Answers reviews of ConfigMaps that somebody deletes and that come back while they are in use: before they go, their
//! content is stored.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Query;
use axum::routing::{MethodRouter, post};
use http::HeaderMap;
use pod_reloader_core::error::chain;
use pod_reloader_core::kept::{Content, Original, stored};
use pod_reloader_core::protect::{Deletion, Protection, comes_back, not_stored};
use pod_reloader_core::review;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::Webhook;
use super::body::{ReviewBody, Timeout, Trouble};
use super::in_use::{LATE, MARGIN, Parsed, parse, unknown};
use crate::config::kept::KeptCalls;
use crate::config::users::Users;
use crate::runtime::error::CallError;

/// The protection of ConfigMaps that come back.
#[derive(Clone)]
pub(crate) struct Keep {
    pub(crate) users: Users,
    pub(crate) calls: KeptCalls,
}

impl Keep {
    /// Answers a review. What is in use and cannot be stored is not deleted.
    async fn answer(
        self,
        webhook: Arc<Webhook>,
        body: Arc<ReviewBody>,
        deadline: Instant,
    ) -> Result<Vec<u8>, Trouble> {
        let parse = |body: &[u8]| parse(body, Protection::Keep);
        let Parsed {
            uid,
            deletion,
            is_dry_run,
        } = webhook.limits.in_turn(&body, deadline, parse).await??;
        // Lists and reads need the memory.
        drop(body);
        let Some(deletion) = deletion else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let object = &deletion.object;
        let deadline = deadline - MARGIN;
        let objects = [object.clone()];
        let naming = self.users.naming(&object.namespace, &objects);
        let users = match timeout_at(deadline, naming).await {
            Ok(Ok(mut users)) => users.remove(object).unwrap_or_default(),
            Ok(Err(error)) => {
                return Ok(review::denial(&uid, &unknown(object, &chain(&error))));
            }
            Err(_) => return Ok(review::denial(&uid, &unknown(object, LATE))),
        };
        if users.is_empty() {
            return Ok(review::response(&uid, &[], &[]));
        }
        let warning = [comes_back(object, &users)];
        if is_dry_run {
            return Ok(review::response(&uid, &[], &warning));
        }
        let refusal = match timeout_at(deadline, self.store(&deletion, &uid)).await {
            Ok(Ok(true)) => return Ok(review::response(&uid, &[], &warning)),
            Ok(Ok(false)) => "it has just changed".to_owned(),
            // It goes with its namespace, or somebody else has deleted it.
            Ok(Err(error)) if error.is_of_a_namespace_that_goes() => {
                return Ok(review::response(&uid, &[], &[]));
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => LATE.to_owned(),
        };
        warn!(%object, cause = refusal, "cannot store a ConfigMap that is deleted in use");
        Ok(review::denial(&uid, &not_stored(object)))
    }

    /// Stores the content of an object. Returns false if it is another one by now.
    async fn store(&self, deletion: &Deletion, review: &str) -> Result<bool, CallError> {
        let object = &deletion.object;
        let place = stored(object, review);
        let original = Original::from(deletion);
        let make = |content: Content| {
            let is_right = content.is_of(&original);
            is_right.then(|| content.to_store(&place.name, &original))
        };
        let is_stored = match self.calls.copy(object, &place, make).await {
            // The apiserver has sent the same review before.
            Err(error) if error.already_exists() => true,
            stored => stored?,
        };
        if is_stored {
            info!(%object, stored = %place.name, "stored a ConfigMap that is deleted in use");
        }
        Ok(is_stored)
    }
}

/// Returns the route of these reviews.
pub(super) fn route(webhook: Arc<Webhook>, keep: Keep) -> MethodRouter<Arc<Webhook>> {
    post(
        move |Query(timeout): Query<Timeout>, headers: HeaderMap, body: Body| async move {
            let answer = |webhook, body, deadline| keep.answer(webhook, body, deadline);
            webhook.receive(&timeout, &headers, body, answer).await
        },
    )
}
