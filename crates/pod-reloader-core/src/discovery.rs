//! What a pod spec needs of ConfigMaps and Secrets before its containers can start.

use std::collections::BTreeSet;

use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

mod pod_spec;
#[cfg(test)]
mod tests;

pub use pod_spec::PodSpec;
use pod_spec::{Source, each, pair};

/// The most objects and keys that one workload waits for.
pub const MAX_REQUIREMENTS: usize = 1024;

/// An object, or one key of it, without which a pod does not start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The object.
    pub reference: Reference,
    /// The key of the object, where the pod spec names one.
    pub key: Option<Box<str>>,
}

impl PodSpec {
    /// The objects and keys that a pod in `namespace` cannot start without: env, envFrom, volumes
    /// and projected volumes of containers and init containers, where they are not `optional`. Only of
    /// objects that `is_listed` holds for, and the first [`MAX_REQUIREMENTS`].
    pub fn requirements(
        &self,
        namespace: &Name,
        is_listed: impl Fn(&Reference) -> bool,
    ) -> BTreeSet<Requirement> {
        self.sources()
            .filter(|(_, source)| source.optional != Some(true))
            .filter_map(|(kind, source)| Some((reference(namespace, kind, source)?, source)))
            .filter(|(reference, _)| is_listed(reference))
            .flat_map(|(reference, source)| requirements_of(reference, source))
            .take(MAX_REQUIREMENTS)
            .collect()
    }

    /// Every source of configuration in the pod spec, with the kind of object that it names.
    fn sources(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        let containers = each(&self.init_containers).chain(each(&self.containers));
        let env = containers
            .clone()
            .flat_map(|container| each(&container.env));
        let env_from = containers.flat_map(|container| each(&container.env_from));
        let projected = each(&self.volumes)
            .filter_map(|volume| volume.projected.as_ref())
            .flat_map(|projected| each(&projected.sources));
        env.filter_map(|variable| variable.value_from.as_ref())
            .flat_map(|from| pair(&from.config_map_key_ref, &from.secret_key_ref))
            .chain(env_from.flat_map(|from| pair(&from.config_map_ref, &from.secret_ref)))
            .chain(each(&self.volumes).flat_map(|volume| pair(&volume.config_map, &volume.secret)))
            .chain(projected.flat_map(|source| pair(&source.config_map, &source.secret)))
    }
}

/// The object that `source` names. The apiserver accepts names here that no object can have: such a pod
/// never starts anyway.
fn reference(namespace: &Name, kind: ConfigKind, source: &Source) -> Option<Reference> {
    let name = Name::parse(source.name.as_deref()?).ok()?;
    Some(Reference {
        kind,
        namespace: namespace.clone(),
        name,
    })
}

/// The keys that `source` names, or else the object alone.
fn requirements_of(reference: Reference, source: &Source) -> impl Iterator<Item = Requirement> {
    let items = each(&source.items).map(|item| &item.key);
    let keys = source.key.iter().chain(items).map(|key| Some(&**key));
    let names_none = source.key.is_none() && each(&source.items).len() == 0;
    let object = names_none.then_some(None);
    keys.chain(object).map(move |key| Requirement {
        reference: reference.clone(),
        key: key.map(Into::into),
    })
}
