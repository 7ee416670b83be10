//! The apiserver restarts, dies, freezes, has a twin that lags behind, or is overloaded: nothing is lost.

mod etcd;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{
    Component, Expected, Options, Oracles, PATIENCE, Scene, done_if, full, wait_for,
};
use tokio::time::{Instant, sleep};

use self::etcd::whatever_happens_to_etcd;
use crate::faults::{
    change, everywhere, own_control_plane, patches, replicated, under_edits, workloads,
};

#[tokio::test]
async fn whatever_happens_to_apiserver_and_etcd_nothing_is_lost_and_nothing_rolls_twice()
-> Result<()> {
    Scene::play_on(own_control_plane(&[]).await?, replicated(), async |scene| {
        let workloads = workloads(scene).await?;
        scene.leader().await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        oracles.check("the start", Expected::revisions(0)).await?;
        restart_under_edits(scene, &mut oracles).await?;
        death_while_patches_are_made(scene, &mut oracles).await?;
        lost_answers_to_patches(scene, &mut oracles).await?;
        freeze(scene, &mut oracles).await?;
        a_twin_that_is_behind(scene, &mut oracles).await?;
        let etcd = whatever_happens_to_etcd(scene, oracles);
        etcd.await.context("faults of etcd")
    })
    .await
}

/// Stops and starts the apiserver in order, while a Secret changes all the time.
async fn restart_under_edits(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let (mark, begun) = (scene.mark().await?, terms_begun(scene)?);
    let apiserver = scene.control_plane.process(Component::Apiserver)?;
    let restart = async {
        apiserver.stop(Duration::from_secs(30)).await;
        all_are_called(scene).await?;
        apiserver.start_again()?;
        ready_again(scene).await?;
        all_are_called(scene).await
    };
    let tries = under_edits(scene, "a restart", restart).await?;
    oracles.check("a restart", Expected::up_to(tries)).await?;
    let requests = scene.requests(mark).await?;
    // How often a list fails depends on the time that the apiserver takes to start.
    let lists = requests.iter().filter(|request| request.verb == "list");
    let lists = lists.filter(|request| request.code == Some(200)).count();
    let terms = terms_begun(scene)? - begun + 1;
    println!("{tries} edits, {lists} lists in {terms} terms");
    // Five watches, each resumed or started anew once or twice in each term.
    ensure!(lists <= 10 * terms, "{lists} lists in {terms} terms");
    Ok(())
}

/// Returns the number of terms of leadership that have begun, by the logs of all replicas.
fn terms_begun(scene: &Scene) -> Result<usize> {
    let terms = scene.replicas().into_iter().map(|replica| {
        let log = replica.operator.log()?;
        Ok(log
            .lines()
            .filter(|line| line.ends_with(": elected"))
            .count())
    });
    terms.sum()
}

/// Kills the apiserver when some of many patches have been made.
async fn death_while_patches_are_made(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let apiserver = scene.control_plane.process(Component::Apiserver)?;
    let patches = everywhere(scene, &Rule::count(patches()))?;
    change(scene, "before a death").await?;
    patches.have_applied(2).await?;
    apiserver.kill().await;
    patches.remove();
    apiserver.start_again()?;
    ready_again(scene).await?;
    oracles.check("a death", Expected::revisions(1)).await
}

/// Loses the answers to patches that are made.
async fn lost_answers_to_patches(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let lost = everywhere(scene, &Rule::new(patches(), Fault::LoseAnswer).times(6))?;
    change(scene, "with lost answers").await?;
    lost.have_applied(6).await?;
    lost.remove();
    oracles.check("lost answers", Expected::revisions(1)).await
}

/// Freezes the process of the apiserver, with all connections open.
async fn freeze(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let apiserver = scene.control_plane.process(Component::Apiserver)?;
    let leader = scene.leader().await?;
    change(scene, "before a freeze").await?;
    let began = Instant::now();
    apiserver.pause()?;
    leader.operator.shows("pod_reloader_leading", "0").await?;
    let stepped_down = began.elapsed();
    println!("the leader stepped down after {stepped_down:?}");
    if full() {
        // The length of the freeze is what is tested: calls and watches run into all of their time limits.
        sleep(Duration::from_secs(60).saturating_sub(stepped_down)).await;
    }
    all_are_called(scene).await?;
    apiserver.resume()?;
    ready_again(scene).await?;
    scene.leader().await?;
    change(scene, "after a freeze").await?;
    oracles.check("a freeze", Expected::up_to(2)).await
}

/// Waits until the apiserver is ready after a fault, and restarts the controllers. After several faults,
/// they would wait for up to a minute before they look at anything again.
async fn ready_again(scene: &Scene) -> Result<()> {
    let control_plane = &scene.control_plane;
    control_plane.ready(Component::Apiserver).await?;
    control_plane.restart(Component::ControllerManager).await
}

/// Asserts that all replicas can be called, whatever the apiserver does.
async fn all_are_called(scene: &Scene) -> Result<()> {
    wait_for("all replicas to be called", PATIENCE, async || {
        let ready = scene.balancer()?.ready();
        done_if(ready.len() == 2, format!("only {ready:?} are"))
    })
    .await
}

/// Moves the leader to an apiserver that was paused while things changed, and back.
async fn a_twin_that_is_behind(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let twin = scene.control_plane.start_another_apiserver().await?;
    let leader = scene.leader().await?;
    let proxy = leader.proxy()?;
    let any_version = Requests::any().query("resourceVersion=0");
    let stale_reads = everywhere(scene, &Rule::count(any_version))?;
    for round in 0..if full() { 5 } else { 1 } {
        twin.process.pause()?;
        change(scene, &format!("seen by one apiserver {round}")).await?;
        oracles.check("a pause", Expected::revisions(1)).await?;
        proxy.move_to(&twin.kubeconfig.server)?;
        twin.process.resume()?;
        change(scene, &format!("seen by both apiservers {round}")).await?;
        oracles.check("a move", Expected::revisions(1)).await?;
        proxy.move_to(scene.control_plane.api_url())?;
        oracles.check("a move back", Expected::revisions(0)).await?;
    }
    ensure!(stale_reads.applied() == 0, "reads of any version");
    twin.process.kill().await;
    Ok(())
}

#[tokio::test]
async fn an_overloaded_apiserver_gets_every_answer_of_the_webhook_in_time() -> Result<()> {
    let few = [
        "--max-requests-inflight=10",
        "--max-mutating-requests-inflight=5",
    ];
    let options = Options {
        replicas: 2,
        ..Options::default()
    };
    Scene::play_on(own_control_plane(&few).await?, options, async |scene| {
        scene.apply(&[config_map("app", "0")]).await?;
        let probe = Workload::deployment("probe").lists("app");
        scene.create(&probe).await?;
        let mut oracles = Oracles::begin(scene, &[probe]).await?;
        let users = users(scene).await?;
        let mark = scene.mark().await?;

        let count = if full() { 500 } else { 60 };
        let began = Instant::now();
        let applies = (0..count).map(|number| applied(&users, format!("many-{number}")));
        let applied: Vec<Applied> = stream::iter(applies)
            .buffer_unordered(count)
            .try_collect()
            .await?;
        let took = began.elapsed();

        let requests = scene.requests(mark).await?;
        let reads = requests.iter().filter(|request| request.verb == "get");
        let reads = reads.filter(|request| request.resource == "configmaps");
        println!(
            "{count} applies in {took:?}, turned away {} times; {} reads",
            applied
                .iter()
                .map(|applied| applied.turned_away)
                .sum::<usize>(),
            reads.clone().count(),
        );
        let late = applied.iter().filter(|applied| applied.key.is_none());
        ensure!(late.count() == 0, "some came without a hash");
        // Writes that were turned away never reached the webhook; the loop reads once more.
        ensure!(reads.count() <= 2 * count, "more reads than applies");
        oracles.check("an overload", Expected::revisions(0)).await
    })
    .await
}

/// The outcome of an apply.
struct Applied {
    key: Option<String>,
    /// Number of times that the apiserver said it was too busy.
    turned_away: usize,
}

/// Applies a Deployment on the server side, again and again while the apiserver is too busy.
async fn applied(users: &Api<Deployment>, name: String) -> Result<Applied> {
    let workload = Workload::deployment(&name)
        .lists("app")
        .with(&["spec", "replicas"], 0.into());
    let params = PatchParams::apply("user");
    let mut turned_away = 0;
    loop {
        let patch = Patch::Apply(workload.manifest());
        match users.patch(&name, &params, &patch).await {
            Ok(deployment) => {
                let annotations = deployment
                    .spec
                    .and_then(|spec| spec.template.metadata?.annotations);
                return Ok(Applied {
                    key: annotations.and_then(|mut annotations| annotations.remove(CONFIG_HASH)),
                    turned_away,
                });
            }
            Err(kube::Error::Api(status)) if status.code == 429 => turned_away += 1,
            Err(error) => return Err(error).with_context(|| format!("applying {name}")),
        }
        // The apiserver asks clients to try again after a second.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Returns the Deployments for a user without privileges, who has to wait in the apiserver's queues.
async fn users(scene: &Scene) -> Result<Api<Deployment>> {
    let account = format!("--serviceaccount={}:default", scene.namespace);
    let binding = [
        "create",
        "rolebinding",
        "users",
        "--clusterrole=admin",
        &account,
    ];
    scene.kubectl(&binding).await?;
    let token = scene
        .control_plane
        .service_account_token(&scene.namespace, "default")
        .await?;
    let client: Client = scene.control_plane.kubeconfig_for(token).client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client, &scene.namespace);
    wait_for("the rights of users", PATIENCE, async || {
        Ok(deployments.get("probe").await.into())
    })
    .await?;
    Ok(deployments)
}
