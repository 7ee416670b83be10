//! Measures the cost of the webhook, called directly and by the apiserver.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment,
    core::v1::ConfigMap,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use pod_reloader_e2e::{
    Process, Scene,
    caller::{self, Caller},
    crowd,
    workload::{Workload, config_map},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    another_role, clear,
    figures::{Figures, Spread},
    rounds::Target,
    scene,
};

const CONNECTIONS: usize = 32;
const RATE: usize = 10_000;
/// Label of the Deployments that are for the empty server instead of the operator.
const EMPTY: &str = "bench-empty";

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let scene = scene("0s").await?;
    let empty = EmptyServer::start(&scene)?;
    let caller = Caller::of(&scene).await?;
    let ours = Target(caller.clone());
    let floor = Target(Caller::new(empty.port, "localhost".to_owned(), &empty.ca)?);
    let process = scene.operator.process();
    scene.put_all(&[config_map("app", "1")]).await?;
    let workload = large("web");
    scene.create(&workload).await?;
    let keeping = review(&scene, &workload, |object| {
        object["metadata"]["labels"] = json!({"team": "blue"});
    });
    let keeping = keeping.await?;
    let reading = review(&scene, &workload, |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    });
    let reading = reading.await?;
    let answer = caller
        .send(&caller::request(Duration::from_secs(10), &keeping))
        .await?;
    ensure!(
        answer.status == 200 && !answer.body.contains("patch"),
        "{answer:?}"
    );
    let size = format!("{:.1} KB", keeping.len() as f64 / 1e3);

    let times = if quick { 1 } else { 5 };
    let mut one = [Vec::new(), Vec::new()];
    let mut cpu = [Vec::new(), Vec::new()];
    let mut rated = [Vec::new(), Vec::new()];
    for _ in 0..times {
        for (at, (target, process)) in [(&floor, &empty.process), (&ours, process)]
            .into_iter()
            .enumerate()
        {
            target.one_by_one(&keeping, 200).await?;
            one[at].extend(target.one_by_one(&keeping, 2_000).await?);
            let count = 20_000;
            let before = process.cpu_time()?;
            target.side_by_side(&keeping, CONNECTIONS, count).await?;
            cpu[at].push((process.cpu_time()? - before) / count as u32);
            let period = Duration::from_secs(if quick { 2 } else { 5 });
            rated[at].extend(target.at_rate(&keeping, CONNECTIONS, RATE, period).await?);
        }
    }
    let both = |[floor, ours]: [Vec<Duration>; 2]| (Spread::of(floor), Spread::of(ours));
    let (least, kept) = both(one);
    figures.compare(
        &format!("a review of {size} that keeps, one connection"),
        least,
        kept,
        "0.13 ms",
    );
    let (least, kept) = both(cpu);
    figures.compare(
        &format!("the same, {CONNECTIONS} connections: CPU for each"),
        least,
        kept,
        "0.040 ms",
    );
    let (least, kept) = both(rated);
    figures.compare(
        &format!("the same at {RATE} a second"),
        least,
        kept,
        "p99 below 5 ms",
    );

    let mut gets = Vec::new();
    let mut reads = Vec::new();
    let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
    for _ in 0..times * 4 {
        for _ in 0..100 {
            let began = Instant::now();
            config_maps.get("app").await?;
            gets.push(began.elapsed());
        }
        reads.extend(ours.one_by_one(&reading, 100).await?);
    }
    let (get, read) = (Spread::of(gets), Spread::of(reads));
    figures.compare(
        "a review that reads one object live; floor: one GET",
        get,
        read,
        "GET + 0.2 ms",
    );

    writes(&scene, &empty, figures, if quick { 100 } else { 500 }).await?;
    empty.process.kill().await;
    clear(scene).await;
    Ok(())
}

/// Measures what a webhook adds to a write, with three Deployments that are written in turns.
async fn writes(
    scene: &Scene,
    empty: &EmptyServer,
    figures: &mut Figures,
    count: usize,
) -> Result<()> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(scene.client.clone());
    let mut ours = configurations.get(&scene.installation.namespace).await?;
    configurations
        .create(&PostParams::default(), &empty.configuration(&ours)?)
        .await?;
    for webhook in ours.webhooks.iter_mut().flatten() {
        let not_empty = json!({"matchExpressions": [{"key": EMPTY, "operator": "DoesNotExist"}]});
        webhook.object_selector = Some(serde_json::from_value(not_empty)?);
    }
    configurations
        .replace(&scene.installation.namespace, &PostParams::default(), &ours)
        .await?;
    let [plain, empty, ours] = ["plain", "empty", "ours"].map(large);
    let workloads = [
        plain.with(&["metadata", "annotations"], json!({})),
        empty.labelled(EMPTY, "true"),
        ours,
    ];
    scene.create_all(&workloads).await?;
    // Time for the apiserver to see the configurations.
    sleep(Duration::from_secs(3)).await;

    let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let calls = answered(scene).await?;
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for number in 0..count + WARM_UP {
        for (workload, all) in workloads.iter().zip(&mut all) {
            let patch = json!({"metadata": {"labels": {"n": number.to_string()}}});
            let began = Instant::now();
            deployments
                .patch(
                    &workload.name,
                    &PatchParams::default(),
                    &Patch::Merge(&patch),
                )
                .await?;
            if number >= WARM_UP {
                all.push(began.elapsed());
            }
        }
    }
    let calls = answered(scene).await? - calls;
    let [plain, empty, ours] = all.map(Spread::of);
    figures.say(
        "a write that no webhook is called for",
        None,
        plain.to_string(),
        "-",
    );
    let (empty, ours) = (empty.plus(-plain.median), ours.plus(-plain.median));
    figures.compare(
        "added to a write of a subscribed workload",
        empty,
        ours,
        "1.1 x the empty server",
    );
    let writes = count + WARM_UP;
    let told = format!("{} calls for {writes} writes", calls - writes);
    figures.say("calls for writes of any other workload", None, told, "0");
    Ok(())
}

/// Returns the number of reviews that the operator has answered.
async fn answered(scene: &Scene) -> Result<usize> {
    let metrics = scene.operator.metrics().await?;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("pod_reloader_admissions_total"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    Ok(counts.sum())
}

/// Returns a Deployment without pods that lists one ConfigMap. Its reviews have a typical size.
fn large(name: &str) -> Workload {
    let variables: Vec<_> = (0..16)
        .map(|number| json!({"name": format!("SETTING_{number}"), "value": "a value of some length"}))
        .collect();
    let containers = json!([{"name": "main", "image": "app:1", "env": variables}]);
    let workload = crowd(name, 1).remove(0).lists("app");
    workload.with(&["spec", "template", "spec", "containers"], containers)
}

/// Returns the review of an update of a Deployment of the cluster.
async fn review(
    scene: &Scene,
    workload: &Workload,
    change: impl FnOnce(&mut Value),
) -> Result<String> {
    let old = scene.object(&workload.reference()).await?;
    let mut review = caller::update(&scene.namespace, workload);
    review["request"]["oldObject"] = old.clone();
    let object = &mut review["request"]["object"];
    *object = old;
    change(object);
    Ok(review.to_string())
}

/// A webhook that decodes nothing, as a process.
struct EmptyServer {
    process: Process,
    port: u16,
    /// CA of its certificate, in PEM.
    ca: String,
}

impl EmptyServer {
    fn start(scene: &Scene) -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
        let write = |name: &str, content: String| {
            let path = scene.directory().join(name);
            fs::write(&path, content).map(|()| path)
        };
        let certificate_file = write("empty.crt", certificate.pem())?;
        let key_file = write("empty.key", key.serialize_pem())?;
        let args = [
            format!("--port={port}"),
            format!("--certificate={}", certificate_file.display()),
            format!("--key={}", key_file.display()),
        ];
        Ok(Self {
            process: another_role(scene, "empty-server", &args)?,
            port,
            ca: certificate.pem(),
        })
    }

    /// Returns a configuration like `ours`, for its own Deployments.
    fn configuration(
        &self,
        ours: &MutatingWebhookConfiguration,
    ) -> Result<MutatingWebhookConfiguration> {
        let mut webhooks = ours.webhooks.clone();
        for webhook in webhooks.iter_mut().flatten() {
            webhook.client_config = serde_json::from_value(json!({
                "url": format!("https://localhost:{}/mutate", self.port),
                "caBundle": k8s_openapi::ByteString(self.ca.clone().into_bytes()),
            }))?;
            webhook.object_selector = Some(serde_json::from_value(
                json!({"matchLabels": {EMPTY: "true"}}),
            )?);
        }
        let metadata = serde_json::from_value(json!({"name": EMPTY})).context("metadata")?;
        Ok(MutatingWebhookConfiguration { metadata, webhooks })
    }
}

const WARM_UP: usize = 20;
