//! The state of fields, as the status of a FieldBinding tells it.

use jiff::Timestamp;
use pod_reloader_api::{FieldBindingStatus, FieldState};

use super::path::{NoPlace, Path};
use super::value::InvalidValue;
use super::{Field, InvalidBinding, MAX_BINDINGS};
use crate::name::Name;
use crate::ready::{SeenStatus, condition};
use crate::words;

/// The state of a field that is equal to its key, and the reason of the condition if all are.
pub const APPLIED: &str = "Applied";
/// The reason of the condition of a FieldBinding that cannot be worked with.
const INVALID: &str = "InvalidSpec";
/// The reason of the condition of a FieldBinding for which there is no room.
pub const TOO_LARGE: &str = "NamespaceTooLarge";
/// The reasons of the condition: those of its first field that is not equal to its key, and the three above.
pub const REASONS: [&str; 17] = [
    APPLIED,
    INVALID,
    TOO_LARGE,
    "KindNotAllowed",
    "TooManyBindings",
    "SourceNotFound",
    "KeyNotFound",
    "InvalidValue",
    "TargetNotFound",
    "PathNotFound",
    "PathAmbiguous",
    "NotAField",
    "Conflict",
    "Contended",
    "Rejected",
    "Forbidden",
    "Failed",
];
/// The maximum number of fields that the message of the condition names.
const MAX_NAMED: usize = 3;

/// The reason why a field is not equal to its key. It holds no value, and no words of the apiserver: these quote values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The operator has not been given the kind of the target, in this version.
    #[error("pod-reloader has not been given this kind, in this version, by its configuration")]
    KindNotAllowed,
    /// [`MAX_BINDINGS`] older FieldBindings write to the target.
    #[error(
        "{MAX_BINDINGS} older FieldBindings write to the custom resource, and no more than these do"
    )]
    TooManyBindings,
    /// There is no source.
    #[error("the source does not exist; the field stays as it is")]
    SourceNotFound,
    /// The source lacks the key.
    #[error("the source has no key {0:?}; the field stays as it is")]
    KeyNotFound(Box<str>),
    /// The key is no value of the type of the field.
    #[error("{0}; the field stays as it is")]
    InvalidValue(InvalidValue),
    /// There is no target.
    #[error("the custom resource does not exist")]
    TargetNotFound,
    /// The path leads to no field.
    #[error(transparent)]
    NoPlace(NoPlace),
    /// An older FieldBinding has the field.
    #[error("FieldBinding {0} is older and has this field")]
    Conflict(Name),
    /// Somebody else keeps changing the field, or the key: this manager, if it is known.
    #[error("{}; it is written once a minute at most", contended(.0))]
    Contended(Option<Box<str>>),
    /// The cluster does not accept the values.
    #[error(
        "the cluster does not accept the values that the fields of this FieldBinding should have"
    )]
    Rejected,
    /// The operator has no right to read the source, or to read or write the target.
    #[error(
        "pod-reloader is not allowed to read the source, or to read or write the custom resource"
    )]
    Forbidden,
    /// The apiserver could not be asked. It is asked again.
    #[error("the field could not be written, trying again")]
    Failed,
}

impl Reason {
    /// Returns the reason in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::KindNotAllowed => "KindNotAllowed",
            Self::TooManyBindings => "TooManyBindings",
            Self::SourceNotFound => "SourceNotFound",
            Self::KeyNotFound(_) => "KeyNotFound",
            Self::InvalidValue(_) => "InvalidValue",
            Self::TargetNotFound => "TargetNotFound",
            Self::NoPlace(NoPlace::Missing(_)) => "PathNotFound",
            Self::NoPlace(NoPlace::Ambiguous(_)) => "PathAmbiguous",
            Self::NoPlace(NoPlace::NotAField) => "NotAField",
            Self::Conflict(_) => "Conflict",
            Self::Contended(_) => "Contended",
            Self::Rejected => "Rejected",
            Self::Forbidden => "Forbidden",
            Self::Failed => "Failed",
        }
    }
}

fn contended(manager: &Option<Box<str>>) -> String {
    match manager {
        Some(manager) => format!("{manager} keeps changing the field"),
        None => "the field, or its key, keeps changing".to_owned(),
    }
}

/// The state of a field: an error if it is not equal to its key.
pub type Outcome = Result<(), Reason>;

/// Returns the status of a FieldBinding of this generation with these fields, given the one that it has.
pub fn status<'a>(
    previous: Option<&SeenStatus>,
    generation: i64,
    fields: impl IntoIterator<Item = (&'a Field, &'a Outcome)>,
    now: Timestamp,
) -> FieldBindingStatus {
    let (mut states, mut failed) = (Vec::new(), Vec::new());
    for (field, outcome) in fields {
        states.push(state(&field.path, outcome));
        failed.extend(outcome.as_ref().err().map(|reason| (&field.path, reason)));
    }
    let said = match failed.first() {
        None => {
            let fields = words::count(states.len(), "field");
            let are = words::either(
                &states.len(),
                ["is equal to its key", "are equal to their keys"],
            );
            let message = format!("{fields} {are}");
            ("True", APPLIED, message)
        }
        Some((_, first)) => ("False", first.as_str(), named(&failed, states.len())),
    };
    with_fields(previous, generation, states, said, now)
}

/// Returns the status of a FieldBinding of this generation that cannot be worked with, given the one that it has.
pub fn invalid(
    previous: Option<&SeenStatus>,
    generation: i64,
    error: &InvalidBinding,
    now: Timestamp,
) -> FieldBindingStatus {
    let said = ("False", INVALID, error.to_string());
    with_fields(previous, generation, Vec::new(), said, now)
}

/// Returns the status of a FieldBinding of this generation for which there is no room, given the one that it has.
pub fn left_out(
    previous: Option<&SeenStatus>,
    generation: i64,
    now: Timestamp,
) -> FieldBindingStatus {
    let message = "the FieldBindings of this namespace, or of all namespaces, take more memory than their share: this one is not looked at until others are gone, or are shorter";
    let said = ("False", TOO_LARGE, message.to_owned());
    with_fields(previous, generation, Vec::new(), said, now)
}

fn with_fields(
    previous: Option<&SeenStatus>,
    generation: i64,
    fields: Vec<FieldState>,
    said: (&str, &str, String),
    now: Timestamp,
) -> FieldBindingStatus {
    let before = previous.and_then(SeenStatus::since);
    FieldBindingStatus {
        observed_generation: generation,
        fields,
        conditions: vec![condition(before, generation, said, now)],
    }
}

fn state(path: &Path, outcome: &Outcome) -> FieldState {
    let (state, message) = match outcome {
        Ok(()) => (APPLIED, String::new()),
        Err(reason) => (reason.as_str(), reason.to_string()),
    };
    FieldState {
        path: path.as_str().to_owned(),
        state: state.to_owned(),
        message,
    }
}

fn named(failed: &[(&Path, &Reason)], all: usize) -> String {
    let named = failed.iter();
    let named = named.map(|(path, reason)| format!("{path} ({reason})"));
    let named = words::some(named, MAX_NAMED);
    let are = ["is not equal to its key", "are not equal to their keys"];
    let fields = words::part(failed.len(), all, "field", are);
    format!("{fields}: {named}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_binding::tests::binding;
    use crate::ready::ready;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn remembered(status: &FieldBindingStatus) -> SeenStatus {
        SeenStatus::of(status, &status.conditions)
    }

    /// Returns the status with these outcomes, of fields `spec.f0`, `spec.f1` and so on.
    fn of(
        previous: Option<&FieldBindingStatus>,
        outcomes: &[Outcome],
        now: i64,
    ) -> FieldBindingStatus {
        let fields =
            (0..outcomes.len()).map(|at| json!({"key": "k", "path": format!("spec.f{at}")}));
        let fields: Vec<_> = fields.collect();
        let binding = binding(json!({"spec": {"fields": fields}}));
        let previous = previous.map(remembered);
        let fields = binding.fields.iter().zip(outcomes);
        status(previous.as_ref(), 3, fields, at(now))
    }

    #[test]
    fn it_is_ready_once_every_field_is_equal_to_its_key() {
        let status = of(None, &[Ok(()), Ok(())], 1);
        let ready = ready(&status.conditions).unwrap();
        let said = (&*ready.status, &*ready.reason, &*ready.message);
        assert_eq!(
            said,
            ("True", "Applied", "2 fields are equal to their keys")
        );
        let field = serde_json::to_value(&status.fields[0]).unwrap();
        assert_eq!(field, json!({"path": "spec.f0", "state": "Applied"}));
    }

    #[test]
    fn the_first_field_that_is_not_gives_the_reason() {
        let outcomes = [
            Ok(()),
            Err(Reason::KeyNotFound("port".into())),
            Err(Reason::TargetNotFound),
        ];
        let status = of(None, &outcomes, 1);
        let ready = ready(&status.conditions).unwrap();
        let expected = "2 of 3 fields are not equal to their keys: spec.f1 (the source has no key \"port\"; the field stays as it is), spec.f2 (the custom resource does not exist)";
        let said = (&*ready.status, &*ready.reason, &*ready.message);
        assert_eq!(said, ("False", "KeyNotFound", expected));
        let states: Vec<_> = status.fields.iter().map(|it| &*it.state).collect();
        assert_eq!(states, ["Applied", "KeyNotFound", "TargetNotFound"]);
    }

    #[test]
    fn each_reason_is_among_those_that_are_shown() {
        let name = Name::parse("other").unwrap();
        let reasons = [
            Reason::KindNotAllowed,
            Reason::TooManyBindings,
            Reason::SourceNotFound,
            Reason::KeyNotFound("k".into()),
            Reason::InvalidValue(InvalidValue::NotText),
            Reason::TargetNotFound,
            Reason::NoPlace(NoPlace::Missing("spec.a".into())),
            Reason::NoPlace(NoPlace::Ambiguous("spec.a".into())),
            Reason::NoPlace(NoPlace::NotAField),
            Reason::Conflict(name),
            Reason::Contended(None),
            Reason::Rejected,
            Reason::Forbidden,
            Reason::Failed,
        ];
        let shown = [APPLIED, INVALID, TOO_LARGE].into_iter();
        let shown: Vec<_> = shown.chain(reasons.iter().map(Reason::as_str)).collect();
        assert_eq!(shown, REASONS);
    }

    #[test]
    fn many_fields_are_not_all_named() {
        let status = of(None, &vec![Err(Reason::Rejected); 64], 1);
        let message = &ready(&status.conditions).unwrap().message;
        assert!(message.ends_with("and 61 more"), "{message}");
    }

    #[test]
    fn the_time_of_the_condition_is_that_of_its_last_change() {
        let first = of(None, &[Err(Reason::SourceNotFound)], 1);
        let second = of(Some(&first), &[Err(Reason::TargetNotFound)], 2);
        let third = of(Some(&second), &[Ok(())], 3);
        let times = [&first, &second, &third].map(|it| it.conditions[0].last_transition_time.0);
        assert_eq!(times, [at(1), at(1), at(3)]);
        assert_eq!(
            of(Some(&third), &[Ok(())], 4),
            third,
            "nothing needs to be written"
        );
    }

    #[test]
    fn what_is_remembered_of_a_status_is_short_and_tells_it_from_others() {
        let mut long = of(None, &vec![Ok(()); 64], 1);
        long.conditions[0].message = "m".repeat(1 << 20);
        long.conditions[0].reason = "r".repeat(1 << 20);
        let seen = remembered(&long);
        assert!(seen.is(&long));
        assert_eq!(seen.reason(), Some(""));
        long.fields[63].state = "Failed".to_owned();
        assert!(!seen.is(&long));
        let ours = of(None, &[Err(Reason::Rejected)], 1);
        let seen = remembered(&ours);
        assert!(seen.tells(&ours.conditions[0]));
        assert!(!seen.tells(&of(None, &[Ok(())], 1).conditions[0]));
    }

    #[test]
    fn a_binding_without_room_says_so_once() {
        let first = left_out(None, 3, at(1));
        let ready = ready(&first.conditions).unwrap();
        assert_eq!(
            (&*ready.status, &*ready.reason),
            ("False", "NamespaceTooLarge")
        );
        let seen = remembered(&first);
        assert!(seen.is(&left_out(Some(&seen), 3, at(2))));
        assert!(
            !seen.is(&left_out(Some(&seen), 4, at(2))),
            "it has another spec"
        );
    }
}
