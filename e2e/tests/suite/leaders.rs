//! Leaders that are late, killed, frozen or cut off: nothing moves back, and nothing is lost or done twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::{Method, StatusCode};
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule};
use pod_reloader_e2e::workload::{CONFIG_HASH, CONFIG_MAPS, Workload, config_map, secret};
use pod_reloader_e2e::{
    Attempt, CANARY, Expected, Mark, Operator, Options, Oracles, PATIENCE, Scene, crowd, done_if,
    full, has_own_values, wait_for,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Validity of a Lease that is not renewed.
const LEASE: Duration = Duration::from_secs(15);
/// Delay of a request that goes on when the rule is removed.
const HELD: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_leader_with_a_late_config_watch_moves_nothing_back() -> Result<()> {
    written_while_late(&["/secrets"], rounds()).await
}

#[tokio::test]
async fn a_leader_with_a_late_workload_watch_moves_nothing_back() -> Result<()> {
    // The loop may be faster than the write of the image. Then there are two rollouts.
    written_while_late(&["/deployments"], 2 * rounds()).await
}

#[tokio::test]
async fn a_leader_with_late_watches_moves_nothing_back() -> Result<()> {
    written_while_late(&["/secrets", "/deployments"], rounds()).await
}

#[tokio::test]
async fn the_next_leader_finishes_what_a_killed_leader_has_begun() -> Result<()> {
    let size = if full() { 1000 } else { 40 };
    Scene::play(replicas(), async |scene| {
        let workloads = listing_app(size);
        scene.apply(&[config_map("app", "1")]).await?;
        scene.create_all(&workloads).await?;
        scene.quiet().await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let replica = scene.leader().await?;
        // Otherwise, all workloads may be restarted before the test has seen the first ones.
        let patches = Requests::containing("/deployments/").method(Method::PATCH);
        let slow = Rule::new(patches, Fault::Delay(Duration::from_secs(1)));
        replica.proxy()?.add(slow);
        let leader = replica.operator;
        let before = restarts(&leader).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        restarted(&leader, before + size * 3 / 10).await?;
        leader.process().kill().await;
        let killed = Instant::now();
        let key = scene.expected_key(&workloads[0]).await?;
        let done = scene.carrying(&scene.namespace, &key).await?;
        println!("killed after {done} of {size}");
        ensure!(done < size, "nothing is left to do for the next leader");
        scene.leader().await?;
        let took_over = killed.elapsed();
        // With a limit, a thousand rollouts follow each other.
        let patience = PATIENCE * if has_own_values() { 10 } else { 1 };
        wait_for("all to be restarted", patience, async || {
            let count = scene.carrying(&scene.namespace, &key).await?;
            done_if(count == size, format!("{count} are"))
        })
        .await?;
        let took = killed.elapsed();
        println!("taken over after {took_over:?}, all done after {took:?}");
        // Other tests may keep the machine busy.
        let patience = Duration::from_secs(if full() { 10 } else { 40 });
        ensure!(took < LEASE + patience || has_own_values(), "{took:?}");
        oracles
            .check("a leader is killed", Expected::revisions(1))
            .await
    })
    .await
}

#[tokio::test]
async fn a_leader_that_cannot_renew_its_lease_starts_no_more_patches() -> Result<()> {
    let size = if full() { 200 } else { 100 };
    Scene::play(replicas(), async |scene| {
        let workloads = listing_app(size);
        scene.apply(&[config_map("app", "1")]).await?;
        scene.create_all(&workloads).await?;
        scene.quiet().await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let leader = scene.leader().await?;
        let proxy = leader.proxy()?;
        let patches = Requests::containing("/deployments/").method(Method::PATCH);
        // At most 16 patches are in progress at once, so it would take half a minute to begin all of them.
        let slow = Rule::new(patches, Fault::Delay(Duration::from_secs(5)));
        let slow = proxy.add(slow);
        scene.put_all(&[config_map("app", "2")]).await?;
        slow.applied(1, PATIENCE).await?;
        let leases = Requests::containing("/leases");
        // A leader only writes the Lease, unless somebody else has written it.
        let reads = proxy.add(Rule::count(leases.clone().method(Method::GET)));
        let unavailable = Answer::error(StatusCode::SERVICE_UNAVAILABLE);
        let cut_off = proxy.add(Rule::new(leases, Fault::Answer(unavailable)));
        let since = Instant::now();
        leader.operator.shows("pod_reloader_leading", "0").await?;
        // A patch from before may still be on its way to the proxy, but not once the replica is a candidate.
        reads.applied(1, PATIENCE).await?;
        let (stepped_down, begun) = (since.elapsed(), slow.hits().matched);
        println!("stepped down after {stepped_down:?} and {begun} patches");
        ensure!(begun < size as u64, "it had begun all patches");
        let next = scene.leader().await?;
        ensure!(next.port != leader.port, "it leads again");
        let begun_since = slow.hits().matched - begun;
        ensure!(
            begun_since == 0,
            "{begun_since} patches after it has stepped down"
        );
        cut_off.remove();
        slow.remove();
        oracles.check("no renewals", Expected::revisions(1)).await
    })
    .await
}

#[tokio::test]
async fn a_leader_that_was_frozen_moves_nothing_back_when_it_thaws() -> Result<()> {
    let options = Options {
        failure_policy: "Ignore",
        // Writes hang this long while the frozen replica is called.
        values: json!({"webhook": {"timeoutSeconds": 3}}),
        ..replicas()
    };
    Scene::play(options, async |scene| {
        let lists = |name: &str| Workload::podless(name).lists("app");
        let [content, list, label, opts_out] = ["content", "list", "label", "opts-out"].map(lists);
        let all = [&content, &list, &label, &opts_out];
        scene
            .apply(&[config_map("app", "1"), config_map("other", "1")])
            .await?;
        scene.create_all(&all.map(Clone::clone)).await?;
        scene.quiet().await?;
        let kept = [content.clone(), list.clone(), label.clone()];
        let mut oracles = Oracles::begin(scene, &kept).await?;
        let opted_out = scene.snapshot(&opts_out).await?;

        // The leader's patches are in progress when it freezes, and arrive after it has been replaced.
        let leader = scene.leader().await?;
        let followers = scene.followers().await?;
        let follower = followers.first().context("there are two replicas")?;
        let patches = Requests::containing("/deployments/").method(Method::PATCH);
        let late = leader.proxy()?.add(Rule::new(patches, Fault::Delay(HELD)));
        // The next leader finds all changes at once.
        let elections = Requests::containing("/leases").method(Method::PATCH);
        let unavailable = Answer::error(StatusCode::SERVICE_UNAVAILABLE);
        let elections = Rule::new(elections, Fault::Answer(unavailable));
        let elections = follower.proxy()?.add(elections);
        scene.apply(&[config_map("app", "2")]).await?;
        late.applied(all.len() as u64, PATIENCE).await?;
        leader.operator.process().pause()?;
        scene.patch(&list, &annotated(CONFIG_MAPS, "other")).await?;
        let ignored = json!({"metadata": {"labels": {"pod-reloader.cs.sap.com/ignored": "true"}}});
        scene.patch(&opts_out, &ignored).await?;
        let blue = json!({"metadata": {"labels": {"team": "blue"}}});
        scene.patch(&label, &blue).await?;
        scene
            .apply(&[config_map("app", "3"), config_map("other", "2")])
            .await?;
        elections.remove();
        let next = scene.leader().await?;
        ensure!(next.port != leader.port);
        for workload in &kept {
            scene.right(workload).await?;
        }
        let mark = scene.mark().await?;
        late.remove();
        all_patches_fail(scene, mark, &all).await?;
        leader.operator.process().resume()?;
        leader.operator.shows("pod_reloader_leading", "0").await?;
        oracles.check("a thaw", Expected::revisions(1)).await?;
        ensure!(
            scene.snapshot(&opts_out).await? == opted_out,
            "it was written"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lease_with_times_out_of_range_is_taken() -> Result<()> {
    let options = Options {
        running: false,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let namespace = &scene.installation.namespace;
        let kubectl = async |args: &[&str], object: Value| {
            let output = scene.tool().output(args, &object.to_string()).await?;
            ensure!(output.code == Some(0), "{}", output.stderr);
            anyhow::Ok(serde_json::from_str::<Value>(&output.stdout)?)
        };
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": namespace, "namespace": namespace},
            "spec": {
                "holderIdentity": "stranger",
                "leaseDurationSeconds": 15,
                "acquireTime": "9999-12-31T23:59:59.999999Z",
                "renewTime": "9999-12-31T23:59:59.999999Z",
            },
        });
        let json = ["--filename=-", "--output=json", "--show-managed-fields"];
        let mut lease = kubectl(&[&["create"], &json[..]].concat(), lease).await?;
        // The object is stored, and then shown with a date in the year 10000.
        let mut fields = lease["metadata"]["managedFields"][0].clone();
        fields["manager"] = json!("odd");
        fields["time"] = json!("9999-12-31T23:59:59-23:59");
        lease["metadata"]["managedFields"] = json!([fields]);
        let lease = kubectl(&[&["replace"], &json[..]].concat(), lease).await?;
        ensure!(lease.to_string().contains("\"10000-"), "{lease}");
        let operator = scene.start_operator(&["--leader-elect"]).await?;
        operator.shows("pod_reloader_leading", "1").await?;
        let reference = format!("lease/{namespace}");
        let lease = scene.object_in(namespace, &reference).await?;
        let spec = &lease["spec"];
        ensure!(spec["leaseTransitions"] == 1, "another Lease: {spec}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn changes_while_nobody_leads_are_found_and_nothing_else_is_written() -> Result<()> {
    let count = if full() { 100 } else { 15 };
    Scene::play(replicas(), async |scene| {
        let lists = |(number, workload): (usize, Workload)| {
            workload.lists_secrets(&format!("app-{number}"))
        };
        let crowd = crowd("web", 2 * count).into_iter().enumerate();
        let workloads: Vec<_> = crowd.map(lists).collect();
        change_secrets(scene, 2 * count, 0).await?;
        scene.create_all(&workloads).await?;
        scene.quiet().await?;
        let (changed, unchanged) = workloads.split_at(count);
        let mut oracles = Oracles::begin(scene, changed).await?;
        let mut unconcerned = Oracles::begin(scene, unchanged).await?;
        for replica in scene.replicas() {
            replica.operator.stop().await;
        }
        change_secrets(scene, count, 1).await?;
        if full() {
            // The claim is about a minute in which nobody leads.
            sleep(Duration::from_secs(60)).await;
        }
        for replica in scene.replicas() {
            replica.operator.start_again().await?;
        }
        scene.leader().await?;
        oracles.check("nobody led", Expected::revisions(1)).await?;
        unconcerned
            .check("nobody led", Expected::revisions(0))
            .await
    })
    .await
}

/// Waits until the apiserver has answered a patch of each workload since `mark`, and asserts that a test of
/// each of these patches has failed.
async fn all_patches_fail(scene: &Scene, mark: Mark, workloads: &[&Workload]) -> Result<()> {
    wait_for("a patch of each workload", PATIENCE, async || {
        let mut patches = scene.requests(mark).await?;
        patches.retain(|it| it.verb == "patch" && it.resource == "deployments");
        let stood = patches.iter().find(|patch| patch.code != Some(422));
        ensure!(stood.is_none(), "{stood:?}");
        let is_patched = |name: &str| patches.iter().any(|patch| patch.name == name);
        let missing = workloads.iter().find(|it| !is_patched(&it.name));
        Ok(match missing {
            None => Attempt::Done(()),
            Some(missing) => Attempt::NotYet(format!("none of {}", missing.name)),
        })
    })
    .await
}

/// Changes Secrets [`rounds`] times. After each change, users write each workload five times through both
/// replicas. The first of these writes changes the image, and takes the new hash along.
async fn written_while_late(watches: &[&str], at_most: usize) -> Result<()> {
    const SECRETS: usize = 5;
    const LATE_BY: Duration = Duration::from_secs(30);
    Scene::play(replicas(), async |scene| {
        let lists = |(number, workload): (usize, Workload)| {
            workload.lists_secrets(&format!("app-{}", number % SECRETS))
        };
        let workloads: Vec<_> = crowd("web", 10)
            .into_iter()
            .enumerate()
            .map(lists)
            .collect();
        change_secrets(scene, SECRETS, 0).await?;
        scene.create_all(&workloads).await?;
        scene.quiet().await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let leader = scene.leader().await?;
        let mut held = Vec::new();
        for part in watches {
            let (proxy, lines) = (leader.proxy()?, Requests::containing(*part));
            if full() {
                // Once they are no longer held, many events arrive one by one, in their order.
                proxy.add(Rule::new(lines.clone(), Fault::DelayWatch(LATE_BY)));
            }
            held.push(proxy.add(Rule::new(lines, Fault::HoldWatch)));
        }
        for round in 1..=rounds() {
            change_secrets(scene, SECRETS, round).await?;
            let writes = workloads.iter().map(async |workload| {
                for patch in writes_of_users(round) {
                    scene.patch(workload, &patch).await?;
                }
                anyhow::Ok(())
            });
            try_join_all(writes).await?;
        }
        for replica in scene.replicas() {
            let connections = scene.balancer()?.connections(replica.port);
            ensure!(connections > 0, "a replica was never called");
        }
        for rule in &held {
            rule.applied(rounds() as u64, PATIENCE).await?;
            rule.remove();
        }
        if full() {
            // No condition shows that the last event has arrived: it must not lead to a write.
            sleep(LATE_BY).await;
            leader.proxy()?.clear();
        }
        oracles
            .check("late watches", Expected::up_to(at_most))
            .await
    })
    .await
}

/// Returns a change of the image, and four writes that do not change the template.
fn writes_of_users(round: usize) -> [Value; 5] {
    let image = json!([{"name": "main", "image": format!("app:{round}")}]);
    let hash = |value: Value| json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: value}}}}});
    [
        json!({"spec": {"template": {"spec": {"containers": image}}}}),
        json!({"metadata": {"labels": {"round": round.to_string()}}}),
        hash(Value::Null),
        hash(json!(format!("v1.00000000.{}", "0".repeat(64)))),
        annotated("round", &round.to_string()),
    ]
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// Gives the first `count` Secrets a value that they have never had.
async fn change_secrets(scene: &Scene, count: usize, round: usize) -> Result<()> {
    let value = |number| format!("{CANARY}{number}-{round}");
    let secrets = (0..count).map(|number| secret(&format!("app-{number}"), &value(number)));
    scene.put_all(&secrets.collect::<Vec<_>>()).await
}

fn listing_app(size: usize) -> Vec<Workload> {
    let crowd = crowd("web", size).into_iter();
    crowd.map(|workload| workload.lists("app")).collect()
}

/// Waits until `operator` has restarted this many workloads.
async fn restarted(operator: &Operator, count: usize) -> Result<()> {
    let what = format!("{count} restarts");
    wait_for(&what, PATIENCE, async || {
        let restarts = restarts(operator).await?;
        done_if(restarts >= count, format!("{restarts}"))
    })
    .await
}

/// Returns the number of changes to which `operator` has responded with a restart.
async fn restarts(operator: &Operator) -> Result<usize> {
    const COUNTER: &str = r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"} "#;
    let metrics = operator.metrics().await?;
    let count = metrics.lines().find_map(|line| line.strip_prefix(COUNTER));
    Ok(count.context("no such metric")?.parse()?)
}

fn replicas() -> Options {
    Options {
        replicas: 2,
        proxied: true,
        ..Options::default()
    }
}

/// Returns how often [`written_while_late`] changes Secrets.
fn rounds() -> usize {
    if full() { 10 } else { 3 }
}
