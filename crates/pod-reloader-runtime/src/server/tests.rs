//! Tests clients of every kind against a server with short limits.

mod running;

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use webhook_certs::ClientAuthorities;
use webhook_certs::testing::client_authority;

use super::Limits;
use running::{limited, says_close, start, start_for, start_plain};

/// A limit that is long enough for a healthy client on a busy machine, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let server = start(Limits::default()).await;
    let mut connected = server.connect().await;
    for _ in 0..3 {
        let answer = connected.ask("/").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"),
            "{answer}"
        );
        assert!(!says_close(&answer));
    }
}

#[tokio::test]
async fn a_body_larger_than_the_buffer_passes() {
    let server = start(Limits::default()).await;
    let mut connected = server.connect().await;
    let body = "x".repeat(1024 * 1024);
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: webhook\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connected.send(&(head + &body)).await;
    let mut echoed = vec![0; body.len()];
    connected.0.read_exact(&mut echoed).await.unwrap();
    assert!(echoed.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_client_that_begins_no_handshake_is_closed() {
    let server = limited(|limits| limits.handshake = SHORT).await;
    let mut silent = server.connect_without_tls().await;
    assert!(silent.closed().await < Limits::default().handshake);
}

#[tokio::test]
async fn silence_after_the_handshake_is_closed_and_takes_nothing_from_others() {
    let server = limited(|limits| limits.first_byte = SHORT).await;
    let mut silent = server.connect().await;
    let mut healthy = server.connect().await;
    healthy.ask("/").await;
    assert!(silent.closed().await < Limits::default().first_byte);
    healthy.ask("/").await;
}

#[tokio::test]
async fn half_a_header_is_closed_as_a_first_request_and_as_a_later_one() {
    let server = limited(|limits| limits.headers = SHORT).await;
    let (mut first, mut later) = (server.connect().await, server.connect().await);
    later.ask("/").await;
    for half in [&mut first, &mut later] {
        half.send("GET / HTTP/1.1\r\nhost: web").await;
        assert!(half.closed().await < Limits::default().headers);
    }
}

#[tokio::test]
async fn an_idle_connection_outlives_the_limits_of_a_new_one() {
    let server = limited(|limits| {
        limits.handshake = SHORT;
        limits.first_byte = SHORT;
        limits.headers = SHORT;
    })
    .await;
    let mut idle = server.connect().await;
    idle.ask("/").await;
    for mut passing_time in [server.connect_without_tls().await, server.connect().await] {
        passing_time.closed().await;
    }
    assert!(idle.ask("/").await.ends_with("hello"));
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_the_end() {
    let server = limited(|limits| limits.idle = SHORT).await;
    let mut idle = server.connect().await;
    idle.ask("/").await;
    assert!(idle.closed().await >= SHORT / 2);
}

#[tokio::test]
async fn a_slow_answer_outlives_the_limits_on_waiting() {
    let limits = Limits {
        first_byte: SHORT,
        headers: SHORT,
        idle: SHORT,
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut slow = server.asked_slowly().await;
    server.connect().await.closed().await;
    server.release.notify_one();
    assert!(slow.answer().await.ends_with("at last"));
}

#[tokio::test]
async fn an_answer_that_never_comes_is_closed_in_the_end() {
    let server = limited(|limits| limits.answer = SHORT).await;
    let mut slow = server.connect().await;
    slow.send("GET /slow HTTP/1.1\r\nhost: webhook\r\n\r\n")
        .await;
    assert!(slow.closed().await < Limits::default().answer);
}

#[tokio::test]
async fn a_body_that_trickles_in_is_closed_in_the_end() {
    let server = limited(|limits| limits.answer = SHORT).await;
    let mut slow = server.connect().await;
    slow.send("POST /echo HTTP/1.1\r\nhost: webhook\r\ncontent-length: 9\r\n\r\nx")
        .await;
    assert!(slow.closed().await < Limits::default().answer);
}

#[tokio::test]
async fn at_the_limit_a_silent_connection_makes_room_and_an_idle_one_does_not() {
    let server = limited(|limits| limits.connections = 3).await;
    let mut idle = server.connect().await;
    idle.ask("/").await;
    let mut oldest = server.connect_without_tls().await;
    let mut newer = server.connect().await;
    let mut newest = server.connect().await;
    assert!(oldest.closed().await < Limits::default().handshake);
    for served in [&mut idle, &mut newer, &mut newest] {
        assert!(served.ask("/").await.ends_with("hello"));
    }
}

#[tokio::test]
async fn at_the_limit_a_body_that_does_not_come_makes_room() {
    let server = limited(|limits| limits.connections = 2).await;
    let mut slow = server.connect().await;
    slow.send("POST /echo HTTP/1.1\r\nhost: webhook\r\ncontent-length: 9\r\n\r\nx")
        .await;
    let mut answering = server.connect().await;
    answering
        .send("POST /slow HTTP/1.1\r\nhost: webhook\r\ncontent-length: 1\r\n\r\nx")
        .await;
    server.arrived.notified().await;
    let mut newest = server.connect().await;
    slow.closed().await;
    assert!(newest.ask("/").await.ends_with("hello"));
    server.release.notify_one();
    assert!(answering.answer().await.ends_with("at last"));
}

#[tokio::test]
async fn at_the_limit_the_longest_idle_makes_room_before_any_that_is_being_answered() {
    let server = limited(|limits| limits.connections = 2).await;
    let mut slow = server.asked_slowly().await;
    let mut idle = server.connect().await;
    idle.ask("/").await;
    let mut newest = server.connect().await;
    idle.closed().await;
    assert!(newest.ask("/").await.ends_with("hello"));
    server.release.notify_one();
    assert!(slow.answer().await.ends_with("at last"));
}

#[tokio::test]
async fn at_the_limit_idle_connections_leave_newcomers_the_time_to_ask() {
    let server = start_plain(Limits {
        connections: 8,
        ..Limits::default()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut connected = server.connect_without_tls().await;
        connected.ask("/").await;
        idle.push(connected);
    }
    let mut newcomer = server.connect_without_tls().await;
    idle[0].closed().await;
    let _next = server.connect_without_tls().await;
    idle[1].closed().await;
    assert!(newcomer.ask("/").await.ends_with("hello"));
}

#[tokio::test]
async fn a_burst_of_connections_drops_none_of_its_own_before_it_was_read() {
    let server = start_plain(Limits::of_a_small_port()).await;
    // All of them wait to be accepted when the server's turn comes.
    let connect = || std::net::TcpStream::connect(server.address).unwrap();
    let mut first = connect();
    let request = b"GET / HTTP/1.1\r\nhost: probes\r\nconnection: close\r\n\r\n";
    std::io::Write::write_all(&mut first, request).unwrap();
    let _burst: Vec<_> = (0..2 * Limits::of_a_small_port().connections)
        .map(|_| connect())
        .collect();
    first.set_nonblocking(true).unwrap();
    let mut answer = String::new();
    let mut first = TcpStream::from_std(first).unwrap();
    let read = first.read_to_string(&mut answer).await;
    assert!(read.is_ok() && answer.ends_with("hello"), "{answer:?}");
}

#[tokio::test]
async fn a_small_port_full_of_silent_connections_answers_a_probe() {
    let server = start_plain(Limits::of_a_small_port()).await;
    let mut waiting = Vec::new();
    for number in 0..Limits::of_a_small_port().connections {
        let mut connected = server.connect_without_tls().await;
        if number % 2 == 0 {
            connected.send("GET / HTTP/1.1\r\nhost: pro").await;
        }
        waiting.push(connected);
    }
    let mut probe = server.connect_without_tls().await;
    assert!(probe.ask("/").await.ends_with("hello"));
}

#[tokio::test]
async fn without_tls_silence_and_half_a_header_are_closed() {
    let limits = Limits {
        first_byte: SHORT,
        headers: SHORT,
        ..Limits::of_a_small_port()
    };
    let server = start_plain(limits).await;
    let (mut silent, mut half) = (
        server.connect_without_tls().await,
        server.connect_without_tls().await,
    );
    half.send("GET / HTTP/1.1\r\nhost: pro").await;
    for waiting in [&mut silent, &mut half] {
        assert!(waiting.closed().await < Limits::of_a_small_port().headers);
    }
}

#[tokio::test]
async fn without_tls_headers_without_end_are_refused_before_they_take_up_memory() {
    let server = start_plain(Limits::of_a_small_port()).await;
    let mut endless = server.connect_without_tls().await;
    let headers = "x".repeat(20 * 1024);
    let _ = endless
        .0
        .write_all(format!("GET / HTTP/1.1\r\nx: {headers}").as_bytes())
        .await;
    let answer = endless.answer().await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn clients_that_leave_their_handshake_keep_nobody_out() {
    let server = limited(|limits| limits.handshakes = 1).await;
    let _silent = server.connect_without_tls().await;
    let mut half_hello = server.connect_without_tls().await;
    half_hello
        .0
        .write_all(&[0x16, 0x03, 0x01, 0x02])
        .await
        .unwrap();
    let _answered = server.connect_and_leave_the_handshake().await;
    let began = Instant::now();
    assert!(server.connect().await.ask("/").await.ends_with("hello"));
    assert!(began.elapsed() < Limits::default().handshake);
}

#[tokio::test]
async fn a_client_that_does_not_speak_tls_ends_only_its_own_connection() {
    let server = start(Limits::default()).await;
    let mut plain = server.connect_without_tls().await;
    plain.send("GET / HTTP/1.1\r\nhost: webhook\r\n\r\n").await;
    let mut alert = Vec::new();
    let _ = plain.0.read_to_end(&mut alert).await;
    assert!(server.connect().await.ask("/").await.ends_with("hello"));
}

#[tokio::test]
async fn a_panic_is_a_500_for_that_request_only() {
    let server = start(Limits::default()).await;
    let mut connected = server.connect().await;
    assert!(connected.ask("/panic").await.starts_with("HTTP/1.1 500 "));
    assert!(connected.ask("/").await.ends_with("hello"));
}

#[tokio::test]
async fn while_draining_old_and_new_connections_are_served_and_asked_to_close() {
    let mut server = start(Limits::default()).await;
    let (mut slow, mut idle) = (server.connect().await, server.connect().await);
    idle.ask("/").await;
    slow.send("GET /slow HTTP/1.1\r\nhost: webhook\r\n\r\n")
        .await;
    server.arrived.notified().await;
    server.stop();
    // The server notices the signal some time after it is sent. Until then, answers do not announce the
    // close.
    while !says_close(&server.connect().await.ask("/").await) {}

    let answer = idle.ask("/").await;
    assert!(says_close(&answer) && answer.ends_with("hello"), "{answer}");
    idle.closed().await;
    server.release.notify_one();
    let answer = slow.answer().await;
    assert!(
        says_close(&answer) && answer.ends_with("at last"),
        "{answer}"
    );
}

#[tokio::test]
async fn requests_in_flight_at_the_end_of_the_drain_finish_and_idle_connections_close() {
    let mut server = limited(|limits| limits.drain = Duration::ZERO).await;
    let (mut slow, mut idle, mut silent) = (
        server.connect().await,
        server.connect().await,
        server.connect_without_tls().await,
    );
    idle.ask("/").await;
    slow.send("GET /slow HTTP/1.1\r\nhost: webhook\r\n\r\n")
        .await;
    server.arrived.notified().await;
    server.stop();
    idle.closed().await;
    silent.closed().await;
    assert!(TcpStream::connect(server.address).await.is_err());

    server.release.notify_one();
    assert!(slow.answer().await.ends_with("at last"));
    server.ended().await;
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off() {
    let mut server = limited(|limits| {
        limits.drain = Duration::ZERO;
        limits.finish = SHORT;
    })
    .await;
    let mut slow = server.asked_slowly().await;
    server.stop();
    slow.closed().await;
    server.ended().await;
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_right_ca_are_let_in() {
    let (right, wrong) = (client_authority(), client_authority());
    let authorities = ClientAuthorities::new();
    let server = start_for(Limits::default(), &authorities).await;
    let kinds = [None, Some(&wrong), Some(&right)];
    for certificate in kinds {
        assert!(!server.lets_in(certificate).await, "no CA is known yet");
    }
    authorities.replace(right.pem.clone().into()).unwrap();
    for (certificate, expected) in kinds.into_iter().zip([false, false, true]) {
        assert_eq!(server.lets_in(certificate).await, expected);
    }
    let both = right.pem.clone() + &wrong.pem;
    assert!(authorities.replace(both.into()).unwrap());
    assert!(server.lets_in(Some(&right)).await && server.lets_in(Some(&wrong)).await);
    assert!(authorities.replace(wrong.pem.clone().into()).unwrap());
    assert!(!server.lets_in(Some(&right)).await && server.lets_in(Some(&wrong)).await);
}

#[tokio::test]
async fn a_bundle_of_cas_that_cannot_be_read_leaves_the_last_good_one_in_force() {
    let (ca, other) = (client_authority(), client_authority());
    let authorities = ClientAuthorities::new();
    let server = start_for(Limits::default(), &authorities).await;
    assert!(authorities.replace(ca.pem.clone().into()).unwrap());
    assert!(!authorities.replace(ca.pem.clone().into()).unwrap());
    let half = &other.pem[..other.pem.len() / 2];
    for broken in ["", "rubbish", half, &(other.pem.clone() + half)] {
        authorities.replace(broken.into()).unwrap_err();
    }
    authorities.reload(Path::new("/nowhere")).unwrap_err();
    assert!(server.lets_in(Some(&ca)).await && !server.lets_in(None).await);
}
