//! A made-up cluster, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use pod_reloader_core::annotations::{CONFIG_HASH, PINS};
use pod_reloader_core::decision::Cause;
use pod_reloader_core::digest::{Aspects, ConfigObject};
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::plain_copy_name;
use pod_reloader_core::sync_status::{Report, SyncStatus, Waiting};
use serde_json::{Value, json};
use tower::service_fn;

use super::Cluster;

/// The apiserver's answers, by path. Any other list is empty, and no other object exists.
#[derive(Clone, Debug)]
pub(crate) struct Canned {
    answers: BTreeMap<String, (u16, Value)>,
    empty_list: Value,
    /// The warning that comes with each dry run.
    warning: Option<String>,
    /// The warnings for objects of which the webhook reports something else, by name.
    warnings: BTreeMap<String, String>,
    forbidden_writes: BTreeSet<String>,
    /// What writes of whole objects are answered with, and the warning that comes with it, by path.
    write_answers: BTreeMap<String, (u16, Value, Option<String>)>,
    writes: Writes,
    reads: Reads,
    /// The statuses with which trials are refused, by path.
    refused_trials: BTreeMap<String, (u16, Value)>,
}

/// What was written: the path with its query, and the patch.
pub(crate) type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// What was read: the path with its query.
pub(crate) type Reads = Arc<Mutex<Vec<String>>>;

impl Canned {
    /// Creates a cluster with nothing but the namespace `shop`.
    pub(crate) fn shop() -> Self {
        let shop = (200, json!({"metadata": {"name": "shop"}}));
        Self {
            answers: [("/api/v1/namespaces/shop".to_owned(), shop)].into(),
            empty_list: json!({"metadata": {}, "items": null}),
            warning: None,
            warnings: BTreeMap::new(),
            forbidden_writes: BTreeSet::new(),
            write_answers: BTreeMap::new(),
            writes: Writes::default(),
            reads: Reads::default(),
            refused_trials: BTreeMap::new(),
        }
    }

    /// Adds an object or a list.
    pub(crate) fn with(self, path: &str, body: Value) -> Self {
        self.answering(path, 200, body)
    }

    /// Adds a list, and each of its objects below it.
    pub(crate) fn with_all(mut self, path: &str, objects: &[Value]) -> Self {
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            self = self.with(&format!("{path}/{name}"), object.clone());
        }
        self.with(path, json!({"metadata": {}, "items": objects}))
    }

    /// Adds ClusterConfigSyncs, and their CRD.
    pub(crate) fn with_syncs(self, syncs: &[Value]) -> Self {
        self.with_own("clusterconfigsyncs", None, syncs)
    }

    /// Adds FieldBindings of a namespace, or of all, and their CRD.
    pub(crate) fn with_bindings(self, namespace: Option<&str>, bindings: &[Value]) -> Self {
        self.with_own("fieldbindings", namespace, bindings)
    }

    /// Adds custom resources of pod-reloader itself, and their CRD.
    fn with_own(self, plural: &str, namespace: Option<&str>, objects: &[Value]) -> Self {
        let resources = json!([{"resource": plural}]);
        let groups = json!({"items": [{
            "metadata": {"name": "pod-reloader.github.io"},
            "versions": [{"version": "v1alpha1", "resources": resources}],
        }]});
        let place = namespace.map_or_else(String::new, |it| format!("namespaces/{it}/"));
        let path = format!("/apis/pod-reloader.github.io/v1alpha1/{place}{plural}");
        self.with("/apis", groups)
            .with(&path, json!({"items": objects}))
    }

    /// Makes reading `path` fail, with `message` as the apiserver's words.
    pub(crate) fn refuses(self, path: &str, message: &str) -> Self {
        self.answering(path, 500, json!({"kind": "Status", "message": message}))
    }

    /// Forbids the user to read `path`.
    pub(crate) fn forbids(self, path: &str) -> Self {
        let (code, body) = forbidden("read");
        self.answering(path, code, body)
    }

    /// Forbids the user to write `path`. Dry runs of other writes are allowed, such as status queries.
    pub(crate) fn forbids_writes(mut self, path: &str) -> Self {
        self.forbidden_writes.insert(path.to_owned());
        self
    }

    /// Answers writes of `path` with the object as it is then, and a warning.
    pub(crate) fn answers_writes(self, path: &str, object: Value, warning: Option<&str>) -> Self {
        self.answering_writes(path, 200, object, warning)
    }

    /// Refuses writes of `path`, with `message` as the apiserver's words.
    pub(crate) fn refuses_writes(self, path: &str, message: &str) -> Self {
        let status = json!({"kind": "Status", "message": message});
        self.answering_writes(path, 422, status, None)
    }

    fn answering_writes(
        mut self,
        path: &str,
        code: u16,
        body: Value,
        warning: Option<&str>,
    ) -> Self {
        let answer = (code, body, warning.map(ToOwned::to_owned));
        self.write_answers.insert(path.to_owned(), answer);
        self
    }

    /// Returns everything that is written from now on. It changes no object.
    pub(crate) fn writes(&self) -> Writes {
        self.writes.clone()
    }

    /// Returns everything that is read from now on.
    pub(crate) fn reads(&self) -> Reads {
        self.reads.clone()
    }

    /// Makes empty lists look like `list`.
    pub(crate) fn with_empty_lists(mut self, list: Value) -> Self {
        self.empty_list = list;
        self
    }

    /// Makes the webhook report `sync_status` for every workload, with whatever may follow it.
    pub(crate) fn reporting(mut self, sync_status: &str) -> Self {
        self.warning = Some(report(sync_status));
        self
    }

    /// Makes the leader report for every workload that a restart is due, and what it waits for.
    pub(crate) fn reporting_wait(mut self, waits_for: Option<Waiting>) -> Self {
        let report = Report {
            content: Some("48a63946".to_owned()),
            leads: true,
            waits_for,
            ..answered(SyncStatus::Due(Cause::Changed))
        };
        self.warning = Some(report.to_string());
        self
    }

    /// Lets the webhook report nothing.
    pub(crate) fn with_no_report(mut self) -> Self {
        self.warning = None;
        self
    }

    /// Makes the webhook report `sync_status` for workloads of this name.
    pub(crate) fn reporting_of(mut self, name: &str, sync_status: &str) -> Self {
        self.warnings.insert(name.to_owned(), report(sync_status));
        self
    }

    /// Accepts a write, if it asks for no more than metadata or has an answer of its own.
    async fn write(&self, path: &str, request: Request<Body>) -> (u16, Value, Option<String>) {
        if self.forbidden_writes.contains(path) {
            let (code, body) = forbidden("patch");
            return (code, body, None);
        }
        let answer = self.write_answers.get(path).cloned();
        let accept = request.headers()[header::ACCEPT].to_str().unwrap();
        let is_brief = accept.contains("as=PartialObjectMetadata;");
        assert!(is_brief || answer.is_some(), "{accept}");
        let asked = request.uri().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let patch = serde_json::from_slice(&body).unwrap();
        self.writes.lock().unwrap().push((asked, patch));
        answer.unwrap_or((200, json!({"metadata": {}}), None))
    }

    /// Answers the dry run of what a user writes.
    fn dry_write(&self, path: &str) -> (u16, Value) {
        if self.forbidden_writes.contains(path) {
            return forbidden("patch");
        }
        match self.write_answers.get(path) {
            Some((code, body, _)) => (*code, body.clone()),
            None => (200, json!({"metadata": {}})),
        }
    }

    /// Refuses to try out writes of `path`, with this status.
    pub(crate) fn refuses_trials(mut self, path: &str, code: u16, status: Value) -> Self {
        self.refused_trials.insert(path.to_owned(), (code, status));
        self
    }

    /// Tries out a write: a replacement as it is, and an apply by merging it with what is there.
    async fn trial(&self, path: &str, request: Request<Body>) -> (u16, Value) {
        if let Some(refusal) = self.refused_trials.get(path) {
            return refusal.clone();
        }
        let is_apply = request.method() == Method::PATCH;
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap();
        match self.answers.get(path) {
            Some((200, stored)) if is_apply => (200, merged(stored, &body)),
            _ => (200, body),
        }
    }

    /// Answers reads of `path`.
    pub(crate) fn answering(mut self, path: &str, code: u16, body: Value) -> Self {
        self.answers.insert(path.to_owned(), (code, body));
        self
    }

    /// Connects to the cluster, in the namespace `shop`.
    pub(crate) fn cluster(self) -> Cluster {
        self.cluster_in("shop")
    }

    /// Connects to the cluster, in the given namespace.
    pub(crate) fn cluster_in(self, namespace: &str) -> Cluster {
        let service = service_fn(move |request: Request<Body>| {
            let canned = self.clone();
            async move { Ok::<_, Infallible>(canned.response(request).await) }
        });
        Cluster {
            client: Client::new(service, namespace),
            groups: Arc::default(),
            deadline: Duration::from_secs(15),
            writes: super::Writes::default(),
            namespace: Name::parse(namespace).unwrap(),
        }
    }

    async fn response(&self, request: Request<Body>) -> Response<Body> {
        let path = &request.uri().path().to_owned();
        let mut response = Response::builder();
        let is_write = [Method::PATCH, Method::POST, Method::PUT].contains(request.method());
        let query = request.uri().query().unwrap_or_default().to_owned();
        let is_dry = query.contains("dryRun=All");
        if !is_write {
            self.reads.lock().unwrap().push(request.uri().to_string());
        }
        let (code, body) = if is_write && !is_dry {
            let (code, body, warning) = self.write(path, request).await;
            if let Some(warning) = warning {
                response = response.header("Warning", quoted(&warning));
            }
            (code, body)
        } else if is_dry {
            let name = path.rsplit('/').next().unwrap_or_default();
            if let Some(warning) = self.warnings.get(name).or(self.warning.as_ref()) {
                response = response.header("Warning", quoted(warning));
            }
            match request.method() == Method::PUT || query.contains("force=true") {
                true => self.trial(path, request).await,
                false if query.contains("fieldManager=pod-reloader-plugin") => self.dry_write(path),
                false => (200, json!({})),
            }
        } else if let Some(answer) = self.answers.get(path) {
            answer.clone()
        } else if is_list(path) {
            (200, self.empty_list.clone())
        } else {
            let message = format!("{path} not found");
            (404, json!({"kind": "Status", "message": message}))
        };
        let body = Body::from(body.to_string().into_bytes());
        response.status(code).body(body).unwrap()
    }
}

/// Returns an object with the fields of another one put over its own.
fn merged(stored: &Value, other: &Value) -> Value {
    let (Value::Object(stored), Value::Object(other)) = (stored, other) else {
        return other.clone();
    };
    let mut all = stored.clone();
    for (name, value) in other {
        let own = stored.get(name).unwrap_or(&Value::Null);
        all.insert(name.clone(), merged(own, value));
    }
    all.into()
}

/// Returns the answer to a request for which the user lacks the right.
fn forbidden(verb: &str) -> (u16, Value) {
    let message = format!(r#"it is forbidden: User "u" cannot {verb} it"#);
    (403, json!({"kind": "Status", "message": message}))
}

/// Returns the header of a warning, as the apiserver writes it.
fn quoted(warning: &str) -> String {
    let warning = warning.replace('\\', r"\\").replace('"', r#"\""#);
    format!("299 - \"{warning}\"")
}

fn report(sync_status: &str) -> String {
    match sync_status.contains("; version ") {
        true => format!("pod-reloader: status: {sync_status}"),
        false => format!("pod-reloader: status: {sync_status}; version 0.1.0"),
    }
}

fn is_list(path: &str) -> bool {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let below = match *parts {
        ["apis"] => return true,
        ["api", "v1", ref below @ ..] | ["apis", _, _, ref below @ ..] => below,
        _ => return false,
    };
    matches!(below, [_] | ["namespaces", _, _])
}

/// Asserts that what a command prints has this part.
#[track_caller]
pub(crate) fn assert_mentions(text: &str, part: &str) {
    assert!(text.contains(part), "{part} is not in\n{text}");
}

/// Returns the Deployment of an operator that the chart installed in the namespace `ops`.
pub(crate) fn operator() -> Value {
    let mut operator = deployment("reloader");
    operator["metadata"]["namespace"] = json!("ops");
    operator["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["--hash-keys-secret=keys"]);
    operator
}

/// Returns the Deployment of an operator that lets workloads pin their ConfigMaps.
pub(crate) fn pinning_operator() -> Value {
    operator_with(&["--pin"])
}

/// Returns a ConfigMap of the namespace `shop`.
pub(crate) fn config_map(name: &str, key: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
        "data": {key: ""},
    })
}

/// Returns a ClusterConfigSync of Secret `platform/pull`.
pub(crate) fn cluster_config_sync(name: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "generation": 1},
        "spec": {"source": {"kind": "Secret", "namespace": "platform", "name": "pull"}},
        "status": status,
    })
}

/// Returns the answer to a status query, by a replica that does not lead.
pub(crate) fn answered(sync_status: SyncStatus) -> Report {
    Report {
        sync_status,
        content: None,
        version: "0.1.0".to_owned(),
        not_after: None,
        observed_at: None,
        leads: false,
        waits_for: None,
    }
}

/// Returns a FieldBinding of Secret `s3` and Harbor `registry` of the namespace `shop`.
pub(crate) fn field_binding(name: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "generation": 1},
        "spec": {
            "source": {"kind": "Secret", "name": "s3"},
            "target": {"apiVersion": "goharbor.io/v1beta1", "kind": "Harbor", "name": "registry"},
            "fields": [
                {"key": "accesskey", "path": "spec.accesskey"},
                {"key": "bucket", "path": "spec.bucket"},
            ],
        },
        "status": status,
    })
}

/// Returns the Deployment of an operator that binds fields of Harbors.
pub(crate) fn binding_operator() -> Value {
    let kinds =
        r#"[{"group":"goharbor.io","version":"v1beta1","resource":"harbors","kind":"Harbor"}]"#;
    operator_with(&[&format!("--field-bindings-kinds={kinds}")])
}

/// Returns the Deployment of an operator with these flags, besides those of [`operator`].
pub(crate) fn operator_with(flags: &[&str]) -> Value {
    let mut operator = operator();
    let args = &mut operator["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array_mut().expect("it has arguments");
    args.extend(flags.iter().map(|flag| json!(flag)));
    operator
}

/// Returns a Deployment of the namespace `shop` that has not opted in.
pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "generation": 1},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "main"}]}},
        },
        "status": {
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1,
        },
    })
}

/// Returns the copy of a ConfigMap with this content, of the namespace `shop`.
pub(crate) fn copy_of(source: &str, data: Value) -> Value {
    let copy = json!({
        "metadata": {
            "name": "x", "namespace": "shop", "uid": "1", "resourceVersion": "1",
            "labels": {"pod-reloader.cs.sap.com/copy": "true"},
        },
        "immutable": true,
        "data": data,
    });
    named_as_copy(copy, source)
}

/// Gives a copy the name for its content.
pub(crate) fn named_as_copy(mut copy: Value, source: &str) -> Value {
    let read = ConfigObject::parse(copy.to_string().as_bytes(), Aspects::default());
    let name = plain_copy_name(&Name::parse(source).unwrap(), &read.unwrap().digest);
    copy["metadata"]["name"] = json!(name.as_str());
    copy
}

/// Returns a ReplicaSet of a Deployment of the namespace `shop`, whose pods have these pins.
pub(crate) fn replica_set(of: &str, number: i64, pins: Option<&str>) -> Value {
    let mut replica_set = deployment(&format!("{of}-{number}"));
    let hash = format!("v1.k.{number}234567890");
    replica_set["metadata"]["ownerReferences"] = json!([{"uid": of, "controller": true}]);
    replica_set["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:{number:02}:00Z"));
    replica_set["metadata"]["annotations"] =
        json!({"deployment.kubernetes.io/revision": number.to_string()});
    let mut annotations = json!({CONFIG_HASH: hash});
    if let Some(pins) = pins {
        annotations[PINS] = json!(pins);
    }
    replica_set["spec"]["template"]["metadata"]["annotations"] = annotations;
    replica_set
}
