//! Decides whether and when to send a message again that was not accepted.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::runtime::pause;

/// The limits of our patience with a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The time limit of one call.
    pub(super) deadline: Duration,
    /// The maximum number of times that a message is sent.
    pub(super) tries: u32,
    /// The pause after the first try. Each further pause is twice as long.
    pub(super) first_pause: Duration,
    /// The maximum pause, however long a receiver asks us to wait.
    pub(super) longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            tries: 5,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// Returns the pause after so many tries, the last of which failed with `failure`. `None` means to give
    /// up.
    pub(super) fn pause(&self, tries: u32, failure: &Failure) -> Option<Duration> {
        if tries >= self.tries || !failure.may_pass() {
            return None;
        }
        let doubled = pause::after(tries, self.first_pause, self.longest_pause);
        let asked = match failure {
            Failure::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        Some(doubled.max(asked).min(self.longest_pause))
    }
}

/// The reason why a message was not accepted. Never contains the URL, which is a credential.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the file with the URL cannot be read: {0}")]
    NoUrl(std::io::ErrorKind),
    #[error("the file with the URL {0}")]
    BadUrl(&'static str),
    #[error("the file with the CAs is of no use: {0}")]
    BadAuthorities(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("the connection failed: {0}")]
    Connection(String),
    #[error("the receiver answers {}", status.as_u16())]
    Refused {
        status: StatusCode,
        /// The pause that the receiver asks for.
        retry_after: Option<Duration>,
    },
}

impl Failure {
    /// Returns true if the same call may succeed a little later.
    fn may_pass(&self) -> bool {
        match self {
            Self::NoUrl(_) | Self::BadUrl(_) | Self::BadAuthorities(_) => false,
            Self::TimedOut(_) | Self::Connection(_) => true,
            // A redirect is not followed: it would take the message to a receiver that nobody has
            // configured.
            Self::Refused { status, .. } => {
                status.is_server_error()
                    || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(status)
            }
        }
    }
}

/// Returns the pause that the header `Retry-After` asks for, in seconds or as a date.
pub(crate) fn retry_after(header: Option<&HeaderValue>, now: Timestamp) -> Option<Duration> {
    let text = header?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(at.duration_since(now).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retry_after: Option<u64>) -> Failure {
        Failure::Refused {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn pause(tries: u32, failure: &Failure) -> Option<u64> {
        let pause = Patience::default().pause(tries, failure)?;
        Some(pause.as_secs())
    }

    #[test]
    fn pauses_grow_and_come_to_an_end() {
        let failure = Failure::Connection("refused".to_owned());
        let pauses = (1..=6).map(|tries| pause(tries, &failure));
        let expected = [Some(2), Some(4), Some(8), Some(16), None, None];
        assert_eq!(pauses.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_error_that_cannot_pass_by_itself_is_not_retried() {
        for status in [301, 302, 307, 308, 400, 401, 403, 404, 410, 413] {
            assert_eq!(pause(1, &refused(status, Some(1))), None, "{status}");
        }
        assert_eq!(pause(1, &Failure::BadUrl("is empty")), None);
        for status in [408, 429, 500, 502, 503, 504] {
            assert_eq!(pause(1, &refused(status, None)), Some(2), "{status}");
        }
        assert_eq!(pause(1, &Failure::TimedOut(Duration::ZERO)), Some(2));
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_within_reason() {
        assert_eq!(pause(1, &refused(429, Some(30))), Some(30));
        assert_eq!(pause(4, &refused(503, Some(1))), Some(16));
        assert_eq!(pause(1, &refused(429, Some(86_400))), Some(60));
    }

    #[test]
    fn seconds_and_dates_are_understood() {
        let now = "2026-11-21T20:00:00Z".parse().unwrap();
        let read = |text| {
            let header = HeaderValue::from_static(text);
            retry_after(Some(&header), now).map(|pause| pause.as_secs())
        };
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("Sat, 21 Nov 2026 20:00:09 GMT"), Some(9));
        assert_eq!(read("Sat, 21 Nov 2026 19:00:00 GMT"), Some(0));
        for rubbish in ["", "soon", "-1", "99999999999999999999"] {
            assert_eq!(read(rubbish), None, "{rubbish}");
        }
        assert_eq!(retry_after(None, now), None);
    }
}
