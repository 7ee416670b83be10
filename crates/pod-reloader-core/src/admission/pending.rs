//! Decides how to answer a review whose answer depends on objects, once these were read.

mod pins;

use jiff::Timestamp;
use json_patch::PatchOperation;

use super::answer::{Answer, Desired, DesiredPins, OVERRIDDEN, Outcome, Stored, wanted};
use super::facts::Facts;
use crate::decision::{
    Cause, Decision, FirstStamp, baseline, decide, has_reloaded, unless_reloaded,
};
use crate::digest::{Contents, Objects};
use crate::gate::{self, Closed};
use crate::hash::{ConfigHash, Keyring, Verdict};
use crate::sap;
use crate::sync_status::SyncStatus;
use crate::texts::MAX_ANNOTATIONS_SIZE;
use crate::workload::Workload;

/// A review whose answer depends on the objects that the workload references.
#[derive(Debug)]
pub struct Pending {
    pub(super) workload: Workload,
    /// `None` during a create.
    pub(super) stored: Option<Stored>,
    /// True if the request set the config hash annotation itself. A policy may have put the old value back
    /// since then.
    pub(super) claims_hash: bool,
    /// True if the request is a status query.
    pub is_status_query: bool,
    /// True if the request changes nothing in the pod templates but our annotations.
    pub(super) has_same_template: bool,
    /// True if pins stand in the manifest that was applied. Nobody means to undo anything by that.
    pub(super) applies_pins: bool,
    /// True if nothing will be stored.
    pub(super) is_dry_run: bool,
    /// True if a new workload takes over pods that run its template already.
    pub(super) takes_over: bool,
    /// The patch that adds what the request does not say.
    pub(super) filling: Vec<PatchOperation>,
    /// The warning about that.
    pub(super) notice: Option<String>,
}

impl Pending {
    /// Returns the creation of a workload.
    pub(super) fn create(workload: Workload) -> Self {
        Self {
            workload,
            stored: None,
            claims_hash: false,
            is_status_query: false,
            has_same_template: false,
            applies_pins: false,
            is_dry_run: false,
            takes_over: false,
            filling: Vec::new(),
            notice: None,
        }
    }

    /// Returns true if nothing may be written for this request.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run || self.is_status_query
    }

    /// Returns the workload whose objects must be read, each by one consistent read.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns true if the current config hash was made under a key that `keys` lacks. The stored keys may
    /// be newer, so they must be read again before [`Pending::answer`].
    pub fn lacks_key(&self, keys: &Keyring) -> bool {
        self.current().is_some_and(|value| keys.lacks_key_of(value))
    }

    /// Returns the answer, given what was read. `facts` is `None` if something could not be read: then
    /// the stored config hash stays, and a new workload gets none unless it is being restored. `first_stamp`
    /// says how the loop treats a newly opted-in workload, so that a status query is told the same.
    pub fn answer(&self, facts: Option<&Facts>, keys: &Keyring, first_stamp: FirstStamp) -> Answer {
        let answer = self.answer_filled(facts, keys, first_stamp);
        answer.after(self.filling.clone(), self.notice.clone())
    }

    fn answer_filled(
        &self,
        facts: Option<&Facts>,
        keys: &Keyring,
        first_stamp: FirstStamp,
    ) -> Answer {
        if self.is_status_query {
            return self.answer_status_query(facts, keys, first_stamp);
        }
        let lost = match facts {
            Some(facts) => facts.lost.clone(),
            None => self.asked_for(),
        };
        let mut answer = match facts {
            Some(facts) if facts.lost.is_none() || !self.has_same_template => {
                self.answer_by(facts, keys, first_stamp)
            }
            _ => self.write(self.unchanged(), self.unchanged_pins(), Outcome::Unknown),
        };
        if let Some(facts) = facts {
            answer.warn_of_unanswered(&self.workload, &facts.objects);
        }
        if facts.is_some_and(|facts| !facts.has_copies) {
            answer.warnings.insert(0, NO_COPIES.to_owned());
        }
        if self.applies_pins && self.workload.rare().pinning.is_some() {
            answer.warnings.insert(0, APPLIED.to_owned());
        }
        if let Some(pins) = lost {
            let copies: Vec<_> = pins
                .iter()
                .map(|(_, copy)| copy.as_str())
                .take(SHOWN)
                .collect();
            let warning = format!(
                "pod-reloader: no config was undone: {} cannot be read, or is no copy of pod-reloader",
                copies.join(", ")
            );
            answer.warnings.insert(0, warning);
        }
        answer
    }

    /// Returns the answer to a write that leaves the pod templates as they are, apart from our annotations.
    pub(super) fn answer_unread(&self, keys: &Keyring) -> Answer {
        let mut answer = self.write(Desired::Stored, DesiredPins::Stored, Outcome::Unchanged);
        let requested = self
            .workload
            .config_hash()
            .filter(|value| keys.knows(value));
        let pinning = self.workload.rare().pinning.as_ref();
        let stored = self.stored.as_ref().filter(|_| pinning.is_some());
        let keeps_copies = stored.is_some_and(|stored| {
            let mut pins = stored.pins(&self.workload).flatten();
            pins.any(|pins| !pins.is_empty())
        });
        if requested.is_some()
            && !keeps_copies
            && let Some(warning) = answer.warnings.iter_mut().find(|it| **it == OVERRIDDEN)
        {
            warning.push_str(NOTHING_UNDONE);
        }
        answer
    }

    /// Returns the answer to a write, given the current state of the objects.
    fn answer_by(&self, facts: &Facts, keys: &Keyring, first_stamp: FirstStamp) -> Answer {
        let objects = &facts.objects;
        if self.takes_over {
            return self.answer_taking_over(objects, keys);
        }
        let contents = self.workload.references.contents(objects);
        let is_moot = contents.is_empty() && self.current().is_none();
        // Nothing is tracked yet, so the loop will write a baseline that says so.
        if is_moot || self.workload.references.is_empty() {
            return self.write(self.unchanged(), DesiredPins::NONE, Outcome::Unchanged);
        }
        let pins = facts.pins(&self.workload, &self.names(keys));
        let undone = Some(facts.undone.to_string()).filter(|it| !it.is_empty());
        let pins = DesiredPins::These {
            pins: pins.as_deref(),
            undone: undone.as_deref(),
        };
        if facts.is_undo {
            return self.answer_undo(&contents, pins, keys);
        }
        if let Some(value) = self.current() {
            // Pods that restart anyway take the newest key along, so older keys fall out of use.
            let is_due_for_another =
                (self.stored.is_some() && keys.outgrew(value)) || self.has_reloaded(value);
            if !is_due_for_another && keys.verify(value, &contents) == Verdict::Current {
                return self.write(Desired::Hash(value), pins, Outcome::Unchanged);
            }
            // A workload restored before its Secrets waits for them, like one that lost them.
            let is_ours = self.stored.is_some() || self.restored().is_some();
            if is_ours && self.workload.missing(objects).next().is_some() {
                let pins = self.unchanged_pins();
                return self.write(Desired::Hash(value), pins, Outcome::MissingConfig);
            }
        }
        if let Some(value) = self.restored() {
            let baseline = match decide(&self.workload, objects, keys, first_stamp) {
                Decision::Unchanged => {
                    return self.write(Desired::Hash(value), pins, Outcome::Unchanged);
                }
                Decision::Baseline(baseline) => Some(baseline),
                // SAP's value covers UIDs and resource versions, which differ in another cluster.
                Decision::Set {
                    cause: Cause::ChangedBeforeTakeover,
                    ..
                } => Some(format!("{value}={}", self.hash(&contents, keys))),
                Decision::Set { .. } | Decision::MissingConfig(_) => None,
            };
            if let Some(baseline) = baseline {
                let desired = Desired::WithBaseline(value, &baseline);
                return self.write(desired, pins, Outcome::Unchanged);
            }
        }
        let hash = self.hash(&contents, keys);
        self.write(Desired::Hash(&hash), pins, Outcome::Set)
    }

    /// Returns the answer to a write that brings back the pins of an earlier revision.
    fn answer_undo(
        &self,
        contents: &Contents<'_>,
        pins: DesiredPins<'_>,
        keys: &Keyring,
    ) -> Answer {
        // The ReplicaSet of that revision is used again if the hash is the same as well.
        let own = self.workload.config_hash();
        let own = own.filter(|value| {
            keys.verify(value, contents) == Verdict::Current && !self.has_reloaded(value)
        });
        let hash = own.map_or_else(|| self.hash(contents, keys), ToOwned::to_owned);
        self.write(Desired::Hash(&hash), pins, Outcome::Set)
    }

    /// Returns the hash of these contents, under the newest key.
    fn hash(&self, contents: &Contents<'_>, keys: &Keyring) -> String {
        let hash = keys.hash(contents).carrying(self.current());
        let [stored, own] = self.baselines();
        let hash = unless_reloaded(stored, hash, keys);
        unless_reloaded(own, hash, keys).to_string()
    }

    /// Returns true if pods have reloaded since this hash was set. Those that start now have the present content, whatever
    /// others have reloaded.
    fn has_reloaded(&self, value: &str) -> bool {
        let mut baselines = self.baselines().into_iter();
        self.stored.is_some() && baselines.any(|baseline| has_reloaded(baseline, value))
    }

    /// Returns the answer to the creation of a workload around pods that run its template already: they have what they have,
    /// and nothing restarts them now. If they have something else than the objects, the loop restarts them as after any
    /// other change.
    fn answer_taking_over(&self, objects: &Objects, keys: &Keyring) -> Answer {
        let value = self.workload.config_hash();
        let baseline = match decide(&self.workload, objects, keys, FirstStamp::Baseline) {
            Decision::Baseline(baseline) => Some(baseline),
            // SAP's value covers UIDs and resource versions, which differ after a restore.
            Decision::Set {
                cause: Cause::ChangedBeforeTakeover,
                config_hash,
            } => value.map(|value| format!("{value}={config_hash}")),
            Decision::Unchanged | Decision::MissingConfig(_) | Decision::Set { .. } => None,
        };
        let desired = match (value, baseline.as_deref()) {
            (Some(value), Some(baseline)) => Desired::WithBaseline(value, baseline),
            (Some(value), None) => Desired::Hash(value),
            (None, Some(baseline)) => Desired::Baseline(baseline),
            (None, None) => Desired::Nothing,
        };
        self.write(desired, self.unchanged_pins(), Outcome::Unchanged)
    }

    /// Returns the answer to a status query, by the rule of the loop.
    fn answer_status_query(
        &self,
        facts: Option<&Facts>,
        keys: &Keyring,
        first_stamp: FirstStamp,
    ) -> Answer {
        let decision = facts.map(|it| decide(&self.workload, &it.objects, keys, first_stamp));
        let sync_status = decision.as_ref().map_or(SyncStatus::Unknown, Into::into);
        let due_content = match &decision {
            Some(Decision::Set { config_hash, .. }) => Some(gate::digits(config_hash)),
            _ => None,
        };
        let missing = match decision {
            Some(Decision::MissingConfig(missing)) => missing,
            _ => Vec::new(),
        };
        Answer {
            sync_status: Some(sync_status),
            due_content,
            missing,
            ..Answer::unchanged(&self.workload)
        }
    }

    /// Returns the gate that keeps the workload `now` from the content that is due by this answer to a status query, as far
    /// as the workload and its objects show it. An object on hold is told only if the workload names it: somebody who
    /// invents a review with a regular expression learns no names.
    pub fn closed(&self, facts: Option<&Facts>, answer: &Answer, now: Timestamp) -> Option<Closed> {
        let (facts, content) = (facts?, answer.due_content.as_deref()?);
        let workload = &self.workload;
        let gates = workload.rare().gates.as_deref();
        let closed = gate::closed(gates, &facts.objects, content, now);
        closed.filter(|closed| match closed {
            Closed::HeldBy(object) => workload.references.names(object),
            _ => true,
        })
    }

    /// Returns the value to leave in place when nothing is known about the objects.
    fn unchanged(&self) -> Desired<'_> {
        self.restored().map_or(Desired::Stored, Desired::Hash)
    }

    /// Returns the config hash of a workload that is being created, if it looks like one that the workload
    /// had before, here or in another cluster. ReplicaSets restored beside the workload carry the same
    /// value, and it adopts them only if it retains that value.
    fn restored(&self) -> Option<&str> {
        let value = self.workload.config_hash()?;
        let was_its_own = ConfigHash::parse(value).is_some()
            || sap::is_hash(value)
            || baseline(&self.workload, value).is_some();
        (self.stored.is_none() && was_its_own).then_some(value)
    }

    /// Answers a write. Kubernetes would deny annotations that are too long, so in that case the pins are left
    /// out, or even the hash.
    fn write(&self, desired: Desired<'_>, pins: DesiredPins<'_>, outcome: Outcome) -> Answer {
        let nothing = Stored::default();
        let stored = self.stored.as_ref().unwrap_or(&nothing);
        let answer = |desired, pins, outcome| {
            let workload = &self.workload;
            Answer::giving(desired, pins, workload, stored, self.claims_hash, outcome)
        };
        if self.has_same_template {
            return answer(desired, pins, outcome);
        }
        let wanted = wanted(&self.workload, stored, desired);
        let too_long = |pins: DesiredPins<'_>| {
            let wanted_pins = pins.of_templates(&self.workload, stored);
            let slots = self.workload.slots().enumerate();
            let sizes = slots.filter_map(|(at, (_, slot))| {
                Some(slot.state.size_with(wanted[at]?, wanted_pins[at]))
            });
            sizes.max().filter(|size| *size > MAX_ANNOTATIONS_SIZE)
        };
        let unpinned = match pins {
            DesiredPins::These { pins: Some(_), .. } => DesiredPins::These {
                pins: Some(""),
                undone: None,
            },
            pins => pins,
        };
        match (too_long(pins), too_long(unpinned)) {
            (None, _) => answer(desired, pins, outcome),
            (_, None) => answer(desired, unpinned, outcome),
            (_, Some(size)) => {
                let mut answer = answer(Desired::Nothing, DesiredPins::NONE, Outcome::TooLong);
                let warning = format!(
                    "pod-reloader: the annotations of the pod template are too long to add the config \
                     hash: they would be {size} bytes, Kubernetes takes {MAX_ANNOTATIONS_SIZE} bytes; \
                     shorten them, until then no change of config restarts the pods"
                );
                answer.warnings.insert(0, warning);
                answer
            }
        }
    }

    /// Returns the baselines of the stored object and of the request.
    fn baselines(&self) -> [Option<&str>; 2] {
        let stored = self.stored.as_ref();
        let stored = stored.and_then(|stored| stored.baseline.as_deref());
        [stored, self.workload.markers.baseline.as_deref()]
    }

    /// Returns the config hash of the stored object, or of the request if nothing is stored yet.
    fn current(&self) -> Option<&str> {
        match &self.stored {
            Some(stored) => stored.hashes(&self.workload).next()?,
            None => self.workload.config_hash(),
        }
    }
}

const NO_COPIES: &str = "pod-reloader: the pods of this revision use the ConfigMaps themselves, so an undo will not \
                         bring their content back: copies could not be made";
const APPLIED: &str = "pod-reloader: the pins in the manifest do not count, and nothing is undone by them: remove \
                       pod-reloader.cs.sap.com/pins from your manifest, and apply it";
/// The number of copies that a warning names.
const SHOWN: usize = 5;
/// Follows [`OVERRIDDEN`] if the hash is one of ours, as an undo brings it back.
const NOTHING_UNDONE: &str = "; an undo brings back no config, as the pods keep no copy of it: see \
                              pod-reloader.cs.sap.com/pin";
