//! The connections of a client: as kube builds them, but with small buffers, and with a limit of our own to silence.

use std::time::Duration;

use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Config, Error};
use tower::{BoxError, Service, ServiceBuilder};

use super::silence::Silence;

/// The largest read buffer of a connection, in bytes: as much as one record of TLS holds. hyper's default is 408 KiB,
/// which a connection that has read a long list keeps, for as long as its watch takes.
const MAX_BUFFER: usize = 16 * 1024;

/// Returns the connections to the apiserver that `config` names. One on which nothing comes for as long as `silence`, since
/// the last request or the last byte, is given up, even if it is idle.
///
/// # Errors
///
/// Fails on certificates and credentials that cannot be used, and on a proxy, which is not supported.
pub(super) fn connections(
    config: &Config,
    silence: Duration,
) -> Result<
    impl Service<
        http::Request<Body>,
        Response = http::Response<hyper::body::Incoming>,
        Error = BoxError,
        Future: Send,
    > + Send
    + use<>,
    Error,
> {
    if let Some(proxy_url) = config.proxy_url.clone() {
        let proxy_url = Box::new(proxy_url);
        return Err(Error::ProxyProtocolUnsupported { proxy_url });
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = ServiceBuilder::new()
        .map_response(move |stream| Silence::new(stream, silence))
        .service(connector);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = legacy::Builder::new(TokioExecutor::new())
        .http1_max_buf_size(MAX_BUFFER)
        .build(connector);
    Ok(ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client))
}
