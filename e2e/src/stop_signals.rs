//! Receives the signals that ask a program to stop.

use anyhow::Result;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// SIGINT and SIGTERM, received from the beginning.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl StopSignals {
    /// Begins to receive them. From now on, they do not end this process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one, and returns it.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}

/// Exit code that a shell reports for a program that Ctrl-C has ended.
pub const INTERRUPTED: u8 = 130;
