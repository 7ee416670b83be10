//! Looks at the fields of one FieldBinding, and gives them their values.

mod turn;

use std::ops::ControlFlow;
use std::time::Duration;

use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::field_binding::outcome::{Outcome, Reason};
use pod_reloader_core::field_binding::pace::Cause;
use pod_reloader_core::field_binding::plan::{Plan, Step};
use pod_reloader_core::field_binding::rival::rival;
use pod_reloader_core::field_binding::value::{Room, digest};
use pod_reloader_core::field_binding::{BindingId, Field};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::turn::Turn;
use super::binder::Binder;
use super::calls::reason;
use super::metrics::Written;
use super::state::{Memory, Task};
use crate::runtime::error::CallError;
use crate::runtime::pause::{self, FIRST_PAUSE, LONGEST_PAUSE};

/// The number of attempts to write to an object that somebody else writes at the same time.
const ATTEMPTS: usize = 3;
/// The time for which a write may be held up before anybody is told.
const BRIEF: Duration = Duration::from_secs(5);
/// The number of failures in a row that are no news: the fields are as they were.
const FEW: u32 = 2;
/// The words of the log about a look that has failed.
const AGAIN: &str = "cannot look after fields, trying again";

impl Binder {
    /// Looks at the fields of a FieldBinding, and gives them their values, as far as they can have them. Returns the
    /// time to look at them again.
    pub(super) async fn look(&self, id: &BindingId) -> Option<Instant> {
        let task = self.state.lock().task(id);
        let Some(task) = task else {
            self.skip(id);
            return None;
        };
        let mut memory = task.memory.clone();
        let again = match task.kind.clone() {
            Ok(kind) => {
                let has_news = task.has_other_source || task.has_other_target;
                let mut look = Look {
                    turn: Turn::begin(self, kind, id)?,
                    is_retry: memory.failures > 0 && !has_news,
                    memory,
                    task: &task,
                    binder: self,
                };
                let again = look.look(kind).await;
                memory = look.memory;
                again
            }
            Err(reason) => {
                self.skip(id);
                memory.outcomes = vec![Err(reason); task.binding.fields.len()];
                None
            }
        };
        memory.is_settled = again.is_none();
        self.state.lock().looked(&task, memory);
        self.push_status(id.clone());
        again
    }

    /// Leaves the turn of a FieldBinding, whose kind is not asked, to another.
    fn skip(&self, id: &BindingId) {
        let instead = self.turns.lock().skip(id);
        self.push(instead);
    }
}

/// A look at the fields of one FieldBinding.
struct Look<'a> {
    binder: &'a Binder,
    task: &'a Task,
    /// True if it only tries again what has failed.
    is_retry: bool,
    /// What is remembered after the look.
    memory: Memory,
    turn: Turn<'a>,
}

impl Look<'_> {
    /// Returns the time to look again. `None` if nothing is to do until the source or the target changes.
    async fn look(&mut self, kind: BoundKind) -> Option<Instant> {
        let binding = self.task.binding.clone();
        if let Some(next) = self.contended_until() {
            return Some(next);
        }
        let source = match self.binder.calls.source(&binding).await {
            Ok(source) => source,
            Err(error) => return Some(self.failed("reading the source", &error)),
        };
        self.memory.source = source.as_ref().map(|it| it.resource_version().into());
        let values = binding.values(source.as_ref(), &mut Room::default());
        drop(source);
        let wanted = values.iter().map(|it| it.as_ref().map(digest));
        let wanted: Vec<_> = wanted.map(|it| it.map_err(Clone::clone)).collect();
        let is_as_before = self.memory.is_settled && self.memory.wanted == wanted;
        self.memory.wanted = wanted;
        // Only other keys of the source have changed.
        if is_as_before && !self.task.has_other_target {
            return None;
        }
        self.memory.applied.resize(values.len(), None);
        if values.iter().all(Result::is_err) {
            self.memory.outcomes = values.into_iter().map(|it| it.map(drop)).collect();
            self.memory.failures = 0;
            return None;
        }
        for _ in 0..ATTEMPTS {
            let see = |object: &RawValue| self.see(object, &values);
            let at = Instant::now();
            let seen = self.binder.calls.target(&binding, kind, see).await;
            self.turn.asked(at, seen.as_ref().err());
            let seen = match seen {
                Ok(Some(seen)) => seen,
                Ok(None) => return self.without_target(&values),
                Err(error) => return Some(self.failed("reading the custom resource", &error)),
            };
            if let ControlFlow::Break(again) = self.attempt(kind, seen, &values).await {
                return again;
            }
        }
        self.memory.failures += 1;
        Some(Instant::now() + pause::after(self.memory.failures, FIRST_PAUSE, LONGEST_PAUSE))
    }

    /// Returns what is to be done for the fields of `object`.
    fn see(&self, object: &RawValue, values: &Values) -> Seen {
        let plan = self.plan(object, values);
        let metadata = metadata(object);
        let (now, cause) = (Instant::now(), self.cause(&plan.fields));
        // Another try after a failure has its pause behind it.
        let until = match self.is_retry || plan.operations.is_empty() {
            true => None,
            false => self.memory.pace.not_before(cause, now.into_std()),
        };
        let held = until.map(Instant::from_std).map(|until| Held {
            until,
            outcomes: (until - now > BRIEF).then(|| self.contended(&plan.fields, object)),
        });
        Seen {
            plan,
            cause,
            held,
            resource_version: metadata.as_ref().map(BoundMetadata::resource_version),
            spec_version: metadata.as_ref().map(BoundMetadata::spec_version),
        }
    }

    /// Gives the fields of an object their values. Continues if somebody else has changed it meanwhile.
    async fn attempt(
        &mut self,
        kind: BoundKind,
        seen: Seen,
        values: &Values,
    ) -> ControlFlow<Option<Instant>> {
        let Seen { plan, cause, .. } = seen;
        self.memory.target = seen.spec_version;
        self.note_applied(&plan.fields, |step| *step == Ok(Step::None));
        if plan.operations.is_empty() {
            self.memory.outcomes = outcomes(&plan.fields, Ok(()));
            self.memory.failures = 0;
            return ControlFlow::Break(None);
        }
        if let Some(Held { until, outcomes }) = seen.held {
            if let Some(outcomes) = outcomes {
                self.memory.outcomes = outcomes;
            }
            return ControlFlow::Break(Some(until));
        }
        let now = Instant::now();
        let was_contended = self.memory.is_contended();
        let binding = self.task.binding.clone();
        let (patch, steps) = plan.patch(&seen.resource_version.unwrap_or_default());
        // A webhook may have changed it on its way.
        let take = |answer: &RawValue| {
            let is_as_written = self.plan(answer, values).operations.is_empty();
            (is_as_written, metadata(answer))
        };
        let answer = self.binder.calls.patch(&binding, kind, patch, take).await;
        self.turn.asked(now, answer.as_ref().err());
        if answer.as_ref().is_err_and(is_of_another_version) {
            self.binder.metrics.writes.count(Written::Conflict);
            return ControlFlow::Continue(());
        }
        if !self.is_retry {
            self.memory.pace.wrote(cause, now.into_std());
        }
        let (is_as_written, metadata) = match answer {
            Ok(answer) => answer,
            Err(error) => return ControlFlow::Break(self.not_written(&steps, values, &error)),
        };
        self.binder.metrics.writes.count(Written::Applied);
        let fields = steps.iter().filter(|it| **it == Ok(Step::Write));
        let (fields, target) = (fields.count(), &binding.target);
        let namespace = &binding.id.namespace;
        info!(binding = %binding.id, kind = &*target.kind, %namespace, name = %target.name, fields, "wrote fields");
        self.memory.failures = 0;
        self.memory.target = metadata.as_ref().map(BoundMetadata::spec_version);
        self.note_applied(&steps, Result::is_ok);
        // It is over once a field has kept its value for as long as it would be held up.
        if was_contended {
            let until = self.memory.pace.not_before(cause, now.into_std());
            return ControlFlow::Break(until.map(Instant::from_std));
        }
        self.memory.outcomes = outcomes(&steps, Ok(()));
        ControlFlow::Break((!is_as_written).then_some(now))
    }

    /// Notes that the fields have their values for whose step `has_value` holds.
    fn note_applied(&mut self, steps: &Steps, has_value: impl Fn(&Result<Step, Reason>) -> bool) {
        for (at, step) in steps.iter().enumerate() {
            if has_value(step) {
                self.memory.applied[at] = self.memory.wanted[at].as_ref().ok().copied();
            }
        }
    }

    /// Notes why a write has failed. Returns the time to try again.
    fn not_written(
        &mut self,
        steps: &Steps,
        values: &Values,
        error: &CallError,
    ) -> Option<Instant> {
        if error.is_not_found() {
            return self.without_target(values);
        }
        self.binder.metrics.writes.count(match error.is_refusal() {
            true => Written::Refused,
            false => Written::Failed,
        });
        let again = self.failed("writing to the custom resource", error);
        if error.is_refusal() {
            self.memory.outcomes = outcomes(steps, Err(reason(error)));
        }
        Some(again)
    }

    fn plan(&self, object: &RawValue, values: &Values) -> Plan {
        let older: Vec<_> = self.task.older.iter().map(AsRef::as_ref).collect();
        self.task.binding.plan(object, values, &older)
    }

    /// Returns the time until which fields are left alone that somebody else keeps changing.
    fn contended_until(&self) -> Option<Instant> {
        if !self.memory.is_contended() {
            return None;
        }
        let now = Instant::now().into_std();
        let held = |cause| self.memory.pace.not_before(cause, now);
        let next = match self.task.has_other_source {
            true => held(Cause::News),
            false => held(Cause::News).max(held(Cause::Repair)),
        };
        next.map(Instant::from_std)
    }

    /// Returns the cause of a write.
    fn cause(&self, steps: &Steps) -> Cause {
        let (applied, wanted) = (&self.memory.applied, &self.memory.wanted);
        let had_it = |at: usize| applied[at].is_some_and(|it| wanted[at] == Ok(it));
        let mut fields = steps.iter().enumerate();
        match fields.all(|(at, step)| *step != Ok(Step::Write) || had_it(at)) {
            true => Cause::Repair,
            false => Cause::News,
        }
    }

    /// Returns the state of each field, now that those to be written are held up.
    fn contended(&self, steps: &Steps, object: &RawValue) -> Vec<Outcome> {
        let fields = steps.iter().zip(&self.task.binding.fields);
        let outcome = |(step, field): (&Result<Step, Reason>, &Field)| match step {
            Ok(Step::None) => Ok(()),
            Ok(Step::Write) => Err(Reason::Contended(rival(object, &field.path))),
            Err(reason) => Err(reason.clone()),
        };
        fields.map(outcome).collect()
    }

    fn without_target(&mut self, values: &Values) -> Option<Instant> {
        self.memory.target = None;
        self.memory.failures = 0;
        let values = values.iter().map(|value| match value {
            Ok(_) => Err(Reason::TargetNotFound),
            Err(reason) => Err(reason.clone()),
        });
        self.memory.outcomes = values.collect();
        None
    }

    /// Notes that a call has failed. Returns the time to try again.
    fn failed(&mut self, what: &'static str, error: &CallError) -> Instant {
        self.binder.kit.errors.count(Some(error));
        self.memory.failures += 1;
        let pause = pause::after(self.memory.failures, FIRST_PAUSE, LONGEST_PAUSE);
        let reason = reason(error);
        // The words of the apiserver may quote a value.
        let (word, cause) = (reason.as_str(), error.reason());
        let BindingId { namespace, name } = &self.task.binding.id;
        let kind = "FieldBinding";
        // That the kind is silent is said once, not for each of its FieldBindings.
        match self.turn.is_silent() {
            true => debug!(%kind, %namespace, %name, what, reason = word, cause, ?pause, "{AGAIN}"),
            false => warn!(%kind, %namespace, %name, what, reason = word, cause, ?pause, "{AGAIN}"),
        }
        if error.is_refusal() || self.memory.failures > FEW {
            self.memory.outcomes = vec![Err(reason); self.task.binding.fields.len()];
        }
        Instant::now() + pause
    }
}

/// What a look at a custom resource has shown.
struct Seen {
    plan: Plan,
    /// The cause of a write.
    cause: Cause,
    /// Set if a write must wait.
    held: Option<Held>,
    resource_version: Option<Box<str>>,
    spec_version: Option<Box<str>>,
}

/// A write that must wait.
struct Held {
    until: Instant,
    /// The state of each field, if users are told about it.
    outcomes: Option<Vec<Outcome>>,
}

/// The values that the fields should have.
type Values = [Result<Value, Reason>];
/// The changes of the fields.
type Steps = [Result<Step, Reason>];

/// Returns the state of each field, given that of those that were to be written.
fn outcomes(steps: &Steps, written: Outcome) -> Vec<Outcome> {
    let outcome = |step: &Result<Step, Reason>| match step {
        Ok(Step::None) => Ok(()),
        Ok(Step::Write) => written.clone(),
        Err(reason) => Err(reason.clone()),
    };
    steps.iter().map(outcome).collect()
}

/// Returns true if somebody else has changed the object since it was read.
fn is_of_another_version(error: &CallError) -> bool {
    error.is_failed_test() || error.is_conflict()
}

fn metadata(object: &RawValue) -> Option<BoundMetadata> {
    serde_json::from_str(object.get()).ok()
}
