//! Checks the fields of FieldBindings.

use super::served::{Own, Served};
use crate::bindings::{self, Binding};
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::{Verdict, count};

/// Number of FieldBindings that are shown.
const SHOWN: usize = 20;

impl Own for Binding {
    const HEADING: &str = "FieldBindings";
    const UNSERVED: &str =
        "FieldBindings, but no pod-reloader that binds fields (fieldBindings.enabled)";

    fn verdict(&self) -> Verdict {
        self.verdict()
    }
}

/// Lists the FieldBindings, or those of the user's namespace if the cluster's cannot be listed. `None` if there are
/// none, or if others than the operators that are looked at may bind their fields.
///
/// # Errors
/// When an operator binds fields, and they cannot be listed.
pub(super) async fn bindings(
    cluster: &Cluster,
    operators: &Operators,
) -> Result<Option<Served<Binding>>, Unseen> {
    let Some(are_served) = operators.any(|it| !it.args.field_bindings_kinds.0.is_empty()) else {
        return Ok(None);
    };
    let mut all = bindings::list(cluster, None).await;
    if all.as_ref().is_err_and(Unseen::is_forbidden) {
        let own = cluster.namespace.as_str();
        all = bindings::list(cluster, Some(own)).await.or(all);
    }
    Served::of(all, are_served)
}

impl Served<Binding> {
    /// Returns a row for each that is not as it should be, and one for all others.
    pub(super) fn rows(&self) -> Vec<(Verdict, String, Vec<String>)> {
        let faulty = self.all.iter().filter(|it| it.verdict() != Verdict::Good);
        let mut rows: Vec<_> = faulty
            .map(|it| {
                let name = format!("{}/{}", it.namespace, it.name);
                (it.verdict(), name, it.lines())
            })
            .collect();
        let good = self.all.len() - rows.len();
        let more = rows.len().saturating_sub(SHOWN);
        rows.truncate(SHOWN);
        if more > 0 {
            rows.push((Verdict::Bad, format!("{more} more"), vec![String::new()]));
        }
        if good > 0 {
            let line = "each field is equal to its key".to_owned();
            rows.push((Verdict::Good, count(good, "FieldBinding"), vec![line]));
        }
        rows
    }
}
