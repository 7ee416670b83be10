//! Hostile clients of the webhook, in the cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Service,
};
use kube::Api;
use pod_reloader_e2e::{
    RealScene,
    caller::{Caller, chunked, head, request},
    real_scene::{RELEASE, address, restarts},
};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

use crate::contents::reads_variable;

#[tokio::test]
async fn hostile_clients_cost_no_replica_and_keep_no_change_from_the_pods() -> Result<()> {
    RealScene::play("attack", Value::Null, async |scene| {
        scene.set("app", "1").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;
        let before = scene.revisions("web").await?;
        reach_replicas(scene).await?;
        let connections = half_open(scene).await?;
        let attack = async {
            send_many_annotations(scene).await?;
            send_endless_bodies(scene).await
        };
        let (attacked, changed) = tokio::join!(attack, scene.set("app", "2"));
        attacked?;
        changed?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ALL_key", "2").await?;
        drop(connections);
        no_operator_has_restarted(scene).await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts for one change");
        Ok(())
    })
    .await
}

/// Opens thousands of connections to the webhook's Service, and says nothing on them.
async fn half_open(scene: &RealScene) -> Result<Vec<TcpStream>> {
    let service = webhook(scene).await?;
    // A full backlog is what an attacker gets, too.
    let reached = (0..2000).map(|_| timeout(Duration::from_secs(5), service.reach()));
    let reached = join_all(reached).await.into_iter();
    let connections: Vec<_> = reached
        .filter_map(|it| it.ok().and_then(Result::ok))
        .collect();
    ensure!(!connections.is_empty(), "nobody listens");
    Ok(connections)
}

/// Sends each replica a review with as many tiny annotations as fit below the limit.
async fn send_many_annotations(scene: &RealScene) -> Result<()> {
    let annotations: Vec<_> = (0..2_000_000).map(|n| format!("\"{n:x}\":\"\"")).collect();
    let review = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"x",
        "kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"operation":"CREATE","object":
        {{"metadata":{{"namespace":"default","annotations":{{{}}}}},"spec":{{"template":{{}}}}}}}}}}"#,
        annotations.join(",")
    );
    let forged = request(ATTACK, &review);
    for replica in replicas(scene).await? {
        // Closing the connection is an answer, too.
        if let Ok(answered) = replica.send(&forged).await {
            ensure!(answered.status != 500, "{answered:?}");
        }
    }
    Ok(())
}

/// Sends each replica a body of 200 MiB.
pub(crate) async fn send_endless_bodies(scene: &RealScene) -> Result<()> {
    let endless = vec![b' '; 200 << 20];
    let head = head(ATTACK, "transfer-encoding: chunked\r\n");
    for replica in replicas(scene).await? {
        let parts = [head.clone().into_bytes()].into_iter();
        // Closing the connection is an answer, too.
        if let Ok(answered) = replica.send_in_parts(parts.chain(chunked(&endless))).await {
            ensure!(answered.status >= 400, "{answered:?}");
        }
    }
    Ok(())
}

/// Reaches each replica: whatever else an attack does afterwards, it gets there.
pub(crate) async fn reach_replicas(scene: &RealScene) -> Result<()> {
    for replica in replicas(scene).await? {
        replica.connect().await.context("reaching a replica")?;
    }
    Ok(())
}

/// Returns a caller of each replica of the webhook.
async fn replicas(scene: &RealScene) -> Result<Vec<Caller>> {
    let service = webhook(scene).await?;
    let operators = scene.operators().await?;
    ensure!(operators.len() == 2, "{} replicas", operators.len());
    let callers = operators.iter().map(|pod| {
        let address = address(pod).context("a ready pod has an address")?;
        anyhow::Ok(service.at(&address, 9443))
    });
    callers.collect()
}

/// Returns a caller of the webhook through its Service.
async fn webhook(scene: &RealScene) -> Result<Caller> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(scene.client.clone());
    let configuration = configurations.get(RELEASE).await?;
    let webhook = configuration.webhooks.unwrap_or_default();
    let webhook = webhook.into_iter().next().context("no webhook")?;
    let bundle = webhook.client_config.ca_bundle.context("no CA bundle")?.0;
    let caller = Caller::new(
        443,
        format!("{RELEASE}.{RELEASE}.svc"),
        &String::from_utf8(bundle)?,
    )?;
    let services: Api<Service> = Api::namespaced(scene.client.clone(), RELEASE);
    let spec = services.get(RELEASE).await?.spec.unwrap_or_default();
    let address = spec.cluster_ip.context("a Service without an address")?;
    Ok(caller.at(&address, 443))
}

/// Fails if a container of the operator has been started again, or a replica is missing.
pub(crate) async fn no_operator_has_restarted(scene: &RealScene) -> Result<()> {
    let operators = scene.operators().await?;
    ensure!(operators.len() == 2, "{} replicas", operators.len());
    for pod in operators {
        ensure!(restarts(&pod) == 0, "{:?}", pod.status);
    }
    Ok(())
}

/// Time for which a hostile client says that it waits.
const ATTACK: Duration = Duration::from_secs(10);
