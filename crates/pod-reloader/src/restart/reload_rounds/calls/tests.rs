//! Calls of servers on this machine.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers one request with this text. Returns the address, and the request that comes.
async fn server(answer: String) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = connection.read(&mut request).await.unwrap();
        request.truncate(read);
        // The other side may not want all of it.
        let _ = connection.write_all(answer.as_bytes()).await;
        String::from_utf8(request).unwrap()
    });
    (address, served)
}

async fn asked(answer: &str) -> (Answer, String) {
    let (address, served) = server(answer.to_owned()).await;
    let answer = over_http()(address, "/-/reload?x=1".into()).await;
    (answer, served.await.unwrap())
}

#[tokio::test]
async fn a_pod_is_asked_by_an_empty_post() {
    let (answer, request) = asked("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(answer, Answer::Status(200, None));
    let request = request.to_lowercase();
    assert!(
        request.starts_with("post /-/reload?x=1 http/1.1\r\n"),
        "{request}"
    );
    for line in [
        "host: 127.0.0.1:",
        "user-agent: pod-reloader/",
        "content-length: 0",
    ] {
        assert!(request.contains(&format!("\r\n{line}")), "{request}");
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_a_pause_is_read() {
    let (answer, _) =
        asked("HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
            .await;
    assert_eq!(answer, Answer::Status(307, None));
    let (answer, _) =
        asked("HTTP/1.1 503 Wait\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(answer, Answer::Status(503, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_none_at_all_harms_nobody() {
    let body = "x".repeat(1 << 20);
    let (answer, _) = asked(&format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n{body}"
    ))
    .await;
    assert_eq!(answer, Answer::Status(200, None));
    let (answer, _) = asked("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nbroken").await;
    assert_eq!(answer, Answer::Status(200, None));
    let head = "y".repeat(1 << 20);
    let (answer, _) = asked(&format!("HTTP/1.1 200 OK\r\nX: {head}\r\n\r\n")).await;
    assert_eq!(answer, Answer::None);
    let (answer, _) = asked("this is not HTTP\r\n\r\n").await;
    assert_eq!(answer, Answer::None);
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    assert_eq!(over_http()(closed, "/".into()).await, Answer::None);
}

#[tokio::test(start_paused = true)]
async fn one_namespace_takes_no_more_than_its_share() {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (running.clone(), most.clone());
    let ask: Ask = Box::new(move |_, _| {
        let (now, peak) = (now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Answer::None
        }
        .boxed()
    });
    let client = crate::mock::client(|_, _| std::future::ready(Err((404, "NotFound"))));
    let calls = Arc::new(Calls::new(client, Budget::new(), ask));
    let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let many = |namespace: &'static str, calls: &Arc<Calls>| {
        let tasks = (0..40).map(|_| {
            let calls = calls.clone();
            tokio::spawn(async move {
                let namespace = Name::parse(namespace).unwrap();
                calls.ask(&namespace, address, "/").await
            })
        });
        tasks.collect::<Vec<_>>()
    };
    let one = many("one", &calls);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(most.load(Ordering::Relaxed), SHARE);
    let other = many("other", &calls);
    for task in one.into_iter().chain(other) {
        task.await.unwrap();
    }
    assert_eq!(most.load(Ordering::Relaxed), 2 * SHARE);
}
