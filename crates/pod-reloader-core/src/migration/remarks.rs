//! What a person is told of a migration.

use crate::dialects::stakater;
use crate::reference::ConfigKind;

/// A remark on a migration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// An annotation of the pod template is left there.
    #[error("the pod template keeps the annotation {0}, because its removal restarts the pods")]
    InTemplate(String),
    /// No value of `auto` tracks the same.
    #[error("its objects are listed by name, because auto would track other objects or keys")]
    Listed,
}

/// The reason why annotations cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// The object is not a workload of its kind.
    #[error("the object cannot be read")]
    Unreadable,
    /// Nobody knows where the kind has its pods.
    #[error(
        "only the cluster knows whether pod-reloader manages this kind: name it without --filename"
    )]
    UnknownKind,
    /// An item of a list is a regular expression.
    #[error("{item} is a regular expression for {kind}s, which has no counterpart: list the names")]
    Pattern {
        /// The kind that the list is for.
        kind: ConfigKind,
        /// The item, made safe to print.
        item: String,
    },
    /// The workload tracks only objects with a mark.
    #[error(
        "{} finds objects by their annotations, which has no counterpart: list the names",
        stakater::SEARCH
    )]
    Search,
    /// Only one kind of object is opted out. Without the annotation, it would be tracked where every workload is managed.
    #[error("{0} opts out where every workload is managed, which has no counterpart for one kind")]
    OptOutOfOneKind(&'static str),
    /// No translation tracks the same.
    #[error("no annotations of pod-reloader track the same objects and keys")]
    Different,
}
