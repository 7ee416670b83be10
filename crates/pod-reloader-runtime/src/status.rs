//! The status of our custom resources: the request that writes it, and the Event that tells users about it.

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::name::Name;
use serde::Serialize;
use serde_json::json;

use crate::events::Report;

/// Returns the request that writes the status of a custom resource. It replaces lists. A field that `status` leaves out
/// stays as it is.
pub fn patch<K: Resource<DynamicType = ()>>(
    namespace: Option<&Name>,
    name: &Name,
    status: impl Serialize,
) -> Request<Vec<u8>> {
    let path = K::url_path(&(), namespace.map(Name::as_str));
    Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}/{name}/status?fieldManager={FIELD_MANAGER}"))
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(json!({"status": status}).to_string().into_bytes())
        .expect("a Name is safe in a path")
}

/// Returns the custom resource that an Event is about.
pub fn about<K: Resource<DynamicType = ()>>(
    namespace: Option<&Name>,
    name: &Name,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: namespace.map(ToString::to_string),
        name: Some(name.to_string()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Returns the content of the Event about a condition. Its reason is the first one while the condition is true, and the
/// second one otherwise.
pub fn report(condition: &Condition, [good, bad]: [&'static str; 2]) -> Report {
    let is_problem = condition.status != "True";
    Report {
        reason: if is_problem { bad } else { good },
        note: condition.message.clone(),
        is_problem,
        related: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_api::{ClusterConfigSync, FieldBinding};

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn the_status_is_merged_into_that_of_the_object() {
        let (shop, keys) = (name("shop"), name("keys"));
        let namespaced = patch::<FieldBinding>(Some(&shop), &keys, json!({"fields": []}));
        assert_eq!(
            namespaced.uri(),
            "/apis/pod-reloader.github.io/v1alpha1/namespaces/shop/fieldbindings/keys/status?fieldManager=pod-reloader"
        );
        assert_eq!(*namespaced.method(), Method::PATCH);
        let content_type = &namespaced.headers()[CONTENT_TYPE];
        assert_eq!(content_type, "application/merge-patch+json");
        assert_eq!(namespaced.body(), br#"{"status":{"fields":[]}}"#);
        let of_cluster = patch::<ClusterConfigSync>(None, &keys, json!({}));
        assert_eq!(
            of_cluster.uri(),
            "/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs/keys/status?fieldManager=pod-reloader"
        );
    }

    #[test]
    fn an_event_is_about_the_object_with_its_uid() {
        let about = about::<FieldBinding>(Some(&name("shop")), &name("keys"), "u-1");
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        assert_eq!(text(&about.api_version), "pod-reloader.github.io/v1alpha1");
        assert_eq!(text(&about.kind), "FieldBinding");
        assert_eq!(text(&about.namespace), "shop");
        assert_eq!(
            (text(&about.name), text(&about.uid)),
            ("keys".into(), "u-1".into())
        );
    }
}
