//! `explain`: what counts for a workload, whether it is up to date, and when and why it was restarted.

mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use pod_reloader::args::Reconcile;
use pod_reloader_core::claim::Keys;
use pod_reloader_core::discovery::Consumption;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::standing::Standing;
use pod_reloader_core::workload::{Restart, Stall};
use serde::Serialize;

use self::standing::stands;
use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::history::{self, Event, when};
use crate::objects::{self, Found};
use crate::operators::{Operator, Operators};
use crate::print::{Answer, Verdict, bold, by, fields, safe, section, table};
use crate::rollout::Rollout;
use crate::workloads::{self, Seen, consumption};

/// Everything there is to tell about one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    kind: String,
    namespace: String,
    name: String,
    /// Whether it is kept.
    is_kept: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_kept_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<OperatorSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    /// In the words of the operator, or `not asked`.
    standing: String,
    /// What that means.
    #[serde(skip)]
    meaning: String,
    #[serde(skip)]
    verdict: Option<Verdict>,
    /// What its pods need to start and what is not there.
    waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_restart: Option<LastRestart>,
    rollout: String,
    /// How long its objects must be quiet before it is restarted, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    settle_period_seconds: Option<f64>,
    objects: Vec<ObjectRow>,
    /// What is wrong with its annotations and labels.
    advice: Vec<String>,
    /// Of the last hour.
    problems: Vec<Event>,
    /// What you may not see.
    unseen: Vec<String>,
    #[serde(skip)]
    asked_at: Timestamp,
}

#[derive(Clone, Debug, Serialize)]
struct OperatorSummary {
    namespace: String,
    name: String,
    version: String,
    reconcile: String,
}

#[derive(Debug, Serialize)]
struct LastRestart {
    /// When its pods got their config hash.
    at: Timestamp,
    /// What for, while Events tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct ObjectRow {
    kind: String,
    name: String,
    /// `None` where you may not see that.
    exists: Option<bool>,
    /// Whether a change of it restarts the workload.
    counts: bool,
    /// The keys that count, where not all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<BTreeSet<String>>,
    /// How the pods use it.
    uses: Vec<&'static str>,
    /// Without which of it the pods do not start.
    needs: Vec<String>,
}

/// Explains a workload.
pub(crate) async fn explain(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
) -> Result<(Explanation, Verdict), Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let workload = &seen.workload;
    let uses = seen.uses();
    let (found, unlisted) = objects::of_workload(cluster, &seen, uses.keys()).await;
    let inquiry = match &seen.obstacle {
        None => Some(seen.inquire(cluster).await),
        Some(_) => None,
    };
    let events = history::events(cluster, Some(&seen)).await;
    let since = history::hash_since(cluster, &seen).await;

    let mut unseen: Vec<_> = operators.unseen.clone();
    unseen.extend(seen.unseen.clone());
    unseen.extend(unlisted);
    unseen.extend(
        found
            .unseen
            .iter()
            .map(|(reference, error)| format!("{} {}: {error}", reference.kind, reference.name)),
    );
    unseen.extend(
        events
            .as_ref()
            .err()
            .map(|error| format!("why it was restarted: {error}")),
    );
    unseen.extend(
        since
            .as_ref()
            .err()
            .map(|error| format!("when it was restarted: {error}")),
    );
    let events = events.unwrap_or_default();
    let restart = events.iter().find(|event| event.is_of_a_hash());
    let hash_since = since.ok().flatten();
    // An Event about an earlier hash says nothing about this one.
    let restart = restart.filter(|event| hash_since.is_none_or(|since| event.at >= since - LEEWAY));
    let rollout = Rollout::of(workload, &seen.object);
    let (standing, meaning, verdict) = stands(&seen, inquiry.as_ref(), &rollout);
    let is_current = standing == Standing::Current.as_str();
    let waits_for = match is_current {
        true => Vec::new(),
        false => missing(&seen, &found),
    };
    let problems = history::problems(&events).into_iter();
    let problems = problems.filter(|event| !is_current || event.reason != "WaitingForConfig");
    let hash = workload.config_hash();
    let settle_period = |operator: &Operator| {
        workload
            .settle_period
            .unwrap_or(operator.args.settle_period)
    };
    let explanation = Explanation {
        kind: workload.id.kind.to_string(),
        namespace: workload.id.namespace.to_string(),
        name: workload.id.name.to_string(),
        is_kept: seen.obstacle.is_none(),
        not_kept_because: seen.obstacle.clone(),
        operator: seen.operator.map(summary),
        config_hash: hash.map(safe),
        key_id: hash
            .and_then(ConfigHash::parse)
            .map(|hash| hash.key_id().to_string()),
        standing,
        meaning,
        verdict: Some(verdict),
        waits_for,
        last_restart: restart
            .map(|event| event.at)
            .or(hash.and(hash_since))
            .map(|at| LastRestart {
                at,
                why: restart.map(|event| event.message.clone()),
            }),
        rollout: rollout.text().to_owned(),
        settle_period_seconds: seen
            .operator
            .map(|operator| settle_period(operator).as_secs_f64()),
        objects: rows(&seen, &found, &uses),
        advice: workload
            .advice
            .iter()
            .map(ToString::to_string)
            .chain(workload.references.rejected.iter().map(ToString::to_string))
            .collect(),
        problems: problems.cloned().collect(),
        unseen,
        asked_at: Timestamp::now(),
    };
    Ok((explanation, verdict))
}

/// So much later than its Event a ReplicaSet may seem to be, whose time has no fractions.
const LEEWAY: Duration = Duration::from_secs(2);

fn summary(operator: &Operator) -> OperatorSummary {
    OperatorSummary {
        namespace: operator.namespace.to_string(),
        name: operator.name.clone(),
        version: operator.version.clone(),
        reconcile: match operator.args.reconcile {
            Reconcile::On => "on",
            Reconcile::Observe => "observe",
            Reconcile::Off => "off",
        }
        .to_owned(),
    }
}

fn missing(seen: &Seen<'_>, found: &Found) -> Vec<String> {
    let missing = seen.workload.missing(&found.objects);
    missing
        .map(|requirement| {
            let object = format!(
                "{} {}",
                requirement.reference.kind, requirement.reference.name
            );
            match &requirement.key {
                Some(key) => format!("key {key} of {object}"),
                None => object,
            }
        })
        .collect()
}

fn rows(
    seen: &Seen<'_>,
    found: &Found,
    uses: &BTreeMap<Reference, Vec<Consumption>>,
) -> Vec<ObjectRow> {
    let references = &seen.workload.references;
    let needed = seen.needs();
    let all: BTreeSet<_> = found.objects.keys().chain(found.unseen.keys()).collect();
    let row = |reference: &Reference| {
        let keys = references.keys(reference);
        let presence = found.objects.get(reference);
        let needs = needed.iter();
        let needs = needs.filter(|it| it.reference == *reference);
        ObjectRow {
            kind: reference.kind.to_string(),
            name: reference.name.to_string(),
            exists: found.exists(reference),
            counts: seen.obstacle.is_none()
                && presence.map_or(keys.is_some(), |presence| {
                    references.counts(reference, presence)
                }),
            keys: match keys {
                Some(Keys::Named(keys)) => Some(keys.iter().map(|key| key.to_string()).collect()),
                Some(Keys::All) | None => None,
            },
            uses: uses
                .get(reference)
                .into_iter()
                .flatten()
                .map(|way| consumption(*way))
                .collect(),
            needs: needs
                .map(|it| it.key.as_deref().unwrap_or("the object").to_owned())
                .collect(),
        }
    };
    all.into_iter().map(row).collect()
}

impl Answer for Explanation {
    fn text(&self) -> String {
        let verdict = self.verdict.unwrap_or(Verdict::Unknown);
        let mut text = format!(
            "{}\n\n",
            bold(format!(
                "{} {} in namespace {}",
                self.kind, self.name, self.namespace
            ))
        );
        let mut lines = vec![("Config hash", by(verdict, &self.meaning).to_string())];
        if let Some(hash) = &self.config_hash {
            lines.push(("Value", hash.clone()));
        }
        if !self.waits_for.is_empty() {
            lines.push(("Waits for", self.waits_for.join("\n")));
        }
        if let Some(LastRestart { at, why }) = &self.last_restart {
            let why = why
                .as_deref()
                .unwrap_or("why is not known any more: Events are kept for an hour");
            lines.push(("Last hash", format!("{}\n{why}", when(*at, self.asked_at))));
        }
        lines.push(("Rollout", self.rollout.clone()));
        if let Some(operator) = &self.operator {
            let mut told = format!(
                "pod-reloader {} (deployment {} in namespace {})",
                operator.version, operator.name, operator.namespace
            );
            if operator.reconcile != "on" {
                told += &format!(", --reconcile={}", operator.reconcile);
            }
            lines.push(("Kept by", told));
        }
        if let (Some(settle), true) = (self.settle_period_seconds, self.is_kept) {
            let restarts = match self.objects.iter().any(|row| row.counts) {
                true => {
                    format!("when an object that counts changes, once all are quiet for {settle} s")
                }
                false => "by nothing: no object counts for it".to_owned(),
            };
            lines.push(("Restarts", restarts));
        }
        text += &fields(&lines);
        if !self.objects.is_empty() {
            let rows: Vec<_> = self.objects.iter().map(ObjectRow::cells).collect();
            text += "\n";
            text += &table(["OBJECT", "THERE", "COUNTS", "USED AS", "PODS NEED"], &rows);
        }
        text += &section("Wrong in its annotations", &self.advice);
        text += &section("Not seen", &self.unseen);
        let problems = self.problems.iter().map(|event| {
            let at = when(event.at, self.asked_at);
            format!("{}, {at}: {}", event.reason, event.message)
        });
        text + &section("Warnings of the last hour", &Vec::from_iter(problems))
    }
}

impl ObjectRow {
    fn cells(&self) -> [String; 5] {
        let exists = match self.exists {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let counts = match (&self.keys, self.counts) {
            (_, false) => "no".to_owned(),
            (None, true) => "all of it".to_owned(),
            (Some(keys), true) => Vec::from_iter(keys.iter().map(String::as_str)).join(", "),
        };
        [
            format!("{} {}", self.kind, self.name),
            exists.to_owned(),
            counts,
            match self.uses.is_empty() {
                true => "-".to_owned(),
                false => self.uses.join(", "),
            },
            match self.needs.is_empty() {
                true => "-".to_owned(),
                false => self.needs.join(", "),
            },
        ]
    }
}

/// What keeps pods from being restarted though their workload has a new hash, in words.
pub(crate) fn stall(seen: &Seen<'_>) -> Option<&'static str> {
    match (seen.workload.stall?, &seen.workload.restart) {
        (Stall::Paused, _) => Some("paused: when it is resumed"),
        (Stall::OnDelete, Restart::Template) => Some("OnDelete: each pod when it is deleted"),
        (Stall::OnDelete, Restart::At { .. }) => None,
    }
}
