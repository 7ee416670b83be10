//! Parses the parts of a workload, which are the same for every kind, into what the rules need.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::{Metadata, pod_selector, template::Found};
use crate::advice::{self, Advice};
use crate::annotations::{self, Inherited, Place};
use crate::dialects::{OptIn, Subject};
use crate::discovery::{PodSpec, Requirement};
use crate::duration;
use crate::gate::Gates;
use crate::http_reload::{self, HttpReload};
use crate::kind::WorkloadKind;
use crate::name::{InvalidName, Name};
use crate::pins::Pinning;
use crate::reference::{ConfigKind, Reference};
use crate::references::{MAX_REFERENCES, References};
use crate::release::Release;
use crate::secret_provider_class::Classes;
use crate::staging::{Defaults, Facts, Staging};
use crate::texts::Texts;
use crate::together::Together;
use crate::workload::{Markers, Rare, Reading, Restart, Stall, Workload, WorkloadId};

/// A workload, taken apart.
pub(super) struct Parts {
    pub(super) api_version: Option<Box<str>>,
    pub(super) metadata: Metadata,
    pub(super) templates: Vec<Found>,
    pub(super) restart: Restart,
    pub(super) stall: Option<Stall>,
    pub(super) facts: Facts,
    /// The label selector of the pods, if the workload has one.
    pub(super) selector: Option<Box<RawValue>>,
}

impl Parts {
    /// Parses what the rules need.
    pub(super) fn read(
        self,
        kind: WorkloadKind,
        reading: &Reading,
        inherited: &Inherited,
    ) -> Result<Workload, InvalidName> {
        let Metadata {
            identity,
            annotations,
            labels,
            ..
        } = self.metadata;
        let namespace = Name::parse(&identity.namespace.unwrap_or_default())?;
        let generation = identity.generation.unwrap_or_default();
        let none = Texts::default();
        let pod_specs = pod_specs(&self.templates);
        let subject = Subject {
            kind,
            namespace: &namespace,
            annotations: annotations.as_ref().unwrap_or(&none),
            labels: labels.as_ref().unwrap_or(&none),
            template_annotations: first(&self.templates, Found::annotations).unwrap_or(&none),
            template_labels: first(&self.templates, Found::labels).unwrap_or(&none),
            pod_specs: &pod_specs,
        };
        let annotation = |key: &str| subject.annotation(key);
        let selector = self.selector.as_deref();
        let tracked = Tracked::of(&subject, reading, selector);
        let restart = restart(self.restart, &subject, reading);
        let handling = handling(&subject, reading, &restart, &tracked, selector);
        let defaults = staging_defaults(reading, handling.pinning.as_deref());
        let rare = Rare {
            api_version: self.api_version,
            settle_period: settle_period(&subject, reading),
            gates: Gates::read(annotation, inherited),
            classes: tracked.classes,
            ..handling
        };
        Ok(Workload {
            listed_only: listed_only(&pod_specs, &tracked.references),
            requirements: tracked.needs.tracked.into_iter().collect(),
            untracked_requirements: tracked.needs.untracked.into_iter().collect(),
            references: tracked.references,
            restart,
            stall: self.stall,
            uid: identity.uid.unwrap_or_default().into(),
            generation,
            opt_in: tracked.opt_in,
            releases: Release::of(&reading.tools, annotation, |key| subject.labels.get(key)),
            templates: self.templates.iter().map(Found::state).collect(),
            markers: markers(&subject, reading, [annotations.is_some(), labels.is_some()]),
            staging: staging(&subject, inherited, &defaults, &self.facts, generation),
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            id: Arc::new(WorkloadId {
                kind,
                namespace,
                name: identity.name.unwrap_or_default().into(),
            }),
        })
    }
}

/// What counts for a workload.
struct Tracked {
    references: References,
    classes: Option<Box<Classes>>,
    opt_in: OptIn,
    needs: Needs,
}

impl Tracked {
    fn of(subject: &Subject<'_>, reading: &Reading, selector: Option<&RawValue>) -> Self {
        let (mut references, opt_in) = reading.dialects.read(subject);
        let classes = reading.dialects.read_classes(subject);
        let rejected = references.rejected.into_iter().chain(classes.rejected);
        references.rejected = rejected.collect();
        let may_read = |kind| reading.dialects.ignored != Some(kind);
        Self {
            needs: Needs::of(subject.pod_specs, subject.namespace, &references, may_read),
            references,
            opt_in: opt_in.max(classes.opt_in),
            classes: tracked(classes.names, selector),
        }
    }
}

/// Returns how a workload is treated beside its restarts, and the mistakes that its users have made about it.
fn handling(
    subject: &Subject<'_>,
    reading: &Reading,
    restart: &Restart,
    tracked: &Tracked,
    selector: Option<&RawValue>,
) -> Rare {
    let pinning = match reading.pins {
        true => Pinning::read(|key| subject.annotation(key)),
        false => None,
    };
    let together = Together::read(|key| subject.annotation(key));
    let mut advice = advice(subject, reading);
    if let Some(together) = &together {
        advice.extend(not_tracked(
            together,
            subject.namespace,
            &tracked.references,
        ));
    }
    let parts = http_reload::Parts {
        kind: subject.kind,
        namespace: subject.namespace,
        pod_specs: subject.pod_specs,
        selector: &|| pod_selector::text(selector?),
        restarts_by_template: *restart == Restart::Template,
        tracks_classes: tracked.classes.is_some(),
    };
    let http_reload = http_reload(subject, reading, parts, pinning.as_deref());
    let http_reload = http_reload.unwrap_or_else(|wrong| {
        advice.push(wrong);
        None
    });
    advice.truncate(advice::MAX_ADVICE);
    Rare {
        http_reload,
        pinning,
        together,
        advice: advice.into(),
        ..Rare::default()
    }
}

/// Returns the pod specs of the templates that have one.
fn pod_specs(templates: &[Found]) -> Vec<&PodSpec> {
    let specs = templates
        .iter()
        .filter_map(|found| found.template.spec.as_ref());
    specs.collect()
}

/// Returns the labels and annotations as stored, given whether there are maps of annotations and of labels at all.
fn markers(
    subject: &Subject<'_>,
    reading: &Reading,
    [has_annotations, has_labels]: [bool; 2],
) -> Markers {
    Markers {
        annotations: reading.annotations_of(subject.annotations),
        labels: reading.labels_of(subject.labels),
        has_annotations,
        has_labels,
        baseline: subject.annotation(annotations::BASELINE).map(Into::into),
        annotations_size: subject.annotations.size(),
    }
}

/// Returns the settings that hold where a workload has none of its own: the health of one that may be put back always
/// matters.
fn staging_defaults(reading: &Reading, pinning: Option<&Pinning>) -> Defaults {
    Defaults {
        judges_all: reading.staging.judges_all || pinning.is_some_and(|it| it.reverts),
        ..reading.staging
    }
}

fn staging(
    subject: &Subject<'_>,
    inherited: &Inherited,
    defaults: &Defaults,
    facts: &Facts,
    generation: i64,
) -> Option<Box<Staging>> {
    let annotation = |key: &str| subject.annotation(key).or_else(|| inherited.get(key));
    Staging::read(annotation, defaults, facts, subject.kind, generation)
}

/// Returns the advice on objects that are said to change together and are not tracked.
fn not_tracked(together: &Together, namespace: &Name, references: &References) -> Option<Advice> {
    let is_tracked = |kind, name: &Name| {
        references.mention(&Reference {
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
        })
    };
    together.untracked(is_tracked).map(Advice::NotTracked)
}

/// Returns how the pods of a workload reload changed config, if its users want that.
///
/// # Errors
///
/// Returns the advice on a workload whose pods are restarted in place of that.
fn http_reload(
    subject: &Subject<'_>,
    reading: &Reading,
    parts: http_reload::Parts<'_>,
    pinning: Option<&Pinning>,
) -> Result<Option<Box<HttpReload>>, Advice> {
    let annotation = |key: &str| subject.annotation(key);
    if !reading.http_reloads {
        return advice::unread_reload(annotation).map_or(Ok(None), Err);
    }
    let is_pinned = |reference: &Reference| {
        let is_included = pinning.is_some_and(|it| it.includes(&reference.name));
        reference.kind == ConfigKind::ConfigMap && is_included
    };
    HttpReload::read(annotation, parts, is_pinned).map_err(Advice::NoReload)
}

/// Returns the classes to track. Without a selector, nobody can tell whose pods mount them.
fn tracked(names: BTreeSet<Name>, selector: Option<&RawValue>) -> Option<Box<Classes>> {
    if names.is_empty() {
        return None;
    }
    let selector = pod_selector::text(selector?)?;
    Some(Box::new(Classes {
        names: names.into_iter().collect(),
        selector: selector.into(),
    }))
}

/// Returns the annotations, or the labels, of the first pod template that has some.
fn first(templates: &[Found], texts: impl Fn(&Found) -> Option<&Texts>) -> Option<&Texts> {
    templates.iter().find_map(texts)
}

/// Returns how the workload is restarted: by the time that its kind has for that only if it must be or asks
/// for it.
fn restart(by_time: Restart, subject: &Subject<'_>, reading: &Reading) -> Restart {
    let asks_for_time = reading.dialects.restarts_at(|key| subject.annotation(key));
    match subject.kind.shape().templates.is_empty() || asks_for_time {
        true => by_time,
        false => Restart::Template,
    }
}

/// Returns the settle period that the workload asks for, as far as it may.
fn settle_period(subject: &Subject<'_>, reading: &Reading) -> Option<Duration> {
    let annotation = |key: &str| subject.annotation(key);
    let text = annotation(annotations::SETTLE_PERIOD)
        .or_else(|| reading.dialects.settle_period(subject.kind, annotation));
    text.and_then(duration::of_annotation)
}

/// Returns the advice on the annotations and labels.
fn advice(subject: &Subject<'_>, reading: &Reading) -> Vec<Advice> {
    let places = [
        (Place::Annotation, subject.annotations),
        (Place::Label, subject.labels),
        (Place::TemplateAnnotation, subject.template_annotations),
        (Place::TemplateLabel, subject.template_labels),
    ];
    advice::on(subject.kind, places, &reading.dialects)
}

/// Returns the objects that are tracked by name and that no pod names, sorted.
fn listed_only(pod_specs: &[&PodSpec], references: &References) -> Box<[Arc<Reference>]> {
    if references.named().next().is_none() {
        return Box::default();
    }
    let used: BTreeSet<_> = pod_specs.iter().flat_map(|it| it.named()).collect();
    let is_used = |it: &&Arc<Reference>| used.contains(&(it.kind, it.name.as_str()));
    let named = references.shared();
    named.filter(|it| !is_used(it)).cloned().collect()
}

/// The maximum number of objects that are not tracked and that are read before the pods are restarted.
const MAX_UNTRACKED: usize = MAX_REFERENCES;

/// What the pods need in order to start.
struct Needs {
    /// Parts of objects that may be tracked.
    tracked: BTreeSet<Requirement>,
    /// Parts of the first [`MAX_UNTRACKED`] other objects.
    untracked: BTreeSet<Requirement>,
}

impl Needs {
    /// Finds out what the pods need. Regular expressions are matched with no more objects than may be tracked. Objects
    /// of a kind that may not be read count as there.
    fn of(
        pod_specs: &[&PodSpec],
        namespace: &Name,
        references: &References,
        may_read: impl Fn(ConfigKind) -> bool,
    ) -> Self {
        let has_patterns = references.pattern_kinds().next().is_some();
        let asked = RefCell::new(HashMap::new());
        let is_matched = |reference: &Reference| {
            let mut asked = asked.borrow_mut();
            match asked.get(reference) {
                Some(is_matched) => *is_matched,
                None if asked.len() == MAX_REFERENCES => false,
                None => *asked
                    .entry(reference.clone())
                    .or_insert_with(|| references.matches(reference)),
            }
        };
        let counts = |reference: &Reference| {
            references.names(reference) || (has_patterns && is_matched(reference))
        };
        let tracked = pod_specs.iter();
        let tracked = tracked.flat_map(|it| it.requirements(namespace, counts));
        let others = RefCell::new(BTreeSet::new());
        let is_other = |reference: &Reference| {
            if counts(reference) || !may_read(reference.kind) {
                return false;
            }
            let mut others = others.borrow_mut();
            if others.len() < MAX_UNTRACKED {
                others.insert(reference.clone());
            }
            others.contains(reference)
        };
        let untracked = pod_specs.iter();
        let untracked = untracked.flat_map(|it| it.requirements(namespace, is_other));
        Self {
            tracked: tracked.collect(),
            untracked: untracked.collect(),
        }
    }
}
