//! Runs a watch for each key that is wanted, as keys come and go.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Runs the watch of each key, which `begin` returns. The watch of a key that is no longer wanted is aborted, and the key
/// is passed to `ended`.
///
/// Returns if a watch ends by itself, or if it is no longer known which keys are wanted. Then no watch is left.
pub async fn watch_each<K, W>(
    mut wanted: watch::Receiver<BTreeSet<K>>,
    begin: impl Fn(K) -> W,
    ended: impl Fn(&K),
) where
    K: Clone + Ord + Hash,
    W: Future<Output = ()> + Send + 'static,
{
    let mut watches = JoinSet::new();
    let mut running: HashMap<K, AbortHandle> = HashMap::new();
    loop {
        let keys = wanted.borrow_and_update().clone();
        running.retain(|key, watch| {
            let is_wanted = keys.contains(key);
            if !is_wanted {
                watch.abort();
                ended(key);
            }
            is_wanted
        });
        for key in keys {
            let watch = running.entry(key.clone());
            watch.or_insert_with(|| watches.spawn(begin(key)));
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            Some(finished) = watches.join_next() => if !finished.is_err_and(|error| error.is_cancelled()) {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::time::{sleep, timeout};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Notes which watches begin and end.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Notes {
        fn note(&self, what: &str, key: u8) {
            self.0.lock().push(format!("{what}{key}"));
        }

        fn taken(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock())
        }

        /// Runs watches, of which that of key 0 ends at once.
        async fn watch_each(self, wanted: watch::Receiver<BTreeSet<u8>>) {
            let begin = |key| {
                self.note("+", key);
                let ends_at_once = key == 0;
                sleep(if ends_at_once { Duration::ZERO } else { HOUR })
            };
            watch_each(wanted, begin, |key| self.note("-", *key)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watches_begin_and_end_with_their_keys() {
        let notes = Notes::default();
        let (sender, wanted) = watch::channel(BTreeSet::from([1, 2]));
        let changes = async {
            let mut seen = Vec::new();
            for keys in [[2, 3], [2, 3], [1, 3]] {
                sleep(Duration::from_secs(1)).await;
                seen.push(notes.taken().join(" "));
                sender.send_replace(BTreeSet::from(keys));
            }
            sleep(Duration::from_secs(1)).await;
            seen.push(notes.taken().join(" "));
            seen
        };
        let watching = notes.clone().watch_each(wanted);
        tokio::select! {
            () = watching => panic!("an aborted watch has ended all of them"),
            seen = changes => assert_eq!(seen, ["+1 +2", "-1 +3", "", "-2 +1"]),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_by_itself_ends_all() {
        let notes = Notes::default();
        let (_sender, wanted) = watch::channel(BTreeSet::from([0, 1]));
        let watching = notes.clone().watch_each(wanted);
        timeout(Duration::from_secs(1), watching).await.unwrap();
        assert_eq!(notes.taken(), ["+0", "+1"]);
    }
}
