//! Receives the messages that the operator sends to a chat.

use std::{convert::Infallible, path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};

use crate::{proxy::accept, wait::PATIENCE};

/// A listener on a port of 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    port: u16,
    /// Bodies of all messages so far.
    messages: watch::Sender<Vec<Value>>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    /// Starts a receiver that accepts every message, or one that leaves each without an answer.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(answers: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let messages = watch::Sender::new(Vec::new());
        let received = Arc::new(messages.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, move |connection| {
            let received = Arc::clone(&received);
            async move {
                let service = service_fn(|request| take(request, &received, answers));
                let connection = TokioIo::new(connection);
                http1::Builder::new()
                    .serve_connection(connection, service)
                    .await?;
                Ok(())
            }
        }));
        Ok(Self {
            port,
            messages,
            _tasks: tasks,
        })
    }

    /// Writes the receiver's URL, which contains `credential`, to a file below `directory`, and returns the
    /// operator's argument that names this file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn argument(&self, directory: &Path, credential: &str) -> Result<String> {
        let file = directory.join("notify-url");
        std::fs::write(&file, self.url(credential)).with_context(|| file.display().to_string())?;
        Ok(format!("--notifications-url-file={}", file.display()))
    }

    /// Returns the receiver's URL, which contains `credential`.
    pub fn url(&self, credential: &str) -> String {
        format!("http://127.0.0.1:{}/{credential}", self.port)
    }

    /// Returns the messages so far.
    pub fn messages(&self) -> Vec<Value> {
        self.messages.borrow().clone()
    }

    /// Waits until the messages report this number of changes of a workload, and returns those changes.
    ///
    /// # Errors
    /// When they do not within [`PATIENCE`].
    pub async fn changes(&self, workload: &str, count: usize) -> Result<Vec<Value>> {
        let mut messages = self.messages.subscribe();
        let enough = messages.wait_for(|messages| changes(messages, workload).len() >= count);
        let enough = timeout(PATIENCE, enough).await;
        let enough = enough
            .with_context(|| format!("{count} changes of {workload} in {:?}", self.messages()))?;
        Ok(changes(&enough?, workload))
    }
}

fn changes(messages: &[Value], workload: &str) -> Vec<Value> {
    let all = messages
        .iter()
        .flat_map(|message| message["changes"].as_array());
    let is_about = |change: &&Value| {
        let mut workloads = change["workloads"].as_array().into_iter().flatten();
        workloads.any(|named| named["name"] == workload)
    };
    all.flatten().filter(is_about).cloned().collect()
}

async fn take(
    request: Request<Incoming>,
    received: &watch::Sender<Vec<Value>>,
    answers: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    // A body that is not JSON is retained as text: it may be what a test looks for.
    let message = serde_json::from_slice(&body)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
    received.send_modify(|messages| messages.push(message));
    if !answers {
        std::future::pending::<()>().await;
    }
    Ok(Response::new(Full::default()))
}
