//! Custom resources of pod-reloader itself, and whether an operator serves them.

use std::cmp::Reverse;

use serde::Serialize;

use crate::cluster::Unseen;
use crate::print::Verdict;

/// A custom resource of pod-reloader itself.
pub(super) trait Own {
    /// The heading above all of them.
    const HEADING: &str;
    /// The heading if no operator serves them.
    const UNSERVED: &str;

    fn verdict(&self) -> Verdict;
}

/// All custom resources of a kind.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Served<T> {
    /// At least one, the worst first.
    pub(super) all: Vec<T>,
    /// True if an operator serves them.
    #[serde(skip)]
    are_served: bool,
}

impl<T: Own> Served<T> {
    /// Returns those that were listed. `None` if there are none.
    ///
    /// # Errors
    /// When an operator serves them, and they cannot be listed.
    pub(super) fn of(
        listed: Result<Vec<T>, Unseen>,
        are_served: bool,
    ) -> Result<Option<Self>, Unseen> {
        let mut all = match listed {
            Err(error) if are_served => return Err(error),
            listed => listed.unwrap_or_default(),
        };
        all.sort_by_key(|it| Reverse(it.verdict()));
        Ok((!all.is_empty()).then_some(Self { all, are_served }))
    }

    /// Returns the worst of them. Those that no operator serves are a fault.
    pub(super) fn verdict(&self) -> Verdict {
        match self.are_served {
            true => self.all.first().map_or(Verdict::Good, T::verdict),
            false => Verdict::Bad,
        }
    }

    pub(super) fn heading(&self) -> &'static str {
        match self.are_served {
            true => T::HEADING,
            false => T::UNSERVED,
        }
    }
}

/// Returns those that were found, and their verdict. Notes in `unseen` that they cannot be listed.
pub(super) fn judged<T: Own>(
    found: Result<Option<Served<T>>, Unseen>,
    unseen: &mut Vec<String>,
) -> (Option<Served<T>>, Verdict) {
    match found {
        Ok(found) => {
            let verdict = found.as_ref().map_or(Verdict::Good, Served::verdict);
            (found, verdict)
        }
        Err(error) => {
            unseen.push(format!("{}: {error}", T::HEADING));
            (None, Verdict::Unknown)
        }
    }
}
