//! Parses the parts of a workload, which are the same for every kind, into what the rules need.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::value::RawValue;

use super::{Metadata, pod_selector, template::Found};
use crate::advice::{self, Advice};
use crate::annotations::{self, Inherited, Place};
use crate::dialects::Subject;
use crate::discovery::{PodSpec, Requirement};
use crate::duration::{self, MAX_SETTLE_PERIOD};
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
use crate::workload::{Markers, Reading, Restart, Stall, Workload, WorkloadId};

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
            identity: metadata,
            annotations,
            labels,
            ..
        } = self.metadata;
        let namespace = Name::parse(&metadata.namespace.unwrap_or_default())?;
        let generation = metadata.generation.unwrap_or_default();
        let has_annotations = annotations.is_some();
        let has_labels = labels.is_some();
        let annotations = annotations.unwrap_or_default();
        let labels = labels.unwrap_or_default();
        let none = Texts::default();
        let pod_specs = self.templates.iter();
        let pod_specs: Vec<_> = pod_specs
            .filter_map(|it| it.template.spec.as_ref())
            .collect();
        let subject = Subject {
            kind,
            namespace: &namespace,
            annotations: &annotations,
            labels: &labels,
            template_annotations: first(&self.templates, Found::annotations).unwrap_or(&none),
            template_labels: first(&self.templates, Found::labels).unwrap_or(&none),
            pod_specs: &pod_specs,
        };
        let (mut references, opt_in) = reading.dialects.read(&subject);
        let mut classes = reading.dialects.read_classes(&subject);
        references.rejected.append(&mut classes.rejected);
        let opt_in = opt_in.max(classes.opt_in);
        let classes = tracked(classes.names, self.selector.as_deref());
        let needs = Needs::of(&pod_specs, &namespace, &references, |kind| {
            reading.dialects.ignored != Some(kind)
        });
        let listed_only = listed_only(&pod_specs, &references);
        let pinning = match reading.pins {
            true => Pinning::read(|key| subject.annotation(key)),
            false => None,
        };
        let together = Together::read(|key| subject.annotation(key));
        let mut warnings = advice(&subject, reading);
        warnings.extend(together.as_deref().and_then(|together| {
            let is_tracked = |kind, name: &Name| {
                let (namespace, name) = (namespace.clone(), name.clone());
                references.mention(&Reference {
                    kind,
                    namespace,
                    name,
                })
            };
            together.untracked(is_tracked).map(Advice::NotTracked)
        }));
        let restart = restart(self.restart, &subject, reading);
        let is_pinned = |reference: &Reference| {
            let includes = pinning.as_deref().map(|it| it.includes(&reference.name));
            reference.kind == ConfigKind::ConfigMap && includes.unwrap_or_default()
        };
        let http_reload = match reading.http_reloads {
            false => advice::unread_reload(|key| subject.annotation(key)).map_or(Ok(None), Err),
            true => HttpReload::read(
                |key| subject.annotation(key),
                http_reload::Parts {
                    kind,
                    namespace: &namespace,
                    pod_specs: &pod_specs,
                    selector: &|| pod_selector::text(self.selector.as_deref()?),
                    restarts_by_template: restart == Restart::Template,
                    tracks_classes: classes.is_some(),
                },
                is_pinned,
            )
            .map_err(Advice::NoReload),
        };
        let http_reload = http_reload.unwrap_or_else(|advice| {
            warnings.push(advice);
            None
        });
        warnings.truncate(advice::MAX_ADVICE);
        Ok(Workload {
            listed_only,
            requirements: needs.tracked.into_iter().collect(),
            untracked_requirements: needs.untracked.into_iter().collect(),
            references,
            restart,
            http_reload,
            stall: self.stall,
            api_version: self.api_version,
            uid: metadata.uid.unwrap_or_default().into(),
            generation,
            opt_in,
            templates: self.templates.iter().map(Found::state).collect(),
            markers: Markers {
                annotations: reading.annotations_of(&annotations),
                labels: reading.labels_of(&labels),
                has_annotations,
                has_labels,
                baseline: subject.annotation(annotations::BASELINE).map(Into::into),
                annotations_size: annotations.size(),
            },
            settle_period: settle_period(&subject, reading),
            gates: Gates::read(|key| subject.annotation(key), inherited),
            staging: Staging::read(
                |key| subject.annotation(key).or_else(|| inherited.get(key)),
                &Defaults {
                    judges_all: reading.staging.judges_all
                        || pinning.as_deref().is_some_and(|it| it.reverts),
                    ..reading.staging
                },
                &self.facts,
                kind,
                generation,
            ),
            pinning,
            classes,
            advice: warnings,
            together,
            releases: Release::of(
                &reading.tools,
                |key| subject.annotation(key),
                |key| labels.get(key),
            ),
            id: WorkloadId {
                kind,
                namespace,
                name: metadata.name.unwrap_or_default().into(),
            },
        })
    }
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
    let period = text.and_then(duration::parse);
    period.map(|period| period.min(MAX_SETTLE_PERIOD))
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
fn listed_only(pod_specs: &[&PodSpec], references: &References) -> Box<[Reference]> {
    if references.named().next().is_none() {
        return Box::default();
    }
    let used: BTreeSet<_> = pod_specs.iter().flat_map(|it| it.named()).collect();
    let is_used = |it: &&Reference| used.contains(&(it.kind, it.name.as_str()));
    let named = references.named();
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
