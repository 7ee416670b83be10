//! Decides how to answer a review whose answer depends on objects, once these were read.

use super::answer::{Answer, Desired, Outcome, Stored, wanted};
use crate::decision::{Cause, Decision, FirstStamp, baseline, decide};
use crate::digest::Objects;
use crate::gate;
use crate::hash::{ConfigHash, Keyring, Verdict};
use crate::sap;
use crate::sync_status::SyncStatus;
use crate::workload::{MAX_ANNOTATIONS_SIZE, Workload};

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
    pub(super) is_status_query: bool,
}

impl Pending {
    /// Returns true if the request is a status query.
    pub fn is_status_query(&self) -> bool {
        self.is_status_query
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

    /// Returns the answer, given what was read. `objects` is `None` if something could not be read: then
    /// the stored config hash stays, and a new workload gets none unless it is being restored. `first_stamp`
    /// says how the loop treats a newly opted-in workload, so that a status query is told the same.
    pub fn answer(
        &self,
        objects: Option<&Objects>,
        keys: &Keyring,
        first_stamp: FirstStamp,
    ) -> Answer {
        if self.is_status_query {
            return self.answer_status_query(objects, keys, first_stamp);
        }
        match objects {
            Some(objects) => self.answer_by(objects, keys, first_stamp),
            None => self.write(self.unchanged(), Outcome::Unknown),
        }
    }

    /// Returns the answer to a write, given the current state of the objects.
    fn answer_by(&self, objects: &Objects, keys: &Keyring, first_stamp: FirstStamp) -> Answer {
        let contents = self.workload.references.contents(objects);
        let is_moot = contents.is_empty() && self.current().is_none();
        // Nothing is tracked yet, so the loop will write a baseline that says so.
        if is_moot || self.workload.references.is_empty() {
            return self.write(self.unchanged(), Outcome::Unchanged);
        }
        let hash = || keys.hash(&contents).to_string();
        if let Some(value) = self.current() {
            // Pods that restart anyway take the newest key along, so older keys fall out of use.
            let is_due_for_another = self.stored.is_some() && keys.outgrew(value);
            if !is_due_for_another && keys.verify(value, &contents) == Verdict::Current {
                return self.write(Desired::Hash(value), Outcome::Unchanged);
            }
            // A workload restored before its Secrets waits for them, like one that lost them.
            let is_ours = self.stored.is_some() || self.restored().is_some();
            if is_ours && self.workload.missing(objects).next().is_some() {
                return self.write(Desired::Hash(value), Outcome::MissingConfig);
            }
        }
        if let Some(value) = self.restored() {
            match decide(&self.workload, objects, keys, first_stamp) {
                Decision::Unchanged => return self.write(Desired::Hash(value), Outcome::Unchanged),
                Decision::Baseline(baseline) => {
                    let desired = Desired::WithBaseline(value, &baseline);
                    return self.write(desired, Outcome::Unchanged);
                }
                // SAP's value covers UIDs and resource versions, which differ in another cluster.
                Decision::Set {
                    cause: Cause::ChangedBeforeTakeover,
                    ..
                } => {
                    let baseline = format!("{value}={}", hash());
                    let desired = Desired::WithBaseline(value, &baseline);
                    return self.write(desired, Outcome::Unchanged);
                }
                Decision::Set { .. } | Decision::MissingConfig(_) => {}
            }
        }
        self.write(Desired::Hash(&hash()), Outcome::Set)
    }

    /// Returns the answer to a status query, by the rule of the loop.
    fn answer_status_query(
        &self,
        objects: Option<&Objects>,
        keys: &Keyring,
        first_stamp: FirstStamp,
    ) -> Answer {
        let decision = objects.map(|it| decide(&self.workload, it, keys, first_stamp));
        let sync_status = decision.as_ref().map_or(SyncStatus::Unknown, Into::into);
        let due_content = match &decision {
            Some(Decision::Set { config_hash, .. }) => Some(gate::digits(config_hash).to_owned()),
            _ => None,
        };
        Answer {
            sync_status: Some(sync_status),
            due_content,
            ..Answer::unchanged(&self.workload)
        }
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

    /// Answers a write that changes the template. Kubernetes would deny annotations that are too long, so
    /// in that case the hash is left out.
    fn write(&self, desired: Desired<'_>, outcome: Outcome) -> Answer {
        let nothing = Stored::default();
        let stored = self.stored.as_ref().unwrap_or(&nothing);
        let answer = |desired, outcome| {
            Answer::giving(desired, &self.workload, stored, self.claims_hash, outcome)
        };
        let wanted = wanted(&self.workload, stored, desired);
        let slots = self.workload.slots().enumerate();
        let sizes = slots.filter_map(|(at, (_, slot))| Some(slot.state.size_with(wanted[at]?)));
        match sizes.max().filter(|size| *size > MAX_ANNOTATIONS_SIZE) {
            None => answer(desired, outcome),
            Some(size) => {
                let mut answer = answer(Desired::Nothing, Outcome::TooLong);
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

    /// Returns the config hash of the stored object, or of the request if nothing is stored yet.
    fn current(&self) -> Option<&str> {
        match &self.stored {
            Some(stored) => stored.hashes(&self.workload).next()?,
            None => self.workload.config_hash(),
        }
    }
}
