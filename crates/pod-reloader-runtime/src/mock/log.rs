//! The log that a test looks at.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Once;

use tracing_subscriber::filter::{LevelFilter, Targets, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, fmt};

/// What the operator has logged on this thread since this was made, and as long as it exists.
///
/// All tests of a process have one subscriber: with one for each test, `tracing` sometimes misses the events of a place
/// in the code that two threads reach for the first time.
pub struct Log {
    /// It belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// What was logged on this thread, if its test looks at it.
    static TEXT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Writes to the text of the thread.
struct ToThread;

impl io::Write for ToThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TEXT.with_borrow_mut(|text| text.iter_mut().for_each(|it| it.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Begins with an empty log.
    ///
    /// # Panics
    ///
    /// Something else logs in this process, or this thread has a log already: the end of one would end the other.
    pub fn begin() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            // A target is a beginning of names: this one stands for all crates that are named after the operator.
            let own = Targets::new().with_target("pod_reloader", LevelFilter::TRACE);
            let is_looked_at = dynamic_filter_fn(|_, _| TEXT.with_borrow(Option::is_some));
            let layer = fmt::layer().with_writer(|| ToThread);
            let layer = layer.with_filter(is_looked_at).with_filter(own);
            let subscriber = tracing_subscriber::registry().with(layer);
            let set = tracing::subscriber::set_global_default(subscriber);
            set.expect("only this sets a subscriber for all");
            // Another thread may have reached a place for the first time after `tracing` knew the subscriber, and before
            // it was set for all: nobody would hear of that place.
            tracing::callsite::rebuild_interest_cache();
        });
        let before = TEXT.replace(Some(Vec::new()));
        assert!(before.is_none(), "a thread has one log at a time");
        Self {
            _not_send: PhantomData,
        }
    }

    /// Returns what was logged so far.
    pub fn text(&self) -> String {
        TEXT.with_borrow(|text| {
            String::from_utf8_lossy(text.as_deref().unwrap_or_default()).into_owned()
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        TEXT.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tracing::info;

    use super::*;

    #[test]
    fn a_log_has_what_its_own_thread_logs_while_it_exists() {
        let tells = |what: &str| info!("told: {what}");
        tells("before");
        let log = Log::begin();
        tells("during");
        let other = thread::spawn(move || {
            let log = Log::begin();
            tells("beside");
            log.text()
        });
        let other = other.join().unwrap();
        assert!(
            other.contains("told: beside") && !other.contains("during"),
            "{other}"
        );
        let text = log.text();
        assert!(text.contains("told: during"), "{text}");
        assert_eq!(text.matches("told").count(), 1, "{text}");
        drop(log);
        tells("after");
        assert_eq!(Log::begin().text(), "");
    }
}
