//! A client whose apiserver is a function, for tests.

use std::convert::Infallible;
use std::future::Future;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

/// An object, or the code and reason of an error.
pub(crate) type Answer = Result<Value, (u16, &'static str)>;

/// A client in the namespace `ns`, each of whose requests `answer` answers.
pub(crate) fn client<A, F>(answer: A) -> Client
where
    A: Fn(Parts, Bytes) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send,
{
    let service = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(response(answer(head, body).await))
        }
    });
    Client::new(service, "ns")
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let (code, body) = match answer {
        Ok(object) => (200, object),
        Err((code, reason)) => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code});
            (code, status)
        }
    };
    Response::builder()
        .status(code)
        .body(Full::new(body.to_string().into()))
        .expect("the status is valid")
}
