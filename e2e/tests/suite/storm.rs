//! Config that changes again and again restarts pods only a few times, and ends in the right state.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{
    Attempt, AuditEvent, Mark, Options, PATIENCE, Scene, crowd, done_with, full, has_own_values,
    oracle, wait_for,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn a_hundred_changes_within_the_settle_period_are_one_rollout() -> Result<()> {
    const CHANGES: u32 = 100;
    Scene::play(Options::settling("1h"), async |scene| {
        let web = Workload::podless("web").lists_secrets("app");
        let sentinel = Workload::deployment("sentinel")
            .lists_secrets("sentinel")
            .annotated(SETTLE_PERIOD, "0s")
            .without_pods();
        let objects = [secret("app", "0"), secret("sentinel", "0")];
        scene.apply(&objects).await?;
        scene.create(&sentinel).await?;
        let before = scene.create(&web).await?;
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
        for change in 1..=CHANGES {
            let patch = Patch::Merge(json!({"stringData": {"key": change.to_string()}}));
            let params = PatchParams::default();
            secrets.patch("app", &params, &patch).await?;
        }
        // The same watch brings this change after the others.
        scene.apply(&[secret("sentinel", "1")]).await?;
        scene.right(&sentinel).await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after == before, "it has not settled: {after:?}");

        let settled = json!({"metadata": {"annotations": {SETTLE_PERIOD: "0s"}}});
        scene.patch(&web, &settled).await?;
        scene.right(&web).await?;
        scene.apply(&[secret("sentinel", "2")]).await?;
        scene.right(&sentinel).await?;
        scene.right(&web).await?;
        let rollouts = scene.snapshot(&web).await?.new_revisions(&before);
        ensure!(rollouts == 1, "{rollouts} rollouts");
        Ok(())
    })
    .await
}

/// cert-manager renews the certificate every five seconds.
#[tokio::test]
async fn a_certificate_that_flaps_is_braked_and_reported() -> Result<()> {
    let limit = if full() { 5 } else { 2 };
    let options = Options {
        args: vec![format!("--max-restarts={limit}")],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&flapping_certificate()).await?;
        let mark = scene.mark().await?;
        let web = Workload::podless("web").lists_secrets("flapping");
        let before = scene.create(&web).await?;
        let flapping = Instant::now();
        // cert-manager may be slow.
        let note = wait_for("the brake", PATIENCE * 5, async || {
            let events = scene.events(&web).await?;
            let mut events = events.into_iter();
            Ok(match events.find(|(reason, _)| reason == BRAKED) {
                Some((_, note)) => Attempt::Done(note),
                None => Attempt::NotYet("no Event about it".to_owned()),
            })
        })
        .await?;
        ensure!(restarts_before_brake(scene, mark, &web).await? == limit);
        ensure!(note.contains("1 min"), "it names the pause: {note}");
        scene.shows("pod_reloader_braked_workloads", "1").await?;
        if full() {
            // The claim is about ten minutes.
            sleep(Duration::from_secs(600).saturating_sub(flapping.elapsed())).await;
            let rollouts = scene.snapshot(&web).await?.new_revisions(&before);
            println!("{rollouts} rollouts in {:?}", flapping.elapsed());
            ensure!(rollouts <= limit + 4, "{rollouts} rollouts");
        }
        Ok(())
    })
    .await
}

/// Returns the number of restarts of a workload since `mark` that came before the Event about its brake.
async fn restarts_before_brake(scene: &Scene, mark: Mark, workload: &Workload) -> Result<usize> {
    let requests = scene.requests(mark).await?;
    let is_report = |it: &AuditEvent| {
        let body = it.request_object.as_ref();
        it.resource == "events" && body.is_some_and(|body| body["reason"] == BRAKED)
    };
    let before = requests.iter().take_while(|it| !is_report(it));
    let is_restart =
        |it: &&AuditEvent| it.verb == "patch" && it.name == workload.name && it.code == Some(200);
    Ok(before.filter(is_restart).count())
}

/// While a Secret of one namespace restarts all workloads there, those of another namespace wait no longer
/// than they otherwise would.
#[tokio::test]
async fn a_change_that_concerns_thousands_holds_up_no_other_namespace() -> Result<()> {
    let size = if full() { 5000 } else { 120 };
    let label = format!("storm={}", std::process::id());
    let options = Options {
        everywhere: true,
        namespace_labels: vec![label],
        values: json!({"watch": {"namespaceSelector": {
            "matchLabels": {"storm": std::process::id().to_string()},
        }}}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let test = async |other: &str| fan_out(scene, other, size).await;
        scene.with_namespace("other", test).await
    })
    .await
}

async fn fan_out(scene: &Scene, other: &str, size: usize) -> Result<()> {
    let list = |workloads: Vec<Workload>| -> Vec<Workload> {
        let lists = |workload: Workload| workload.lists_secrets("app");
        workloads.into_iter().map(lists).collect()
    };
    let (many, few) = (list(crowd("web", size)), list(crowd("web", 3)));
    scene.put_all(&[secret("app", "1")]).await?;
    scene.put_all_in(other, &[secret("app", "1")]).await?;
    scene.create_all(&many).await?;
    scene.create_all_in(other, &few).await?;
    scene.quiet().await?;
    let of_many = scene.object("deployment/web-0").await?;
    let of_few = scene.object_in(other, "deployment/web-0").await?;
    let right = async |object: &Value| {
        oracle::config_hash(&scene.client, object, &scene.installation).await
    };
    let mark = scene.mark().await?;
    scene.put_all(&[secret("app", "2")]).await?;
    let key = right(&of_many).await?;
    let carrying = async |namespace: &str, key: &str, at_least: usize| {
        let what = format!("{at_least} workloads of {namespace} to be restarted");
        // With a limit, thousands of rollouts follow each other.
        let patience = PATIENCE * if has_own_values() { 20 } else { 5 };
        wait_for(&what, patience, async || {
            let count = scene.carrying(namespace, key).await?;
            done_with(count >= at_least, format!("{count} are"), count)
        })
        .await
    };
    carrying(&scene.namespace, &key, size / 10).await?;
    let began = Instant::now();
    scene.put_all_in(other, &[secret("app", "2")]).await?;
    let others = right(&of_few).await?;
    carrying(other, &others, few.len()).await?;
    let (took, so_far) = (
        began.elapsed(),
        scene.carrying(&scene.namespace, &key).await?,
    );
    println!("the other namespace after {took:?}, with {so_far} of {size} done");
    // On a busy machine, both take their time.
    let is_held_up = took >= Duration::from_secs(5) && so_far == size;
    ensure!(!is_held_up, "{took:?}");
    carrying(&scene.namespace, &key, size).await?;

    let requests = scene.requests(mark).await?;
    let count = |verb: &str, resource: &str| {
        let asked = requests
            .iter()
            .filter(|it| it.verb == verb && it.resource == resource);
        asked.count()
    };
    let (reads, patches) = (count("get", "secrets"), count("patch", "deployments"));
    println!("{patches} patches and {reads} reads of Secrets for {size} workloads");
    ensure!(patches == size + few.len(), "{patches} patches");
    ensure!(reads < 20, "{reads} reads of two Secrets");
    Ok(())
}

fn flapping_certificate() -> [Value; 2] {
    [
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": {"name": "self-signed"}, "spec": {"selfSigned": {}},
        }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "flapping"},
            "spec": {
                "dnsNames": ["example.com"], "secretName": "flapping",
                "duration": "1h", "renewBefore": "59m55s",
                "issuerRef": {"name": "self-signed"},
            },
        }),
    ]
}

/// The apiserver writes `<` as six characters. Nobody tracks these objects, but they are read all the same:
/// as events by a running operator, and in pages of a list by a starting one.
#[tokio::test]
async fn large_objects_that_nobody_tracks_take_little_memory() -> Result<()> {
    // In a list, each of them takes a megabyte and a half. So those of each kind are more than the memory that is allowed.
    let (config_maps, deployments) = if full() { (200, 200) } else { (72, 68) };
    Scene::play(Options::default(), async |scene| {
        scene.put_all(&[config_map("app", "1")]).await?;
        let web = Workload::podless("web").lists("app");
        scene.create(&web).await?;
        scene.quiet().await?;
        let process = scene.operator.process();
        println!("{} MiB before", process.peak_memory()? >> 20);

        let large = "<".repeat(262_000);
        let config_maps: Vec<_> = (0..config_maps)
            .map(|number| {
                let mut object = config_map(&format!("large-{number}"), "1");
                object["metadata"]["annotations"]["example.com/large"] = json!(large);
                object
            })
            .collect();
        scene.put_all(&config_maps).await?;
        // Paused Deployments make no ReplicaSets, which would be just as large.
        let deployments: Vec<_> = crowd("large", deployments)
            .into_iter()
            .map(|deployment| {
                deployment
                    .annotated("example.com/large", &large)
                    .with(&["spec", "paused"], json!(true))
            })
            .collect();
        scene.create_all(&deployments).await?;
        scene.quiet().await?;
        let watching = process.peak_memory()?;
        scene.operator.restart().await?;
        scene.quiet().await?;
        let starting = process.peak_memory()?;
        println!(
            "{} MiB when watching, {} MiB when starting",
            watching >> 20,
            starting >> 20
        );
        ensure!(watching < 100 << 20 && starting < 100 << 20, "of 256 MiB");
        Ok(())
    })
    .await
}

const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";
/// The reason of the Event about a brake.
const BRAKED: &str = "RestartedTooOften";
