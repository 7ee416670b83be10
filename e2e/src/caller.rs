//! Calls the webhook of a scene directly, bypassing the apiserver: well, badly, or hardly at all.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::{self, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{scene::Scene, wait::PATIENCE, workload::Workload};

/// A client that can reach the port of a webhook and trusts its certificate.
#[derive(Clone)]
pub struct Caller {
    host: String,
    port: u16,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// An answer to a call.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// Status line and headers, in lower case.
    pub head: String,
    /// Body of the answer.
    pub body: String,
}

impl Caller {
    /// Creates a caller of the webhook of `scene`, which trusts the CA of its configuration.
    ///
    /// # Errors
    /// When the configuration cannot be read.
    pub async fn of(scene: &Scene) -> Result<Self> {
        let installation = &scene.installation;
        let ca = scene.ca_bundle().await?;
        Self::new(installation.port, installation.host(), &ca)
    }

    /// Creates a caller of the webhook at `port` of 127.0.0.1, which proves to be `name` by a certificate of
    /// `ca`, in PEM.
    ///
    /// # Errors
    /// When `name` or `ca` is invalid.
    pub fn new(port: u16, name: String, ca: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(ca?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            host: "127.0.0.1".to_owned(),
            port,
            name: ServerName::try_from(name)?,
            config: Arc::new(config),
        })
    }

    /// Returns a caller of the same webhook at another address.
    #[must_use]
    pub fn at(&self, host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
            ..self.clone()
        }
    }

    /// Returns the same caller, asking for these protocols by ALPN.
    #[must_use]
    pub fn asking_for(&self, protocols: &[&str]) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Self {
            config: Arc::new(config),
            ..self.clone()
        }
    }

    /// Returns the same caller, with a client certificate.
    ///
    /// # Errors
    /// When `key` is not a private key.
    pub fn with_certificate(&self, chain: &str, key: &str) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
        let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut config = ClientConfig::clone(&self.config);
        config.client_auth_cert_resolver = Arc::new(shown);
        Ok(Self {
            config: Arc::new(config),
            ..self.clone()
        })
    }

    /// Returns the address of the webhook.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects without TLS.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn reach(&self) -> Result<TcpStream> {
        Ok(TcpStream::connect((&*self.host, self.port)).await?)
    }

    /// Connects with TLS.
    ///
    /// # Errors
    /// When nobody listens, or the handshake fails.
    pub async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(self.config.clone());
        let stream = self.reach().await?;
        Ok(connector.connect(self.name.clone(), stream).await?)
    }

    /// Sends `request` verbatim on a connection of its own, and reads the first answer.
    ///
    /// # Errors
    /// When the connection fails, or ends without a whole answer.
    pub async fn send(&self, request: &[u8]) -> Result<Answered> {
        self.send_in_parts([request]).await
    }

    /// Sends like [`Caller::send`], in parts. If the answer comes early, the rest is not sent.
    ///
    /// # Errors
    /// Same as [`Caller::send`].
    pub async fn send_in_parts(
        &self,
        parts: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Answered> {
        let (mut answers, mut requests) = tokio::io::split(self.connect().await?);
        let send = async {
            for part in parts {
                // The webhook may already have answered and closed.
                if requests.write_all(part.as_ref()).await.is_err() {
                    break;
                }
            }
            let _ = requests.flush().await;
            std::future::pending().await
        };
        tokio::select! {
            answered = answer(&mut answers) => answered,
            () = send => unreachable!("it waits for ever"),
        }
    }
}

/// Reads one answer.
///
/// # Errors
/// When the connection ends before that, or nothing comes within [`PATIENCE`].
pub async fn answer(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<Answered> {
    let mut bytes = Vec::new();
    loop {
        if let Some(answered) = parsed(&bytes)? {
            return Ok(answered);
        }
        let read = timeout(PATIENCE, stream.read_buf(&mut bytes));
        let read = read.await.context("no answer in time")??;
        let so_far = String::from_utf8_lossy(&bytes);
        ensure!(read > 0, "the connection ended after {so_far:?}");
    }
}

/// Returns a complete answer, if `bytes` contain one.
fn parsed(bytes: &[u8]) -> Result<Option<Answered>> {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Ok(None);
    };
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Ok(0), str::parse)?;
    let status = head.split(' ').nth(1).context("a status line")?.parse()?;
    Ok((body.len() >= length).then(|| Answered {
        status,
        body: body.to_owned(),
        head,
    }))
}

/// Returns the head of a review's request, up to the blank line.
pub fn head(timeout: Duration, headers: &str) -> String {
    format!(
        "POST /mutate?timeout={}s HTTP/1.1\r\nhost: webhook\r\n\
         content-type: application/json\r\n{headers}\r\n",
        timeout.as_secs()
    )
}

/// Returns a request with the length of its body.
pub fn request(timeout: Duration, body: &str) -> Vec<u8> {
    let length = format!("content-length: {}\r\n", body.len());
    (head(timeout, &length) + body).into_bytes()
}

/// Returns `body` in chunks of HTTP/1.1, of one mebibyte at most.
pub fn chunked(body: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let chunks = body.chunks(1 << 20).map(|chunk| {
        let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
        framed
    });
    chunks.chain([b"0\r\n\r\n".to_vec()])
}

/// Returns the review for creating `workload` in `namespace`.
pub fn create(namespace: &str, workload: &Workload) -> Value {
    let mut object = workload.manifest();
    object["metadata"]["namespace"] = json!(namespace);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "of-the-test",
            "kind": {"group": "apps", "version": "v1", "kind": workload.kind.as_str()},
            "name": workload.name,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "admin"},
            "object": object,
            "oldObject": null,
            "options": {"fieldManager": "kubectl"},
        },
    })
}

/// Returns a request with the review that somebody deletes an object of this kind, which claims to have a label. The
/// apiserver has not made it.
pub fn forged_deletion(
    path: &str,
    uid: &str,
    (kind, object): (&str, &Value),
    label: (&str, &str),
) -> Vec<u8> {
    let mut object = object.clone();
    object["metadata"]["labels"] = json!({label.0: label.1});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": kind},
            "name": object["metadata"]["name"],
            "namespace": object["metadata"]["namespace"],
            "operation": "DELETE",
            "userInfo": {"username": "admin"},
            "object": null,
            "oldObject": object,
            "dryRun": false,
        },
    });
    let sent = request(PATIENCE, &review.to_string());
    let sent = String::from_utf8(sent).expect("it is made of texts");
    sent.replacen("/mutate", path, 1).into_bytes()
}

/// Returns the review of an update of `workload` that changes only a label.
pub fn update(namespace: &str, workload: &Workload) -> Value {
    let mut review = create(namespace, workload);
    let old = review["request"]["object"].clone();
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["object"]["metadata"]["labels"] = json!({"team": "blue"});
    review["request"]["oldObject"] = old;
    review
}
