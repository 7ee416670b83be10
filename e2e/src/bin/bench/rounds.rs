//! Calls of a webhook, past the apiserver: one after the other, or at a given rate.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A webhook that is called.
#[derive(Clone)]
pub(crate) struct Target {
    port: u16,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Target {
    /// The webhook at `port`, which proves by a certificate of `ca` that it is `name`.
    pub(crate) fn new(port: u16, name: String, ca: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(ca?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            port,
            name: ServerName::try_from(name)?,
            config: Arc::new(config),
        })
    }

    /// Sends the same review `count` times over one connection, each once the last was answered.
    pub(crate) async fn one_by_one(&self, review: &[u8], count: usize) -> Result<Vec<Duration>> {
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

    /// The same over many connections at once, `count` in all.
    pub(crate) async fn side_by_side(
        &self,
        review: &[u8],
        connections: usize,
        count: usize,
    ) -> Result<Vec<Duration>> {
        let each = (0..connections).map(|_| {
            let (target, review) = (self.clone(), review.to_vec());
            tokio::spawn(async move { target.one_by_one(&review, count / connections).await })
        });
        let all = try_join_all(each).await?;
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// So many calls a second over these connections, whether or not the earlier ones were answered; each
    /// counts from when it was due.
    pub(crate) async fn at_rate(
        &self,
        review: &[u8],
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
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.config.clone());
        let stream = connector.connect(self.name.clone(), stream).await?;
        Ok(Connection {
            stream,
            received: Vec::with_capacity(4096),
        })
    }
}

fn request(review: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /mutate?timeout=10s HTTP/1.1\r\nhost: webhook\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        review.len()
    );
    [head.as_bytes(), review].concat()
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
