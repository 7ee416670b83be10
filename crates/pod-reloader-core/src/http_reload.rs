//! HTTP reload: a workload whose pods take changed config over when they are asked to, in place of a restart.
//!
//! Running pods can get changed config only in the files of volumes that the kubelet refreshes. So whatever else a pod
//! template takes of an object, a change of that object restarts the pods.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::annotations::{RELOAD_DELAY, RELOAD_TIMEOUT, RELOAD_URL};
use crate::digest::{Content, Contents};
use crate::discovery::{Consumption, PodSpec};
use crate::duration;
use crate::kind::WorkloadKind;
use crate::name::Name;
use crate::reference::Reference;

/// The time that pods get to have changed config in their files, unless the workload says otherwise.
///
/// A kubelet syncs a pod at once when one of its annotations changes. By default it has a watch of each object that its
/// pods mount, so it writes the new content in that sync; with many pods at once, syncs queue up.
pub const DEFAULT_DELAY: Duration = Duration::from_secs(10);

/// The time after that in which all pods must have reloaded, unless the workload says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// The maximum length of a path, in bytes.
const MAX_PATH: usize = 1024;

/// The port and the path at which each pod of a workload reloads its config. There is no host: nothing but the pods
/// themselves is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The port.
    pub port: u16,
    /// The path, with the query if there is one.
    pub path: Box<str>,
}

impl Target {
    /// Parses a value of the annotation [`RELOAD_URL`], such as `http://:8080/-/reload`.
    pub fn parse(value: &str) -> Option<Self> {
        let (port, path) = value.strip_prefix("http://:")?.split_once('/')?;
        let are_digits = port.bytes().all(|it| it.is_ascii_digit()) && !port.starts_with('0');
        let port = port.parse().ok().filter(|_| are_digits)?;
        // What a URI may hold, apart from a fragment.
        let is_allowed = |it: u8| it.is_ascii_graphic() && !br##""#<>[\]^`{|}"##.contains(&it);
        (path.len() < MAX_PATH && path.bytes().all(is_allowed)).then(|| Self {
            port,
            path: format!("/{path}").into(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://:{}{}", self.port, self.path)
    }
}

/// The way in which the pods of one workload reload changed config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReload {
    /// The place at which each pod is asked.
    pub target: Target,
    /// The time that a pod gets to have the changed config in its files.
    pub delay: Duration,
    /// The time after that in which all pods must have reloaded.
    pub timeout: Duration,
    /// The label selector of the pods.
    pub selector: Box<str>,
    /// The objects that the pods have as files which the kubelet refreshes, and in no other way. Sorted.
    files: Box<[Reference]>,
}

/// The parts of a workload that say whether its pods can reload.
pub(crate) struct Parts<'a> {
    pub(crate) kind: WorkloadKind,
    pub(crate) namespace: &'a Name,
    pub(crate) pod_specs: &'a [&'a PodSpec],
    /// Returns the label selector of the pods.
    pub(crate) selector: &'a dyn Fn() -> Option<String>,
    /// True if the pods are restarted by their templates.
    pub(crate) restarts_by_template: bool,
    /// True if the workload tracks SecretProviderClasses.
    pub(crate) tracks_classes: bool,
}

impl HttpReload {
    /// Reads the annotations of a workload. `None` if they do not say where its pods reload. Objects for which
    /// `is_pinned` holds are not reloaded: pods have immutable copies of these.
    ///
    /// # Errors
    ///
    /// Returns the reason why its pods are always restarted.
    pub(crate) fn read<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
        parts: Parts<'_>,
        is_pinned: impl Fn(&Reference) -> bool,
    ) -> Result<Option<Box<Self>>, &'static str> {
        let Some(target) = annotation(RELOAD_URL).and_then(Target::parse) else {
            return Ok(None);
        };
        if !parts.kind.is_built_in() || !parts.restarts_by_template {
            return Err("only pods of Deployments, StatefulSets and DaemonSets can be reloaded");
        }
        if parts.tracks_classes {
            return Err("pods that mount a tracked SecretProviderClass cannot be reloaded");
        }
        let Some(selector) = (parts.selector)() else {
            return Err("its selector cannot be read");
        };
        let files = files(parts.namespace, parts.pod_specs);
        let (pinned, files): (Vec<_>, Vec<_>) = files.into_iter().partition(is_pinned);
        if files.is_empty() {
            return Err(match pinned.is_empty() {
                true => "its pods have no ConfigMap or Secret as files alone",
                false => "pinned ConfigMaps cannot be reloaded, as pods use copies of them",
            });
        }
        let time = |key, default| {
            let time = annotation(key).and_then(duration::of_annotation);
            time.unwrap_or(default)
        };
        Ok(Some(Box::new(Self {
            target,
            delay: time(RELOAD_DELAY, DEFAULT_DELAY),
            timeout: time(RELOAD_TIMEOUT, DEFAULT_TIMEOUT),
            selector: selector.into(),
            files: files.into(),
        })))
    }

    /// Returns the way in which pods reload that have no files.
    #[cfg(test)]
    pub(crate) fn of_test(target: Target, delay: Duration, timeout: Duration) -> Self {
        Self {
            target,
            delay,
            timeout,
            selector: "app=web".into(),
            files: Box::default(),
        }
    }

    /// Returns true if running pods get a change of this object.
    pub fn reaches(&self, object: &Reference) -> bool {
        self.files.binary_search(object).is_ok()
    }

    /// Returns the memory that it takes, in bytes, with what is remembered of the objects and of a round.
    pub(crate) fn weight(&self) -> usize {
        const REMEMBERED: usize = 2 * (size_of::<Reference>() + size_of::<u64>());
        let of_file = |it: &Reference| size_of_val(it) + it.name.as_str().len() + REMEMBERED;
        size_of_val(self)
            + self.target.path.len()
            + self.selector.len()
            + self.files.iter().map(of_file).sum::<usize>()
    }
}

/// Returns the objects that pods have as files which the kubelet refreshes, and in no other way, sorted.
fn files(namespace: &Name, pod_specs: &[&PodSpec]) -> Vec<Reference> {
    let uses = pod_specs.iter().flat_map(|it| it.uses());
    let mut found = BTreeMap::<Reference, (bool, bool)>::new();
    for it in uses {
        let reference = Reference {
            kind: it.kind,
            namespace: namespace.clone(),
            name: it.name,
        };
        let (is_mounted, is_fixed) = found.entry(reference).or_default();
        *is_mounted |= it.consumption == Consumption::Volume;
        *is_fixed |= !it.consumption.sees_changes();
    }
    let reached = found
        .into_iter()
        .filter(|(_, (is_mounted, is_fixed))| *is_mounted && !is_fixed);
    reached.map(|(reference, _)| reference).collect()
}

/// The tracked objects of a workload as its pods have them: a fingerprint of the tracked content of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Had(BTreeMap<Reference, Fingerprint>);

/// A fingerprint of the content of one object. `None` if it does not exist.
type Fingerprint = Option<u64>;

impl Had {
    /// Notes the present contents.
    pub fn of(contents: &Contents<'_>) -> Self {
        let of = |content: &Content<'_>| match content {
            Content::Absent => None,
            content => Some(content.fingerprint()),
        };
        let all = contents.0.iter();
        Self(
            all.map(|(reference, content)| ((*reference).clone(), of(content)))
                .collect(),
        )
    }

    /// Returns the first object with another content `now` that does not reach running pods, if there is one: pods do
    /// not have it as files alone, it has appeared or is gone, or it is tracked only now, or no longer.
    pub fn obstacle(&self, now: &Self, reload: &HttpReload) -> Option<Reference> {
        let changes = self.changes(now);
        let reaches = |reference: &Reference| {
            let both = [&self.0, &now.0].map(|it| it.get(reference));
            let is_there = both.into_iter().all(|it| it.is_some_and(Option::is_some));
            is_there && reload.reaches(reference)
        };
        changes.into_iter().find(|it| !reaches(it)).cloned()
    }

    /// Returns the objects whose content is another one `now`.
    pub fn changes<'a>(&'a self, now: &'a Self) -> Vec<&'a Reference> {
        let is_other = |reference: &&Reference| self.0.get(*reference) != now.0.get(*reference);
        let mut all: Vec<_> = self.0.keys().chain(now.0.keys()).filter(is_other).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// Returns the first of these contents that may not reach running pods, if nobody knows which of them have changed.
pub fn obstacle_among(contents: &Contents<'_>, reload: &HttpReload) -> Option<Reference> {
    let reaches = |(reference, content): &(&Reference, Content<'_>)| {
        *content != Content::Absent && reload.reaches(reference)
    };
    let mut all = contents.0.iter();
    let first = all.find(|it| !reaches(it));
    first.map(|(reference, _)| (*reference).clone())
}

#[cfg(test)]
mod tests;
