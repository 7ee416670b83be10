//! Writes the status of our custom resources, and tells users when their condition changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::Patch;
use kube::core::Request;
use pod_reloader_core::error::chain;
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::SeenStatus;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use tracing::field::display;
use tracing::{info, warn};

use crate::client::patch_params;
use crate::events::Report;
use crate::kit::Kit;

/// The time to wait before the next try, if a status could not be written.
const PAUSE: Duration = Duration::from_secs(5);

/// The words for a custom resource whose condition is true, and for one whose condition is not.
pub struct Words {
    /// The reasons of the Events.
    pub events: [&'static str; 2],
    /// The texts in the log.
    pub log: [&'static str; 2],
}

/// The result of writing a status.
pub enum Written {
    /// It is written, and users have been told.
    Done,
    /// There was nothing to write: the custom resource has it.
    Known,
    /// The custom resource is gone.
    Gone,
    /// It could not be written, and this is the time to try again.
    Failed(Instant),
}

/// Writes the status of a custom resource with this namespace, name and UID, if it has another one. Tells users about
/// `ready`, if that is news. Lists are replaced. A field that `status` leaves out stays as it is.
pub async fn write<K: Resource<DynamicType = ()>>(
    kit: &Kit,
    (namespace, name, uid): (Option<&Name>, &Name, &str),
    before: Option<SeenStatus>,
    status: impl Serialize,
    ready: Option<&Condition>,
    words: &Words,
) -> Written {
    if before.as_ref().is_some_and(|it| it.is(&status)) {
        return Written::Known;
    }
    let kind = K::kind(&());
    let place = namespace.map(display);
    match kit.calls().send(patch::<K>(namespace, name, status)).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => return Written::Gone,
        Err(error) => {
            kit.errors.count(Some(&error));
            let error = chain(&error);
            warn!(%kind, namespace = place, %name, error, "cannot write the status of a {kind}, trying again");
            return Written::Failed(Instant::now() + PAUSE);
        }
    }
    let news = ready.filter(|it| before.is_none_or(|before| !before.tells(it)));
    if let Some(condition) = news {
        let (reason, detail) = (&*condition.reason, &*condition.message);
        let [good, bad] = words.log;
        let is_problem = condition.status != "True";
        match is_problem {
            true => warn!(%kind, namespace = place, %name, reason, detail, "{bad}"),
            false => info!(%kind, namespace = place, %name, detail, "{good}"),
        }
        let report = Report {
            reason: words.events[usize::from(is_problem)],
            note: detail.to_owned(),
            is_problem,
            related: None,
        };
        kit.events.publish(about::<K>(namespace, name, uid), report);
    }
    Written::Done
}

/// Returns the request that writes the status.
fn patch<K: Resource<DynamicType = ()>>(
    namespace: Option<&Name>,
    name: &Name,
    status: impl Serialize,
) -> http::Request<Vec<u8>> {
    let all = Request::new(K::url_path(&(), namespace.map(Name::as_str)));
    let patch = Patch::Merge(json!({"status": status}));
    all.patch_subresource("status", name.as_str(), &patch_params(), &patch)
        .expect("a Name is safe in a path")
}

/// Returns the custom resource that an Event is about.
fn about<K: Resource<DynamicType = ()>>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::name;
    use http::Method;
    use http::header::CONTENT_TYPE;
    use pod_reloader_api::{ClusterConfigSync, FieldBinding};

    #[test]
    fn the_status_is_merged_into_that_of_the_object() {
        let (shop, keys) = (name("shop"), name("keys"));
        let namespaced = patch::<FieldBinding>(Some(&shop), &keys, json!({"fields": []}));
        assert_eq!(
            namespaced.uri(),
            "/apis/pod-reloader.github.io/v1alpha1/namespaces/shop/fieldbindings/keys/status?&fieldManager=pod-reloader"
        );
        assert_eq!(*namespaced.method(), Method::PATCH);
        let content_type = &namespaced.headers()[CONTENT_TYPE];
        assert_eq!(content_type, "application/merge-patch+json");
        assert_eq!(namespaced.body(), br#"{"status":{"fields":[]}}"#);
        let of_cluster = patch::<ClusterConfigSync>(None, &keys, json!({}));
        assert_eq!(
            of_cluster.uri(),
            "/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs/keys/status?&fieldManager=pod-reloader"
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
