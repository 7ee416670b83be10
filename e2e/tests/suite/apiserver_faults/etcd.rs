//! etcd dies, freezes, forgets and goes back in time: nothing is lost.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{
    Attempt, Component, EtcdCopy, Expected, Oracles, PATIENCE, Restore, Scene, done_if, full,
    wait_for,
};
use tokio::time::{Instant, sleep, timeout};

use super::{ready_again, terms_begun};
use crate::faults::{change, everywhere, lists, patches, under_edits};

/// Breaks etcd in each way. The apiserver is not of use afterwards: it goes on with data that etcd has lost.
pub(super) async fn whatever_happens_to_etcd<'a>(
    scene: &'a Scene,
    mut oracles: Oracles<'a>,
) -> Result<()> {
    death_under_edits(scene, &mut oracles).await?;
    freeze_under_edits(scene, &mut oracles).await?;
    compaction_while_nobody_watches(scene, &mut oracles).await?;
    let oracles = restore(scene, oracles).await?;
    restore_under_the_apiserver(scene, oracles).await
}

async fn death_under_edits(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let etcd = scene.control_plane.process(Component::Etcd)?;
    let patches = everywhere(scene, &Rule::count(patches()))?;
    let death = async {
        patches.have_applied(1).await?;
        etcd.kill().await;
        patches.remove();
        cannot_be_read(scene).await?;
        etcd.start_again()?;
        scene.control_plane.ready(Component::Etcd).await?;
        ready_again(scene).await
    };
    let tries = under_edits(scene, "a death", death).await?;
    oracles.check("a death", Expected::up_to(tries)).await
}

/// Waits until the apiserver no longer gives an answer that only etcd knows.
async fn cannot_be_read(scene: &Scene) -> Result<()> {
    wait_for("a read to fail", PATIENCE, async || {
        let read = timeout(Duration::from_secs(1), scene.object("secret/app")).await;
        Ok(match read {
            Ok(Ok(_)) => Attempt::NotYet("it was answered".to_owned()),
            Ok(Err(_)) | Err(_) => Attempt::Done(()),
        })
    })
    .await
}

async fn freeze_under_edits(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let etcd = scene.control_plane.process(Component::Etcd)?;
    let leader = scene.leader().await?;
    let freeze = async {
        let began = Instant::now();
        etcd.pause()?;
        leader.operator.shows("pod_reloader_leading", "0").await?;
        if full() {
            // The length of the freeze is what is tested: calls and watches run into all of their time limits.
            sleep(Duration::from_secs(30).saturating_sub(began.elapsed())).await;
        }
        etcd.resume()?;
        scene.control_plane.ready(Component::Etcd).await?;
        ready_again(scene).await
    };
    let tries = under_edits(scene, "a freeze", freeze).await?;
    scene.leader().await?;
    oracles.check("a freeze", Expected::up_to(tries)).await
}

/// Compacts the version that watches resume from: they list again, and find nothing changed.
async fn compaction_while_nobody_watches(scene: &Scene, oracles: &mut Oracles<'_>) -> Result<()> {
    let control_plane = &scene.control_plane;
    let watches = Requests::any().watches();
    let lists = everywhere(scene, &Rule::count(lists()))?;
    let cut = everywhere(scene, &Rule::new(watches.clone(), Fault::Reset))?;
    for replica in scene.replicas() {
        replica.proxy()?.cut(&watches);
    }
    for number in 0..5 {
        let noise = config_map("noise", &number.to_string());
        scene.apply(&[noise]).await?;
    }
    control_plane.compact().await?;
    // The restart also empties what the apiserver has cached of the past.
    let apiserver = control_plane.process(Component::Apiserver)?;
    apiserver.kill().await;
    apiserver.start_again()?;
    ready_again(scene).await?;
    cut.remove();
    lists.have_applied(WATCHES).await?;
    lists.remove();
    oracles
        .check("a compaction", Expected::revisions(0))
        .await?;
    change(scene, "after a compaction").await?;
    oracles.check("a change", Expected::revisions(1)).await
}

/// Restores an earlier copy of etcd's data. A watch at a later version would wait for that version.
async fn restore<'a>(scene: &'a Scene, oracles: Oracles<'a>) -> Result<Oracles<'a>> {
    let (copy, workloads) = copy_before_changes(scene, oracles).await?;
    let control_plane = &scene.control_plane;
    copy.restore(control_plane, Restore::WithApiserver).await?;
    // Restarted as the manual for a restore says.
    control_plane.restart(Component::ControllerManager).await?;
    let began = Instant::now();
    let mut oracles = Oracles::begin(scene, &workloads).await?;
    change(scene, "after the restore").await?;
    oracles.check("a restore", Expected::revisions(1)).await?;
    println!("all right {:?} after the restore", began.elapsed());
    Ok(oracles)
}

/// Restores like [`restore`], while the apiserver goes on, with cached data of a future that never comes.
/// Until somebody restarts it, only reads of single objects are right.
async fn restore_under_the_apiserver<'a>(scene: &'a Scene, oracles: Oracles<'a>) -> Result<()> {
    let (copy, workloads) = copy_before_changes(scene, oracles).await?;
    let web = workloads.first().context("there are some")?;
    let before = terms_begun(scene)?;
    let control_plane = &scene.control_plane;
    copy.restore(control_plane, Restore::UnderApiserver).await?;
    wait_for("a leader to read everything again", PATIENCE, async || {
        done_if(terms_begun(scene)? > before, "no term has begun")
    })
    .await?;
    scene
        .apply(&[web.clone().image("app:2").manifest()])
        .await?;
    scene.right(web).await
}

/// Copies etcd, and makes changes that the copy lacks, among them a renewal of the Lease: by its version, the leader
/// tells that etcd was restored.
async fn copy_before_changes(
    scene: &Scene,
    mut oracles: Oracles<'_>,
) -> Result<(EtcdCopy, Vec<Workload>)> {
    let copy = EtcdCopy::take(&scene.control_plane)?;
    let renewal = Requests::containing("/leases").method(Method::PATCH);
    let renewals = everywhere(scene, &Rule::count(renewal))?;
    change(scene, "lost by the restore").await?;
    // A client that has seen these waits for a version that is not reached again for a long time.
    let noise: Vec<_> = (0..500)
        .map(|number| config_map(&format!("noise-{number}"), ""))
        .collect();
    scene.put_all(&noise).await?;
    oracles
        .check("a change that is lost later", Expected::revisions(1))
        .await?;
    // The second one begins when the first has been answered.
    renewals.have_applied(2).await?;
    renewals.remove();
    Ok((copy, oracles.workloads().to_vec()))
}

/// Number of watches: three kinds of workload, two kinds of config.
const WATCHES: u64 = 5;
