//! The words by which a user names objects.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

use super::Cli;

/// A workload, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `deployment`, `deploy`, `rollouts.argoproj.io` and the like.
    pub(crate) kind: String,
    /// Name of the object.
    pub(crate) name: String,
    /// Namespace of the object, if it may differ from the namespace of the connection.
    pub(crate) namespace: Option<Name>,
}

impl Target {
    /// Returns type and name as typed: `deployment/web`.
    pub(crate) fn typed(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// Returns an object in the namespace of the connection, for tests.
    #[cfg(test)]
    pub(crate) fn here(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: None,
        }
    }

    /// Returns type and name, with the namespace if it may differ from the namespace of the connection.
    pub(crate) fn shown(&self) -> String {
        let typed = self.typed();
        match &self.namespace {
            Some(namespace) => format!("{typed} in namespace {namespace}"),
            None => typed,
        }
    }
}

/// The objects that a user names in kubectl's syntax: `deployment/web`, or `deployment web`.
#[derive(Debug)]
pub(crate) struct Words<T>(pub(crate) T);

/// A type that [`Words`] can name.
pub(crate) trait Named: Sized {
    /// Id of the argument.
    const ID: &str;
    /// Returns the argument with its help.
    fn arg() -> Arg;
    /// Returns the flags that belong to it.
    fn flags() -> Vec<Arg> {
        Vec::new()
    }
    /// Parses the words.
    ///
    /// # Errors
    /// Returns the text that tells the user what to write instead.
    fn of(words: &[String], matches: &ArgMatches) -> Result<Self, String>;
}

impl Named for Target {
    const ID: &str = "workload";

    fn arg() -> Arg {
        let help = "Workload, for example deployment/web or deployment web";
        Arg::new(Self::ID).help(help).num_args(1..=2).required(true)
    }

    fn of(words: &[String], _: &ArgMatches) -> Result<Self, String> {
        match <[Self; 1]>::try_from(targets(words)?) {
            Ok([target]) => Ok(target),
            Err(_) => Err("name one workload".to_owned()),
        }
    }
}

impl Named for (ConfigKind, Name) {
    const ID: &str = "object";

    fn arg() -> Arg {
        let help = "ConfigMap or Secret, for example cm/app or secret db-creds";
        Arg::new(Self::ID).help(help).num_args(1..=2).required(true)
    }

    fn of(words: &[String], _: &ArgMatches) -> Result<Self, String> {
        config_object(words)
    }
}

impl<T: Named> FromArgMatches for Words<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let words = matches.get_many(T::ID).into_iter().flatten();
        let named = T::of(&Vec::from_iter(words.cloned()), matches);
        let wrong = |message| Cli::command().error(ErrorKind::ValueValidation, message);
        named.map(Self).map_err(wrong)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Named> Args for Words<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = command.arg(T::arg().value_name("TYPE/NAME"));
        command.args(T::flags())
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Parses either words of the form `type/name`, or a type followed by names.
pub(super) fn targets(words: &[String]) -> Result<Vec<Target>, String> {
    match words {
        [kind, names @ ..] if !kind.contains('/') => {
            if names.is_empty() {
                return Err(format!("{kind} has no name: {EXAMPLE}"));
            }
            let names = names.iter();
            names
                .map(|name| target(&format!("{kind}/{name}")))
                .collect()
        }
        words => words.iter().map(|word| target(word)).collect(),
    }
}

const EXAMPLE: &str = "write it like deployment/web or deployment web";

pub(super) fn target(text: &str) -> Result<Target, String> {
    let (kind, name) = text.split_once('/').ok_or(EXAMPLE)?;
    let kind = typed_kind(kind)?;
    Name::parse(name).map_err(|error| format!("{name:?} is no name: {error}"))?;
    Ok(Target {
        kind,
        name: name.to_owned(),
        namespace: None,
    })
}

pub(super) fn typed_kind(kind: &str) -> Result<String, String> {
    let is_kind = |it: &str| {
        it.bytes()
            .all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it))
    };
    if kind.is_empty() || !is_kind(kind) {
        return Err(format!("{kind:?} is no type: {EXAMPLE}"));
    }
    Ok(kind.to_ascii_lowercase())
}

/// Returns the kind that the user means.
pub(crate) fn config_kind(typed: &str) -> Option<ConfigKind> {
    match typed {
        "cm" | "configmap" | "configmaps" => Some(ConfigKind::ConfigMap),
        "secret" | "secrets" => Some(ConfigKind::Secret),
        _ => None,
    }
}

pub(super) fn config_object(words: &[String]) -> Result<(ConfigKind, Name), String> {
    let Ok([target]) = <[Target; 1]>::try_from(targets(words)?) else {
        return Err("name one object".to_owned());
    };
    let Some(kind) = config_kind(&target.kind) else {
        return Err(format!(
            "only configmaps and secrets restart workloads, no {}",
            target.kind
        ));
    };
    let name = Name::parse(&target.name).map_err(|error| error.to_string())?;
    Ok((kind, name))
}
