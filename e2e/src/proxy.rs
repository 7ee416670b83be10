//! Stands between a client and the apiserver, and breaks traffic by rules.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use pod_reloader_e2e::{ControlPlane, proxy::{Answer, Fault, Proxy, Requests, Rule, error_event}};
//! # use http::{Method, StatusCode};
//! # async fn example(control_plane: ControlPlane, token: String) -> anyhow::Result<()> {
//! let proxy = Proxy::start(&control_plane).await?;
//! proxy.kubeconfig_for(token).write("operator.kubeconfig".as_ref())?;
//!
//! let secrets = Requests::containing("/secrets");
//! let hold = proxy.add(Rule::new(secrets.clone(), Fault::HoldWatch));
//! hold.applied(1, Duration::from_secs(10)).await?; // one event is late now
//! hold.remove(); // and is delivered
//!
//! let slow_down = Answer::error(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "30");
//! proxy.add(Rule::new(Requests::any().method(Method::PATCH), Fault::Answer(slow_down)).times(3));
//! proxy.inject(&secrets, error_event(StatusCode::GONE));
//! # Ok(()) }
//! ```

mod connection;
mod in_force;
mod rule;
mod selection;
mod socket;
mod tls;
mod truncate;
mod watch;

use std::{fmt::Display, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use self::{
    connection::{Upstream, serve},
    in_force::RulesInForce,
    tls::{acceptor, connector},
    watch::{Command, OpenWatches},
};
use crate::{
    control_plane::ControlPlane,
    kubeconfig::KubeconfigFile,
    wait::{Attempt, PATIENCE, wait_for},
};

pub use self::{
    in_force::{Hits, RuleInForce},
    rule::{Answer, Fault, Requests, Rule, error_event, status},
    selection::Selection,
};

/// A fault proxy in front of an apiserver.
///
/// # Guarantees
/// Method, path, query, headers and bodies pass unchanged unless a rule or a [`Selection`] says otherwise, and
/// without delay: only a rule makes the proxy hold more than one line of a watch. Each connection of a client has its own
/// connection to the apiserver, so a fault on one does not delay any other. If the apiserver breaks off an
/// answer, it is broken off for the client. Everything ends with the last clone.
///
/// # Caveats
/// The proxy speaks HTTP/1.1 only, without upgrades (`kubectl exec`). Watch faults need a watch in JSON,
/// which kube-rs and kubectl ask for. An apiserver that refuses connections looks like one that accepts and
/// closes them.
#[derive(Clone, Debug)]
pub struct Proxy {
    address: SocketAddr,
    certificate_authority: PathBuf,
    shared: Arc<Shared>,
    // Aborted when the last clone is dropped, with all connections.
    _accepting: Arc<JoinSet<()>>,
    _directory: Arc<TempDir>,
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    upstream: tokio::sync::watch::Sender<Arc<Upstream>>,
    rules: RulesInForce,
    open_watches: OpenWatches,
    selection: Option<Selection>,
}

impl Proxy {
    /// Starts to listen on a free port of 127.0.0.1, as a task of the current runtime.
    ///
    /// # Errors
    /// When the CA of `control_plane` cannot be read, or that of the proxy cannot be written.
    pub async fn start(control_plane: &ControlPlane) -> Result<Self> {
        Self::start_with(control_plane, None).await
    }

    /// Starts a proxy like [`Proxy::start`], whose clients see only a selection of the objects from their first request
    /// on.
    ///
    /// # Errors
    /// Same as [`Proxy::start`].
    pub async fn start_with(
        control_plane: &ControlPlane,
        selection: Option<Selection>,
    ) -> Result<Self> {
        let directory = TempDir::with_prefix("pod-reloader-proxy-")
            .context("creating a directory for the proxy")?;
        let certificate_authority = directory.path().join("ca.crt");
        let acceptor = acceptor(&certificate_authority)?;
        let upstream = Upstream::new(
            control_plane.api_url(),
            connector(&control_plane.ca_pem()?)?,
        )?;
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("listening on 127.0.0.1")?;
        let address = listener
            .local_addr()
            .context("asking for our own address")?;
        let shared = Arc::new(Shared {
            upstream: tokio::sync::watch::Sender::new(Arc::new(upstream)),
            rules: RulesInForce::default(),
            open_watches: OpenWatches::default(),
            selection,
        });
        let mut accepting = JoinSet::new();
        let connections = Arc::clone(&shared);
        accepting.spawn(accept(listener, move |tcp| {
            serve(tcp, acceptor.clone(), Arc::clone(&connections))
        }));
        Ok(Self {
            address,
            certificate_authority,
            shared,
            _accepting: Arc::new(accepting),
            _directory: Arc::new(directory),
        })
    }

    /// Returns the URL of the proxy.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the kubeconfig for the holder of `token`, through this proxy. The CA file that it names exists
    /// as long as the proxy.
    pub fn kubeconfig_for(&self, token: String) -> KubeconfigFile {
        KubeconfigFile {
            server: self.url(),
            certificate_authority: self.certificate_authority.clone(),
            token,
        }
    }

    /// Redirects everything from now on to another apiserver with the same CA, and resets all existing
    /// connections.
    ///
    /// # Errors
    /// When `url` is not a URL.
    pub fn move_to(&self, url: &str) -> Result<()> {
        let upstream = self.shared.upstream.borrow().at(url)?;
        self.shared.upstream.send_replace(Arc::new(upstream));
        Ok(())
    }

    /// Adds a rule after those in force. It stays in force until it is removed, even if the returned value is
    /// dropped.
    ///
    /// # Guarantees
    /// The rule applies to everything that comes after this call: a request that arrives, or a line that
    /// arrives on an open watch. A rule that is removed has no further effect: what it delayed or held goes
    /// on at once, in order. Only requests left without an answer ([`Fault::Hang`]) stay so.
    pub fn add(&self, rule: Rule) -> RuleInForce {
        self.shared.rules.add(rule)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }

    /// Sends one line, such as an [`error_event`], into all open watches among `requests`, bypassing all
    /// rules and ahead of the lines that they hold. Returns the number of those watches.
    pub fn inject(&self, requests: &Requests, line: impl Display) -> usize {
        let line = Bytes::from(format!("{line}\n"));
        self.shared
            .open_watches
            .send(requests, || Command::Inject(line.clone()))
    }

    /// Sends one line like [`Proxy::inject`], as soon as one of the watches is open: a list comes before each.
    ///
    /// # Errors
    /// When none is open for a long time.
    pub async fn inject_once_open(&self, requests: &Requests, line: impl Display) -> Result<()> {
        once_open(|| self.inject(requests, &line)).await.map(drop)
    }

    /// Resets the connections of all open watches among `requests`. Returns the number of those watches.
    pub fn cut(&self, requests: &Requests) -> usize {
        self.shared.open_watches.send(requests, || Command::Cut)
    }

    /// Resets connections like [`Proxy::cut`], as soon as one of the watches is open.
    ///
    /// # Errors
    /// When none is open for a long time.
    pub async fn cut_once_open(&self, requests: &Requests) -> Result<usize> {
        once_open(|| self.cut(requests)).await
    }

    /// Returns the number of open watches among `requests`.
    pub fn open_watches(&self, requests: &Requests) -> usize {
        self.shared.open_watches.count(requests)
    }
}

/// Does something to watches until there are any, and returns their number.
async fn once_open(act: impl Fn() -> usize) -> Result<usize> {
    wait_for("a watch to be open", PATIENCE, async || {
        Ok(match act() {
            0 => Attempt::NotYet("none is".to_owned()),
            open => Attempt::Done(open),
        })
    })
    .await
}

/// Serves each incoming connection in a task that ends with this one.
pub(crate) async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) => {
                    connections.spawn(serve(tcp));
                }
                Err(error) => {
                    tracing::warn!("accepting a connection: {error}");
                    // Most likely out of file descriptors: a connection has to be closed first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = connections.join_next() => if let Ok(Err(error)) = ended {
                tracing::debug!("a connection ended: {error:#}");
            },
        }
    }
}
