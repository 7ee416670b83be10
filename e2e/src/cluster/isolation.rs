//! Makes the namespaces, the cgroup and the directory of a cluster, and removes what is left in the end.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use tokio::process::{Child, Command};

use super::{Plan, cgroup, leftovers, needs};
use crate::{
    command::{exit_code, forward, pid_of, status_of},
    programs::{PROGRAMS_VARIABLE, Programs, go_program},
    stop_signals::StopSignals,
    wait::{Attempt, PATIENCE, wait_for},
};

/// Variable that names a layout of the operator's image. Without it, the one that `make image` writes is taken.
pub const LAYOUT_VARIABLE: &str = "POD_RELOADER_IMAGE_LAYOUT";

/// Exit code if this machine lacks something.
pub const MISSING: u8 = 2;

/// File in the directory with the process id of the first process inside, as the machine counts.
pub(super) const PID: &str = "pid";

/// Runs a command on a cluster in namespaces of its own, or the cluster until Ctrl-C, and returns the exit code. Says
/// what this machine lacks, and returns [`MISSING`], if it lacks something.
///
/// # Errors
/// When a program is not built, or something cannot be made or removed.
pub async fn isolate(keep: bool, command: &[OsString], stop: &mut StopSignals) -> Result<u8> {
    let name = leftovers::new_name()?;
    let directory = env::temp_dir().join(&name);
    // Removed in the end, whatever happens.
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let code = within(&name, &directory, keep, command, stop).await;
    if directory.join(leftovers::KEPT).exists() {
        eprintln!("{} is left behind", directory.display());
    } else {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("removing {}", directory.display()))?;
    }
    code
}

async fn within(
    name: &str,
    directory: &Path,
    keep: bool,
    command: &[OsString],
    stop: &mut StopSignals,
) -> Result<u8> {
    let missing = needs::missing(directory).await?;
    if !missing.is_empty() {
        for missing in missing {
            eprintln!("missing: {missing}");
        }
        return Ok(MISSING);
    }
    let programs = Programs::find_with_real_node()?;
    let plan = Plan {
        directory: directory.to_owned(),
        cgroup: format!("/{name}"),
        registry: go_program("registry")?,
        crane: go_program("crane")?,
        layout: layout()?,
        keep,
    };
    leftovers::remove(name).await?;
    let made = cgroup::create(name);
    let code = match made {
        Ok(()) => run(&plan, &programs, command, stop).await,
        Err(error) => Err(error),
    };
    cgroup::remove(name).await?;
    code
}

/// Runs the cluster until it ends.
async fn run(
    plan: &Plan,
    programs: &Programs,
    command: &[OsString],
    stop: &mut StopSignals,
) -> Result<u8> {
    // Here and not in a task: the thread that starts it must live as long as this process.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "unshare"])
        .args(needs::NAMESPACES)
        .arg("--")
        .arg(env::current_exe()?)
        .args(["--first", "--inside"])
        .arg(serde_json::to_string(plan)?)
        .arg("--")
        .args(command)
        .env(PROGRAMS_VARIABLE, programs.directory())
        .kill_on_drop(true)
        .spawn()
        .context("running setpriv")?;
    let first = first_inside(&mut child).await?;
    if let Some(first) = first {
        let pid = first.as_raw_nonzero().to_string();
        fs::write(plan.directory.join(PID), pid)?;
    }
    // unshare takes no signals.
    let status = status_of(&mut child, stop, |signal| forward(signal, first)).await?;
    Ok(exit_code(status))
}

/// Returns the child of unshare; `None` if unshare has ended without one.
async fn first_inside(unshare: &mut Child) -> Result<Option<Pid>> {
    wait_for("the first process inside", PATIENCE, async || {
        if unshare.try_wait()?.is_some() {
            return Ok(Attempt::Done(None));
        }
        Ok(match pid_of(unshare).and_then(child_of) {
            Some(pid) => Attempt::Done(Some(pid)),
            None => Attempt::NotYet("unshare has no child".to_owned()),
        })
    })
    .await
}

fn child_of(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let first = children.split_whitespace().next()?;
    Pid::from_raw(first.parse().ok()?)
}

fn layout() -> Result<PathBuf> {
    let layout = match env::var_os(LAYOUT_VARIABLE) {
        Some(layout) => PathBuf::from(layout),
        None => {
            // This program is in a folder of cargo's.
            let own = env::current_exe()?;
            let target = own.ancestors().nth(2);
            target.context("no folder of cargo's")?.join("image/layout")
        }
    };
    ensure!(
        layout.join("index.json").is_file(),
        "there is no image in {}: 'make image' writes one, or {LAYOUT_VARIABLE} names another layout",
        layout.display()
    );
    Ok(layout)
}
