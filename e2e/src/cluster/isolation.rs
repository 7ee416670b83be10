//! Makes the namespaces, the cgroup and the directory of a cluster, and removes what is left in the end.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use super::{Earlier, OperatorImage, Plan, cgroup, leftovers, needs};
use crate::{
    command::{exit_code, forward, pid_of, status_of},
    programs::{PROGRAMS_VARIABLE, Programs, go_program},
    stop_signals::StopSignals,
    version::Version,
    wait::{Attempt, PATIENCE, wait_for},
};

/// Variable that names a layout of the operator's image. Without it, the one that `make image` writes is taken.
pub const LAYOUT_VARIABLE: &str = "POD_RELOADER_IMAGE_LAYOUT";

/// Variable that names a program of the operator. Its image is then made of that, whatever layout there is.
pub const PROGRAM_VARIABLE: &str = "POD_RELOADER_IMAGE_PROGRAM";

/// Variable that names a folder which `scripts/earlier` has made. Its operator and chart are those that a test upgrades
/// from. Without it, or if it is empty, there are none.
pub const EARLIER_VARIABLE: &str = "POD_RELOADER_EARLIER";

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
    // Removed in the end, whatever happens.
    let directory = create_directory(&name)?;
    let code = within(&name, &directory, keep, command, stop).await;
    if directory.join(leftovers::KEPT).exists() {
        eprintln!("{} is left behind", directory.display());
        return code;
    }
    unless_failed(code, remove(&directory).await)
}

/// Prints what this machine lacks for a cluster, and returns [`MISSING`] if it lacks something. Programs that can still be
/// built do not count.
///
/// # Errors
/// When something cannot be made or removed.
pub async fn check() -> Result<u8> {
    let name = leftovers::new_name()?;
    let directory = create_directory(&name)?;
    let missing = missing(&name, &directory).await;
    unless_failed(
        missing.map(|missing| said(&missing)),
        remove(&directory).await,
    )
}

/// Returns what is missing, a line each, and tries to make a cgroup, too.
async fn missing(name: &str, directory: &Path) -> Result<Vec<String>> {
    let missing = needs::missing(directory).await?;
    if !missing.is_empty() {
        return Ok(missing);
    }
    // Nothing is built for somebody who names a folder with all programs.
    if env::var_os(PROGRAMS_VARIABLE).is_some()
        && let Err(error) = Programs::find_with_real_node()
    {
        return Ok(vec![format!("{error:#}")]);
    }
    let made = cgroup::create(name).and_then(|()| cgroup::lacking(name));
    let removed = cgroup::remove(name).await;
    Ok(match made.and_then(|lacking| removed.map(|()| lacking)) {
        Ok(lacking) if lacking.is_empty() => Vec::new(),
        Ok(lacking) => vec![format!(
            "cgroups for {}: mount them, or have them delegated to this container",
            lacking.join(", ")
        )],
        Err(error) => vec![format!("the right to make cgroups. The error: {error:#}")],
    })
}

/// Prints what is missing, and returns the exit code.
fn said(missing: &[String]) -> u8 {
    for missing in missing {
        eprintln!("missing: {missing}");
    }
    match missing.is_empty() {
        true => 0,
        false => MISSING,
    }
}

fn create_directory(name: &str) -> Result<PathBuf> {
    let directory = env::temp_dir().join(name);
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    Ok(directory)
}

/// Removes the directory of a cluster. If unshare was killed, what runs inside may write there for a moment.
async fn remove(directory: &Path) -> Result<()> {
    let what = format!("{} to be removed", directory.display());
    wait_for(&what, PATIENCE, async || {
        Ok(Attempt::from(fs::remove_dir_all(directory)))
    })
    .await
}

/// Returns the first error of a cluster and of the removal of what it has left, or else the exit code.
fn unless_failed(code: Result<u8>, removed: Result<()>) -> Result<u8> {
    match (code, removed) {
        (Err(error), Err(later)) => {
            tracing::warn!("{later:#}");
            Err(error)
        }
        (code, removed) => removed.and(code),
    }
}

async fn within(
    name: &str,
    directory: &Path,
    keep: bool,
    command: &[OsString],
    stop: &mut StopSignals,
) -> Result<u8> {
    let missing = missing(name, directory).await?;
    if !missing.is_empty() {
        return Ok(said(&missing));
    }
    let programs = Programs::find_with_real_node()?;
    let plan = Plan {
        directory: directory.to_owned(),
        cgroup: format!("/{name}"),
        registry: go_program("registry")?,
        crane: go_program("crane")?,
        operator: operator()?,
        earlier: earlier()?,
        keep,
    };
    leftovers::remove(name).await?;
    let made = cgroup::create(name);
    let code = match made {
        Ok(()) => run(&plan, &programs, command, stop).await,
        Err(error) => Err(error),
    };
    unless_failed(code, cgroup::remove(name).await)
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

/// Returns the child of unshare once it receives signals; `None` if unshare has ended before that. The kernel drops those
/// that come earlier, because it is the first process of its namespace.
async fn first_inside(unshare: &mut Child) -> Result<Option<Pid>> {
    wait_for("the first process inside", PATIENCE, async || {
        if unshare.try_wait()?.is_some() {
            return Ok(Attempt::Done(None));
        }
        Ok(match pid_of(unshare).and_then(child_of) {
            Some(pid) if receives_stop_signals(pid) => Attempt::Done(Some(pid)),
            Some(_) => Attempt::NotYet("it receives no signals".to_owned()),
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

fn receives_stop_signals(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| catches_stop_signals(&status))
}

/// Tells whether SIGINT and SIGTERM are among the signals that are caught, in the text of `/proc/PID/status`.
fn catches_stop_signals(status: &str) -> bool {
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bits = [Signal::INT, Signal::TERM].map(|signal| 1_u64 << (signal.as_raw() - 1));
    caught.is_some_and(|caught| bits.iter().all(|bit| caught & bit != 0))
}

fn operator() -> Result<OperatorImage> {
    let Some(program) = env::var_os(PROGRAM_VARIABLE) else {
        return layout().map(OperatorImage::Layout);
    };
    let program = PathBuf::from(program);
    ensure!(
        program.is_file(),
        "{PROGRAM_VARIABLE} names {}, which is no file",
        program.display()
    );
    Ok(OperatorImage::Program(program))
}

fn earlier() -> Result<Option<Earlier>> {
    let folder = env::var_os(EARLIER_VARIABLE).filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(PathBuf::from) else {
        return Ok(None);
    };
    let version = Version::earlier(&folder)
        .with_context(|| format!("{EARLIER_VARIABLE} names {}", folder.display()))?;
    Ok(Some(Earlier {
        operator: OperatorImage::Program(version.operator()?),
        chart: version.chart,
    }))
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

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_first_process_is_there_once_it_catches_both_stop_signals() {
        let catches = |mask: &str| {
            let status = format!("Name:\tcluster\nSigIgn:\tffffffffffffffff\nSigCgt:\t{mask}\n");
            catches_stop_signals(&status)
        };
        assert!(catches("0000000000014442"));
        // Only SIGINT, only SIGTERM, neither.
        assert!(!catches("0000000000000442"));
        assert!(!catches("0000000000004440"));
        assert!(!catches("0000000000000440"));
        assert!(!catches_stop_signals("Name:\tcluster\n"));
    }

    #[test]
    fn the_error_of_a_cluster_comes_before_that_of_its_removal() {
        let message = |code, removed| unless_failed(code, removed).map_err(|it| it.to_string());
        let [failed, left] = ["failed", "left"].map(|text| move || anyhow!(text));
        assert_eq!(message(Ok(3), Ok(())), Ok(3));
        assert_eq!(message(Ok(3), Err(left())), Err("left".to_owned()));
        assert_eq!(message(Err(failed()), Ok(())), Err("failed".to_owned()));
        assert_eq!(
            message(Err(failed()), Err(left())),
            Err("failed".to_owned())
        );
    }
}
