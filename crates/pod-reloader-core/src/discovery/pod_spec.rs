//! The part of a pod spec that names ConfigMaps and Secrets, parsed within bounds.

mod of_use;

use serde::Deserialize;
use serde::de::Deserializer;

use self::of_use::those_of_use;
use crate::name::Name;
use crate::reference::ConfigKind;

/// The maximum number of items of one list that are read: a request may hold more than fits into memory.
pub(super) const MAX_ITEMS: usize = 4096;
/// The name of the Secrets Store CSI driver.
const SECRETS_STORE: &str = "secrets-store.csi.k8s.io";

/// The part of a pod spec that names ConfigMaps and Secrets. Everything else is skipped while parsing.
///
/// Field names are those of the Kubernetes API. An absent field is the same as `null`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    #[serde(deserialize_with = "those_of_use")]
    pub(super) containers: Box<[Container]>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) init_containers: Box<[Container]>,
    /// Those of pods alone: no pod template has any.
    #[serde(deserialize_with = "those_of_use")]
    pub(super) ephemeral_containers: Box<[Container]>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) volumes: Box<[Volume]>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) image_pull_secrets: Box<[Source]>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    #[serde(deserialize_with = "those_of_use")]
    env: Box<[EnvVar]>,
    #[serde(deserialize_with = "those_of_use")]
    env_from: Box<[EnvFrom]>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) volume_mounts: Box<[VolumeMount]>,
    restart_policy: Option<Box<str>>,
}

impl Container {
    pub(super) fn env(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        let from = self.env.iter().filter_map(|env| env.value_from.as_ref());
        from.flat_map(|from| {
            pair(
                from.config_map_key_ref.as_deref(),
                from.secret_key_ref.as_deref(),
            )
        })
    }

    pub(super) fn env_from(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        let env_from = self.env_from.iter();
        env_from.flat_map(|from| pair(from.config_map_ref.as_deref(), from.secret_ref.as_deref()))
    }

    /// Returns true if an init container is a sidecar: it starts before the others, and keeps running.
    pub(super) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvVar {
    value_from: Option<ValueFrom>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueFrom {
    config_map_key_ref: Option<Box<Source>>,
    secret_key_ref: Option<Box<Source>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvFrom {
    config_map_ref: Option<Box<Source>>,
    secret_ref: Option<Box<Source>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeMount {
    pub(super) name: Option<Box<str>>,
    sub_path: Option<Box<str>>,
    sub_path_expr: Option<Box<str>>,
}

impl VolumeMount {
    /// Returns true if only a part of the volume is mounted.
    pub(super) fn is_partial(&self) -> bool {
        self.sub_path().is_some() || self.is_expanded()
    }

    /// Returns the part of the volume that is mounted, if it is known. An empty path is the same as none,
    /// and an expression replaces the path.
    pub(super) fn sub_path(&self) -> Option<&str> {
        let sub_path = self.sub_path.as_deref().filter(|path| !path.is_empty());
        sub_path.filter(|_| !self.is_expanded())
    }

    fn is_expanded(&self) -> bool {
        self.sub_path_expr
            .as_deref()
            .is_some_and(|it| !it.is_empty())
    }
}

/// A volume made of config objects, or one whose driver needs a Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "VolumeFields")]
pub(super) struct Volume {
    pub(super) name: Option<Box<str>>,
    /// The objects whose keys are the files of the volume.
    pub(super) sources: Box<[(ConfigKind, Source)]>,
    /// The Secrets that the driver needs.
    pub(super) driver_secrets: Box<[Source]>,
    /// The SecretProviderClass whose secrets are the files of the volume.
    pub(super) secret_provider_class: Option<Name>,
}

impl Volume {
    pub(super) fn sources(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        self.sources.iter().map(|(kind, source)| (*kind, source))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeFields {
    name: Option<Box<str>>,
    config_map: Option<Source>,
    #[serde(deserialize_with = "by_secret_name")]
    secret: Option<Source>,
    projected: Option<Projected>,
    #[serde(deserialize_with = "by_secret_name")]
    azure_file: Option<Source>,
    cephfs: Option<Driver>,
    cinder: Option<Driver>,
    csi: Option<Csi>,
    flex_volume: Option<Driver>,
    iscsi: Option<Iscsi>,
    rbd: Option<Driver>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<Driver>,
    storageos: Option<Driver>,
}

impl From<VolumeFields> for Volume {
    fn from(fields: VolumeFields) -> Self {
        let own = pair(fields.config_map, fields.secret);
        let projected = fields.projected.map(|projected| projected.sources);
        let projected = projected.into_iter().flatten();
        let projected = projected.flat_map(|it| pair(it.config_map, it.secret));
        let sources = own.chain(projected.map(|(kind, source)| (kind, *source)));
        let secret_provider_class = fields.csi.as_ref().and_then(Csi::secret_provider_class);
        let drivers = [
            fields.cephfs,
            fields.flex_volume,
            fields.rbd,
            fields.scale_io,
            fields.storageos,
        ];
        let driver_secrets = drivers
            .into_iter()
            .filter_map(|driver| driver?.secret_ref)
            .chain(fields.cinder.and_then(Driver::unread_secret))
            .chain(fields.iscsi.and_then(Iscsi::secret))
            .chain(fields.azure_file)
            .chain(fields.csi.and_then(|csi| csi.node_publish_secret_ref));
        Self {
            name: fields.name,
            sources: sources.collect(),
            driver_secrets: driver_secrets.collect(),
            secret_provider_class,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    #[serde(deserialize_with = "those_of_use")]
    sources: Box<[ProjectedSource]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectedSource {
    config_map: Option<Box<Source>>,
    secret: Option<Box<Source>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    secret_ref: Option<Source>,
}

impl Driver {
    /// Returns the Secret of a driver in whose place the kubelet calls a CSI driver, to which it passes no Secret.
    fn unread_secret(self) -> Option<Source> {
        self.secret_ref.map(Source::not_needed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Iscsi {
    secret_ref: Option<Source>,
    chap_auth_discovery: Option<bool>,
    chap_auth_session: Option<bool>,
}

impl Iscsi {
    /// Returns the Secret, which the kubelet reads only for CHAP.
    fn secret(self) -> Option<Source> {
        let chap = [self.chap_auth_discovery, self.chap_auth_session];
        let secret = self.secret_ref?;
        Some(match chap.contains(&Some(true)) {
            true => secret,
            false => secret.not_needed(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    driver: Option<Box<str>>,
    volume_attributes: Option<VolumeAttributes>,
    node_publish_secret_ref: Option<Source>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeAttributes {
    secret_provider_class: Option<Box<str>>,
}

impl Csi {
    fn secret_provider_class(&self) -> Option<Name> {
        let is_of_secrets_store = self.driver.as_deref() == Some(SECRETS_STORE);
        let attributes = self.volume_attributes.as_ref()?;
        let class = attributes.secret_provider_class.as_deref()?;
        Name::parse(class).ok().filter(|_| is_of_secrets_store)
    }
}

/// A reference to a ConfigMap or Secret anywhere in a pod spec: a key reference has `key`, a volume has
/// `items`, and all others only have a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) name: Option<Box<str>>,
    pub(super) key: Option<Box<str>>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) items: Box<[Item]>,
    pub(super) optional: Option<bool>,
}

impl Source {
    /// Returns the same source, of which a pod needs nothing in order to start.
    fn not_needed(self) -> Self {
        Self {
            optional: Some(true),
            ..self
        }
    }
}

/// One file of a volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item {
    key: Option<Box<str>>,
    path: Option<Box<str>>,
}

impl Item {
    /// Returns the key that the file holds.
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_default()
    }

    /// Returns true if this is the file `path`, or lies below it.
    pub(super) fn is_at(&self, path: &str) -> bool {
        let own = self.path.as_deref().unwrap_or_default();
        own.strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Parses the volume of a Secret, which calls its name `secretName`.
fn by_secret_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Source>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Secret {
        secret_name: Option<Box<str>>,
        #[serde(deserialize_with = "those_of_use")]
        items: Box<[Item]>,
        optional: Option<bool>,
    }
    let secret = Option::<Secret>::deserialize(deserializer)?;
    Ok(secret.map(|secret| Source {
        name: secret.secret_name,
        key: None,
        items: secret.items,
        optional: secret.optional,
    }))
}

/// Returns each of the two that is present, with its kind.
fn pair<T>(
    config_map: impl IntoIterator<Item = T>,
    secret: impl IntoIterator<Item = T>,
) -> impl Iterator<Item = (ConfigKind, T)> {
    let config_map = config_map.into_iter().map(|it| (ConfigKind::ConfigMap, it));
    config_map.chain(secret.into_iter().map(|it| (ConfigKind::Secret, it)))
}
