//! Reads and small writes of single objects in a scene, in the words of kubectl but without its process, which takes
//! more processor time than the apiserver needs for the request.

use anyhow::{Context, Result};
use http::header::CONTENT_TYPE;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, GetParams, ListParams, Patch, PatchParams, Request},
};
use serde_json::{Value, json};

use super::Scene;
use crate::{
    apply::{api_of, create, try_create},
    own_kinds::own_kinds,
    wait::{PATIENCE, done_if, wait_for},
    workload::{Kind, Workload},
};

impl Scene {
    /// Reads an object as stored, such as `deployment/web`.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn object(&self, reference: &str) -> Result<Value> {
        self.object_in(&self.namespace, reference).await
    }

    /// Reads an object like [`Scene::object`], in another namespace.
    ///
    /// # Errors
    /// Same as [`Scene::kubectl`].
    pub async fn object_in(&self, namespace: &str, reference: &str) -> Result<Value> {
        let Ok((api, name)) = self.resource(namespace, reference) else {
            let get = ["--namespace", namespace, "get", reference, "--output=json"];
            return Ok(serde_json::from_str(&self.tool().run(&get).await?)?);
        };
        self.object_at(api.resource_url(), name).await
    }

    /// Reads an object as stored, of a kind that `api_version` serves as `plural`.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn custom_object(
        &self,
        api_version: &str,
        plural: &str,
        name: &str,
    ) -> Result<Value> {
        let url = format!("/apis/{api_version}/namespaces/{}/{plural}", self.namespace);
        self.object_at(&url, name).await
    }

    async fn object_at(&self, url: &str, name: &str) -> Result<Value> {
        // Untyped: a test may have written metadata that the client cannot parse.
        let get = Request::new(url).get(name, &GetParams::default())?;
        let object = self.client.request(get).await;
        let mut object: Value = object.with_context(|| format!("{url}/{name}"))?;
        // kubectl hides these, too.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        Ok(object)
    }

    /// Lists the objects of a kind in the namespace of the workloads.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn objects(&self, api_version: &str, kind: &str) -> Result<Vec<Value>> {
        self.objects_in(&self.namespace, api_version, kind).await
    }

    /// Lists objects like [`Scene::objects`], in another namespace.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn objects_in(
        &self,
        namespace: &str,
        api_version: &str,
        kind: &str,
    ) -> Result<Vec<Value>> {
        let kind = json!({"apiVersion": api_version, "kind": kind});
        let api = api_of(&self.client, Some(namespace), &kind)?;
        let list = Request::new(api.resource_url()).list(&ListParams::default())?;
        let mut list: Value = self.client.request(list).await?;
        let items: Option<Vec<Value>> = serde_json::from_value(list["items"].take())?;
        let mut items = items.unwrap_or_default();
        // The apiserver leaves these out of the items of a list.
        for item in &mut items {
            item["apiVersion"] = kind["apiVersion"].clone();
            item["kind"] = kind["kind"].clone();
        }
        Ok(items)
    }

    /// Lists the Events of a namespace, of the group `events.k8s.io`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn events_in(&self, namespace: &str) -> Result<Vec<Value>> {
        let version = "events.k8s.io/v1";
        self.objects_in(namespace, version, "Event").await
    }

    /// Creates an object, in the namespace of the workloads unless its manifest names another one.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create_object(&self, manifest: &Value) -> Result<()> {
        create(&self.client, Some(&self.namespace), manifest).await
    }

    /// Returns what would be stored if an object were created, in `namespace` unless its manifest names another one.
    ///
    /// # Errors
    /// When it is refused: with the words of the apiserver, of the webhook or of a policy.
    pub async fn try_create(&self, namespace: &str, manifest: &Value) -> Result<Value> {
        try_create(&self.client, Some(namespace), manifest).await
    }

    /// Deletes an object, such as `configmap/app`. What it owns goes later.
    ///
    /// # Errors
    /// When that is refused, or there is none.
    pub async fn delete(&self, reference: &str) -> Result<()> {
        self.delete_in(&self.namespace, reference).await
    }

    /// Deletes an object like [`Scene::delete`], in another namespace.
    ///
    /// # Errors
    /// Same as [`Scene::delete`].
    pub async fn delete_in(&self, namespace: &str, reference: &str) -> Result<()> {
        let (api, name) = self.resource(namespace, reference)?;
        let deleted = api.delete(name, &DeleteParams::background()).await;
        deleted.map(drop).with_context(|| reference.to_owned())
    }

    /// Sets a label of an object, such as `configmap/app`: `team=blue`. Removes it: `team-`.
    ///
    /// # Errors
    /// When that is refused, or there is no such object.
    pub async fn label(&self, reference: &str, label: &str) -> Result<()> {
        self.merge(reference, &metadata("labels", label)?).await
    }

    /// Sets or removes an annotation like [`Scene::label`].
    ///
    /// # Errors
    /// Same as [`Scene::label`].
    pub async fn annotate(&self, reference: &str, annotation: &str) -> Result<()> {
        let patch = metadata("annotations", annotation)?;
        self.merge(reference, &patch).await
    }

    /// Applies a JSON Merge Patch to an object, such as `configmap/app`.
    ///
    /// # Errors
    /// Same as [`Scene::label`].
    pub async fn merge(&self, reference: &str, patch: &Value) -> Result<()> {
        self.merge_in(&self.namespace, reference, patch).await
    }

    /// Patches an object like [`Scene::merge`], in another namespace.
    ///
    /// # Errors
    /// Same as [`Scene::label`].
    pub async fn merge_in(&self, namespace: &str, reference: &str, patch: &Value) -> Result<()> {
        let (api, name) = self.resource(namespace, reference)?;
        let params = PatchParams::default();
        let request = Request::new(api.resource_url());
        let request = request.patch(name, &params, &Patch::Merge(patch))?;
        // Untyped, as in `object_at`.
        let patched = self.client.request::<Value>(request).await;
        patched
            .map(drop)
            .with_context(|| format!("{patch} to {reference}"))
    }

    /// Applies a JSON Patch to the webhook configuration of the operator.
    ///
    /// # Errors
    /// When that is refused.
    pub async fn patch_webhook(&self, patch: &Value) -> Result<()> {
        const WEBHOOKS: &str =
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let name = &self.installation.namespace;
        self.patch_at(&format!("{WEBHOOKS}/{name}"), patch).await
    }

    /// Applies a JSON Patch to what is at a path of the apiserver.
    ///
    /// # Errors
    /// When that is refused.
    pub async fn patch_at(&self, path: &str, patch: &Value) -> Result<()> {
        let request = http::Request::patch(path)
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())?;
        let patched = self.client.request::<Value>(request).await;
        patched
            .map(drop)
            .with_context(|| format!("{patch} to {path}"))
    }

    /// Waits until all pods of a workload are of its newest revision, and available, as `kubectl rollout status` does.
    ///
    /// # Errors
    /// When that takes longer than [`PATIENCE`].
    pub async fn rolled_out(&self, workload: &Workload) -> Result<()> {
        let what = format!("the rollout of {} to be complete", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let object = self.seen(&self.namespace, workload).await?;
            done_if(
                is_rolled_out(workload.kind, &object),
                object["status"].to_string(),
            )
        })
        .await
    }

    /// Returns the API for `configmap/app` and the like, and the name.
    fn resource<'a>(
        &self,
        namespace: &str,
        reference: &'a str,
    ) -> Result<(Api<DynamicObject>, &'a str)> {
        let (kind, name) = reference.split_once('/').unwrap_or((reference, ""));
        let own = own_kinds().iter().find(|own| own.singular == kind);
        let (version, kind, is_namespaced) = match own {
            Some(own) => (&*own.api_version, &*own.kind, own.is_namespaced),
            None => {
                let known = KINDS.iter().find(|(of, ..)| *of == kind);
                let known = known.with_context(|| format!("{kind} is not known here"))?;
                let (_, version, kind) = *known;
                (version, kind, !OF_THE_CLUSTER.contains(&kind))
            }
        };
        let namespace = is_namespaced.then_some(namespace);
        let kind = json!({"apiVersion": version, "kind": kind});
        Ok((api_of(&self.client, namespace, &kind)?, name))
    }
}

/// Returns the patch that sets or removes one of these, in the words of kubectl.
fn metadata(of: &str, change: &str) -> Result<Value> {
    if let Some((key, value)) = change.split_once('=') {
        return Ok(json!({"metadata": {of: {key: value}}}));
    }
    let key = change.strip_suffix('-');
    let key = key.with_context(|| format!("{change} is neither KEY=VALUE nor KEY-"))?;
    Ok(json!({"metadata": {of: {key: null}}}))
}

/// Returns true if a workload that its controller has seen is rolled out.
fn is_rolled_out(kind: Kind, object: &Value) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let count = |field: &str| status[field].as_u64().unwrap_or_default();
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    match kind {
        Kind::Deployment => {
            let updated = count("updatedReplicas");
            updated >= replicas
                && count("replicas") <= updated
                && count("availableReplicas") >= updated
        }
        Kind::StatefulSet => {
            let rolling_update = &spec["updateStrategy"]["rollingUpdate"];
            let kept = rolling_update["partition"].as_u64().unwrap_or_default();
            count("readyReplicas") >= replicas
                && count("updatedReplicas") >= replicas.saturating_sub(kept)
        }
        Kind::DaemonSet => {
            let desired = count("desiredNumberScheduled");
            count("updatedNumberScheduled") >= desired && count("numberAvailable") >= desired
        }
    }
}

/// Kinds of others, with the names by which a reference calls them.
const KINDS: [(&str, &str, &str); 19] = [
    ("configmap", "v1", "ConfigMap"),
    ("secret", "v1", "Secret"),
    ("deployment", "apps/v1", "Deployment"),
    ("statefulset", "apps/v1", "StatefulSet"),
    ("daemonset", "apps/v1", "DaemonSet"),
    ("deploy", "apps/v1", "Deployment"),
    ("cronjob", "batch/v1", "CronJob"),
    ("job", "batch/v1", "Job"),
    ("lease", "coordination.k8s.io/v1", "Lease"),
    ("resourcequota", "v1", "ResourceQuota"),
    ("role", "rbac.authorization.k8s.io/v1", "Role"),
    ("rolebinding", "rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("pod", "v1", "Pod"),
    ("replicaset", "apps/v1", "ReplicaSet"),
    ("certificate", "cert-manager.io/v1", "Certificate"),
    ("namespace", "v1", "Namespace"),
    ("harbor", "goharbor.io/v1beta1", "Harbor"),
    (
        "validatingadmissionpolicy",
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
    ),
    (
        "validatingadmissionpolicybinding",
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
    ),
];
/// Those of them that have no namespace.
const OF_THE_CLUSTER: [&str; 3] = [
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_set_or_removed_in_the_words_of_kubectl() {
        let set = json!({"metadata": {"labels": {"example.com/team": "a=b-"}}});
        let removed = json!({"metadata": {"labels": {"example.com/team": null}}});

        assert_eq!(metadata("labels", "example.com/team=a=b-").unwrap(), set);
        assert_eq!(metadata("labels", "example.com/team-").unwrap(), removed);
        assert!(metadata("labels", "example.com/team").is_err());
    }

    #[test]
    fn a_rollout_is_complete_once_all_pods_are_new_and_available() {
        let with = |status: Value| json!({"spec": {"replicas": 2}, "status": status});
        let done = json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert!(is_rolled_out(Kind::Deployment, &with(done.clone())));
        for (field, count) in [
            ("replicas", 3),
            ("updatedReplicas", 1),
            ("availableReplicas", 1),
        ] {
            let mut status = done.clone();
            status[field] = json!(count);
            assert!(!is_rolled_out(Kind::Deployment, &with(status)), "{field}");
        }

        let mut database = with(json!({"readyReplicas": 2, "updatedReplicas": 1}));
        assert!(!is_rolled_out(Kind::StatefulSet, &database));
        database["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 1}});
        assert!(is_rolled_out(Kind::StatefulSet, &database));

        let mut agent = json!({"status": {"desiredNumberScheduled": 2}});
        for field in ["updatedNumberScheduled", "numberAvailable"] {
            assert!(!is_rolled_out(Kind::DaemonSet, &agent), "{field}");
            agent["status"][field] = json!(2);
        }
        assert!(is_rolled_out(Kind::DaemonSet, &agent));
    }
}
