//! `impact`: which workloads a change of an object restarts, and which could not start without it.

use pod_reloader::args::Reconcile;
use pod_reloader_core::claim::Keys;
use pod_reloader_core::digest::{Aspects, ConfigObject, Presence};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde::Serialize;

use crate::cluster::{Cluster, Place, Unseen};
use crate::explain::stall;
use crate::operators::{NONE_FOUND, Operators};
use crate::print::{Answer, Verdict, bold, count, section, table};
use crate::workloads::{self, Seen, consumption};

/// What a change of one object does.
#[derive(Debug, Serialize)]
pub(crate) struct Impact {
    kind: String,
    namespace: String,
    name: String,
    /// The key that changes, where it is one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// `None` where you may not see that.
    exists: Option<bool>,
    /// The workloads that use the object, or name it.
    workloads: Vec<Row>,
    /// What you may not see.
    unseen: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    kind: String,
    name: String,
    /// Where it says so.
    pods: Option<i64>,
    /// Whether a change restarts it.
    restarts: bool,
    /// Why not, or when.
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
    /// Without which of the object its pods do not start.
    needs: Vec<String>,
}

/// Tells what a change of an object of the namespace does.
pub(crate) async fn impact(
    cluster: &Cluster,
    operators: &Operators,
    (kind, name): &(ConfigKind, Name),
    key: Option<&str>,
) -> (Impact, Verdict) {
    let reference = Reference {
        kind: *kind,
        namespace: cluster.namespace.clone(),
        name: name.clone(),
    };
    let mut unseen = operators.unseen.clone();
    let place = Place::new("v1", kind.plural(), Some(cluster.namespace.as_str()));
    let body = match cluster.get_raw(place, name.as_str()).await {
        Ok(body) => Some(Some(body)),
        Err(Unseen::Absent(_)) => Some(None),
        Err(error) => {
            unseen.push(format!("whether {kind} {name} is there: {error}"));
            None
        }
    };
    let object = Object {
        reference: &reference,
        body: body.as_ref().map(|body| body.as_deref()),
        key,
    };
    let row = |seen: Seen<'_>| object.row(&seen);
    let namespace = Some(&cluster.namespace);
    let (workloads, unlisted) = workloads::list(cluster, operators, namespace, row).await;
    let errors = unlisted.iter();
    unseen.extend(errors.map(|error| format!("some workloads: {error}")));
    let verdict = operators.verdict(unlisted.is_empty());
    if operators.are_none() {
        unseen.push(NONE_FOUND.to_owned());
    }
    let impact = Impact {
        kind: kind.to_string(),
        namespace: cluster.namespace.to_string(),
        name: name.to_string(),
        key: key.map(ToOwned::to_owned),
        exists: body.map(|body| body.is_some()),
        workloads,
        unseen,
    };
    (impact, verdict)
}

/// The object in question.
struct Object<'a> {
    reference: &'a Reference,
    /// As it is serialised; `None` inside where it is not there, outside where that cannot be seen.
    body: Option<Option<&'a [u8]>>,
    key: Option<&'a str>,
}

impl Object<'_> {
    /// What its change does to a workload. `None` for one that it does not concern.
    fn row(&self, seen: &Seen<'_>) -> Option<Row> {
        let workload = &seen.workload;
        let uses = seen.uses();
        let ways = uses.get(self.reference);
        let keys = workload.references.keys(self.reference);
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
        let needs = needs.filter(|it| it.reference == *self.reference && concerns(&it.key));
        Some(Row {
            kind: workload.id.kind.to_string(),
            name: workload.id.name.to_string(),
            pods: seen.pods(),
            restarts: obstacle.is_none(),
            remark: obstacle
                .map(|obstacle| match used.is_empty() {
                    true => obstacle,
                    false => format!("{obstacle} (used as {used})"),
                })
                .or_else(|| stall(seen).map(ToOwned::to_owned)),
            needs: needs
                .map(|it| it.key.as_deref().unwrap_or("the object").to_owned())
                .collect(),
        })
    }

    /// Why a change does not restart the workload.
    fn obstacle(&self, seen: &Seen<'_>, keys: Option<&Keys>) -> Option<String> {
        if let Some(obstacle) = &seen.obstacle {
            return Some(format!("not kept: {obstacle}"));
        }
        let Some(keys) = keys else {
            return Some("it does not count for it".to_owned());
        };
        match seen.operator.map(|it| it.args.reconcile) {
            Some(Reconcile::Off) => {
                return Some("the operator runs with --reconcile=off".to_owned());
            }
            Some(Reconcile::Observe) => return Some("the operator only observes".to_owned()),
            Some(Reconcile::On) | None => {}
        }
        if let (Keys::Named(named), Some(key)) = (keys, self.key)
            && !named.contains(key)
        {
            let named = Vec::from_iter(named.iter().map(|key| &**key)).join(", ");
            return Some(format!("of its keys these count: {named}"));
        }
        let references = &seen.workload.references;
        let aspects = Aspects {
            selector: seen.operator.and_then(|it| it.scope.config_selector()),
            by_keys: references.by_keys(self.reference),
        };
        let presence = match self.body? {
            None => Presence::Absent,
            Some(body) => Presence::Present(ConfigObject::parse(body, aspects).ok()?),
        };
        // One that is absent counts once it is there, as far as anybody knows.
        if !references.counts(self.reference, &presence) && presence != Presence::Absent {
            return Some(
                "a label or annotation of the object says that it does not count".to_owned(),
            );
        }
        None
    }
}

impl Answer for Impact {
    fn text(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        let there = match self.exists {
            Some(true) => "",
            Some(false) => ", which is not there,",
            None => ", which you may not see,",
        };
        let of = match &self.key {
            Some(key) => format!("key {key} of {kind} {name}"),
            None => format!("{kind} {name}"),
        };
        let restarted: Vec<_> = self.workloads.iter().filter(|row| row.restarts).collect();
        let pods: i64 = restarted.iter().filter_map(|row| row.pods).sum();
        let needing = self
            .workloads
            .iter()
            .filter(|row| !row.needs.is_empty())
            .count();
        let mut text = bold(format!(
            "A change of {of}{there} in namespace {namespace} restarts {} with {}.",
            count(restarted.len(), "workload"),
            count(pods, "pod")
        ))
        .to_string();
        text += "\n";
        if needing > 0 {
            text += &format!(
                "{} could not start without it.\n",
                count(needing, "workload")
            );
        }
        if !self.workloads.is_empty() {
            let rows: Vec<_> = self.workloads.iter().map(Row::cells).collect();
            text += "\n";
            text += &table(
                ["WORKLOAD", "PODS", "RESTARTS", "PODS NEED", "REMARK"],
                &rows,
            );
        }
        text + &section("Not seen", &self.unseen)
    }
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let yes_or_no = if self.restarts { "yes" } else { "no" };
        [
            format!("{} {}", self.kind, self.name),
            self.pods.map_or("?".to_owned(), |pods| pods.to_string()),
            yes_or_no.to_owned(),
            match self.needs.is_empty() {
                true => "-".to_owned(),
                false => self.needs.join(", "),
            },
            self.remark.clone().unwrap_or_default(),
        ]
    }
}
