//! Calls and answers of the DevTools protocol, over a pipe to the browser.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A browser, and its messages.
#[derive(Debug)]
pub(crate) struct Pipe {
    browser: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    errors: Option<thread::JoinHandle<String>>,
    calls: u64,
    /// Messages that were no answers.
    pub(crate) events: Vec<Value>,
}

impl Pipe {
    /// Starts `program` with the empty folder `profile` as its home.
    pub(crate) fn to(program: &Path, profile: &Path) -> Result<Self> {
        // The browser reads calls from file descriptor 3 and writes answers to 4.
        let mut browser = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2", "sh"])
            .arg(program)
            .args(ARGUMENTS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .env("HOME", profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {}", program.display()))?;
        let input = browser.stdin.take();
        let stdout = browser.stdout.take().expect("stdout is piped");
        let mut stderr = browser.stderr.take().expect("stderr is piped");
        let (send, output) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(stdout).split(0) {
                let value = message
                    .ok()
                    .and_then(|message| serde_json::from_slice(&message).ok());
                let Some(value) = value else { return };
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            // Output that cannot be read is not missed.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self {
            browser,
            input,
            output,
            errors: Some(errors),
            calls: 0,
            events: Vec::new(),
        })
    }

    /// Calls `method` in a session, or in the browser itself.
    pub(crate) fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = session {
            call["sessionId"] = session.into();
        }
        let context = || format!("calling {method}");
        let mut message = call.to_string().into_bytes();
        message.push(0);
        let written = match &mut self.input {
            Some(input) => input.write_all(&message).and_then(|()| input.flush()),
            None => Ok(()),
        };
        // If the browser has ended, waiting for the answer gives the reason.
        drop(written);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut message = self.next(left).with_context(context)?;
            if message["id"] != self.calls {
                self.events.push(message);
            } else if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            } else {
                return Ok(message["result"].take());
            }
        }
    }

    /// Returns the browser's next message.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Value> {
        match self.output.recv_timeout(patience) {
            Ok(message) => Ok(message),
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("the browser says nothing"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let said = self.end();
                bail!("the browser has ended:\n{said}")
            }
        }
    }

    /// Ends the browser, and returns its errors.
    fn end(&mut self) -> String {
        // The end of its input ends the browser, with all of its processes.
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.browser.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        // A browser that has already ended is fine.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
        let errors = self.errors.take();
        errors
            .and_then(|errors| errors.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time limit of a call. A cold start on a busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser runs without a screen, and cannot reach any address: names do not resolve, and the proxy for
/// everything is a port on which nobody listens. The sandbox needs rights that containers do not have, and
/// all pages opened here are our own. Input is accepted from the start, not only after the first frame.
const ARGUMENTS: [&str; 16] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--allow-pre-commit-input",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
];
