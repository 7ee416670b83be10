//! `undo`: brings the configuration of an earlier revision back, and nothing else of it.

mod outcome;

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::annotations::{PIN, PINS};
use pod_reloader_core::digest::{Aspects, Presence};
use pod_reloader_core::mark::Marks;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::{Pins, is_copy_name};
use serde::Serialize;
use serde_json::Value;

use self::outcome::outcome;
use crate::args::Target;
use crate::cluster::{Cluster, Rewrite, Unseen};
use crate::objects;
use crate::operators::Operators;
use crate::print::{Answer, Text, Verdict, by, some};
use crate::revisions::{Revision, Stamps, revisions, template_path};
use crate::workloads::{self, Seen, at};

/// The outcome of an undo.
#[derive(Debug, Serialize)]
pub(crate) struct Undo {
    kind: String,
    namespace: String,
    name: String,
    /// The revision whose configuration is to come back. `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<i64>,
    /// The copies of that revision, by the name of the ConfigMap.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pins: BTreeMap<String, String>,
    /// True if the pods get these copies, or have them.
    undone: bool,
    /// True if that was written just now, or would have been in a dry run.
    changed: bool,
    /// True if nothing is stored.
    #[serde(rename = "dryRun", skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
    /// The outcome in words.
    state: String,
    /// The apiserver's warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    verdict: Verdict,
}

/// A reason to write nothing.
#[derive(Debug, PartialEq, Eq)]
struct End(Verdict, String);

/// The revision to bring back, and what its pods used.
#[derive(Debug, PartialEq, Eq)]
struct Earlier {
    number: i64,
    /// The value of the annotation.
    value: String,
    pins: Pins,
}

/// Brings back the configuration of the revision `to`, or of the latest one that has another.
///
/// # Errors
/// When the workload or its revisions cannot be read.
pub(crate) async fn undo(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
    to: Option<i64>,
) -> Result<(Undo, Verdict), Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let undo = match earlier(cluster, &seen, to).await {
        Err(NoEarlier::Unseen(error)) => return Err(error),
        Err(NoEarlier::End(End(verdict, state))) => Undo::of(&seen, None, verdict, state),
        Ok(earlier) => match copies_are_there(cluster, &seen, &earlier).await {
            Err(End(verdict, state)) => Undo::of(&seen, Some(&earlier), verdict, state),
            Ok(()) => write(cluster, &seen, &earlier).await,
        },
    };
    let verdict = undo.verdict;
    Ok((undo, verdict))
}

/// The reason for having no earlier revision.
enum NoEarlier {
    /// The revisions cannot be read.
    Unseen(Unseen),
    /// There is none to go back to.
    End(End),
}

impl From<Unseen> for NoEarlier {
    fn from(error: Unseen) -> Self {
        Self::Unseen(error)
    }
}

async fn earlier(
    cluster: &Cluster,
    seen: &Seen<'_>,
    to: Option<i64>,
) -> Result<Earlier, NoEarlier> {
    if let Some(state) = unpinned(seen) {
        return Err(NoEarlier::End(End(Verdict::Bad, state)));
    }
    let Some(revisions) = revisions(cluster, seen).await? else {
        let kind = seen.workload.id.kind;
        let state = format!("nobody keeps revisions of a {kind}");
        return Err(NoEarlier::End(End(Verdict::Bad, state)));
    };
    let present = Stamps::present(seen).pins;
    let present = present.as_deref().and_then(Pins::parse).unwrap_or_default();
    let earlier = match to {
        Some(number) => chosen(&revisions, &present, number),
        None => latest(&revisions, &present),
    };
    earlier.map_err(NoEarlier::End)
}

/// Returns the reason why the workload has no pins, if it has none.
fn unpinned(seen: &Seen<'_>) -> Option<String> {
    let is_off = seen.operator.is_some_and(|operator| !operator.args.pin);
    let asks = seen.object["metadata"]["annotations"].get(PIN).is_some();
    if let Some(obstacle) = &seen.obstacle {
        Some(format!("it is not managed: {obstacle}"))
    } else if is_off {
        Some("nothing is pinned, because the operator runs without --pin".to_owned())
    } else if !asks || (seen.operator.is_some() && seen.workload.rare().pinning.is_none()) {
        Some(format!(
            "it is not pinned, so its revisions keep no configuration: that takes the annotation {PIN}"
        ))
    } else if template_path(seen).is_none() {
        Some("it is not pinned: its pods are not restarted by a template of its own".to_owned())
    } else {
        None
    }
}

/// Returns the newest revision that brings something back. Expects the newest revision first.
fn latest(revisions: &[Revision], present: &Pins) -> Result<Earlier, End> {
    let mut earlier = revisions.iter().filter_map(|it| Earlier::of(it).ok());
    let found = earlier.find(|earlier| brings_back(&earlier.pins, present));
    found.ok_or_else(|| {
        let state = match revisions.iter().any(|it| it.stamps.pins.is_some()) {
            true => "no earlier revision has pins of another configuration",
            false => "no earlier revision has pins",
        };
        End(Verdict::Bad, state.to_owned())
    })
}

/// Returns the revision with this number.
fn chosen(revisions: &[Revision], present: &Pins, number: i64) -> Result<Earlier, End> {
    let revision = revisions.iter().find(|it| it.number == number);
    let Some(revision) = revision else {
        let numbers: Vec<_> = revisions.iter().map(|it| it.number.to_string()).collect();
        let state = match &*numbers {
            [] => format!("there is no revision {number}, nor any other"),
            numbers => format!(
                "there is no revision {number}, but {}",
                some(numbers, NAMED)
            ),
        };
        return Err(End(Verdict::Bad, state));
    };
    let earlier = Earlier::of(revision).map_err(|state| End(Verdict::Bad, state))?;
    match brings_back(&earlier.pins, present) {
        true => Ok(earlier),
        false => Err(End(
            Verdict::Good,
            format!("it has the configuration of revision {number} already"),
        )),
    }
}

/// Returns true if pods with these pins use other copies than they do at present. A ConfigMap that is not pinned
/// any more stays as it is.
fn brings_back(pins: &Pins, present: &Pins) -> bool {
    pins.iter()
        .any(|(source, copy)| match present.get(source.as_str()) {
            Some(own) => own != copy,
            None => present.is_empty(),
        })
}

impl Earlier {
    /// Returns the reason in words if a revision has no pins.
    fn of(revision: &Revision) -> Result<Self, String> {
        let number = revision.number;
        let value = match revision.stamps.pins.as_deref() {
            None => {
                return Err(format!(
                    "revision {number} has no pins: it was rolled out without"
                ));
            }
            Some("") => {
                return Err(format!(
                    "revision {number} has no pins: its copies could not be made"
                ));
            }
            Some(value) => value,
        };
        let pins = Pins::parse(value)
            .ok_or_else(|| format!("the pins of revision {number} cannot be read"))?;
        Ok(Self {
            number,
            value: value.to_owned(),
            pins,
        })
    }
}

/// Looks for the copies. One that the user may not see is left to the webhook, which reads it too.
async fn copies_are_there(
    cluster: &Cluster,
    seen: &Seen<'_>,
    earlier: &Earlier,
) -> Result<(), End> {
    let names = earlier.pins.iter().map(|(_, copy)| copy);
    let references = names.map(|it| seen.config_map(it)).collect();
    let found = objects::read(cluster, &references, Aspects::default()).await;
    for (source, copy) in earlier.pins.iter() {
        let is_copy = match found.objects.get(&seen.config_map(copy)) {
            None => true,
            Some(Presence::Absent) => {
                let state = format!(
                    "copy {copy} is gone, and with it the content that ConfigMap {source} had in revision {}",
                    earlier.number
                );
                return Err(End(Verdict::Bad, state));
            }
            // Only the operator has the keys that tell whether the name is that of the content. It looks again.
            Some(Presence::Present(object)) => {
                object.marks.contain(Marks::COPY | Marks::IMMUTABLE) && is_copy_name(source, copy)
            }
        };
        if !is_copy {
            let state = format!("ConfigMap {copy} is no copy of ConfigMap {source}");
            return Err(End(Verdict::Bad, state));
        }
    }
    Ok(())
}

async fn write(cluster: &Cluster, seen: &Seen<'_>, earlier: &Earlier) -> Undo {
    let differing = differing(cluster, seen, earlier).await;
    let before = Stamps::present(seen);
    let rewrite = Rewrite {
        uid: &seen.workload.uid,
        template: template_path(seen).unwrap_or_default(),
        key: PINS,
        old: before.pins.as_deref(),
        new: &earlier.value,
    };
    let (place, name) = (seen.place(), &seen.workload.id.name);
    let written = rewrite.write(cluster, place, name).await;
    let (object, warnings) = match written {
        Ok(written) => written,
        Err(error) => {
            let state = why_refused(cluster, seen, &before, error).await;
            return Undo::of(seen, Some(earlier), Verdict::Bad, state);
        }
    };
    let (is_undone, verdict, state) = outcome(seen, earlier, &before, &object, &differing);
    let state = format!("{state}{}", cluster.writes.remark());
    Undo {
        undone: is_undone,
        changed: is_undone,
        is_dry_run: cluster.writes.is_dry_run(),
        warnings,
        ..Undo::of(seen, Some(earlier), verdict, state)
    }
}

/// Returns the ConfigMaps that have other content now than the copies, as far as the user may see them.
async fn differing(cluster: &Cluster, seen: &Seen<'_>, earlier: &Earlier) -> BTreeSet<Name> {
    let both = earlier
        .pins
        .iter()
        .flat_map(|(source, copy)| [source, copy]);
    let references = both.map(|it| seen.config_map(it)).collect();
    let found = objects::read(cluster, &references, Aspects::default()).await;
    let differs = |(source, copy): &(&Name, &Name)| {
        let object = |name: &Name| found.objects.get(&seen.config_map(name));
        match (object(source), object(copy)) {
            (Some(Presence::Present(now)), Some(Presence::Present(copy))) => {
                now.digest != copy.digest
            }
            _ => false,
        }
    };
    let differing = earlier.pins.iter().filter(differs);
    differing.map(|(source, _)| source.clone()).collect()
}

/// Says why nothing could be written: the apiserver does not tell which test of a patch has failed.
async fn why_refused(cluster: &Cluster, seen: &Seen<'_>, before: &Stamps, error: Unseen) -> String {
    if !matches!(error, Unseen::Refused { .. }) {
        return error.words();
    }
    let name = &*seen.workload.id.name;
    let now: Result<Value, _> = cluster.get(seen.place(), name).await;
    let has_changed = now.is_ok_and(|now| {
        let template = at(&now, template_path(seen).unwrap_or_default());
        now["metadata"]["uid"] != *seen.workload.uid || Stamps::of(template).pins != before.pins
    });
    match has_changed {
        true => "nothing was undone: its pins have changed meanwhile".to_owned(),
        false => error.to_string(),
    }
}

/// Number of copies or revisions that are named.
const NAMED: usize = 5;

impl Undo {
    /// Returns an answer that has undone nothing.
    fn of(seen: &Seen<'_>, earlier: Option<&Earlier>, verdict: Verdict, state: String) -> Self {
        let id = &seen.workload.id;
        let pins = earlier.into_iter().flat_map(|earlier| earlier.pins.iter());
        let pins = pins.map(|(source, copy)| (source.to_string(), copy.to_string()));
        Self {
            kind: id.kind.to_string(),
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            revision: earlier.map(|earlier| earlier.number),
            pins: pins.collect(),
            undone: verdict == Verdict::Good,
            changed: false,
            is_dry_run: false,
            state,
            warnings: Vec::new(),
            verdict,
        }
    }
}

impl Answer for Undo {
    fn text(&self) -> Text {
        let mut text = Text::default();
        let head = format!(
            "{} {} in namespace {}: ",
            self.kind, self.name, self.namespace
        );
        text.line([head.into(), by(self.verdict, &*self.state)]);
        for warning in &self.warnings {
            text.line([by(Verdict::Unknown, format!("Warning: {warning}"))]);
        }
        text
    }
}

#[cfg(test)]
mod tests;
