//! One operator, by its Deployment.

use std::fmt;

use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use pod_reloader_settings::Args;
use serde_json::Value;

/// An operator, as described by its Deployment.
pub(crate) struct Operator {
    /// Its namespace.
    pub(crate) namespace: Name,
    /// The name of its Deployment.
    pub(crate) name: String,
    /// Its version, according to its labels.
    pub(crate) version: String,
    /// Its settings.
    pub(crate) args: Args,
    /// The workloads that it manages.
    pub(crate) scope: Scope,
    /// The Deployment.
    pub(crate) deployment: Value,
}

/// An operator whose settings belong to another version than this plugin.
pub(crate) struct Unread {
    /// Its namespace.
    pub(crate) namespace: Name,
    /// The name of its Deployment.
    pub(crate) name: String,
    /// Its version, according to its labels.
    pub(crate) version: String,
    /// The Deployment.
    pub(crate) deployment: Value,
}

impl Operator {
    /// Parses a Deployment. The `String` describes settings that could not be read. Returns `None` if the
    /// Deployment is not an operator's.
    pub(crate) fn of(deployment: Value) -> Option<Result<(Self, Option<String>), Unread>> {
        let metadata = &deployment["metadata"];
        let name = metadata["name"].as_str()?.to_owned();
        let namespace = Name::parse(metadata["namespace"].as_str()?).ok()?;
        let labels = &metadata["labels"];
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
        let arguments = |container: &'_ Value| -> Vec<String> {
            let arguments = container["args"].as_array().into_iter().flatten();
            let arguments = arguments.filter_map(Value::as_str);
            arguments.map(ToOwned::to_owned).collect()
        };
        let is_ours = |it: &String| it.starts_with("--hash-keys-secret=");
        let mut containers = containers.iter();
        let container = containers.find(|it| arguments(it).iter().any(is_ours))?;
        let arguments = arguments(container);
        let from_elsewhere = |it: &&Value| {
            let name = it["name"].as_str().unwrap_or_default();
            name.starts_with("POD_RELOADER_") && it.get("valueFrom").is_some()
        };
        let mut variables = container["env"].as_array().into_iter().flatten();
        let is_unread =
            variables.any(|it| from_elsewhere(&it)) || container.get("envFrom").is_some();
        let unread = is_unread.then(|| {
            format!("settings of deployment {name} in namespace {namespace} that come from other objects by variables")
        });
        let variable = |name: &str| {
            let mut variables = container["env"].as_array()?.iter();
            let variable = variables.find(|it| it["name"] == name)?;
            variable["value"].as_str().map(ToOwned::to_owned)
        };
        let version = labels["app.kubernetes.io/version"].as_str();
        let version = version.unwrap_or("unknown").to_owned();
        let Ok(args) = Args::of_container(arguments.iter().map(String::as_str), variable) else {
            return Some(Err(Unread {
                namespace,
                name,
                version,
                deployment,
            }));
        };
        let operator = Self {
            scope: args.scope(namespace.clone()),
            version,
            namespace,
            name,
            args,
            deployment,
        };
        Some(Ok((operator, unread)))
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace, name, ..
        } = self;
        let version = env!("CARGO_PKG_VERSION");
        write!(
            f,
            "the settings of deployment {name} in namespace {namespace}: they are of another version than this plugin ({version}); defaults are assumed"
        )
    }
}
