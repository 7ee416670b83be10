//! The manager who has changed a field last, by the managed fields of its object.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::path::Path;
use crate::annotations::FIELD_MANAGER;
use crate::raw::{elements, member};

/// The longest name of a manager, in characters, as Kubernetes takes it.
const MAX_LENGTH: usize = 128;

/// An entry of the managed fields.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Cow<'a, str>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: &'a RawValue,
}

/// Returns the manager that has a field of `object` and is not us: of several, the last one who has changed anything.
pub fn rival(object: &RawValue, path: &Path) -> Option<Box<str>> {
    let metadata = member(object, "metadata").ok()??;
    let entries = member(metadata, "managedFields").ok()??;
    let mut last: Option<(Cow<'_, str>, Cow<'_, str>)> = None;
    for entry in elements(entries.get())? {
        let Ok(entry) = serde_json::from_str::<Entry<'_>>(entry.get()) else {
            continue;
        };
        let found = (entry.time, entry.manager);
        let is_last = last.as_ref().is_none_or(|last| *last <= found);
        if is_last && found.1 != FIELD_MANAGER && path.is_among(entry.fields) {
            last = Some(found);
        }
    }
    let (_, manager) = last?;
    Some(manager.chars().take(MAX_LENGTH).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    #[test]
    fn the_last_of_the_others_who_have_the_field_is_named() {
        let path = Path::parse("spec.s3.accesskey").unwrap();
        let entry = |manager: &str, time: &str, field: &str| json!({"manager": manager, "time": time, "fieldsV1": {"f:spec": {"f:s3": {field: {}}}}});
        let of = |entries: Value| {
            let object = to_raw_value(&json!({"metadata": {"managedFields": entries}}));
            rival(&object.unwrap(), &path)
        };
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
