//! Finds the operators of a cluster by what their chart installs, and reads their settings.

mod namespace;
mod operator;

use std::collections::BTreeMap;

use kube::core::SelectorExt;
use pod_reloader_core::annotations::{self, Inherited};
use pod_reloader_core::by_kind;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::Workload;
use serde_json::value::RawValue;

pub(crate) use self::namespace::{Namespace, namespace};
pub(crate) use self::operator::{Installed, Operator, Unread};
use crate::cluster::{Cluster, Place, Unseen};
use crate::print::Verdict;

/// The operators of a cluster, as far as they can be seen.
pub(crate) struct Operators {
    /// Operators whose settings could be read.
    pub(crate) all: Vec<Operator>,
    /// Operators whose settings cannot be read.
    pub(crate) unread: Vec<Unread>,
    /// Everything that could not be looked at.
    pub(crate) unseen: Vec<String>,
    /// The reason why there is no operator in the namespace that the user named, if there is none.
    pub(crate) is_elsewhere: Option<Unseen>,
    /// Scope that is assumed if no operator was found.
    default: Scope,
    /// The namespace that the user named.
    named: Option<Name>,
    /// The reason why the search failed, if it did.
    failure: Option<Unseen>,
    /// True if all namespaces were searched.
    is_complete: bool,
}

/// A workload, and the operator that manages it.
pub(crate) struct ManagedBy<'a> {
    /// The operator that looks after the workload's namespace, if one was found.
    pub(crate) operator: Option<&'a Operator>,
    /// The workload as that operator reads it.
    pub(crate) workload: Workload,
    /// Reason why the workload is not managed.
    pub(crate) obstacle: Option<String>,
    /// Reason why the workload is probably not managed, by the default settings. Only if the operator's own
    /// settings are not known.
    pub(crate) doubt: Option<String>,
}

impl Operators {
    /// Searches one namespace, or all. If listing all is forbidden, searches the namespace that the
    /// documentation uses.
    pub(crate) async fn find(cluster: &Cluster, namespace: Option<&Name>) -> Self {
        let usual = Name::parse(USUAL_NAMESPACE).expect("it is a name");
        let there = namespace.map(Name::as_str);
        let place = |namespace| Place::new("apps/v1", "deployments", namespace);
        let mut found = cluster.pages(place(there), OF_AN_OPERATOR).all().await;
        let is_complete = found.is_ok() && there.is_none();
        let is_forbidden = found.as_ref().is_err_and(Unseen::is_forbidden);
        if is_forbidden && there.is_none() {
            let there = place(Some(USUAL_NAMESPACE));
            found = cluster.pages(there, OF_AN_OPERATOR).all().await;
        }
        let failure = found.as_ref().err().cloned();
        let mut unseen = Vec::new();
        let found = found.unwrap_or_else(|error| {
            unseen.push(format!(
                "the operator and its settings: {error}; defaults are assumed (name its namespace with --operator-namespace)"
            ));
            Vec::new()
        });
        let mut all = Vec::new();
        let mut unread = Vec::new();
        for deployment in found {
            match Operator::of(deployment) {
                Some(Ok((operator, variables))) => {
                    unseen.extend(variables);
                    all.push(operator);
                }
                Some(Err(operator)) => {
                    unseen.push(operator.to_string());
                    unread.push(operator);
                }
                None => {}
            }
        }
        let mut is_elsewhere = None;
        if all.is_empty() && unseen.is_empty() && !is_complete {
            let there = namespace.unwrap_or(&usual);
            let none = || Unseen::Absent(format!("there is no pod-reloader in namespace {there}"));
            let found = cluster.check_namespace(Some(there)).await;
            let none = found.err().unwrap_or_else(none);
            unseen.push(format!(
                "the operator and its settings: {none}; defaults are assumed"
            ));
            is_elsewhere = namespace.is_some().then_some(none);
        }
        Self {
            all,
            unread,
            unseen,
            is_elsewhere,
            is_complete,
            default: Scope::new([], namespace.cloned().unwrap_or(usual)),
            named: namespace.cloned(),
            failure,
        }
    }

    /// Searches again if that can find more: something was not found, or could not be read for another reason than a
    /// lack of rights. Returns `None` if there is nothing better.
    pub(crate) async fn search_again(&self, cluster: &Cluster) -> Option<Self> {
        let is_forbidden = self.failure.as_ref().is_some_and(Unseen::is_forbidden);
        let is_enough = !self.all.is_empty() && self.unseen.is_empty();
        if is_forbidden || is_enough {
            return None;
        }
        let found = Self::find(cluster, self.named.as_ref()).await;
        // What an earlier search has found is better than the defaults.
        let is_better = found.failure.is_none() || self.failure.is_some();
        is_better.then_some(found)
    }

    /// Returns true if there certainly is no operator.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty() && self.unseen.is_empty() && self.is_complete
    }

    /// Returns true if there may be operators that were not found. Then only their webhook knows what is
    /// managed.
    pub(crate) fn are_unknown(&self) -> bool {
        self.all.is_empty() && !self.are_none()
    }

    /// Returns the best verdict for an answer that depends on what the operators manage. `is_whole` is true
    /// if everything else that the answer depends on could be read.
    pub(crate) fn verdict(&self, is_whole: bool) -> Verdict {
        match is_whole && self.unseen.is_empty() {
            _ if self.are_none() => Verdict::Bad,
            true => Verdict::Good,
            false => Verdict::Unknown,
        }
    }

    /// Returns true if there is such an operator. `None` if that cannot be told, because it may be one that is not
    /// looked at, or cannot be read.
    pub(crate) fn any(&self, is_one: impl Fn(&Operator) -> bool) -> Option<bool> {
        let are_all = self.is_complete && self.unread.is_empty() && self.unseen.is_empty();
        match self.all.iter().any(is_one) {
            false if !are_all => None,
            answer => Some(answer),
        }
    }

    /// Returns true if any operator has to know the labels or annotations of namespaces.
    pub(crate) fn read_namespaces(&self) -> bool {
        self.scopes().any(Scope::reads_namespaces)
    }

    /// Returns true if any scope selects by the labels of namespaces.
    pub(crate) fn select_namespaces(&self) -> bool {
        self.scopes()
            .any(|scope| scope.namespace_selector().is_some())
    }

    /// Returns every scope in which workloads may be read.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        let default = self.all.is_empty().then_some(&self.default);
        self.all.iter().map(|it| &it.scope).chain(default)
    }

    /// Returns the kinds of workload that some operator manages.
    pub(crate) fn kinds(&self) -> Vec<WorkloadKind> {
        let custom = self.scopes().flat_map(|scope| &scope.custom_kinds);
        let mut kinds = WorkloadKind::BUILT_IN.to_vec();
        for kind in custom {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
        kinds
    }

    /// Returns a workload with the operator that manages it, given its namespace if that can be
    /// seen. `None` if the workload cannot be read.
    pub(crate) fn managed_by(
        &self,
        kind: WorkloadKind,
        object: &RawValue,
        namespace: Option<&Namespace>,
    ) -> Option<ManagedBy<'_>> {
        let labels = namespace.map(|it| &it.labels);
        let mut candidates: Vec<_> = self
            .all
            .iter()
            .map(|operator| (Some(operator), &operator.scope))
            .chain(self.all.is_empty().then_some((None, &self.default)))
            .filter_map(|(operator, scope)| {
                let inherited = namespace.map(|it| &it.inherited);
                let inherited = inherited.filter(|_| scope.inherits);
                let workload = read_in(scope, kind, object, inherited)?;
                let obstacle = obstacle(scope, &workload, labels);
                let (obstacle, doubt) = if self.are_none() {
                    (Some(NONE_FOUND.to_owned()), None)
                } else if self.are_unknown() {
                    let label = label(&workload);
                    let doubt = obstacle.filter(|_| label.is_none());
                    (label, doubt)
                } else {
                    (obstacle, None)
                };
                Some(ManagedBy {
                    operator,
                    workload,
                    obstacle,
                    doubt,
                })
            })
            .collect();
        let covers = |managed_by: &ManagedBy<'_>| {
            let namespace = &managed_by.workload.id.namespace;
            managed_by
                .operator
                .is_some_and(|it| it.scope.covers(namespace))
        };
        let selects = |managed_by: &ManagedBy<'_>| {
            let selector = managed_by
                .operator
                .and_then(|it| it.scope.namespace_selector());
            let selector = selector.zip(labels);
            covers(managed_by) && selector.is_none_or(|(selector, labels)| selector.matches(labels))
        };
        let managed = candidates.iter().position(|it| it.obstacle.is_none());
        // The reason of the operator whose namespace it is says more than that of another one.
        let likely = || candidates.iter().position(selects);
        let possible = || candidates.iter().position(covers);
        let chosen = managed.or_else(likely).or_else(possible).unwrap_or(0);
        (!candidates.is_empty()).then(|| candidates.swap_remove(chosen))
    }
}

/// The reason why nothing is managed in a cluster without an operator.
pub(crate) const NONE_FOUND: &str = "no pod-reloader was found in this cluster";
/// Namespace in which the documentation installs the operator.
const USUAL_NAMESPACE: &str = "pod-reloader";
/// Query that selects the Deployment of the chart by its label.
const OF_AN_OPERATOR: &str = "labelSelector=app.kubernetes.io/component%3Dcontroller";

/// Reads a workload in the given scope. Returns `None` if it cannot be read.
pub(crate) fn read(scope: &Scope, kind: WorkloadKind, object: &RawValue) -> Option<Workload> {
    read_in(scope, kind, object, None)
}

/// Reads a workload whose namespace has these annotations, if they apply to it.
fn read_in(
    scope: &Scope,
    kind: WorkloadKind,
    object: &RawValue,
    inherited: Option<&Inherited>,
) -> Option<Workload> {
    let none = Inherited::default();
    let inherited = inherited.unwrap_or(&none);
    let kind = scope
        .kind(kind.shape().group, kind.as_str())
        .unwrap_or(kind);
    by_kind!(kind, O => {
        let object: O = serde_json::from_str(object.get()).ok()?;
        scope.read_in(kind, object, inherited).ok()
    })
}

pub(crate) fn obstacle(
    scope: &Scope,
    workload: &Workload,
    labels: Option<&BTreeMap<String, String>>,
) -> Option<String> {
    let namespace = &workload.id.namespace;
    let kind = workload.id.kind;
    let is_managed = scope.kind(kind.shape().group, kind.as_str()).is_some();
    let selector = scope.namespace_selector().zip(labels);
    if !is_managed {
        Some(format!("the operator manages no {kind}"))
    } else if !scope.covers(namespace) {
        Some(format!(
            "namespace {namespace} is outside the operator's scope"
        ))
    } else if selector.is_some_and(|(selector, labels)| !selector.matches(labels)) {
        Some(format!(
            "the labels of namespace {namespace} do not match the operator's selector"
        ))
    } else if !workload.is_opted_in() {
        let no_annotation =
            "it has no annotation that opts it in, such as pod-reloader.cs.sap.com/auto: \"true\"";
        Some(label(workload).unwrap_or_else(|| no_annotation.to_owned()))
    } else if !scope.manages(workload) {
        Some("its labels do not match the operator's selector".to_owned())
    } else {
        None
    }
}

/// Returns the reason why no operator manages a workload, whatever its settings: a label says so.
fn label(workload: &Workload) -> Option<String> {
    let labels = [annotations::IGNORED, annotations::DISABLED];
    let mut labels = labels.into_iter();
    let label = labels.find(|label| workload.markers.labels.get(label) == Some("true"))?;
    Some(format!("its label {label} says so"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, operator, operator_with};
    use serde_json::{Value, json};

    impl Operators {
        /// Returns a cluster without an operator, or with one that cannot be seen.
        pub(crate) fn without_any(is_complete: bool) -> Self {
            let unseen = (!is_complete).then(|| "the operator".to_owned());
            Self {
                all: Vec::new(),
                unread: Vec::new(),
                unseen: unseen.into_iter().collect(),
                is_elsewhere: None,
                default: Scope::new([], Name::parse(USUAL_NAMESPACE).unwrap()),
                is_complete,
                named: None,
                failure: None,
            }
        }
    }

    fn deployment(args: &[&str]) -> Value {
        json!({
            "metadata": {
                "name": "reloader", "namespace": "ops",
                "labels": {"app.kubernetes.io/version": "9.0.0"},
            },
            "spec": {"template": {"spec": {"containers": [{"name": "main", "args": args}]}}},
        })
    }

    #[test]
    fn an_operator_of_another_version_is_found_though_its_settings_are_not_read() {
        let read = Operator::of(deployment(&["--hash-keys-secret=keys"]));
        assert!(read.unwrap().is_ok());
        let args = ["--hash-keys-secret=keys", "--flag-of-the-future"];
        let Some(Err(unread)) = Operator::of(deployment(&args)) else {
            panic!("it was read");
        };
        assert_eq!(unread.installed.version, "9.0.0");
        assert!(unread.to_string().contains("deployment reloader"));
        assert!(Operator::of(deployment(&["--other"])).is_none());
    }

    #[test]
    fn without_its_settings_an_operator_manages_what_the_defaults_manage() {
        let managed_by = |operators: &Operators, metadata: Value| {
            let mut object = json!({
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"template": {"spec": {"containers": []}}},
            });
            for (field, value) in metadata.as_object().unwrap() {
                object["metadata"][field] = value.clone();
            }
            let object = RawValue::from_string(object.to_string()).unwrap();
            let managed_by = operators.managed_by(WorkloadKind::DEPLOYMENT, &object, None);
            let managed_by = managed_by.unwrap();
            (managed_by.obstacle.is_some(), managed_by.doubt.is_some())
        };
        let asks = json!({"annotations": {annotations::AUTO: "true"}});
        let dark = Operators::without_any(false);
        assert_eq!(managed_by(&dark, asks.clone()), (false, false));
        assert_eq!(managed_by(&dark, json!({})), (false, true));
        let mut ignored = asks.clone();
        ignored["labels"] = json!({annotations::IGNORED: "true"});
        assert_eq!(managed_by(&dark, ignored), (true, false));
        let none = Operators::without_any(true);
        assert_eq!(managed_by(&none, asks), (true, false));
    }

    #[tokio::test]
    async fn an_operator_that_could_not_be_seen_is_searched_for_again() {
        let deployments = "/apis/apps/v1/deployments";
        let there = || Canned::shop().with(deployments, json!({"items": [operator()]}));
        let up = there().cluster();
        let down = there().refuses(deployments, "etcd is down").cluster();
        let dark = Operators::find(&down, None).await;
        assert!(dark.are_unknown());
        let found = dark.search_again(&up).await.unwrap();
        assert_eq!((found.all.len(), found.unseen.len()), (1, 0));
        assert!(found.search_again(&up).await.is_none(), "it is found");
        let none = Operators::find(&Canned::shop().cluster(), None).await;
        assert!(none.are_none());
        assert!(none.search_again(&up).await.is_some());
        let in_usual = "/apis/apps/v1/namespaces/pod-reloader/deployments";
        let forbidden = there().forbids(deployments).forbids(in_usual).cluster();
        let forbidden = Operators::find(&forbidden, None).await;
        assert!(
            forbidden.search_again(&up).await.is_none(),
            "it never will be"
        );
    }

    #[tokio::test]
    async fn a_search_that_fails_does_not_take_away_what_was_found() {
        let deployments = "/apis/apps/v1/deployments";
        let mut other = operator_with(&["--flag-of-the-future"]);
        other["metadata"]["name"] = json!("other");
        let both = json!({"items": [operator(), other]});
        let canned = Canned::shop().with(deployments, both);
        let down = canned
            .clone()
            .refuses(deployments, "etcd is down")
            .cluster();
        let found = Operators::find(&canned.cluster(), None).await;
        assert_eq!((found.all.len(), found.unread.len()), (1, 1));
        assert!(found.search_again(&down).await.is_none());
    }

    #[test]
    fn a_verdict_is_not_good_without_an_operator() {
        let none = Operators::without_any(true);
        assert_eq!(none.verdict(true), Verdict::Bad);
        assert_eq!(none.verdict(false), Verdict::Bad);
        assert_eq!(
            Operators::without_any(false).verdict(true),
            Verdict::Unknown
        );
        let (operator, _) = Operator::of(deployment(&["--hash-keys-secret=keys"]))
            .and_then(Result::ok)
            .unwrap();
        let found = Operators {
            all: vec![operator],
            ..Operators::without_any(true)
        };
        assert_eq!(found.verdict(true), Verdict::Good);
        assert_eq!(found.verdict(false), Verdict::Unknown);
    }
}
