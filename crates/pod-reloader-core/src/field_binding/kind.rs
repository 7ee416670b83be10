//! The kinds of custom resource whose fields may be bound.

use std::collections::BTreeSet;
use std::fmt;

use kube_core::{ApiResource, GroupVersionKind};
use pod_reloader_api::GROUP;
use serde::Deserialize;

use super::Target;
use crate::kind::is_name;

/// A kind of custom resource whose fields may be bound. It lives as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundKind {
    /// The API group.
    pub group: &'static str,
    /// The version, of which the paths are.
    pub version: &'static str,
    /// The resource name in URLs.
    pub resource: &'static str,
    /// The kind as Kubernetes spells it.
    pub kind: &'static str,
    /// True if the webhook fills the fields of objects that are created.
    pub fill_on_create: bool,
}

/// A kind as written in the configuration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    group: String,
    version: String,
    resource: String,
    kind: String,
    #[serde(default)]
    fill_on_create: bool,
}

impl BoundKind {
    /// Parses a list of kinds in JSON, which stay in memory for good. An empty text is an empty list.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let written: Vec<Written> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut seen = BTreeSet::new();
        let kinds = written.into_iter().map(|written| {
            let kind = Self::try_from(written)?;
            match seen.insert((kind.group, kind.version, kind.kind)) {
                true => Ok(kind),
                false => Err(format!("{kind} is named twice")),
            }
        });
        kinds.collect()
    }

    /// Returns the kind as the client needs it.
    pub fn api_resource(&self) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&kind, self.resource)
    }

    /// Returns true if a target is of this kind and version.
    pub fn is_of(&self, target: &Target) -> bool {
        *target.kind == *self.kind
            && target.api_version.split_once('/') == Some((self.group, self.version))
    }
}

impl TryFrom<Written> for BoundKind {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            group,
            version,
            resource,
            kind,
            fill_on_create,
        } = written;
        let names = [&group, &version, &resource, &kind];
        if !names.iter().all(|it| is_name(it)) {
            return Err(format!(
                "{group:?}, {version:?}, {resource:?}, {kind:?}: group, version, resource and kind must be names"
            ));
        }
        // Groups of Kubernetes have no dot, or end like this.
        let is_of_kubernetes =
            !group.contains('.') || group == "k8s.io" || group.ends_with(".k8s.io");
        if is_of_kubernetes || group == GROUP {
            return Err(format!(
                "{group}/{kind}: fields of custom resources alone can be bound, not fields of the kinds of Kubernetes or of pod-reloader itself"
            ));
        }
        Ok(Self {
            fill_on_create,
            group: group.leak(),
            version: version.leak(),
            resource: resource.leak(),
            kind: kind.leak(),
        })
    }
}

impl fmt::Display for BoundKind {
    /// Writes `group/version/Kind`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_binding::tests::binding;
    use serde_json::json;

    fn kinds(group: &str) -> Result<Vec<BoundKind>, String> {
        let kind =
            json!({"group": group, "version": "v1beta1", "resource": "harbors", "kind": "Harbor"});
        BoundKind::parse_all(&json!([kind]).to_string())
    }

    #[test]
    fn a_target_is_of_a_kind_in_one_version() {
        let kind = kinds("goharbor.io").unwrap().remove(0);
        assert!(kind.is_of(&binding(json!({})).target));
        for target in [
            json!({"apiVersion": "goharbor.io/v1"}),
            json!({"apiVersion": "goharbor.com/v1beta1"}),
            json!({"kind": "Harbors"}),
        ] {
            let target = binding(json!({"spec": {"target": target}})).target;
            assert!(!kind.is_of(&target), "{target:?}");
        }
        assert_eq!(BoundKind::parse_all(" "), Ok(vec![]));
    }

    #[test]
    fn kinds_of_kubernetes_and_our_own_are_refused() {
        for group in [
            "",
            "apps",
            "rbac.authorization.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "pod-reloader.github.io",
            "../x",
        ] {
            assert!(kinds(group).is_err(), "{group}");
        }
        assert!(kinds("cluster.x-k8s.io").is_ok());
    }

    #[test]
    fn a_kind_is_named_once_and_has_no_unknown_fields() {
        let kind =
            json!({"group": "a.b", "version": "v1", "resource": "cs", "kind": "C"}).to_string();
        assert!(BoundKind::parse_all(&format!("[{kind},{kind}]")).is_err());
        let unknown = kind.replace("version", "versions");
        assert!(BoundKind::parse_all(&format!("[{unknown}]")).is_err());
    }
}
