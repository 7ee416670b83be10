//! Answers the requests of one connection: through the apiserver, or as a rule says.

use std::sync::Arc;

use anyhow::{Context, Error, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming, client::conn::http1::SendRequest, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    Shared,
    in_force::Entry,
    rule::{Answer, Fault, is_watch},
    socket::{End, Socket},
    truncate::Truncated,
    watch::deliver,
};

type Body = UnsyncBoxBody<Bytes, Error>;

/// Serves one connection until it ends.
pub(super) async fn serve(
    tcp: TcpStream,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
) -> Result<()> {
    tcp.set_nodelay(true)?;
    let tls = acceptor.accept(tcp).await.context("TLS handshake")?;
    let end = Arc::new(End::default());
    let mut moved = shared.upstream.subscribe();
    let connection = Arc::new(Connection {
        shared,
        end: Arc::clone(&end),
        upstream: Mutex::new(None),
    });
    let service = service_fn(move |request| {
        let connection = Arc::clone(&connection);
        async move { connection.answer(request).await }
    });
    let socket = TokioIo::new(Socket::new(tls, Arc::clone(&end)));
    tokio::select! {
        biased;
        () = end.reset_wanted() => bail!("reset by a rule"),
        Ok(()) = moved.changed() => bail!("the apiserver is another now"),
        ended = http1::Builder::new().serve_connection(socket, service) => Ok(ended?),
    }
}

struct Connection {
    shared: Arc<Shared>,
    end: Arc<End>,
    /// Connection to the apiserver that belongs to this one.
    upstream: Mutex<Option<SendRequest<Incoming>>>,
}

impl Connection {
    /// Answers one request. An error ends the connection without an answer.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut rules = self.shared.rules.observe();
        let due = due(rules.of(&method, &uri));

        for entry in &due {
            match &entry.rule.fault {
                Fault::Delay(delay) => rules.sleep(entry, *delay).await,
                Fault::Hang => std::future::pending().await,
                Fault::Reset => return self.reset(),
                Fault::Answer(answer) => return given(answer, request).await,
                _ => {}
            }
        }
        let mut response = self.pass_on(request).await?;
        for entry in &due {
            match &entry.rule.fault {
                Fault::DelayAnswer(delay) => rules.sleep(entry, *delay).await,
                Fault::LoseAnswer => return self.reset(),
                Fault::TruncateBody(remaining) => {
                    response = response.map(|body| {
                        let end = Arc::clone(&self.end);
                        let remaining = *remaining;
                        Truncated {
                            body,
                            remaining,
                            end,
                        }
                        .boxed_unsync()
                    });
                }
                _ => {}
            }
        }
        Ok(response)
    }

    fn reset(&self) -> Result<Response<Body>> {
        self.end.reset();
        bail!("reset by a rule")
    }

    async fn pass_on(&self, mut request: Request<Incoming>) -> Result<Response<Body>> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        if let Some(selection) = &self.shared.selection {
            *request.uri_mut() = selection.narrow(&method, &uri)?;
        }
        let response = self
            .send(request)
            .await
            .with_context(|| format!("passing on {method} {uri}"))?;
        Ok(if has_watch_lines(&method, &uri, &response) {
            response.map(|body| deliver(&self.shared, &self.end, method, uri, body))
        } else {
            response.map(|body| body.map_err(Error::from).boxed_unsync())
        })
    }

    async fn send(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>> {
        // Requests on a connection come one after the other: nobody waits for this lock.
        let mut upstream = self.upstream.lock().await;
        loop {
            let (mut sender, is_new) = match upstream.take() {
                Some(sender) => (sender, false),
                None => {
                    let apiserver = self.shared.upstream.borrow().clone();
                    (apiserver.connect().await?, true)
                }
            };
            if let Err(error) = sender.ready().await {
                if is_new {
                    return Err(error.into());
                }
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    *upstream = Some(sender);
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    // The apiserver had closed an idle connection: not a byte was sent.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }
}

/// Returns the rules that apply: those that are due, up to one that ends the request.
fn due(matching: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
    let mut ended = false;
    matching
        .into_iter()
        .filter(|entry| !entry.rule.fault.is_for_lines())
        .filter(|entry| {
            let applies = entry.meet(ended);
            ended |= applies
                && matches!(
                    entry.rule.fault,
                    Fault::Hang | Fault::Reset | Fault::Answer(_)
                );
            applies
        })
        .collect()
}

async fn given(answer: &Answer, request: Request<Incoming>) -> Result<Response<Body>> {
    // The body is read first, as the apiserver does: a client that still writes would see a broken pipe, not
    // the answer.
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    let body = Full::new(answer.body.clone());
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers.clone();
    Ok(response)
}

fn has_watch_lines(method: &Method, uri: &Uri, response: &Response<Incoming>) -> bool {
    if *method != Method::GET || !is_watch(uri) || response.status() != StatusCode::OK {
        return false;
    }
    let content_type = response.headers().get(CONTENT_TYPE);
    let is_json =
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !is_json {
        tracing::warn!("{content_type:?} at {uri}: watch faults do not apply");
    }
    is_json
}

/// The address of the apiserver, and how to connect to it.
pub(super) struct Upstream {
    authority: String,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Upstream").field(&self.authority).finish()
    }
}

impl Upstream {
    /// Returns another apiserver with the same CA.
    pub(super) fn at(&self, url: &str) -> Result<Self> {
        Self::new(url, self.connector.clone())
    }

    pub(super) fn new(url: &str, connector: TlsConnector) -> Result<Self> {
        let uri: Uri = url.parse().with_context(|| format!("parsing {url}"))?;
        let host = uri.host().with_context(|| format!("no host in {url}"))?;
        Ok(Self {
            authority: format!("{host}:{}", uri.port_u16().unwrap_or(443)),
            name: ServerName::try_from(host.to_owned())?,
            connector,
        })
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>> {
        let context = || format!("connecting to {}", self.authority);
        let tcp = TcpStream::connect(&self.authority)
            .await
            .with_context(context)?;
        tcp.set_nodelay(true)?;
        let tls = self
            .connector
            .connect(self.name.clone(), tcp)
            .await
            .with_context(context)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        // Ends with the sender, or with the last body that is read.
        tokio::spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to the apiserver ended: {error}");
            }
        });
        Ok(sender)
    }
}
