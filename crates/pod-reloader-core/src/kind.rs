//! Kinds of workload: where their pod templates are, and how they are restarted.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::Deserialize;

/// A kind of workload. It lives as long as the process, and is as cheap to copy as a reference.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind(&'static Shape);

/// The properties of a kind.
#[derive(Debug)]
pub struct Shape {
    /// The kind as Kubernetes spells it.
    pub kind: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// The resource name in URLs.
    pub plural: &'static str,
    /// The pod templates of the kind.
    pub templates: &'static [Template],
    /// The field that restarts the pods when a time is written to it, if there is one.
    pub restart_at: Option<FieldPath>,
}

/// The position of a pod template in an object.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The path to the template.
    pub path: FieldPath,
    /// True if a missing template may be created: it takes metadata alone, and needs no containers.
    pub may_be_made: bool,
}

impl Template {
    /// Returns true if the template can carry an annotation, given that `depth` fields of its path exist.
    pub(crate) fn can_carry(&self, depth: usize) -> bool {
        self.may_be_made || depth >= self.path.len()
    }
}

/// The names of the fields on a path, from the outermost one.
pub type FieldPath = &'static [&'static str];

/// The path of most pod templates.
pub(crate) const SPEC_TEMPLATE: FieldPath = &["spec", "template"];

impl WorkloadKind {
    /// A Deployment.
    pub const DEPLOYMENT: Self = Self(&of_apps("Deployment", "deployments"));
    /// A StatefulSet.
    pub const STATEFUL_SET: Self = Self(&of_apps("StatefulSet", "statefulsets"));
    /// A DaemonSet.
    pub const DAEMON_SET: Self = Self(&of_apps("DaemonSet", "daemonsets"));

    /// The kinds that every cluster has.
    pub const BUILT_IN: [Self; 3] = [Self::DEPLOYMENT, Self::STATEFUL_SET, Self::DAEMON_SET];

    /// Returns the built-in kind with this API group and name, if there is one.
    pub fn from_group_kind(group: &str, kind: &str) -> Option<Self> {
        Self::BUILT_IN.into_iter().find(|own| own.is(group, kind))
    }

    /// Returns true if this kind has this API group and name.
    pub fn is(self, group: &str, kind: &str) -> bool {
        self.0.group == group && self.0.kind == kind
    }

    /// Returns true if every cluster has this kind.
    pub fn is_built_in(self) -> bool {
        Self::BUILT_IN.contains(&self)
    }

    /// Returns the kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        self.0.kind
    }

    /// Returns the properties of the kind.
    pub fn shape(self) -> &'static Shape {
        self.0
    }

    fn identity(self) -> (&'static str, &'static str) {
        (self.0.group, self.0.kind)
    }
}

const fn of_apps(kind: &'static str, plural: &'static str) -> Shape {
    Shape {
        kind,
        group: "apps",
        plural,
        templates: &[Template {
            path: SPEC_TEMPLATE,
            may_be_made: false,
        }],
        restart_at: None,
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for WorkloadKind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || self.identity() == other.identity()
    }
}

impl Eq for WorkloadKind {}

impl PartialOrd for WorkloadKind {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WorkloadKind {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for WorkloadKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// A kind of workload as written in the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomResource {
    group: String,
    resource: String,
    kind: String,
    #[serde(default)]
    pod_templates: Vec<String>,
    #[serde(default)]
    makes_templates: bool,
    restart_at: Option<String>,
}

impl CustomResource {
    /// Returns the kind, which is leaked: it stays in memory for good.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the configuration.
    pub fn into_kind(self) -> Result<WorkloadKind, String> {
        let Self {
            group,
            resource,
            kind,
            ..
        } = &self;
        if !is_name(group) || !is_name(resource) || !is_name(kind) {
            return Err(format!("{kind:?}: group, resource and kind must be names"));
        }
        if self.pod_templates.is_empty() && self.restart_at.is_none() {
            return Err(format!("{kind}: it has neither podTemplates nor restartAt"));
        }
        let of = |error: String| format!("{kind}: {error}");
        let mut templates = Vec::new();
        for path in &self.pod_templates {
            templates.push(Template {
                path: template_path(path).map_err(of)?,
                may_be_made: self.makes_templates,
            });
        }
        let restart_at = self
            .restart_at
            .as_deref()
            .map(field_path)
            .transpose()
            .map_err(of)?;
        Ok(WorkloadKind(Box::leak(Box::new(Shape {
            templates: templates.leak(),
            restart_at,
            group: self.group.leak(),
            plural: self.resource.leak(),
            kind: self.kind.leak(),
        }))))
    }
}

/// Returns true if a text can be the group, version, resource or kind of objects.
pub(crate) fn is_name(text: &str) -> bool {
    let is_in_name = |it: u8| it.is_ascii_alphanumeric() || b"-.".contains(&it);
    !text.is_empty() && text.bytes().all(is_in_name)
}

fn template_path(text: &str) -> Result<FieldPath, String> {
    match text.starts_with("spec.") && !text.contains('[') {
        true => field_path(text),
        false => Err(format!("{text:?} is no path such as spec.template")),
    }
}

/// Parses a path such as `spec.template` or `metadata.annotations[example.com/at]`.
fn field_path(text: &str) -> Result<FieldPath, String> {
    let wrong = || {
        format!("{text:?} is no path such as spec.template or metadata.annotations[example.com/at]")
    };
    let (dotted, last) = match text.strip_suffix(']') {
        None => (text, None),
        Some(rest) => {
            let (dotted, last) = rest.split_once('[').ok_or_else(wrong)?;
            (dotted, Some(last))
        }
    };
    let fields: Vec<&str> = dotted.split('.').chain(last).collect();
    let is_field = |field: &&str| !field.is_empty() && !field.contains(['[', ']', '"', '~']);
    let is_annotation =
        fields[0] == "metadata" && fields.get(1) == Some(&"annotations") && fields.len() == 3;
    let is_in_spec = fields[0] == "spec" && fields.len() > 1 && !text.contains('/');
    if !fields.iter().all(is_field) || !(is_annotation || is_in_spec) {
        return Err(wrong());
    }
    let fields: Vec<&'static str> = fields
        .into_iter()
        .map(|field| &*field.to_owned().leak())
        .collect();
    Ok(fields.leak())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(resource: serde_json::Value) -> Result<WorkloadKind, String> {
        let resource: CustomResource =
            serde_json::from_value(resource).map_err(|error| error.to_string())?;
        resource.into_kind()
    }

    #[test]
    fn a_custom_resource_is_a_kind() {
        let rollout = read(json!({
            "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
            "podTemplates": ["spec.template"], "restartAt": "spec.restartAt",
        }));
        let rollout = rollout.unwrap();
        assert!(rollout.is("argoproj.io", "Rollout") && !rollout.is_built_in());
        assert_eq!(rollout.shape().templates[0].path, ["spec", "template"]);
        assert_eq!(rollout.shape().restart_at.unwrap(), ["spec", "restartAt"]);
        let cluster = read(json!({
            "group": "postgresql.cnpg.io", "resource": "clusters", "kind": "Cluster",
            "restartAt": "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
        }));
        assert_eq!(
            cluster.unwrap().shape().restart_at.unwrap(),
            [
                "metadata",
                "annotations",
                "kubectl.kubernetes.io/restartedAt"
            ]
        );
    }

    #[test]
    fn an_invalid_kind_is_refused() {
        let with = |field: &str, value: serde_json::Value| {
            let mut resource = json!({
                "group": "a.b", "resource": "cs", "kind": "C", "podTemplates": ["spec.template"],
            });
            resource[field] = value;
            read(resource)
        };
        assert!(with("group", json!("a.b")).is_ok());
        for (field, value) in [
            ("group", json!("")),
            ("group", json!("a/b")),
            ("resource", json!("?limit=1")),
            ("podTemplates", json!([])),
            ("podTemplates", json!(["template"])),
            ("podTemplates", json!(["spec..template"])),
            ("podTemplates", json!(["spec"])),
            ("podTemplates", json!(["status.template"])),
            ("podTemplates", json!(["metadata.annotations[x]"])),
            ("podTemplates", json!(["spec.a[b]"])),
            ("restartAt", json!("metadata.name")),
            ("restartAt", json!("spec.at[x")),
            ("fieldOfTheFuture", json!(1)),
        ] {
            assert!(with(field, value.clone()).is_err(), "{field} {value}");
        }
    }
}
