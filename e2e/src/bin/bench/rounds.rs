//! Calls a webhook, bypassing the apiserver: one call after the other, or at a given rate.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use pod_reloader_e2e::caller::{self, Caller};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tokio_rustls::client::TlsStream;

/// A webhook to call.
#[derive(Clone)]
pub(crate) struct Target(pub(crate) Caller);

impl Target {
    /// Sends the same review `count` times over one connection, each time after the previous answer.
    pub(crate) async fn one_by_one(&self, review: &str, count: usize) -> Result<Vec<Duration>> {
        let mut connection = self.connect().await?;
        let request = request(review);
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            connection.call(&request).await?;
            all.push(began.elapsed());
        }
        Ok(all)
    }

    /// Sends the same review over many connections in parallel, `count` times in all.
    pub(crate) async fn side_by_side(
        &self,
        review: &str,
        connections: usize,
        count: usize,
    ) -> Result<Vec<Duration>> {
        let each = (0..connections).map(|_| {
            let (target, review) = (self.clone(), review.to_owned());
            tokio::spawn(async move { target.one_by_one(&review, count / connections).await })
        });
        let all = try_join_all(each).await?;
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Makes `rate` calls a second over these connections. The time of a call counts from when it was due, so
    /// a late answer also lengthens the calls that it holds up.
    pub(crate) async fn at_rate(
        &self,
        review: &str,
        connections: usize,
        rate: usize,
        period: Duration,
    ) -> Result<Vec<Duration>> {
        let pause = Duration::from_secs(1) * connections as u32 / rate as u32;
        let count = (period.as_secs_f64() / pause.as_secs_f64()) as u32;
        let began = Instant::now() + Duration::from_millis(100);
        let each = (0..connections as u32).map(|number| {
            let (target, request) = (self.clone(), request(review));
            tokio::spawn(async move {
                let mut connection = target.connect().await?;
                let first = began + pause * number / connections as u32;
                let mut all = Vec::with_capacity(count as usize);
                for call in 0..count {
                    let due = first + pause * call;
                    sleep_until(due).await;
                    connection.call(&request).await?;
                    all.push(due.elapsed());
                }
                anyhow::Ok(all)
            })
        });
        let all = try_join_all(each).await?;
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = self.0.connect().await?;
        stream.get_ref().0.set_nodelay(true)?;
        Ok(Connection {
            stream,
            received: Vec::with_capacity(4096),
        })
    }
}

fn request(review: &str) -> Vec<u8> {
    caller::request(Duration::from_secs(10), review)
}

struct Connection {
    stream: TlsStream<TcpStream>,
    received: Vec<u8>,
}

impl Connection {
    async fn call(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.received.clear();
        while !self.is_answered()? {
            let read = self.stream.read_buf(&mut self.received).await?;
            ensure!(read > 0, "the connection ended");
        }
        Ok(())
    }

    fn is_answered(&self) -> Result<bool> {
        let Some(end) = find(&self.received, b"\r\n\r\n") else {
            return Ok(false);
        };
        let head = &self.received[..end];
        ensure!(
            head.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&self.received)
        );
        let name = b"content-length: ";
        let length = find(head, name).context("no length")? + name.len();
        let digits = head[length..]
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let length: usize = std::str::from_utf8(digits)?.parse()?;
        Ok(self.received.len() >= end + 4 + length)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
