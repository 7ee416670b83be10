//! Answers reviews of protected ConfigMaps and Secrets that somebody deletes: those that pods use are not deleted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Query;
use axum::routing::{MethodRouter, post};
use futures::future::try_join_all;
use http::HeaderMap;
use kube::core::DynamicResourceScope;
use kube::{Client, Resource};
use pod_reloader_core::error::chain;
use pod_reloader_core::protect::{
    PROTECT, RunningPod, TemplateKind, Templated, denial, in_use_candidate, warning,
};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::review::{self, InvalidReview, Request};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::Webhook;
use super::body::{ReviewBody, Timeout, Trouble};
use crate::runtime::budget::Budget;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// The maximum number of reviews for which namespaces are listed at once.
const AT_ONCE: usize = 4;
/// The time that is left for the answer.
const MARGIN: Duration = Duration::from_millis(200);

/// Finds out who uses an object, by live lists: nothing that is remembered could be too old.
#[derive(Clone)]
pub(crate) struct Users {
    client: Client,
    budget: Budget,
    /// True if pod templates protect, too.
    templates_protect: bool,
    turns: Arc<Semaphore>,
}

/// The users of an object.
struct Found {
    /// Pods that run, and workloads that are to have pods: their controllers may not have created them yet.
    now: Vec<String>,
    /// Pod templates that make pods later.
    later: Vec<String>,
}

impl Users {
    pub(crate) fn new(client: Client, budget: Budget, templates_protect: bool) -> Self {
        Self {
            client,
            budget,
            templates_protect,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Answers a review. What cannot be found out counts as in use.
    async fn answer(self, body: ReviewBody, deadline: Instant) -> Result<Vec<u8>, Trouble> {
        let invalid = |error: InvalidReview| Trouble::Invalid(error.to_string());
        let request = Request::parse(&body.bytes).map_err(invalid)?;
        let deleted = in_use_candidate(&request).map_err(invalid)?;
        let uid = request.uid.into_owned();
        // The lists need the memory.
        drop(body);
        let Some(object) = deleted else {
            return Ok(review::response(&uid, &[], &[]));
        };
        let found = timeout_at(deadline - MARGIN, self.find(&object)).await;
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
            Err(_) => unknown(&object, "no answer of the apiserver in time"),
        };
        info!(%object, reason, "refused to delete a protected object");
        Ok(review::denial(&uid, &reason))
    }

    async fn find(&self, object: &Reference) -> Result<Found, CallError> {
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        let pods = self.list(object, (), |pod: &RunningPod| {
            let user = || (true, format!("Pod {}", pod.name()));
            pod.needs(object).then(user)
        });
        let workloads = TemplateKind::ALL.map(|kind| {
            self.list(object, kind, move |it: &Templated| {
                let user = || {
                    (
                        it.is_to_have_pods(),
                        format!("{} {}", kind.as_str(), it.name()),
                    )
                };
                it.needs(object).then(user)
            })
        });
        // Workloads first: a pod that is not there yet then belongs to one of them.
        let workloads = try_join_all(workloads).await?.concat();
        let users = pods.await?.into_iter().chain(workloads);
        let (now, later): (Vec<_>, Vec<_>) = users.partition(|(is_now, _)| *is_now);
        let names = |users: Vec<(bool, String)>| users.into_iter().map(|(_, name)| name).collect();
        Ok(Found {
            now: names(now),
            later: names(later),
        })
    }

    /// Lists the objects of a kind beside an object, and returns those that use it.
    async fn list<K>(
        &self,
        object: &Reference,
        kind: K::DynamicType,
        user: impl Fn(&K) -> Option<(bool, String)>,
    ) -> Result<Vec<(bool, String)>, CallError>
    where
        K: Resource<Scope = DynamicResourceScope> + DeserializeOwned,
    {
        let beside = api(&self.client, Some(&object.namespace), kind);
        let beside = Resources::<K>::new(beside, "a protected object's user", &self.budget);
        let mut users = Vec::new();
        let mut unreadable = None;
        beside
            .list_all(&mut PAGE.clone(), |item| match item {
                Ok(item) => users.extend(user(&item)),
                Err(error) => unreadable = Some(error),
            })
            .await?;
        unreadable.map_or(Ok(users), Err)
    }
}

fn unknown(object: &Reference, cause: &str) -> String {
    warn!(%object, cause, "cannot tell who uses a protected object");
    format!(
        "pod-reloader cannot tell who uses {object}, so it is not deleted: try again, or remove its label {PROTECT}"
    )
}

/// Returns the route of these reviews.
pub(super) fn route(webhook: Arc<Webhook>, users: Users) -> MethodRouter<Arc<Webhook>> {
    post(
        move |Query(timeout): Query<Timeout>, headers: HeaderMap, body: Body| async move {
            let answer = |_, body, deadline| users.answer(body, deadline);
            webhook.receive(&timeout, &headers, body, answer).await
        },
    )
}
