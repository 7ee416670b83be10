//! What is said of objects that are protected while in use.

use super::PROTECT;
use crate::reference::Reference;
use crate::words;

/// The maximum number of users that a message names.
const MAX_NAMED: usize = 5;

/// Returns the reason why an object is not deleted: these use it, or some that are not to be named.
pub fn denial(object: &Reference, users: &[String]) -> String {
    let by = match users {
        [] => String::new(),
        users => format!(" by {}", named(users)),
    };
    format!(
        "{object} is in use{by}. It has the label {PROTECT}=in-use: delete its users first, or remove the label"
    )
}

/// Returns the warning that an object is deleted that these templates name.
pub fn warning(object: &Reference, templates: &[String]) -> String {
    format!(
        "no pod uses {object} now, but the pod templates of {} do: their next pods cannot start without it",
        named(templates)
    )
}

/// Returns the warning that an object comes back after it is deleted, because of these.
pub fn comes_back(object: &Reference, users: &[String]) -> String {
    format!(
        "{object} is in use by {}. It has the label {PROTECT}=keep: after it is deleted, it comes back until nothing names it any more",
        named(users)
    )
}

/// Returns the reason why an object is not deleted that should come back: its content cannot be stored.
pub fn not_stored(object: &Reference) -> String {
    format!(
        "{object} is in use, and pod-reloader cannot store it now, so it is not deleted: try again, or remove its label {PROTECT}"
    )
}

fn named(users: &[String]) -> String {
    words::some(users, MAX_NAMED)
}
