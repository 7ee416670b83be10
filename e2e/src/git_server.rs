//! Serves a Git repository by HTTP, as a web server does with `git http-backend`.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::Stdio,
    sync::Arc,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, net::TcpListener, process::Command, task::JoinSet};

use crate::{git::Repository, proxy::accept};

/// A server on a port of 127.0.0.1, until it is dropped.
pub(crate) struct GitServer {
    /// URL of the repository.
    pub(crate) url: String,
    _tasks: JoinSet<()>,
}

impl GitServer {
    /// Starts a server of one repository, which anybody may read.
    pub(crate) async fn start(repository: &Repository) -> Result<Self> {
        let directory = repository.directory();
        let root = directory.parent().context("it is in a folder")?;
        let name = directory.file_name().context("it has a name")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/{}", listener.local_addr()?, name.display());
        let root = Arc::new(root.to_owned());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, move |connection| {
            let root = Arc::clone(&root);
            async move {
                let service = service_fn(|request| answer(request, &root));
                let connection = TokioIo::new(connection);
                http1::Builder::new()
                    .serve_connection(connection, service)
                    .await?;
                Ok(())
            }
        }));
        Ok(Self { url, _tasks: tasks })
    }
}

async fn answer(request: Request<Incoming>, root: &Path) -> Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let header = |name: &str| {
        let value = head.headers.get(name).map(|value| value.as_bytes());
        OsStr::from_bytes(value.unwrap_or_default()).to_owned()
    };
    let variables: [(&str, OsString); 10] = [
        ("PATH", env::var_os("PATH").unwrap_or_default()),
        ("GIT_PROJECT_ROOT", root.into()),
        ("GIT_HTTP_EXPORT_ALL", "1".into()),
        ("PATH_INFO", head.uri.path().into()),
        ("QUERY_STRING", head.uri.query().unwrap_or_default().into()),
        ("REQUEST_METHOD", head.method.as_str().into()),
        ("CONTENT_TYPE", header("content-type")),
        ("CONTENT_LENGTH", body.len().to_string().into()),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
        ("GIT_PROTOCOL", header("git-protocol")),
    ];
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("running git http-backend")?;
    let mut input = child.stdin.take().expect("stdin is piped");
    let write = async {
        // A program that does not read its input closes it, which is no failure.
        let _ = input.write_all(&body).await;
        drop(input);
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    response(&output?.stdout)
}

/// Returns the response that a CGI program has printed.
fn response(printed: &[u8]) -> Result<Response<Full<Bytes>>> {
    const END: &[u8] = b"\r\n\r\n";
    let end = printed.windows(END.len()).position(|it| it == END);
    let end = end.context("git http-backend printed no headers")?;
    let mut response = Response::builder();
    for line in std::str::from_utf8(&printed[..end])?.lines() {
        let (name, value) = line.split_once(": ").context("no header")?;
        response = match name {
            // The number, and its name.
            "Status" => response.status(value.split(' ').next().unwrap_or_default()),
            _ => response.header(name, value),
        };
    }
    let body = Bytes::copy_from_slice(&printed[end + END.len()..]);
    Ok(response.body(Full::new(body))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cgi_program_prints_is_status_headers_and_body() -> Result<()> {
        let found = response(b"Content-Type: a/b\r\nExpires: never\r\n\r\n\x00\r\n\r\n\xff")?;
        assert_eq!(found.status(), 200);
        assert_eq!(found.headers()["content-type"], "a/b");
        let missing = response(b"Status: 404 Not Found\r\n\r\n")?;
        assert_eq!(missing.status(), 404);
        assert!(response(b"fatal").is_err());
        Ok(())
    }
}
