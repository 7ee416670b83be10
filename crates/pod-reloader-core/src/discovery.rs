//! Discovery: the ConfigMaps and Secrets that a pod spec uses, and how.

mod mounted;
mod pod_spec;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use self::mounted::{Mounting, mounted};
pub use self::pod_spec::PodSpec;
use self::pod_spec::{Container, Item, Source, Volume};
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

/// The maximum number of objects and keys that one workload waits for.
pub const MAX_REQUIREMENTS: usize = 1024;

/// The maximum number of objects and keys in mounted volumes that are told apart. Each counts once for each
/// way in which its volume is mounted, because the two numbers multiply.
const MAX_MOUNTED: usize = 4096;

/// An object, or one key of it, without which a pod does not start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The object.
    pub reference: Arc<Reference>,
    /// The key of the object, if the pod spec names one.
    pub key: Option<Box<str>>,
    /// True if the key becomes a variable. The kubelet takes variables from `data`, and files from `binaryData`, too.
    pub is_variable: bool,
}

/// An object, or one key of it, without which a pod does not start, and that is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unmet {
    /// The object.
    pub reference: Reference,
    /// The key, if the object is there and lacks it.
    pub key: Option<Box<str>>,
    /// True if the object has the key where the kubelet does not look for it: in `binaryData`.
    pub is_binary: bool,
}

impl fmt::Display for Unmet {
    /// Writes `ConfigMap app`, or `key level of ConfigMap app` and the reason if the key is in the wrong place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reference { kind, name, .. } = &self.reference;
        match &self.key {
            None => write!(f, "{kind} {name}"),
            Some(key) => write!(f, "key {key} of {kind} {name}"),
        }?;
        match self.is_binary {
            true => f.write_str(" (it is in binaryData, and variables come from data alone)"),
            false => Ok(()),
        }
    }
}

/// One use of a ConfigMap or Secret in a pod spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use<'a> {
    /// The kind of the object.
    pub kind: ConfigKind,
    /// The name of the object.
    pub name: Name,
    /// The keys that are used. If empty, the whole object is used.
    pub keys: BTreeSet<&'a str>,
    /// The way in which they come into the pod.
    pub consumption: Consumption,
}

/// The way in which a config object comes into a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consumption {
    /// A variable of a container or init container that takes its value from a key.
    Env,
    /// The variables of a container or init container, taken from the whole object.
    EnvFrom,
    /// A volume mounted in a container or sidecar: the kubelet refreshes its files.
    Volume,
    /// A volume mounted in an init container that ends before the others start.
    InitVolume,
    /// A volume mounted by `subPath` or `subPathExpr`: the kubelet never refreshes such files.
    SubPath,
    /// A volume that nothing mounts.
    Unmounted,
    /// A Secret for pulling images.
    ImagePull,
    /// A Secret that the driver of a volume needs.
    Driver,
}

impl Consumption {
    /// Returns true if a running pod sees a change by itself, or does not need to: images are pulled before it runs.
    pub fn sees_changes(self) -> bool {
        matches!(self, Self::Volume | Self::Unmounted | Self::ImagePull)
    }
}

impl PodSpec {
    /// Returns the objects and keys that a pod in `namespace` cannot start without. These are env, envFrom,
    /// volumes and projected volumes of containers and init containers, unless they are `optional`, and the
    /// Secrets of volume drivers. Image pull secrets are not included, because the kubelet goes on without
    /// them. Volumes that no container mounts are not included, because the kubelet does not set them up. Nor
    /// is the key that a `subPath` names: the kubelet makes an empty directory in its place. Only objects for
    /// which `is_listed` returns true are included, and only the first [`MAX_REQUIREMENTS`].
    pub fn requirements(
        &self,
        namespace: &Name,
        is_listed: impl Fn(&Reference) -> bool,
    ) -> BTreeSet<Requirement> {
        let variables = self.env().flat_map(|(kind, source)| {
            let key = source.key.as_deref().unwrap_or_default();
            needed(namespace, kind, source, [key], true)
        });
        let drivers = self.mounted_volumes().flat_map(|it| &it.driver_secrets);
        let drivers = drivers.map(|it| (ConfigKind::Secret, it));
        let wholes = self
            .env_from()
            .chain(drivers)
            .flat_map(|(kind, source)| needed(namespace, kind, source, None, false));
        let files = self.mounted_volumes().flat_map(Volume::sources);
        let files = files.flat_map(|(kind, source)| {
            let keys = source.items.iter().map(Item::key);
            needed(namespace, kind, source, keys, false)
        });
        variables
            .chain(wholes)
            .chain(files)
            .filter(|requirement| is_listed(&requirement.reference))
            .take(MAX_REQUIREMENTS)
            .collect()
    }

    /// Returns true if a pod has an object and does not do without it. Secrets for pulling images, and those of
    /// ephemeral containers, are included.
    pub fn needs(&self, object: &Reference) -> bool {
        self.has(object, |source| source.optional != Some(true))
    }

    /// Returns true if a pod has an object, even if it could do without it.
    pub fn names(&self, object: &Reference) -> bool {
        self.has(object, |_| true)
    }

    /// Returns the kind and the name of every object that a pod names, Secrets for pulling images included.
    pub(crate) fn named(&self) -> BTreeSet<(ConfigKind, &str)> {
        let image_pulls = self.image_pull_secrets.iter();
        let image_pulls = image_pulls.map(|it| (ConfigKind::Secret, it));
        let all = self.sources().chain(image_pulls);
        let named = all.filter_map(|(kind, source)| Some((kind, source.name.as_deref()?)));
        named.collect()
    }

    fn has(&self, object: &Reference, is_meant: impl Fn(&Source) -> bool) -> bool {
        let ephemeral = self.ephemeral_containers.iter();
        let ephemeral = ephemeral.flat_map(|it| it.env().chain(it.env_from()));
        let image_pulls = self.image_pull_secrets.iter();
        let image_pulls = image_pulls.map(|it| (ConfigKind::Secret, it));
        let mut all = self.sources().chain(ephemeral).chain(image_pulls);
        all.any(|(kind, source)| {
            kind == object.kind
                && source.name.as_deref() == Some(object.name.as_str())
                && is_meant(source)
        })
    }

    /// Returns every use of a ConfigMap or Secret, in no particular order and possibly repeated. Names that
    /// no object can have are left out.
    ///
    /// # Guarantees
    ///
    /// No object that was read is left out. If volumes have too many files and mounts to tell apart, their
    /// objects are used as a whole, by [`Consumption::SubPath`].
    pub fn uses(&self) -> Vec<Use<'_>> {
        let env = self.env().filter_map(|(kind, source)| {
            let key = source.key.as_deref().filter(|key| !key.is_empty());
            used(kind, source, key, Consumption::Env)
        });
        let whole = |kind, source, consumption| used(kind, source, None, consumption);
        let env_from = self
            .env_from()
            .filter_map(|(kind, source)| whole(kind, source, Consumption::EnvFrom));
        let drivers = self
            .driver_secrets()
            .filter_map(|source| whole(ConfigKind::Secret, source, Consumption::Driver));
        let image_pulls = self
            .image_pull_secrets
            .iter()
            .filter_map(|source| whole(ConfigKind::Secret, source, Consumption::ImagePull));
        env.chain(env_from)
            .chain(drivers)
            .chain(image_pulls)
            .chain(self.volume_uses())
            .collect()
    }

    /// Returns every SecretProviderClass that a volume names, with each way in which the volume comes into a container.
    /// A class has an entry for each such volume.
    pub(crate) fn secret_provider_classes(
        &self,
    ) -> impl Iterator<Item = (&Name, BTreeSet<Consumption>)> {
        let by_name = self.mountings();
        self.volumes.iter().filter_map(move |volume| {
            let class = volume.secret_provider_class.as_ref()?;
            let mountings = by_name.get(volume.name.as_deref().unwrap_or_default());
            let consumptions = mountings.into_iter().flatten().map(|it| it.consumption);
            Some((class, consumptions.collect()))
        })
    }

    fn volume_uses(&self) -> Vec<Use<'_>> {
        let by_name = self.mountings();
        let unmounted = BTreeSet::from([Mounting::UNMOUNTED]);
        let mut room = MAX_MOUNTED;
        let mut uses = Vec::new();
        for volume in &self.volumes {
            let name = volume.name.as_deref().unwrap_or_default();
            let mountings = by_name.get(name).unwrap_or(&unmounted);
            let sizes = volume.sources().map(|(_, source)| 1 + source.items.len());
            if let Some(rest) = room.checked_sub(sizes.sum::<usize>() * mountings.len()) {
                room = rest;
                uses.extend(mountings.iter().flat_map(|it| mounted(volume, *it)));
            } else {
                let whole = |(kind, source)| used(kind, source, None, Consumption::SubPath);
                uses.extend(volume.sources().filter_map(whole));
            }
        }
        uses
    }

    /// Returns the ways in which each volume is mounted, by the name of the volume.
    fn mountings(&self) -> BTreeMap<&str, BTreeSet<Mounting<'_>>> {
        let own = self.containers.iter().map(|it| (it, Consumption::Volume));
        let init = self.init_containers.iter().map(|it| {
            let plain = if it.is_sidecar() {
                Consumption::Volume
            } else {
                Consumption::InitVolume
            };
            (it, plain)
        });
        let mut mountings = BTreeMap::<_, BTreeSet<_>>::new();
        for (container, plain) in own.chain(init) {
            for mount in &container.volume_mounts {
                let consumption = if mount.is_partial() {
                    Consumption::SubPath
                } else {
                    plain
                };
                let mounting = Mounting {
                    consumption,
                    sub_path: mount.sub_path(),
                };
                let name = mount.name.as_deref().unwrap_or_default();
                mountings.entry(name).or_default().insert(mounting);
            }
        }
        mountings
    }

    /// Returns every source of configuration that a pod may need in order to start, with the kind of its
    /// object.
    fn sources(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        let drivers = self.driver_secrets().map(|it| (ConfigKind::Secret, it));
        self.env()
            .chain(self.env_from())
            .chain(self.volumes.iter().flat_map(Volume::sources))
            .chain(drivers)
    }

    /// Returns every volume that a container mounts.
    fn mounted_volumes(&self) -> impl Iterator<Item = &Volume> {
        let mounts = self.all_containers().flat_map(|it| &it.volume_mounts);
        let mounted: BTreeSet<_> = mounts.filter_map(|it| it.name.as_deref()).collect();
        let is_mounted = move |volume: &&Volume| {
            volume
                .name
                .as_deref()
                .is_some_and(|it| mounted.contains(it))
        };
        self.volumes.iter().filter(is_mounted)
    }

    fn env(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        self.all_containers().flat_map(Container::env)
    }

    fn env_from(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        self.all_containers().flat_map(Container::env_from)
    }

    fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers)
    }

    fn driver_secrets(&self) -> impl Iterator<Item = &Source> {
        self.volumes.iter().flat_map(|it| &it.driver_secrets)
    }
}

/// Returns the object that `source` names. The apiserver accepts names here that no object can have, but
/// such a pod never starts anyway.
fn reference(namespace: &Name, kind: ConfigKind, source: &Source) -> Option<Reference> {
    Some(Reference {
        kind,
        namespace: namespace.clone(),
        name: name(source)?,
    })
}

fn name(source: &Source) -> Option<Name> {
    Name::parse(source.name.as_deref()?).ok()
}

/// Returns what a pod needs of the object that `source` names: these keys, or the object itself if there are none.
/// Nothing if the source is optional.
fn needed<'a>(
    namespace: &Name,
    kind: ConfigKind,
    source: &Source,
    keys: impl IntoIterator<Item = &'a str>,
    is_variable: bool,
) -> Vec<Requirement> {
    let is_optional = source.optional == Some(true);
    let Some(reference) = reference(namespace, kind, source).filter(|_| !is_optional) else {
        return Vec::new();
    };
    let reference = Arc::new(reference);
    let requirement = |key: Option<&str>| Requirement {
        reference: reference.clone(),
        key: key.map(Into::into),
        is_variable,
    };
    let keys: Vec<_> = keys.into_iter().map(|key| requirement(Some(key))).collect();
    match keys.is_empty() {
        true => vec![requirement(None)],
        false => keys,
    }
}

fn used<'a>(
    kind: ConfigKind,
    source: &Source,
    keys: impl IntoIterator<Item = &'a str>,
    consumption: Consumption,
) -> Option<Use<'a>> {
    Some(Use {
        kind,
        name: name(source)?,
        keys: keys.into_iter().collect(),
        consumption,
    })
}
