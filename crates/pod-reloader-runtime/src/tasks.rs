//! The tasks of the process.

use std::future::Future;

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::server::{self, Limits, Transport};

/// Tasks that must not end before they are told to.
pub struct Tasks {
    stop: CancellationToken,
    /// Tasks that are dropped when the process stops.
    running: JoinSet<&'static str>,
    /// Tasks that finish by themselves when the process stops.
    draining: JoinSet<&'static str>,
}

impl Tasks {
    /// Returns an empty set of tasks. `stop` tells the draining tasks to finish.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            running: JoinSet::new(),
            draining: JoinSet::new(),
        }
    }

    /// Starts a task that is dropped when the process stops.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(async move {
            task.await;
            name
        });
    }

    /// Starts a task that finishes by itself when the process stops.
    pub fn spawn_draining(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.draining.spawn(async move {
            task.await;
            name
        });
    }

    /// Serves a small port until the very end, so that probes can still be told that the process is
    /// stopping.
    pub fn serve(&mut self, name: &'static str, listener: TcpListener, router: Router) {
        let never = std::future::pending();
        let limits = Limits::of_a_small_port();
        self.spawn(
            name,
            server::serve(listener, Transport::Plain, router, limits, never),
        );
    }

    /// Waits for `stop`, or for the first task that ends earlier. Returns the name of that task.
    pub async fn run_until(&mut self, stop: impl Future<Output = ()>) -> Option<&'static str> {
        let name = |ended: Option<Result<&'static str, _>>| match ended {
            Some(Ok(name)) => name,
            _ => "(panicked)",
        };
        tokio::select! {
            () = stop => None,
            ended = self.running.join_next(), if !self.running.is_empty() => Some(name(ended)),
            ended = self.draining.join_next(), if !self.draining.is_empty() => Some(name(ended)),
        }
    }

    /// Waits for the tasks that finish by themselves, and drops the rest.
    pub async fn drain(mut self) {
        self.stop.cancel();
        while self.draining.join_next().await.is_some() {}
        self.running.shutdown().await;
    }
}

/// Runs `task` on another runtime, until the task ends or the returned future is dropped.
pub async fn on(runtime: Handle, task: impl Future<Output = ()> + Send + 'static) {
    if let Err(error) = AbortOnDropHandle::new(runtime.spawn(task)).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
