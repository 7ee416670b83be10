//! The webhook: answers admission reviews of workloads at `/mutate`, from the review and from live reads alone,
//! those of pods at `/pods`, those of protected objects at `/in-use` and `/keep`, and those of new objects with bound
//! fields at `/fields`.

pub(crate) mod body;
pub(crate) mod certificate;
mod error;
pub(crate) mod fields;
pub(crate) mod in_use;
pub(crate) mod keep;
pub(crate) mod own_ca;
mod pods;
pub(crate) mod readiness;
mod status;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use http::{HeaderMap, header};
use pod_reloader_core::admission::{Answer, Facts, Pending, Revisions, Step, Unsettled, begin};
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::digest::Objects;
use pod_reloader_core::error::chain;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::review::{self, Request};
use pod_reloader_core::scope::Scope;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info, warn};
use webhook_certs::CurrentCertificate;

use self::body::{Limits, Received, Timeout};
use self::error::Trouble;
use self::fields::Fields;
use self::in_use::InUse;
use self::keep::Keep;
use crate::live::error::ReadError;
use crate::live::keys::Keys;
use crate::live::source::Source;
use crate::metrics::Metrics;
use crate::restart::loop_status::LoopStatus;

#[cfg(test)]
mod tests;

/// The parts from which reviews are answered.
pub(crate) struct Webhook {
    pub(crate) scope: Scope,
    pub(crate) keys: Arc<Keys>,
    pub(crate) source: Source,
    pub(crate) metrics: Metrics,
    /// The user name of the loop, once the apiserver has reported it.
    pub(crate) ourselves: Arc<OnceLock<String>>,
    /// The certificate that the webhook is served with.
    pub(crate) certificate: CurrentCertificate,
    /// The loop's treatment of a workload that has just opted in.
    pub(crate) first_stamp: FirstStamp,
    /// What restarts wait for.
    pub(crate) loop_status: LoopStatus,
    pub(crate) limits: Limits,
}

/// What is answered only if it is switched on.
#[derive(Default)]
pub(crate) struct SwitchedOn {
    pub(crate) in_use: Option<InUse>,
    pub(crate) keep: Option<Keep>,
    pub(crate) fields: Option<Fields>,
}

impl Webhook {
    /// Returns the routes of the webhook, with those that are switched on.
    pub(crate) fn router(
        self,
        SwitchedOn {
            in_use,
            keep,
            fields,
        }: SwitchedOn,
    ) -> Router {
        let mut router = Router::new()
            .route("/mutate", reviews(Self::answer))
            .route("/pods", reviews(pods::answer));
        if let Some(in_use) = in_use {
            router = router.route("/in-use", reviews(|review| in_use.answer(review)));
        }
        if let Some(keep) = keep {
            router = router.route("/keep", reviews(|review| keep.answer(review)));
        }
        if let Some(fields) = fields {
            router = router.route("/fields", reviews(|review| fields.answer(review)));
        }
        router.with_state(Arc::new(self))
    }

    /// Receives a review, and answers it with what `answer` makes of it by the deadline.
    async fn receive<A>(
        self: Arc<Self>,
        timeout: &Timeout,
        headers: &HeaderMap,
        body: Body,
        answer: impl FnOnce(Received) -> A,
    ) -> Response
    where
        A: Future<Output = Result<Vec<u8>, Trouble>>,
    {
        let began = Instant::now();
        let deadline = timeout.deadline(began);
        let answer = async {
            let (body, _turn) = self.limits.receive(headers, body, deadline).await?;
            let review = Received {
                webhook: self.clone(),
                body: Arc::new(body),
                deadline,
            };
            answer(review).await
        };
        let response = match answer.await {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(trouble) => {
                self.metrics.admission(None);
                info!(?trouble, "a review got no answer");
                trouble.into_response()
            }
        };
        let took = began.elapsed().as_secs_f64();
        self.metrics.admission_duration.observe(took);
        response
    }

    /// Answers a review of a workload whose body has arrived.
    async fn answer(review: Received) -> Result<Vec<u8>, Trouble> {
        let webhook = review.webhook.clone();
        let deadline = review.deadline;
        // A Service can send us reviews before we are ready.
        let keys = timeout_at(deadline, webhook.keys.first_read()).await;
        let keys = keys.map_err(|_| Trouble::NotReady("the hash keys have not been read"))?;
        let Begun {
            uid,
            namespace,
            step,
        } = Self::begin(review, keys.clone()).await?;
        let step = match step {
            Step::Settle(unsettled) => webhook.settle(*unsettled, &keys, deadline).await,
            step => step,
        };
        let answer = match step {
            Step::Read(pending) if pending.is_status_query => {
                webhook.answer_status_query(*pending, keys, deadline).await
            }
            Step::Read(pending) => webhook.read(&pending, keys, deadline).await,
            Step::Answer(answer) => webhook.with_report(answer, None, None),
            Step::Settle(_) => Answer::default(),
        };
        debug!(uid, namespace, outcome = ?answer.outcome, "answered");
        webhook.metrics.admission(Some(answer.outcome));
        Ok(review::response(&uid, &answer.patch, &answer.warnings))
    }

    /// Parses a review, and releases the memory of its body, because reads may have to wait for that
    /// memory.
    async fn begin(review: Received, keys: Arc<Keyring>) -> Result<Begun, Trouble> {
        let webhook = review.webhook.clone();
        let parse = move |body: &[u8]| webhook.parse(body, &keys);
        review.in_turn(parse).await?
    }

    fn parse(&self, body: &[u8], keys: &Keyring) -> Result<Begun, Trouble> {
        let request = Request::parse(body)?;
        let ourselves = self.ourselves.get().map_or("", String::as_str);
        let step = begin(&request, &self.scope, keys, ourselves)?;
        Ok(Begun {
            uid: request.uid.into_owned(),
            namespace: request.namespace.unwrap_or_default(),
            step,
        })
    }

    /// Finds out what a request means by the revisions of its workload. Without them, the request means what it says, or
    /// what is safe.
    async fn settle(&self, mut unsettled: Unsettled, keys: &Keyring, deadline: Instant) -> Step {
        let revisions = self.show_revisions(&mut unsettled, deadline).await;
        let revisions = match revisions {
            Ok(()) => Revisions::Seen,
            Err(error) => {
                let namespace = unsettled.namespace();
                warn!(%namespace, error, "cannot read the revisions of a workload");
                Revisions::Unknown
            }
        };
        unsettled.settle(revisions, &self.scope, keys)
    }

    /// Shows a review the revisions of its workload, or returns the reason why it cannot.
    async fn show_revisions(
        &self,
        unsettled: &mut Unsettled,
        deadline: Instant,
    ) -> Result<(), String> {
        // What waits here takes up memory that no budget counts.
        let turn = self.limits.settling.try_acquire();
        let _turn = turn.map_err(|_| "too many reviews wait for theirs".to_owned())?;
        // The hash must still get there in time.
        let half = (deadline - Instant::now()) / 2;
        let shown = timeout(half, self.source.show_revisions(unsettled)).await;
        let shown = shown.map_err(|_| "no answer in time".to_owned())?;
        shown.map_err(|error| chain(&error))
    }

    /// Answers a review by what its answer depends on. If that cannot be read in time, the hash is unknown, and the loop
    /// makes up for it.
    async fn read(&self, pending: &Pending, keys: Arc<Keyring>, deadline: Instant) -> Answer {
        match self.read_facts(pending, &keys, deadline).await {
            Some((facts, keys)) => pending.answer(facts.as_ref(), &keys, self.first_stamp),
            None => pending.answer(None, &keys, self.first_stamp),
        }
    }

    /// Reads the objects that the answer depends on, and a key that is missing. `None` if that fails or takes too long.
    async fn read_facts(
        &self,
        pending: &Pending,
        keys: &Arc<Keyring>,
        deadline: Instant,
    ) -> Option<(Option<Facts>, Arc<Keyring>)> {
        let reads = async {
            let keys = match pending.lacks_key(keys) {
                true => self.keys.read_since(Instant::now()).await?,
                false => keys.clone(),
            };
            let objects = self.source.objects(pending.workload()).await?;
            let facts = self.facts(pending, objects, &keys, deadline).await?;
            Ok::<_, ReadError>((facts, keys))
        };
        match timeout_at(deadline, reads).await {
            Ok(Ok(read)) => Some(read),
            Ok(Err(error)) => {
                warn!(
                    error = chain(&error),
                    "cannot compute the config hash of a workload, the loop will"
                );
                None
            }
            Err(_) => {
                warn!("cannot compute the config hash of a workload in time, the loop will");
                None
            }
        }
    }
}

impl Webhook {
    /// Returns the facts for an answer, once the copies are there that the pods are to use. `None` if a copy is
    /// gone that the pods have in place of what was undone.
    async fn facts(
        &self,
        pending: &Pending,
        objects: Objects,
        keys: &Keyring,
        deadline: Instant,
    ) -> Result<Option<Facts>, ReadError> {
        let (workload, pins) = (pending.workload(), pending.copies_to_read());
        let copies = self.source.copies(workload, &pins).await?;
        let Some(facts) = pending.facts(objects, &copies, keys) else {
            warn!(workload = %workload.id, "a copy is gone that the pods have in place of what was undone");
            return Ok(None);
        };
        let missing = pending.copies(&facts, keys);
        if missing.is_empty() || pending.is_dry_run() {
            return Ok(Some(facts));
        }
        // The hash must still get there in time.
        let half = (deadline - Instant::now()) / 2;
        let reason = match timeout(half, self.source.make(&missing, keys)).await {
            Ok(Ok(_)) => return Ok(Some(facts)),
            Ok(Err(error)) => error.reason(),
            Err(_) => "timeout",
        };
        warn!(workload = %workload.id, reason, "pods get no copies of their config, because these could not be made");
        Ok(Some(facts.without_copies()))
    }
}

/// A parsed review, and the next step towards its answer.
struct Begun {
    uid: String,
    namespace: String,
    step: Step,
}

/// Returns a route at which reviews get what `answer` makes of them by the deadline.
fn reviews<A>(
    answer: impl FnOnce(Received) -> A + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<Webhook>>
where
    A: Future<Output = Result<Vec<u8>, Trouble>> + Send + 'static,
{
    post(
        move |State(webhook): State<Arc<Webhook>>,
              Query(timeout): Query<Timeout>,
              headers: HeaderMap,
              body: Body| async move { webhook.receive(&timeout, &headers, body, answer).await },
    )
}
