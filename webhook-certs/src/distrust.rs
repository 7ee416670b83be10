//! Tells whether clients go on refusing the certificate although its CAs have been published.

use std::time::{Duration, Instant};

/// Time that clients get to follow a new bundle.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest time between two writes of the same bundle: some clients may never trust the certificate.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// What one replica has seen of the object that holds the bundle, and of clients that refuse the certificate.
///
/// kube-apiserver can miss a change of a webhook configuration: if it evaluates the old one while the change arrives, it
/// goes on with the old one until the next change. So the bundle must be written once more, in another form.
#[derive(Debug, Default)]
pub struct Distrust(Option<Seen>);

#[derive(Debug)]
struct Seen {
    version: String,
    bundle: Vec<u8>,
    since: Instant,
    refusals: u64,
    wait: Duration,
}

impl Distrust {
    /// Returns true if the bundle is to be written once more: clients have refused the certificate since this version of
    /// the object with the bundle was first seen, and have had the time to follow. `refusals` counts all refusals so far.
    ///
    /// The time is half a minute after a new bundle. Each further version of the object with the same bundle doubles it, up
    /// to an hour. Replicas that see the same versions therefore write once between them.
    pub fn lasts(&mut self, version: &str, bundle: &[u8], refusals: u64, now: Instant) -> bool {
        let wait = match &self.0 {
            Some(seen) if seen.version == version => {
                return refusals > seen.refusals && now - seen.since >= seen.wait;
            }
            Some(seen) if seen.bundle == bundle => LONGEST_WAIT.min(seen.wait * 2),
            _ => FIRST_WAIT,
        };
        self.0 = Some(Seen {
            version: version.to_owned(),
            bundle: bundle.to_owned(),
            since: now,
            refusals,
            wait,
        });
        false
    }
}
