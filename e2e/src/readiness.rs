//! Waits until a control plane works.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    components::{Component, RealNode},
    kubeconfig::KubeconfigFile,
    launch::{CONTAINERD_SOCKET, Launch},
    process::Process,
    tool::Tool,
    wait::{Attempt, done_if, wait_for},
};

/// Waits until `component` answers. Fails at once if its process has ended.
pub(crate) async fn ready(
    launch: &Launch,
    component: Component,
    process: &Process,
    patience: Duration,
) -> Result<()> {
    match launch.health(component) {
        Some((kubeconfig, path)) => answers(&kubeconfig, path, process, patience).await,
        None => containerd_answers(&launch.tool("ctr"), process, patience).await,
    }
}

async fn containerd_answers(ctr: &Tool, process: &Process, patience: Duration) -> Result<()> {
    let answer = wait_for("containerd to be ready", patience, async || {
        process.must_run()?;
        let version = ["--address", CONTAINERD_SOCKET, "version"];
        Ok(ctr.run(&version).await.into())
    })
    .await;
    match answer {
        Err(error) if process.exit().is_none() => bail!("{error:#}\n{}", process.last_output()),
        answer => answer.map(drop),
    }
}

/// Waits like [`ready`], for an answer at `path` of the server of `kubeconfig`.
pub(crate) async fn answers(
    kubeconfig: &KubeconfigFile,
    path: &str,
    process: &Process,
    patience: Duration,
) -> Result<()> {
    let started = Instant::now();
    let client = kubeconfig.client().await?;
    let answer = wait_for(
        &format!("{} to be ready", process.name()),
        patience,
        async || {
            process.must_run()?;
            let request = http::Request::get(path).body(Vec::new())?;
            Ok(
                match timeout(Duration::from_secs(5), client.request_text(request)).await {
                    Ok(answer) => answer.into(),
                    Err(_) => Attempt::NotYet(format!("no answer to {path} within 5 s")),
                },
            )
        },
    )
    .await;
    match answer {
        // A process that has ended has shown its log already.
        Err(error) if process.exit().is_none() => bail!("{error:#}\n{}", process.last_output()),
        answer => answer?,
    };
    tracing::info!(
        "{} is ready after {:.1} s",
        process.name(),
        started.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Applies the CRDs in `folder` and waits until the apiserver serves their types.
pub(crate) async fn create_types(kubectl: &Tool, folder: &Path, patience: Duration) -> Result<()> {
    // The slash: kubectl does not enter a folder that is a link.
    let folder = format!("--filename={}/", folder.display());
    kubectl
        // They come from a release: the schema need not be fetched to check them.
        .run(&["apply", "--server-side", "--validate=false", &folder])
        .await?;
    let timeout = format!("--timeout={}s", patience.as_secs());
    kubectl
        .run(&["wait", "--for=condition=Established", &folder, &timeout])
        .await?;
    Ok(())
}

/// Creates `count` nodes for kwok to play, and waits until pods can run: until the nodes are ready and the default
/// service account exists, without which no pod is admitted.
pub(crate) async fn create_nodes(client: Client, count: usize, patience: Duration) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..count {
        let name = format!("node-{number}");
        let node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
        }))?;
        nodes
            .create(&PostParams::default(), &node)
            .await
            .with_context(|| format!("creating {name}"))?;
        node_ready(&nodes, &name, patience).await?;
    }
    default_account(client, patience).await
}

/// Waits until pods can run on the real node, and reach the apiserver through its Service.
pub(crate) async fn real_node_works(
    client: Client,
    through_service: &KubeconfigFile,
    patience: Duration,
) -> Result<()> {
    node_ready(&Api::all(client.clone()), RealNode::NAME, patience).await?;
    default_account(client, patience).await?;
    let client = through_service.client().await?;
    let what = "an answer of the apiserver through its Service";
    wait_for(what, patience, async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        let answer = timeout(Duration::from_secs(5), client.request_text(request)).await;
        Ok(match answer {
            Ok(answer) => answer.into(),
            Err(_) => Attempt::NotYet("no answer within 5 s".to_owned()),
        })
    })
    .await
    .map(drop)
}

async fn node_ready(nodes: &Api<Node>, name: &str, patience: Duration) -> Result<()> {
    wait_for(&format!("{name} to be ready"), patience, async || {
        let Some(node) = nodes.get_opt(name).await? else {
            return Ok(Attempt::NotYet("there is no such node".to_owned()));
        };
        done_if(
            is_ready(&node),
            format!(
                "conditions {:?}",
                node.status.and_then(|status| status.conditions)
            ),
        )
    })
    .await
}

async fn default_account(client: Client, patience: Duration) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    wait_for("the default service account", patience, async || {
        Ok(accounts.get("default").await.into())
    })
    .await
    .map(drop)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
    !tainted
        && conditions
            .unwrap_or_default()
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
