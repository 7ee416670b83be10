//! Elects the leader: the replica that reconciles. Election only saves work; two leaders for a while do no
//! harm.
//!
//! The protocol is that of client-go, so clocks need not agree. A Lease is considered held until it has
//! been unchanged for its duration, by the clock of the replica that watches it. Other crates compare the
//! time in the Lease with their own clock, and none of them gives up a Lease that it cannot renew.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{GetParams, Patch};
use kube::core::request::{Error as InvalidRequest, Request};
use kube::{Client, Resource};
use pod_reloader_core::name::Name;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::{patch_params, post_params, within};
use crate::complaint::Complaint;
use crate::error::CallError;

/// The time for which a Lease is good without renewal.
const DURATION: Duration = Duration::from_secs(15);
/// The maximum time for which any Lease is good, whatever it claims. Ours never claim more than
/// [`DURATION`]: a Lease that claims years was written by mistake or by a stranger, and nobody could lead
/// for years.
const LONGEST: Duration = Duration::from_secs(60);
/// The time for which the holder relies on its last renewal. It is so much shorter than [`DURATION`] that
/// nobody else holds the Lease by then.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The time between the beginnings of two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// The time between two reads of the Lease by a replica that does not hold it.
const RETRY: Duration = Duration::from_secs(2);
/// The time limit of one call. Two calls can be lost before the holder gives up.
pub(crate) const CALL: Duration = Duration::from_secs(3);

/// Runs a term whenever this replica is elected, until `stop` is cancelled or a term ends by itself.
///
/// A term is dropped when the Lease is lost. It is begun anew if the Lease shows that the cluster was
/// restored from a backup: the old watches would wait at a resourceVersion that the restored cluster has
/// yet to reach, and stay silent. A backup that was made after the last renewal cannot be told: it has the
/// same Lease.
pub async fn lead<T: Future<Output = ()>>(
    client: Client,
    namespace: Name,
    name: Name,
    term: impl Fn() -> T,
    stop: CancellationToken,
) {
    let mut candidate = Candidate::new(client, &namespace, name);
    let terms = async {
        loop {
            candidate.elected().await;
            info!("elected");
            tokio::select! {
                biased;
                end = candidate.hold() => match end {
                    End::Lost => warn!("no longer the leader: the Lease was not renewed in time"),
                    End::Taken => warn!("no longer the leader: somebody else holds the Lease"),
                    End::Restored => warn!("the cluster was restored to an earlier state: reading everything again"),
                },
                () = term() => return,
            }
        }
    };
    stop.run_until_cancelled(terms).await;
    candidate.release().await;
}

/// A replica that stands for election.
struct Candidate {
    client: Client,
    leases: Request,
    name: Name,
    identity: String,
    seen: Option<Seen>,
    /// The time until which the Lease is relied on. In the past while the Lease is not held.
    held_until: Instant,
    complaint: Complaint,
}

/// The parts of a Lease that the election relies on.
///
/// Times are left out, because no clock is compared with another. They are never even parsed: the API
/// accepts times that no library here can represent, and a Lease that could not be read would never be
/// taken.
#[derive(Debug, PartialEq, Eq)]
struct Lease {
    version: Option<String>,
    /// `None` if nobody holds the Lease.
    holder: Option<String>,
    /// The time for which the Lease claims to be good. [`DURATION`] if it claims nothing.
    claimed: Duration,
    transitions: i32,
}

impl Lease {
    fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let transitions = spec["leaseTransitions"].as_i64();
        let claimed = spec["leaseDurationSeconds"].as_u64();
        Self {
            version: text(&lease["metadata"]["resourceVersion"]),
            holder: text(&spec["holderIdentity"]).filter(|holder| !holder.is_empty()),
            claimed: claimed.map_or(DURATION, Duration::from_secs),
            transitions: transitions
                .and_then(|count| i32::try_from(count).ok())
                .unwrap_or_default(),
        }
    }

    /// Returns true if the Lease can be taken after it has been unchanged for so long.
    fn is_free(&self, unchanged: Duration) -> bool {
        self.holder.is_none() || unchanged > self.claimed.clamp(DURATION, LONGEST)
    }

    /// Logs an excessive claim, once.
    fn report(&self, before: Option<&Self>) {
        let claims_too_much = |lease: &Self| lease.holder.is_some() && lease.claimed > LONGEST;
        if claims_too_much(self) && !before.is_some_and(claims_too_much) {
            warn!(
                holder = self.holder,
                seconds = self.claimed.as_secs(),
                "the Lease claims to be good for longer than any of ours: it is taken once it has not changed for {} s",
                LONGEST.as_secs()
            );
        }
    }
}

/// A Lease as it was last seen.
struct Seen {
    lease: Lease,
    /// The time since which the Lease has been unchanged.
    since: Instant,
}

/// The reason why a term ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The Lease could not be renewed in time.
    Lost,
    /// Somebody else holds the Lease.
    Taken,
    /// The cluster was restored to an earlier state.
    Restored,
}

/// The result of reading or writing the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Sight {
    /// The Lease is unchanged or has moved forward.
    Usual,
    /// The resourceVersion of the Lease has gone back, which only a restore does.
    Restored,
}

impl Candidate {
    fn new(client: Client, namespace: &Name, name: Name) -> Self {
        let mut random = [0; 4];
        // Without random bytes, only the host name tells replicas apart.
        let _ = getrandom::fill(&mut random);
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "pod-reloader".to_owned());
        let leases = LeaseObject::url_path(&(), Some(namespace.as_str()));
        Self {
            client,
            leases: Request::new(leases),
            name,
            identity: format!("{host}_{:08x}", u32::from_be_bytes(random)),
            seen: None,
            held_until: Instant::now(),
            complaint: Complaint::default(),
        }
    }

    /// Waits until this replica holds the Lease.
    async fn elected(&mut self) {
        loop {
            match self.try_to_take().await {
                Ok(true) => return,
                Ok(false) => self.complaint.settled(),
                Err(error) => self
                    .complaint
                    .warn(&error, "cannot reach the Lease, trying again"),
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the Lease for as long as possible. Returns why the term ends.
    async fn hold(&mut self) -> End {
        let mut renewals = interval(RENEW_INTERVAL);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The Lease has just been written.
        renewals.reset();
        loop {
            let held_until = self.held_until;
            let renewal = async {
                loop {
                    renewals.tick().await;
                    match self.renew().await {
                        Ok(end) => {
                            self.complaint.settled();
                            return end;
                        }
                        Err(error) => self
                            .complaint
                            .warn(&error, "cannot renew the Lease, trying again"),
                    }
                }
            };
            let end = tokio::select! {
                biased;
                () = sleep_until(held_until) => Some(End::Lost),
                end = renewal => end,
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Releases the Lease, so that another replica need not wait until it expires.
    async fn release(&mut self) {
        if Instant::now() >= self.held_until {
            return;
        }
        // The last renewal may have been interrupted, so our view of the Lease may be out of date.
        let released = async {
            self.read().await?;
            if self.is_ours() {
                let nobody = json!({"holderIdentity": null, "leaseDurationSeconds": 1});
                self.write(nobody).await?;
            }
            Ok::<_, CallError>(())
        };
        if let Err(error) = released.await {
            warn!(%error, "cannot release the Lease: another replica takes over when it expires");
        }
    }

    /// Takes the Lease if it is free. Returns true if it is ours.
    async fn try_to_take(&mut self) -> Result<bool, CallError> {
        match self.read().await {
            Err(error) if error.is_not_found() => return Ok(self.create().await?.is_some()),
            looked => looked.map(drop)?,
        }
        let Some(Seen { lease, since }) = &self.seen else {
            return Ok(false);
        };
        if !self.is_ours() && !lease.is_free(since.elapsed()) {
            return Ok(false);
        }
        let ours = LeaseSpec {
            lease_transitions: Some(lease.transitions.saturating_add(1)),
            ..self.taken()
        };
        // The apiserver stores times that it cannot read again itself, such as those of the year 10000. It
        // then refuses every patch of the object. So this patch replaces the times in the spec, and clears
        // those in `managedFields`.
        let taking = json!({"metadata": {"managedFields": [{}]}, "spec": ours});
        match self.patch(taking).await {
            // Somebody else was faster.
            Err(error) if error.is_conflict() => Ok(false),
            written => written.map(|_| self.is_ours()),
        }
    }

    /// Renews the Lease, or returns why the term ends.
    async fn renew(&mut self) -> Result<Option<End>, CallError> {
        let renewal = json!({"renewTime": now()});
        let mut sight = match self.write(renewal.clone()).await {
            Err(error) if error.is_not_found() => match self.create().await? {
                Some(sight) => sight,
                None => self.read().await?,
            },
            // Somebody wrote the Lease, or the cluster was restored.
            Err(error) if error.is_conflict() => self.read().await?,
            written => return written.map(|_| None),
        };
        if sight == Sight::Usual && self.is_ours() {
            sight = self.write(renewal).await?;
        }
        Ok(match sight {
            Sight::Restored => Some(End::Restored),
            Sight::Usual if self.is_ours() => None,
            Sight::Usual => Some(End::Taken),
        })
    }

    /// Creates the Lease, and thereby holds it. Returns `None` if somebody else was faster.
    async fn create(&mut self) -> Result<Option<Sight>, CallError> {
        let began = Instant::now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name.as_str()},
            "spec": self.taken(),
        });
        let lease = lease.to_string().into_bytes();
        match self.call(self.leases.create(&post_params(), lease)).await {
            Ok(lease) => Ok(Some(self.written(lease, began))),
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the Lease.
    async fn read(&mut self) -> Result<Sight, CallError> {
        let name = self.name.as_str();
        let lease = self.call(self.leases.get(name, &GetParams::default()));
        let lease = lease.await?;
        Ok(self.take_in(lease))
    }

    /// Writes `spec` into the Lease, provided that the Lease is as it was last seen.
    async fn write(&mut self, spec: Value) -> Result<Sight, CallError> {
        self.patch(json!({"metadata": {}, "spec": spec})).await
    }

    /// Merges `patch` into the Lease, provided that the Lease is as it was last seen.
    async fn patch(&mut self, mut patch: Value) -> Result<Sight, CallError> {
        let began = Instant::now();
        let seen = self.seen.as_ref();
        let version = seen.and_then(|seen| seen.lease.version.as_ref());
        patch["metadata"]["resourceVersion"] = json!(version);
        let patch = Patch::Merge(patch);
        let params = patch_params();
        let request = self.leases.patch(self.name.as_str(), &params, &patch);
        let lease = self.call(request).await?;
        Ok(self.written(lease, began))
    }

    async fn call(
        &self,
        request: Result<http::Request<Vec<u8>>, InvalidRequest>,
    ) -> Result<Lease, CallError> {
        let answer = async {
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request::<Value>(request).await
        };
        let lease = within(CALL, answer).await?;
        Ok(Lease::of(&lease))
    }

    /// Stores the answer to a write that began at `began`.
    fn written(&mut self, lease: Lease, began: Instant) -> Sight {
        let sight = self.take_in(lease);
        self.held_until = match self.is_ours() {
            true => began + RENEW_DEADLINE,
            false => began,
        };
        sight
    }

    /// Returns the spec of a Lease that we hold.
    fn taken(&self) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(now()),
            renew_time: Some(now()),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }
    }

    fn take_in(&mut self, lease: Lease) -> Sight {
        let number = |lease: &Lease| lease.version.as_ref()?.parse::<u64>().ok();
        let before = self.seen.as_ref().map(|seen| &seen.lease);
        let same = before.is_some_and(|before| before.version == lease.version);
        let older = before
            .and_then(|before| Some(number(&lease)? < number(before)?))
            .unwrap_or_default();
        if !same {
            lease.report(before);
            let since = Instant::now();
            self.seen = Some(Seen { lease, since });
        }
        if older { Sight::Restored } else { Sight::Usual }
    }

    fn is_ours(&self) -> bool {
        let seen = self.seen.as_ref();
        seen.and_then(|seen| seen.lease.holder.as_ref()) == Some(&self.identity)
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

#[cfg(test)]
mod tests;
