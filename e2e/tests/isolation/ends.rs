//! Nothing is left of a cluster, however it ends.

use std::fs;

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::cluster::{LAYOUT_VARIABLE, PROGRAM_VARIABLE};

use crate::{ground::Ground, machine::cgroups_of};

#[tokio::test]
async fn ctrl_c_at_any_stage_of_the_start_leaves_nothing() -> Result<()> {
    Ground::play(async |ground| {
        for stage in STAGES {
            let run = ground.start("started", &["true"])?;
            let cluster = run.name().await?;
            run.has(&cluster, stage).await?;
            run.interrupt()?;
            let code = run.code().await?;
            // At first, it may end a script that looks for programs.
            let is_early = stage.is_empty() && code == 1;
            ensure!(
                code == INTERRUPTED || is_early,
                "{code} after {stage:?}: it was not interrupted"
            );
            let clean = ground.is_clean(&[&cluster]).await;
            clean.with_context(|| format!("interrupted after {stage:?}"))?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ctrl_c_ends_a_cluster_without_a_command_and_leaves_nothing() -> Result<()> {
    Ground::play(async |ground| {
        let run = ground.start("idle", &[])?;
        let cluster = run.name().await?;
        run.says("export KUBECONFIG=").await?;
        ground.is_seen(&cluster, true)?;
        run.interrupt()?;
        run.ends_with(0).await?;
        ground.is_clean(&[&cluster]).await
    })
    .await
}

#[tokio::test]
async fn a_command_that_fails_gives_its_code_and_leaves_nothing() -> Result<()> {
    Ground::play(async |ground| {
        let run = ground.start_script("failing", "exit 7")?;
        let cluster = run.name().await?;
        run.ends_with(7).await?;
        ensure!(ground.file("failing.ready").exists(), "no pod has run");
        ground.is_clean(&[&cluster]).await
    })
    .await
}

#[tokio::test]
async fn a_start_that_fails_leaves_its_directory_with_the_logs_and_nothing_else() -> Result<()> {
    Ground::play(async |ground| {
        // It looks like an image, and nobody can push it.
        let layout = ground.file("layout");
        fs::create_dir(&layout)?;
        fs::write(layout.join("index.json"), "{")?;
        let layout = layout.display().to_string();
        let variables = [(LAYOUT_VARIABLE, Some(&*layout)), (PROGRAM_VARIABLE, None)];
        let run = ground.start_with("broken", &variables, &["true"])?;
        let cluster = run.name().await?;
        run.ends_with(1).await?;
        ground.is_quiet(&cluster).await?;
        let cgroups = cgroups_of(&cluster)?;
        ensure!(cgroups.is_empty(), "{cgroups:?}");
        run.has(&cluster, "registry.log").await?;
        let left = ground.entries()?;
        ensure!(left == [cluster], "{left:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn after_sigkill_all_processes_end_and_the_next_cluster_removes_the_rest() -> Result<()> {
    Ground::play(async |ground| {
        let early = ground.start("early", &["true"])?;
        let started = early.name().await?;
        early.has(&started, "logs/kubelet.log").await?;
        early.kill().await;
        ground.is_quiet(&started).await?;
        ground.is_seen(&started, false)?;

        let late = ground.start_script("late", FOREVER)?;
        let running = late.name().await?;
        late.makes(&ground.file("late.ready")).await?;
        ground.is_without(&started).await?;
        ground.is_seen(&running, true)?;
        late.kill().await;
        ground.is_quiet(&running).await?;
        ground.is_seen(&running, false)?;

        let next = ground.start("next", &["true"])?;
        let last = next.name().await?;
        next.ends_with(0).await?;
        ground.is_clean(&[&started, &running, &last]).await
    })
    .await
}

/// Files that tell how far a start is: the directory itself, the first process inside, the images, the node.
const STAGES: [&str; 4] = ["", "pid", "image-answers", "logs/kubelet.log"];

/// Exit code after Ctrl-C.
const INTERRUPTED: i32 = 130;

/// The end of a script that only a signal ends.
const FOREVER: &str = "exec sleep infinity";
