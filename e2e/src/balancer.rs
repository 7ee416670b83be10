//! Stands in for kube-proxy: passes connections to a Service on to the replicas that are ready.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{error::Elapsed, sleep},
};

use crate::{operator::Operator, proxy::accept};

/// A listener on the port of a Service.
///
/// # Guarantees
/// A new connection goes to the next of the replicas that were ready when last probed, which happens four
/// times a second. A replica that does not answer at all is considered not ready only after the third such
/// probe in a row. A connection stays with its replica, ready or not, as with a real Service. If no replica
/// is ready, the connection is closed. TLS passes through. Everything ends when the value is dropped.
#[derive(Debug)]
pub struct Balancer {
    backends: Backends,
    tasks: Mutex<JoinSet<()>>,
}

type Backends = Arc<Mutex<Ring>>;

/// The replicas, and the position of the next turn.
#[derive(Debug, Default)]
struct Ring {
    backends: Vec<Backend>,
    next: usize,
}

/// A replica.
#[derive(Debug)]
struct Backend {
    port: u16,
    is_ready: bool,
    connections: usize,
}

impl Balancer {
    /// Starts to listen on `port` of 127.0.0.1, as a task of the current runtime.
    ///
    /// # Errors
    /// When somebody else listens there.
    pub async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("listening on port {port}"))?;
        let backends = Backends::default();
        let mut tasks = JoinSet::new();
        let ring = Arc::clone(&backends);
        tasks.spawn(accept(listener, move |connection| {
            pass_on(connection, Arc::clone(&ring))
        }));
        Ok(Self {
            backends,
            tasks: Mutex::new(tasks),
        })
    }

    /// Passes connections on to `operator`, whose webhook also listens on `port`, whenever it is ready.
    pub fn add(&self, operator: &Operator, port: u16) {
        lock(&self.backends).backends.push(Backend {
            port,
            is_ready: false,
            connections: 0,
        });
        let (operator, backends) = (operator.clone(), Arc::clone(&self.backends));
        lock(&self.tasks).spawn(async move {
            let mut unanswered = 0;
            loop {
                let answer = operator.is_ready().await;
                unanswered = match &answer {
                    Err(error) if error.is::<Elapsed>() => unanswered + 1,
                    _ => 0,
                };
                // On a busy machine, an answer may be late.
                let is_known = !(1..FAILURE_THRESHOLD).contains(&unanswered);
                if let Some(backend) = lock(&backends).backend(port).filter(|_| is_known) {
                    backend.is_ready = answer.is_ok();
                }
                sleep(PROBE_INTERVAL).await;
            }
        });
    }

    /// Returns the number of connections that the replica with its webhook on `port` has got.
    pub fn connections(&self, port: u16) -> usize {
        lock(&self.backends)
            .backend(port)
            .map_or(0, |backend| backend.connections)
    }

    /// Returns the ports of the replicas that get connections now.
    pub fn ready(&self) -> Vec<u16> {
        let ring = lock(&self.backends);
        let ready = ring.backends.iter().filter(|backend| backend.is_ready);
        ready.map(|backend| backend.port).collect()
    }
}

impl Ring {
    fn backend(&mut self, port: u16) -> Option<&mut Backend> {
        self.backends
            .iter_mut()
            .find(|backend| backend.port == port)
    }

    /// Returns the port for the next connection.
    fn turn(&mut self) -> Option<u16> {
        let count = self.backends.len();
        let ready = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|at| self.backends[*at].is_ready)?;
        self.next = ready + 1;
        let backend = &mut self.backends[ready];
        backend.connections += 1;
        Some(backend.port)
    }
}

async fn pass_on(mut client: TcpStream, backends: Backends) -> Result<()> {
    let port = lock(&backends).turn().context("no replica is ready")?;
    let mut replica = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    replica.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut replica).await?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Number of probes without an answer after which a kubelet, by default, considers a replica not ready.
const FAILURE_THRESHOLD: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(ready: &[bool]) -> Ring {
        let backends = ready.iter().zip(1..).map(|(is_ready, port)| Backend {
            port,
            is_ready: *is_ready,
            connections: 0,
        });
        Ring {
            backends: backends.collect(),
            next: 0,
        }
    }

    #[test]
    fn replicas_take_turns() {
        let mut ring = ring(&[true, true, true]);

        let turns: Vec<_> = (0..5).filter_map(|_| ring.turn()).collect();

        assert_eq!(turns, [1, 2, 3, 1, 2]);
    }

    #[test]
    fn a_replica_that_is_not_ready_is_passed_over() {
        let mut ring = ring(&[false, true, false]);

        assert_eq!((ring.turn(), ring.turn()), (Some(2), Some(2)));
        ring.backends[1].is_ready = false;
        assert_eq!(ring.turn(), None);
    }
}
