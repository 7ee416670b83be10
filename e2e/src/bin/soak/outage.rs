//! Says when the control plane itself is down: what fails then is not the operator's doing.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Whether the control plane is down, or was just now.
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

    /// Whether a call that fails now may have failed for it.
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

/// Connections that have broken meanwhile are noticed late.
const AFTERMATH: Duration = Duration::from_secs(15);
