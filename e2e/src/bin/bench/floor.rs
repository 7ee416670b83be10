//! The floor of a reconcile loop: a bare client that answers a watch event with one PATCH for each
//! Deployment. It does not hash, compare, test or report anything, nor read, unless it is asked to.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
    runtime::watcher,
};
use serde_json::json;
use tokio::sync::Semaphore;

/// Annotation that it writes to the pod template.
pub(crate) const STAMP: &str = "bench/stamp";
/// Label of a ConfigMap with the number of Deployments that it concerns: those of its own name, with `-0`,
/// `-1` and so on.
pub(crate) const CONCERNS: &str = "bench-concerns";
/// Number of PATCHes that are under way at once, the same as for the operator.
const AT_ONCE: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    namespace: String,
    /// Also reads what an operator has to: the object that changed, and the events of all Deployments.
    #[arg(long)]
    reads: bool,
}

/// Runs until it is killed.
pub(crate) async fn run(
    Args {
        kubeconfig,
        namespace,
        reads,
    }: Args,
) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    // With a limit, hyper-timeout wakes the process up twice more for each read.
    config.read_timeout = None;
    let client = Client::try_from(config)?;
    let config_maps: Api<PartialObjectMeta<ConfigMap>> =
        Api::namespaced(client.clone(), &namespace);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    if reads {
        let watch = format!("/apis/apps/v1/namespaces/{namespace}/deployments?watch=true");
        tokio::spawn(sent(&client, Request::get(watch).body(Body::empty())?));
    }
    let mut events = std::pin::pin!(watcher(config_maps, watcher::Config::default()));
    while let Some(event) = events.try_next().await? {
        // Objects in the initial list have not changed.
        let watcher::Event::Apply(config_map) = event else {
            continue;
        };
        let Some(concerned) = config_map.labels().get(CONCERNS) else {
            continue;
        };
        let name = config_map.name_any();
        let stamp = config_map.resource_version().context("no version")?;
        if reads {
            let object = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            sent(&client, Request::get(object).body(Body::empty())?).await?;
        }
        for number in 0..concerned.parse::<usize>()? {
            let patch = patch(&client, &namespace, &format!("{name}-{number}"), &stamp)?;
            let turns = turns.clone();
            tokio::spawn(async move {
                let _turn = turns.acquire().await;
                patch.await
            });
        }
    }
    Ok(())
}

/// Sends the stamp.
fn patch(
    client: &Client,
    namespace: &str,
    name: &str,
    stamp: &str,
) -> Result<impl Future<Output = Result<()>> + use<>> {
    let path = format!(
        "/spec/template/metadata/annotations/{}",
        STAMP.replace('/', "~1")
    );
    let patch = json!([{"op": "add", "path": path, "value": stamp}]);
    let uri = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let request = Request::patch(uri).header("Content-Type", "application/json-patch+json");
    let request = request.body(serde_json::to_vec(&patch)?.into())?;
    Ok(sent(client, request))
}

/// Sends a request, and drops the answer unread.
fn sent(client: &Client, request: Request<Body>) -> impl Future<Output = Result<()>> + use<> {
    let client = client.clone();
    async move {
        let answer = client.send(request).await?;
        let mut body = http_body_util::BodyStream::new(answer.into_body());
        while body.next().await.is_some() {}
        Ok(())
    }
}
