//! Waits for a condition, with a deadline, and says what was missing.

use std::{pin::pin, time::Duration};

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

/// The outcome of one attempt.
#[derive(Debug)]
pub enum Attempt<T> {
    /// The condition holds.
    Done(T),
    /// The condition does not hold yet. The text says what was seen instead.
    NotYet(String),
}

impl<T, E: Into<anyhow::Error>> From<std::result::Result<T, E>> for Attempt<T> {
    /// Turns an error into a reason to try again.
    fn from(result: std::result::Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Done(value),
            Err(error) => Self::NotYet(format!("{:#}", error.into())),
        }
    }
}

/// Returns an attempt that is done if the condition holds, and otherwise says what was seen instead.
///
/// # Errors
/// Never. An attempt can end with it.
pub fn done_if(holds: bool, seen: impl Into<String>) -> Result<Attempt<()>> {
    done_with(holds, seen, ())
}

/// Returns an attempt like [`done_if`], which is done with this value.
///
/// # Errors
/// Never, like [`done_if`].
pub fn done_with<T>(holds: bool, seen: impl Into<String>, value: T) -> Result<Attempt<T>> {
    Ok(if holds {
        Attempt::Done(value)
    } else {
        Attempt::NotYet(seen.into())
    })
}

/// Calls `attempt` again and again until it is done.
///
/// # Errors
/// When `attempt` returns an error, at once. When `timeout` has passed, with what the last attempt saw.
pub async fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut attempt: impl AsyncFnMut() -> Result<Attempt<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let mut pause = SHORTEST_PAUSE;
    let mut last = String::from("nothing, the first look did not end");
    loop {
        let began = Instant::now();
        match timeout_at(deadline, pin!(attempt())).await {
            Ok(Ok(Attempt::Done(value))) => return Ok(value),
            Ok(Ok(Attempt::NotYet(seen))) => last = seen,
            Ok(Err(error)) => return Err(error.context(format!("waiting for {what}"))),
            Err(_) => bail!("waited {timeout:?} for {what}; last seen: {last}"),
        }
        // An attempt that runs programs takes long, even more so on a busy machine.
        let rest = pause.max((began.elapsed() * 2).min(LONGEST_REST));
        if Instant::now() + rest >= deadline {
            bail!("waited {timeout:?} for {what}; last seen: {last}");
        }
        sleep(rest).await;
        // Most attempts are requests: a long wait need not ask so often.
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Time limit for what takes seconds on a machine that is not busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// Longest pause after an attempt that took long.
const LONGEST_REST: Duration = Duration::from_secs(2);
