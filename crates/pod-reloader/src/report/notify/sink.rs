//! Makes one call to the receiver of notifications.

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
use crate::runtime::client;
use pod_reloader_core::error::chain;

/// The receiver of messages.
pub(crate) struct Sink {
    url_file: PathBuf,
    ca_file: Option<PathBuf>,
    proxy: Option<Uri>,
}

type Post = Box<
    dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Result<Response<Incoming>, Error>>
        + Send
        + Sync,
>;

impl Sink {
    /// Returns a sink whose URL is in `url_file`. It trusts the CAs in `ca_file`, or else the public ones.
    /// Both files are read for each call.
    pub(crate) fn new(url_file: PathBuf, ca_file: Option<PathBuf>, proxy: Option<Uri>) -> Self {
        Self {
            url_file,
            ca_file,
            proxy,
        }
    }

    /// Sends one message, once. Redirects are not followed.
    pub(super) async fn send(&self, message: &Value, patience: &Patience) -> Result<(), Failure> {
        let request = Request::post(self.url()?)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, client::USER_AGENT)
            .body(Full::from(message.to_string()))
            .map_err(|_| Failure::BadUrl("holds no URL"))?;
        let post = self.post()?;
        let response = match tokio::time::timeout(patience.deadline, post(request)).await {
            Err(_) => return Err(Failure::TimedOut(patience.deadline)),
            Ok(Err(error)) => return Err(Failure::Connection(cause(&error))),
            // Nobody needs the body of the answer, so the connection ends here.
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

    /// Checks that the URL and the CAs can be read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.url().and_then(|_| self.post()).map(drop)
    }

    /// Returns a client that trusts the current CAs.
    fn post(&self) -> Result<Post, Failure> {
        // Only the TLS of kube's client is used. Nobody has this name.
        let mut tls = Config::new(Uri::from_static("https://receiver.invalid"));
        // The image has no CAs. Those of a file replace the public ones, even if the file contains none.
        let public = || TLS_SERVER_ROOT_CERTS.iter().map(|it| it.to_vec());
        tls.root_cert = Some(match self.ca_file {
            Some(_) => Vec::new(),
            None => public().collect(),
        });
        tls.root_cert_file.clone_from(&self.ca_file);
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        let post = match &self.proxy {
            None => tls
                .rustls_https_connector_with_connector(connector)
                .map(poster),
            Some(proxy) => tls
                .rustls_https_connector_with_connector(Tunnel::new(proxy.clone(), connector))
                .map(poster),
        };
        post.map_err(|error| Failure::BadAuthorities(chain(&error)))
    }

    /// Reads the current URL. The Secret behind the file may have changed.
    fn url(&self) -> Result<Uri, Failure> {
        let text = std::fs::read_to_string(&self.url_file)
            .map_err(|error| Failure::NoUrl(error.kind()))?;
        let uri: Uri = text
            .trim()
            .parse()
            .map_err(|_| Failure::BadUrl("holds no URL"))?;
        if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
            return Err(Failure::BadUrl(
                "holds a URL with a user, which is not supported",
            ));
        }
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Ok(uri),
            Some(scheme) if *scheme == Scheme::HTTP && self.proxy.is_none() => Ok(uri),
            Some(scheme) if *scheme == Scheme::HTTP => Err(Failure::BadUrl(
                "holds a URL without https, for which no proxy is used",
            )),
            _ => Err(Failure::BadUrl(
                "holds a URL that is neither https nor http",
            )),
        }
    }
}

fn poster(connector: impl Connect + Clone + Send + Sync + 'static) -> Post {
    // Messages are minutes apart. A connection that waited for the next one would often be dead.
    let client = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector);
    Box::new(move |request| client.request(request).boxed())
}

/// Returns the innermost cause, such as a certificate that is not trusted. The outer ones only name layers.
fn cause(error: &Error) -> String {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
