//! The manager who has changed a field last, by the managed fields of its object.

use serde_json::Value;

use super::path::Path;
use crate::annotations::FIELD_MANAGER;

/// The longest name of a manager, in characters, as Kubernetes takes it.
const MAX_LENGTH: usize = 128;

/// Returns the manager that has a field of `object` and is not us: of several, the last one who has changed anything.
pub fn rival(object: &Value, path: &Path) -> Option<Box<str>> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let has_field = |entry: &&Value| path.is_among(&entry["fieldsV1"]);
    let others = entries.iter().filter(has_field).filter_map(|entry| {
        let manager = entry["manager"].as_str()?;
        let time = entry["time"].as_str().unwrap_or_default();
        (manager != FIELD_MANAGER).then_some((time, manager))
    });
    let (_, manager) = others.max()?;
    Some(manager.chars().take(MAX_LENGTH).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_of_the_others_who_have_the_field_is_named() {
        let path = Path::parse("spec.s3.accesskey").unwrap();
        let entry = |manager: &str, time: &str, field: &str| json!({"manager": manager, "time": time, "fieldsV1": {"f:spec": {"f:s3": {field: {}}}}});
        let of = |entries: Value| rival(&json!({"metadata": {"managedFields": entries}}), &path);
        let ours = entry("pod-reloader", "2026-01-09T00:00:00Z", "f:accesskey");
        let helm = entry("helm", "2026-01-01T00:00:00Z", "f:accesskey");
        let argo = entry("argocd-controller", "2026-01-02T00:00:00Z", "f:accesskey");
        let other = entry("kubectl", "2026-01-03T00:00:00Z", "f:bucket");
        assert_eq!(
            of(json!([helm, argo, other, ours])).as_deref(),
            Some("argocd-controller")
        );
        assert_eq!(of(json!([other, ours])), None);
        assert_eq!(of(json!(null)), None);
    }
}
