//! Tests notifications against a receiver that is an HTTPS server.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::object::WorkloadObject;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::scope::{Labels, Scope};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use webhook_certs::testing::write_pair;
use webhook_certs::{Acceptor, CertificateDirectory, CurrentCertificate, MinTlsVersion};

use super::retry::Failure;
use super::*;
use crate::mock;

/// A part of every URL here. It must never show up anywhere else.
const CREDENTIAL: &str = "T0KEN";

#[tokio::test]
async fn a_message_arrives_by_https() {
    let receiver = Receiver::start([]).await;
    let outbox = receiver.outbox();
    outbox.send(json!({"text": "hello"})).await;
    assert_eq!(receiver.bodies(), [json!({"text": "hello"})]);
    assert_eq!(counted(&outbox), [1, 0, 0]);
}

#[tokio::test]
async fn only_errors_that_may_pass_are_retried() {
    let receiver = Receiver::start([answer(503), answer(500), answer(200)]).await;
    let outbox = receiver.outbox();
    outbox.send(json!({})).await;
    assert_eq!((receiver.calls(), counted(&outbox)), (3, [1, 0, 0]));
    receiver.answers([answer(404)]);
    outbox.send(json!({})).await;
    assert_eq!((receiver.calls(), counted(&outbox)), (4, [1, 1, 0]));
}

#[tokio::test]
async fn a_receiver_that_always_fails_is_given_up() {
    let receiver = Receiver::start((0..9).map(|_| answer(503))).await;
    let outbox = receiver.outbox();
    outbox.send(json!({})).await;
    assert_eq!((receiver.calls(), counted(&outbox)), (3, [0, 1, 0]));
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_pause_gets_it() {
    let asked = Answer {
        retry_after: Some("1"),
        ..answer(429)
    };
    let receiver = Receiver::start([asked, answer(200)]).await;
    let outbox = receiver.outbox();
    let start = Instant::now();
    outbox.send(json!({})).await;
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!((receiver.calls(), counted(&outbox)), (2, [1, 0, 0]));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_is_not_waited_for() {
    let silent = Answer {
        is_silent: true,
        ..answer(200)
    };
    let receiver = Receiver::start([silent]).await;
    let outbox = receiver.outbox();
    let failure = outbox.sink.send(&json!({}), &outbox.patience).await;
    assert!(matches!(failure, Err(Failure::TimedOut(_))), "{failure:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for status in [301, 302, 307, 308] {
        let elsewhere = Receiver::start([]).await;
        let redirect = Answer {
            location: Some(elsewhere.url()),
            ..answer(status)
        };
        let receiver = Receiver::start([redirect]).await;
        let outbox = receiver.outbox();
        outbox.send(json!({})).await;
        assert_eq!(counted(&outbox), [0, 1, 0]);
        assert_eq!((receiver.calls(), elsewhere.calls()), (1, 0), "{status}");
    }
}

#[tokio::test]
async fn a_receiver_with_an_untrusted_certificate_gets_nothing() {
    let receiver = Receiver::start([]).await;
    let outbox = Outbox {
        sink: Sink::new(receiver.url_file(), None, None),
        ..receiver.outbox()
    };
    let failure = outbox.sink.send(&json!({}), &outbox.patience).await;
    let failure = failure.unwrap_err().to_string();
    assert!(failure.contains("certificate"), "{failure}");
    assert_eq!(receiver.calls(), 0);
}

#[tokio::test]
async fn an_unusable_file_of_authorities_fails_messages_until_it_is_usable() {
    let receiver = Receiver::start([]).await;
    let ca_file = receiver.directory.path().join("ca.crt");
    let outbox = Outbox {
        sink: Sink::new(receiver.url_file(), Some(ca_file.clone()), None),
        ..receiver.outbox()
    };
    let fails = async || {
        let failure = outbox.sink.send(&json!({}), &outbox.patience).await;
        assert!(
            matches!(failure, Err(Failure::BadAuthorities(_))),
            "{failure:?}"
        );
    };
    fails().await;
    for useless in ["", "no CA", "-----BEGIN CERTIFICATE-----\n"] {
        fs::write(&ca_file, useless).unwrap();
        fails().await;
    }
    assert!(outbox.sink.check().is_err());
    fs::copy(receiver.ca_file(), &ca_file).unwrap();
    outbox.send(json!({})).await;
    assert_eq!((receiver.calls(), counted(&outbox)), (1, [1, 0, 0]));
}

#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel() {
    let receiver = Receiver::start([]).await;
    let (proxy, asked) = proxy().await;
    let sink = Sink::new(receiver.url_file(), Some(receiver.ca_file()), Some(proxy));
    let outbox = Outbox {
        sink,
        ..receiver.outbox()
    };
    outbox.send(json!({})).await;
    assert_eq!((receiver.calls(), counted(&outbox)), (1, [1, 0, 0]));
    let expected = format!("CONNECT localhost:{} HTTP/1.1", receiver.address.port());
    assert_eq!(asked.lock().first(), Some(&expected));
}

#[tokio::test]
async fn the_url_is_read_anew_and_never_shown() {
    let receiver = Receiver::start([]).await;
    let outbox = receiver.outbox();
    let mut failures = Vec::new();
    for url in [
        "",
        "no url",
        &format!("ftp://localhost/{CREDENTIAL}"),
        &format!("https://{CREDENTIAL}@localhost/"),
        // Nobody listens on these ports.
        &format!("https://localhost:1/{CREDENTIAL}"),
        &format!("https://[::ffff:127.0.0.1]:1/{CREDENTIAL}"),
    ] {
        fs::write(receiver.url_file(), url).unwrap();
        let failure = outbox.sink.send(&json!({}), &outbox.patience).await;
        failures.push(failure.unwrap_err());
    }
    fs::remove_file(receiver.url_file()).unwrap();
    let failure = outbox.sink.send(&json!({}), &outbox.patience).await;
    failures.push(failure.unwrap_err());
    for failure in failures {
        let told = format!("{failure} {failure:?}");
        assert!(!told.contains(CREDENTIAL), "{told}");
    }
    fs::write(receiver.url_file(), format!(" {}\n", receiver.url())).unwrap();
    outbox.send(json!({})).await;
    assert_eq!(counted(&outbox), [1, 0, 0]);
}

#[tokio::test]
async fn messages_that_arrive_while_too_many_wait_are_dropped_and_counted() {
    let receiver = Receiver::start([]).await;
    let metrics = Metrics::new();
    let (notifications, _unsent) = Notifications::new(
        receiver.sink(),
        style(),
        NotifyOn::All,
        metrics.clone(),
        CancellationToken::new(),
    );
    let web = workload("web");
    for _ in 0..BACKLOG + 3 {
        notifications.publish(&web, &notice());
    }
    assert_eq!(counts(&metrics), [0, 0, 3]);
}

#[tokio::test]
async fn a_fan_out_is_one_message_even_while_the_receiver_is_slow() {
    let receiver = Receiver::start([answer(503), answer(200)]).await;
    let (notifications, sending, metrics, stop) = of_restarts(&receiver);
    let sending = tokio::spawn(sending);
    for number in 0..1000 {
        notifications.publish(&workload(&format!("web-{number}")), &notice());
        notifications.publish(&workload("web"), &Notice::Braked(Duration::ZERO));
    }
    receiver.called(2).await;
    let bodies = receiver.bodies();
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(bodies[0]["text"], "pod-reloader: 1000 workloads");
    stop.cancel();
    sending.await.unwrap();
    assert_eq!((receiver.calls(), counts(&metrics)), (2, [1, 0, 0]));
}

#[tokio::test]
async fn waiting_messages_are_sent_before_the_process_stops() {
    let receiver = Receiver::start([]).await;
    let (notifications, sending, metrics, stop) = of_restarts(&receiver);
    notifications.publish(&workload("web"), &notice());
    stop.cancel();
    sending.await;
    assert_eq!((receiver.calls(), counts(&metrics)), (1, [1, 0, 0]));
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_does_not_keep_the_process_from_stopping() {
    let silent = Answer {
        is_silent: true,
        ..answer(200)
    };
    let receiver = Receiver::start([silent]).await;
    let (notifications, sending, metrics, stop) = of_restarts(&receiver);
    notifications.publish(&workload("web"), &notice());
    stop.cancel();
    let start = Instant::now();
    sending.await;
    assert!(start.elapsed() < FAREWELL * 2);
    assert_eq!(counts(&metrics), [0, 1, 0]);
}

#[tokio::test]
async fn a_message_that_waits_for_its_retry_does_not_block_others_at_shutdown() {
    let later = Answer {
        retry_after: Some("60"),
        ..answer(503)
    };
    let receiver = Receiver::start([later]).await;
    let (notifications, sending, metrics, stop) = of_restarts(&receiver);
    let sending = tokio::spawn(sending);
    notifications.publish(&workload("web"), &notice());
    receiver.called(1).await;
    notifications.publish(&workload("api"), &notice());
    stop.cancel();
    sending.await.unwrap();
    assert_eq!((receiver.calls(), counts(&metrics)), (3, [2, 0, 0]));
    notifications.publish(&workload("late"), &notice());
    assert_eq!(counts(&metrics), [2, 0, 0], "it is not one of too many");
}

/// Returns notifications of restarts, the task that sends them to `receiver`, their metrics, and the token
/// that stops it.
fn of_restarts(
    receiver: &Receiver,
) -> (
    Notifications,
    impl Future<Output = ()> + use<>,
    Metrics,
    CancellationToken,
) {
    let metrics = Metrics::new();
    let stop = CancellationToken::new();
    let (notifications, sending) = Notifications::new(
        receiver.sink(),
        style(),
        NotifyOn::Restarts,
        metrics.clone(),
        stop.clone(),
    );
    (notifications, sending, metrics, stop)
}

pub(super) fn reference(name: &str) -> Reference {
    Reference {
        kind: ConfigKind::Secret,
        ..mock::reference(name)
    }
}

pub(super) fn workload(name: &str) -> Workload {
    let scope = Scope::new([], mock::name("operator"));
    let scope = scope.with(Labels::default(), Dialects::default());
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"template": {}},
    });
    let object: WorkloadObject = serde_json::from_value(object).unwrap();
    scope.read(WorkloadKind::DEPLOYMENT, object).unwrap()
}

/// Returns the news that a workload was restarted because of these Secrets.
pub(super) fn restarted(name: &str, secrets: &[&str]) -> News {
    let changed = secrets.iter().map(|name| reference(name)).collect();
    News::of(&workload(name), &Notice::Restarted(Cause::Changed, changed)).unwrap()
}

pub(super) fn time() -> Timestamp {
    "2026-11-21T20:00:00Z".parse().unwrap()
}

fn notice() -> Notice {
    Notice::Restarted(Cause::Changed, vec![reference("db")])
}

fn style() -> Style {
    Style {
        format: NotifyFormat::Webhook,
        cluster: None,
    }
}

/// Returns how many messages were sent, how many failed, and how many were dropped.
fn counts(metrics: &Metrics) -> [u64; 3] {
    let text = metrics.text();
    ["sent", "failed", "dropped"].map(|outcome| {
        let name = format!("pod_reloader_notifications_total{{outcome=\"{outcome}\"}} ");
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix(&name));
        count.unwrap().parse().unwrap()
    })
}

fn counted(outbox: &Outbox) -> [u64; 3] {
    counts(&outbox.metrics)
}

/// An answer of the receiver.
#[derive(Clone, Default)]
struct Answer {
    status: u16,
    retry_after: Option<&'static str>,
    location: Option<String>,
    is_silent: bool,
}

fn answer(status: u16) -> Answer {
    Answer {
        status,
        ..Answer::default()
    }
}

/// An HTTPS server on localhost. It gives the answers that it was told to, and after that accepts
/// everything.
struct Receiver {
    address: SocketAddr,
    directory: TempDir,
    answers: Arc<Mutex<Vec<Answer>>>,
    bodies: watch::Sender<Vec<Value>>,
}

impl Receiver {
    async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        let now = SystemTime::now();
        write_pair(directory.path(), "localhost", now - day, now + day);
        let certificate = CurrentCertificate::new();
        let files = CertificateDirectory::new(directory.path());
        certificate.reload(&files).unwrap();
        let acceptor = Acceptor::new(&certificate, MinTlsVersion::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            directory,
            answers: Arc::default(),
            bodies: watch::Sender::new(Vec::new()),
        };
        receiver.answers(answers);
        fs::write(receiver.url_file(), receiver.url()).unwrap();
        let (answers, bodies) = (receiver.answers.clone(), receiver.bodies.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, answers, bodies) =
                    (acceptor.clone(), answers.clone(), bodies.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(async |request| {
                        Ok::<_, hyper::Error>(respond(request, &answers, &bodies).await)
                    });
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        receiver
    }

    fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        *self.answers.lock() = answers;
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/{CREDENTIAL}", self.address.port())
    }

    fn url_file(&self) -> PathBuf {
        self.directory.path().join("url")
    }

    fn ca_file(&self) -> PathBuf {
        self.directory.path().join("tls.crt")
    }

    fn sink(&self) -> Sink {
        Sink::new(self.url_file(), Some(self.ca_file()), None)
    }

    fn outbox(&self) -> Outbox {
        Outbox {
            sink: self.sink(),
            style: style(),
            patience: Patience {
                deadline: Duration::from_secs(1),
                tries: 3,
                first_pause: Duration::from_millis(10),
                ..Patience::default()
            },
            metrics: Metrics::new(),
            stop: CancellationToken::new(),
        }
    }

    fn bodies(&self) -> Vec<Value> {
        self.bodies.borrow().clone()
    }

    fn calls(&self) -> usize {
        self.bodies.borrow().len()
    }

    async fn called(&self, times: usize) {
        let mut bodies = self.bodies.subscribe();
        let called = bodies.wait_for(|bodies| bodies.len() >= times);
        let patience = Duration::from_secs(30);
        drop(timeout(patience, called).await.unwrap().unwrap());
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: &Mutex<Vec<Answer>>,
    bodies: &watch::Sender<Vec<Value>>,
) -> Response<Full<Bytes>> {
    assert_eq!(request.uri().path(), format!("/{CREDENTIAL}"));
    assert_eq!(request.headers()["content-type"], "application/json");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap();
    let answer = answers.lock().pop().unwrap_or_else(|| answer(200));
    bodies.send_modify(|bodies| bodies.push(body));
    if answer.is_silent {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    for (name, value) in [
        ("retry-after", answer.retry_after.map(str::to_owned)),
        ("location", answer.location),
    ] {
        if let Some(value) = value {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}

/// Starts an HTTP proxy. Returns its URL, and the first lines of the requests that it gets.
async fn proxy() -> (http::Uri, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = asked.clone();
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let length = near.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let line = request.lines().next().unwrap().to_owned();
        let target: Authority = line.split(' ').nth(1).unwrap().parse().unwrap();
        noted.lock().push(line);
        let port = target.port_u16().unwrap();
        let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut near, &mut far).await;
    });
    (url.parse().unwrap(), asked)
}
