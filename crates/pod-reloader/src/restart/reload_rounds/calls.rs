//! Calls of pods that reload changed config, and the limits of how many are made at once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use pod_reloader_core::reload_round::Answer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::debug;

use crate::report::notify::retry_after;
use crate::runtime::budget::Budget;

/// The time limit of one call of a pod.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// The number of pods that are called at once.
const AT_ONCE: usize = 64;
/// The number of pods of one namespace among them.
pub(super) const SHARE: usize = 8;
/// The number of requests to the apiserver about pods that are made at once.
const REQUESTS: usize = 8;
/// The bytes of an answer that are read. Nobody looks at them.
const MAX_BODY: usize = 4 << 10;
/// The maximum size of the head of an answer, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Asks the pod at an address to reload, at a path, once.
pub(crate) type Ask = Box<dyn Fn(SocketAddr, Box<str>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Makes the calls of all rounds.
pub(super) struct Calls {
    pub(super) client: Client,
    pub(super) budget: Budget,
    ask: Ask,
    at_once: Arc<Semaphore>,
    shares: Mutex<HashMap<Name, Weak<Semaphore>>>,
    requests: Semaphore,
}

impl Calls {
    pub(super) fn new(client: Client, budget: Budget, ask: Ask) -> Self {
        Self {
            client,
            budget,
            ask,
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            shares: Mutex::default(),
            requests: Semaphore::new(REQUESTS),
        }
    }

    /// Makes a request to the apiserver once there is room for it.
    pub(super) async fn request<T>(&self, request: impl Future<Output = T>) -> T {
        let permit = self.requests.acquire().await;
        let answer = request.await;
        drop(permit);
        answer
    }

    /// Asks a pod in `namespace` to reload, once there is room for that.
    pub(super) async fn ask(&self, namespace: &Name, address: SocketAddr, path: &str) -> Answer {
        let _permits = self.permits(namespace).await;
        (self.ask)(address, path.into()).await
    }

    /// Waits until there is room for one more call of a pod in `namespace`.
    async fn permits(&self, namespace: &Name) -> [Option<OwnedSemaphorePermit>; 2] {
        let share = self.share(namespace);
        // Neither is ever closed.
        let own = share.acquire_owned().await.ok();
        [own, self.at_once.clone().acquire_owned().await.ok()]
    }

    /// Returns the share of a namespace, which exists while somebody holds a part of it.
    fn share(&self, namespace: &Name) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(namespace).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(SHARE));
        shares.insert(namespace.clone(), Arc::downgrade(&share));
        share
    }
}

/// Returns what asks pods over HTTP. Redirects are not followed.
pub(crate) fn over_http() -> Ask {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CALL_DEADLINE));
    // Rounds are minutes apart. A connection that waited for the next one would often be dead. No proxy is asked.
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .retry_canceled_requests(false)
        .http1_max_buf_size(MAX_HEAD)
        .build(connector);
    Box::new(move |address, path| post(client.clone(), address, path).boxed())
}

async fn post(
    client: legacy::Client<HttpConnector, Empty<Bytes>>,
    address: SocketAddr,
    path: Box<str>,
) -> Answer {
    let request = Request::post(format!("http://{address}{path}"))
        .header(USER_AGENT, crate::runtime::client::USER_AGENT)
        .header(CONTENT_LENGTH, 0)
        .body(Empty::new());
    // What a workload says was parsed, but by no parser of HTTP.
    let Ok(request) = request else {
        return Answer::None;
    };
    match timeout(CALL_DEADLINE, client.request(request)).await {
        Ok(Ok(response)) => answer(response).await,
        Ok(Err(error)) => {
            debug!(%address, %error, "a pod that is to reload does not answer");
            Answer::None
        }
        Err(_) => {
            debug!(%address, "a pod that is to reload does not answer in time");
            Answer::None
        }
    }
}

/// Returns what a response says. A little of its body is read, so that a pod can send what most of them send.
async fn answer(response: Response<Incoming>) -> Answer {
    let status = response.status().as_u16();
    let pause = retry_after(response.headers().get(RETRY_AFTER), Timestamp::now());
    let mut body = response.into_body();
    let mut read = 0;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MAX_BODY {
                return;
            }
        }
    };
    // What comes late, or too much of it, changes nothing about the status.
    let _ = timeout(Duration::from_secs(1), reading).await;
    Answer::Status(status, pause)
}

#[cfg(test)]
mod tests;
