//! An apiserver that is a function: it has one Secret and one webhook configuration, and counts writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::mock::{self, Answer};

/// A mock apiserver. Clones share its state.
#[derive(Clone, Default)]
pub(super) struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    pub(super) secret: Option<Value>,
    pub(super) configuration: Option<Value>,
    /// The number of writes of each object.
    pub(super) secret_writes: u32,
    pub(super) configuration_writes: u32,
    /// The number of writes that came too late.
    pub(super) conflicts: u32,
    /// If true, nobody may write the Secret.
    pub(super) is_secret_read_only: bool,
    /// If true, nobody may write the configuration.
    pub(super) is_configuration_read_only: bool,
    /// The number of reads of the configuration that will fail.
    pub(super) failing_configuration_reads: u32,
    /// The number of patches before which somebody else will write the configuration.
    pub(super) moves: u32,
    version: u64,
}

impl Apiserver {
    pub(super) fn client(&self) -> Client {
        let this = self.clone();
        mock::client(move |head, body| {
            let this = this.clone();
            async move {
                // Answers take time, so that calls of several replicas interleave.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let body = serde_json::from_slice(&body).unwrap_or_default();
                this.state().handled(&head.method, head.uri.path(), body)
            }
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Creates or overwrites the Secret.
    pub(super) fn put_secret(&mut self, mut secret: Value) {
        secret["metadata"]["resourceVersion"] = self.next_version();
        self.secret = Some(secret);
    }

    /// Creates or overwrites the configuration.
    pub(super) fn put_configuration(&mut self, mut configuration: Value) {
        configuration["metadata"]["resourceVersion"] = self.next_version();
        self.configuration = Some(configuration);
    }

    fn handled(&mut self, method: &Method, path: &str, body: Value) -> Answer {
        match (method.as_str(), path) {
            ("GET", SECRET) => self.secret.clone().ok_or(NOT_FOUND),
            ("POST", _) | ("PATCH", SECRET) if self.is_secret_read_only => Err((403, "Forbidden")),
            ("POST", SECRETS) => self.written(body, self.secret.is_none()),
            ("PATCH", SECRET) => {
                let mut secret = self.secret.clone().ok_or(NOT_FOUND)?;
                let is_next = version(&secret) == version(&body);
                json_patch::merge(&mut secret, &body);
                self.written(secret, is_next)
            }
            ("GET", CONFIGURATION) if self.failing_configuration_reads > 0 => {
                self.failing_configuration_reads -= 1;
                Err((503, "ServiceUnavailable"))
            }
            ("PATCH", CONFIGURATION) if self.is_configuration_read_only => Err((403, "Forbidden")),
            ("GET", CONFIGURATION) => self.configuration.clone().ok_or(NOT_FOUND),
            ("PATCH", CONFIGURATION) => self.patched(body),
            _ => panic!("{method} {path}"),
        }
    }

    fn written(&mut self, secret: Value, is_allowed: bool) -> Answer {
        if !is_allowed {
            self.conflicts += 1;
            return Err((409, "Conflict"));
        }
        self.secret_writes += 1;
        self.put_secret(secret.clone());
        Ok(secret)
    }

    fn patched(&mut self, patch: Value) -> Answer {
        let mut configuration = self.configuration.clone().ok_or(NOT_FOUND)?;
        if self.moves > 0 {
            self.moves -= 1;
            self.put_configuration(configuration.clone());
            configuration["metadata"]["resourceVersion"] = self.next_version();
        }
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        if json_patch::patch(&mut configuration, &patch).is_err() {
            self.conflicts += 1;
            return Err((422, "Invalid"));
        }
        self.configuration_writes += 1;
        self.put_configuration(configuration.clone());
        Ok(configuration)
    }

    fn next_version(&mut self) -> Value {
        self.version += 1;
        json!(self.version.to_string())
    }
}

fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}

const NOT_FOUND: (u16, &str) = (404, "NotFound");
const SECRETS: &str = "/api/v1/namespaces/operator/secrets";
const SECRET: &str = "/api/v1/namespaces/operator/secrets/tls";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/webhooks";
