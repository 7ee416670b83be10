//! Runs kubectl and helm as a user would.

use std::{ffi::OsString, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, bail};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::process::{Process, Program};
use crate::programs::of_the_workspace;

/// A command-line program that uses a control plane through its kubeconfig.
#[derive(Clone, Debug)]
pub struct Tool {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// True to run it in a process group of its own.
    is_apart: bool,
}

/// Preferences of kubectl, in the home of all tools. Without this one, `kubectl apply` computes a patch by the schemas of a
/// whole API group, which it reads first: half of its processor time, and some of the apiserver's. The patches of the kinds
/// that it knows are the same.
pub(crate) const KUBECTL_PREFERENCES: &str = r#"
apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
defaults:
- command: apply
  options: [{name: openapi-patch, default: "false"}]
"#;

/// The outcome of a run of a [`Tool`].
#[derive(Clone, Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
}

impl Tool {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf, home: PathBuf) -> Self {
        Self {
            program,
            // A home of its own: kubectl caches by address, and its cache would be wrong for the next cluster
            // there.
            env: vec![
                ("KUBECONFIG".into(), kubeconfig.into()),
                ("HOME".into(), home.into()),
                ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
                // Garbage collection is a quarter of the processor time of a short run. Few of them take much memory.
                ("GOGC".into(), "400".into()),
            ],
            is_apart: false,
        }
    }

    /// Returns the same program out of reach of Ctrl-C in a terminal. Otherwise, Ctrl-C ends the program, and the process
    /// that waits for it takes that for a failure before it stops itself.
    #[must_use]
    pub(crate) fn apart(self) -> Self {
        Self {
            is_apart: true,
            ..self
        }
    }

    /// Returns the same program as another user.
    #[must_use]
    pub fn with_kubeconfig(self, kubeconfig: PathBuf) -> Self {
        self.with_env("KUBECONFIG", kubeconfig)
    }

    /// Returns kubectl with our plugin, which it looks for in `PATH`, where the plugin finds kubectl, too.
    ///
    /// # Errors
    /// When the plugin is not built.
    pub fn with_plugin(self) -> Result<Self> {
        let plugin = plugin()?;
        let directory = plugin.parent().context("it lies in a folder")?;
        let own = self.program.parent().context("it lies in a folder")?;
        let path = std::env::join_paths([directory, own])?;
        Ok(self.with_env("PATH", path))
    }

    /// Returns our plugin in place of kubectl: what kubectl becomes when it is told `pod-reloader`. Its arguments are
    /// those that come after that. It takes a small part of the processor time of kubectl.
    ///
    /// # Errors
    /// Same as [`Tool::with_plugin`].
    pub fn plugin(self) -> Result<Self> {
        let program = plugin()?;
        let kubectl = self.with_plugin()?;
        Ok(Self { program, ..kubectl })
    }

    /// Returns the same program with one more environment variable.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs it, and returns its standard output.
    ///
    /// # Errors
    /// When it exits with a code other than 0: with the command and its output.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.run_with_input(args, "").await
    }

    /// Runs it like [`Tool::run`], with `stdin` on standard input.
    ///
    /// # Errors
    /// Same as [`Tool::run`].
    pub async fn run_with_input(&self, args: &[&str], stdin: &str) -> Result<String> {
        let output = self.output(args, stdin).await?;
        if output.code != Some(0) {
            let code = output
                .code
                .map_or("a signal".to_owned(), |code| format!("code {code}"));
            bail!(
                "{} ended by {code}\n{}{}",
                self.command_line(args),
                output.stderr,
                output.stdout
            );
        }
        Ok(output.stdout)
    }

    /// Runs it, and returns the output whatever the exit code.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn output(&self, args: &[&str], stdin: &str) -> Result<Output> {
        let context = || format!("running {}", self.command_line(args));
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if self.is_apart {
            command.process_group(0);
        }
        let mut child = command.spawn().with_context(context)?;
        let mut input = child.stdin.take().expect("stdin is piped");
        let write = async {
            // A program that does not read its input closes it, which is no failure.
            let _ = input.write_all(stdin.as_bytes()).await;
            drop(input);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output.with_context(context)?;
        Ok(Output {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        })
    }

    /// Starts it for as long as the returned value lives, with both of its outputs in the file `log`.
    ///
    /// # Errors
    /// Same as [`Process::start`].
    pub fn start(&self, args: &[&str], log: PathBuf) -> Result<Process> {
        Process::start(Program {
            name: self.command_line(args),
            executable: self.program.clone(),
            args: args.iter().map(OsString::from).collect(),
            env: self.env.clone(),
            log,
        })
    }

    fn command_line(&self, args: &[&str]) -> String {
        let name = self
            .program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        format!("{name} {}", args.join(" "))
    }
}

fn plugin() -> Result<PathBuf> {
    of_the_workspace("kubectl-pod_reloader")
        .context("the plugin is not built: run `cargo build -p kubectl-pod-reloader`")
}
