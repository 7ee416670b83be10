//! Notifies people outside of the cluster: with few messages, and without ever delaying the work.

mod batch;
mod message;
mod news;
mod retry;
mod sink;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use pod_reloader_core::workload::Workload;
use pod_reloader_settings::{NotifyFormat, NotifyOn};
use serde_json::Value;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::batch::Batch;
use self::news::News;
use self::retry::Patience;
pub(crate) use self::retry::retry_after;
pub(crate) use self::sink::Sink;
use crate::metrics::{Delivery, Metrics};
use crate::report::notice::Notice;

/// The maximum amount of news that waits to be put into a message. Any more is dropped, with a line in the
/// log.
const BACKLOG: usize = 4096;
/// The time for which a process that is told to stop continues to send.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);

/// Returns true if news of this kind is wanted.
fn is_wanted(wanted: NotifyOn, news: &News) -> bool {
    match wanted {
        NotifyOn::Restarts => !news.topic.is_problem,
        NotifyOn::Problems => news.topic.is_problem,
        NotifyOn::All => true,
    }
}

/// The style of messages.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// The format that the receiver understands.
    pub(crate) format: NotifyFormat,
    /// The name of the cluster in messages.
    pub(crate) cluster: Option<String>,
}

/// The sending half: hands in notices. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Notifications {
    sender: mpsc::Sender<News>,
    wanted: NotifyOn,
    metrics: Metrics,
    is_dropping: Arc<AtomicBool>,
}

impl Notifications {
    /// Returns a place to hand in notices, and the task that sends them to `sink` until it is told to stop.
    pub(crate) fn new(
        sink: Sink,
        style: Style,
        wanted: NotifyOn,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let notifications = Self {
            sender,
            wanted,
            metrics: metrics.clone(),
            is_dropping: Arc::default(),
        };
        let outbox = Outbox {
            sink,
            style,
            patience: Patience::default(),
            metrics,
            stop,
        };
        (notifications, outbox.run(receiver))
    }

    /// Hands in a notice about `workload`, if notices of its kind are wanted. Never waits.
    pub(crate) fn publish(&self, workload: &Workload, notice: &Notice) {
        let news = News::of(workload, notice);
        let Some(news) = news.filter(|news| is_wanted(self.wanted, news)) else {
            return;
        };
        let is_dropped = match self.sender.try_send(news) {
            Ok(()) => false,
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Closed(_)) => {
                return debug!("stopping: notifications of what still happens are not sent");
            }
        };
        if is_dropped {
            self.metrics.notifications.count(Delivery::Dropped);
        }
        if is_dropped && !self.is_dropping.swap(is_dropped, Ordering::Relaxed) {
            warn!("dropping notifications: too many wait to be sent");
        } else if !is_dropped {
            self.is_dropping.store(false, Ordering::Relaxed);
        }
    }
}

/// Builds messages, and sends them one after the other.
struct Outbox {
    sink: Sink,
    style: Style,
    patience: Patience,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Outbox {
    async fn run(self, mut receiver: mpsc::Receiver<News>) {
        if let Err(failure) = self.sink.check() {
            warn!(%failure, "no notification can be sent until this is corrected");
        }
        let mut stopped = pin!(self.stop.cancelled());
        let mut batch: Option<Batch> = None;
        let mut sending: Option<BoxFuture<'_, ()>> = None;
        loop {
            let due = batch.as_ref().filter(|_| sending.is_none()).map(Batch::due);
            tokio::select! {
                () = &mut stopped => break,
                Some(news) = receiver.recv() => collect(&mut batch, news),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    sending = batch.take().map(|batch| self.send(self.message(&batch)).boxed());
                }
                () = ended(&mut sending) => sending = None,
            }
        }
        receiver.close();
        while let Ok(news) = receiver.try_recv() {
            collect(&mut batch, news);
        }
        let last = batch.map(|batch| self.send(self.message(&batch)).boxed());
        // The two are sent at the same time, because the time is short.
        join_all(sending.into_iter().chain(last).map(|it| self.farewell(it))).await;
    }

    /// Continues to send a message, for a limited time: a receiver that does not answer must not hold up
    /// the process.
    async fn farewell(&self, sending: BoxFuture<'_, ()>) {
        if timeout(FAREWELL, sending).await.is_err() {
            self.metrics.notifications.count(Delivery::Failed);
            warn!("stopping: a notification could not be sent");
        }
    }

    fn message(&self, batch: &Batch) -> Value {
        let Style { format, cluster } = &self.style;
        message::body(*format, batch, cluster.as_deref(), Timestamp::now())
    }

    /// Sends a message, trying again within reason. Tries only once more when we stop.
    async fn send(&self, message: Value) {
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last = self.stop.is_cancelled();
            let failure = match self.sink.send(&message, &self.patience).await {
                Ok(()) => {
                    debug!(tries, "sent a notification");
                    return self.metrics.notifications.count(Delivery::Sent);
                }
                Err(failure) => failure,
            };
            let pause = self.patience.pause(tries, &failure);
            let Some(pause) = pause.filter(|_| !is_last) else {
                warn!(tries, %failure, "a notification could not be sent");
                return self.metrics.notifications.count(Delivery::Failed);
            };
            debug!(tries, %failure, ?pause, "a notification was not taken, trying again");
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }
}

fn collect(batch: &mut Option<Batch>, news: News) {
    let now = Instant::now();
    let batch = batch.get_or_insert_with(|| Batch::new(now));
    batch.add(news, now, Timestamp::now());
}

async fn ended(sending: &mut Option<BoxFuture<'_, ()>>) {
    match sending {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
