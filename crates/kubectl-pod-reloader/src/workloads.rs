//! Workloads as they stand in the cluster: found by what a user types, read by who keeps them.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::annotations::INQUIRER;
use pod_reloader_core::discovery::{Consumption, PodSpec, Requirement};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::standing::{Report, Standing};
use pod_reloader_core::workload::Workload;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::args::Target;
use crate::cluster::{Cluster, DryRun, Place, Unseen};
use crate::operators::{self, Keeping, Operator, Operators};
use crate::print::count;

/// A workload, and who keeps it.
pub(crate) struct Seen<'a> {
    /// The operator, if one was found.
    pub(crate) operator: Option<&'a Operator>,
    /// As the operator reads it.
    pub(crate) workload: Workload,
    /// Why it is not kept, if it is not.
    pub(crate) obstacle: Option<String>,
    /// Why it is probably not kept, where the settings of its operator are not known.
    pub(crate) doubt: Option<String>,
    /// As it is stored.
    pub(crate) object: Value,
    /// The group and version that it was read in.
    pub(crate) api_version: String,
}

impl Seen<'_> {
    /// Whether it is kept, as far as that can be told.
    pub(crate) fn is_kept(&self) -> bool {
        self.obstacle.is_none() && self.doubt.is_none()
    }

    /// `deployment/web`, as it is typed.
    pub(crate) fn address(&self) -> String {
        let kind = self.workload.id.kind.as_str().to_ascii_lowercase();
        format!("{kind}/{}", self.workload.id.name)
    }

    /// It, so that no other kind is meant.
    pub(crate) fn target(&self) -> Target {
        let shape = self.workload.id.kind.shape();
        Target {
            kind: format!("{}.{}", shape.plural, shape.group),
            name: self.workload.id.name.to_string(),
        }
    }

    /// Where workloads of its kind are.
    pub(crate) fn place(&self) -> Place<'_> {
        let plural = self.workload.id.kind.shape().plural;
        let namespace = self.workload.id.namespace.as_str();
        Place::new(&self.api_version, plural, Some(namespace))
    }

    /// How many pods it is to have, where it says so.
    pub(crate) fn pods(&self) -> Option<i64> {
        let replicas = &self.object["spec"]["replicas"];
        match built_in(self.workload.id.kind) {
            Some(BuiltIn::DaemonSet) => self.object["status"]["desiredNumberScheduled"].as_i64(),
            Some(_) => Some(replicas.as_i64().unwrap_or(1)),
            None => replicas.as_i64(),
        }
    }

    /// How its pods use config objects, whether these count or not.
    pub(crate) fn uses(&self) -> BTreeMap<Reference, Vec<Consumption>> {
        let mut uses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pod_spec in self.pod_specs() {
            for used in pod_spec.uses() {
                let reference = Reference {
                    kind: used.kind,
                    namespace: self.workload.id.namespace.clone(),
                    name: used.name,
                };
                let ways = uses.entry(reference).or_default();
                if !ways.contains(&used.consumption) {
                    ways.push(used.consumption);
                }
            }
        }
        uses
    }

    /// Without what its pods do not start, whether it counts or not.
    pub(crate) fn needs(&self) -> BTreeSet<Requirement> {
        let namespace = &self.workload.id.namespace;
        let pod_specs = self.pod_specs();
        let needs = pod_specs.iter();
        needs
            .flat_map(|it| it.requirements(namespace, |_| true))
            .collect()
    }

    fn pod_specs(&self) -> Vec<PodSpec> {
        let templates = self.workload.id.kind.shape().templates.iter();
        let templates = templates.map(|template| {
            let path = template.path.iter();
            path.fold(&self.object, |it, field| &it[*field])
        });
        let pod_specs = templates.map(|it| serde_json::from_value(it["spec"].clone()));
        pod_specs.filter_map(Result::ok).collect()
    }

    /// Asks the operator how the workload stands, by a dry run of a write that changes nothing.
    pub(crate) async fn inquire(&self, cluster: &Cluster) -> Inquiry {
        let name = &self.workload.id.name;
        match cluster.dry_run(self.place(), name, INQUIRER, None).await {
            Err(error) => Inquiry::Impossible(error),
            Ok(answer) => Inquiry::of(&answer),
        }
    }
}

impl Inquiry {
    /// What the webhooks of our operators have told. Of several, one keeps the workload.
    pub(crate) fn of(answer: &DryRun) -> Self {
        let reports = answer.warnings.iter().filter_map(|text| text.parse().ok());
        let reports: Vec<Report> = reports.collect();
        let keeps = |report: &&Report| report.standing != Standing::NotKept;
        let report = reports.iter().find(keeps).or(reports.first());
        report.cloned().map_or(Self::Unanswered, Self::Answered)
    }
}

/// The kinds that every cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// Which of them a kind is, if it is one.
pub(crate) fn built_in(kind: WorkloadKind) -> Option<BuiltIn> {
    let all = [
        BuiltIn::Deployment,
        BuiltIn::StatefulSet,
        BuiltIn::DaemonSet,
    ];
    let at = WorkloadKind::BUILT_IN.iter().position(|it| *it == kind)?;
    Some(all[at])
}

/// What came of asking the operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Inquiry {
    /// It told.
    Answered(Report),
    /// The apiserver took the dry run, and no webhook of ours had a say.
    Unanswered,
    /// The dry run was not taken.
    Impossible(Unseen),
}

/// The kind that a user means.
pub(crate) fn kind(kinds: &[WorkloadKind], typed: &str) -> Option<WorkloadKind> {
    let (name, group) = match typed.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (typed, None),
    };
    let is_meant = |kind: &&WorkloadKind| {
        let short = match built_in(**kind) {
            Some(BuiltIn::Deployment) => "deploy",
            Some(BuiltIn::StatefulSet) => "sts",
            Some(BuiltIn::DaemonSet) => "ds",
            None => "",
        };
        let shape = kind.shape();
        (name == short || name == shape.plural || name == shape.kind.to_ascii_lowercase())
            && group.is_none_or(|group| group == shape.group)
    };
    kinds.iter().find(is_meant).copied()
}

/// The group and version that a kind is served in.
pub(crate) async fn api_version(cluster: &Cluster, kind: WorkloadKind) -> Result<String, Unseen> {
    let shape = kind.shape();
    let version = match kind.is_built_in() {
        true => "v1".to_owned(),
        false => cluster.version_of(shape.group, shape.plural).await?,
    };
    Ok(format!("{}/{version}", shape.group))
}

/// One workload.
pub(crate) async fn get<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
    target: &Target,
) -> Result<Seen<'a>, Unseen> {
    let Some(kind) = kind(&operators.kinds(), &target.kind) else {
        let what = format!("tell what {} is", target.kind);
        let message = "no kind of workload of that name is kept".to_owned();
        return Err(match operators.are_unknown() {
            true => Unseen::Refused {
                what,
                message: format!("{message}, as far as can be seen"),
            },
            false => Unseen::Absent(format!("{}: {message}; it", target.kind)),
        });
    };
    let api_version = api_version(cluster, kind).await?;
    let namespace = cluster.namespace.as_str();
    let place = Place::new(&api_version, kind.shape().plural, Some(namespace));
    let object: Box<RawValue> = cluster.get(place, &target.name).await.map_err(|error| {
        let name = format!("{kind} {} in namespace {namespace}", target.name);
        match error {
            Unseen::Absent(_) => Unseen::Absent(name),
            other => other,
        }
    })?;
    let labels = match operators.select_namespaces() {
        true => operators::labels(cluster, namespace).await.ok(),
        false => None,
    };
    seen(operators, kind, &api_version, &object, labels.as_ref()).ok_or_else(|| Unseen::Refused {
        what: format!("read {kind} {}", target.name),
        message: "it is not as expected".to_owned(),
    })
}

/// The workloads of a namespace, or of all; what cannot be seen of them is told beside them.
pub(crate) async fn list<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
    namespace: Option<&Name>,
) -> (Vec<Seen<'a>>, Vec<String>) {
    let mut workloads = Vec::new();
    let mut unseen = Vec::new();
    let mut labels = BTreeMap::new();
    for kind in operators.kinds() {
        let api_version = match api_version(cluster, kind).await {
            Ok(version) => version,
            // Nobody has any then.
            Err(error) if error.is_absent() => continue,
            Err(error) => {
                unseen.push(error.to_string());
                continue;
            }
        };
        let there = namespace.map(Name::as_str);
        let place = Place::new(&api_version, kind.shape().plural, there);
        let objects: Vec<Box<RawValue>> = match cluster.list(place, "").await {
            Ok(objects) => objects,
            Err(error) => {
                unseen.push(error.to_string());
                continue;
            }
        };
        for object in objects {
            let Some(namespace) = namespace_of(&object) else {
                continue;
            };
            if operators.select_namespaces() && !labels.contains_key(&namespace) {
                let of = operators::labels(cluster, &namespace).await.ok();
                labels.insert(namespace.clone(), of);
            }
            let labels = labels.get(&namespace).and_then(Option::as_ref);
            workloads.extend(seen(operators, kind, &api_version, &object, labels));
        }
    }
    workloads.sort_by(|one, other| {
        let key = |it: &Seen<'_>| {
            let id = &it.workload.id;
            (id.namespace.clone(), id.kind, id.name.clone())
        };
        key(one).cmp(&key(other))
    });
    (workloads, unseen)
}

/// That of `all` some are left out that may be kept, and why; nothing where none are.
pub(crate) fn left_out(all: &[Seen<'_>]) -> Option<String> {
    let is_left_out = |seen: &&Seen<'_>| seen.obstacle.is_none() && seen.doubt.is_some();
    let number = all.iter().filter(is_left_out).count();
    (number > 0).then(|| {
        let workloads = count(number, "workload");
        format!("left out: {workloads} that the defaults do not keep, which are assumed where the operator's settings cannot be seen")
    })
}

fn namespace_of(object: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    struct Metadata {
        namespace: String,
    }
    let object: Object = serde_json::from_str(object.get()).ok()?;
    Some(object.metadata.namespace)
}

fn seen<'a>(
    operators: &'a Operators,
    kind: WorkloadKind,
    api_version: &str,
    object: &RawValue,
    labels: Option<&BTreeMap<String, String>>,
) -> Option<Seen<'a>> {
    let Keeping {
        operator,
        workload,
        obstacle,
        doubt,
    } = operators.keeping(kind, object, labels)?;
    let mut object: Value = serde_json::from_str(object.get()).ok()?;
    // Often half of it.
    object["metadata"]["managedFields"].take();
    Some(Seen {
        operator,
        workload,
        obstacle,
        doubt,
        object,
        api_version: api_version.to_owned(),
    })
}

/// How a config object comes into a pod, in words.
pub(crate) fn consumption(way: Consumption) -> &'static str {
    match way {
        Consumption::Env => "env",
        Consumption::EnvFrom => "envFrom",
        Consumption::Volume => "volume",
        Consumption::InitVolume => "volume of an init container",
        Consumption::SubPath => "volume by subPath",
        Consumption::Unmounted => "volume that is not mounted",
        Consumption::ImagePull => "imagePullSecrets",
        Consumption::Driver => "volume driver",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_every_name_that_kubectl_takes() {
        let kinds = WorkloadKind::BUILT_IN;
        for typed in [
            "deploy",
            "deployment",
            "deployments",
            "deployments.apps",
            "deployment.apps",
        ] {
            assert_eq!(
                kind(&kinds, typed),
                Some(WorkloadKind::DEPLOYMENT),
                "{typed}"
            );
        }
        assert_eq!(kind(&kinds, "sts"), Some(WorkloadKind::STATEFUL_SET));
        for typed in ["", "pod", "deployments.extensions", "sts.apps.x"] {
            assert_eq!(kind(&kinds, typed), None, "{typed}");
        }
    }
}
