//! Runs one program as a child process that can be paused, killed and started again.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait::{Attempt, wait_for};

/// A program, and how to run it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name used in messages.
    pub name: String,
    /// File to run.
    pub executable: PathBuf,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Complete environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// File for stdout and stderr. A second start appends to it.
    pub log: PathBuf,
}

/// A [`Program`] that runs, or has run.
///
/// # Guarantees
/// The child is killed when the value is dropped and, if `setpriv` is installed, also if this process dies in
/// any other way. It has a process group of its own, so Ctrl-C does not reach it.
#[derive(Debug)]
pub struct Process {
    program: Program,
    running: Mutex<Option<Arc<Running>>>,
}

impl Process {
    /// Starts `program`.
    ///
    /// # Errors
    /// When its log cannot be written or the program cannot be run.
    pub fn start(program: Program) -> Result<Self> {
        let process = Self {
            program,
            running: Mutex::new(None),
        };
        process.start_again()?;
        Ok(process)
    }

    /// Starts the program again after it has exited or was killed.
    ///
    /// # Errors
    /// When it still runs, and as [`Process::start`].
    pub fn start_again(&self) -> Result<()> {
        let mut running = lock(&self.running);
        if running
            .as_ref()
            .is_some_and(|running| running.exit().is_none())
        {
            bail!("{} is running", self.program.name);
        }
        *running = Some(Running::start(&self.program)?);
        Ok(())
    }

    /// Returns the name of this process in messages.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Returns the file with the output.
    pub fn log(&self) -> &Path {
        &self.program.log
    }

    /// Returns the process id of the last start.
    pub fn pid(&self) -> i32 {
        self.current().pid.as_raw_nonzero().get()
    }

    /// Returns the exit status if the process has ended.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.current().exit()
    }

    /// Stops the process where it is (SIGSTOP), and waits until all of its threads stand still: they stop one after the
    /// other, and one that has not stopped yet still answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        self.current().wait_until(WaitIdOptions::STOPPED);
        self.must_run()
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to end (SIGTERM).
    ///
    /// # Errors
    /// When it does not run.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    pub async fn kill(&self) {
        self.current().kill();
        // SIGKILL cannot be refused: only a broken kernel makes this time out.
        let _ = self.exited(Duration::from_secs(30)).await;
    }

    /// Ends the process: SIGTERM, then SIGKILL if it is still there after `patience`.
    pub async fn stop(&self, patience: Duration) {
        if self.terminate().is_ok() && self.exited(patience).await.is_err() {
            tracing::warn!(
                "{} did not end within {patience:?} and is killed",
                self.name()
            );
        }
        self.kill().await;
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// When it still runs after `timeout`.
    pub async fn exited(&self, timeout: Duration) -> Result<ExitStatus> {
        let running = self.current();
        wait_for(
            &format!("the end of {}", self.name()),
            timeout,
            async || {
                Ok(match running.exit() {
                    Some(status) => Attempt::Done(status),
                    None => Attempt::NotYet("it runs".to_owned()),
                })
            },
        )
        .await
    }

    /// Starts the process again whenever it ends, as systemd does. Never returns.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn keep_running(&self) -> Result<Infallible> {
        loop {
            // Its only error is that the process still runs.
            if let Ok(status) = self.exited(Duration::from_secs(3600)).await {
                tracing::info!("{} ended and starts again: {status}", self.name());
                self.start_again()?;
            }
        }
    }

    /// Fails with the end of the log if the process has ended by itself, in place of being told to.
    ///
    /// # Errors
    /// When the process has ended, and was sent neither SIGTERM nor SIGKILL.
    pub fn must_not_end_by_itself(&self) -> Result<()> {
        match self.current().is_told_to_end.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.must_run(),
        }
    }

    /// Fails with the end of the log if the process has ended.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn must_run(&self) -> Result<()> {
        match self.exit() {
            None => Ok(()),
            Some(status) => Err(anyhow!(
                "{} ended: {status}\n{}",
                self.name(),
                self.last_output()
            )),
        }
    }

    /// Returns the last lines of the log, under a heading that names the file.
    pub fn last_output(&self) -> String {
        let log = fs::read(&self.program.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!(
            "--- last lines of {}\n{}",
            self.program.log.display(),
            tail.join("\n")
        )
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        self.current()
            .signal(signal)
            .with_context(|| format!("sending {signal:?} to {}", self.name()))
    }

    fn current(&self) -> Arc<Running> {
        lock(&self.running).clone().expect("start() has set it")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(running) = lock(&self.running).take() {
            running.kill();
            // Waits for the end, so that no listening port is left behind for the next process.
            running.wait_for_exit(Duration::from_secs(5));
        }
    }
}

/// One run of a program.
#[derive(Debug)]
struct Running {
    pid: Pid,
    exit: Mutex<Option<ExitStatus>>,
    ended: Condvar,
    /// True once it was sent SIGTERM or SIGKILL.
    is_told_to_end: AtomicBool,
}

impl Running {
    /// Starts the program from a thread of its own, which stays until the program ends. The kernel treats the
    /// *thread* as the parent, and a runtime's thread may be gone long before.
    fn start(program: &Program) -> Result<Arc<Self>> {
        let mut command = command(program)?;
        let (send, receive) = mpsc::channel();
        thread::Builder::new()
            .name(format!("parent of {}", program.name))
            .spawn(move || match command.spawn() {
                Ok(child) => {
                    let running = Arc::new(Self {
                        pid: Pid::from_child(&child),
                        exit: Mutex::new(None),
                        ended: Condvar::new(),
                        is_told_to_end: AtomicBool::new(false),
                    });
                    let _ = send.send(Ok(Arc::clone(&running)));
                    running.reap(child);
                }
                Err(error) => {
                    let _ = send.send(Err(error));
                }
            })
            .context("starting a thread")?;
        receive
            .recv()
            .context("the thread ended")?
            .with_context(|| format!("running {}", program.executable.display()))
    }

    fn reap(&self, mut child: Child) {
        self.wait_until(WaitIdOptions::EXITED);
        let mut exit = lock(&self.exit);
        *exit = child.wait().ok();
        self.ended.notify_all();
    }

    /// Waits until the process is in a state, or has ended.
    fn wait_until(&self, state: WaitIdOptions) {
        // `NOWAIT` leaves a zombie in place, so that no signal can reach another process with the same id.
        let options = state | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(self.pid), options) {}
    }

    fn exit(&self) -> Option<ExitStatus> {
        *lock(&self.exit)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let exit = lock(&self.exit);
        if let Some(status) = *exit {
            bail!("it has ended: {status}");
        }
        if [Signal::TERM, Signal::KILL].contains(&signal) {
            self.is_told_to_end.store(true, Ordering::Relaxed);
        }
        Ok(kill_process(self.pid, signal)?)
    }

    fn kill(&self) {
        // A process that has already ended is fine.
        let _ = self.signal(Signal::KILL);
    }

    fn wait_for_exit(&self, timeout: Duration) {
        let exit = lock(&self.exit);
        let _ = self
            .ended
            .wait_timeout_while(exit, timeout, |exit| exit.is_none());
    }
}

fn command(program: &Program) -> Result<Command> {
    if !program.executable.is_file() {
        bail!("{} is missing", program.executable.display());
    }
    let log =
        open_log(&program.log).with_context(|| format!("opening {}", program.log.display()))?;
    let mut command = match setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command
                .args(["--pdeathsig", "KILL", "--"])
                .arg(&program.executable);
            command
        }
        None => Command::new(&program.executable),
    };
    command
        .args(&program.args)
        .env_clear()
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("duplicating the log's handle")?)
        .stderr(log)
        .process_group(0);
    Ok(command)
}

fn open_log(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Returns the path of `setpriv`. It is part of util-linux, so nearly every Linux has it. Elsewhere, only a
/// clean end of this process ends its children.
fn setpriv() -> Option<&'static Path> {
    ["/usr/bin/setpriv", "/bin/setpriv"]
        .map(Path::new)
        .into_iter()
        .find(|path| path.exists())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const TAIL_LINES: usize = 20;
