//! One call to whoever receives notifications.

use std::error::Error as _;
use std::path::PathBuf;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use kube::Config;
use kube::client::ConfigExt;
use serde_json::Value;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::retry::{Failure, Patience, retry_after};
use crate::client;

/// Where messages are sent to.
pub(crate) struct Sink {
    url_file: PathBuf,
    has_proxy: bool,
    post: Post,
}

type Post = Box<
    dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response<Incoming>, Error>>
        + Send
        + Sync,
>;

impl Sink {
    /// A sink whose URL is in `url_file`, which is read for each call. Trusts the public authorities, or
    /// those in `ca_file` in their place.
    ///
    /// *Errors*: `ca_file` cannot be read, or holds something else.
    pub(crate) fn new(
        url_file: PathBuf,
        ca_file: Option<PathBuf>,
        proxy: Option<Uri>,
    ) -> Result<Self, kube::Error> {
        // Of kube's client only how it does TLS: the name is that of nobody.
        let mut tls = Config::new(Uri::from_static("https://receiver.invalid"));
        match ca_file {
            Some(file) => tls.root_cert_file = Some(file),
            // The image holds none.
            None => {
                tls.root_cert = Some(TLS_SERVER_ROOT_CERTS.iter().map(|it| it.to_vec()).collect());
            }
        }
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let has_proxy = proxy.is_some();
        let post = match proxy {
            None => poster(tls.rustls_https_connector_with_connector(connector)?),
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy, connector);
                poster(tls.rustls_https_connector_with_connector(tunnel)?)
            }
        };
        Ok(Self {
            url_file,
            has_proxy,
            post,
        })
    }

    /// Sends one message, once. Redirects are not followed.
    pub(super) async fn send(&self, message: &Value, patience: &Patience) -> Result<(), Failure> {
        let request = Request::post(self.url()?)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, client::USER_AGENT)
            .body(Full::from(message.to_string()))
            .map_err(|_| Failure::BadUrl("holds no URL"))?;
        let response = match tokio::time::timeout(patience.deadline, (self.post)(request)).await {
            Err(_) => return Err(Failure::TimedOut(patience.deadline)),
            Ok(Err(error)) => return Err(Failure::Connection(cause(&error))),
            // Nobody needs its body: the connection ends here.
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(());
        }
        Err(Failure::Refused {
            status: response.status(),
            retry_after: retry_after(response.headers().get(RETRY_AFTER), Timestamp::now()),
        })
    }

    /// The URL as it is now: the Secret behind the file may be another one than before.
    pub(super) fn url(&self) -> Result<Uri, Failure> {
        let text = std::fs::read_to_string(&self.url_file)
            .map_err(|error| Failure::NoUrl(error.kind()))?;
        let uri: Uri = text
            .trim()
            .parse()
            .map_err(|_| Failure::BadUrl("holds no URL"))?;
        if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
            return Err(Failure::BadUrl(
                "holds one with a user, which is not supported",
            ));
        }
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Ok(uri),
            Some(scheme) if *scheme == Scheme::HTTP && !self.has_proxy => Ok(uri),
            Some(scheme) if *scheme == Scheme::HTTP => Err(Failure::BadUrl(
                "holds one without https, which a proxy is not used for",
            )),
            _ => Err(Failure::BadUrl("holds one that is neither https nor http")),
        }
    }
}

fn poster(connector: impl Connect + Clone + Send + Sync + 'static) -> Post {
    // A message in minutes: a connection that waited for it would often be dead.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector);
    Box::new(move |request| client.request(request).boxed())
}

/// The first cause, such as a certificate that is not trusted. Those above it are about layers.
fn cause(error: &Error) -> String {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
