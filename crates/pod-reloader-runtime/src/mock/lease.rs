//! A cluster with one Lease, for tests of elections.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Answer, client};
use crate::leader::CALL;

/// Why a body can be read.
const JSON: &str = "the body is JSON";

/// A cluster that has one Lease.
#[derive(Clone, Default)]
pub struct Cluster(Arc<Mutex<Stored>>);

/// The state of such a cluster.
#[derive(Default)]
pub struct Stored {
    /// The Lease, if there is one.
    pub lease: Option<Value>,
    /// The resourceVersion of the last write.
    pub version: u64,
    trouble: Option<Trouble>,
}

/// What happens to each call.
#[derive(Clone, Copy)]
pub enum Trouble {
    /// It is refused.
    Fails,
    /// It is never answered.
    Hangs,
    /// It takes nearly as long as the time limit allows.
    Slow,
}

impl Cluster {
    /// Returns a client of the cluster.
    pub fn client(&self) -> Client {
        let this = self.clone();
        client(move |head, body| {
            let this = this.clone();
            async move {
                sleep(Duration::from_millis(1)).await;
                let trouble = this.0.lock().trouble;
                match trouble {
                    Some(Trouble::Fails) => Err((500, "InternalError")),
                    Some(Trouble::Hangs) => std::future::pending().await,
                    Some(Trouble::Slow) => {
                        sleep(CALL - Duration::from_millis(100)).await;
                        this.0.lock().handle(&head.method, &body)
                    }
                    None => this.0.lock().handle(&head.method, &body),
                }
            }
        })
    }

    /// Has trouble from now on, or none any more.
    pub fn now(&self, trouble: Option<Trouble>) {
        self.now_lease(|stored| stored.trouble = trouble);
    }

    /// Changes what is stored.
    pub fn now_lease(&self, set: impl FnOnce(&mut Stored)) {
        set(&mut self.0.lock());
    }

    /// Writes as somebody else.
    pub fn write(&self, spec: Value) {
        self.0.lock().write(&spec);
    }

    /// Returns the Lease.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    pub fn lease(&self) -> Value {
        let lease = self.0.lock().lease.clone();
        lease.expect("there is a Lease")
    }

    /// Returns the holder of the Lease.
    ///
    /// # Panics
    ///
    /// Panics if there is no Lease.
    pub fn holder(&self) -> Value {
        self.lease()["spec"]["holderIdentity"].clone()
    }
}

impl Stored {
    fn handle(&mut self, method: &Method, body: &[u8]) -> Answer {
        if *method == Method::POST {
            if self.lease.is_some() {
                return Err((409, "AlreadyExists"));
            }
            let body: Value = serde_json::from_slice(body).expect(JSON);
            return Ok(self.write(&body["spec"]));
        }
        let stored = self.lease.clone().ok_or((404, "NotFound"))?;
        if *method == Method::GET {
            return Ok(stored);
        }
        let patch: Value = serde_json::from_slice(body).expect(JSON);
        if patch["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] {
            return Err((409, "Conflict"));
        }
        Ok(self.write(&patch["spec"]))
    }

    fn write(&mut self, spec: &Value) -> Value {
        self.version += 1;
        let lease = self
            .lease
            .get_or_insert_with(|| json!({"metadata": {"name": "operator"}}));
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        json_patch::merge(&mut lease["spec"], spec);
        lease.clone()
    }
}
