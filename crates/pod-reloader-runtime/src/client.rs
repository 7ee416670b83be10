//! Builds the clients of the apiserver: one for each purpose, each with a deadline.

use std::time::Duration;

use http::{HeaderValue, header};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};
use pod_reloader_core::annotations::FIELD_MANAGER;
use tokio::runtime::Handle;

use self::connections::connections;
use crate::error::{CallError, StartError};
use crate::watch_age::Watches;

mod connections;
mod silence;

/// The time limit of one call, except for watches.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The duration of one watch call.
pub(crate) const WATCH_CALL: Duration = Duration::from_secs(60);

/// The time that a watch, or the list before it, may go without a byte. After that its connection is given
/// up.
const WATCH_DEADLINE: Duration = Duration::from_secs(70);

/// The name by which we appear in the apiserver's audit log and metrics.
pub const USER_AGENT: &str = concat!("pod-reloader/", env!("CARGO_PKG_VERSION"));

/// The file that holds the namespace of the pod.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// One client for each purpose. Each has its own connection pool, so none waits for another.
#[derive(Clone)]
pub struct Clients {
    /// Reads of the webhook.
    pub admission: Client,
    /// Reads and patches of the reconcile loop.
    pub reconcile: Client,
    /// Watches.
    pub watch: Client,
    /// The Lease.
    pub lease: Client,
    /// Events.
    pub events: Client,
}

impl Clients {
    /// Returns clients for the cluster that KUBECONFIG names, or else for the one that we run in. The
    /// clients of the loop work on the runtime `reconciling`. Answers to watches are recorded in `noted`.
    pub async fn infer(reconciling: &Handle, noted: &Watches) -> Result<Self, StartError> {
        let config = Config::infer()
            .await
            .map_err(|source| StartError::NoCluster { source })?;
        Self::new(config, reconciling, noted)
    }

    fn new(mut config: Config, reconciling: &Handle, noted: &Watches) -> Result<Self, StartError> {
        // The caller knows better than the client which call is worth another try, and when.
        config.default_retry = false;
        let user_agent = HeaderValue::from_static(USER_AGENT);
        config.headers.push((header::USER_AGENT, user_agent));
        let builder = |silence| match connections(&config, silence) {
            Ok(service) => Ok(ClientBuilder::new(service, &config.default_namespace)),
            Err(source) => Err(StartError::Client {
                source: source.into(),
            }),
        };
        let client = || Ok(builder(DEADLINE)?.build());
        let (admission, lease) = (client()?, client()?);
        let _reconciling = reconciling.enter();
        Ok(Self {
            admission,
            lease,
            reconcile: client()?,
            watch: builder(WATCH_DEADLINE)?.with_layer(noted).build(),
            events: client()?,
        })
    }
}

/// Returns the namespace of the pod that we run in. `None` outside of a pod.
pub fn pod_namespace() -> Option<String> {
    std::fs::read_to_string(POD_NAMESPACE_FILE)
        .ok()
        .map(|namespace| namespace.trim().to_owned())
}

/// Returns the user name by which the apiserver knows us.
pub async fn own_username(client: &Client) -> Result<String, CallError> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = within(
        DEADLINE,
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()),
    )
    .await?;
    let user = review.status.and_then(|status| status.user_info);
    user.and_then(|user| user.username)
        .ok_or(CallError::Unreadable)
}

/// Returns the parameters of our creates and replaces.
pub fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// Returns the parameters of our patches.
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Waits for a call, but no longer than `deadline`.
pub async fn within<T, E: Into<CallError>>(
    deadline: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result.map_err(Into::into),
        Err(_) => Err(CallError::TimedOut(deadline)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::WatchParams;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n";

    /// Returns clients of an apiserver that begins each answer and then goes silent.
    async fn clients(noted: &Watches) -> Clients {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // An address with a path, as if many clusters were behind one host.
        let url = format!("http://{}/clusters/c", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut connections = Vec::new();
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                connection.write_all(HEAD).await.unwrap();
                connections.push(connection);
            }
        });
        Clients::new(Config::new(url.parse().unwrap()), &Handle::current(), noted).unwrap()
    }

    #[tokio::test]
    async fn a_watch_that_brings_no_byte_is_given_up() {
        let watch = clients(&Watches::default()).await.watch;
        let config_maps: Api<ConfigMap> = Api::namespaced(watch, "ns");
        // The last byte comes later than this, and it may take a busy machine a while to get on from there.
        let silent_since = Instant::now();
        let events = config_maps.watch(&WatchParams::default(), "0").await;
        let mut events = std::pin::pin!(events.unwrap());
        // From here on the clock is paused: it advances whenever every task waits for it.
        tokio::time::pause();
        assert!(matches!(events.next().await, Some(Err(_)) | None));
        let silence = silent_since.elapsed();
        assert!(silence >= WATCH_DEADLINE, "{silence:?}");
        assert!(silence < WATCH_DEADLINE * 2, "{silence:?}");
    }

    #[tokio::test]
    async fn an_answer_to_a_watch_is_noted_and_one_to_another_call_is_not() {
        let watches = Watches::default();
        let clients = clients(&watches).await;
        let config_maps = |client| Api::<ConfigMap>::namespaced(client, "ns");
        let watched = config_maps(clients.watch);
        let _watching = watches.begin(watched.resource_url(), "ConfigMap");
        let noted = || watches.oldest()["ConfigMap"];
        let began = noted();
        let other = config_maps(clients.reconcile);
        drop(other.watch(&WatchParams::default(), "0").await.unwrap());
        assert_eq!(noted(), began);
        drop(watched.watch(&WatchParams::default(), "0").await.unwrap());
        assert!(noted() > began);
    }
}
