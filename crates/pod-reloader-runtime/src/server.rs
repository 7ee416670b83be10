//! Serves a router, with or without TLS, within limits of time and number, and drains before it stops.
//!
//! The loops of axum and hyper-util have no limit before a connection's first byte. hyper's limit on
//! headers includes idle time, so it would close connections that the apiserver still means to use. This
//! module therefore enforces its own limits, for each step of a connection.

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

use crate::complaint::Complaint;
use connection::Progress;

/// The limits that a server sets its clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The time from accepting the connection until TLS is established. Without TLS there is no such step.
    pub handshake: Duration,
    /// The time from there until the first byte of the first request.
    pub first_byte: Duration,
    /// The time from the first byte of a request until the end of its headers.
    pub headers: Duration,
    /// The time from the end of the headers until the answer is written. It backs up the limits of the
    /// router, against a body that trickles in or an answer that nobody reads.
    pub answer: Duration,
    /// The time from the answer to one request until the first byte of the next.
    pub idle: Duration,
    /// The maximum number of open connections, in any step.
    pub connections: usize,
    /// The maximum number of handshakes that do cryptography at once. Waiting for a client uses up none of
    /// them.
    pub handshakes: usize,
    /// The time from the shutdown signal until no more connections are accepted.
    pub drain: Duration,
    /// The time from there until requests in flight are cut off.
    pub finish: Duration,
}

/// The idle limit. The apiserver reuses a connection for 90 s: a server that closes it earlier fails
/// writes.
const IDLE: Duration = Duration::from_secs(120);
/// The maximum number of connections to the webhook.
const CONNECTIONS: usize = 1024;
/// The maximum number of connections to a small port. Each can take up about 30 KiB.
const SMALL_CONNECTIONS: usize = 64;

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            // The apiserver can open a connection for a request that another connection then serves. It
            // retains the unused one for as long as idle ones.
            first_byte: IDLE,
            headers: Duration::from_secs(5),
            // The apiserver waits no longer than 30 s for any webhook.
            answer: Duration::from_secs(35),
            idle: IDLE,
            connections: CONNECTIONS.min(files_allowed() / 2),
            handshakes: 64,
            // The time for every apiserver and kube-proxy to learn that we are no longer an endpoint.
            drain: Duration::from_secs(15),
            finish: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the limits of a port that only a kubelet or a Prometheus calls now and then.
    pub(crate) fn of_a_small_port() -> Self {
        Self {
            first_byte: Duration::from_secs(5),
            answer: Duration::from_secs(10),
            connections: SMALL_CONNECTIONS.min(files_allowed() / 8),
            ..Self::default()
        }
    }
}

/// The transport of a connection.
pub enum Transport {
    /// Bytes as they are.
    Plain,
    /// Over TLS.
    Tls(Acceptor),
}

/// Serves `router` until `shutdown` is done, and then for the time of a drain.
///
/// # Guarantees
///
/// - Only `shutdown` ends the loop. After an error of accept it waits and tries again. A panic of the
///   router is a 500 for that request.
/// - No step of a connection lasts for ever: each has its limit.
/// - At the limit of connections, a connection that we wait for makes room: the one that has kept us
///   waiting longest before its first request is answered, or else the one that has been idle longest. A
///   new connection is refused only while all others are being answered.
/// - A quarter of the room is for newcomers. So even if thousands of connections are idle, a new one has
///   the time to send its request.
/// - While draining, old and new connections alike are served, with `Connection: close` in each answer.
///
/// # Caveats
///
/// The router limits the size of bodies and the number of requests that are answered at once. If a client
/// goes away, the router's future is dropped at its next await.
pub async fn serve(
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
                // Without this, a burst is accepted in one go. It would drop its own first connections
                // before anything was read from them, and other tasks of this thread would wait for all of
                // it.
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

/// Raises the number of files that the process may have open to its hard limit. Many systems start with
/// 1,024, for the sake of programs that use `select`: too few for that many connections.
pub fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open files");
    }
}

/// Returns the number of files that the process may have open. The limits of connections stay so far below
/// it that the rest of the process, and its other ports, always get a file.
fn files_allowed() -> usize {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(allowed).unwrap_or(usize::MAX)
}

/// The stages of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Draining,
    Stopping,
}

/// The parts that all connections share.
struct Server {
    limits: Limits,
    transport: Transport,
    router: Router,
    handshakes: Semaphore,
    stage: watch::Receiver<Stage>,
}

impl Server {
    /// Attends to one connection, from its first byte to its last.
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
        // The turn bounds how much cryptography happens between two polls of any other task. So other tasks
        // run before it, and the turn is returned before the client is waited for. If it were held while
        // waiting, silent clients could keep everybody else out.
        tokio::task::yield_now().await;
        let answer = hello.answer();
        drop(turn);
        answer.await
    }
}

/// Returns the next connection. After an error of accept, waits and tries again.
async fn accept(listener: &TcpListener, complaint: &mut Complaint) -> TcpStream {
    let mut pause = Duration::from_millis(10);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                complaint.settled();
                return stream;
            }
            // The client caused this, and it is over.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) => {}
            // Out of file descriptors or memory: trying again at once would fail too.
            Err(error) => {
                complaint.warn(&error, "cannot accept a connection, trying again");
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// The open connections, among which to find one to drop.
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
        // Answers are small and wanted now. Without this, the system only delays them to send more at once.
        let _ = stream.set_nodelay(true);
        let progress = Arc::new(Progress::new());
        let task = self
            .tasks
            .spawn(server.clone().attend(stream, progress.clone()));
        self.open.insert(task.id(), (progress, task));
    }

    /// Drops the connection that is needed least, and returns false if there is none. That is one that was
    /// never answered, if there are more than `newcomers` of them, or else an idle one.
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
