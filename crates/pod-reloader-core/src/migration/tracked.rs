//! Everything of a workload that has to be the same before and after a migration.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::extent::Extent;
use crate::mark::Marks;
use crate::name::Name;
use crate::reference::Reference;
use crate::workload::{Restart, Workload};

/// What is tracked by name: the parts of objects, by the marks that they need.
type Asked = BTreeMap<(Reference, Marks), Extent>;

/// Returns true if only objects with a mark are tracked, for which a workload searches.
pub(super) fn searches(needs: Marks) -> bool {
    needs.contain(Marks::STAKATER_MATCH)
}

/// Everything that has to be the same before and after.
#[derive(PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) asked: Asked,
    pub(super) classes: BTreeSet<Name>,
    pub(super) settle_period: Option<Duration>,
    pub(super) restarts_by_time: bool,
}

impl Tracked {
    pub(super) fn of(workload: &Workload) -> Self {
        let classes = workload
            .rare()
            .classes
            .iter()
            .flat_map(|classes| &classes.names);
        Self {
            asked: asked(workload),
            classes: classes.cloned().collect(),
            settle_period: workload.rare().settle_period,
            restarts_by_time: matches!(workload.restart, Restart::At { .. }),
        }
    }

    pub(super) fn has(&self, reference: &Reference) -> bool {
        self.asked.keys().any(|(own, _)| own == reference)
    }
}

fn asked(workload: &Workload) -> Asked {
    let mut asked = Asked::new();
    for claim in &workload.references.claims {
        let place = ((*claim.reference).clone(), claim.needs);
        let extent = match asked.remove(&place) {
            Some(known) => known.or(&claim.extent),
            None => claim.extent.clone(),
        };
        asked.insert(place, extent);
    }
    // A search adds nothing to what is tracked whether or not it has the mark.
    let adds_nothing = |reference: &Reference, needs: Marks, extent: &Extent| {
        let mut others = [Marks::NONE, Marks::IMMUTABLE].into_iter();
        let other = others.find(|other| (*other | Marks::STAKATER_MATCH) == needs);
        let known = other.and_then(|other| asked.get(&(reference.clone(), other)));
        known.is_some_and(|known| known.clone().or(extent) == *known)
    };
    let kept = asked
        .iter()
        .filter(|((reference, needs), extent)| !adds_nothing(reference, *needs, extent));
    kept.map(|(place, extent)| (place.clone(), extent.clone()))
        .collect()
}
