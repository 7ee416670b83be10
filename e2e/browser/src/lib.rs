//! A browser without a screen and without a network, for the tests of pages.
//!
//! [`Browser`] is a Chromium, or a browser based on it, which is controlled through the [DevTools
//! protocol](https://chromedevtools.github.io/devtools-protocol/) over a pipe.

mod pipe;

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::pipe::Pipe;

/// Variable that names the browser. With `none`, tests that need one say so and do nothing.
pub const VARIABLE: &str = "BROWSER_BIN";

/// A browser with one page.
///
/// # Guarantees
/// The browser has an empty profile, can open nothing but files, and ends when the value is dropped.
#[derive(Debug)]
pub struct Browser {
    pipe: Pipe,
    session: String,
    /// Events of its page since the last look.
    events: Vec<Value>,
    // Dropped after the pipe, which ends the browser.
    _profile: TempDir,
}

/// A key with an effect other than writing a character.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    /// Moves down in a list or a column.
    ArrowDown,
    /// Moves to the left.
    ArrowLeft,
    /// Moves to the right.
    ArrowRight,
    /// Follows the link that has the focus.
    Enter,
    /// Leaves a menu or mode.
    Escape,
    /// Moves to the next element that takes keyboard input.
    Tab,
}

impl Browser {
    /// Starts the browser that [`VARIABLE`] names, or the first one in `PATH`. Returns `None` if the variable
    /// is `none`.
    ///
    /// # Errors
    /// When there is no browser, or it does not start.
    pub fn start() -> Result<Option<Self>> {
        let Some(program) = program()? else {
            eprintln!("skipped: {VARIABLE}=none says that there is no browser");
            return Ok(None);
        };
        let profile = TempDir::with_prefix("pod-reloader-browser-")?;
        let mut pipe = Pipe::to(&program, profile.path())?;
        let target = pipe.call(None, "Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = pipe.call(None, "Target.attachToTarget", attach)?;
        let session = session["sessionId"]
            .as_str()
            .context("no session")?
            .to_owned();
        let mut browser = Self {
            pipe,
            session,
            events: Vec::new(),
            _profile: profile,
        };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(Some(browser))
    }

    /// Sets the size of the window in pixels, and the user's preference for light or dark. Animations are
    /// off.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn look(&mut self, width: u32, height: u32, light: bool) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if light { "light" } else { "dark" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        Ok(())
    }

    /// Opens `file` at `fragment`, and waits until its scripts have run and it is drawn.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&mut self, file: &Path, fragment: &str) -> Result<()> {
        let address = format!("file://{}#{fragment}", file.display());
        // Otherwise, a change of only the fragment would not be a load.
        self.load("about:blank")?;
        self.load(&address)?;
        // A click on something that is not drawn yet may be lost.
        let drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))";
        self.evaluate(drawn).map(|_| ())
    }

    /// Returns the value of an expression, or of the promise that it returns.
    ///
    /// # Errors
    /// When it throws.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let expression =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", expression)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("the page throws {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// When it is not within half a minute.
    pub fn wait_until(&mut self, expression: &str) -> Result<()> {
        let watched = format!(
            "new Promise((done, failed) => {{ const began = performance.now(); const look = () => \
             ({expression}) ? done(true) : performance.now() - began > {} ? failed(new Error('never')) \
             : requestAnimationFrame(look); look(); }})",
            PATIENCE.as_millis()
        );
        self.evaluate(&watched)
            .with_context(|| format!("waiting for {expression}"))?;
        Ok(())
    }

    /// Clicks in the middle of the first element that `selector` picks, or of its first line.
    ///
    /// # Errors
    /// When there is no such element.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let expression = format!(
            "(() => {{ const element = document.querySelector({}); if (!element) return null; \
             element.scrollIntoView({{ block: 'center' }}); const [box] = element.getClientRects(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let point = self.evaluate(&expression)?;
        ensure!(point.is_array(), "nothing on the page is {selector}");
        for what in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": what, "x": point[0], "y": point[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Types `text` into the element that has the focus.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text}))?;
        Ok(())
    }

    /// Presses `key`.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn press(&mut self, key: Key) -> Result<()> {
        let (name, code, text) = match key {
            Key::ArrowDown => ("ArrowDown", 40, None),
            Key::ArrowLeft => ("ArrowLeft", 37, None),
            Key::ArrowRight => ("ArrowRight", 39, None),
            Key::Enter => ("Enter", 13, Some("\r")),
            Key::Escape => ("Escape", 27, None),
            Key::Tab => ("Tab", 9, None),
        };
        for what in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": what, "key": name, "code": name, "windowsVirtualKeyCode": code});
            if let (Some(text), "keyDown") = (text, what) {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Returns a screenshot of the window, as PNG.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn screenshot(&mut self) -> Result<Vec<u8>> {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        let picture = answer["data"].as_str().context("no picture")?;
        STANDARD.decode(picture).context("reading the picture")
    }

    /// Returns the number of times that the page was laid out.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn layouts(&mut self) -> Result<u64> {
        self.call("Performance.enable", json!({}))?;
        let answer = self.call("Performance.getMetrics", json!({}))?;
        let metrics = answer["metrics"].as_array().context("no metrics")?;
        let count = metrics.iter().find(|it| it["name"] == "LayoutCount");
        let count = count.and_then(|it| it["value"].as_f64());
        Ok(count.context("no count of layouts")? as u64)
    }

    /// Returns the addresses that pages have requested so far, in order.
    pub fn requests(&self) -> Vec<&str> {
        let requests = self.of("Network.requestWillBeSent");
        requests
            .filter_map(|event| event["request"]["url"].as_str())
            .collect()
    }

    /// Returns the errors of pages so far: exceptions, violations of a policy, failed requests.
    pub fn complaints(&self) -> Vec<String> {
        let exceptions = self.of("Runtime.exceptionThrown");
        let entries = self
            .of("Log.entryAdded")
            .filter(|event| event["entry"]["level"] == "error");
        exceptions.chain(entries).map(Value::to_string).collect()
    }

    fn load(&mut self, address: &str) -> Result<()> {
        let seen = self.events.len();
        let answer = self.call("Page.navigate", json!({"url": address}))?;
        if let Some(error) = answer.get("errorText") {
            bail!("opening {address}: {error}");
        }
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events[seen..].iter().any(is_loaded) {
            let event = self
                .pipe
                .next(PATIENCE)
                .with_context(|| format!("opening {address}"))?;
            self.events.push(event);
        }
        Ok(())
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let answer = self.pipe.call(Some(&self.session), method, parameters);
        self.events.append(&mut self.pipe.events);
        answer
    }

    fn of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Value> {
        let events = self
            .events
            .iter()
            .filter(move |event| event["method"] == method);
        events.map(|event| &event["params"])
    }
}

/// Time limit for anything that a page does.
const PATIENCE: Duration = Duration::from_secs(30);

fn program() -> Result<Option<PathBuf>> {
    match env::var_os(VARIABLE) {
        Some(none) if none == "none" => return Ok(None),
        Some(program) => return Ok(Some(program.into())),
        None => {}
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let found = programs.into_iter().find(|program| program.is_file());
    found.map(Some).with_context(|| {
        format!("no browser: scripts/browser gets one, {VARIABLE} names one, {VARIABLE}=none does without")
    })
}

/// The same names as in `scripts/browser`.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
