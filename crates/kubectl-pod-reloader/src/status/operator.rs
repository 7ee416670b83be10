//! Checks if one operator runs, leads, and answers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pod_reloader_core::annotations::{CONFIG_MAPS, INQUIRER};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::standing::Report;
use pod_reloader_settings::Reconcile;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Check;
use super::workloads::Kept;
use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::{self, Operator};
use crate::print::{Verdict, count};
use crate::workloads::Inquiry;

/// Number of workloads to try in order to reach the webhook.
const TRIES: usize = 3;
/// Pause between two looks at the Lease.
const INTERVAL: Duration = Duration::from_secs(1);
/// Validity of a Lease that does not state it.
const LASTS: Duration = Duration::from_secs(15);
/// Time within which another replica, if there is one, takes a released Lease.
const MIN_LASTS: Duration = Duration::from_secs(4);
/// Longest time that a replica waits, whatever a Lease says.
const MAX_LASTS: Duration = Duration::from_secs(60);
/// Remaining validity below which a certificate should already have been replaced.
const SOON: SignedDuration = SignedDuration::from_hours(72);

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

/// Checks the replicas of the Deployment. It may have none, if the operator runs outside the cluster.
pub(super) fn replicas(deployment: &Value, alive: Alive) -> Check {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
    if wanted == 0 {
        let (verdict, text) = match alive {
            Alive::Yes => (Verdict::Good, "none in the cluster: it runs elsewhere"),
            Alive::No => (Verdict::Bad, "none: it is switched off"),
            Alive::Unknown => (
                Verdict::Unknown,
                "none in the cluster: whether it runs elsewhere cannot be told without a Lease",
            ),
        };
        return Check::new("Replicas", verdict, text);
    }
    let verdict = match ready {
        0 => Verdict::Bad,
        ready if ready < wanted => Verdict::Bad,
        _ => Verdict::Good,
    };
    Check::new("Replicas", verdict, format!("{ready} of {wanted} ready"))
}

/// Finds the leader: whoever renews the Lease while we look. No clock is compared with another.
pub(super) async fn leader(cluster: &Cluster, operator: &Operator) -> (Check, Alive) {
    let args = &operator.args;
    if args.reconcile == Reconcile::Off {
        let text = "nobody reconciles: --reconcile=off";
        return (Check::new("Leader", Verdict::Bad, text), Alive::Unknown);
    }
    if !args.leader_elect {
        let text = "no election: every replica reconciles";
        return (Check::new("Leader", Verdict::Good, text), Alive::Unknown);
    }
    let namespace = args
        .leader_election_namespace
        .as_ref()
        .unwrap_or(&operator.namespace);
    let place = Place::new("coordination.k8s.io/v1", "leases", Some(namespace.as_str()));
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

/// Checks how the webhook of operator `name` is registered, and if it gives an `answer`. Also returns its
/// report.
pub(super) async fn webhook(
    cluster: &Cluster,
    name: &str,
    answer: impl Future<Output = Inquiry>,
) -> (Vec<Check>, Option<Report>) {
    let mut checks = Vec::new();
    let configurations = Place::new(
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        None,
    );
    let configuration: Result<Value, _> = cluster.get(configurations, name).await;
    let mut ignores_failures = true;
    match &configuration {
        Ok(configuration) => {
            let webhook = &configuration["webhooks"][0];
            let policy = webhook["failurePolicy"].as_str().unwrap_or("Fail");
            ignores_failures = policy == "Ignore";
            let ca = webhook["clientConfig"]["caBundle"]
                .as_str()
                .unwrap_or_default();
            checks.push(match ca.is_empty() {
                true => Check::new(
                    "Webhook",
                    Verdict::Bad,
                    "registered without a caBundle: nobody has written one, so it is not trusted",
                ),
                false => Check::new(
                    "Webhook",
                    Verdict::Good,
                    format!("registered, failurePolicy {policy}"),
                ),
            });
        }
        Err(Unseen::Absent(_)) => {
            let text = format!("not registered: there is no MutatingWebhookConfiguration {name}");
            checks.push(Check::new("Webhook", Verdict::Bad, text));
            return (checks, None);
        }
        Err(error) => checks.push(Check::unseen("Webhook", error)),
    }
    let (check, report) = match answer.await {
        Inquiry::Answered(report) => {
            let text = format!(
                "reached through the apiserver, which trusts it (version {})",
                report.version
            );
            (Check::new("Answers", Verdict::Good, text), Some(report))
        }
        Inquiry::Unanswered => {
            let why = match ignores_failures {
                true => {
                    "the apiserver cannot reach it or does not trust its certificate, and failurePolicy Ignore lets writes pass"
                }
                false => "the apiserver does not call it for this write",
            };
            (
                Check::new("Answers", Verdict::Bad, format!("no: {why}")),
                None,
            )
        }
        Inquiry::Impossible(error @ Unseen::Refused { .. })
            if error
                .to_string()
                .contains(r#"calling webhook "pod-reloader.cs.sap.com"#) =>
        {
            (
                Check::new("Answers", Verdict::Bad, format!("no: {error}")),
                None,
            )
        }
        Inquiry::Impossible(error) => {
            let dry = match error.is_forbidden() {
                true => ", not even by a dry run",
                false => "",
            };
            let text = format!("not asked: {error}{dry}");
            (Check::new("Answers", Verdict::Unknown, text), None)
        }
    };
    checks.push(check);
    (checks, report)
}

/// Asks the webhook through a managed workload, or else through one that is never created.
pub(super) async fn reach(cluster: &Cluster, operator: &Operator, kept: &[&Kept<'_>]) -> Inquiry {
    let last = match by_some(cluster, kept).await {
        Ok(told) => return told,
        Err(last) => last,
    };
    let namespace = &cluster.namespace;
    let selector = operator.scope.namespace_selector();
    let labels = match selector {
        Some(_) => operators::labels(cluster, namespace.as_str()).await,
        None => Ok(BTreeMap::new()),
    };
    let probe = probe(namespace).to_string();
    let read = RawValue::from_string(probe.clone())
        .ok()
        .and_then(|probe| operators::read(&operator.scope, WorkloadKind::DEPLOYMENT, &probe));
    let obstacle =
        read.and_then(|probe| operators::obstacle(&operator.scope, &probe, labels.as_ref().ok()));
    if let Some(obstacle) = obstacle {
        return Inquiry::Impossible(last.unwrap_or_else(|| Unseen::Refused {
            what: "ask".to_owned(),
            message: format!("it keeps no workload yet, and a new one would not be kept: {obstacle}; another --namespace may do"),
        }));
    }
    let place = Place::new("apps/v1", "deployments", Some(namespace.as_str()));
    match cluster.dry_run(place, "", INQUIRER, Some(probe)).await {
        Err(error) => Inquiry::Impossible(error),
        Ok(answer) => match (Inquiry::of(&answer), labels) {
            (Inquiry::Unanswered, Err(error)) => Inquiry::Impossible(Unseen::Refused {
                what: format!("tell whether it is called for namespace {namespace}"),
                message: error.to_string(),
            }),
            (told, _) => told,
        },
    }
}

/// Asks the webhook through a workload that certainly is managed: it has a hash of ours.
pub(super) async fn by_hashes(cluster: &Cluster, kept: &[&Kept<'_>]) -> Inquiry {
    let is_ours = |kept: &&&Kept<'_>| {
        let hash = kept.seen.workload.config_hash();
        hash.and_then(ConfigHash::parse).is_some()
    };
    let with_hash: Vec<_> = kept.iter().filter(is_ours).copied().collect();
    let told = by_some(cluster, &with_hash).await;
    told.unwrap_or_else(|last| {
        Inquiry::Impossible(last.unwrap_or_else(|| Unseen::Refused {
            what: "ask".to_owned(),
            message: "no workload was found that it keeps for sure".to_owned(),
        }))
    })
}

/// Asks through the first workload that the user has the rights for.
///
/// # Errors
/// When no workload will do. Holds the error of the last one tried, if any was.
async fn by_some(cluster: &Cluster, kept: &[&Kept<'_>]) -> Result<Inquiry, Option<Unseen>> {
    let mut last = None;
    for kept in kept.iter().take(TRIES) {
        match kept.seen.inquire(cluster).await {
            Inquiry::Impossible(error) if error.is_forbidden() || error.is_absent() => {
                last = Some(error);
            }
            told => return Ok(told),
        }
    }
    Err(last)
}

/// Returns a Deployment that opts in.
fn probe(namespace: &Name) -> Value {
    const NAME: &str = "pod-reloader-status";
    let labels = json!({"app": NAME});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace.as_str(), "annotations": {CONFIG_MAPS: NAME}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "none", "image": "none"}]},
            },
        },
    })
}

pub(super) fn certificate(report: &Report) -> Check {
    let Some(not_after) = report.not_after else {
        return Check::new("Certificate", Verdict::Unknown, "it does not tell");
    };
    let left = not_after.duration_since(Timestamp::now());
    let verdict = match left < SOON {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    let text = format!(
        "expires {} UTC, in {}",
        not_after.strftime("%Y-%m-%d %H:%M"),
        count(left.as_hours() / 24, "day")
    );
    Check::new("Certificate", verdict, text)
}

pub(super) async fn policy(cluster: &Cluster, name: &str) -> Check {
    const GROUP: &str = "admissionregistration.k8s.io";
    const PLURAL: &str = "mutatingadmissionpolicies";
    let version = match cluster.version_of(GROUP, PLURAL).await {
        Ok(version) => version,
        Err(Unseen::Absent(_)) => {
            let text = "none: this Kubernetes has no MutatingAdmissionPolicy (1.36 has)";
            return Check::new("Policy", Verdict::Good, text);
        }
        Err(error) => return Check::unseen("Policy", &error),
    };
    let api_version = format!("{GROUP}/{version}");
    let policies = Place::new(&api_version, PLURAL, None);
    let bindings = Place::new(&api_version, "mutatingadmissionpolicybindings", None);
    let policy: Result<Value, _> = cluster.get(policies, name).await;
    let binding: Result<Value, _> = cluster.get(bindings, name).await;
    match policy.and(binding) {
        Ok(_) => Check::new(
            "Policy",
            Verdict::Good,
            "keeps the hash while the webhook cannot be reached",
        ),
        Err(Unseen::Absent(_)) => Check::new(
            "Policy",
            Verdict::Good,
            "not installed: while the webhook cannot be reached, a replace may drop the hash (policy.enabled)",
        ),
        Err(error) => Check::unseen("Policy", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, renewed: &str, seconds: u64) -> Lease {
        Lease::of(&json!({"spec": {
            "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds,
        }}))
    }

    #[test]
    fn a_lease_is_alive_that_moves_whatever_time_it_bears() {
        let first = lease("a", "2026-01-01T00:00:00.000000Z", 15);
        for renewed in ["1970-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"] {
            assert!(lease("a", renewed, 15).is_renewed_since(&first));
        }
        assert!(lease("b", &first.renewed, 15).is_renewed_since(&first));
        assert!(!lease("a", &first.renewed, 15).is_renewed_since(&first));
        assert!(!lease("", "2026-01-01T00:00:01.000000Z", 1).is_renewed_since(&first));
    }

    #[test]
    fn a_lease_that_claims_to_be_good_for_years_is_told_of() {
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
