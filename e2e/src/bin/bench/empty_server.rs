//! The floor of a webhook: an HTTPS server that reads a body, decodes nothing, and allows.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The port on 127.0.0.1.
    #[arg(long)]
    port: u16,
    /// The certificate, in PEM.
    #[arg(long)]
    certificate: PathBuf,
    /// Its key, in PEM.
    #[arg(long)]
    key: PathBuf,
}

/// Runs until it is killed.
pub(crate) async fn run(
    Args {
        port,
        certificate,
        key,
    }: Args,
) -> Result<()> {
    let certificate = CertificateDer::from_pem_slice(&fs::read(certificate)?)?;
    let key = PrivateKeyDer::from_pem_slice(&fs::read(key)?)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await?;
            let service = service_fn(allow);
            http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await?;
            anyhow::Ok(())
        });
    }
}

async fn allow(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, anyhow::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let uid = uid(&body).context("no UID")?;
    let head = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":""#;
    let answer = [&head[..], uid, br#""}}"#].concat();
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(response.body(Full::from(answer))?)
}

/// Returns the first UID in the text, which is that of the request.
fn uid(body: &[u8]) -> Option<&[u8]> {
    let name = br#""uid":""#;
    let start = body.windows(name.len()).position(|window| window == name)? + name.len();
    let length = body[start..].iter().position(|byte| *byte == b'"')?;
    Some(&body[start..start + length])
}
