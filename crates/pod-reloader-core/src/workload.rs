//! The part of one workload that the rules need.

mod markers;
mod rare;
mod template;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use self::markers::{Markers, Reading, Values};
use self::rare::NOTHING;
pub use self::rare::Rare;
pub(crate) use self::template::Slot;
pub use self::template::{Restart, Stall, TemplateState, TimeField};
use crate::advice::Advice;
use crate::annotations;
use crate::claim::Claim;
use crate::dialects::OptIn;
use crate::digest::{Objects, Presence};
use crate::discovery::{Requirement, Unmet};
use crate::item::Item;
use crate::kind::WorkloadKind;
use crate::list::quoted;
use crate::mark::Marks;
use crate::name::Name;
use crate::reference::Reference;
use crate::references::{MAX_REFERENCES, References};
use crate::release::Release;
use crate::staging::{Staged, Staging};
use crate::texts::MAX_ANNOTATIONS_SIZE;

/// The identity of a workload: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId {
    /// The workload's kind.
    pub kind: WorkloadKind,
    /// The workload's namespace.
    pub namespace: Name,
    /// The workload's name. Empty during a create that uses `generateName`. Cloning it is cheap: queues and tables
    /// hold it many times.
    pub name: Arc<str>,
}

impl fmt::Display for WorkloadId {
    /// Writes `Deployment namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Item for WorkloadId {
    fn namespace(&self) -> &Name {
        &self.namespace
    }
}

/// A workload, parsed once into what the rules need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The identity of the workload. The tables of the index share it.
    pub id: Arc<WorkloadId>,
    /// The UID. Empty during a create.
    pub uid: Box<str>,
    /// The generation, which grows with every change of the spec.
    pub generation: i64,
    /// The source of the opt-in.
    pub opt_in: OptIn,
    /// The objects that the workload tracks.
    pub references: References,
    /// The objects that are tracked by name and that no pod uses, so a list names them, sorted.
    pub listed_only: Box<[Arc<Reference>]>,
    /// The objects and keys that the pods need in order to start, among the objects that may be tracked, sorted.
    pub requirements: Box<[Requirement]>,
    /// The objects and keys that the pods need in order to start, among all other objects that may be read, sorted.
    pub untracked_requirements: Box<[Requirement]>,
    /// The pod templates, in the order that the kind lists them.
    pub templates: Box<[TemplateState]>,
    /// The way in which the pods are restarted.
    pub restart: Restart,
    /// The reason why the pods do not restart by themselves after a write, if there is one.
    pub stall: Option<Stall>,
    /// The metadata that the decision depends on, exactly as stored.
    pub markers: Markers,
    /// The workload's place in the stages, and its health. `None` if its restarts are neither staged nor
    /// limited.
    pub staging: Option<Box<Staging>>,
    /// The releases that the workload belongs to.
    pub releases: Box<[Release]>,
    /// What few workloads have. `None` if this one has nothing of it.
    pub rare: Option<Box<Rare>>,
}

impl Workload {
    /// Replaces each reference by the equal one that `shared` returns, so that all of the same object share it.
    pub(crate) fn share_references(&mut self, shared: impl Fn(&Reference) -> Arc<Reference>) {
        self.references.share(&shared);
        let references = &self.references;
        let own = |reference: &Reference| match references.claims_on(reference) {
            [claim, ..] => claim.reference.clone(),
            [] => shared(reference),
        };
        for reference in &mut self.listed_only {
            *reference = own(reference);
        }
        for requirements in [&mut self.requirements, &mut self.untracked_requirements] {
            let of_one = |one: &Requirement, next: &Requirement| one.reference == next.reference;
            for requirements in requirements.chunk_by_mut(of_one) {
                let reference = own(&requirements[0].reference);
                for requirement in requirements {
                    requirement.reference = reference.clone();
                }
            }
        }
    }

    /// Returns true if the workload opts in and no label opts it out.
    pub fn is_opted_in(&self) -> bool {
        let says_true = |label: &str| self.markers.labels.get(label) == Some("true");
        self.opt_in != OptIn::None
            && !says_true(annotations::IGNORED)
            && !says_true(annotations::DISABLED)
    }

    /// Returns the workload's place in the stages, if its restarts are staged.
    pub fn staged(&self) -> Option<&Staging> {
        let staging = self.staging.as_deref();
        staging.filter(|staging| staging.staged != Staged::Nothing)
    }

    /// Returns what few workloads have.
    pub fn rare(&self) -> &Rare {
        self.rare.as_deref().unwrap_or(&NOTHING)
    }

    /// Returns the group and version in which the workload was read.
    pub fn api_version(&self) -> &str {
        self.rare().api_version.as_deref().unwrap_or("apps/v1")
    }

    /// Returns the hash that the last restart has left: on the first pod template, or in the baseline of a workload
    /// that is restarted by a time.
    pub(crate) fn last_hash(&self) -> Option<&str> {
        self.config_hash().or_else(|| {
            let (_, hash) = self.markers.baseline.as_deref()?.rsplit_once('=')?;
            Some(hash)
        })
    }

    /// Returns the config hash on the first pod template. A workload that is restarted by a time has none.
    pub fn config_hash(&self) -> Option<&str> {
        self.slots().next()?.1.state.config_hash.as_deref()
    }

    /// Returns the pins on the first pod template.
    pub(crate) fn pins(&self) -> Option<&str> {
        self.slots().next()?.1.state.pins.as_deref()
    }

    /// Returns the config hash left on the pod templates, even if the workload is now restarted by a time.
    pub(crate) fn left_config_hash(&self) -> Option<&str> {
        let mut templates = self.templates.iter();
        templates.find_map(|template| template.config_hash.as_deref())
    }

    /// Returns the size of a pod template's annotations with this config hash and these pins, if Kubernetes would
    /// refuse it.
    pub fn too_long_with(&self, config_hash: &str, pins: Option<&str>) -> Option<usize> {
        let sizes = self.slots();
        let sizes = sizes.map(|(_, slot)| slot.state.size_with(config_hash, pins));
        sizes.max().filter(|size| *size > MAX_ANNOTATIONS_SIZE)
    }

    /// Returns true if all pod templates carry the same config hash and the same pins.
    pub fn templates_agree(&self) -> bool {
        let mut slots = self.slots();
        let first = slots.next().map(|(_, slot)| slot.state.ours());
        slots.all(|(_, slot)| Some(slot.state.ours()) == first)
    }

    /// Returns the pod templates that should carry the config hash annotation, each with its index.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, Slot<'_>)> {
        let templates = match self.restart {
            Restart::Template => self.id.kind.shape().templates,
            Restart::At { .. } => &[],
        };
        templates
            .iter()
            .zip(&self.templates)
            .enumerate()
            .filter_map(|(at, (template, state))| {
                let depth = state.depth.map(usize::from);
                let depth = depth.filter(|depth| template.can_carry(*depth))?;
                Some((
                    at,
                    Slot {
                        template: *template,
                        depth,
                        state,
                    },
                ))
            })
    }

    /// Returns true if the workload can be restarted. Some kinds leave the pod template to another object.
    pub fn can_be_restarted(&self) -> bool {
        self.restart != Restart::Template || self.slots().next().is_some()
    }

    /// Returns the keys of an object that matter individually to this workload: it tracks them, or its pods
    /// cannot start without them.
    pub fn data_keys<'a>(&'a self, reference: &'a Reference) -> impl Iterator<Item = &'a str> {
        let requirements = self.requirements.iter();
        let requirements = requirements.chain(&self.untracked_requirements);
        let required = requirements.filter(move |it| *it.reference == *reference);
        let required = required.filter_map(|it| it.key.as_deref());
        self.references.data_keys(reference).chain(required)
    }

    /// Returns what the workload asks to track and what is not there, or not there yet. Objects that its pods use are left
    /// to the kubelet, which says so itself.
    ///
    /// # Caveats
    ///
    /// An object that is not in `objects` counts as unknown, unless only a regular expression would match it.
    pub fn unanswered(&self, objects: &Objects) -> Vec<Advice> {
        let is_left_out = objects.len() >= MAX_REFERENCES;
        self.unanswered_among(objects, (!is_left_out).then(|| objects.keys()))
    }

    /// Does the same if the objects that regular expressions may match are known by name alone: `there` are all objects
    /// in the workload's namespace of the kinds that [`References::pattern_kinds`] returns. `None` if they are unknown.
    pub fn unanswered_among<'a>(
        &self,
        objects: &Objects,
        there: Option<impl Iterator<Item = &'a Reference> + Clone>,
    ) -> Vec<Advice> {
        let is_absent = |it: &&Reference| objects.get(*it) == Some(&Presence::Absent);
        let absent = self.listed_only().filter(is_absent);
        let absent = absent.cloned().map(Advice::Absent);
        let patterns = self.references.patterns.iter();
        let without_match = patterns.filter(|pattern| {
            let is_match = |it: &Reference| it.kind == pattern.kind && pattern.matches(&it.name);
            let there = there.clone();
            there.is_some_and(|mut there| !there.any(is_match))
        });
        let without_match = without_match.map(|it| Advice::NoMatch(it.kind, quoted(&it.text)));
        let none_marked = self
            .finds_none_marked(objects)
            .then_some(Advice::NoneMarked);
        absent.chain(without_match).chain(none_marked).collect()
    }

    /// Returns the objects that are tracked by name and that no pod uses, sorted.
    pub fn listed_only(&self) -> impl Iterator<Item = &Reference> {
        self.listed_only.iter().map(|reference| &**reference)
    }

    /// Returns the objects among which the workload searches for those with a mark: its pods use them.
    pub fn searched(&self) -> impl Iterator<Item = &Reference> {
        self.searches().map(|claim| &*claim.reference)
    }

    fn searches(&self) -> impl Iterator<Item = &Claim> {
        let claims = self.references.claims.iter();
        claims.filter(|claim| claim.needs.meet(Marks::STAKATER_MATCH))
    }

    /// Returns true if it searches for objects with a mark, and none that its pods use has the mark.
    fn finds_none_marked(&self, objects: &Objects) -> bool {
        let mut found = self
            .searches()
            .map(|claim| match objects.get(&*claim.reference) {
                Some(object @ Presence::Present(_)) => claim.tracks(object),
                Some(Presence::Absent) => false,
                // It may have the mark.
                None => true,
            });
        match found.next() {
            Some(is_found) => !is_found && !found.any(|is_found| is_found),
            None => false,
        }
    }

    /// Returns the objects that the pods need in order to start and that are not tracked: each once, sorted.
    pub fn untracked_needs(&self) -> impl Iterator<Item = &Reference> {
        let requirements = &self.untracked_requirements;
        let of_one = requirements.chunk_by(|one, next| one.reference == next.reference);
        of_one.map(|requirements| &*requirements[0].reference)
    }

    /// Returns the objects and keys that the pods need in order to start and that are missing: each once, sorted.
    ///
    /// # Caveats
    ///
    /// `objects` must hold every object that may be tracked. Of those that are not tracked, only the ones in `objects`
    /// are considered.
    pub fn missing(&self, objects: &Objects) -> impl Iterator<Item = Unmet> {
        let mut missing = self.missing_tracked(objects);
        missing.append(&mut self.missing_untracked(objects));
        missing.into_iter()
    }

    /// Does the same for objects that may be tracked.
    pub(crate) fn missing_tracked(&self, objects: &Objects) -> BTreeSet<Unmet> {
        let tracked = self.requirements.iter();
        let missing = tracked.filter_map(|it| match objects.get(&*it.reference) {
            Some(object) => unmet(it, object),
            // Objects matched by a pattern are read only if they exist, so an unread match is missing.
            None => {
                let is_left_out = objects.len() >= MAX_REFERENCES;
                let is_match = !is_left_out && self.references.matches(&it.reference);
                is_match.then(|| absent(it))
            }
        });
        missing.collect()
    }

    /// Does the same for objects that are not tracked.
    pub fn missing_untracked(&self, objects: &Objects) -> BTreeSet<Unmet> {
        let untracked = self.untracked_requirements.iter();
        let missing = untracked.filter_map(|it| unmet(it, objects.get(&*it.reference)?));
        missing.collect()
    }
}

/// Returns what `object` lacks of a requirement, by the rules of the kubelet.
fn unmet(requirement: &Requirement, object: &Presence) -> Option<Unmet> {
    let Presence::Present(object) = object else {
        return Some(absent(requirement));
    };
    let key = requirement.key.as_ref()?;
    let is_binary = requirement.is_variable && object.is_binary(key);
    (is_binary || !object.has(key)).then(|| Unmet {
        key: Some(key.clone()),
        is_binary,
        ..absent(requirement)
    })
}

fn absent(requirement: &Requirement) -> Unmet {
    Unmet {
        reference: (*requirement.reference).clone(),
        key: None,
        is_binary: false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Restart, TimeField, Workload};
    use crate::dialect::Dialect;
    use crate::dialects::Dialects;
    use crate::digest::ConfigObject;
    use crate::duration::MAX_SETTLE_PERIOD;
    use crate::fixtures::{Builder, config_map, deployment, objects, reference};
    use crate::mark::Marks;
    use crate::reference::{ConfigKind, Reference};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_workload_without_lists_or_with_a_label_is_left_alone() {
        assert!(!deployment("web").build().is_opted_in());
        assert!(deployment("web").lists("app-config").build().is_opted_in());
        assert!(deployment("web").lists("").build().is_opted_in());
        for label in ["ignored", "disabled"] {
            let labelled = |value| {
                deployment("web")
                    .lists("app-config")
                    .label(label, value)
                    .build()
            };
            assert!(!labelled("true").is_opted_in());
            assert!(labelled("True").is_opted_in());
        }
    }

    #[test]
    fn the_annotation_on_the_metadata_of_the_object_is_not_a_config_hash() {
        let workload = deployment("web").annotation("config-hash", "x").build();
        assert_eq!(workload.config_hash(), None);
    }

    #[test]
    fn only_listed_objects_and_their_keys_can_be_missing() {
        let workload = deployment("web")
            .lists("a")
            .requires("a", Some("k"))
            .requires("b", None)
            .build();
        let with = |object| workload.missing(&objects(&[("a", object)])).count();
        assert_eq!(with(None), 1);
        assert_eq!(with(Some(config_map(&json!({"data": {"other": ""}})))), 1);
        assert_eq!(with(Some(config_map(&json!({"data": {"k": ""}})))), 0);
        assert_eq!(with(Some(config_map(&json!({"binaryData": {"k": ""}})))), 0);
    }

    /// Returns what is missing of a workload that tracks ConfigMap `a`, in words.
    fn missing(workload: Builder, now: &[(&str, Option<ConfigObject>)]) -> Vec<String> {
        let workload = workload.lists("a").build();
        let objects = objects(now);
        let missing = workload.missing(&objects);
        missing.map(|it| it.to_string()).collect()
    }

    #[test]
    fn a_variable_is_missing_if_its_key_is_in_binary_data_and_a_file_is_not() {
        let binary = || Some(config_map(&json!({"binaryData": {"k": "/w=="}})));
        let takes = || deployment("web").takes("configMapKeyRef", "a", "k");
        let words =
            "key k of ConfigMap a (it is in binaryData, and variables come from data alone)";
        assert_eq!(missing(takes(), &[("a", binary())]), [words]);
        let both = takes().requires("a", Some("k"));
        assert_eq!(missing(both, &[("a", binary())]), [words]);
        let file = deployment("web").requires("a", Some("k"));
        assert!(missing(file, &[("a", binary())]).is_empty());
        let text = config_map(&json!({"data": {"k": ""}, "binaryData": {"other": "/w=="}}));
        assert!(missing(takes(), &[("a", Some(text))]).is_empty());
    }

    #[test]
    fn an_object_that_is_absent_is_missing_once_however_many_keys_are_needed() {
        let workload = deployment("web")
            .takes("configMapKeyRef", "a", "k")
            .takes("configMapKeyRef", "a", "l")
            .requires("a", Some("k"))
            .requires("a", None);
        assert_eq!(missing(workload, &[("a", None)]), ["ConfigMap a"]);
    }

    #[test]
    fn an_untracked_object_is_missing_if_it_was_read() {
        let workload = || {
            deployment("web")
                .takes("configMapKeyRef", "other", "k")
                .requires("file", None)
        };
        let there = || ("a", Some(config_map(&json!({}))));
        assert!(missing(workload(), &[there()]).is_empty());
        let lacks = config_map(&json!({"data": {"x": ""}}));
        assert_eq!(
            missing(
                workload(),
                &[there(), ("other", Some(lacks)), ("file", None)]
            ),
            ["ConfigMap file", "key k of ConfigMap other"]
        );
        let needs = workload().lists("a").build();
        let needs = needs.untracked_needs().map(|it| it.name.to_string());
        assert_eq!(needs.collect::<Vec<_>>(), ["file", "other"]);
    }

    fn unanswered(workload: &Workload, now: &[(&str, Option<ConfigObject>)]) -> Vec<String> {
        let advice = workload.unanswered(&objects(now));
        advice.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_says_which_objects_do_not_exist_and_are_not_used_either() {
        let web = deployment("web")
            .lists("a,b,used")
            .requires("used", None)
            .build();
        let there = || Some(config_map(&json!({})));
        assert_eq!(
            unanswered(&web, &[("a", None), ("b", there()), ("used", None)]),
            ["ConfigMap a is listed and does not exist (yet), and the pods do not use it"]
        );
        assert_eq!(unanswered(&web, &[("a", there())]), [""; 0]);
    }

    #[test]
    fn an_object_that_pods_may_do_without_is_left_to_them() {
        let source = json!([{"configMapRef": {"name": "a", "optional": true}}]);
        let containers = json!([{"name": "main", "envFrom": source}]);
        let web = deployment("web")
            .with("/spec/template/spec/containers", containers)
            .lists("a");
        assert_eq!(unanswered(&web.build(), &[("a", None)]), [""; 0]);
    }

    #[test]
    fn a_regular_expression_is_matched_with_the_names_that_there_are_if_they_are_known() {
        let key = "secret.reloader.stakater.com/reload";
        let web = speaking_stakater(deployment("web").annotated(key, "a.*"));
        let named = |kind, name| Reference {
            kind,
            ..reference(name)
        };
        let told = |there: Option<&[Reference]>| {
            let there = there.map(<[_]>::iter);
            web.unanswered_among(&objects(&[]), there).len()
        };
        let others = [
            named(ConfigKind::ConfigMap, "app"),
            named(ConfigKind::Secret, "other"),
        ];
        assert_eq!(told(Some(&others)), 1);
        assert_eq!(told(Some(&[named(ConfigKind::Secret, "app")])), 0);
        assert_eq!(told(None), 0);
    }

    fn speaking_stakater(workload: Builder) -> Workload {
        workload.read_in(Dialects {
            spoken: [Dialect::Stakater].into(),
            ..Dialects::default()
        })
    }

    #[test]
    fn a_regular_expression_says_that_nothing_matches_it() {
        let key = "configmap.reloader.stakater.com/reload";
        let web = speaking_stakater(deployment("web").annotated(key, "a.*,oth.*"));
        let there = || Some(config_map(&json!({})));
        assert_eq!(
            unanswered(&web, &[("app", there())]),
            ["no ConfigMap matches the regular expression \"oth.*\" (yet)"]
        );
        assert_eq!(unanswered(&web, &[]).len(), 2);
    }

    #[test]
    fn a_search_says_that_nothing_has_the_mark() {
        let web = deployment("web")
            .annotated("reloader.stakater.com/search", "true")
            .requires("a", None)
            .requires("b", None);
        let web = speaking_stakater(web);
        let there = |marks: Marks| {
            let mut object = config_map(&json!({}));
            object.marks = marks;
            Some(object)
        };
        let found = [there(Marks::NONE), there(Marks::STAKATER_MATCH)];
        let [none, marked] = found;
        let now = [("a", none.clone()), ("b", none.clone())];
        let searched = web.searched().map(|it| it.name.to_string());
        assert_eq!(searched.collect::<Vec<_>>(), ["a", "b"]);
        let [told] = &unanswered(&web, &now)[..] else {
            panic!("nothing has the mark")
        };
        assert!(told.contains("reloader.stakater.com/match"), "{told}");
        assert_eq!(unanswered(&web, &[("a", none), ("b", marked)]), [""; 0]);
    }

    #[test]
    fn untracked_objects_of_a_kind_that_may_not_be_read_are_not_needed() {
        let workload = || {
            deployment("web")
                .lists("a")
                .takes("configMapKeyRef", "c", "k")
                .takes("secretKeyRef", "s", "k")
        };
        let needs = |ignored| {
            let dialects = Dialects {
                ignored,
                ..Dialects::default()
            };
            let workload = workload().read_in(dialects);
            let needs = workload.untracked_needs().map(|it| it.name.to_string());
            needs.collect::<Vec<_>>()
        };
        assert_eq!(needs(None), ["c", "s"]);
        assert_eq!(needs(Some(ConfigKind::Secret)), ["c"]);
    }

    #[test]
    fn a_settle_period_is_a_duration_or_nothing() {
        let period = |text| {
            deployment("web")
                .annotation("settle-period", text)
                .build()
                .rare()
                .settle_period
        };
        assert_eq!(period("10s"), Some(Duration::from_secs(10)));
        assert_eq!(period("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(period("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(period("0s"), Some(Duration::ZERO));
        assert_eq!(period("9000000000000000000s"), Some(MAX_SETTLE_PERIOD));
        assert_eq!(period("-1s"), None);
        assert_eq!(period("soon"), None);
    }

    #[test]
    fn restarts_within_a_second_have_different_times() {
        let time = |last: Option<&str>, now: &str| {
            let value = last.map(Into::into);
            let restart = Restart::At(Box::new(TimeField { depth: 2, value }));
            restart.time(now.parse().unwrap()).to_string()
        };
        let day = |time: &str| format!("2026-01-01T{time}Z");
        let after = |last: &str, now: &str| time(Some(&day(last)), &day(now));
        assert_eq!(time(None, &day("10:00:00.3")), day("10:00:00"));
        assert_eq!(time(Some("never"), &day("10:00:00.3")), day("10:00:00"));
        assert_eq!(after("09:59:59", "10:00:00.3"), day("10:00:00"));
        assert_eq!(after("10:00:00", "10:00:00.3"), day("10:00:01"));
        assert_eq!(after("10:00:01", "10:00:00.3"), day("10:00:02"));
        // A restart scheduled for later does not delay this one.
        assert_eq!(after("12:00:00", "10:00:00.3"), day("10:00:00"));
    }
}
