//! Plays what runs in the pods of a Deployment, and the kubelets that bring changed config into their files.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use pod_reloader_e2e::{PATIENCE, Scene, done_if, done_with, wait_for};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinSet;

const CONFIG_SYNC: &str = "pod-reloader.cs.sap.com/config-sync";

/// The pods of a Deployment, each at an address of its own on this machine.
pub(super) struct Pods<'a> {
    scene: &'a Scene,
    labels: String,
    port: u16,
    state: Arc<Mutex<State>>,
    tasks: AsyncMutex<JoinSet<Result<()>>>,
}

#[derive(Default)]
struct State {
    /// The pods, by their addresses.
    pods: BTreeMap<Ipv4Addr, Running>,
    /// The content that each pod had when it has reloaded, since that was last asked for.
    reloaded: Vec<String>,
    /// The content that is there. A pod that does not have it yet says so.
    wanted: String,
    /// True if no pod has the content yet, whatever is in its files.
    waits: bool,
    /// The pod that cannot reload.
    refusing: Option<Ipv4Addr>,
    next: u8,
}

struct Running {
    name: String,
    /// The content of its files.
    files: String,
    /// The annotation at which its kubelet last brought it there.
    synced: Option<String>,
}

impl<'a> Pods<'a> {
    pub(super) async fn of(scene: &'a Scene, workload: &str) -> Result<Self> {
        let first = TcpListener::bind("127.0.0.1:0").await?;
        let port = first.local_addr()?.port();
        let state = Arc::<Mutex<State>>::default();
        let labels = format!("app={workload}");
        let mut tasks = JoinSet::new();
        let (client, namespace) = (scene.client.clone(), scene.namespace.clone());
        tasks.spawn(kubelet(client, namespace, labels.clone(), state.clone()));
        Ok(Self {
            scene,
            labels,
            port,
            state,
            tasks: AsyncMutex::new(tasks),
        })
    }

    /// Returns the port at which pods reload.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Waits until so many pods are ready, and runs a server in each.
    pub(super) async fn serve(&self, count: usize) -> Result<()> {
        let what = format!("{count} pods that run");
        wait_for(&what, PATIENCE, async || {
            let pods = self.ready().await?;
            for pod in &pods {
                self.run(pod).await?;
            }
            done_if(pods.len() == count, format!("{} pods", pods.len()))
        })
        .await
    }

    /// Starts the server of a pod, unless it runs.
    async fn run(&self, pod: &Pod) -> Result<()> {
        let name = pod.metadata.name.clone().context("a pod has a name")?;
        let number = {
            let mut state = self.lock();
            if state.pods.values().any(|it| it.name == name) {
                return Ok(());
            }
            state.next += 1;
            state.next
        };
        let address = Ipv4Addr::new(127, 77, 0, number);
        let listener = TcpListener::bind((address, self.port)).await?;
        let files = content(&self.scene.client, &self.scene.namespace).await?;
        {
            let mut state = self.lock();
            state.wanted.clone_from(&files);
            let running = Running {
                name: name.clone(),
                files,
                synced: synced(pod),
            };
            state.pods.insert(address, running);
        }
        let serving = serve(listener, address, self.state.clone());
        self.tasks.lock().await.spawn(serving);
        let ip = address.to_string();
        let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&status));
        self.api().patch_status(&name, &params, &patch).await?;
        Ok(())
    }

    /// Returns the content with which pods have reloaded since the last call of this.
    pub(super) fn reloaded(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().reloaded)
    }

    /// Lets pods say that they do not have the content yet, or no longer.
    pub(super) fn wait_to_be_told(&self, waits: bool) {
        self.lock().waits = waits;
    }

    /// Lets one pod fail to reload from now on.
    pub(super) fn refuse_one(&self) {
        let mut state = self.lock();
        state.refusing = state.pods.keys().next_back().copied();
    }

    /// Waits until so many pods have the present content in their files, and returns their names.
    pub(super) async fn synced(&self, count: usize) -> Result<Vec<String>> {
        let what = format!("{count} pods that have the content");
        wait_for(&what, PATIENCE, async || {
            let wanted = content(&self.scene.client, &self.scene.namespace).await?;
            let state = self.lock();
            let pods = state.pods.values().filter(|it| it.files == wanted);
            let names: Vec<_> = pods.map(|it| it.name.clone()).collect();
            done_with(names.len() == count, format!("{names:?}"), names)
        })
        .await
    }

    /// Waits until a pod is gone.
    pub(super) async fn gone(&self, name: &str) -> Result<()> {
        wait_for("the pod to be gone", PATIENCE, async || {
            done_if(self.api().get_opt(name).await?.is_none(), "it is there")
        })
        .await?;
        self.lock().pods.retain(|_, it| it.name != name);
        Ok(())
    }

    async fn ready(&self) -> Result<Vec<Pod>> {
        let of_workload = ListParams::default().labels(&self.labels);
        let mut pods = self.api().list(&of_workload).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
        Ok(pods)
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.scene.client.clone(), &self.scene.namespace)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Brings the content into the files of each pod whose annotation changes.
async fn kubelet(
    client: Client,
    namespace: String,
    labels: String,
    state: Arc<Mutex<State>>,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let config = watcher::Config::default().labels(&labels);
    let changed = watcher(pods, config).default_backoff().applied_objects();
    let mut changed = std::pin::pin!(changed);
    while let Some(pod) = changed.next().await {
        let Ok(pod) = pod else {
            continue;
        };
        let is_news = |it: &Running| {
            Some(&it.name) == pod.metadata.name.as_ref() && it.synced != synced(&pod)
        };
        if !lock(&state).pods.values().any(is_news) {
            continue;
        }
        let content = content(&client, &namespace).await?;
        let mut state = lock(&state);
        state.wanted.clone_from(&content);
        if let Some(running) = state.pods.values_mut().find(|it| is_news(it)) {
            running.files = content;
            running.synced = synced(&pod);
        }
    }
    Ok(())
}

/// Answers calls of a pod as long as it runs.
async fn serve(listener: TcpListener, address: Ipv4Addr, state: Arc<Mutex<State>>) -> Result<()> {
    loop {
        let (mut connection, _) = listener.accept().await?;
        let head = head(&mut connection).await?;
        let answer = {
            let mut state = lock(&state);
            let is_right = head.starts_with("POST /-/reload HTTP/1.1\r\n");
            let files = state.pods.get(&address).map(|it| it.files.clone());
            match files {
                _ if !is_right => "404 Not Found",
                None => "410 Gone",
                Some(_) if state.refusing == Some(address) => "500 Internal Server Error",
                Some(files) if state.waits || files != state.wanted => "425 Too Early",
                Some(files) => {
                    state.reloaded.push(files);
                    "200 OK"
                }
            }
        };
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        connection.write_all(answer.as_bytes()).await?;
    }
}

/// Reads the head of a request.
async fn head(connection: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    Ok(String::from_utf8(head)?)
}

/// Returns the content of ConfigMap `app`.
async fn content(client: &Client, namespace: &str) -> Result<String> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut data = config_maps.get("app").await?.data.unwrap_or_default();
    Ok(data.remove("key").unwrap_or_default())
}

fn synced(pod: &Pod) -> Option<String> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(CONFIG_SYNC).cloned()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}
