//! Decides how to answer an admission review: the rule of the webhook.
//!
//! An admission never starts a rollout. If the pod template is the same apart from the config hash
//! annotation, the stored hash stays and nothing is read. If the template really changes, or the workload
//! is created, the annotation gets the hash of the current state. So the rule has two steps, with the
//! caller's reads between them: [`begin`] returns [`Step::Answer`] or [`Step::Read`], and
//! [`Pending::answer`] takes what was read.

mod answer;
mod change;
mod facts;
mod pending;
mod settings;
#[cfg(test)]
mod tests;
mod unsettled;

use json_patch::PatchOperation;
use serde_json::value::RawValue;

pub use self::answer::{Answer, Outcome};
use self::answer::{Stored, warnings};
use self::change::{Change, Update};
pub use self::facts::Facts;
pub use self::pending::Pending;
use self::settings::{Filled, Reason};
use self::unsettled::Question;
pub use self::unsettled::{Revisions, Unsettled};
use crate::annotations;
use crate::hash::Keyring;
use crate::kind::{SPEC_TEMPLATE, WorkloadKind};
use crate::name::{InvalidName, Name};
use crate::object::Reviewed;
use crate::raw::at;
use crate::review::{InvalidReview, Request};
use crate::revision::kept_in;
use crate::scope::Scope;
use crate::sync_status::SyncStatus;
use crate::workload::Workload;

/// The next step for a review.
#[derive(Debug)]
pub enum Step {
    /// The review can be answered at once.
    Answer(Answer),
    /// The answer depends on the objects that the workload references.
    Read(Box<Pending>),
    /// It depends on the revisions of the workload what the request means.
    Settle(Box<Unsettled>),
}

impl Step {
    /// Returns the step for a request that was `filled` before, by this patch.
    fn filled(self, filling: Vec<PatchOperation>, notice: Option<String>) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(answer.after(filling, notice)),
            Self::Read(pending) => Self::Read(Box::new(Pending {
                filling,
                notice,
                ..*pending
            })),
            Self::Settle(_) => self,
        }
    }
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
    let Some((kind, operation)) = written(request, scope) else {
        return ignored;
    };
    let (raw, object) = reviewed(request, kind, operation)?;
    let namespace = Name::parse(object.namespace());
    let namespace = namespace.map_err(|_| InvalidReview::NoObject("namespace"))?;
    if !scope.covers(&namespace) {
        return ignored;
    }
    if is_status_query(request) {
        return Ok(begin_status_query(object, kind, operation, scope));
    }
    let change = match operation {
        Operation::Create => Change::create(),
        Operation::Update => Change::update(request, kind, scope, ourselves)?,
    };
    let begun = Begun {
        kind,
        is_dry_run: request.dry_run == Some(true),
        update: change.update,
    };
    let kept = kept_in(kind).filter(|_| kind.is_built_in());
    let invalid = |_| InvalidReview::NoObject("namespace");
    let Some((question, kept)) = change.question.zip(kept) else {
        let step = begun.go_on_unasked(object, &change.filled, scope, keys);
        return step.map_err(invalid);
    };
    let selector = object.pod_selector().unwrap_or_default();
    let asked = object.read(kind, scope.reading()).map_err(invalid)?;
    let takes_over = matches!(question, Question::TakesOver { .. });
    if takes_over && !(asked.is_opted_in() && carries_hash(&asked)) {
        return Ok(begun.step(asked, false, keys));
    }
    let is_small = raw.get().len() <= MAX_UNSETTLED && !selector.is_empty();
    let template = at(raw, SPEC_TEMPLATE).filter(|_| is_small);
    let unsettled = Unsettled {
        begun,
        asked,
        object: raw.to_owned(),
        kept,
        selector,
        template: template.map(ToOwned::to_owned),
        question,
    };
    Ok(match template.is_some() {
        true => Step::Settle(Box::new(unsettled)),
        false => unsettled.settle(Revisions::Unknown, scope, keys),
    })
}

/// Returns the workload that a request is about, unparsed and parsed.
fn reviewed<'a>(
    request: &Request<'a>,
    kind: WorkloadKind,
    operation: Operation,
) -> Result<(&'a RawValue, Reviewed), InvalidReview> {
    // A status query is about the stored object: an invented one would let anyone find out which objects
    // exist.
    let (raw, name) = match operation {
        Operation::Update if is_status_query(request) => (request.old_object, "oldObject"),
        Operation::Update | Operation::Create => (request.object, "object"),
    };
    let raw = required(raw, name)?;
    let mut object = Reviewed::of(raw, kind).map_err(InvalidReview::at)?;
    // A create may give the namespace in the URL only.
    if let Some(namespace) = &request.namespace {
        object.put_in(namespace);
    }
    Ok((raw, object))
}

/// The maximum size of an object that waits for its revisions, in bytes: many may wait at once. Workloads are smaller.
const MAX_UNSETTLED: usize = 128 << 10;

/// A request whose workload is about to be read.
#[derive(Debug)]
struct Begun {
    kind: WorkloadKind,
    is_dry_run: bool,
    /// What the request changes. `None` for a create.
    update: Option<Update>,
}

impl Begun {
    /// Goes on with the object of a request whose meaning does not depend on revisions.
    fn go_on_unasked(
        self,
        object: Reviewed,
        filled: &Filled,
        scope: &Scope,
        keys: &Keyring,
    ) -> Result<Step, InvalidName> {
        let (kind, reading) = (self.kind, scope.reading());
        if filled.is_empty() {
            return Ok(self.step(object.read(kind, reading)?, false, keys));
        }
        let asked = object.clone().read(kind, reading)?;
        Ok(self.go_on(&asked, object, filled, Reason::Replaced, scope, keys))
    }

    /// Goes on with the object of the request, of which `asked` was read, once it is `filled` for this reason.
    fn go_on(
        self,
        asked: &Workload,
        mut object: Reviewed,
        filled: &Filled,
        reason: Reason,
        scope: &Scope,
        keys: &Keyring,
    ) -> Step {
        let filled = filled.that_fits(asked);
        filled.fill(&mut object);
        // The namespace has been found valid before.
        let Ok(workload) = object.read(self.kind, scope.reading()) else {
            return Step::Answer(Answer::default());
        };
        let filling = filled.patch(asked);
        let step = self.step(workload, reason == Reason::TakesOver, keys);
        step.filled(filling, filled.warning(reason))
    }

    /// Returns the next step for a workload: objects are read only if it is new, or if its pod template really changes.
    /// `takes_over` says whether pods run its template already.
    fn step(self, workload: Workload, takes_over: bool, keys: &Keyring) -> Step {
        if !workload.is_opted_in() {
            // A spelling mistake may be the reason why it does not opt in, so warnings are still given.
            return Step::Answer(Answer {
                warnings: warnings(&workload),
                ..Answer::default()
            });
        }
        let carries_hash = carries_hash(&workload);
        let Some(update) = self.update else {
            return match carries_hash {
                true => Step::Read(Box::new(Pending {
                    is_dry_run: self.is_dry_run,
                    takes_over,
                    ..Pending::create(workload)
                })),
                false => Step::Answer(Answer::unchanged(&workload)),
            };
        };
        let has_same_template = update.has_same_template || !carries_hash;
        if has_same_template && update.is_ours && has_our_form(&workload, &update.stored, keys) {
            return Step::Answer(Answer {
                outcome: Outcome::Unchanged,
                ..Answer::default()
            });
        }
        let pending = Pending {
            applies_pins: workload.rare().pinning.is_some() && update.applies_pins,
            stored: Some(update.stored),
            claims_hash: update.claims_hash,
            has_same_template,
            is_dry_run: self.is_dry_run,
            ..Pending::create(workload)
        };
        match !has_same_template || pending.asks_for_undo() {
            true => Step::Read(Box::new(pending)),
            false => Step::Answer(pending.answer_unread(keys)),
        }
    }
}

/// An operation that writes a workload.
#[derive(Clone, Copy)]
enum Operation {
    Create,
    Update,
}

/// Returns the kind of the workload that the request writes, and how it writes it. `None` if it writes none.
fn written(request: &Request<'_>, scope: &Scope) -> Option<(WorkloadKind, Operation)> {
    let kind = scope.kind(&request.kind.group, &request.kind.kind)?;
    let operation = match &*request.operation {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        _ => return None,
    };
    let sub_resource = request.sub_resource.as_deref().unwrap_or_default();
    sub_resource.is_empty().then_some((kind, operation))
}

fn is_status_query(request: &Request<'_>) -> bool {
    request.dry_run == Some(true) && field_manager(request) == Some(annotations::STATUS_QUERY)
}

/// Begins to answer a status query.
fn begin_status_query(
    object: Reviewed,
    kind: WorkloadKind,
    operation: Operation,
    scope: &Scope,
) -> Step {
    let Ok(workload) = object.read(kind, scope.reading()) else {
        return Step::Answer(Answer::default());
    };
    if !workload.is_opted_in() {
        return Step::Answer(Answer {
            warnings: warnings(&workload),
            sync_status: Some(SyncStatus::NotManaged),
            ..Answer::default()
        });
    }
    match operation {
        // A workload that does not exist yet has no sync status.
        Operation::Create => Step::Answer(Answer {
            sync_status: Some(SyncStatus::Unknown),
            ..Answer::unchanged(&workload)
        }),
        Operation::Update => Step::Read(Box::new(Pending {
            is_status_query: true,
            ..Pending::create(workload)
        })),
    }
}

/// Returns true if the workload has a config hash annotation. One that is restarted by a time has none, so
/// there is nothing to read for.
fn carries_hash(workload: &Workload) -> bool {
    workload.slots().next().is_some()
}

fn required<T>(part: Option<T>, name: &'static str) -> Result<T, InvalidReview> {
    part.ok_or(InvalidReview::NoObject(name))
}

/// Returns true if a write has the form that the loop gives it: it leaves the config hash unchanged, or sets one made under
/// a known key.
fn has_our_form(workload: &Workload, stored: &Stored, keys: &Keyring) -> bool {
    let mut slots = workload.slots().zip(stored.hashes(workload));
    slots.all(|((_, slot), stored)| {
        let own = slot.state.config_hash.as_deref();
        own == stored || own.is_some_and(|value| keys.knows(value))
    })
}

fn field_manager<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    request.options.as_ref()?.field_manager.as_deref()
}
