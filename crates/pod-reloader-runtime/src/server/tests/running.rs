//! A server under test, and its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use webhook_certs::testing::{Client, ClientAuthority, self_signed};
use webhook_certs::{Acceptor, ClientAuthorities, CurrentCertificate, MinTlsVersion};

use super::super::{Limits, Transport, serve};

/// A server that runs until it is stopped or forgotten.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<()>,
    /// Notifies that a request to `/slow` has arrived.
    pub(super) arrived: Arc<Notify>,
    /// Lets one request to `/slow` be answered.
    pub(super) release: Arc<Notify>,
}

/// Serves a few routes within `limits`.
pub(super) async fn start(limits: Limits) -> Running {
    let (certificate, client) = self_signed(NAME);
    let current = CurrentCertificate::new();
    current.replace(certificate);
    let acceptor = Acceptor::new(&current, MinTlsVersion::default());
    started(limits, Transport::Tls(acceptor), client).await
}

/// Serves the same routes within limits that differ from the usual ones.
pub(super) async fn limited(differ: impl FnOnce(&mut Limits)) -> Running {
    let mut limits = Limits::default();
    differ(&mut limits);
    start(limits).await
}

/// Serves the same routes without TLS. Its clients connect without TLS, too.
pub(super) async fn start_plain(limits: Limits) -> Running {
    let (_, client) = self_signed(NAME);
    started(limits, Transport::Plain, client).await
}

/// Serves the same routes to clients with certificates of `authorities`.
pub(super) async fn start_for(limits: Limits, authorities: &ClientAuthorities) -> Running {
    let (certificate, client) = self_signed(NAME);
    let current = CurrentCertificate::new();
    current.replace(certificate);
    let minimum = MinTlsVersion::default();
    let acceptor = Acceptor::with_client_authorities(&current, minimum, authorities);
    started(limits, Transport::Tls(acceptor), client).await
}

async fn started(limits: Limits, transport: Transport, client: Client) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (arrived, release) = (arrived.clone(), release.clone());
        async move || {
            arrived.notify_one();
            release.notified().await;
            "at last"
        }
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route(
            "/slow",
            get(slow.clone()).post(async move |_: Bytes| slow().await),
        )
        .route(
            "/panic",
            get(async || -> &'static str { panic!("as the test asks for") }),
        )
        .route("/echo", post(async |body: Bytes| body));
    let (stop, stopped) = oneshot::channel();
    let shutdown = async {
        let _ = stopped.await;
    };
    let ended = tokio::spawn(serve(listener, transport, router, limits, shutdown));
    Running {
        address,
        client,
        stop: Some(stop),
        ended,
        arrived,
        release,
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<IO: AsyncRead + AsyncWrite + Unpin + Send> Stream for IO {}

/// The connection of one client.
pub(super) struct Connected(pub(super) Box<dyn Stream>);

impl Running {
    pub(super) async fn connect(&self) -> Connected {
        let stream = TcpStream::connect(self.address).await.unwrap();
        Connected(Box::new(self.client.connect(stream).await.unwrap()))
    }

    /// Returns a client whose request has arrived, and is not answered before the test releases it.
    pub(super) async fn asked_slowly(&self) -> Connected {
        let mut slow = self.connect().await;
        slow.send("GET /slow HTTP/1.1\r\nhost: webhook\r\n\r\n")
            .await;
        self.arrived.notified().await;
        slow
    }

    /// Returns true if a client gets an answer when it presents a certificate of `authority`, or none.
    pub(super) async fn lets_in(&self, authority: Option<&ClientAuthority>) -> bool {
        let client = match authority {
            None => self.client.clone(),
            Some(authority) => self.client.with_certificate_of(authority),
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        // In TLS 1.3 the client's handshake ends before the server has checked the client's certificate.
        let Ok(mut stream) = client.connect(stream).await else {
            return false;
        };
        let request = b"GET / HTTP/1.1\r\nhost: webhook\r\nconnection: close\r\n\r\n";
        let mut answer = Vec::new();
        let _ = stream.write_all(request).await;
        let _ = stream.read_to_end(&mut answer).await;
        answer.ends_with(b"hello")
    }

    /// Opens a connection that does not even begin a handshake.
    pub(super) async fn connect_without_tls(&self) -> Connected {
        Connected(Box::new(TcpStream::connect(self.address).await.unwrap()))
    }

    /// Opens a connection whose client says hello, reads the answer, and then goes silent.
    pub(super) async fn connect_and_leave_the_handshake(&self) -> Connected {
        let (near, mut far) = tokio::io::duplex(16 * 1024);
        let client = self.client.clone();
        let hello = tokio::spawn(async move { client.connect(near).await });
        let mut bytes = vec![0; 16 * 1024];
        let length = far.read(&mut bytes).await.unwrap();
        hello.abort();
        let mut connected = self.connect_without_tls().await;
        connected.0.write_all(&bytes[..length]).await.unwrap();
        connected.0.read_u8().await.expect("the server's answer");
        connected
    }

    pub(super) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(super) async fn ended(self) {
        timeout(Duration::from_secs(10), self.ended)
            .await
            .expect("the server ends")
            .unwrap();
    }
}

impl Connected {
    pub(super) async fn ask(&mut self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: webhook\r\n\r\n"))
            .await;
        self.answer().await
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Reads one response: its head, and as much of a body as the head announces.
    pub(super) async fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            let byte = timeout(Duration::from_secs(10), self.0.read_u8())
                .await
                .expect("an answer in time");
            answer.push(byte.expect("the whole answer before the end"));
        }
        String::from_utf8(answer).unwrap()
    }

    /// Waits for the server to end the connection, and returns how long that took.
    pub(super) async fn closed(&mut self) -> Duration {
        let (began, mut rest) = (Instant::now(), Vec::new());
        let _ = timeout(Duration::from_secs(10), self.0.read_to_end(&mut rest))
            .await
            .expect("the server closes");
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        began.elapsed()
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

/// Returns true if an answer tells the client not to use the connection again.
pub(super) fn says_close(answer: &str) -> bool {
    answer.contains("\r\nconnection: close\r\n")
}

const NAME: &str = "webhook.test.svc";
