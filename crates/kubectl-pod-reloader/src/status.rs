//! `status`: whether the operators of a cluster are well.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use pod_reloader::args::Reconcile;
use pod_reloader_core::annotations::{CONFIG_MAPS, INQUIRER};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::standing::{Report, Standing};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Place, Unseen};
use crate::history::{self, Event, when};
use crate::operators::{self, Operator, Operators};
use crate::print::{Answer, Verdict, bold, by, count, safe};
use crate::workloads::{self, Inquiry, Seen};

/// How many workloads are asked about at once.
const INQUIRIES_AT_ONCE: usize = 4;
/// How many workloads are tried to reach the webhook by.
const TRIES: usize = 3;
/// A certificate that expires so soon should have been replaced.
const SOON: SignedDuration = SignedDuration::from_hours(72);
/// So long a restart that is due may take beyond the settle period, and so long that is waited for at most.
const GRACE: Duration = Duration::from_secs(3);
const MAX_GRACE: Duration = Duration::from_secs(30);
/// How many workloads are named.
const NAMED: usize = 5;

/// How the operators of a cluster are.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    operators: Vec<OperatorStatus>,
    /// What you may not see.
    unseen: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OperatorStatus {
    namespace: String,
    name: String,
    version: String,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    text: String,
}

/// [`Verdict`] for programs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Unknown,
    Bad,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        let state = match verdict {
            Verdict::Good => State::Good,
            Verdict::Unknown => State::Unknown,
            Verdict::Bad => State::Bad,
        };
        let text = text.into();
        Self { name, state, text }
    }

    fn unseen(name: &'static str, error: &Unseen) -> Self {
        Self::new(name, Verdict::Unknown, error.to_string())
    }

    fn verdict(&self) -> Verdict {
        match self.state {
            State::Good => Verdict::Good,
            State::Unknown => Verdict::Unknown,
            State::Bad => Verdict::Bad,
        }
    }
}

/// Looks at every operator, and asks about at most `ask` workloads of each.
pub(crate) async fn status(
    cluster: &Cluster,
    operators: &Operators,
    ask: usize,
) -> (Status, Verdict) {
    let (all, unlisted) = every_workload(cluster, operators).await;
    let events = history::events(cluster, None).await;
    let mut unseen = operators.unseen.clone();
    unseen.extend(
        unlisted
            .iter()
            .map(|error| format!("some workloads: {error}")),
    );
    let mut statuses = Vec::new();
    for operator in &operators.all {
        let is_its = |seen: &&Seen<'_>| {
            seen.obstacle.is_none() && seen.operator.is_some_and(|it| std::ptr::eq(it, operator))
        };
        let kept: Vec<_> = all.iter().filter(is_its).collect();
        let mut checks = vec![replicas(operator), leader(cluster, operator).await];
        let (webhook, report) = webhook(cluster, operator, &kept).await;
        checks.extend(webhook);
        checks.extend(report.map(|report| certificate(&report)));
        checks.push(policy(cluster, operator).await);
        checks.push(workloads(&kept, unlisted.is_empty()));
        checks.extend(standings(cluster, operator, &kept, ask).await);
        checks.push(warnings(&events, &kept));
        statuses.push(OperatorStatus {
            namespace: operator.namespace.to_string(),
            name: operator.name.clone(),
            version: operator.version.clone(),
            checks,
        });
    }
    let checks = statuses.iter().flat_map(|status| &status.checks);
    let verdict = checks
        .map(Check::verdict)
        .max()
        .unwrap_or(match unseen.is_empty() {
            true => Verdict::Bad,
            false => Verdict::Unknown,
        });
    let status = Status {
        operators: statuses,
        unseen,
    };
    (status, verdict)
}

/// The workloads of the cluster, or else of the namespace.
async fn every_workload<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
) -> (Vec<Seen<'a>>, Vec<String>) {
    let (all, unlisted) = workloads::list(cluster, operators, None).await;
    if all.is_empty() && !unlisted.is_empty() {
        let (own, _) = workloads::list(cluster, operators, Some(&cluster.namespace)).await;
        return (own, unlisted);
    }
    (all, unlisted)
}

fn replicas(operator: &Operator) -> Check {
    let wanted = operator.deployment["spec"]["replicas"]
        .as_i64()
        .unwrap_or(1);
    let ready = operator.deployment["status"]["readyReplicas"]
        .as_i64()
        .unwrap_or(0);
    let verdict = match ready {
        0 => Verdict::Bad,
        ready if ready < wanted => Verdict::Bad,
        _ => Verdict::Good,
    };
    Check::new("Replicas", verdict, format!("{ready} of {wanted} ready"))
}

async fn leader(cluster: &Cluster, operator: &Operator) -> Check {
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

/// How the webhook is registered, and whether it answers; with what it told.
async fn webhook(
    cluster: &Cluster,
    operator: &Operator,
    kept: &[&Seen<'_>],
) -> (Vec<Check>, Option<Report>) {
    let mut checks = Vec::new();
    let configurations = Place::new(
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        None,
    );
    let configuration: Result<Value, _> = cluster.get(configurations, &operator.name).await;
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
            let text = format!(
                "not registered: there is no MutatingWebhookConfiguration {}",
                operator.name
            );
            checks.push(Check::new("Webhook", Verdict::Bad, text));
            return (checks, None);
        }
        Err(error) => checks.push(Check::unseen("Webhook", error)),
    }
    let (check, report) = match reach(cluster, operator, kept).await {
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
async fn reach(cluster: &Cluster, operator: &Operator, kept: &[&Seen<'_>]) -> Inquiry {
    let mut last = None;
    for seen in kept.iter().take(TRIES) {
        match seen.inquire(cluster).await {
            Inquiry::Impossible(error) if error.is_forbidden() || error.is_absent() => {
                last = Some(error);
            }
            told => return told,
        }
    }
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

fn certificate(report: &Report) -> Check {
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

async fn policy(cluster: &Cluster, operator: &Operator) -> Check {
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
    let policy: Result<Value, _> = cluster.get(policies, &operator.name).await;
    let binding: Result<Value, _> = cluster.get(bindings, &operator.name).await;
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

/// What the workloads carry.
fn workloads(kept: &[&Seen<'_>], are_all: bool) -> Check {
    let has_hash = |seen: &&&Seen<'_>| seen.workload.config_hash().is_some();
    let is_ours = |seen: &&&Seen<'_>| {
        seen.workload
            .config_hash()
            .and_then(ConfigHash::parse)
            .is_some()
    };
    let with = kept.iter().filter(has_hash).count();
    let ours = kept.iter().filter(is_ours).count();
    let mut keys: BTreeMap<String, i64> = BTreeMap::new();
    let hashes = kept
        .iter()
        .filter_map(|seen| ConfigHash::parse(seen.workload.config_hash()?));
    for hash in hashes {
        *keys.entry(hash.key_id().to_string()).or_default() += 1;
    }
    let mut text = format!("{} kept, {ours} with a hash", kept.len());
    if with > ours {
        text += &format!(", {} with one of somebody else", with - ours);
    }
    if keys.len() > 1 {
        let keys = keys
            .iter()
            .map(|(key, number)| format!("{key} by {number}"));
        text += &format!("; keys: {}", Vec::from_iter(keys).join(", "));
    }
    let verdict = match are_all {
        true => Verdict::Good,
        false => Verdict::Unknown,
    };
    Check::new("Workloads", verdict, text)
}

/// Whether the workloads are up to date: those that are due are given the time that a restart takes.
async fn standings(
    cluster: &Cluster,
    operator: &Operator,
    kept: &[&Seen<'_>],
    ask: usize,
) -> Vec<Check> {
    let asked = &kept[..kept.len().min(ask)];
    if asked.is_empty() {
        return Vec::new();
    }
    let mut told = inquire(cluster, asked).await;
    let is_due = |inquiry: &Inquiry| {
        matches!(
            inquiry,
            Inquiry::Answered(Report {
                standing: Standing::Due(_) | Standing::BaselineDue,
                ..
            })
        )
    };
    let due: Vec<_> = told
        .iter()
        .filter(|(_, it)| is_due(it))
        .map(|(at, _)| *at)
        .collect();
    if !due.is_empty() {
        let settled = |at: &usize| {
            asked[*at]
                .workload
                .settle_period
                .unwrap_or(operator.args.settle_period)
        };
        let longest = due.iter().map(settled).max().unwrap_or_default();
        tokio::time::sleep((longest + GRACE).min(MAX_GRACE)).await;
        for at in due {
            told.insert(at, asked[at].inquire(cluster).await);
        }
    }
    let mut by_text: BTreeMap<(Verdict, &str), Vec<String>> = BTreeMap::new();
    for (at, inquiry) in &told {
        let (verdict, text) = match inquiry {
            Inquiry::Answered(report) => match report.standing {
                Standing::Current => (Verdict::Good, "up to date"),
                Standing::Due(_) => (Verdict::Bad, "out of date"),
                Standing::Waiting => (Verdict::Bad, "held, as objects are missing"),
                Standing::BaselineDue => (Verdict::Unknown, "foreign, without a baseline"),
                Standing::NotKept => (Verdict::Good, "not kept"),
                Standing::Unknown => (Verdict::Unknown, "whose objects cannot be read"),
            },
            Inquiry::Unanswered => (Verdict::Unknown, "not told, as the webhook does not answer"),
            Inquiry::Impossible(error) if error.is_forbidden() => (
                Verdict::Unknown,
                "not asked about, as you may not patch them",
            ),
            Inquiry::Impossible(_) => (Verdict::Unknown, "not asked about, as a dry run fails"),
        };
        let id = &asked[*at].workload.id;
        let name = format!("{} {}/{}", id.kind, id.namespace, id.name);
        by_text.entry((verdict, text)).or_default().push(name);
    }
    let mut checks: Vec<_> = by_text
        .into_iter()
        .map(|((verdict, text), names)| {
            let text = match verdict {
                Verdict::Good => format!("{} {text}", names.len()),
                _ => format!("{} {text}: {}", names.len(), some(&names)),
            };
            Check::new("Of these", verdict, text)
        })
        .collect();
    if kept.len() > asked.len() {
        let text = format!("{} not asked about (--ask)", kept.len() - asked.len());
        checks.push(Check::new("Of these", Verdict::Good, text));
    }
    checks
}

async fn inquire(cluster: &Cluster, asked: &[&Seen<'_>]) -> BTreeMap<usize, Inquiry> {
    let inquiries = asked.iter().enumerate();
    let inquiries = inquiries.map(|(at, seen)| async move { (at, seen.inquire(cluster).await) });
    stream::iter(inquiries)
        .buffer_unordered(INQUIRIES_AT_ONCE)
        .collect()
        .await
}

/// What the operator warned of in the last hour, and was not followed by a restart.
fn warnings(events: &Result<Vec<Event>, Unseen>, kept: &[&Seen<'_>]) -> Check {
    let events = match events {
        Ok(events) => events,
        Err(error) => return Check::unseen("Warnings", error),
    };
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for seen in kept {
        let id = &seen.workload.id;
        let about = format!("{} {}/{}", id.kind, id.namespace, id.name);
        let own: Vec<_> = events
            .iter()
            .filter(|event| event.about == about)
            .cloned()
            .collect();
        for event in history::problems(&own) {
            let reason = REASONS.iter().find(|reason| **reason == event.reason);
            by_reason
                .entry(reason.unwrap_or(&"others"))
                .or_default()
                .push(about.clone());
        }
    }
    if by_reason.is_empty() {
        return Check::new("Warnings", Verdict::Good, "none in the last hour");
    }
    let texts = by_reason
        .iter()
        .map(|(reason, names)| format!("{reason}: {}", some(names)));
    Check::new("Warnings", Verdict::Bad, Vec::from_iter(texts).join("\n"))
}

/// The reasons of warnings.
const REASONS: [&str; 8] = [
    "WaitingForConfig",
    "RestartStalled",
    "ConfigHashReverted",
    "RestartedTooOften",
    "InvalidReference",
    "ConfigUnreadable",
    "CronJobNotRun",
    "PatchRefused",
];

/// The first names, the rest as a number.
fn some(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Answer for Status {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.operators.is_empty() {
            let found = match self.unseen.is_empty() {
                true => "No pod-reloader was found in this cluster: no Deployment of its chart.",
                false => "No pod-reloader was found where you may look.",
            };
            text += &format!("{}\n", bold(found));
        }
        for OperatorStatus {
            namespace,
            name,
            version,
            checks,
        } in &self.operators
        {
            let title =
                format!("pod-reloader {version}: deployment {name} in namespace {namespace}");
            text += &format!("{}\n", bold(title));
            let width = checks
                .iter()
                .map(|check| check.name.len())
                .max()
                .unwrap_or(0);
            for check in checks {
                let verdict = check.verdict();
                let sign = match verdict {
                    Verdict::Good => "ok",
                    Verdict::Unknown => "??",
                    Verdict::Bad => "!!",
                };
                let indent = format!("\n{}", " ".repeat(width + 7));
                text += &format!(
                    "  {}  {:width$}  {}\n",
                    by(verdict, sign),
                    check.name,
                    check.text.replace('\n', &indent)
                );
            }
        }
        if !self.unseen.is_empty() {
            text += &format!("\n{}\n", bold("Not seen"));
            self.unseen
                .iter()
                .for_each(|item| text += &format!("  {item}\n"));
        }
        text
    }
}
