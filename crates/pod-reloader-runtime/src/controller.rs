//! Controllers: the parts of the operator that work while this replica leads.

use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, interval_at};
use tracing::error;

use crate::error::CallError;
use crate::heartbeat::{self, Heartbeat};

/// A part of the operator that works while this replica leads. Cloning is cheap.
#[derive(Clone)]
pub struct Controller {
    name: &'static str,
    lead: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Controller {
    /// Returns a controller that the log calls `name`. What `term` returns is one term of leadership, with watches and
    /// worker. It does not end by itself: dropping it ends the term.
    pub fn new<T>(name: &'static str, term: impl Fn() -> T + Send + Sync + 'static) -> Self
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let lead = move || term().boxed();
        Self {
            name,
            lead: Arc::new(lead),
        }
    }
}

/// Runs all controllers for one term of leadership. Dropping the future ends the term. Returns early if a
/// controller ends.
///
/// # Panics
///
/// Panics if a controller panics.
pub async fn term(controllers: Vec<Controller>, heartbeat: Arc<Heartbeat>) {
    let _leading = Leading(heartbeat.clone());
    let mut working = JoinSet::new();
    for Controller { name, lead } in controllers {
        let lead = lead();
        working.spawn(async move {
            lead.await;
            name
        });
    }
    let mut beats = interval(heartbeat::INTERVAL);
    loop {
        tokio::select! {
            _ = beats.tick() => heartbeat.beat(),
            Some(ended) = working.join_next() => match ended {
                Ok(controller) => return error!(controller, "a controller has ended"),
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                Err(_) => return,
            },
        }
    }
}

/// Runs `work` beside its watches. Each `period`, the watches begin anew, so that everything is listed again in case one
/// has missed something. Returns if `work` or a watch ends.
pub async fn beside_watches(
    work: impl Future<Output = ()>,
    period: Duration,
    watches: impl Fn() -> JoinSet<()>,
) {
    let mut work = pin!(work);
    let mut watching = watches();
    let mut resync = interval_at(Instant::now() + period, period);
    loop {
        tokio::select! {
            () = &mut work => return,
            _ = watching.join_next() => return,
            _ = resync.tick() => watching = watches(),
        }
    }
}

/// The guard of a running term. Dropping it tells the heartbeat that no loop runs.
struct Leading(Arc<Heartbeat>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Metrics of which some are shown for one term of leadership.
pub trait TermMetrics {
    /// Resets what a term has shown.
    fn reset(&self);
}

/// The guard of what a term shows in metrics. Dropping it resets that.
pub struct Shown<M: TermMetrics>(M);

impl<M: TermMetrics> Shown<M> {
    /// Begins with metrics that show nothing.
    pub fn new(metrics: M) -> Self {
        // A task of the last term that was aborted late may have set metrics since.
        metrics.reset();
        Self(metrics)
    }
}

impl<M: TermMetrics> Drop for Shown<M> {
    fn drop(&mut self) {
        self.0.reset();
    }
}

/// The failures of all controllers, by controller and reason.
#[derive(Clone, Debug, Default)]
pub struct Errors(Family<[(&'static str, &'static str); 2], Counter>);

impl Errors {
    /// Returns the metric.
    pub fn family(&self) -> Family<[(&'static str, &'static str); 2], Counter> {
        self.0.clone()
    }

    /// Returns the failures of one controller. All reasons are shown from the start, at zero.
    pub fn of(&self, controller: &'static str) -> ControllerErrors {
        let errors = ControllerErrors {
            all: self.clone(),
            controller,
        };
        for reason in CallError::REASONS.into_iter().chain([OTHER]) {
            drop(self.0.get_or_create(&errors.labels(reason)));
        }
        errors
    }
}

/// The failures of one controller.
#[derive(Clone, Debug)]
pub struct ControllerErrors {
    all: Errors,
    controller: &'static str,
}

impl ControllerErrors {
    /// Counts a failure by its cause. `None` stands for a failure that is not a failed call to the
    /// apiserver.
    pub fn count(&self, cause: Option<&CallError>) {
        let reason = cause.map_or(OTHER, CallError::reason);
        self.all.0.get_or_create(&self.labels(reason)).inc();
    }

    fn labels(&self, reason: &'static str) -> [(&'static str, &'static str); 2] {
        [("controller", self.controller), ("reason", reason)]
    }
}

/// The reason of a failure that is not a failed call.
const OTHER: &str = "other";
