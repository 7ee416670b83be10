//! The ports of the operator under well-behaved and hostile clients, while the apiserver goes on calling the
//! webhook: no write fails, none bypasses it, and memory and file descriptors stay within their limits.

use std::{
    convert::Infallible,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{
    future::{join_all, try_join_all},
    stream::{self, StreamExt, TryStreamExt},
};
use http::StatusCode;
use k8s_openapi::ByteString;
use pod_reloader_e2e::{
    Options, PATIENCE, Scene,
    caller::{self, Answered, Caller, answer, chunked, create, request, update},
    done_if, full,
    load::{Latencies, under_load},
    proxy::{Answer, Fault, Requests, Rule},
    wait_for,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

#[tokio::test]
async fn requests_that_are_not_reviews_are_refused_while_writes_go_on() -> Result<()> {
    unharmed(Options::default(), async |scene, caller| {
        let review = create(&scene.namespace, &web()).to_string();
        let with = |member: &str, value: Value| {
            let mut review = create(&scene.namespace, &web());
            review["request"][member] = value;
            request(TIMEOUT, &review.to_string())
        };
        let beta = review.replace("admission.k8s.io/v1\"", "admission.k8s.io/v1beta1\"");
        let plain = String::from_utf8(request(TIMEOUT, &review))?;
        let head = |headers: &str| caller::head(TIMEOUT, headers).into_bytes();
        let lying = |length: usize| {
            let headers = format!("content-length: {length}\r\nconnection: close\r\n");
            [head(&headers), review.clone().into_bytes()].concat()
        };
        for (what, sent, status) in [
            ("no JSON", request(TIMEOUT, "{\"request\":"), 400),
            ("nothing", request(TIMEOUT, ""), 400),
            ("a list", request(TIMEOUT, "[]"), 400),
            ("no request", request(TIMEOUT, "{}"), 400),
            ("an older version", request(TIMEOUT, &beta), 400),
            ("no uid", with("uid", Value::Null), 400),
            ("no object", with("object", Value::Null), 400),
            (
                "another kind",
                with("kind", json!({"group": "", "kind": "Pod"})),
                200,
            ),
            (
                "another type",
                plain.replace("application/json", "text/plain").into(),
                415,
            ),
            (
                "another method",
                plain.replacen("POST", "GET", 1).into(),
                405,
            ),
            (
                "another path",
                plain.replacen("/mutate", "/validate", 1).into(),
                404,
            ),
            ("another protocol", b"EHLO webhook\r\n\r\n".to_vec(), 400),
            ("a length that is too small", lying(review.len() - 1), 400),
            ("a length that is none", head("content-length: -1\r\n"), 400),
            (
                "two lengths",
                head("content-length: 1\r\ncontent-length: 2\r\n"),
                400,
            ),
            (
                "40 MB, announced",
                head("content-length: 40000000\r\n"),
                413,
            ),
            (
                "more than a number holds",
                head("content-length: 99999999999999999999\r\n"),
                400,
            ),
        ] {
            let began = Instant::now();
            let answered = caller.send(&sent).await.context(what)?;
            ensure!(answered.status == status, "{what}: {answered:?}");
            ensure!(
                began.elapsed() < TIMEOUT,
                "{what}: after {:?}",
                began.elapsed()
            );
        }

        let gzip = head("content-encoding: gzip\r\ntransfer-encoding: chunked\r\n");
        let bomb = [&b"\x1f\x8b\x08"[..], &[0; 100_000]].concat();
        let answered = caller
            .send_in_parts([gzip].into_iter().chain(chunked(&bomb)))
            .await?;
        ensure!(answered.status == 400, "{answered:?}");

        let unannounced = || [head("transfer-encoding: chunked\r\n")].into_iter();
        let spaces = vec![b' '; 40_000_000];
        let answered = caller
            .send_in_parts(unannounced().chain(chunked(&spaces)))
            .await?;
        ensure!(answered.status == 413, "{answered:?}");
        let answered = caller
            .send_in_parts(unannounced().chain(chunked(review.as_bytes())))
            .await?;
        ensure!(patched(&answered)?, "{answered:?}");
        half_a_body(caller, &review).await
    })
    .await
}

#[tokio::test]
async fn thousands_of_slow_clients_hinder_nobody() -> Result<()> {
    unharmed(Options::default(), async |scene, caller| {
        let process = scene.operator.process();
        let files = process.open_files()?;
        let (mut waiting, mut idle) = (Waiting::default(), Vec::new());
        let slow = create(&scene.namespace, &web()).to_string();
        for _ in 0..500 {
            waiting.add(caller.reach().await?, b"").await;
            waiting.add(caller.reach().await?, HALF_A_HELLO).await;
        }
        // At the limit, some are closed before their handshake is done.
        let secure = join_all((0..1000).map(|_| caller.connect())).await;
        for (number, stream) in secure.into_iter().flatten().enumerate() {
            match number % 2 {
                0 => idle.push(stream),
                _ => waiting.add(stream, HALF_A_HEAD).await,
            }
        }
        let slow = join_all((0..200).map(|_| trickle(caller, &slow))).await;
        for answered in slow {
            let answered = answered?;
            ensure!(answered.status == 408, "{answered:?}");
        }
        waiting.closed().await?;
        // They may stay as long as a connection between two requests.
        drop(idle);
        files_are_back(scene, files).await
    })
    .await
}

#[tokio::test]
async fn half_open_connections_on_every_port_hold_up_neither_probes_nor_scrapes() -> Result<()> {
    const ROUNDS: usize = 30;
    // More than the webhook, and more than a small port, has open at once.
    let (at_webhook, at_small_port) = if full() { (2000, 2000) } else { (1200, 200) };
    unharmed(Options::default(), async |scene, caller| {
        let operator = &scene.operator;
        let files = operator.process().open_files()?;
        let small = small_requests_that_never_end();
        let kinds = [vec![], HALF_A_HELLO.to_vec()];
        let ports = [
            (caller.address(), &kinds[..], at_webhook),
            (operator.probes_address(), &small, at_small_port),
            (operator.metrics_address(), &small, at_small_port),
        ];
        let besiegers = ports.iter().flat_map(|(address, kinds, count)| {
            let kinds = kinds.iter().cycle().take(*count);
            kinds.map(move |sent| half_open(address, sent))
        });
        let besiegers = stream::iter(besiegers).buffer_unordered(64);
        let besiegers: Vec<_> = besiegers.try_collect().await?;
        let siege = try_join_all(besiegers.into_iter().map(HalfOpen::stay));
        let asked = async {
            let (mut failures, mut took) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                for path in ["/healthz", "/readyz"] {
                    let began = Instant::now();
                    failures.extend(operator.probe(path, PATIENCE).await.err());
                    took.push(began.elapsed());
                }
                let began = Instant::now();
                failures.extend(operator.metrics().await.err());
                took.push(began.elapsed());
            }
            let took = Latencies::from(took);
            eprintln!("probes and scrapes: {took}");
            ensure!(
                failures.is_empty(),
                "{} of {} failed: {failures:?}",
                failures.len(),
                3 * ROUNDS
            );
            // If they waited for other clients, most of them would wait until these are cut off.
            ensure!(took.of_a_hundred(50) < CUT_OFF, "{took}");
            Ok(())
        };
        tokio::select! {
            left = siege => bail!("the siege ended: {left:?}"),
            asked = asked => asked?,
        }
        files_are_back(scene, files).await
    })
    .await
}

#[tokio::test]
async fn a_flood_of_handshakes_hinders_nobody() -> Result<()> {
    unharmed(Options::default(), async |scene, caller| {
        let process = scene.operator.process();
        let files = process.open_files()?;
        let (clients, lasting) = if full() { (64, 30) } else { (12, 2) };
        let lasting = Duration::from_secs(lasting);
        let ends = Instant::now() + lasting;
        let floods = (0..clients).map(async |_| {
            let mut shaken = 0;
            while Instant::now() < ends {
                // A refused connection is fine: only the writes matter.
                shaken += usize::from(caller.connect().await.is_ok());
            }
            shaken
        });
        let shaken: usize = join_all(floods).await.into_iter().sum();
        eprintln!("{shaken} handshakes in {lasting:?}");
        files_are_back(scene, files).await
    })
    .await
}

#[tokio::test]
async fn http_2_is_not_spoken() -> Result<()> {
    unharmed(Options::default(), async |_, caller| {
        let only = caller.asking_for(&["h2"]).connect().await;
        ensure!(only.is_err(), "h2 was agreed on");
        let stream = caller.asking_for(&["h2", "http/1.1"]).connect().await?;
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        ensure!(agreed.as_deref() == Some(b"http/1.1"), "{agreed:?}");
        for protocols in [&[][..], &["http/1.1"]] {
            let mut stream = caller.asking_for(protocols).connect().await?;
            stream.write_all(H2_PREFACE).await?;
            stream.flush().await?;
            let mut answer = Vec::new();
            let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
            ensure!(read.is_ok(), "it stays open");
            ensure!(!answer.starts_with(b"\0\0"), "frames: {answer:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn idle_connections_of_the_apiserver_are_used_again() -> Result<()> {
    // Beyond every limit except that of idle connections; the apiserver retains its own for 90 s.
    let pauses: &[u64] = if full() {
        &[10, 30, 60, 85, 95, 120]
    } else {
        &[6]
    };
    Scene::play(Options::default(), async |scene| {
        for pause in pauses {
            under_load(scene, 8, async { Ok(()) }).await?;
            // The claim is about connections that have been idle for so long.
            sleep(Duration::from_secs(*pause)).await;
        }
        under_load(scene, 8, async { Ok(()) }).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn too_many_reviews_for_the_processor_are_answered_in_time_or_asked_to_come_again()
-> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let caller = &Caller::of(scene).await?;
        let limit = Duration::from_secs(30);
        let kinds = [
            create(&scene.namespace, &web()),
            update(&scene.namespace, &web()),
        ];
        let reviews = kinds.map(|review| request(limit, &review.to_string()));
        // The apiserver still has its earlier connections.
        let connections = stream::iter(0..600).map(async |_| {
            let mut stream = caller.connect().await?;
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: webhook\r\n\r\n")
                .await?;
            stream.flush().await?;
            ensure!(answer(&mut stream).await?.status == 404, "there is nothing");
            Ok(stream)
        });
        let mut connections: Vec<_> = connections.buffer_unordered(8).try_collect().await?;
        let began = Instant::now();
        let calls = join_all(connections.iter_mut().zip(reviews.iter().cycle()).map(
            async |(stream, review)| {
                stream.write_all(review).await?;
                stream.flush().await?;
                let answered = answer(stream).await?;
                anyhow::Ok((answered, began.elapsed()))
            },
        ));
        let calls = throttled(scene, calls).await;
        let (mut answered, mut later) = (0, 0);
        for call in calls? {
            let (call, after) = call?;
            match call.status {
                200 => answered += 1,
                503 => {
                    ensure!(call.head.contains("\r\nretry-after: 1"), "{call:?}");
                    later += 1;
                }
                _ => bail!("{call:?}"),
            }
            ensure!(after < limit, "after {after:?}");
        }
        eprintln!(
            "{answered} answered, {later} told to come again, {:?}",
            began.elapsed()
        );
        ensure!(answered > 0, "nobody got an answer");
        under_load(scene, 8, async { Ok(()) }).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_slow_apiserver_is_not_waited_for_beyond_the_timeout() -> Result<()> {
    let options = Options::proxied();
    unharmed(options, async |scene, caller| {
        let proxy = scene.proxy.as_ref().context("the scene has a proxy")?;
        let reads = Requests::containing("/configmaps/late-");
        let held = proxy.add(Rule::new(reads, Fault::Delay(PATIENCE)));
        let names: Vec<_> = (0..200).map(|number| format!("late-{number}")).collect();
        let workload = Workload::deployment("late").lists(&names.join(","));
        let review = request(
            Duration::from_secs(1),
            &create(&scene.namespace, &workload).to_string(),
        );
        let began = Instant::now();
        let answered = caller.send(&review).await?;
        let took = began.elapsed();
        ensure!(
            answered.status == 200 && !patched(&answered)?,
            "{answered:?}"
        );
        // The operator gives up a read after ten seconds.
        ensure!(took < Duration::from_secs(8), "after {took:?}");
        // No read follows now that reads get answers.
        held.remove();
        scene.quiet().await?;
        let begun = held.hits().matched;
        ensure!((1..=READS_AT_ONCE).contains(&begun), "{begun} reads");
        Ok(())
    })
    .await
}

// Several threads, because hundreds of megabytes go through the proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_reviews_and_secrets_take_little_memory() -> Result<()> {
    let options = Options::proxied();
    unharmed(options, async |scene, caller| {
        let proxy = scene.proxy.as_ref().context("the scene has a proxy")?;
        proxy.add(Rule::new(
            Requests::containing("/secrets/mebibyte-"),
            Fault::Answer(large_secret()),
        ));
        let process = scene.operator.process();
        eprintln!("at first {} MiB", process.peak_memory()? >> 20);

        let images: &[_] = if full() {
            &["app:1", "app:2"]
        } else {
            &["app:2"]
        };
        let rounds = if full() { 10 } else { 1 };
        for image in images.repeat(rounds) {
            let large = large_update(&scene.namespace, image);
            let announced = request(LONG_TIMEOUT, &large);
            let head = caller::head(LONG_TIMEOUT, "transfer-encoding: chunked\r\n");
            let unannounced = head.into_bytes();
            let calls = join_all((0..4).map(|_| caller.send(&announced)));
            let chunks = join_all((0..2).map(|_| {
                let parts = [unannounced.clone()].into_iter();
                caller.send_in_parts(parts.chain(chunked(large.as_bytes())))
            }));
            let (calls, chunks) = tokio::join!(calls, chunks);
            let calls = calls.into_iter().chain(chunks);
            let statuses: Vec<_> = calls.map(|call| call.map(|call| call.status)).collect();
            eprintln!(
                "{image}: {} MiB at most, {} now: {statuses:?}",
                process.peak_memory()? >> 20,
                process.resident_memory()? >> 20
            );
            let is_answered = |status: &Result<u16>| matches!(status, Ok(200));
            ensure!(statuses.iter().any(is_answered), "none was answered");
        }

        let count = if full() { 256 } else { 24 };
        let names: Vec<_> = (0..count)
            .map(|number| format!("mebibyte-{number}"))
            .collect();
        let workload = Workload::deployment("large").lists_secrets(&names.join(","));
        scene.apply(&[workload.manifest()]).await?;
        let reviews = create(&scene.namespace, &workload).to_string();
        let review = request(Duration::from_secs(10), &reviews);
        let calls = join_all((0..2).map(|_| caller.send(&review))).await;
        for call in calls {
            eprintln!("{:?}", call?.status);
        }
        wait_for("the hash of many large Secrets", PATIENCE, async || {
            done_if(scene.key(&workload).await?.is_some(), "none")
        })
        .await?;
        eprintln!(
            "after Secrets {} MiB, {} now",
            process.peak_memory()? >> 20,
            process.resident_memory()? >> 20
        );
        Ok(())
    })
    .await
}

// Several threads, because hundreds of megabytes are sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_full_of_tiny_items_take_little_memory_and_give_it_back() -> Result<()> {
    let options =
        Options::with_values(json!({"pin": {"enabled": true}, "protect": {"enabled": true}}));
    unharmed(options, async |scene, caller| {
        let process = scene.operator.process();
        let before = process.resident_memory()?;
        let rounds = if full() { 5 } else { 1 };
        for (what, path, review) in full_of_tiny_items(&scene.namespace) {
            ensure!(review.len() > 20_000_000, "{what}: {}", review.len());
            let sent = String::from_utf8(request(LONG_TIMEOUT, &review))?;
            let sent = sent.replacen("/mutate", path, 1);
            for _ in 0..rounds {
                let answered = caller.send(sent.as_bytes()).await.context(what)?;
                ensure!(answered.status == 200, "{what}: {answered:?}");
                let peak = process.peak_memory()?;
                eprintln!("{what}: {} MiB at most", peak >> 20);
                ensure!(peak < MEMORY, "{what}: {} MiB", peak >> 20);
            }
        }
        wait_for("the memory to be given back", PATIENCE, async || {
            let more = process.resident_memory()?.saturating_sub(before);
            done_if(more < 8 << 20, format!("{} KiB", more >> 10))
        })
        .await
    })
    .await
}

/// Returns reviews of more than 20 MB for each route, with what they are full of.
fn full_of_tiny_items(namespace: &str) -> Vec<(&'static str, &'static str, String)> {
    let names = (0_u32..2_200_000).map(|number| format!("{number:x}"));
    let names: Vec<_> = names.collect();
    let joined = |item: fn(&str) -> String| -> String {
        let items: Vec<_> = names.iter().map(|name| item(name)).collect();
        items.join(",")
    };
    let map = format!("{{{}}}", joined(|name| format!(r#""{name}":"""#)));
    let half = format!(
        "{{{}}}",
        &map[1..map[..map.len() / 2].rfind(',').unwrap_or(1)]
    );
    let pins = joined(|name| format!("{name}=ab"));
    let review = |kind: &str, operation: &str, objects: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{kind},"operation":"{operation}","namespace":"{namespace}",{objects}}}}}"#
        )
    };
    let deployment = r#"{"group":"apps","version":"v1","kind":"Deployment"}"#;
    let create = |object: &str| review(deployment, "CREATE", &format!(r#""object":{object}"#));
    let web = |template: &str| {
        format!(
            r#"{{"metadata":{{"name":"web","annotations":{{"pod-reloader.cs.sap.com/configmaps":"app"}}}},"spec":{{"template":{template}}}}}"#
        )
    };
    let other = half.replacen("\"0\":\"\"", "\"0\":\"x\"", 1);
    let both =
        [&half, &other].map(|labels| web(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#)));
    let update = format!(r#""object":{},"oldObject":{}"#, both[0], both[1]);
    let deleted = |protection: &str| {
        let old = format!(
            r#""oldObject":{{"metadata":{{"name":"app","namespace":"{namespace}","labels":{{"pod-reloader.cs.sap.com/protect":"{protection}",{}}}}}"#,
            &map[1..]
        );
        let kind = r#"{"group":"","version":"v1","kind":"ConfigMap"}"#;
        review(kind, "DELETE", &old)
    };
    let pod = format!(
        r#""object":{{"metadata":{{"annotations":{{"pod-reloader.cs.sap.com/pins":"{pins}"}}}},"spec":{{}}}}"#
    );
    vec![
        (
            "annotations",
            "/mutate",
            create(&format!(
                r#"{{"metadata":{{"annotations":{map}}},"spec":{{"template":{{}}}}}}"#
            )),
        ),
        (
            "annotations of a template",
            "/mutate",
            create(&web(&format!(r#"{{"metadata":{{"annotations":{map}}}}}"#))),
        ),
        (
            "templates that differ",
            "/mutate",
            review(deployment, "UPDATE", &update),
        ),
        (
            "pins",
            "/pods",
            review(
                r#"{"group":"","version":"v1","kind":"Pod"}"#,
                "CREATE",
                &pod,
            ),
        ),
        ("labels of what is in use", "/in-use", deleted("in-use")),
        ("labels of what comes back", "/keep", deleted("keep")),
    ]
}

/// Runs `test` while writes go on. Asserts that none fails, that none bypasses the webhook, and that the
/// operator is still the same process, within its memory.
async fn unharmed(
    options: Options,
    test: impl AsyncFnOnce(&Scene, &Caller) -> Result<()>,
) -> Result<()> {
    let mut options = options;
    // Clients and server share the processors of one machine.
    options.values["webhook"]["timeoutSeconds"] = json!(30);
    Scene::play(options, async |scene| {
        let process = scene.operator.process();
        let (pid, caller) = (process.pid(), Caller::of(scene).await?);
        scene.apply(&[config_map("app", "1")]).await?;
        let ((), latencies) = under_load(scene, 4, test(scene, &caller)).await?;
        process.must_run()?;
        ensure!(process.pid() == pid, "it was restarted");
        let peak = process.peak_memory()?;
        eprintln!(
            "{}: {latencies}, {} MiB at most",
            scene.namespace,
            peak >> 20
        );
        ensure!(peak < MEMORY, "{} MiB", peak >> 20);
        Ok(())
    })
    .await
}

/// Returns the beginnings of requests to a port without TLS, after which nothing comes: an empty one, more
/// headers than anybody reads, and a body.
fn small_requests_that_never_end() -> Vec<Vec<u8>> {
    let headers = format!("GET /healthz HTTP/1.1\r\nx: {}", "x".repeat(128 << 10));
    let body = "POST /metrics HTTP/1.1\r\nhost: pod\r\ncontent-length: 1000\r\n\r\nx";
    vec![vec![], headers.into_bytes(), body.into()]
}

/// A client that has begun a request and does not continue.
struct HalfOpen<'a> {
    address: &'a str,
    sent: &'a [u8],
    stream: TcpStream,
}

/// Connects to `address`, and sends `sent` as far as it is accepted.
async fn half_open<'a>(address: &'a str, sent: &'a [u8]) -> Result<HalfOpen<'a>> {
    let mut stream = TcpStream::connect(address).await?;
    // A connection that is refused, or makes room for another, is closed.
    let _ = timeout(Duration::from_secs(1), stream.write_all(sent)).await;
    Ok(HalfOpen {
        address,
        sent,
        stream,
    })
}

impl HalfOpen<'_> {
    /// Stays connected, and reconnects some time after it was closed.
    async fn stay(mut self) -> Result<Infallible> {
        loop {
            // An error is the end of the connection, too.
            let _ = self.stream.read_to_end(&mut Vec::new()).await;
            // A pace, not a wait: clients that reconnected at once would be a flood, which another test is about.
            sleep(Duration::from_secs(5)).await;
            self.stream = half_open(self.address, self.sent).await?.stream;
        }
    }
}

/// Clients that make the server wait.
#[derive(Default)]
struct Waiting(Vec<Box<dyn Client>>);

trait Client: AsyncRead + AsyncWrite + Unpin {}
impl<IO: AsyncRead + AsyncWrite + Unpin> Client for IO {}

impl Waiting {
    /// Adds a client that sends `sent`, and then nothing.
    async fn add(&mut self, mut stream: impl Client + 'static, sent: &[u8]) {
        // The connection may already have been closed to make room.
        let _ = stream.write_all(sent).await;
        let _ = stream.flush().await;
        self.0.push(Box::new(stream));
    }

    /// Waits until the server has closed all connections.
    async fn closed(self) -> Result<()> {
        let ends = self.0.into_iter().map(async |mut stream| {
            let mut alert = Vec::new();
            // An error is the end of the connection, too.
            let _ = stream.read_to_end(&mut alert).await;
        });
        timeout(PATIENCE, join_all(ends))
            .await
            .context("some stay open")?;
        Ok(())
    }
}

/// Sends `review`, one byte a second.
async fn trickle(caller: &Caller, review: &str) -> Result<Answered> {
    let (mut answers, mut requests) = tokio::io::split(caller.connect().await?);
    let head = caller::head(
        SHORT_TIMEOUT,
        &format!("content-length: {}\r\n", review.len()),
    );
    requests.write_all(head.as_bytes()).await?;
    let send = async {
        for byte in review.bytes() {
            // The connection may be closed right after the answer.
            let _ = requests.write_all(&[byte]).await;
            // A pace, not a wait: being slow is the attack.
            sleep(Duration::from_secs(1)).await;
        }
        bail!("nobody minded")
    };
    tokio::select! {
        answered = answer(&mut answers) => answered,
        sent = send => sent,
    }
}

/// Acts as a client that disconnects in the middle of a body.
async fn half_a_body(caller: &Caller, review: &str) -> Result<()> {
    let head = caller::head(
        TIMEOUT,
        &format!("content-length: {}\r\n", review.len() + 1),
    );
    let mut stream = caller.connect().await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(review.as_bytes()).await?;
    stream.shutdown().await?;
    let answered = answer(&mut stream).await?;
    ensure!(answered.status == 400, "{answered:?}");
    Ok(())
}

/// Gives the operator a tenth of a processor until `work` is done.
async fn throttled<T>(scene: &Scene, work: impl Future<Output = T>) -> Result<T> {
    let process = scene.operator.process();
    let mut work = pin!(work);
    let done = loop {
        process.pause()?;
        let stopped = timeout(Duration::from_millis(90), &mut work).await;
        process.resume()?;
        if let Ok(done) = stopped {
            break done;
        }
        if let Ok(done) = timeout(Duration::from_millis(10), &mut work).await {
            break done;
        }
    };
    Ok(done)
}

/// Waits until the operator has as many open files as before, allowing for some connections of its own.
async fn files_are_back(scene: &Scene, before: usize) -> Result<()> {
    wait_for("connections to be closed", PATIENCE, async || {
        let now = scene.operator.process().open_files()?;
        done_if(now <= before + 40, format!("{now} files, {before} before"))
    })
    .await
}

/// Returns true if a review's answer sets the config hash.
fn patched(answered: &Answered) -> Result<bool> {
    let review: Value = serde_json::from_str(&answered.body)?;
    let patch = &review["response"]["patch"];
    if patch.is_null() {
        return Ok(false);
    }
    let patch: ByteString = serde_json::from_value(patch.clone())?;
    Ok(String::from_utf8(patch.0)?.contains("config-hash"))
}

fn web() -> Workload {
    Workload::deployment("web").lists("app")
}

/// Returns a review of 16.8 MB, as the apiserver makes it for an object of 1.4 MB: each variable of the
/// container occurs four times, twice of that with the names of its fields.
fn large_update(namespace: &str, image: &str) -> String {
    const VARIABLES: usize = 93_500;
    let names = || (0..VARIABLES).map(|number| format!("E{number:05}"));
    let variables: Value = names()
        .map(|name| json!({"name": name, "value": "x"}))
        .collect();
    let fields: serde_json::Map<_, _> = names()
        .map(|name| {
            let key = format!("k:{}", json!({"name": name}));
            (key, json!({".": {}, "f:name": {}, "f:value": {}}))
        })
        .collect();
    let containers = json!({"k:{\"name\":\"main\"}": {"f:env": fields}});
    let fields = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}});
    let managed = json!([{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]);
    let workload = web().with(&["metadata", "managedFields"], managed).with(
        &["spec", "template", "spec", "containers"],
        json!([{"name": "main", "image": "app:1", "env": variables}]),
    );
    let mut review = update(namespace, &workload);
    review["request"]["object"]["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!(image);
    let review = review.to_string();
    assert!(
        (16_000_000..18_000_000).contains(&review.len()),
        "{}",
        review.len()
    );
    review
}

/// Returns a Secret of one mebibyte.
fn large_secret() -> Answer {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "large", "uid": "large", "resourceVersion": "1"},
        "data": {"key": ByteString(vec![b'x'; 1 << 20])},
    });
    Answer::json(StatusCode::OK, &secret)
}

/// Value of `?timeout=` in most calls.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that an apiserver waits, for reviews that keep a slow machine busy.
const LONG_TIMEOUT: Duration = Duration::from_secs(30);
/// Value of `?timeout=` in calls that are left to time out.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which the operator closes a connection whose first request does not come.
const CUT_OFF: Duration = Duration::from_secs(5);
/// The number of objects that the webhook reads at once.
const READS_AT_ONCE: u64 = 12;
/// Memory limit of the operator.
const MEMORY: usize = 128 << 20;
/// The first bytes of a TLS hello.
const HALF_A_HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02];
/// The first bytes of a request.
const HALF_A_HEAD: &[u8] = b"POST /mutate HTTP/1.1\r\nhost: we";
/// The preface of an HTTP/2 client, and an empty SETTINGS frame.
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
