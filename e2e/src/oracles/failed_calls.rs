//! Counts failed calls of the webhook, by the apiserver's metrics.

use anyhow::{Context, Result};
use kube::Client;

/// Failed calls of the webhook since the apiserver started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedCalls {
    /// Writes that went on without the webhook: failurePolicy Ignore.
    pub passed_by: usize,
    /// Writes that were refused: failurePolicy Fail.
    pub rejected: usize,
}

impl FailedCalls {
    /// Asks the apiserver.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn count(client: &Client) -> Result<Self> {
        let metrics = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = client.request_text(metrics).await?;
        Ok(Self {
            passed_by: sum(&metrics, "apiserver_admission_webhook_fail_open_count")?,
            rejected: sum(&metrics, "apiserver_admission_webhook_rejection_count")?,
        })
    }

    /// Returns the calls that failed after `before`. An apiserver that was restarted counts from 0.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let since = |now: usize, before: usize| now.checked_sub(before).unwrap_or(now);
        Self {
            passed_by: since(self.passed_by, before.passed_by),
            rejected: since(self.rejected, before.rejected),
        }
    }
}

/// Sums a counter over all calls of our webhook.
fn sum(metrics: &str, counter: &str) -> Result<usize> {
    let ours = metrics.lines().filter(|line| {
        line.strip_prefix(counter)
            .is_some_and(|labels| labels.contains(WEBHOOK))
    });
    ours.map(|line| {
        let (_, count) = line.rsplit_once(' ').context("a value")?;
        Ok(count.parse::<usize>()?)
    })
    .sum()
}

const WEBHOOK: &str = "name=\"pod-reloader.cs.sap.com\"";
