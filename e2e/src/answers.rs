//! Asks pods of a real node what they have read. Their program is `e2e/control-plane/answers`.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::components::RealNode;

/// Returns a container that answers, with further fields. It is ready unless the file that `READY_FILE` names says
/// `bad`.
pub fn container(node: &RealNode, fields: &Value) -> Value {
    let mut container = json!({
        "name": "main",
        "image": node.answers_image,
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        container[name] = value.clone();
    }
    container
}

/// Returns the content that a pod answers with; `None` if it has none.
///
/// # Errors
/// When it does not answer within five seconds.
pub async fn ask(address: &str, path: &str) -> Result<Option<String>> {
    let asked = timeout(Duration::from_secs(5), request(address, path)).await;
    let answer = asked.with_context(|| format!("no answer of {address} to {path} within 5 s"))?;
    let answer = answer.with_context(|| format!("asking {address} for {path}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no whole answer")?;
    let status = head.split(' ').nth(1);
    Ok((status == Some("200")).then(|| body.to_owned()))
}

async fn request(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((address, PORT)).await?;
    // In this version, the answer ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nhost: pod\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

const PORT: u16 = 8080;
