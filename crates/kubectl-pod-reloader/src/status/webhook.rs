//! Checks the webhook of an operator: its registration, its answer and its certificate.

use jiff::{SignedDuration, Timestamp};
use pod_reloader_core::sync_status::Report;
use serde_json::Value;

use super::Check;
use crate::cluster::{Cluster, Place, Unseen};
use crate::print::{Verdict, count};
use crate::workloads::Reply;

/// Remaining validity below which a certificate should already have been replaced.
const SOON: SignedDuration = SignedDuration::from_hours(72);

/// Checks how the webhook of operator `name` is registered, and if it gives an `answer`. Also returns its
/// report.
pub(super) async fn webhook(
    cluster: &Cluster,
    name: &str,
    answer: impl Future<Output = Reply>,
) -> (Vec<Check>, Option<Report>) {
    let configurations = Place::new(
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        None,
    );
    let configuration: Result<Value, _> = cluster.get(configurations, name).await;
    let (registered, ignores_failures) = match &configuration {
        Ok(configuration) => registered(&configuration["webhooks"][0]),
        Err(Unseen::Absent(_)) => {
            let text = format!("not registered: there is no MutatingWebhookConfiguration {name}");
            return (vec![Check::new("Webhook", Verdict::Bad, text)], None);
        }
        Err(error) => (Check::unseen("Webhook", error), true),
    };
    let (answers, report) = match answer.await {
        Reply::Answered(report) => (reached(&report), Some(*report)),
        Reply::Unanswered => (unanswered(ignores_failures), None),
        Reply::Impossible(error) => (refused(&error), None),
    };
    (vec![registered, answers], report)
}

/// Checks the registration of the webhook. Also returns true if the apiserver ignores its failures.
fn registered(webhook: &Value) -> (Check, bool) {
    let policy = webhook["failurePolicy"].as_str().unwrap_or("Fail");
    let ca = webhook["clientConfig"]["caBundle"]
        .as_str()
        .unwrap_or_default();
    let check = match ca.is_empty() {
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
    };
    (check, policy == "Ignore")
}

fn reached(report: &Report) -> Check {
    let text = format!(
        "reached through the apiserver, which trusts it (version {})",
        report.version
    );
    Check::new("Answers", Verdict::Good, text)
}

/// Explains why a write passed without an answer.
fn unanswered(ignores_failures: bool) -> Check {
    let why = match ignores_failures {
        true => {
            "the apiserver cannot reach it or does not trust its certificate, and failurePolicy Ignore lets writes pass"
        }
        false => "the apiserver does not call it for this write",
    };
    Check::new("Answers", Verdict::Bad, format!("no: {why}"))
}

/// Tells a failure of the webhook from a dry run that could not be tried.
fn refused(error: &Unseen) -> Check {
    let text = error.to_string();
    let is_of_webhook = text.contains(r#"calling webhook "pod-reloader.cs.sap.com"#);
    if is_of_webhook && matches!(error, Unseen::Refused { .. }) {
        return Check::new("Answers", Verdict::Bad, format!("no: {text}"));
    }
    let dry = match error.is_forbidden() {
        true => ", not even by a dry run",
        false => "",
    };
    let text = format!("not asked: {text}{dry}");
    Check::new("Answers", Verdict::Unknown, text)
}

/// Checks how long the certificate is still valid, by the webhook's own report.
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
