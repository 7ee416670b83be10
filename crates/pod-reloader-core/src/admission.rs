//! Decides how to answer an admission review: the rule of the webhook.
//!
//! An admission never starts a rollout. If the pod template is the same apart from the config hash
//! annotation, the stored hash stays and nothing is read. If the template really changes, or the workload
//! is created, the annotation gets the hash of the current state. So the rule has two steps, with the
//! caller's reads between them: [`begin`] returns [`Step::Answer`] or [`Step::Read`], and
//! [`Pending::answer`] takes what was read.

mod answer;
mod facts;
mod pending;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;

pub use self::answer::{Answer, Outcome};
use self::answer::{Stored, warnings};
pub use self::facts::Facts;
pub use self::pending::Pending;
use crate::annotations;
use crate::hash::Keyring;
use crate::kind::WorkloadKind;
use crate::object::{CustomObject, Object, WorkloadObject};
use crate::review::{InvalidReview, RawWorkload, Request};
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
    let is_status_query = is_status_query(request);
    // A status query is about the stored object: an invented one would let anyone find out which objects
    // exist.
    let (object, name) = match operation {
        Operation::Update if is_status_query => (request.old_object, "oldObject"),
        _ => (request.object, "object"),
    };
    let workload = workload(required(object, name)?, request, kind, scope)?;
    if !scope.covers(&workload.id.namespace) {
        return ignored;
    }
    if !workload.is_opted_in() {
        // A spelling mistake may be the reason why it does not opt in, so warnings are still given.
        return Ok(Step::Answer(Answer {
            warnings: warnings(&workload),
            sync_status: is_status_query.then_some(SyncStatus::NotManaged),
            ..Answer::default()
        }));
    }
    match operation {
        _ if is_status_query => Ok(begin_status_query(workload, operation)),
        Operation::Create => Ok(begin_create(workload, request)),
        Operation::Update => begin_update(workload, request, kind, keys, ourselves),
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
fn begin_status_query(workload: Workload, operation: Operation) -> Step {
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

/// Begins to answer the creation of a workload that has opted in.
fn begin_create(workload: Workload, request: &Request<'_>) -> Step {
    match carries_hash(&workload) {
        true => Step::Read(Box::new(Pending {
            is_dry_run: request.dry_run == Some(true),
            ..Pending::create(workload)
        })),
        false => Step::Answer(Answer::unchanged(&workload)),
    }
}

/// Begins to answer an update: objects are read only if the pod template really changes.
fn begin_update(
    workload: Workload,
    request: &Request<'_>,
    kind: WorkloadKind,
    keys: &Keyring,
    ourselves: &str,
) -> Result<Step, InvalidReview> {
    let raw = |part, name| RawWorkload::of(required(part, name)?, kind).map_err(InvalidReview::at);
    let new = raw(request.object, "object")?;
    let old = raw(request.old_object, "oldObject")?;
    let same_template = new.same_templates_but_for_ours(&old);
    let stored = Stored {
        stamps: old.stamps(),
        baseline: old.baseline.map(Into::into),
        undone: old.undone.map(Into::into),
    };
    let is_claimed = |manager: &str| new.claims_config_hash(kind, manager);
    // Whoever has undone something has brought an earlier hash along.
    let claims_hash = stored.undone.is_none() && field_manager(request).is_some_and(is_claimed);
    let applies_pins = workload.pinning.is_some() && new.applies_pins(kind);
    if !same_template && carries_hash(&workload) {
        return Ok(Step::Read(Box::new(Pending {
            workload,
            stored: Some(stored),
            claims_hash,
            is_status_query: false,
            has_same_template: false,
            applies_pins,
            is_dry_run: request.dry_run == Some(true),
        })));
    }
    if is_our_own_write(&workload, &stored, request, keys, ourselves) {
        return Ok(Step::Answer(Answer {
            outcome: Outcome::Unchanged,
            ..Answer::default()
        }));
    }
    let pending = Pending {
        workload,
        stored: Some(stored),
        claims_hash,
        is_status_query: false,
        has_same_template: true,
        applies_pins,
        is_dry_run: request.dry_run == Some(true),
    };
    Ok(match pending.asks_for_undo() {
        true => Step::Read(Box::new(pending)),
        false => Step::Answer(pending.answer_unread(keys)),
    })
}

/// Returns true if the workload has a config hash annotation. One that is restarted by a time has none, so
/// there is nothing to read for.
fn carries_hash(workload: &Workload) -> bool {
    workload.slots().next().is_some()
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
