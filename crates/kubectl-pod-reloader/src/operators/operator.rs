//! One operator, by its Deployment.

use std::fmt;

use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use pod_reloader_settings::Args;
use serde::Serialize;
use serde_json::Value;

/// The Deployment of an operator, as answers name it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Installed {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The version of the operator, according to the labels.
    pub(crate) version: String,
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "deployment {} in namespace {}",
            self.name, self.namespace
        )
    }
}

/// An operator, as described by its Deployment.
pub(crate) struct Operator {
    /// Its name and its version.
    pub(crate) installed: Installed,
    /// Its settings.
    pub(crate) args: Args,
    /// The workloads that it manages.
    pub(crate) scope: Scope,
    /// The Deployment.
    pub(crate) deployment: Value,
}

/// An operator whose settings belong to another version than this plugin.
pub(crate) struct Unread {
    /// Its name and its version.
    pub(crate) installed: Installed,
    /// The Deployment.
    pub(crate) deployment: Value,
}

impl Operator {
    /// Parses a Deployment. The `String` describes settings that could not be read. Returns `None` if the
    /// Deployment is not an operator's.
    pub(crate) fn of(deployment: Value) -> Option<Result<(Self, Option<String>), Unread>> {
        let metadata = &deployment["metadata"];
        let namespace = Name::parse(metadata["namespace"].as_str()?).ok()?;
        let version = metadata["labels"]["app.kubernetes.io/version"].as_str();
        let installed = Installed {
            namespace: namespace.to_string(),
            name: metadata["name"].as_str()?.to_owned(),
            version: version.unwrap_or("unknown").to_owned(),
        };
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
        let unread = format!("settings of {installed} that come from other objects by variables");
        let unread = is_unread.then_some(unread);
        let variable = |name: &str| {
            let mut variables = container["env"].as_array()?.iter();
            let variable = variables.find(|it| it["name"] == name)?;
            variable["value"].as_str().map(ToOwned::to_owned)
        };
        let Ok(args) = Args::of_container(arguments.iter().map(String::as_str), variable) else {
            return Some(Err(Unread {
                installed,
                deployment,
            }));
        };
        let operator = Self {
            scope: args.scope(namespace),
            installed,
            args,
            deployment,
        };
        Some(Ok((operator, unread)))
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let installed = &self.installed;
        let version = env!("CARGO_PKG_VERSION");
        write!(
            f,
            "the settings of {installed}: they are of another version than this plugin ({version}); defaults are assumed"
        )
    }
}
