//! FieldBindings as they are listed for one custom resource: those of others are passed over.

use kube_core::NamespaceResourceScope;
use pod_reloader_api::{FieldBindingSpec, FieldTarget};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Binding, Target};
use crate::metadata::{Metadata, Wanted, resource};

/// A FieldBinding of which nothing but its target is parsed at first.
#[derive(Clone, Debug, Deserialize)]
pub struct ListedBinding {
    metadata: Metadata<Self>,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    target: FieldTarget,
    source: Box<RawValue>,
    fields: Box<RawValue>,
}

impl Wanted for ListedBinding {}

resource!(
    ListedBinding, NamespaceResourceScope, of_metadata: false,
    group: "pod-reloader.github.io", version: "v1alpha1", kind: "FieldBinding", plural: "fieldbindings"
);

impl ListedBinding {
    /// Returns the FieldBinding, if it is one of this target and can be worked with.
    pub fn of(&self, target: &Target) -> Option<Binding> {
        let its = &self.spec.target;
        let is_its = *its.api_version == *target.api_version
            && *its.kind == *target.kind
            && its.name == target.name.as_str();
        if !is_its {
            return None;
        }
        let spec = FieldBindingSpec {
            source: serde_json::from_str(self.spec.source.get()).ok()?,
            target: its.clone(),
            fields: serde_json::from_str(self.spec.fields.get()).ok()?,
        };
        Binding::parse(&self.metadata, &spec).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_binding::tests::{binding, object};
    use serde_json::{Value, json};

    fn listed(fields: Value) -> ListedBinding {
        let mut object = serde_json::to_value(object(json!({}))).unwrap();
        json_patch::merge(&mut object, &fields);
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn one_of_the_target_is_as_it_is_elsewhere() {
        let expected = binding(json!({}));
        let found = listed(json!({})).of(&expected.target).unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }

    #[test]
    fn the_fields_of_others_are_not_parsed() {
        let target = binding(json!({})).target;
        let unreadable = json!({"fields": "none"});
        assert!(listed(json!({"spec": unreadable})).of(&target).is_none());
        for other in [
            json!({"apiVersion": "goharbor.io/v1alpha3"}),
            json!({"kind": "HarborCluster"}),
            json!({"name": "elsewhere"}),
        ] {
            let listed = listed(json!({"spec": {"target": other, "fields": "none"}}));
            assert!(listed.of(&target).is_none());
        }
    }
}
