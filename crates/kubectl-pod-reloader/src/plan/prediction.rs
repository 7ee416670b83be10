//! Predicts what becomes of one workload.

use std::collections::BTreeSet;

use pod_reloader_core::annotations::BASELINE;
use pod_reloader_core::decision::{Cause, FirstStamp};
use pod_reloader_core::digest::{Aspects, ConfigObject, Objects, Presence};
use pod_reloader_core::plan::{self, Change, Difference, State};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::sync_status::SyncStatus;
use pod_reloader_core::workload::{Rare, Workload};
use pod_reloader_settings::Reconcile;
use serde_json::json;

use super::edits::Edits;
use super::row::{Because, Restarts, Row};
use crate::cluster::Cluster;
use crate::gates;
use crate::objects;
use crate::rollout::stall;
use crate::steps::Restarted;
use crate::workloads::{Reply, Seen};

/// A workload that manifests write, or that uses what they write.
pub(super) struct Case<'a> {
    /// The workload as it is. `None` if it does not exist.
    pub(super) now: Option<Seen<'a>>,
    /// The workload as it would be stored. `None` if nothing writes it.
    pub(super) after: Option<Seen<'a>>,
    /// True if its pod template changes.
    pub(super) changes_template: bool,
}

impl<'a> Case<'a> {
    /// Returns the workload as it will be.
    pub(super) fn after(&self) -> &Seen<'a> {
        let after = self.after.as_ref().or(self.now.as_ref());
        after.expect("it exists, or will exist")
    }
}

/// Predicts what becomes of a workload. Also returns everything that could not be seen.
pub(super) async fn predict(
    cluster: &Cluster,
    case: &Case<'_>,
    edits: &Edits,
) -> (Row, Vec<String>) {
    let Case {
        now,
        changes_template,
        ..
    } = case;
    let after = case.after();
    let row = |restarts, reason: String| Row::new(after, restarts, reason);
    if let (true, Some(_)) = (changes_template, now) {
        let reason = "its pod template changes".to_owned();
        return (row(Restarts::ByItself, reason), Vec::new());
    }
    let obstacle = after.obstacle.as_ref();
    if let (Some(obstacle), Some(_)) = (obstacle, now) {
        let reason = format!("not managed: {obstacle}");
        return (row(Restarts::No, reason), Vec::new());
    }
    let (objects, unseen) = Before::and_after(cluster, case, edits).await;
    let Some(now) = now else {
        let missing = objects::missing(after, &objects.after).join(", ");
        let reason = match &*missing {
            "" => "it is new".to_owned(),
            missing => format!("it is new, and its pods wait for {missing}"),
        };
        return (row(Restarts::New, reason), unseen);
    };
    let differences = plan::differences(&after.workload, &objects.now, &objects.after);
    let is_unaffected = differences.is_empty() && !objects.are_held_otherwise(after);
    if is_unaffected && !is_edited(now, after) {
        return (row(Restarts::No, unaffected(after, edits)), unseen);
    }
    predict_loop(cluster, (now, after), &objects, differences, unseen).await
}

/// The objects of one workload, as they are and as they will be.
struct Before {
    now: Objects,
    after: Objects,
}

/// Predicts what the loop does with a managed workload whose objects or annotations change.
async fn predict_loop(
    cluster: &Cluster,
    (now, after): (&Seen<'_>, &Seen<'_>),
    objects: &Before,
    differences: Vec<Difference>,
    mut unseen: Vec<String>,
) -> (Row, Vec<String>) {
    let row = |restarts, reason: String| Row::new(after, restarts, reason);
    let (sync_status, pending) = sync_status(cluster, now, &mut unseen).await;
    let first_stamp = after.operator.map(|it| it.args.first_stamp.into());
    let (state_now, state_after) = (
        State {
            workload: &now.workload,
            objects: &objects.now,
        },
        State {
            workload: &after.workload,
            objects: &objects.after,
        },
    );
    let first_stamp = first_stamp.unwrap_or(FirstStamp::Rollout);
    let status = plan::sync_status_after(state_now, sync_status, state_after, first_stamp);
    let mut row = match status {
        SyncStatus::Current | SyncStatus::NotManaged => {
            row(Restarts::No, "what it tracks stays the same".to_owned())
        }
        SyncStatus::BaselineDue => row(
            Restarts::No,
            format!("its current content is recorded in its annotation {BASELINE}"),
        ),
        SyncStatus::Unknown => row(
            Restarts::Unknown,
            "it depends on the content that its pods have".to_owned(),
        ),
        SyncStatus::MissingConfig => {
            let missing = objects::missing(after, &objects.after).join(", ");
            row(
                Restarts::Waits,
                format!("its pods could not start without {missing}"),
            )
        }
        SyncStatus::Due(cause) => {
            let is_due = matches!(sync_status, SyncStatus::Due(_));
            let tracks_the_same = now.workload.references == after.workload.references;
            let content = pending.filter(|_| tracks_the_same && differences.is_empty());
            let content = content.unwrap_or_default();
            let mut row = due(after, (cause, is_due), objects, &differences, &content);
            let reloads = tracks_the_same && cause == Cause::Changed && !is_due;
            if row.restarts == Restarts::Yes && reloads && reach_pods(after, &differences) {
                row.restarts = Restarts::Reloads;
                row.reason +=
                    "; its pods are asked to reload it, and restarted if one of them does not";
            }
            row
        }
    };
    row.because = differences.into_iter().map(Because::from).collect();
    (row, unseen)
}

/// Returns the row of a workload for which a restart is due then. `content` is what it gets, as far as that is known.
fn due(
    after: &Seen<'_>,
    (cause, is_due_now): (Cause, bool),
    objects: &Before,
    differences: &[Difference],
    content: &str,
) -> Row {
    let why = match cause {
        _ if is_due_now => "a restart is due already".to_owned(),
        Cause::FirstStamp => "it opts in, and gets its first hash".to_owned(),
        Cause::Pinned => "it asks for pins, and gets its first copies".to_owned(),
        Cause::Rotated => "its mounted secrets were rotated".to_owned(),
        Cause::Changed | Cause::ChangedBeforeTakeover => match differences {
            [] => "it tracks other objects than before".to_owned(),
            differences => in_words(differences),
        },
    };
    let waits = match after.operator.map(|it| it.args.reconcile) {
        Some(Reconcile::Nothing) => Some((Restarts::No, "the operator runs with --reconcile=none")),
        Some(Reconcile::Observe) => Some((Restarts::No, "the operator only observes")),
        Some(Reconcile::Restart) | None => None,
    };
    if let Some((restarts, remark)) = waits {
        return Row::new(after, restarts, format!("{why}, but {remark}"));
    }
    if let Some(closed) = gates::closed(after, &objects.after, content) {
        let reason = format!("{why}; {}", gates::words(&closed));
        return Row::new(after, Restarts::Waits, reason);
    }
    let reason = match stall(after) {
        Some(stall) => format!("{why}; {stall}"),
        None => why,
    };
    let mut row = Row::new(after, Restarts::Yes, reason);
    let kinds = differences.iter().map(|it| it.reference.kind);
    row.restarted = cause
        .is_of_content()
        .then(|| Restarted::of(after, kinds))
        .flatten();
    row
}

/// Returns true if the pods of a workload reload these changes, in place of a restart.
fn reach_pods(seen: &Seen<'_>, differences: &[Difference]) -> bool {
    let Some(reload) = seen.workload.rare().http_reload.as_deref() else {
        return false;
    };
    let reaches =
        |it: &Difference| matches!(it.change, Change::Keys(_)) && reload.reaches(&it.reference);
    !differences.is_empty() && differences.iter().all(reaches)
}

impl Before {
    /// Reads the objects of a workload, and returns them as they are and as they will be. Also returns what could not
    /// be seen.
    async fn and_after(cluster: &Cluster, case: &Case<'_>, edits: &Edits) -> (Self, Vec<String>) {
        let after = case.after();
        let before = case.now.as_ref().unwrap_or(after);
        let named = before.workload.references.named();
        let needs = after.workload.untracked_needs();
        let named: BTreeSet<Reference> = named.chain(needs).cloned().collect();
        let (found, unseen) = objects::of_workload(cluster, after, named.iter()).await;
        let mut now = found.objects;
        // An object that the user may not see stays as it is, unless it is in the manifests.
        for reference in found.unseen.keys() {
            let keys = [before, after].map(|it| it.workload.data_keys(reference));
            let placeholder = placeholder(keys.into_iter().flatten());
            now.extend(placeholder.map(|it| (reference.clone(), Presence::Present(it))));
        }
        let aspects = Aspects {
            selector: after.operator.and_then(|it| it.scope.config_selector()),
            ..Aspects::default()
        };
        let mut then = now.clone();
        for (reference, edit) in &edits.config {
            let mention = |seen: &Seen<'_>| seen.workload.references.mention(reference);
            let is_needed = || after.workload.untracked_needs().any(|it| it == reference);
            if mention(before) || mention(after) || is_needed() {
                now.extend(edit.presence(aspects).map(|it| (reference.clone(), it)));
                then.extend(
                    edit.presence_after(aspects)
                        .map(|it| (reference.clone(), it)),
                );
            }
        }
        (Self { now, after: then }, unseen)
    }

    /// Returns true if an object that a workload tracks is put on hold, or released.
    fn are_held_otherwise(&self, seen: &Seen<'_>) -> bool {
        let references = &seen.workload.references;
        let is_held = |objects: &Objects, it| objects.get(it).is_some_and(Presence::is_held);
        let mut tracked = self
            .after
            .keys()
            .filter(|it| references.extent(it).is_some());
        tracked.any(|it| is_held(&self.now, it) != is_held(&self.after, it))
    }
}

/// Stands for an object that has these keys, and whose content is not known.
fn placeholder<'a>(keys: impl Iterator<Item = &'a str>) -> Option<ConfigObject> {
    let mut object = json!({"metadata": {"uid": "", "resourceVersion": ""}, "data": {}});
    for key in keys {
        object["data"][key] = "".into();
    }
    ConfigObject::parse(object.to_string().as_bytes(), Aspects::default()).ok()
}

/// Asks the operator for the sync status of a workload, and for the content that is due. Without an answer, the
/// workload is taken to be up to date.
async fn sync_status(
    cluster: &Cluster,
    now: &Seen<'_>,
    unseen: &mut Vec<String>,
) -> (SyncStatus, Option<String>) {
    if now.obstacle.is_some() {
        return (SyncStatus::NotManaged, None);
    }
    let id = &now.workload.id;
    let why = match now.query_status(cluster).await {
        Reply::Answered(report) => return (report.sync_status, report.content),
        Reply::Unanswered => "the webhook of pod-reloader did not answer".to_owned(),
        Reply::Impossible(error) => error.to_string(),
    };
    unseen.push(format!("whether {id} is up to date now: {why}"));
    (SyncStatus::Current, None)
}

/// Returns true if an edit of a workload changes what it tracks, how it is restarted, or what a restart waits for.
fn is_edited(now: &Seen<'_>, after: &Seen<'_>) -> bool {
    let parts = |seen: &Seen<'_>| {
        // Without `..`, so that a field that is added is not left out here.
        let Workload {
            references,
            opt_in,
            id: _,
            uid: _,
            generation: _,
            listed_only: _,
            requirements: _,
            untracked_requirements: _,
            templates: _,
            restart: _,
            stall: _,
            markers: _,
            staging: _,
            releases: _,
            rare: _,
        } = &seen.workload;
        let Rare {
            pinning,
            gates,
            together,
            api_version: _,
            settle_period: _,
            classes: _,
            http_reload: _,
            advice: _,
        } = seen.workload.rare();
        (
            references.clone(),
            pinning.clone(),
            gates.clone(),
            together.clone(),
            *opt_in,
            seen.is_managed(),
        )
    };
    parts(now) != parts(after)
}

/// Says why a managed workload is not affected.
fn unaffected(after: &Seen<'_>, edits: &Edits) -> String {
    let uses = after.uses();
    let references = &after.workload.references;
    let edited = || edits.config.iter().filter(|(_, edit)| edit.matters());
    let tracked = edited().find(|(reference, _)| references.mention(reference));
    let used = edited().find(|(reference, _)| uses.contains_key(*reference));
    match (tracked, used) {
        (Some((Reference { kind, name, .. }, _)), _) => {
            format!("what it tracks of {kind} {name} stays the same")
        }
        (None, Some((Reference { kind, name, .. }, _))) => {
            format!("it does not track {kind} {name}")
        }
        (None, None) => "nothing of it changes".to_owned(),
    }
}

/// Says which objects change, and in which keys.
fn in_words(differences: &[Difference]) -> String {
    let words = differences.iter().map(|Difference { reference, change }| {
        let Reference { kind, name, .. } = reference;
        format!("{kind} {name}: {}", change_in_words(change))
    });
    Vec::from_iter(words).join("; ")
}

/// Says how an object changes.
pub(super) fn change_in_words(change: &Change) -> String {
    match change {
        Change::Created => "created".to_owned(),
        Change::Deleted => "deleted".to_owned(),
        Change::Keys(keys) => crate::print::some(keys, 5),
    }
}
