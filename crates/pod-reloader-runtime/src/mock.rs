//! Mocks for tests: a client whose apiserver is a function, the parts of a controller that are made with it, and the log.

pub mod lease;
mod log;
mod names;

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

pub use self::log::Log;
pub use self::names::{id, keys, keys_secret, name, reference};
use crate::budget::Budget;
use crate::client::Clients;
use crate::controller::Errors;
use crate::events::Events;
use crate::kit::Kit;
use crate::watch_age::Watches;

/// A value that the apiserver quotes in the message of each error, as a policy may.
pub const QUOTED: &str = "hunter2";

/// An object, or the status code and the reason of an error.
pub type Answer = Result<Value, (u16, &'static str)>;

/// Returns a client in the namespace `ns` whose requests are answered by `answer`.
pub fn client<A, F>(answer: A) -> Client
where
    A: Fn(Parts, Bytes) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body
                .collect()
                .await
                .expect("the body is in memory")
                .to_bytes();
            Ok::<_, Infallible>(response(answer(head, body).await))
        }
    });
    Client::new(service, "ns")
}

/// Returns one client for each purpose.
pub fn clients(client: &Client) -> Clients {
    Clients {
        admission: client.clone(),
        reconcile: client.clone(),
        watch: client.clone(),
        lease: client.clone(),
        events: client.clone(),
    }
}

/// Returns the parts of a controller, all of whose calls are made by one client.
pub fn kit(client: &Client, controller: &'static str) -> Kit {
    let (events, _) = Events::new(client.clone());
    Kit {
        clients: clients(client),
        budget: Budget::new(),
        watches: Watches::default(),
        events,
        errors: Errors::default().of(controller),
        resync_period: Duration::from_secs(600),
    }
}

/// The body of an answer, in the parts in which it arrives. An error among them breaks it off.
pub type Chunks = BoxStream<'static, io::Result<Bytes>>;

/// Returns a client whose requests are answered by `answer`, with a status and a body that arrives in
/// parts.
pub fn streaming_client<A, F>(answer: A) -> Client
where
    A: Fn(Parts) -> F + Clone + Send + 'static,
    F: Future<Output = (u16, Chunks)> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (status, chunks) = answer(request.into_parts().0).await;
            let body = StreamBody::new(chunks.map_ok(Frame::data));
            let response = Response::builder().status(status).body(body);
            Ok::<_, Infallible>(response.expect("the status is valid"))
        }
    });
    Client::new(service, "ns")
}

/// Returns a body that arrives at once, and ends.
pub fn whole(text: impl Into<Bytes>) -> Chunks {
    stream::once(ready(Ok(text.into()))).boxed()
}

/// Returns a body that arrives at once, and does not end.
pub fn open(text: impl Into<Bytes>) -> Chunks {
    whole(text).chain(stream::pending()).boxed()
}

/// Returns a body that arrives at once, and breaks off.
pub fn broken(text: impl Into<Bytes>) -> Chunks {
    let breaks = io::Error::from(io::ErrorKind::ConnectionReset);
    whole(text).chain(stream::once(ready(Err(breaks)))).boxed()
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let (code, body) = match answer {
        Ok(object) => (200, object),
        Err((code, reason)) => {
            let message = format!("no: {QUOTED}");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code});
            (code, status)
        }
    };
    Response::builder()
        .status(code)
        .body(Full::new(body.to_string().into()))
        .expect("the status is valid")
}
