//! `explain`: what is tracked for a workload, whether it is up to date, and when and why it was restarted.

mod bound;
mod findings;
mod last_restart;
mod pinning;
mod restraints;
mod sync_status;
mod table;

use jiff::Timestamp;
use pod_reloader_core::annotations::CONFIG_HASH;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::sync_status::SyncStatus;
use pod_reloader_core::workload::Workload;
use pod_reloader_settings::Reconcile;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::bound::bound_fields;
use self::findings::Findings;
use self::last_restart::LastRestart;
use self::pinning::Pinning;
use self::restraints::Restraints;
use self::sync_status::sync_status;
use self::table::{ObjectRow, rows};
use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::events::{self, Event};
use crate::objects;
use crate::operators::{Installed, Operator, Operators};
use crate::print::{Answer, Piece, Text, Verdict, by};
use crate::rollout::Rollout;
use crate::times::when;
use crate::workloads::{self, HashWriter, Seen, at};

/// Field managers of `kubectl rollout`, whose undo brings an earlier hash along. It names none itself, so the apiserver
/// takes the name of the program.
const ROLLOUT: [&str; 3] = ["kubectl-rollout", "kubectl", "oc"];
/// Annotation in which `kubectl apply` stores the manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Everything there is to know about one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    kind: String,
    namespace: String,
    name: String,
    /// True if the workload is managed.
    is_managed: bool,
    /// Reason why it is not managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_managed_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<OperatorSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    /// Sync status in the operator's own words, or `not asked`.
    sync_status: String,
    /// Meaning of `sync_status`.
    #[serde(skip)]
    meaning: String,
    #[serde(skip)]
    verdict: Verdict,
    /// Objects and keys that its pods need to start and that are missing.
    waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_restart: Option<LastRestart>,
    rollout: String,
    /// Everything that its users have said about when it may be restarted.
    #[serde(flatten)]
    restraints: Restraints,
    /// The copies that its pods use.
    #[serde(flatten)]
    pinning: Pinning,
    /// The place at which its pods reload changed files in place of a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_url: Option<String>,
    /// Time that its objects must stay unchanged before it is restarted, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    settle_period_seconds: Option<f64>,
    objects: Vec<ObjectRow>,
    /// Mistakes in its annotations and labels.
    advice: Vec<String>,
    /// Problems of the last hour.
    problems: Vec<Event>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
    #[serde(skip)]
    asked_at: Timestamp,
}

#[derive(Clone, Debug, Serialize)]
struct OperatorSummary {
    #[serde(flatten)]
    operator: Installed,
    reconcile: &'static str,
}

/// Explains a workload.
pub(crate) async fn explain(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
) -> Result<(Explanation, Verdict), Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let findings = Findings::of(cluster, operators, &seen).await;
    Ok(explanation(&seen, &findings, operators))
}

fn explanation(
    seen: &Seen<'_>,
    findings: &Findings,
    operators: &Operators,
) -> (Explanation, Verdict) {
    let workload = &seen.workload;
    let rollout = Rollout::of(workload, &seen.object);
    let pinning = Pinning::of(seen, &findings.found, &findings.undone);
    let unanswered = findings.unanswered(seen);
    let asked_at = Timestamp::now();
    let mut assessment = Assessment::of(seen, findings, &rollout);
    if assessment.is_current && pinning.is_undone() {
        assessment.meaning += ", apart from what was undone";
    }
    if !unanswered.is_empty() && seen.is_established(asked_at) {
        assessment.meaning += "; something that it asks to track is not there";
        assessment.verdict = Verdict::Bad;
    }
    let problems = assessment.problems(findings);
    let waits_for = assessment.waits_for(seen, findings);
    let verdict = assessment.verdict;
    let events = findings.events.as_deref().ok();
    let hash = workload.config_hash();
    let hash_since = findings.hash_since.as_ref().ok().copied().flatten();
    let explanation = Explanation {
        kind: workload.id.kind.to_string(),
        namespace: workload.id.namespace.to_string(),
        name: workload.id.name.to_string(),
        is_managed: seen.obstacle.is_none(),
        not_managed_because: seen.obstacle.clone(),
        operator: seen.operator.map(OperatorSummary::of),
        config_hash: hash.map(ToOwned::to_owned),
        key_id: hash.and_then(key_id),
        sync_status: assessment.sync_status,
        meaning: assessment.meaning,
        verdict,
        waits_for,
        last_restart: LastRestart::of(seen, events, hash_since, asked_at),
        rollout: rollout.text().to_owned(),
        restraints: Restraints::of(seen, findings),
        pinning,
        reload_url: workload
            .rare()
            .http_reload
            .as_deref()
            .map(|it| it.target.to_string()),
        settle_period_seconds: settle_period_seconds(seen),
        objects: rows(seen, operators, &findings.found, &findings.uses),
        advice: advice(workload)
            .into_iter()
            .chain(unanswered.iter().map(ToString::to_string))
            .chain(hash_in_manifest(seen))
            .collect(),
        problems,
        unseen: findings.unseen(seen, operators),
        asked_at,
    };
    (explanation, verdict)
}

/// The sync status of a workload, and what is said about it.
struct Assessment {
    sync_status: String,
    meaning: String,
    verdict: Verdict,
    /// True if the pods have the current content.
    is_current: bool,
}

impl Assessment {
    fn of(seen: &Seen<'_>, findings: &Findings, rollout: &Rollout) -> Self {
        let (sync_status, mut meaning, verdict) =
            sync_status(seen, findings.reply.as_ref(), rollout);
        if let Some(wait) = &findings.waits_for {
            meaning = format!("{meaning}; {wait}");
        }
        Self {
            is_current: sync_status == SyncStatus::Current.as_str(),
            sync_status,
            meaning,
            verdict,
        }
    }

    /// Returns the problems of the last hour that are not over.
    fn problems(&self, findings: &Findings) -> Vec<Event> {
        let events = findings.events.as_deref().unwrap_or_default();
        let problems = events::problems(events).into_iter();
        let problems = problems.filter(|event| !self.is_current || event.reason != "MissingConfig");
        problems.cloned().collect()
    }

    /// Returns the objects and keys that the pods need to start and that are missing.
    fn waits_for(&self, seen: &Seen<'_>, findings: &Findings) -> Vec<String> {
        match self.is_current {
            true => Vec::new(),
            false => objects::missing(seen, &findings.found.objects),
        }
    }
}

/// Returns the id of the key of a config hash.
fn key_id(hash: &str) -> Option<String> {
    ConfigHash::parse(hash).map(|hash| hash.key_id.to_string())
}

/// Returns the time that the objects of a workload must stay unchanged before it is restarted, in seconds.
fn settle_period_seconds(seen: &Seen<'_>) -> Option<f64> {
    let default = seen.operator?.args.settle_period;
    Some(
        seen.workload
            .rare()
            .settle_period
            .unwrap_or(default)
            .as_secs_f64(),
    )
}

/// Returns the mistakes in the annotations and labels of a workload.
fn advice(workload: &Workload) -> Vec<String> {
    let advice = workload.rare().advice.iter().map(ToString::to_string);
    let rejected = workload.references.rejected.iter();
    advice.chain(rejected.map(ToString::to_string)).collect()
}

/// Returns the advice on a config hash that stands in a manifest: a GitOps tool would never see the workload in sync.
fn hash_in_manifest(seen: &Seen<'_>) -> Option<String> {
    let manager = match &seen.hash_writer {
        HashWriter::Other {
            manager,
            is_applied,
        } if *is_applied || !ROLLOUT.contains(&manager.as_str()) => Some(manager),
        _ => None,
    };
    let applied = &seen.object["metadata"]["annotations"][LAST_APPLIED];
    let applied = applied.as_str().filter(|it| it.contains(CONFIG_HASH));
    let applied: Option<Value> = applied.and_then(|it| serde_json::from_str(it).ok());
    let is_applied = applied.is_some_and(|manifest| {
        let mut templates = seen.workload.id.kind.shape().templates.iter();
        templates.any(|template| {
            let template = at(&manifest, template.path);
            !template["metadata"]["annotations"][CONFIG_HASH].is_null()
        })
    });
    let by = match (manager, is_applied) {
        (Some(manager), _) => format!("by {manager}"),
        (None, true) => "by kubectl apply".to_owned(),
        (None, false) => return None,
    };
    Some(format!(
        "{CONFIG_HASH} is in the manifest that is written {by}; pod-reloader alone writes it: remove it from the manifest, or the two keep undoing each other"
    ))
}

impl OperatorSummary {
    fn of(operator: &Operator) -> Self {
        Self {
            operator: operator.installed.clone(),
            reconcile: match operator.args.reconcile {
                Reconcile::Restart => "restart",
                Reconcile::Observe => "observe",
                Reconcile::Nothing => "none",
            },
        }
    }

    fn words(&self) -> String {
        let operator = &self.operator;
        let words = format!("pod-reloader {} ({operator})", operator.version);
        match self.reconcile {
            "restart" => words,
            other => format!("{words}, --reconcile={other}"),
        }
    }
}

impl Answer for Explanation {
    fn text(&self) -> Text {
        let lines = |lines: &[String]| Vec::from_iter(lines.iter().cloned().map(Piece::from));
        let line = |line: &str| vec![Piece::from(line)];
        let mut fields = vec![("Config hash", vec![by(self.verdict, &*self.meaning)])];
        if let Some(hash) = &self.config_hash {
            fields.push(("Value", line(hash)));
        }
        if !self.waits_for.is_empty() {
            fields.push(("Waits for", lines(&self.waits_for)));
        }
        if let Some(LastRestart { at, in_words, .. }) = &self.last_restart {
            let at = when(*at, self.asked_at);
            fields.push(("Last hash", vec![at.into(), in_words.as_str().into()]));
        }
        fields.push(("Rollout", line(&self.rollout)));
        fields.extend(self.restraints.fields());
        fields.extend(self.pinning.fields());
        if let Some(operator) = &self.operator {
            fields.push(("Managed by", line(&operator.words())));
        }
        if let (Some(settle), true) = (self.settle_period_seconds, self.is_managed) {
            let restarts = match self.objects.iter().any(|row| row.tracked) {
                true => {
                    format!(
                        "when a tracked object changes, once all have been unchanged for {settle} s"
                    )
                }
                false => "by nothing: it tracks no object".to_owned(),
            };
            fields.push(("Restarts", line(&restarts)));
            if let Some(url) = &self.reload_url {
                let reloads = format!(
                    "in place of that, if all that changed are files of mounted volumes: a POST of {url} to each pod"
                );
                fields.push(("Reloads", line(&reloads)));
            }
        }
        let problems = self.problems.iter().map(|event| {
            let at = when(event.at, self.asked_at);
            format!("{}, {at}: {}", event.reason, event.message)
        });
        let mut text = Text::about(&self.kind, &self.name, &self.namespace);
        text.fields(fields);
        if !self.objects.is_empty() {
            text.gap();
            table::add_to(&mut text, &self.objects);
        }
        text.section("Problems in its annotations", &self.advice);
        text.section("Not seen", &self.unseen);
        text.section("Warnings of the last hour", &Vec::from_iter(problems));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{
        Canned, assert_mentions, config_map, deployment, operator, operator_with,
    };
    use jiff::SignedDuration;
    use pod_reloader_core::protect::PROTECT;
    use pod_reloader_core::seal::COPY_OF;
    use serde_json::{Value, json};

    /// Returns a cluster whose workload has had its hash for `minutes`, with `owner` as the owner of that
    /// field. All field managers last wrote two hours ago.
    fn shop(owner: Option<&str>, minutes: i64) -> Canned {
        let since = Timestamp::now() - SignedDuration::from_mins(minutes);
        let template = json!({
            "metadata": {"annotations": {"pod-reloader.cs.sap.com/config-hash": "it"}},
        });
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
        web["metadata"]["managedFields"] = json!([
            {"manager": "kube-controller-manager", "fieldsV1": {"f:status": {}}},
            {"manager": "kubectl-create", "fieldsV1": {"f:spec": {"f:template": {"f:metadata": {
                "f:annotations": {".": {}, "f:other": {}},
            }}}}},
        ]);
        if let Some(owner) = owner {
            let at = Timestamp::now() - SignedDuration::from_hours(2);
            let hash = json!({"f:pod-reloader.cs.sap.com/config-hash": {}});
            let fields = json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": hash}}}});
            let entry = json!({"manager": owner, "time": at.to_string(), "fieldsV1": fields});
            let entries = web["metadata"]["managedFields"].as_array_mut();
            entries.unwrap().push(entry);
        }
        web["spec"]["template"] = template.clone();
        let mut replica_set = deployment("web-1");
        replica_set["metadata"]["ownerReferences"] = json!([{"uid": "web", "controller": true}]);
        replica_set["metadata"]["creationTimestamp"] = json!(since.to_string());
        replica_set["spec"]["template"] = template;
        let apps = "/apis/apps/v1/namespaces/shop";
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all(&format!("{apps}/deployments"), &[web])
            .with_all(&format!("{apps}/replicasets"), &[replica_set])
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "key")],
            )
            .reporting("current")
    }

    async fn explained(canned: Canned) -> (String, Value) {
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let web = Target::here("deploy", "web");
        let (answer, _) = explain(&cluster, &operators, &web).await.unwrap();
        let text = answer.text().without_styles();
        (text, serde_json::to_value(answer).unwrap())
    }

    #[tokio::test]
    async fn a_hash_that_the_webhook_has_just_set_is_not_reported_as_an_expired_event() {
        let (text, json) = explained(shop(None, 0)).await;
        let line = "it came with a write of the workload, for which there is no Event";
        assert_mentions(&text, line);
        assert!(!text.contains("kept for an hour"), "{text}");
        assert_eq!(json["lastRestart"].get("why"), None);
        let (text, json) = explained(shop(Some("argocd"), 0)).await;
        let line = "it came with a write of the workload by argocd, for which there is no Event";
        assert_mentions(&text, line);
        assert_eq!(json["lastRestart"]["manager"], "argocd");
    }

    /// Returns a cluster with a workload of this age that lists a ConfigMap which does not exist.
    fn listing_nothing(minutes: i64) -> Canned {
        let created = Timestamp::now() - SignedDuration::from_mins(minutes);
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "absent"});
        web["metadata"]["creationTimestamp"] = json!(created.to_string());
        due(web, config_map("app", "key")).reporting("current")
    }

    #[tokio::test]
    async fn a_list_that_names_nothing_is_a_problem_after_some_minutes() {
        let told = "ConfigMap absent is listed and does not exist (yet)";
        for (minutes, is_problem) in [(1, false), (9, true)] {
            let (text, json) = explained(listing_nothing(minutes)).await;
            let advice = json["advice"][0].as_str().unwrap();
            assert!(advice.starts_with(told), "{text}");
            let meaning = "something that it asks to track is not there";
            assert_eq!(text.contains(meaning), is_problem, "{text}");
            let verdict = verdict_of(listing_nothing(minutes)).await;
            assert_eq!(verdict == Verdict::Bad, is_problem, "{minutes}: {text}");
        }
    }

    async fn verdict_of(canned: Canned) -> Verdict {
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let web = Target::here("deploy", "web");
        let (_, verdict) = explain(&cluster, &operators, &web).await.unwrap();
        verdict
    }

    #[tokio::test]
    async fn a_hash_in_a_manifest_is_named_with_whoever_writes_it() {
        let advice = async |canned: Canned| {
            let (_, json) = explained(canned).await;
            json["advice"].to_string()
        };
        assert!(advice(shop(Some("argocd"), 0)).await.contains("by argocd;"));
        for owner in [
            None,
            Some("pod-reloader"),
            Some("kubectl-rollout"),
            Some("kubectl"),
        ] {
            assert_eq!(advice(shop(owner, 0)).await, "[]", "{owner:?}");
        }
        let mut web = deployment("web");
        let annotations = json!({"pod-reloader.cs.sap.com/config-hash": "it"});
        let manifest = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        web["metadata"]["annotations"] = json!({
            "pod-reloader.cs.sap.com/configmaps": "app",
            LAST_APPLIED: manifest.to_string(),
        });
        let applied = advice(due(web, config_map("app", "key"))).await;
        assert_mentions(&applied, "by kubectl apply;");
    }

    #[tokio::test]
    async fn events_that_the_user_may_not_list_are_not_reported_as_gone() {
        let events = "/api/v1/namespaces/shop/events";
        let (text, _) = explained(shop(Some("pod-reloader"), 300).forbids(events)).await;
        assert_mentions(&text, "why is not known: Events cannot be read");
        let line = "why it was restarted: you may not list events in namespace shop";
        assert_mentions(&text, line);
        let (text, _) = explained(shop(None, 0).forbids(events)).await;
        assert_mentions(&text, "it came with a write");
    }

    #[tokio::test]
    async fn events_are_reported_as_gone_only_after_an_hour() {
        for (minutes, why) in [
            (1, "why is not known: there is no Event about it"),
            // Later than the operator's last write.
            (61, "why is not known: there is no Event about it"),
            (
                121,
                "why is not known any more: Events are kept for an hour",
            ),
        ] {
            let (text, _) = explained(shop(Some("pod-reloader"), minutes)).await;
            assert_mentions(&text, why);
        }
    }

    #[tokio::test]
    async fn protected_and_copied_objects_are_marked() {
        let (text, json) = explained(shop(None, 0)).await;
        assert_mentions(&text, "PODS NEED\n");
        assert_eq!(json["objects"][0].get("protect"), None);
        let mut app = config_map("app", "key");
        app["metadata"]["labels"] = json!({PROTECT: "in-use"});
        app["metadata"]["annotations"] = json!({COPY_OF: "platform/app@shop"});
        let path = "/api/v1/namespaces/shop/configmaps/app";
        let protecting = json!({"items": [operator_with(&["--protect"])]});
        let shop = shop(None, 0)
            .with("/apis/apps/v1/deployments", protecting)
            .with(path, app.clone());
        let (text, json) = explained(shop.clone()).await;
        assert_mentions(&text, "PODS NEED   REMARK\n");
        let remark = "protected: in-use; copy of ConfigMap platform/app\n";
        assert_mentions(&text, remark);
        let object = &json["objects"][0];
        assert_eq!(object["protect"], "in-use");
        assert_eq!(object["copyOf"], "ConfigMap platform/app");
        app["metadata"] = json!({
            "name": "app", "uid": "app", "resourceVersion": "1", "labels": {PROTECT: "true"},
        });
        let (text, _) = explained(shop.with(path, app)).await;
        let remark = "label pod-reloader.cs.sap.com/protect=true protects nothing: a ConfigMap takes one of always, in-use, keep\n";
        assert_mentions(&text, remark);
    }

    /// Returns a cluster in which a restart of `web` is due.
    fn due(web: Value, app: Value) -> Canned {
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all("/apis/apps/v1/namespaces/shop/deployments", &[web])
            .with_all("/api/v1/namespaces/shop/configmaps", &[app])
            .reporting("restart due for a change; version 0.1.0; content 48a63946")
    }

    #[tokio::test]
    async fn stage_hold_and_approval_are_explained() {
        let mut web = deployment("web");
        let annotations = [
            ("configmaps", "app"),
            ("staged", "configmaps"),
            ("stage", "0"),
            ("soak", "5m"),
            ("approval", "required"),
            ("approve", "11111111"),
            ("together", "app, secret/app"),
        ];
        for (key, value) in annotations {
            web["metadata"]["annotations"][format!("pod-reloader.cs.sap.com/{key}")] = json!(value);
        }
        let mut held = web.clone();
        held["metadata"]["annotations"]["pod-reloader.cs.sap.com/hold"] = json!("true");
        let mut app = config_map("app", "key");
        app["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/hold": "true"});
        let (text, _) = explained(due(web, config_map("app", "key"))).await;
        for line in [
            "out of date: a restart is due; content 48a63946 waits for approval\n",
            "Stage        0, for changes of ConfigMaps: others follow when it has been healthy for 300 s, ",
            "Together     app, secret/app: when one has changed, the others are waited for, for 900 s at most\n",
            "Approval     required for content 48a63946; approved is 11111111\n",
        ] {
            assert_mentions(&text, line);
        }
        let (text, json) = explained(due(held, app.clone())).await;
        assert_mentions(&text, "a restart is due; it is on hold\n");
        let lines = "On hold      by its own annotation\n             by ConfigMap app\n";
        assert_mentions(&text, lines);
        assert_eq!(json["onHold"], true);
        assert_eq!(json["heldBy"], json!(["ConfigMap app"]));
        assert_eq!(json["pending"], "48a63946");
        assert_eq!(json["staging"]["soakSeconds"], 300.0);
        assert_eq!(json["together"]["timeoutSeconds"], 900.0);

        let mut gated = deployment("web");
        let annotations = &mut gated["metadata"]["annotations"];
        annotations["pod-reloader.cs.sap.com/configmaps"] = json!("app");
        annotations["pod-reloader.cs.sap.com/restart-window"] = json!("Mon-");
        let (text, json) = explained(due(gated, app)).await;
        let never = "cannot be read, so the pods are not restarted";
        assert!(text.contains(&format!("Window       {never}\n")), "{text}");
        assert_eq!(json["windowOpens"], never);
    }

    #[tokio::test]
    async fn a_hold_of_the_namespace_is_explained() {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
        let mut inherits = operator();
        inherits["spec"]["template"]["spec"]["containers"][0]["args"] =
            json!(["--hash-keys-secret=keys", "--namespace-annotations"]);
        let namespace = json!({"metadata": {
            "name": "shop", "annotations": {"pod-reloader.cs.sap.com/hold": "true"},
        }});
        let namespaced = due(web, config_map("app", "key"))
            .with("/apis/apps/v1/deployments", json!({"items": [inherits]}))
            .with("/api/v1/namespaces/shop", namespace);
        let (text, _) = explained(namespaced).await;
        assert_mentions(&text, "a restart is due; its Namespace is on hold\n");
        assert_mentions(&text, "On hold      by its Namespace\n");
    }

    /// The apiserver accepts such times, and we cannot parse them.
    #[tokio::test]
    async fn times_out_of_range_break_nothing() {
        let event = |time: &str| {
            json!({
                "reportingComponent": "pod-reloader", "reason": "ConfigChanged", "type": "Normal",
                "message": "restarting pods", "lastTimestamp": time, "eventTime": time,
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web"},
            })
        };
        let times = [
            "9999-12-31T23:59:59.999999Z",
            "0000-01-01T00:00:00Z",
            "-9999-01-02T02:00:00Z",
            "soon",
        ];
        let events = json!({"items": times.map(event)});
        let canned = shop(Some("pod-reloader"), 0).with("/api/v1/namespaces/shop/events", events);
        let mut replica_set = deployment("web-1");
        replica_set["metadata"]["ownerReferences"] = json!([{"uid": "web", "controller": true}]);
        replica_set["spec"]["template"] = json!({
            "metadata": {"annotations": {"pod-reloader.cs.sap.com/config-hash": "it"}},
        });
        for time in times {
            replica_set["metadata"]["creationTimestamp"] = json!(time);
            let replica_sets = "/apis/apps/v1/namespaces/shop/replicasets";
            let canned = canned.clone();
            let (text, _) = explained(canned.with_all(replica_sets, &[replica_set.clone()])).await;
            assert_mentions(&text, "Config hash");
        }
    }
}
