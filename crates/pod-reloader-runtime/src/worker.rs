//! Handles the items of a queue as they become due.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::error;

use crate::queue::{AT_ONCE, Item, Queue};

/// The time for which an item is left alone after its handler panicked, which is a bug of ours.
pub const PANIC_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The work that a controller does on its items.
pub trait Handler: Send + Sync + 'static {
    /// The items.
    type Item: Item;

    /// Handles an item. Returns the time to handle it again, if nothing happens earlier.
    fn handle(&self, item: &Self::Item) -> impl Future<Output = Option<Instant>> + Send;

    /// Called after each [`Handler::handle`], even if that panicked.
    fn handled(&self, item: &Self::Item) {
        let _ = item;
    }

    /// Called on each turn of the loop. `is_busy` is true while any item is in progress.
    fn is_busy(&self, is_busy: bool) {
        let _ = is_busy;
    }
}

/// A queue, and the loop that works through it.
///
/// # Caveats
/// A worker is for one term: an item that is in progress when the loop is dropped is not handled again.
pub struct Worker<T> {
    queue: Mutex<Queue<T>>,
    at_once: usize,
    pushed: Notify,
}

impl<T> Default for Worker<T> {
    fn default() -> Self {
        Self::new(AT_ONCE)
    }
}

impl<T> Worker<T> {
    /// Returns a worker that has up to this many items in progress at once.
    pub fn new(at_once: usize) -> Self {
        Self {
            queue: Mutex::new(Queue::new(at_once)),
            at_once,
            pushed: Notify::new(),
        }
    }
}

impl<T: Item> Worker<T> {
    /// Schedules `item` for `at`. A time that is already earlier stays.
    pub fn push(&self, item: T, at: Instant) {
        self.queue.lock().push(item, at);
        self.pushed.notify_one();
    }

    /// Schedules these items for now.
    pub fn push_all(&self, items: impl IntoIterator<Item = T>) {
        let now = Instant::now();
        for item in items {
            self.push(item, now);
        }
    }

    /// Handles items as they become due, for ever.
    ///
    /// # Panics
    ///
    /// Never panics: a panic of the handler is logged, and costs that item five minutes.
    pub async fn run<H: Handler<Item = T>>(&self, handler: &Arc<H>) {
        let mut in_progress = JoinSet::new();
        loop {
            while in_progress.len() < self.at_once {
                let Some(item) = self.queue.lock().pop(Instant::now()) else {
                    break;
                };
                let handler = handler.clone();
                in_progress.spawn(async move {
                    let handling = AssertUnwindSafe(handler.handle(&item)).catch_unwind();
                    let again = handling.await.unwrap_or_else(|_| {
                        error!(%item, "handling it panicked, which is a bug");
                        Some(Instant::now() + PANIC_PAUSE)
                    });
                    handler.handled(&item);
                    (item, again)
                });
            }
            handler.is_busy(!in_progress.is_empty());
            let next_due = self.queue.lock().next_due();
            let next_due = next_due.filter(|_| in_progress.len() < self.at_once);
            tokio::select! {
                () = self.pushed.notified() => {}
                () = sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {}
                Some(ended) = in_progress.join_next() => {
                    if let Ok((item, again)) = ended {
                        self.queue.lock().done(item, again);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::id;
    use pod_reloader_core::workload::WorkloadId;
    use tokio::time::{sleep, timeout};

    /// Notes what it is called with. The workload `broken` panics, and `again` wants another turn in a minute.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Notes {
        fn add(&self, what: &str, id: &WorkloadId) {
            self.0.lock().push(format!("{what} {}", id.name));
        }
    }

    impl Handler for Notes {
        type Item = WorkloadId;

        async fn handle(&self, id: &WorkloadId) -> Option<Instant> {
            self.add("handle", id);
            assert!(&*id.name != "broken", "a bug");
            (&*id.name == "again").then(|| Instant::now() + Duration::from_secs(60))
        }

        fn handled(&self, id: &WorkloadId) {
            self.add("handled", id);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_is_handled_when_it_is_due_and_noted_as_handled_even_after_a_panic() {
        let (worker, notes) = (Worker::default(), Arc::new(Notes::default()));
        let noted = |name: &str| {
            let notes = notes.0.lock();
            let count = |what: &str| {
                notes
                    .iter()
                    .filter(|it| **it == format!("{what} {name}"))
                    .count()
            };
            (count("handle"), count("handled"))
        };
        for name in ["once", "again", "broken", "later"] {
            let id = id(name);
            let pause = if name == "later" { 30 } else { 0 };
            worker.push(id, Instant::now() + Duration::from_secs(pause));
        }
        let claims = async {
            sleep(Duration::from_secs(1)).await;
            for name in ["once", "again", "broken"] {
                assert_eq!(noted(name), (1, 1), "{name}");
            }
            assert_eq!(noted("later"), (0, 0));
            sleep(Duration::from_secs(90)).await;
            assert_eq!(noted("again"), (2, 2));
            assert_eq!(noted("later"), (1, 1));
            assert_eq!(noted("once"), (1, 1));
            assert_eq!(noted("broken"), (1, 1), "it is left alone for a while");
            sleep(PANIC_PAUSE).await;
            assert_eq!(noted("broken"), (2, 2));
        };
        tokio::select! {
            () = worker.run(&notes) => {}
            claimed = timeout(Duration::from_secs(3600), claims) => claimed.unwrap(),
        }
    }
}
