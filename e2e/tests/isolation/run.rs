//! Runs the program `cluster` as a shell does: in a process group, which Ctrl-C in a terminal reaches.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Attempt, PATIENCE, Process, Program, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::machine::names_in;

/// A cluster that runs, or has run.
pub(crate) struct Run {
    process: Process,
    /// The temporary directory in which it makes its own.
    temporary: PathBuf,
}

impl Run {
    pub(crate) fn start(
        log: PathBuf,
        temporary: PathBuf,
        variables: &[(&str, Option<&str>)],
        command: &[&str],
    ) -> Result<Self> {
        // A shell without a terminal has its jobs ignore SIGINT, and they pass that on.
        let mut args = vec!["--default-signal=INT", env!("CARGO_BIN_EXE_cluster")];
        if !command.is_empty() {
            args.push("--");
            args.extend(command);
        }
        let process = Process::start(Program {
            name: "cluster".to_owned(),
            executable: "/usr/bin/env".into(),
            args: args.into_iter().map(OsString::from).collect(),
            env: environment(&temporary, variables),
            log,
        })?;
        Ok(Self { process, temporary })
    }

    /// Waits until the cluster has a directory. Returns its name, which is also that of the cgroup.
    pub(crate) async fn name(&self) -> Result<String> {
        let prefix = format!("pod-reloader-cluster-{}-", self.process.pid());
        wait_for("the directory of a cluster", PATIENCE, async || {
            let mut names = names_in(&self.temporary)?.into_iter();
            if let Some(name) = names.find(|name| name.starts_with(&prefix)) {
                return Ok(Attempt::Done(name));
            }
            self.process.must_run()?;
            Ok(Attempt::NotYet("there is none".to_owned()))
        })
        .await
    }

    /// Waits until a file is in the directory of the cluster, or in a folder there.
    pub(crate) async fn has(&self, cluster: &str, file: &str) -> Result<()> {
        let directory = self.temporary.join(cluster);
        self.until(&format!("{file} in {cluster}"), || {
            let names = names_in(&directory).unwrap_or_default().into_iter();
            let mut folders = names.map(|name| directory.join(name));
            directory.join(file).exists() || folders.any(|folder| folder.join(file).exists())
        })
        .await
    }

    /// Returns the process id of the first process inside, as the machine counts.
    pub(crate) fn first_inside(&self, cluster: &str) -> Result<String> {
        let path = self.temporary.join(cluster).join("pid");
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Waits until a file is there.
    pub(crate) async fn makes(&self, file: &Path) -> Result<()> {
        self.until(&file.display().to_string(), || file.exists())
            .await
    }

    /// Waits until the log contains a text.
    pub(crate) async fn says(&self, text: &str) -> Result<()> {
        self.until(&format!("{text:?} in the log"), || {
            fs::read_to_string(self.process.log()).is_ok_and(|log| log.contains(text))
        })
        .await
    }

    /// Waits for a condition that holds only after the start. Fails if the cluster ends before that.
    async fn until(&self, what: &str, holds: impl Fn() -> bool) -> Result<()> {
        wait_for(what, START, async || {
            if holds() {
                return Ok(Attempt::Done(()));
            }
            self.process.must_run()?;
            Ok(Attempt::NotYet("it is not there".to_owned()))
        })
        .await
    }

    /// Does what Ctrl-C in a terminal does: sends SIGINT to each process of the group, whoever started it.
    pub(crate) fn interrupt(&self) -> Result<()> {
        let group = Pid::from_raw(self.process.pid()).context("no process")?;
        Ok(kill_process_group(group, Signal::INT)?)
    }

    /// Kills the program that was started, and nothing else (SIGKILL).
    pub(crate) async fn kill(&self) {
        self.process.kill().await;
    }

    /// Waits until the program has ended, and returns its exit code.
    pub(crate) async fn code(&self) -> Result<i32> {
        let status = self.process.exited(START).await?;
        let code = status.code().with_context(|| format!("it has {status}"));
        code.with_context(|| self.process.last_output())
    }

    /// Waits until the program has ended, and fails unless this is its exit code.
    pub(crate) async fn ends_with(&self, expected: i32) -> Result<()> {
        let code = self.code().await?;
        let output = self.process.last_output();
        ensure!(code == expected, "{code} and not {expected}\n{output}");
        Ok(())
    }
}

fn environment(temporary: &Path, variables: &[(&str, Option<&str>)]) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = env::vars_os().collect();
    environment.push(("TMPDIR".into(), temporary.into()));
    for (name, value) in variables {
        environment.retain(|(of, _)| of != name);
        if let Some(value) = value {
            environment.push((name.into(), value.into()));
        }
    }
    environment
}

/// Time limit for the start or the end of two clusters at once, on a busy machine.
const START: Duration = Duration::from_secs(300);
