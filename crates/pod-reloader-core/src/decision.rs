//! Decides whether a workload needs a new config hash: the rule of the reconcile loop.

use std::collections::BTreeSet;

use crate::dialects::OptIn;
use crate::digest::{Contents, Objects};
use crate::discovery::Unmet;
use crate::hash::{ConfigHash, KeyId, Keyring, Verdict};
use crate::sap;
use crate::workload::{Restart, Workload};

/// The treatment of a workload that has opted in and has no config hash yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStamp {
    /// A config hash, which restarts the pods once.
    Rollout,
    /// A baseline, so the first restart comes with the first change of content.
    Baseline,
}

/// The action for a workload, given the contents of the objects that it tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave the workload unchanged: what it carries stands for the contents.
    Unchanged,
    /// Leave the workload unchanged because its pods could not start: these objects or keys are missing.
    MissingConfig(Vec<Unmet>),
    /// Set this config hash, which restarts the pods.
    Set {
        /// The config hash.
        config_hash: String,
        /// The reason for the restart.
        cause: Cause,
    },
    /// Write this baseline, which restarts nothing.
    Baseline(String),
}

/// The reason why pods are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The workload has just opted in.
    FirstStamp,
    /// The contents changed.
    Changed,
    /// SAP's hash does not verify: something changed while no controller was running.
    ChangedBeforeTakeover,
    /// The workload has just asked for pins.
    Pinned,
    /// The Secrets Store CSI driver has given the pods other versions of secrets: see
    /// [`rotation`](crate::rotation).
    Rotated,
}

impl Cause {
    /// Returns true if the pods get other content than they have.
    pub fn is_of_content(self) -> bool {
        match self {
            Self::Changed | Self::ChangedBeforeTakeover => true,
            // What is mounted has changed before.
            Self::FirstStamp | Self::Pinned | Self::Rotated => false,
        }
    }
}

/// Decides what `workload` should carry, given the `objects` that it may track.
///
/// # Guarantees
///
/// - A value that verifies under any key stays.
/// - A value that cannot be verified is never by itself a reason to restart. Nor is a change of the set of
///   tracked objects that comes from a mark on one of them, or from a dialect that was enabled.
/// - No pod is restarted into a configuration that it cannot start with.
///
/// # Caveats
///
/// `objects` must hold every reference of the workload, each from one consistent read. Without the
/// [untracked objects that the pods need](Workload::untracked_needs), the last guarantee does not cover them.
pub fn decide(
    workload: &Workload,
    objects: &Objects,
    keys: &Keyring,
    first_stamp: FirstStamp,
) -> Decision {
    if workload.references.is_empty() || !workload.can_be_restarted() {
        return Decision::Unchanged;
    }
    let facts = Facts {
        workload,
        objects,
        contents: workload.references.contents(objects),
        keys,
    };
    let decision = match (workload.config_hash(), reloaded(workload)) {
        // Whatever the config hash stands for, the pods have reloaded since.
        (value, Some(hash)) => facts.by_reload(value.unwrap_or_default(), hash),
        // For a workload restarted by a time, the baseline says what its last restart was for.
        _ if workload.restart != Restart::Template => facts.by_baseline(BY_TIME),
        (Some(value), None) => facts.by_hash(value),
        // A workload with a baseline retains it when `firstStamp: baseline` is switched off, and when the
        // workload is no longer restarted by a time.
        (None, None) if facts.baseline("").or(facts.baseline(BY_TIME)).is_some() => {
            facts.by_baseline("")
        }
        // Opting in through another controller's annotations causes no restart there, either.
        (None, None) if workload.opt_in != OptIn::ByUs => facts.by_baseline(""),
        (None, None) if first_stamp == FirstStamp::Baseline => facts.by_baseline(""),
        // Nothing is tracked yet, so the first object to appear is a change.
        (None, None) if facts.contents.is_empty() => facts.by_baseline(""),
        (None, None) => facts.set(Cause::FirstStamp),
    };
    let decision = match decision {
        Decision::Unchanged if !workload.templates_agree() => facts.set(Cause::Changed),
        Decision::Unchanged if first_stamp == FirstStamp::Rollout && facts.lacks_pins() => {
            facts.set(Cause::Pinned)
        }
        decision => decision,
    };
    // This holds even for a hash that stands for an absent object: no pod starts until the object exists. Objects that
    // are not tracked matter only to pods that are about to start.
    let mut missing = workload.missing_tracked(objects);
    if matches!(decision, Decision::Set { .. }) {
        missing.append(&mut workload.missing_untracked(objects));
    }
    if missing.is_empty() {
        decision
    } else {
        Decision::MissingConfig(missing.into_iter().collect())
    }
}

/// The inputs of a decision.
struct Facts<'a> {
    workload: &'a Workload,
    objects: &'a Objects,
    contents: Contents<'a>,
    keys: &'a Keyring,
}

impl<'a> Facts<'a> {
    fn by_hash(&self, value: &str) -> Decision {
        match self.keys.verify(value, &self.contents) {
            Verdict::Current => Decision::Unchanged,
            Verdict::Outdated => {
                let of = format!("{value}{OTHERWISE}");
                match (self.baseline(&of), self.baseline(BY_TIME)) {
                    (Some(hash), _) => self.compare(hash, &of),
                    // The workload has been restarted by a time since.
                    (None, Some(hash)) if self.is_current(hash) => self.new_baseline(&of),
                    (None, _) => self.compare(value, &of),
                }
            }
            Verdict::Foreign => self.by_baseline(value),
        }
    }

    /// Decides by the baseline, for a config hash that says nothing about contents.
    fn by_baseline(&self, value: &str) -> Decision {
        match self.baseline(value) {
            Some(hash) => self.compare(hash, value),
            None => match self.of_another_way() {
                Some(hash) if self.is_current(hash) => self.new_baseline(value),
                Some(hash) => self.compare(hash, value),
                None => self.take_over(value),
            },
        }
    }

    /// Decides by what the pods have reloaded since the config hash `value` was set.
    fn by_reload(&self, value: &str, hash: &str) -> Decision {
        match hash {
            // Some of them may have.
            UNFINISHED => self.set(Cause::Changed),
            hash => self.compare(hash, &format!("{value}{RELOADED}")),
        }
    }

    /// Takes over a workload when no hash of ours says which contents its pods have.
    fn take_over(&self, value: &str) -> Decision {
        match sap::verify(value, self.workload, self.objects) {
            Verdict::Outdated if !self.contents.is_empty() => {
                self.set(Cause::ChangedBeforeTakeover)
            }
            _ => self.new_baseline(value),
        }
    }

    /// Returns the hash of the workload's last restart, if that restart was not made in the way that the
    /// next one will be: by the pod template before it was restarted by a time, or by a time before that. A
    /// change that is pending when somebody switches between the two is still due.
    fn of_another_way(&self) -> Option<&'a str> {
        if self.workload.restart == Restart::Template {
            return self.baseline(BY_TIME);
        }
        let value = self.workload.left_config_hash();
        let stands_in = self.baseline(value.unwrap_or_default());
        let otherwise = || self.baseline(&format!("{}{OTHERWISE}", value?));
        stands_in.or_else(otherwise).or(value)
    }

    /// Decides by a hash that should stand for the contents. If it stands for these same objects as of a time
    /// when different ones were tracked, the decision is a baseline that says so.
    fn compare(&self, hash: &str, of: &str) -> Decision {
        match self.keys.verify(hash, &self.contents) {
            Verdict::Current => Decision::Unchanged,
            Verdict::Foreign => self.new_baseline(of),
            Verdict::Outdated => {
                let references = &self.workload.references;
                let hash = self.keys.comparison(hash);
                match hash.is_some_and(|hash| references.tracked_otherwise(self.objects, &hash)) {
                    true => self.new_baseline(of),
                    false => self.set(Cause::Changed),
                }
            }
        }
    }

    /// Returns true if the pods have the right content, but not from copies, because the workload pinned nothing
    /// when they were rolled out.
    fn lacks_pins(&self) -> bool {
        self.workload.config_hash().is_some() && self.workload.lacks_pins(self.objects)
    }

    fn is_current(&self, hash: &str) -> bool {
        self.keys.verify(hash, &self.contents) == Verdict::Current
    }

    /// Returns the hash of the workload's baseline, if the baseline belongs to `of`.
    fn baseline(&self, of: &str) -> Option<&'a str> {
        baseline(self.workload, of)
    }

    fn new_baseline(&self, of: &str) -> Decision {
        Decision::Baseline(format!("{of}={}", self.hash()))
    }

    fn set(&self, cause: Cause) -> Decision {
        Decision::Set {
            config_hash: self.hash().to_string(),
            cause,
        }
    }

    /// Returns the hash of the contents, with the mark of the last rotation.
    fn hash(&self) -> ConfigHash {
        let hash = self.keys.hash(&self.contents);
        let hash = hash.carrying(self.workload.last_hash());
        let baseline = self.workload.markers.baseline.as_deref();
        unless_reloaded(baseline, hash, self.keys)
    }
}

/// Stands in place of the config hash in a baseline: the last restart was by a time, for the hash that
/// follows.
const BY_TIME: &str = "at";

/// Follows the config hash in a baseline: that hash verifies under a known key, but different objects are
/// tracked now than when it was made.
const OTHERWISE: &str = "~";

/// Follows the config hash in a baseline: the pods have reloaded the content of the hash that follows since that config
/// hash was set. What the config hash stands for is no longer what they have.
const RELOADED: &str = "!";

/// Stands in place of the hash in such a baseline while pods reload: nobody knows which of them have.
const UNFINISHED: &str = "-";

/// Returns the hash of the content that the pods have reloaded since the config hash was set, if they have.
fn reloaded(workload: &Workload) -> Option<&str> {
    let (own, hash) = reload_of(workload.markers.baseline.as_deref()?)?;
    let is_of_now = own == workload.config_hash().unwrap_or_default();
    (workload.restart == Restart::Template && is_of_now).then_some(hash)
}

/// Returns the parts of a baseline that says what pods have reloaded: the config hash of that time, and the hash.
fn reload_of(baseline: &str) -> Option<(&str, &str)> {
    let (own, hash) = baseline.rsplit_once('=')?;
    Some((own.strip_suffix(RELOADED)?, hash))
}

/// Returns true if the baseline of `workload` says what pods have reloaded, even if another config hash was set since.
pub(crate) fn has_reload_baseline(workload: &Workload) -> bool {
    let baseline = workload.markers.baseline.as_deref();
    baseline.and_then(reload_of).is_some()
}

/// Returns true if pods of `workload` have begun to reload, and nobody knows which of them have.
pub fn is_reloading(workload: &Workload) -> bool {
    reloaded(workload) == Some(UNFINISHED)
}

/// Returns the value that stands for the content that the pods have: the config hash, or the baseline if the pods have
/// reloaded since, or if there is no config hash.
pub fn present_value(workload: &Workload) -> Option<&str> {
    let baseline = workload.markers.baseline.as_deref();
    match reloaded(workload) {
        Some(_) => baseline,
        None => workload.config_hash().or(baseline),
    }
}

/// Returns the baseline of a workload whose pods are about to reload.
pub fn baseline_before_reload(workload: &Workload) -> String {
    baseline_after_reload(workload, UNFINISHED)
}

/// Returns the baseline of a workload whose pods have all reloaded the content of `config_hash`.
pub fn baseline_after_reload(workload: &Workload, config_hash: &str) -> String {
    let value = workload.config_hash().unwrap_or_default();
    format!("{value}{RELOADED}={config_hash}")
}

/// Returns `hash`, or another hash of the same contents if `baseline` says that pods have reloaded since that very hash
/// was set: written again, it would restart nothing, and would still stand for what they have reloaded.
pub fn unless_reloaded(baseline: Option<&str>, hash: ConfigHash, keys: &Keyring) -> ConfigHash {
    let own = baseline.and_then(reload_of).map(|(own, _)| own);
    match own == Some(&hash.to_string()) {
        true => hash.renewed(keys),
        false => hash,
    }
}

/// Returns true if `baseline` says that pods have reloaded since the config hash `value` was set.
pub(crate) fn has_reloaded(baseline: Option<&str>, value: &str) -> bool {
    let own = baseline.and_then(reload_of).map(|(own, _)| own);
    own == Some(value)
}

/// Returns the keys needed to tell whether `workload` is up to date: the key of its config hash, and the
/// key of the baseline that belongs to that hash.
pub fn keys_relied_on(workload: &Workload) -> BTreeSet<KeyId> {
    let value = workload.config_hash();
    let of = value.unwrap_or_default();
    let reloaded = reloaded(workload);
    let baseline = reloaded
        .or_else(|| baseline(workload, of))
        .or_else(|| baseline(workload, &format!("{of}{OTHERWISE}")))
        .or_else(|| baseline(workload, BY_TIME));
    let hashes = value.into_iter().chain(baseline);
    hashes
        .filter_map(ConfigHash::parse)
        .map(|hash| hash.key_id)
        .collect()
}

/// Returns the baseline of a workload that was restarted by a time, for this config hash.
pub fn baseline_by_time(config_hash: &str) -> String {
    format!("{BY_TIME}={config_hash}")
}

/// Returns true if a baseline belongs to a workload with this config hash.
pub(crate) fn speaks_of(baseline: &str, value: Option<&str>) -> bool {
    let own = baseline.rsplit_once('=').map(|(own, _)| own);
    own.is_some_and(|own| {
        let own = [OTHERWISE, RELOADED]
            .iter()
            .find_map(|it| own.strip_suffix(it))
            .unwrap_or(own);
        own == BY_TIME || own == value.unwrap_or_default()
    })
}

/// Returns the hash of a workload's baseline, if the baseline belongs to `of`.
pub(crate) fn baseline<'a>(workload: &'a Workload, of: &str) -> Option<&'a str> {
    let (own, hash) = workload.markers.baseline.as_deref()?.rsplit_once('=')?;
    (own == of).then_some(hash)
}

#[cfg(test)]
mod tests;
