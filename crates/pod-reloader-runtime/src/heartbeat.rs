//! Tells whether the reconcile loop is still running.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time between two heartbeats of a running loop.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// The silence after which a loop is considered stuck. The loop itself never waits for the apiserver.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The last heartbeat of a loop. `None` while no loop has to run.
#[derive(Default)]
pub struct Heartbeat(Mutex<Option<Instant>>);

impl Heartbeat {
    /// Notes that the loop is running.
    pub(crate) fn beat(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Notes that no loop is running, and none has to.
    pub(crate) fn rest(&self) {
        *self.0.lock() = None;
    }

    /// Returns true if a loop should be running but is silent.
    pub fn is_stuck(&self) -> bool {
        self.0
            .lock()
            .is_some_and(|beat| beat.elapsed() > STUCK_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_a_recent_heartbeat_is_stuck() {
        let heartbeat = Heartbeat::default();
        tokio::time::advance(STUCK_AFTER * 2).await;
        assert!(!heartbeat.is_stuck(), "none runs");
        heartbeat.beat();
        tokio::time::advance(STUCK_AFTER).await;
        assert!(!heartbeat.is_stuck());
        tokio::time::advance(INTERVAL).await;
        assert!(heartbeat.is_stuck());
        heartbeat.beat();
        assert!(!heartbeat.is_stuck());
        tokio::time::advance(STUCK_AFTER * 2).await;
        heartbeat.rest();
        assert!(!heartbeat.is_stuck());
    }
}
