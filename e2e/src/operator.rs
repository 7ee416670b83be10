//! Runs the operator as a process with the rights of its service account.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    installation::Installation,
    kubeconfig::KubeconfigFile,
    port::free_ports,
    process::{Process, Program},
    wait::{Attempt, PATIENCE, wait_for},
};

/// A replica of the operator. The process ends with the last clone.
#[derive(Clone, Debug)]
pub struct Operator {
    process: Arc<Process>,
    probes: u16,
    metrics: u16,
    token_file: PathBuf,
}

impl Operator {
    /// Starts a replica of `installation`, which reaches the cluster through `kubeconfig`, with the arguments
    /// of its container and `more_args`. Its files are below `directory`. It need not be ready on return.
    ///
    /// # Errors
    /// When the program does not exist, or a file cannot be written.
    pub fn start(
        installation: &Installation,
        kubeconfig: &KubeconfigFile,
        directory: &Path,
        more_args: &[String],
    ) -> Result<Self> {
        let mut ports = free_ports();
        let mut port = || ports.next().context("every port is taken");
        let (probes, metrics) = (port()?, port()?);
        fs::create_dir_all(directory)?;
        let kubeconfig_file = directory.join("kubeconfig");
        let token_file = directory.join("token");
        kubeconfig.write_with_token_file(&kubeconfig_file, &token_file)?;
        let own = [
            format!("--health-probe-bind-address=127.0.0.1:{probes}"),
            format!("--metrics-bind-address=127.0.0.1:{metrics}"),
            // One replica, unless a test asks for more: it need not wait for a Lease.
            "--leader-elect=false".to_owned(),
            // Tests restart the same workload often.
            "--max-restarts=0".to_owned(),
            // Overridden by the tests of draining: the others need not wait for it.
            "--drain-period=0s".to_owned(),
            "--log-level=debug".to_owned(),
            "--log-format=text".to_owned(),
        ];
        let own = own.into_iter().filter(|it| installation.version.takes(it));
        let args = installation.args().into_iter().chain(own);
        let args = args.chain(more_args.iter().cloned());
        let program = Program {
            name: format!("operator of {}", installation.namespace),
            executable: installation.version.operator()?,
            args: args.map(OsString::from).collect(),
            env: vec![
                ("KUBECONFIG".into(), kubeconfig_file.into()),
                ("RUST_BACKTRACE".into(), "1".into()),
                // The same values as in the image.
                ("MALLOC_ARENA_MAX".into(), "2".into()),
                ("MALLOC_MMAP_THRESHOLD_".into(), "65536".into()),
            ],
            log: directory.join("operator.log"),
        };
        Ok(Self {
            process: Arc::new(Process::start(program)?),
            probes,
            metrics,
            token_file,
        })
    }

    /// Waits until its readiness probe returns 200.
    ///
    /// # Errors
    /// When it has ended, or takes longer than [`PATIENCE`]. Includes the end of its log.
    pub async fn ready(&self) -> Result<()> {
        wait_for("the operator to be ready", PATIENCE, async || {
            self.process.must_run()?;
            Ok(self.is_ready().await.into())
        })
        .await
    }

    /// Asks its readiness probe once.
    ///
    /// # Errors
    /// When the answer is not 200, or does not come within a second.
    pub async fn is_ready(&self) -> Result<()> {
        get(self.probes, "/readyz", PROBE_TIMEOUT).await.map(|_| ())
    }

    /// Asks the probe at `path` once.
    ///
    /// # Errors
    /// When the answer is not 200, or takes longer than `patience`.
    pub async fn probe(&self, path: &str, patience: Duration) -> Result<()> {
        get(self.probes, path, patience).await.map(|_| ())
    }

    /// Returns the address of its probes.
    pub fn probes_address(&self) -> String {
        format!("127.0.0.1:{}", self.probes)
    }

    /// Returns true if it runs the reconcile loop. A replica that does not answer within a second does not
    /// count as leading.
    pub async fn is_leading(&self) -> bool {
        let metrics = get(self.metrics, "/metrics", PROBE_TIMEOUT).await;
        let metrics = metrics.unwrap_or_default();
        metrics.lines().any(|line| line == "pod_reloader_leading 1")
    }

    /// Returns the address of its metrics.
    pub fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.metrics)
    }

    /// Returns its metrics.
    ///
    /// # Errors
    /// When it does not answer within [`PATIENCE`].
    pub async fn metrics(&self) -> Result<String> {
        get(self.metrics, "/metrics", PATIENCE).await
    }

    /// Waits until a metric, given by name and labels, has this value.
    ///
    /// # Errors
    /// When it does not within [`PATIENCE`], or the operator does not answer.
    pub async fn shows(&self, name: &str, value: &str) -> Result<()> {
        let what = format!("the metric {name} to be {value}");
        wait_for(&what, PATIENCE, async || {
            let metrics = self.metrics().await?;
            let mut lines = metrics.lines();
            let shown = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Ok(match shown {
                Some(shown) if shown == value => Attempt::Done(()),
                Some(shown) => Attempt::NotYet(shown.to_owned()),
                None => Attempt::NotYet(format!("it is not in\n{metrics}")),
            })
        })
        .await
    }

    /// Returns the file with its token, which it reads again once a minute.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Returns its process, for sending signals.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Asks it to stop, and waits until it has ended.
    pub async fn stop(&self) {
        self.process.stop(Duration::from_secs(20)).await;
    }

    /// Starts it again with the same arguments, and waits until it is ready.
    ///
    /// # Errors
    /// Same as [`Operator::ready`].
    pub async fn start_again(&self) -> Result<()> {
        self.process.start_again()?;
        self.ready().await
    }

    /// Stops it, and starts it again.
    ///
    /// # Errors
    /// Same as [`Operator::start_again`].
    pub async fn restart(&self) -> Result<()> {
        self.stop().await;
        self.start_again().await
    }

    /// Returns everything that it has logged.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.process.log())?)
    }
}

/// Returns the body of `http://127.0.0.1:PORT/PATH`, if the status is 200.
async fn get(port: u16, path: &str, patience: Duration) -> Result<String> {
    timeout(patience, get_patiently(port, path))
        .await
        .with_context(|| format!("no answer to {path} within {patience:?}"))?
}

async fn get_patiently(port: u16, path: &str) -> Result<String> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the answer broke off")?;
    ensure!(
        head.starts_with("HTTP/1.1 200"),
        "{}: {body}",
        head.lines().next().unwrap_or_default()
    );
    Ok(body.to_owned())
}

/// Time that a kubelet waits for the answer to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
