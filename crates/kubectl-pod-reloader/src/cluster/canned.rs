//! A made-up cluster, for tests.

use std::collections::BTreeMap;
use std::convert::Infallible;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use pod_reloader_core::name::Name;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tower::service_fn;

use super::Cluster;

/// The apiserver's answers, by path. Any other list is empty, and no other object exists.
#[derive(Clone, Debug)]
pub(crate) struct Canned {
    answers: BTreeMap<String, (u16, Value)>,
    empty_list: Value,
    /// The warning that comes with each dry run.
    warning: Option<String>,
}

impl Canned {
    /// Creates a cluster with nothing but the namespace `shop`.
    pub(crate) fn shop() -> Self {
        let shop = (200, json!({"metadata": {"name": "shop"}}));
        Self {
            answers: [("/api/v1/namespaces/shop".to_owned(), shop)].into(),
            empty_list: json!({"metadata": {}, "items": null}),
            warning: None,
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

    /// Makes reading `path` fail, with `message` as the apiserver's words.
    pub(crate) fn refuses(self, path: &str, message: &str) -> Self {
        self.answering(path, 500, json!({"kind": "Status", "message": message}))
    }

    /// Forbids the user to read `path`.
    pub(crate) fn forbids(self, path: &str) -> Self {
        let message = r#"it is forbidden: User "u" cannot read it"#;
        self.answering(path, 403, json!({"kind": "Status", "message": message}))
    }

    /// Makes empty lists look like `list`.
    pub(crate) fn with_empty_lists(mut self, list: Value) -> Self {
        self.empty_list = list;
        self
    }

    /// Makes the webhook report `standing` for every workload.
    pub(crate) fn reporting(mut self, standing: &str) -> Self {
        self.warning = Some(format!("pod-reloader: asked: {standing}; version 0.1.0"));
        self
    }

    fn answering(mut self, path: &str, code: u16, body: Value) -> Self {
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
            let response = self.response(&request);
            async { Ok::<_, Infallible>(response) }
        });
        Cluster {
            client: Client::new(service, namespace),
            groups: OnceCell::new(),
            namespace: Name::parse(namespace).unwrap(),
        }
    }

    fn response(&self, request: &Request<Body>) -> Response<Body> {
        let path = request.uri().path();
        let mut response = Response::builder();
        let is_dry = [Method::PATCH, Method::POST].contains(request.method());
        let (code, body) = if is_dry {
            if let Some(warning) = &self.warning {
                response = response.header("Warning", format!("299 - \"{warning}\""));
            }
            (200, json!({}))
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

fn is_list(path: &str) -> bool {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let below = match *parts {
        ["apis"] => return true,
        ["api", "v1", ref below @ ..] | ["apis", _, _, ref below @ ..] => below,
        _ => return false,
    };
    matches!(below, [_] | ["namespaces", _, _])
}

/// Returns the Deployment of an operator that the chart installed in the namespace `ops`.
pub(crate) fn operator() -> Value {
    let mut operator = deployment("reloader");
    operator["metadata"]["namespace"] = json!("ops");
    operator["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["--hash-keys-secret=keys"]);
    operator
}

/// Returns a ConfigMap of the namespace `shop`.
pub(crate) fn config_map(name: &str, key: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"},
        "data": {key: ""},
    })
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
