//! The scope: the workloads that the operator manages.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube_core::{Expression, Selector, SelectorExt};

use crate::annotations::Inherited;
use crate::dialects::Dialects;
use crate::kind::WorkloadKind;
use crate::name::{InvalidName, Name};

use crate::object::Object;
use crate::reference::ConfigKind;
use crate::release::{Places, Tool};
use crate::staging::Defaults;
use crate::workload::{Reading, Workload};

/// The namespaces and workloads that an operator manages, and the parts of them that it reads.
///
/// The scope never includes `kube-system` or the operator's own namespace: whatever keeps the cluster, or
/// us, alive must not depend on us.
#[derive(Clone, Debug)]
pub struct Scope {
    namespaces: Option<BTreeSet<Name>>,
    excluded: BTreeSet<Name>,
    labels: Labels,
    reading: Reading,
    /// The kinds of workload apart from the built-in ones.
    pub custom_kinds: Vec<WorkloadKind>,
    /// The places of the releases that restarts wait for.
    pub releases: Places,
    /// True if workloads have annotations of their Namespace, too.
    pub inherits: bool,
}

/// The labels that are required. The default requires none.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The labels of namespaces.
    pub namespace: Option<Selector>,
    /// The labels of workloads.
    pub workload: Option<Selector>,
    /// The labels of config objects. Objects without them are not tracked.
    pub config: Option<Selector>,
}

impl Scope {
    /// Creates a scope of the given namespaces, or of all if none are given. `own` is the operator's.
    pub fn new(namespaces: impl IntoIterator<Item = Name>, own: Name) -> Self {
        let namespaces: BTreeSet<_> = namespaces.into_iter().collect();
        Self {
            namespaces: (!namespaces.is_empty()).then_some(namespaces),
            excluded: BTreeSet::from([own]),
            labels: Labels::default(),
            reading: Reading::default(),
            custom_kinds: Vec::new(),
            releases: Places::new(),
            inherits: false,
        }
    }

    /// Adds these kinds of workload.
    #[must_use]
    pub fn and_kinds(self, custom_kinds: Vec<WorkloadKind>) -> Self {
        Self {
            custom_kinds,
            ..self
        }
    }

    /// Leaves out these namespaces.
    #[must_use]
    pub fn without(mut self, namespaces: impl IntoIterator<Item = Name>) -> Self {
        self.excluded.extend(namespaces);
        self
    }

    /// Restricts the scope to objects with `labels`, and reads workloads in these dialects.
    #[must_use]
    pub fn with(self, labels: Labels, dialects: Dialects) -> Self {
        let key = |expression| match expression {
            Expression::In(key, _)
            | Expression::NotIn(key, _)
            | Expression::Equal(key, _)
            | Expression::NotEqual(key, _)
            | Expression::Exists(key)
            | Expression::DoesNotExist(key) => key,
        };
        let expressions = labels.workload.iter().cloned().flatten();
        let selecting: Vec<String> = expressions.map(key).collect();
        let mut reading = Reading::new(dialects, selecting.iter().map(String::as_str));
        reading.tools = self.reading.tools;
        reading.staging = self.reading.staging;
        reading.pins = self.reading.pins;
        reading.http_reloads = self.reading.http_reloads;
        Self {
            reading,
            labels,
            ..self
        }
    }

    /// Reads to which releases workloads and config objects belong. The releases are in `places`.
    #[must_use]
    pub fn and_releases(mut self, places: Places) -> Self {
        self.reading.tools = places.keys().copied().collect();
        self.releases = places;
        self
    }

    /// Stages the restarts of workloads that do not say otherwise.
    #[must_use]
    pub fn and_stages(mut self, staging: Defaults) -> Self {
        self.reading.staging = staging;
        self
    }

    /// Lets workloads pin their configuration, if `pins` is true.
    #[must_use]
    pub fn and_pins(mut self, pins: bool) -> Self {
        self.reading.pins = pins;
        self
    }

    /// Returns true if workloads may pin their configuration.
    pub fn pins(&self) -> bool {
        self.reading.pins
    }

    /// Lets pods be asked to reload changed config, if `http_reloads` is true.
    #[must_use]
    pub fn and_http_reloads(mut self, http_reloads: bool) -> Self {
        self.reading.http_reloads = http_reloads;
        self
    }

    /// Returns true if pods may be asked to reload changed config.
    pub fn http_reloads(&self) -> bool {
        self.reading.http_reloads
    }

    /// Reads the annotations of Namespaces, if `inherits` is true.
    #[must_use]
    pub fn and_namespaces(self, inherits: bool) -> Self {
        Self { inherits, ..self }
    }

    /// Returns true if the operator has to know the labels or annotations of Namespaces.
    pub fn reads_namespaces(&self) -> bool {
        self.inherits || self.labels.namespace.is_some()
    }

    /// Returns the tools whose releases restarts wait for.
    pub fn tools(&self) -> &Arc<[Tool]> {
        &self.reading.tools
    }

    /// Reads a workload.
    ///
    /// # Errors
    ///
    /// The namespace is not a valid name, which the apiserver never sends.
    pub fn read(&self, kind: WorkloadKind, object: impl Object) -> Result<Workload, InvalidName> {
        self.read_in(kind, object, &Inherited::default())
    }

    /// Reads a workload whose Namespace has these annotations.
    ///
    /// # Errors
    ///
    /// The namespace is not a valid name, which the apiserver never sends.
    pub fn read_in(
        &self,
        kind: WorkloadKind,
        object: impl Object,
        inherited: &Inherited,
    ) -> Result<Workload, InvalidName> {
        object.into_workload(kind, &self.reading, inherited)
    }

    /// Returns what is read of a workload.
    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Returns the namespaces to watch. `None` stands for all of them.
    pub fn watched(&self) -> Vec<Option<Name>> {
        match self.namespaces() {
            Some(namespaces) => namespaces.cloned().map(Some).collect(),
            None => vec![None],
        }
    }

    /// Returns the labels that a namespace must have, if any. The caller checks whether it has them.
    pub fn namespace_selector(&self) -> Option<&Selector> {
        self.labels.namespace.as_ref()
    }

    /// Returns the labels that a config object must have to be tracked, if any.
    pub fn config_selector(&self) -> Option<&Selector> {
        self.labels.config.as_ref()
    }

    /// Returns true if SecretProviderClasses may be tracked.
    pub fn tracks_classes(&self) -> bool {
        self.reading.dialects.classes
    }

    /// Returns true if objects of this kind may be tracked.
    pub fn tracks(&self, kind: ConfigKind) -> bool {
        self.reading.dialects.ignored != Some(kind)
    }

    /// Returns true if `namespace` is in scope, labels aside.
    pub fn covers(&self, namespace: &Name) -> bool {
        namespace.as_str() != KUBE_SYSTEM
            && !self.excluded.contains(namespace)
            && self
                .namespaces
                .as_ref()
                .is_none_or(|namespaces| namespaces.contains(namespace))
    }

    /// Returns the kind with this API group and name, if it is managed.
    pub fn kind(&self, group: &str, kind: &str) -> Option<WorkloadKind> {
        let built_in = WorkloadKind::from_group_kind(group, kind);
        let mut custom = self.custom_kinds.iter().copied();
        built_in.or_else(|| custom.find(|own| own.is(group, kind)))
    }

    /// Returns true if `workload`, which this scope has read, is managed: its namespace is in scope, it
    /// opts in, and its labels match.
    pub fn manages(&self, workload: &Workload) -> bool {
        self.includes(workload) && workload.is_opted_in()
    }

    /// Returns true if `workload`, which this scope has read, is managed once it opts in: its namespace is in scope, and
    /// its labels match.
    pub fn includes(&self, workload: &Workload) -> bool {
        self.covers(&workload.id.namespace) && self.selects(workload)
    }

    fn selects(&self, workload: &Workload) -> bool {
        let Some(selector) = &self.labels.workload else {
            return true;
        };
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let present = workload.markers.labels.present();
        selector.matches(&present.map(owned).collect())
    }

    /// Returns the namespaces to watch one by one. `None` stands for all of them at once.
    pub fn namespaces(&self) -> Option<impl Iterator<Item = &Name>> {
        self.namespaces
            .as_ref()
            .map(|namespaces| namespaces.iter().filter(|name| self.covers(name)))
    }
}

const KUBE_SYSTEM: &str = "kube-system";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployment, name};
    use crate::object::WorkloadObject;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn kube_system_and_our_own_namespace_are_never_managed() {
        for scope in [
            Scope::new([], name("operator")),
            Scope::new(
                ["kube-system", "operator", "ns"].map(name),
                name("operator"),
            ),
        ] {
            assert!(!scope.covers(&name("kube-system")));
            assert!(!scope.covers(&name("operator")));
            assert!(scope.covers(&name("ns")));
            assert!(scope.manages(&deployment("web").lists("a").build()));
            assert!(!scope.manages(&deployment("web").build()));
        }
    }

    #[test]
    fn with_a_selector_only_workloads_with_its_labels_are_managed() {
        let selector = Selector::from_iter([("team".to_owned(), "shop".to_owned())]);
        let labels = Labels {
            workload: Some(selector),
            ..Labels::default()
        };
        let scope = Scope::new([], name("operator")).with(labels, Dialects::default());
        let keeps = |labels: &[(&str, &str)]| {
            let labels: BTreeMap<_, _> = labels.iter().copied().collect();
            let workload = deployment("web")
                .lists("a")
                .with("/metadata/labels", json!(labels));
            let object: WorkloadObject = serde_json::from_value(workload.json()).unwrap();
            scope.manages(&scope.read(WorkloadKind::DEPLOYMENT, object).unwrap())
        };
        assert!(keeps(&[("team", "shop"), ("tier", "front")]));
        assert!(!keeps(&[("team", "billing")]));
        assert!(!keeps(&[]));
    }

    #[test]
    fn namespaces_that_are_left_out_are_not_managed() {
        let scope = Scope::new([], name("operator")).without([name("ns")]);
        assert!(!scope.covers(&name("ns")) && !scope.covers(&name("operator")));
        assert!(scope.covers(&name("other")));
    }

    #[test]
    fn with_a_list_of_namespaces_only_those_are_managed() {
        let scope = Scope::new([name("other")], name("operator"));
        assert!(!scope.covers(&name("ns")));
        assert!(!scope.manages(&deployment("web").lists("a").build()));
    }
}
