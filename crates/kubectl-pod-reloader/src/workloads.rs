//! Workloads as stored in the cluster: found by what a user types, read in the scope of their operator.

mod hash_writer;
mod kinds;
mod namespaces;
mod reply;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use pod_reloader_core::discovery::{Consumption, PodSpec};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::Workload;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use self::hash_writer::HashWriter;
pub(crate) use self::kinds::{is_called, kind};
pub(crate) use self::namespaces::Namespaces;
pub(crate) use self::reply::Reply;
use crate::args::Target;
use crate::cluster::{Cluster, Place, Unseen, with_labels};
use crate::operators::{ManagedBy, Namespace, Operator, Operators};
use crate::print::count;

/// Time within which the objects that a workload lists may follow it.
const OBJECTS_FOLLOW: SignedDuration = SignedDuration::from_mins(5);

/// A workload, and the operator that manages it.
pub(crate) struct Seen<'a> {
    /// The operator, if one was found.
    pub(crate) operator: Option<&'a Operator>,
    /// The workload as the operator reads it.
    pub(crate) workload: Workload,
    /// Reason why it is not managed, if it is not.
    pub(crate) obstacle: Option<String>,
    /// Reason why it is probably not managed, if the operator's settings are not known.
    pub(crate) doubt: Option<String>,
    /// The workload as stored.
    pub(crate) object: Value,
    /// The writer of its config hash.
    pub(crate) hash_writer: HashWriter,
    /// Everything about its operator that could not be seen.
    pub(crate) unseen: Option<String>,
    /// Group and version in which it was read.
    pub(crate) api_version: String,
}

impl Seen<'_> {
    /// Returns true if the workload is managed, as far as is known.
    pub(crate) fn is_managed(&self) -> bool {
        self.obstacle.is_none() && self.doubt.is_none()
    }

    /// Returns true if the workload has existed for so long that the objects that it lists should exist, too.
    pub(crate) fn is_established(&self, now: Timestamp) -> bool {
        let created = self.object["metadata"]["creationTimestamp"].as_str();
        let created = created.and_then(|it| it.parse::<Timestamp>().ok());
        created.is_some_and(|it| now.duration_since(it) > OBJECTS_FOLLOW)
    }

    /// Returns the workload's type with its group, so that no other kind can be meant, and its name.
    pub(crate) fn target(&self) -> Target {
        let shape = self.workload.id.kind.shape();
        Target {
            kind: format!("{}.{}", shape.plural, shape.group),
            name: self.workload.id.name.to_string(),
            namespace: None,
        }
    }

    /// Returns the reference to a ConfigMap in its namespace.
    pub(crate) fn config_map(&self, name: &Name) -> Reference {
        Reference::config_map(&self.workload.id.namespace, name)
    }

    /// Returns the place in the API of workloads of this kind and namespace.
    pub(crate) fn place(&self) -> Place<'_> {
        let plural = self.workload.id.kind.shape().plural;
        let namespace = self.workload.id.namespace.as_str();
        Place::new(&self.api_version, plural, Some(namespace))
    }

    /// Returns the number of pods that the workload asks for, if it says so.
    pub(crate) fn pods(&self) -> Option<i64> {
        let kind = self.workload.id.kind;
        if kind == WorkloadKind::DAEMON_SET {
            return self.object["status"]["desiredNumberScheduled"].as_i64();
        }
        let replicas = self.object["spec"]["replicas"].as_i64();
        replicas.or(kind.is_built_in().then_some(1))
    }

    /// Returns the ways in which its pods use config objects, tracked or not.
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

    /// Returns everything without which its pods do not start, tracked or not: objects, or keys of them.
    pub(crate) fn needs(&self) -> BTreeSet<(Reference, Option<Box<str>>)> {
        let namespace = &self.workload.id.namespace;
        let pod_specs = self.pod_specs();
        let needs = pod_specs.iter();
        needs
            .flat_map(|it| it.requirements(namespace, |_| true))
            .map(|requirement| ((*requirement.reference).clone(), requirement.key))
            .collect()
    }

    fn pod_specs(&self) -> Vec<PodSpec> {
        let templates = self.workload.id.kind.shape().templates.iter();
        let templates = templates.map(|template| at(&self.object, template.path));
        let pod_specs = templates.map(|it| serde_json::from_value(it["spec"].clone()));
        pod_specs.filter_map(Result::ok).collect()
    }

    /// Asks the operator for the workload's sync status, by a dry run of a write that changes nothing.
    pub(crate) async fn query_status(&self, cluster: &Cluster) -> Reply {
        Reply::about(cluster, self.place(), &self.workload.id.name).await
    }
}

/// Everything that could not be seen of a list of workloads.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    /// In words.
    pub(crate) words: Vec<String>,
    /// The kinds of which workloads may be missing.
    pub(crate) kinds: Vec<WorkloadKind>,
    /// True if a list that is read a moment later may have more.
    pub(crate) is_temporary: bool,
}

impl Unlisted {
    fn add(&mut self, kind: WorkloadKind, error: &Unseen) {
        self.words.push(error.to_string());
        self.kinds.push(kind);
        self.is_temporary |= error.is_temporary();
    }
}

/// Returns the group and version in which a kind is served.
pub(crate) async fn api_version(cluster: &Cluster, kind: WorkloadKind) -> Result<String, Unseen> {
    let shape = kind.shape();
    let version = match kind.is_built_in() {
        true => "v1".to_owned(),
        false => cluster.version_of(shape.group, shape.plural).await?,
    };
    Ok(format!("{}/{version}", shape.group))
}

/// Returns the kind that the user means.
///
/// # Errors
/// When no kind is called so.
pub(crate) fn meant(operators: &Operators, typed: &str) -> Result<WorkloadKind, Unseen> {
    let kinds = operators.kinds();
    kind(&kinds, typed).ok_or_else(|| {
        let none = format!("no kind of workload is called {typed}");
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.shape().plural).collect();
        match operators.are_unknown() {
            true => {
                let message = format!("{none}, as far as can be seen");
                Unseen::refused(format!("tell what {typed} is"), message)
            }
            false => Unseen::Absent(format!("{none}: there are {}", kinds.join(", "))),
        }
    })
}

/// Reads one workload.
pub(crate) async fn get<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
    target: &Target,
) -> Result<Seen<'a>, Unseen> {
    let kind = meant(operators, &target.kind)?;
    let api_version = api_version(cluster, kind).await?;
    let namespace = cluster.namespace.as_str();
    let place = Place::new(&api_version, kind.shape().plural, Some(namespace));
    let object: Box<RawValue> = match cluster.get(place, &target.name).await {
        Ok(object) => object,
        Err(Unseen::Absent(_)) => {
            let shape = kind.shape();
            let resource = format!("{}.{}", shape.plural, shape.group);
            return Err(cluster.not_found(resource, &target.name).await);
        }
        Err(error) => return Err(error),
    };
    let mut namespaces = Namespaces::default();
    let of_workload = namespaces.of(cluster, operators, namespace).await;
    let seen = seen(operators, kind, &api_version, &object, of_workload);
    let what = format!("read {kind} {}", target.name);
    let mut seen = seen.ok_or_else(|| Unseen::refused(what, "it is not as expected"))?;
    seen.unseen = namespaces.unseen(operators);
    Ok(seen)
}

/// Lists the workloads of a namespace, or of all, whose labels match `selector`, and maps each with `take`, in order.
/// Also returns everything that could not be seen of them.
///
/// Workloads for which `take` returns `None` are dropped at once, so that a large cluster does not fill the
/// memory.
pub(crate) async fn list<'a, T>(
    cluster: &Cluster,
    operators: &'a Operators,
    namespace: Option<&Name>,
    selector: Option<&str>,
    mut take: impl FnMut(Seen<'a>) -> Option<T>,
) -> (Vec<T>, Unlisted) {
    let query = with_labels(selector);
    let mut taken = Vec::new();
    let mut unlisted = Unlisted::default();
    let mut namespaces = Namespaces::default();
    if namespace.is_none() {
        namespaces.read_all(cluster, operators).await;
    }
    for kind in operators.kinds() {
        let api_version = match api_version(cluster, kind).await {
            Ok(version) => version,
            // The cluster does not serve this kind, so nobody has any.
            Err(error) if error.is_absent() => continue,
            Err(error) => {
                unlisted.add(kind, &error);
                continue;
            }
        };
        let there = namespace.map(Name::as_str);
        let place = Place::new(&api_version, kind.shape().plural, there);
        let mut pages = cluster.pages(place, &query);
        loop {
            let objects: Vec<Box<RawValue>> = match pages.next().await {
                Ok(Some(objects)) => objects,
                Ok(None) => break,
                Err(error) => {
                    unlisted.add(kind, &error);
                    break;
                }
            };
            for object in objects {
                let Some(namespace) = namespace_of(&object) else {
                    continue;
                };
                let namespace = namespaces.of(cluster, operators, &namespace).await;
                let seen = seen(operators, kind, &api_version, &object, namespace);
                taken.extend(seen.and_then(|seen| {
                    let id = &seen.workload.id;
                    let place = (id.namespace.clone(), id.kind, id.name.clone());
                    Some((place, take(seen)?))
                }));
            }
        }
    }
    unlisted.words.extend(namespaces.unseen(operators));
    unlisted.is_temporary |= namespaces.may_be_seen_later();
    taken.sort_by(|(one, _), (other, _)| one.cmp(other));
    (taken.into_iter().map(|(_, it)| it).collect(), unlisted)
}

/// Lists the managed workloads as [`list`] does. Also returns a note on workloads that may be managed but
/// were left out.
pub(crate) async fn managed<'a, T>(
    cluster: &Cluster,
    operators: &'a Operators,
    namespace: Option<&Name>,
    selector: Option<&str>,
    take: impl Fn(Seen<'a>) -> T,
) -> (Vec<T>, Option<String>, Unlisted) {
    let mut left_out = 0;
    let take = |seen: Seen<'a>| {
        left_out += usize::from(seen.obstacle.is_none() && seen.doubt.is_some());
        seen.is_managed().then(|| take(seen))
    };
    let (managed, unlisted) = list(cluster, operators, namespace, selector, take).await;
    let left_out = (left_out > 0).then(|| {
        let workloads = count(left_out, "workload");
        format!("left out: {workloads} not managed by the default settings, which are assumed because the operator's own cannot be seen")
    });
    (managed, left_out, unlisted)
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

/// Returns a workload as its operator reads it. `None` if it cannot be read.
pub(crate) fn seen<'a>(
    operators: &'a Operators,
    kind: WorkloadKind,
    api_version: &str,
    object: &RawValue,
    namespace: Option<&Namespace>,
) -> Option<Seen<'a>> {
    let ManagedBy {
        operator,
        workload,
        obstacle,
        doubt,
    } = operators.managed_by(kind, object, namespace)?;
    let mut object: Value = serde_json::from_str(object.get()).ok()?;
    // Often half of the object.
    let managed_fields = object["metadata"]["managedFields"].take();
    let hash_writer = HashWriter::of(workload.id.kind, &managed_fields);
    Some(Seen {
        operator,
        workload,
        obstacle,
        doubt,
        object,
        hash_writer,
        unseen: None,
        api_version: api_version.to_owned(),
    })
}

/// Returns what an object has at a path, or `null`.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |it, field| &it[*field])
}

/// Names the way in which a config object gets into a pod.
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
