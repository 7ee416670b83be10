//! Finds the replica that leads, by its Lease.

use std::time::Duration;

use pod_reloader_core::name::Name;
use pod_reloader_settings::Reconcile;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Check;
use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::Operator;
use crate::print::Verdict;

/// Pause between two looks at the Lease.
const INTERVAL: Duration = Duration::from_secs(1);
/// Validity of a Lease that does not state it.
const LASTS: Duration = Duration::from_secs(15);
/// Time within which another replica, if there is one, takes a released Lease.
const MIN_LASTS: Duration = Duration::from_secs(4);
/// Longest time that a replica waits, whatever a Lease says.
const MAX_LASTS: Duration = Duration::from_secs(60);

/// Signs of life of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alive {
    /// The operator renews its Lease.
    Yes,
    /// Nobody renews the Lease.
    No,
    /// There is no Lease, or it cannot be seen.
    Unknown,
}

/// Finds the leader: whoever renews the Lease while we look. No clock is compared with another.
pub(super) async fn leader(cluster: &Cluster, operator: &Operator) -> (Check, Alive) {
    let args = &operator.args;
    if args.reconcile == Reconcile::Nothing {
        let text = "nobody reconciles: --reconcile=none";
        return (Check::new("Leader", Verdict::Bad, text), Alive::Unknown);
    }
    if !args.leader_elect {
        let text = "no election: every replica reconciles";
        return (Check::new("Leader", Verdict::Good, text), Alive::Unknown);
    }
    let namespace = args.leader_election_namespace.as_ref();
    let namespace = namespace.map_or(&*operator.installed.namespace, Name::as_str);
    let place = Place::new("coordination.k8s.io/v1", "leases", Some(namespace));
    let name = args.leader_election_lease.as_str();
    let look = async || cluster.get(place, name).await.map(|it| Lease::of(&it));
    let mut first = None;
    let began = Instant::now();
    loop {
        let is_over = |lease: &Lease| began.elapsed() >= lease.lasts;
        match (look().await, &first) {
            (Ok(lease), None) => first = Some(lease),
            (Ok(lease), Some(first)) if lease.is_renewed_since(first) => {
                let only = match args.reconcile {
                    Reconcile::Observe => ", which only observes (--reconcile=observe)",
                    _ => "",
                };
                let text = format!("{}{only}", lease.holder);
                return (Check::new("Leader", Verdict::Good, text), Alive::Yes);
            }
            (Ok(lease), Some(first)) if is_over(first) => {
                let text = lease.is_dead(began.elapsed());
                return (Check::new("Leader", Verdict::Bad, text), Alive::No);
            }
            (Err(Unseen::Absent(_)), _) => {
                let text = "none: there is no Lease";
                return (Check::new("Leader", Verdict::Bad, text), Alive::No);
            }
            (Err(error), first) if first.as_ref().is_none_or(is_over) => {
                return (Check::unseen("Leader", &error), Alive::Unknown);
            }
            _ => {}
        }
        sleep(INTERVAL).await;
    }
}

/// The fields of a Lease that show if somebody holds it.
#[derive(Debug, PartialEq, Eq)]
struct Lease {
    /// Holder of the Lease; empty if it was released.
    holder: String,
    /// Time of renewal, by the holder's clock.
    renewed: String,
    /// Validity of the Lease if it is not renewed.
    lasts: Duration,
    /// Validity that the Lease states, if that is longer than any replica waits.
    claims: Option<Duration>,
}

impl Lease {
    fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let lasts = spec["leaseDurationSeconds"].as_u64();
        let lasts = lasts.map_or(LASTS, Duration::from_secs);
        Self {
            holder: text("holderIdentity"),
            renewed: text("renewTime"),
            lasts: lasts.clamp(MIN_LASTS, MAX_LASTS),
            claims: (lasts > MAX_LASTS).then_some(lasts),
        }
    }

    fn is_renewed_since(&self, before: &Self) -> bool {
        !self.holder.is_empty()
            && (&self.holder, &self.renewed) != (&before.holder, &before.renewed)
    }

    /// Describes a Lease that was watched for this long without a renewal.
    fn is_dead(&self, watched: Duration) -> String {
        match &*self.holder {
            "" => "none: nobody holds the Lease".to_owned(),
            holder => {
                let claims = self.claims.map_or_else(String::new, |claims| {
                    format!(
                        ". The Lease claims to be good for {} s, which no replica writes: they take it after {} s",
                        claims.as_secs(),
                        MAX_LASTS.as_secs()
                    )
                });
                format!(
                    "none: {holder} has not renewed the Lease for {} s{claims}",
                    watched.as_secs()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(holder: &str, renewed: &str, seconds: u64) -> Lease {
        Lease::of(&json!({"spec": {
            "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds,
        }}))
    }

    #[test]
    fn a_lease_that_changes_is_alive_whatever_its_time_says() {
        let first = lease("a", "2026-01-01T00:00:00.000000Z", 15);
        for renewed in ["1970-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"] {
            assert!(lease("a", renewed, 15).is_renewed_since(&first));
        }
        assert!(lease("b", &first.renewed, 15).is_renewed_since(&first));
        assert!(!lease("a", &first.renewed, 15).is_renewed_since(&first));
        assert!(!lease("", "2026-01-01T00:00:01.000000Z", 1).is_renewed_since(&first));
    }

    #[test]
    fn a_lease_that_claims_to_be_good_for_years_is_reported() {
        let told = |seconds| lease("a", "", seconds).is_dead(Duration::from_secs(60));
        assert_eq!(told(60), "none: a has not renewed the Lease for 60 s");
        assert_eq!(
            told(2_147_483_647),
            "none: a has not renewed the Lease for 60 s. The Lease claims to be good for 2147483647 s, \
             which no replica writes: they take it after 60 s"
        );
    }

    #[test]
    fn a_lease_of_any_content_is_read() {
        for spec in [
            json!(null),
            json!({"renewTime": "10000-01-01T23:58:59.999999Z", "leaseDurationSeconds": -1}),
            json!({"holderIdentity": null, "leaseDurationSeconds": "soon", "renewTime": 1}),
        ] {
            let lease = Lease::of(&json!({"spec": spec}));
            assert_eq!((&*lease.holder, lease.lasts), ("", LASTS), "{spec}");
        }
    }

    #[test]
    fn a_lease_is_watched_as_long_as_it_lasts_within_reason() {
        let lasts = |seconds| lease("a", "", seconds).lasts.as_secs();
        assert_eq!([0, 1, 15, 1_000_000].map(lasts), [4, 4, 15, 60]);
        assert_eq!(Lease::of(&json!({})).lasts, LASTS);
    }
}
