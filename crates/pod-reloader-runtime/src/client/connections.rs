//! The connections of a client: as kube builds them, but with small buffers.

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Config, Error};
use tower::{BoxError, Service, ServiceBuilder};

/// The largest read buffer of a connection, in bytes: as much as one record of TLS holds. hyper's default is 408 KiB,
/// which a connection that has read a long list keeps, for as long as its watch takes.
const MAX_BUFFER: usize = 16 * 1024;

/// Returns the connections to the apiserver that `config` names.
///
/// # Errors
///
/// Fails on certificates and credentials that cannot be used, and on a proxy, which is not supported.
pub(super) fn connections(
    config: &Config,
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
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let mut connector = TimeoutConnector::new(connector);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
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
