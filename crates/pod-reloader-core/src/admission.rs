//! Decides how to answer an admission review: the rule of the webhook.
//!
//! An admission never starts a rollout. If the pod template is the same apart from the config hash
//! annotation, the stored hash stays and nothing is read. If the template really changes, or the workload
//! is created, the annotation gets the hash of the current state. So the rule has two steps, with the
//! caller's reads between them: [`begin`] returns [`Step::Answer`] or [`Step::Read`], and
//! [`Pending::answer`] takes what was read.

use json_patch::PatchOperation;
use serde_json::value::RawValue;

use crate::annotations;
use crate::decision::{Cause, Decision, FirstStamp, baseline, decide, speaks_of};
use crate::digest::Objects;
use crate::hash::{ConfigHash, Keyring, Verdict};
use crate::kind::WorkloadKind;
use crate::patch;
use crate::review::{InvalidReview, RawWorkload, Request};
use crate::sap;
use crate::scope::Scope;
use crate::standing::Standing;

use crate::object::{CustomObject, Object, WorkloadObject};
use crate::workload::{MAX_ANNOTATIONS_SIZE, Slot, Workload};

/// The next step for a review.
#[derive(Debug)]
pub enum Step {
    /// The review can be answered at once.
    Answer(Answer),
    /// The answer depends on the objects that the workload references.
    Read(Box<Pending>),
}

/// The answer to a review. The write itself is always allowed.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// The change to the object: for each pod template, nothing, one `add` of the config hash annotation
    /// with any missing parents, or one `remove`. An `add` of the baseline follows if the request dropped
    /// it or the workload is being restored.
    pub patch: Vec<PatchOperation>,
    /// Warnings shown to the user who made the request.
    pub warnings: Vec<String>,
    /// The result for the config hash annotation.
    pub outcome: Outcome,
    /// The sync status, if the request was a status query.
    pub standing: Option<Standing>,
}

/// The result for the config hash annotation, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The workload is not managed, so the request is left as it is.
    #[default]
    Ignored,
    /// The stored value stays.
    Kept,
    /// The value is now the hash of the current state.
    Set,
    /// The stored value stays because the pods need something that is missing.
    Held,
    /// The stored value stays because the current state could not be read. The loop repairs it.
    Unknown,
    /// The value is left out because Kubernetes accepts no more annotations on the pod template.
    TooLong,
}

/// A review whose answer depends on the objects that the workload references.
#[derive(Debug)]
pub struct Pending {
    workload: Workload,
    /// `None` during a create.
    stored: Option<Stored>,
    /// True if the request set the config hash annotation itself. A policy may have put the old value back
    /// since then.
    claims_key: bool,
    /// True if the request is a status query.
    is_inquiry: bool,
}

/// The annotations of ours that the stored object carries.
#[derive(Debug, Default)]
struct Stored {
    /// The config hash of each pod template, in the order that the kind lists them. Empty during a create.
    config_hashes: Vec<Option<Box<str>>>,
    baseline: Option<Box<str>>,
}

impl Stored {
    /// Returns the stored config hash of each pod template of `workload` that should carry one now.
    fn hashes<'a>(&'a self, workload: &'a Workload) -> impl Iterator<Item = Option<&'a str>> {
        workload
            .slots()
            .map(|(at, ..)| self.config_hashes.get(at)?.as_deref())
    }
}

/// The desired value of the config hash annotation.
#[derive(Clone, Copy)]
enum Desired<'a> {
    /// The stored value.
    Stored,
    /// This hash.
    Hash(&'a str),
    /// This hash, with a baseline that says what it stands for.
    WithBaseline(&'a str, &'a str),
    /// No value at all.
    Nothing,
}

/// Begins to answer a review.
///
/// `ourselves` is the user that the loop writes as. The loop's own writes pass if they have the form that
/// it gives them, so a webhook configuration without match conditions does not undo them.
///
/// # Errors
///
/// The review cannot be understood.
pub fn begin(
    request: &Request<'_>,
    scope: &Scope,
    keys: &Keyring,
    ourselves: &str,
) -> Result<Step, InvalidReview> {
    let ignored = Ok(Step::Answer(Answer::default()));
    let Some(kind) = scope.kind(&request.kind.group, &request.kind.kind) else {
        return ignored;
    };
    let created = match &*request.operation {
        "CREATE" => true,
        "UPDATE" => false,
        _ => return ignored,
    };
    if request
        .sub_resource
        .as_ref()
        .is_some_and(|name| !name.is_empty())
    {
        return ignored;
    }
    let is_inquiry =
        request.dry_run == Some(true) && field_manager(request) == Some(annotations::INQUIRER);
    // A status query is about the stored object: an invented one would let anyone find out which objects
    // exist.
    let (object, name) = match is_inquiry && !created {
        true => (request.old_object, "oldObject"),
        false => (request.object, "object"),
    };
    let workload = workload(required(object, name)?, request, kind, scope)?;
    if !scope.covers(&workload.id.namespace) {
        return ignored;
    }
    if !workload.is_subscribed() {
        // A spelling mistake may be the reason why it does not opt in, so warnings are still given.
        return Ok(Step::Answer(Answer {
            warnings: warnings(&workload),
            standing: is_inquiry.then_some(Standing::NotKept),
            ..Answer::default()
        }));
    }
    // A workload restarted by a time has no config hash annotation, so there is nothing to read for.
    let carries_key = workload.slots().next().is_some();
    let reads = match is_inquiry {
        true => !created,
        false => created && carries_key,
    };
    if reads {
        return Ok(Step::Read(Box::new(Pending {
            workload,
            stored: None,
            claims_key: false,
            is_inquiry,
        })));
    }
    if created {
        return Ok(Step::Answer(Answer {
            warnings: warnings(&workload),
            outcome: Outcome::Kept,
            standing: is_inquiry.then_some(Standing::Unknown),
            ..Answer::default()
        }));
    }
    let raw = |part, name| RawWorkload::of(required(part, name)?, kind).map_err(InvalidReview::at);
    let new = raw(request.object, "object")?;
    let old = raw(request.old_object, "oldObject")?;
    let same_template = new.same_templates_but_for_key(&old);
    let same_template = same_template.map_err(InvalidReview::at)?;
    let stored = Stored {
        config_hashes: old.config_hashes(),
        baseline: old.baseline.map(Into::into),
    };
    let claims_key =
        field_manager(request).is_some_and(|manager| new.claims_config_hash(kind, manager));
    if !same_template && carries_key {
        return Ok(Step::Read(Box::new(Pending {
            workload,
            stored: Some(stored),
            claims_key,
            is_inquiry: false,
        })));
    }
    let answer = if is_our_own_write(&workload, &stored, request, keys, ourselves) {
        Answer {
            outcome: Outcome::Kept,
            ..Answer::default()
        }
    } else {
        answer(
            &workload,
            &stored,
            claims_key,
            Desired::Stored,
            Outcome::Kept,
        )
    };
    Ok(Step::Answer(answer))
}

impl Pending {
    /// Returns true if the request is a status query.
    pub fn is_inquiry(&self) -> bool {
        self.is_inquiry
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
        if self.is_inquiry {
            return Answer {
                warnings: warnings(&self.workload),
                outcome: Outcome::Kept,
                standing: Some(self.standing(objects, keys, first_stamp)),
                ..Answer::default()
            };
        }
        let Some(objects) = objects else {
            return self.write(self.unchanged(), Outcome::Unknown);
        };
        let contents = self.workload.references.contents(objects);
        let is_moot = contents.is_empty() && self.current().is_none();
        // Nothing is tracked yet, so the loop will write a baseline that says so.
        if is_moot || self.workload.references.is_empty() {
            return self.write(self.unchanged(), Outcome::Kept);
        }
        let hash = || keys.hash(&contents).to_string();
        if let Some(value) = self.current() {
            // Pods that restart anyway take the newest key along, so older keys fall out of use.
            let is_due_for_another = self.stored.is_some() && keys.outgrew(value);
            if !is_due_for_another && keys.verify(value, &contents) == Verdict::Current {
                return self.write(Desired::Hash(value), Outcome::Kept);
            }
            // A workload restored before its Secrets waits for them, like one that lost them.
            let is_ours = self.stored.is_some() || self.restored().is_some();
            if is_ours && self.workload.missing(objects).next().is_some() {
                return self.write(Desired::Hash(value), Outcome::Held);
            }
        }
        if let Some(value) = self.restored() {
            match decide(&self.workload, objects, keys, first_stamp) {
                Decision::Keep => return self.write(Desired::Hash(value), Outcome::Kept),
                Decision::Baseline(baseline) => {
                    let desired = Desired::WithBaseline(value, &baseline);
                    return self.write(desired, Outcome::Kept);
                }
                // SAP's value covers UIDs and resource versions, which differ in another cluster.
                Decision::Set {
                    cause: Cause::ChangedBeforeTakeover,
                    ..
                } => {
                    let baseline = format!("{value}={}", hash());
                    let desired = Desired::WithBaseline(value, &baseline);
                    return self.write(desired, Outcome::Kept);
                }
                Decision::Set { .. } | Decision::Hold(_) => {}
            }
        }
        self.write(Desired::Hash(&hash()), Outcome::Set)
    }

    /// Returns the sync status by the rule of the loop.
    fn standing(
        &self,
        objects: Option<&Objects>,
        keys: &Keyring,
        first_stamp: FirstStamp,
    ) -> Standing {
        objects.map_or(Standing::Unknown, |objects| {
            Standing::from(&decide(&self.workload, objects, keys, first_stamp))
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

    /// Answers a write that changes the template. Kubernetes would deny annotations that are too long, so
    /// in that case the hash is left out.
    fn write(&self, desired: Desired<'_>, outcome: Outcome) -> Answer {
        let nothing = Stored::default();
        let stored = self.stored.as_ref().unwrap_or(&nothing);
        let answer =
            |desired, outcome| answer(&self.workload, stored, self.claims_key, desired, outcome);
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

/// Returns the value that `desired` gives each pod template of `workload` that can carry one.
fn wanted<'a>(
    workload: &'a Workload,
    stored: &'a Stored,
    desired: Desired<'a>,
) -> Vec<Option<&'a str>> {
    let of = |old| match desired {
        Desired::Stored => old,
        Desired::Hash(hash) | Desired::WithBaseline(hash, _) => Some(hash),
        Desired::Nothing => None,
    };
    stored.hashes(workload).map(of).collect()
}

/// Turns the config hash of the request into `desired`. A sender who tries to replace the stored value gets
/// a warning. If the stored value stays, its baseline stays too: without it, the value would say nothing.
fn answer(
    workload: &Workload,
    stored: &Stored,
    claims_key: bool,
    desired: Desired<'_>,
    outcome: Outcome,
) -> Answer {
    let old: Vec<_> = stored.hashes(workload).collect();
    let wanted = wanted(workload, stored, desired);
    let mut patch = patch::change_templates(workload, |at| wanted[at]);
    let baseline = match desired {
        Desired::WithBaseline(_, baseline) => Some(baseline),
        _ => {
            let value = old.iter().copied().flatten().next();
            let is_its_own = |baseline: &&str| wanted == old && speaks_of(baseline, value);
            stored.baseline.as_deref().filter(is_its_own)
        }
    };
    let new_baseline = baseline.filter(|it| workload.markers.baseline.as_deref() != Some(*it));
    let (fitting, too_long) = match new_baseline {
        Some(it) if workload.markers.has_room_for(it) => (Some(it), None),
        it => (None, it),
    };
    if let Some(baseline) = fitting {
        patch.extend(patch::add_baseline(workload, baseline));
    }
    let is_overridden = |(at, (_, slot)): (usize, (usize, Slot<'_>))| {
        let requested = slot.state.config_hash.as_deref();
        requested.is_some() && requested != wanted[at] && requested != old[at]
    };
    let overridden = claims_key || workload.slots().enumerate().any(is_overridden);
    // This goes first because the apiserver truncates warnings that are too long in total.
    let too_long = too_long.map(|_| BASELINE_TOO_LONG.to_owned());
    let overridden = overridden.then(|| OVERRIDDEN.to_owned());
    let mut warnings: Vec<_> = too_long.into_iter().chain(overridden).collect();
    warnings.extend(self::warnings(workload));
    Answer {
        patch,
        warnings,
        outcome,
        standing: None,
    }
}

/// Returns what is wrong with the annotations, labels and lists of `workload`, at most [`MAX_WARNINGS`].
fn warnings(workload: &Workload) -> Vec<String> {
    let advice = workload.advice.iter().map(ToString::to_string);
    let rejected = workload.references.rejected.iter();
    advice
        .chain(rejected.map(ToString::to_string))
        .take(MAX_WARNINGS)
        .map(|warning| format!("pod-reloader: {warning}"))
        .collect()
}

fn workload(
    object: &RawValue,
    request: &Request<'_>,
    kind: WorkloadKind,
    scope: &Scope,
) -> Result<Workload, InvalidReview> {
    if kind.is_built_in() {
        read::<WorkloadObject>(object, request, kind, scope)
    } else {
        read::<CustomObject>(object, request, kind, scope)
    }
}

fn read<O: Object>(
    object: &RawValue,
    request: &Request<'_>,
    kind: WorkloadKind,
    scope: &Scope,
) -> Result<Workload, InvalidReview> {
    let mut object: O = serde_json::from_str(object.get()).map_err(InvalidReview::at)?;
    // A create may give the namespace in the URL only.
    if let Some(namespace) = &request.namespace {
        object.meta_mut().namespace = Some(namespace.clone());
    }
    scope
        .read(kind, object)
        .map_err(|_| InvalidReview::NoObject("namespace"))
}

fn required<T>(part: Option<T>, name: &'static str) -> Result<T, InvalidReview> {
    part.ok_or(InvalidReview::NoObject(name))
}

/// Returns true if the loop wrote this: as our user, under our field manager, and in our form, which leaves
/// the config hash unchanged or sets one made under a known key.
fn is_our_own_write(
    workload: &Workload,
    stored: &Stored,
    request: &Request<'_>,
    keys: &Keyring,
    ourselves: &str,
) -> bool {
    request.user_info.username.as_deref() == Some(ourselves)
        && field_manager(request) == Some(annotations::FIELD_MANAGER)
        && workload
            .slots()
            .zip(stored.hashes(workload))
            .all(|((_, slot), stored)| {
                let own = slot.state.config_hash.as_deref();
                own == stored || own.is_some_and(|value| keys.knows(value))
            })
}

fn field_manager<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    request.options.as_ref()?.field_manager.as_deref()
}

/// The apiserver truncates warnings beyond 4 KiB.
const MAX_WARNINGS: usize = 10;
const BASELINE_TOO_LONG: &str = "pod-reloader: the annotations of the workload are too long to add \
                                 pod-reloader.cs.sap.com/baseline: shorten them, until then changes \
                                 of config may be missed";
const OVERRIDDEN: &str = "pod-reloader: the request's config-hash does not count; \
                          remove pod-reloader.cs.sap.com/config-hash from your manifest";

#[cfg(test)]
mod tests;
