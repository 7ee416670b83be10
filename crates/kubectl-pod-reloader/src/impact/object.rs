//! What a change of an object does to each workload.

use pod_reloader_core::digest::{Aspects, ConfigObject, Presence};
use pod_reloader_core::extent::Extent;
use pod_reloader_core::reference::Reference;
use pod_reloader_settings::Reconcile;

use super::Row;
use crate::gates;
use crate::objects::Tags;
use crate::rollout::stall;
use crate::steps::Restarted;
use crate::workloads::{Seen, consumption};

/// The object that changes.
pub(super) struct Object<'a> {
    pub(super) reference: &'a Reference,
    /// The object as serialised. The inner `None` means that it does not exist, the outer one that this
    /// cannot be seen.
    pub(super) body: Option<Option<&'a [u8]>>,
    pub(super) key: Option<&'a str>,
}

impl Object<'_> {
    /// Returns true if the object has the key that changes. `None` if there is no such key, or if that cannot
    /// be seen.
    pub(super) fn has_key(&self) -> Option<bool> {
        Some(self.object()?.has(self.key?))
    }

    /// Returns true if the object is known to be on hold.
    pub(super) fn is_held(&self) -> bool {
        self.object().is_some_and(|it| it.is_held())
    }

    pub(super) fn tags(&self) -> Tags {
        let body = self.body.flatten();
        body.map_or_else(Tags::default, |body| Tags::of(self.reference, body))
    }

    /// Returns the object, if it is there and can be read.
    fn object(&self) -> Option<ConfigObject> {
        ConfigObject::parse(self.body??, Aspects::default()).ok()
    }

    /// Returns the effect on one workload, or `None` if the object does not concern it.
    pub(super) fn row(&self, seen: &Seen<'_>) -> Option<Row> {
        let workload = &seen.workload;
        let uses = seen.uses();
        let ways = uses.get(self.reference);
        let keys = workload.references.extent(self.reference);
        if keys.is_none() && ways.is_none() {
            return None;
        }
        let obstacle = self.obstacle(seen, keys.as_ref());
        let ways = ways.into_iter().flatten().map(|way| consumption(*way));
        let used = Vec::from_iter(ways).join(", ");
        let needs = seen.needs();
        let concerns = |key: &Option<Box<str>>| match (key, self.key) {
            (Some(needed), Some(changed)) => **needed == *changed,
            _ => true,
        };
        let needs = needs.iter();
        let needs = needs.filter(|(needed, key)| needed == self.reference && concerns(key));
        Some(Row {
            kind: workload.id.kind.to_string(),
            name: workload.id.name.to_string(),
            pods: seen.pods(),
            restarts: obstacle.is_none(),
            restarted: match &obstacle {
                None => Restarted::of(seen, [self.reference.kind].into_iter()),
                Some(_) => None,
            },
            remark: obstacle
                .map(|obstacle| match used.is_empty() {
                    true => obstacle,
                    false => format!("{obstacle} (used as {used})"),
                })
                .or_else(|| {
                    let gates = gates::remark(workload.rare().gates.as_deref());
                    let reload = reloads(seen, self.reference);
                    let remark = gates.or(reload).or(stall(seen));
                    remark.map(ToOwned::to_owned)
                }),
            needs: needs
                .map(|(_, key)| key.as_deref().unwrap_or("the object").to_owned())
                .collect(),
        })
    }

    /// Returns the reason why a change does not restart the workload.
    fn obstacle(&self, seen: &Seen<'_>, keys: Option<&Extent>) -> Option<String> {
        if let Some(obstacle) = &seen.obstacle {
            return Some(format!("not managed: {obstacle}"));
        }
        let Some(keys) = keys else {
            return Some("this workload does not track it".to_owned());
        };
        match seen.operator.map(|it| it.args.reconcile) {
            Some(Reconcile::Nothing) => {
                return Some("the operator runs with --reconcile=none".to_owned());
            }
            Some(Reconcile::Observe) => return Some("the operator only observes".to_owned()),
            Some(Reconcile::Restart) | None => {}
        }
        if let (Extent::Named(named), Some(key)) = (keys, self.key)
            && !named.contains(key)
        {
            let named = Vec::from_iter(named.iter().map(|key| &**key)).join(", ");
            return Some(format!("of its keys these count: {named}"));
        }
        let references = &seen.workload.references;
        let aspects = Aspects {
            selector: seen.operator.and_then(|it| it.scope.config_selector()),
            ..Aspects::default()
        };
        let presence = match self.body? {
            None => Presence::Absent,
            Some(body) => Presence::Present(ConfigObject::parse(body, aspects).ok()?),
        };
        // An absent object is tracked once it exists, as far as anybody knows.
        if !references.tracks(self.reference, &presence) && presence != Presence::Absent {
            return Some(
                "a label or annotation of the object says that it does not count".to_owned(),
            );
        }
        None
    }
}

/// Returns how the pods of a workload get a change of an object without a restart, if they do.
fn reloads(seen: &Seen<'_>, object: &Reference) -> Option<&'static str> {
    let reload = seen.workload.rare().http_reload.as_deref()?;
    let remark = "its pods are asked to reload it, and restarted if one of them does not";
    reload.reaches(object).then_some(remark)
}
