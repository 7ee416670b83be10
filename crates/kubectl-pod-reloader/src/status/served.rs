//! Custom resources of pod-reloader itself, and whether an operator serves them.

use std::cmp::Reverse;

use serde::Serialize;

use super::signed;
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::{Text, Verdict};
use crate::ready::{self, Own};

/// All custom resources of a kind.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Served<T> {
    /// At least one, the worst first.
    all: Vec<T>,
    /// True if an operator serves them.
    #[serde(skip)]
    are_served: bool,
}

impl<T: Own> Served<T> {
    /// Lists those of the cluster, or of the user's namespace if only these can be listed. `None` if there are none, or if
    /// others than the operators that are looked at may serve them.
    ///
    /// # Errors
    /// When an operator serves them, and they cannot be listed.
    pub(super) async fn find(
        cluster: &Cluster,
        operators: &Operators,
    ) -> Result<Option<Self>, Unseen> {
        let Some(are_served) = operators.any(|it| it.args.switches_on(T::CONTROLLER)) else {
            return Ok(None);
        };
        let mut listed: Result<Vec<T>, Unseen> = ready::list(cluster, None).await;
        if T::IS_NAMESPACED && listed.as_ref().is_err_and(Unseen::is_forbidden) {
            let own = cluster.namespace.as_str();
            listed = ready::list(cluster, Some(own)).await.or(listed);
        }
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

    /// Adds them to what is printed.
    pub(super) fn show(&self, text: &mut Text) {
        let (rows, more) = T::rows(&self.all);
        text.gap();
        text.heading(match self.are_served {
            true => T::KIND.to_owned(),
            false => format!("{}, but no pod-reloader that {}", T::KIND, T::SERVICE),
        });
        signed(text, &rows);
        if more > 0 {
            text.line([format!("  and {more} more").into()]);
        }
    }
}

/// Finds those of a kind, if there are any. Raises the verdict to the one on them. Notes in `unseen` that they cannot be
/// listed.
pub(super) async fn served<T: Own>(
    cluster: &Cluster,
    operators: &Operators,
    unseen: &mut Vec<String>,
    verdict: &mut Verdict,
) -> Option<Served<T>> {
    let found = Served::<T>::find(cluster, operators).await;
    let of_found = match &found {
        Ok(found) => found.as_ref().map_or(Verdict::Good, Served::verdict),
        Err(_) => Verdict::Unknown,
    };
    *verdict = of_found.max(*verdict);
    found.unwrap_or_else(|error| {
        unseen.push(format!("{}: {error}", T::KIND));
        None
    })
}
