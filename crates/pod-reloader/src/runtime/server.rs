//! Serves a router, over TLS or without, within limits of time and number, and drains before it stops.
//!
//! The loops of axum and hyper-util have no limit before a connection's first byte, and hyper's
//! limit on headers counts idle time too, so that it would close connections which the apiserver
//! still means to use. So the limits are kept here, one step of a connection at a time.

mod connection;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info, warn};
use webhook_certs::{Acceptor, TlsStream};

use crate::runtime::logging::Complaint;
use connection::Progress;

/// What one server grants its clients.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// From the connection until TLS is agreed on. Without TLS there is no such step.
    pub(crate) handshake: Duration,
    /// From there until the first byte of the first request.
    pub(crate) first_byte: Duration,
    /// From the first byte of a request until the end of its headers.
    pub(crate) headers: Duration,
    /// From the end of the headers until the answer is written: a backstop behind the limits that the
    /// router keeps, for a body that trickles in or an answer that nobody takes.
    pub(crate) answer: Duration,
    /// Between the answer to one request and the first byte of the next.
    pub(crate) idle: Duration,
    /// Open connections, in whatever step.
    pub(crate) connections: usize,
    /// Handshakes whose cryptography is due at once. Waiting for a client takes up none of them.
    pub(crate) handshakes: usize,
    /// From the shutdown signal until nothing more is accepted.
    pub(crate) drain: Duration,
    /// From there until what is still in flight is cut off.
    pub(crate) finish: Duration,
}

/// The apiserver reuses a connection for 90 s: a server that closes it earlier fails writes.
const IDLE: Duration = Duration::from_secs(120);
/// The most connections to the webhook.
const CONNECTIONS: usize = 1024;
/// The most connections to a small port. Each may take up some 30 KiB.
const SMALL_CONNECTIONS: usize = 64;

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            // The apiserver also keeps connections for later that it made for a request which another one
            // took: as long as those below.
            first_byte: IDLE,
            headers: Duration::from_secs(5),
            // The apiserver waits for no webhook longer than 30 s.
            answer: Duration::from_secs(35),
            idle: IDLE,
            connections: CONNECTIONS.min(files_allowed() / 2),
            handshakes: 64,
            // Time for every apiserver and kube-proxy to learn that we are no longer an endpoint.
            drain: Duration::from_secs(15),
            finish: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Limits of a port that a kubelet or a Prometheus asks now and then, and nobody else needs.
    pub(crate) fn of_a_small_port() -> Self {
        Self {
            first_byte: Duration::from_secs(5),
            answer: Duration::from_secs(10),
            connections: SMALL_CONNECTIONS.min(files_allowed() / 8),
            ..Self::default()
        }
    }
}

/// How the bytes of a connection come.
pub(crate) enum Transport {
    /// As they are.
    Plain,
    /// Over TLS.
    Tls(Acceptor),
}

/// Serves `router` until `shutdown` is done, and then for the time of a drain.
///
/// # Guarantees
/// - Nothing ends the loop but `shutdown`: an error of accept is waited out, a panic of the router
///   is a 500 for that request.
/// - No step of a connection lasts for ever: each has its limit.
/// - At the limit of connections, one that is waited for makes room: the one that has kept us
///   waiting longest before its first request is answered, else the one that has been idle longest.
///   A new connection is refused only while every other one is being answered.
/// - Newcomers have a quarter of the room for themselves, so idle connections by the thousand leave a
///   new one the time to send its request.
/// - While draining, requests are served on old and new connections alike, each answer with
///   `Connection: close`.
///
/// # Caveats
/// The size of bodies, and how many requests are answered at once, is up to the router. When a
/// client goes away, the router's future is dropped at its next await.
pub(crate) async fn serve(
    listener: TcpListener,
    transport: Transport,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let (stage, stage_seen) = watch::channel(Stage::Open);
    let server = Arc::new(Server {
        handshakes: Semaphore::new(limits.handshakes),
        limits: limits.clone(),
        transport,
        router,
        stage: stage_seen,
    });
    let mut connections = Connections::default();
    let mut shutdown = pin!(shutdown);
    let mut drained = pin!(sleep(Duration::ZERO));
    let mut complaint = Complaint::default();
    loop {
        let draining = *stage.borrow() == Stage::Draining;
        tokio::select! {
            () = &mut shutdown, if !draining => {
                info!(connections = connections.open.len(), "draining connections");
                drained.as_mut().reset(Instant::now() + limits.drain);
                stage.send_replace(Stage::Draining);
            }
            () = &mut drained, if draining => break,
            stream = accept(&listener, &mut complaint) => {
                connections.admit(&server, stream);
                // Otherwise a burst is accepted in one go, and would drop its own first connections
                // before anything was read from them; and whoever shares the thread waits for all of it.
                tokio::task::yield_now().await;
            }
            Some(ended) = connections.tasks.join_next_with_id() => connections.reap(ended),
        }
    }
    drop(listener);
    stage.send_replace(Stage::Stopping);
    let finished = async { while connections.tasks.join_next().await.is_some() {} };
    if timeout(limits.finish, finished).await.is_err() {
        warn!(
            connections = connections.tasks.len(),
            "cutting off requests that were still in flight"
        );
        connections.tasks.shutdown().await;
    }
}

/// Raises the number of files that the process may have open as far as it may. Many systems give 1,024
/// at first, for the sake of programs that use `select`: not enough for as many connections.
pub(crate) fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open files");
    }
}

/// How many files the process may have open: connections are so many fewer that the others of the process,
/// and its other ports, always find one.
fn files_allowed() -> usize {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

/// How far the server is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Draining,
    Stopping,
}

/// What all connections share.
struct Server {
    limits: Limits,
    transport: Transport,
    router: Router,
    handshakes: Semaphore,
    stage: watch::Receiver<Stage>,
}

impl Server {
    /// One connection, from its first byte to its last.
    async fn attend(self: Arc<Self>, stream: TcpStream, progress: Arc<Progress>) {
        let acceptor = match &self.transport {
            Transport::Plain => return connection::serve(stream, &self, progress).await,
            Transport::Tls(acceptor) => acceptor,
        };
        let mut stage = self.stage.clone();
        let handshake = timeout(self.limits.handshake, self.handshake(acceptor, stream));
        let stream = tokio::select! {
            _ = stage.wait_for(|stage| *stage == Stage::Stopping) => return,
            outcome = handshake => match outcome {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return debug!(%error, "TLS handshake failed"),
                Err(_) => return debug!("TLS handshake timed out"),
            },
        };
        connection::serve(stream, &self, progress).await;
    }

    async fn handshake(
        &self,
        acceptor: &Acceptor,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let hello = acceptor.client_hello(stream).await?;
        let turn = self.handshakes.acquire().await.expect("it is never closed");
        // The turn bounds how much cryptography stands between two polls of any other task: so the
        // others are let in before it, and it is given back before the client is waited for. A turn
        // held while waiting would hand silent clients the power to keep everybody else out.
        tokio::task::yield_now().await;
        let answer = hello.answer();
        drop(turn);
        answer.await
    }
}

/// The next connection; errors of accept are waited out.
async fn accept(listener: &TcpListener, complaint: &mut Complaint) -> TcpStream {
    let mut pause = Duration::from_millis(10);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                complaint.settled();
                return stream;
            }
            // The client's own doing, and over already.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) => {}
            // Out of file descriptors or memory: it would fail again at once.
            Err(error) => {
                complaint.warn(&error, "cannot accept a connection, trying again");
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// The connections that are open, to find one that can be spared.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: HashMap<Id, (Arc<Progress>, AbortHandle)>,
}

impl Connections {
    fn admit(&mut self, server: &Arc<Server>, stream: TcpStream) {
        let room = server.limits.connections;
        if self.open.len() >= room && !self.spare_one(room / 4) {
            debug!("refused a connection: all others are being answered");
            return;
        }
        // Answers are small and wanted now; without it, the system only gathers them for longer.
        let _ = stream.set_nodelay(true);
        let progress = Arc::new(Progress::new());
        let task = self
            .tasks
            .spawn(server.clone().attend(stream, progress.clone()));
        self.open.insert(task.id(), (progress, task));
    }

    /// Drops the connection that can best be spared, if any can: one that was never answered, if there
    /// are more than `newcomers` of them, and else an idle one.
    fn spare_one(&mut self, newcomers: usize) -> bool {
        let waited_for = || {
            let waited_for = self.open.iter();
            waited_for.filter_map(|(id, (progress, _))| Some((progress.waited_for()?, *id)))
        };
        let unproven = waited_for().filter(|(waited, _)| !waited.is_proven).count();
        let first = unproven <= newcomers;
        let spared = waited_for().min_by_key(|(it, _)| (it.is_proven != first, it.since));
        let Some((_, id)) = spared else {
            return false;
        };
        if let Some((_, task)) = self.open.remove(&id) {
            debug!("dropped a connection to make room");
            task.abort();
        }
        true
    }

    fn reap(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                if error.is_panic() {
                    error!("the task of a connection panicked");
                }
                error.id()
            }
        };
        self.open.remove(&id);
    }
}
