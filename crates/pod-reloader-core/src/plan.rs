//! Predicts what the loop will do with a workload once its objects, or the workload itself, have changed.
//!
//! Only the operator can verify a config hash. But it tells whether a workload is up to date: then the hash stands
//! for the objects as they are now, and so does a hash of them under any other key. With such a hash in its place,
//! [`decide`] says what follows from other objects.

use serde_json::value::RawValue;

use crate::decision::{Cause, FirstStamp, baseline_by_time, decide};
use crate::digest::{Content, Objects, Presence};
use crate::hash::{HashKey, KEY_LENGTH, Keyring};
use crate::kind::WorkloadKind;
use crate::reference::Reference;
use crate::review::RawWorkload;
use crate::sync_status::SyncStatus;
use crate::workload::{Restart, Workload};

/// A workload, and the objects that it may track.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// The objects, each as it is or will be.
    pub objects: &'a Objects,
}

/// Returns the sync status of a managed workload once it is in the state `after`, given its state and its sync
/// status now. Its pod template stays the same meanwhile: otherwise the pods are restarted anyway.
///
/// # Caveats
///
/// [`SyncStatus::Unknown`] means that nobody can tell: it depends on the content that the pods have now.
pub fn sync_status_after(
    now: State<'_>,
    sync_status: SyncStatus,
    after: State<'_>,
    first_stamp: FirstStamp,
) -> SyncStatus {
    // This key is used here alone. What is made under it is never stored, so it need not be secret.
    let keys = Keyring::new(vec![HashKey::new([0; KEY_LENGTH])]).expect("there is a key");
    let bears_hash = after.workload.config_hash().is_some();
    let workload = match sync_status {
        SyncStatus::Current if has_nothing_of_ours(now.workload) => after.workload.clone(),
        SyncStatus::Current | SyncStatus::BaselineDue => up_to_date(now, after.workload, &keys),
        _ if after.workload.missing(after.objects).next().is_some() => {
            return SyncStatus::MissingConfig;
        }
        SyncStatus::Due(cause) => return SyncStatus::Due(cause),
        SyncStatus::MissingConfig if bears_hash => return SyncStatus::Due(Cause::Changed),
        // A hash that was left when the workload opted out may stand for anything.
        SyncStatus::NotManaged if bears_hash => return SyncStatus::Unknown,
        SyncStatus::Unknown => return SyncStatus::Unknown,
        SyncStatus::MissingConfig | SyncStatus::NotManaged => after.workload.clone(),
    };
    SyncStatus::from(&decide(&workload, after.objects, &keys, first_stamp))
}

/// Returns true if a write changes a pod template of a workload by more than our annotations. An object that cannot
/// be read counts as changed.
pub fn changes_template(kind: WorkloadKind, now: &RawValue, after: &RawValue) -> bool {
    let read = |object| RawWorkload::of(object, kind).ok();
    let both = read(now).zip(read(after));
    !both.is_some_and(|(now, after)| after.same_templates_but_for_ours(&now))
}

/// A tracked object whose tracked content changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub reference: Reference,
    /// The change.
    pub change: Change,
}

/// A change of the content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is created.
    Created,
    /// The object is deleted.
    Deleted,
    /// These keys are added, removed or get other values.
    Keys(Vec<Box<str>>),
}

impl Change {
    /// Returns the change from one content of an object to another. `None` if both are the same.
    pub fn of(now: &Presence, after: &Presence) -> Option<Self> {
        match (now, after) {
            (Presence::Absent, Presence::Absent) => None,
            (Presence::Absent, Presence::Present(_)) => Some(Self::Created),
            (Presence::Present(_), Presence::Absent) => Some(Self::Deleted),
            (Presence::Present(now), Presence::Present(after)) => {
                let keys: Vec<_> = now.differing_keys(after).map(Into::into).collect();
                (now.digest != after.digest).then_some(Self::Keys(keys))
            }
        }
    }
}

/// Returns the differences between two states of the objects of a workload, as far as it tracks them.
pub fn differences(workload: &Workload, now: &Objects, after: &Objects) -> Vec<Difference> {
    let absent = Presence::Absent;
    let contents = |objects| workload.references.contents(objects).0;
    let (before, contents) = (contents(now), contents(after));
    let of = |(reference, content): &(&Reference, Content<'_>)| {
        let old = before.iter().find(|(own, _)| own == reference);
        let old = old.map(|(_, content)| content);
        if old.is_some_and(|old| old == content) {
            return None;
        }
        let new = after.get(*reference).unwrap_or(&absent);
        let change = Change::of(now.get(*reference).unwrap_or(&absent), new)?;
        let change = match (change, old, content) {
            (Change::Keys(_), Some(Content::Entries(old)), Content::Entries(new)) => {
                let differing = new.iter().filter(|entry| !old.contains(entry));
                Change::Keys(differing.map(|(key, _)| (*key).into()).collect())
            }
            (change, ..) => change,
        };
        Some(Difference {
            reference: (*reference).clone(),
            change,
        })
    };
    contents.iter().filter_map(of).collect()
}

/// Returns true if a workload bears no hash and no baseline. Then it tracks nothing, if it is up to date.
fn has_nothing_of_ours(workload: &Workload) -> bool {
    workload.config_hash().is_none() && workload.markers.baseline.is_none()
}

/// Returns `after` with a hash, or a baseline, of the objects `now`.
fn up_to_date(now: State<'_>, after: &Workload, keys: &Keyring) -> Workload {
    let hash = keys.hash(&now.workload.references.contents(now.objects));
    let hash = hash.to_string();
    let mut workload = after.clone();
    let bears_hash = workload.config_hash().is_some();
    workload.markers.baseline = match &workload.restart {
        Restart::At { .. } => Some(baseline_by_time(&hash).into()),
        Restart::Template if !bears_hash => Some(format!("={hash}").into()),
        Restart::Template => None,
    };
    for template in &mut workload.templates {
        let own = template.config_hash.as_mut();
        own.into_iter().for_each(|own| *own = hash.as_str().into());
    }
    workload
}

#[cfg(test)]
mod tests;
