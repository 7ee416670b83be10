//! Tracks when the control plane itself is down: failures of that time are not the operator's doing.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Outages of the control plane, current or recent.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    Now,
    Over(Instant),
}

impl Outage {
    pub(crate) fn begins(&self) {
        self.is(State::Now);
    }

    pub(crate) fn ends(&self) {
        self.is(State::Over(Instant::now()));
    }

    /// Returns true if the control plane may be the reason for a call that fails now.
    pub(crate) fn is_felt(&self) -> bool {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::None => false,
            State::Now => true,
            State::Over(end) => end.elapsed() < AFTERMATH,
        }
    }

    fn is(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Time that an outage is felt after its end: broken connections are noticed late.
const AFTERMATH: Duration = Duration::from_secs(15);
