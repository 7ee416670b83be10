//! Whether one operator runs, leads, and answers.

use jiff::{SignedDuration, Timestamp};
use pod_reloader::args::Reconcile;
use pod_reloader_core::annotations::{CONFIG_MAPS, INQUIRER};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::standing::Report;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Check;
use crate::cluster::{Cluster, Place, Unseen};
use crate::history::when;
use crate::operators::{self, Operator};
use crate::print::{Verdict, count, safe};
use crate::workloads::{Inquiry, Seen};

/// How many workloads are tried to reach the webhook by.
const TRIES: usize = 3;
/// A certificate that expires so soon should have been replaced.
const SOON: SignedDuration = SignedDuration::from_hours(72);

pub(super) fn replicas(deployment: &Value) -> Check {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
    let verdict = match ready {
        0 => Verdict::Bad,
        ready if ready < wanted => Verdict::Bad,
        _ => Verdict::Good,
    };
    Check::new("Replicas", verdict, format!("{ready} of {wanted} ready"))
}

pub(super) async fn leader(cluster: &Cluster, operator: &Operator) -> Check {
    let args = &operator.args;
    if args.reconcile == Reconcile::Off {
        return Check::new("Leader", Verdict::Bad, "nobody reconciles: --reconcile=off");
    }
    if !args.leader_elect {
        return Check::new(
            "Leader",
            Verdict::Good,
            "no election: every replica reconciles",
        );
    }
    let namespace = args
        .leader_election_namespace
        .as_ref()
        .unwrap_or(&operator.namespace);
    let place = Place::new("coordination.k8s.io/v1", "leases", Some(namespace.as_str()));
    let lease: Value = match cluster
        .get(place, args.leader_election_lease.as_str())
        .await
    {
        Ok(lease) => lease,
        Err(Unseen::Absent(_)) => {
            return Check::new("Leader", Verdict::Bad, "none: there is no Lease");
        }
        Err(error) => return Check::unseen("Leader", &error),
    };
    let spec = &lease["spec"];
    let holder = safe(spec["holderIdentity"].as_str().unwrap_or_default());
    let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|at| at.parse().ok());
    let lasts = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or(15));
    let now = Timestamp::now();
    let suffix = match args.reconcile {
        Reconcile::Observe => ", which only observes (--reconcile=observe)",
        _ => "",
    };
    match renewed {
        Some(renewed) if !holder.is_empty() && now.duration_since(renewed) <= lasts => {
            Check::new("Leader", Verdict::Good, format!("{holder}{suffix}"))
        }
        Some(renewed) => {
            let text = format!("none: the Lease was last renewed {}", when(renewed, now));
            Check::new("Leader", Verdict::Bad, text)
        }
        None => Check::new("Leader", Verdict::Bad, "none: the Lease was never held"),
    }
}

/// How the webhook of the operator `name` is registered, and whether it gives an `answer`; with what it told.
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
            let text = format!("not asked: {error}, not even by a dry run");
            (Check::new("Answers", Verdict::Unknown, text), None)
        }
    };
    checks.push(check);
    (checks, report)
}

/// Asks the webhook by a workload that is kept, or else by one that is not made.
pub(super) async fn reach(cluster: &Cluster, operator: &Operator, kept: &[&Seen<'_>]) -> Inquiry {
    let last = match by_some(cluster, kept).await {
        Ok(told) => return told,
        Err(last) => last,
    };
    let namespace = &cluster.namespace;
    let labels = operators::labels(cluster, namespace.as_str()).await.ok();
    let probe = probe(namespace).to_string();
    let read = RawValue::from_string(probe.clone())
        .ok()
        .and_then(|probe| operators::read(&operator.scope, WorkloadKind::DEPLOYMENT, &probe));
    let obstacle =
        read.and_then(|probe| operators::obstacle(&operator.scope, &probe, labels.as_ref()));
    if let Some(obstacle) = obstacle {
        return Inquiry::Impossible(last.unwrap_or_else(|| Unseen::Refused {
            what: "ask".to_owned(),
            message: format!("it keeps no workload yet, and a new one would not be kept: {obstacle}; another --namespace may do"),
        }));
    }
    let place = Place::new("apps/v1", "deployments", Some(namespace.as_str()));
    match cluster.dry_run(place, "", INQUIRER, Some(probe)).await {
        Err(error) => Inquiry::Impossible(error),
        Ok(answer) => Inquiry::of(&answer),
    }
}

/// Asks the webhook by a workload that somebody keeps for sure: it has a hash of ours.
pub(super) async fn by_hashes(cluster: &Cluster, kept: &[&Seen<'_>]) -> Inquiry {
    let is_ours = |seen: &&&Seen<'_>| {
        let hash = seen.workload.config_hash();
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

/// Asks by one of the first workloads, that it is allowed by. *Errors*: by none; with the last that was tried.
async fn by_some(cluster: &Cluster, kept: &[&Seen<'_>]) -> Result<Inquiry, Option<Unseen>> {
    let mut last = None;
    for seen in kept.iter().take(TRIES) {
        match seen.inquire(cluster).await {
            Inquiry::Impossible(error) if error.is_forbidden() || error.is_absent() => {
                last = Some(error);
            }
            told => return Ok(told),
        }
    }
    Err(last)
}

/// A Deployment that asks to be kept.
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
