//! The life of a release whose pods run, and an attack on it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Service,
};
use kube::Api;
use pod_reloader_e2e::{
    Attempt, PATIENCE, RealScene,
    caller::{Caller, chunked, head, request},
    real_scene::{RELEASE, address, restarts},
    wait_for,
    workload::Workload,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

#[tokio::test]
async fn every_pod_answers_with_a_change_in_each_way_under_attack_and_after_uninstalling()
-> Result<()> {
    RealScene::play("smoke", Value::Null, async |scene| {
        let tested = scene.helm("test", &["--timeout=3m"]).await?;
        ensure!(tested.contains("Succeeded"), "{tested}");

        scene.set("app", "blue").await?;
        scene.create(&reads_in_each_way(scene)).await?;
        all_answer(scene, "blue").await?;

        let before = scene.revisions("web").await?;
        scene.set("app", "green").await?;
        scene.rolls_once("web", &before).await?;
        all_answer(scene, "green").await?;

        let before = scene.revisions("web").await?;
        // Whatever else an attack does afterwards, it reaches them.
        for replica in replicas(scene).await? {
            replica.connect().await.context("reaching a replica")?;
        }
        let connections = half_open(scene).await?;
        let (attacked, changed) = tokio::join!(attack(scene), scene.set("app", "red"));
        attacked?;
        changed?;
        scene.rolls_once("web", &before).await?;
        all_answer(scene, "red").await?;
        drop(connections);
        no_operator_has_restarted(scene).await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts for one change");

        let before = state(scene).await?;
        scene.helm("uninstall", &["--wait"]).await?;
        // Its pods, and what controllers have made of its Services, go a moment later.
        wait_for("everything of the release to go", PATIENCE, async || {
            let left = of_release(scene).await?;
            Ok(match left.is_empty() {
                true => Attempt::Done(()),
                false => Attempt::NotYet(left),
            })
        })
        .await?;
        ensure!(state(scene).await? == before, "uninstalling changed web");
        all_answer(scene, "red").await
    })
    .await
}

/// Returns a Deployment whose pods read ConfigMap `app` in each way that there is.
fn reads_in_each_way(scene: &RealScene) -> Workload {
    let container = json!({
        "env": [
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "key"}}},
            {"name": "START_FILES", "value": "/whole/key,/part,/projected/key"},
        ],
        "envFrom": [{"prefix": "ALL_", "configMapRef": {"name": "app"}}],
        "volumeMounts": [
            {"name": "whole", "mountPath": "/whole"},
            {"name": "whole", "mountPath": "/part", "subPath": "key"},
            {"name": "projected", "mountPath": "/projected"},
        ],
    });
    let pod = json!({
        "volumes": [
            {"name": "whole", "configMap": {"name": "app"}},
            {"name": "projected", "projected": {"sources": [{"configMap": {"name": "app"}}]}},
        ],
    });
    scene.answering("web", 3, &container, &pod)
}

/// Waits until every pod has read this content in each way, now and at its start.
async fn all_answer(scene: &RealScene, content: &str) -> Result<()> {
    for path in [
        "/env/ONE",
        "/env/ALL_key",
        "/file/whole/key",
        "/file/part",
        "/file/projected/key",
        "/start/whole/key",
        "/start/part",
        "/start/projected/key",
    ] {
        scene.all_answer("web", path, content).await?;
    }
    Ok(())
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

/// Sends each replica a body of 200 MiB, and a review with as many tiny annotations as fit below the limit.
async fn attack(scene: &RealScene) -> Result<()> {
    let annotations: Vec<_> = (0..2_000_000).map(|n| format!("\"{n:x}\":\"\"")).collect();
    let review = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"x",
        "kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"operation":"CREATE","object":
        {{"metadata":{{"namespace":"default","annotations":{{{}}}}},"spec":{{"template":{{}}}}}}}}}}"#,
        annotations.join(",")
    );
    let patience = Duration::from_secs(10);
    let forged = request(patience, &review);
    let endless = vec![b' '; 200 << 20];
    let head = head(patience, "transfer-encoding: chunked\r\n");
    for replica in replicas(scene).await? {
        // Closing the connection is an answer, too.
        if let Ok(answered) = replica.send(&forged).await {
            ensure!(answered.status != 500, "{answered:?}");
        }
        let parts = [head.clone().into_bytes()].into_iter();
        if let Ok(answered) = replica.send_in_parts(parts.chain(chunked(&endless))).await {
            ensure!(answered.status >= 400, "{answered:?}");
        }
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

async fn no_operator_has_restarted(scene: &RealScene) -> Result<()> {
    let operators = scene.operators().await?;
    ensure!(operators.len() == 2, "{} replicas", operators.len());
    for pod in operators {
        ensure!(restarts(&pod) == 0, "{:?}", pod.status);
    }
    Ok(())
}

/// Returns what a later restart would change: generation, pod template and revisions.
async fn state(scene: &RealScene) -> Result<(Value, Vec<String>)> {
    let web = scene
        .kubectl(&["get", "deployment", "web", "--output=json"])
        .await?;
    let web: Value = serde_json::from_str(&web)?;
    let revisions = scene.revisions("web").await?;
    let parts = json!([web["metadata"]["generation"], web["spec"]["template"]]);
    Ok((parts, revisions.into_iter().collect()))
}

/// Returns the names of everything that belongs to the release, of every kind that the apiserver has.
async fn of_release(scene: &RealScene) -> Result<String> {
    let kubectl = scene.control_plane.kubectl();
    let listable = ["api-resources", "--verbs=list,delete", "--output=name"];
    let kinds = kubectl.run(&listable).await?;
    let kinds = kinds.lines().collect::<Vec<_>>().join(",");
    let selector = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let get = [
        "get",
        &kinds,
        &selector,
        "--all-namespaces",
        "--output=json",
    ];
    let found: Value = serde_json::from_str(&kubectl.run(&get).await?)?;
    let found = found["items"].as_array().cloned().unwrap_or_default();
    let left = found.iter().filter(|object| !stays(object));
    let left = left.map(|object| format!("{}/{}", object["kind"], object["metadata"]["name"]));
    let left: Vec<_> = left.collect();
    Ok(left.join("\n"))
}

/// Tells whether an object of a release is to stay: the keys of the hash, by which a later release knows the hashes, and
/// what the chart has Helm keep, of this release or of an earlier test.
fn stays(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str();
    name.is_some_and(|name| name.ends_with("-hash-keys"))
        || object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
}
