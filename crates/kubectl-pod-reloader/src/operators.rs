//! The operators of a cluster, found by what their chart installs, and their settings.

use std::collections::BTreeMap;

use kube::core::SelectorExt;
use pod_reloader::args::Args;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, WorkloadObject};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::Workload;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cluster::{Cluster, Place, Unseen};

/// An operator, as its Deployment says.
pub(crate) struct Operator {
    /// Its namespace.
    pub(crate) namespace: Name,
    /// The name of its Deployment.
    pub(crate) name: String,
    /// Its version, according to its labels.
    pub(crate) version: String,
    /// Its settings.
    pub(crate) args: Args,
    /// What it keeps.
    pub(crate) scope: Scope,
    /// The Deployment.
    pub(crate) deployment: Value,
}

/// What can be seen of the operators of a cluster.
pub(crate) struct Operators {
    /// Those that were found.
    pub(crate) all: Vec<Operator>,
    /// What could not be looked at.
    pub(crate) unseen: Vec<String>,
    /// What is assumed where none was found.
    default: Scope,
}

/// Who keeps a workload.
pub(crate) struct Keeping<'a> {
    /// The operator that looks after its namespace, if one was found.
    pub(crate) operator: Option<&'a Operator>,
    /// The workload as that operator reads it.
    pub(crate) workload: Workload,
    /// Why it is not kept.
    pub(crate) obstacle: Option<String>,
}

impl Operators {
    /// Looks for operators in one namespace; without it in all, or else in that of the documentation.
    pub(crate) async fn find(cluster: &Cluster, namespace: Option<&Name>) -> Self {
        let usual = Name::parse(USUAL_NAMESPACE).expect("it is a name");
        let there = namespace.map(Name::as_str);
        let place = |namespace| Place::new("apps/v1", "deployments", namespace);
        let mut found = cluster.list(place(there), OF_AN_OPERATOR).await;
        if found.is_err() && there.is_none() {
            found = cluster
                .list(place(Some(USUAL_NAMESPACE)), OF_AN_OPERATOR)
                .await;
        }
        let mut unseen = Vec::new();
        let found = found.unwrap_or_else(|error| {
            unseen.push(format!(
                "the operator and its settings: {error}; defaults are assumed (--operator-namespace tells where it is)"
            ));
            Vec::new()
        });
        let mut all = Vec::new();
        for deployment in found {
            match Operator::of(deployment) {
                Some(Ok(operator)) => all.push(operator),
                Some(Err(error)) => unseen.push(error),
                None => {}
            }
        }
        Self {
            all,
            unseen,
            default: Scope::new([], namespace.cloned().unwrap_or(usual)),
        }
    }

    /// Whether there is none for sure.
    pub(crate) fn are_none(&self) -> bool {
        self.all.is_empty() && self.unseen.is_empty()
    }

    /// Every scope that workloads may be read in.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        let default = self.all.is_empty().then_some(&self.default);
        self.all.iter().map(|it| &it.scope).chain(default)
    }

    /// The kinds of workload that are kept by somebody.
    pub(crate) fn kinds(&self) -> Vec<WorkloadKind> {
        let custom = self.scopes().flat_map(|scope| scope.custom_kinds());
        let mut kinds = WorkloadKind::BUILT_IN.to_vec();
        for kind in custom {
            if !kinds.contains(kind) {
                kinds.push(*kind);
            }
        }
        kinds
    }

    /// Who keeps a workload, given the labels of its namespace, where they can be seen. `None` where it
    /// cannot be read.
    pub(crate) fn keeping(
        &self,
        kind: WorkloadKind,
        object: &RawValue,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<Keeping<'_>> {
        let mut keepings: Vec<_> = self
            .all
            .iter()
            .map(|operator| (Some(operator), &operator.scope))
            .chain(self.all.is_empty().then_some((None, &self.default)))
            .filter_map(|(operator, scope)| {
                let workload = read(scope, kind, object)?;
                let obstacle = match self.are_none() {
                    true => Some("no pod-reloader was found in this cluster".to_owned()),
                    false => obstacle(scope, &workload, labels),
                };
                Some(Keeping {
                    operator,
                    workload,
                    obstacle,
                })
            })
            .collect();
        let kept = keepings.iter().position(|it| it.obstacle.is_none());
        (!keepings.is_empty()).then(|| keepings.swap_remove(kept.unwrap_or(0)))
    }
}

/// Where the documentation installs it.
const USUAL_NAMESPACE: &str = "pod-reloader";
/// The label of the Deployment of the chart.
const OF_AN_OPERATOR: &str = "labelSelector=app.kubernetes.io/component%3Dcontroller";

impl Operator {
    /// `None` where the Deployment is of something else.
    fn of(deployment: Value) -> Option<Result<Self, String>> {
        let metadata = &deployment["metadata"];
        let name = metadata["name"].as_str()?.to_owned();
        let namespace = Name::parse(metadata["namespace"].as_str()?).ok()?;
        let labels = &metadata["labels"];
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array()?.iter();
        let arguments: Vec<_> = arguments.filter_map(Value::as_str).collect();
        let is_ours = |it: &&str| it.starts_with("--hash-keys-secret=");
        arguments.iter().find(|it| is_ours(it))?;
        let variable = |name: &str| {
            let mut variables = container["env"].as_array()?.iter();
            let variable = variables.find(|it| it["name"] == name)?;
            variable["value"].as_str().map(ToOwned::to_owned)
        };
        let Ok(args) = Args::of_container(arguments.iter().copied(), variable) else {
            let version = env!("CARGO_PKG_VERSION");
            return Some(Err(format!(
                "the settings of deployment {name} in namespace {namespace}: they are of another version than this plugin ({version}); defaults are assumed"
            )));
        };
        let version = labels["app.kubernetes.io/version"].as_str();
        Some(Ok(Self {
            scope: args.scope(namespace.clone()),
            version: version.unwrap_or("unknown").to_owned(),
            namespace,
            name,
            args,
            deployment,
        }))
    }
}

/// A workload as somebody with this scope reads it. `None` for one that cannot be read.
fn read(scope: &Scope, kind: WorkloadKind, object: &RawValue) -> Option<Workload> {
    let kind = scope
        .kind(kind.shape().group, kind.as_str())
        .unwrap_or(kind);
    if kind.is_built_in() {
        let object: WorkloadObject = serde_json::from_str(object.get()).ok()?;
        scope.read(kind, object).ok()
    } else {
        let object: CustomObject = serde_json::from_str(object.get()).ok()?;
        scope.read(kind, object).ok()
    }
}

fn obstacle(
    scope: &Scope,
    workload: &Workload,
    labels: Option<&BTreeMap<String, String>>,
) -> Option<String> {
    let namespace = &workload.id.namespace;
    let kind = workload.id.kind;
    let is_kept = scope.kind(kind.shape().group, kind.as_str()).is_some();
    let selector = scope.namespace_selector().zip(labels);
    if !is_kept {
        Some(format!("the operator does not keep any {kind}"))
    } else if !scope.covers(namespace) {
        Some(format!(
            "the operator does not look after namespace {namespace}"
        ))
    } else if selector.is_some_and(|(selector, labels)| !selector.matches(labels)) {
        Some(format!(
            "namespace {namespace} has not the labels that the operator selects"
        ))
    } else if !workload.is_subscribed() {
        let label = ["ignored", "disabled"].into_iter().find(|label| {
            let label = format!("pod-reloader.cs.sap.com/{label}");
            workload.markers.labels.get(&label) == Some("true")
        });
        Some(match label {
            Some(label) => format!("its label pod-reloader.cs.sap.com/{label} says so"),
            None => "it has no annotation that asks for it, such as pod-reloader.cs.sap.com/auto: \"true\"".to_owned(),
        })
    } else if !scope.keeps(workload) {
        Some("it has not the labels that the operator selects".to_owned())
    } else {
        None
    }
}

/// The labels of a namespace, where they can be seen.
pub(crate) async fn labels(
    cluster: &Cluster,
    namespace: &str,
) -> Result<BTreeMap<String, String>, Unseen> {
    let namespaces = Place::new("v1", "namespaces", None);
    let mut namespace: Value = cluster.get(namespaces, namespace).await?;
    Ok(serde_json::from_value(namespace["metadata"]["labels"].take()).unwrap_or_default())
}
