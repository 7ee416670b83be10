//! Counts the instructions of the most frequent paths, so that none becomes longer unnoticed.
//!
//! Callgrind counts them on an emulated processor, so the counts are the same on every machine, however busy
//! it is. That processor has no SHA-256 instructions, so digests weigh more here than in production.

use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use serde::{Deserialize, Serialize};

const PATHS: [&str; 3] = ["admission", "admission_read", "reconcile"];
/// The file of expected counts.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.json");
/// The tolerated deviation of a count, in either direction.
const TOLERANCE: f64 = 0.05;
/// The variable set by `make instructions`: it makes the test write the counts instead of comparing them.
const UPDATE: &str = "UPDATE_INSTRUCTIONS";

/// The counts on one architecture.
#[derive(Clone, Deserialize, Serialize)]
struct Counts {
    /// The compiler that built the paths.
    rustc: String,
    instructions: BTreeMap<String, u64>,
}

#[test]
fn every_path_takes_as_many_instructions_as_it_did_before() {
    let mut file = read();
    let expected = file.get(env::consts::ARCH).cloned();
    let updates = env::var_os(UPDATE).is_some();
    if expected.is_none() && !updates {
        let arch = env::consts::ARCH;
        return say(&format!(
            "SKIPPED: instructions are not counted, as {FILE} has none for {arch}; \
             `make instructions` adds them"
        ));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(!updates, "valgrind is not here");
        return say("SKIPPED: instructions are not counted, as valgrind is not here");
    }
    let counts = counts();
    if updates {
        file.insert(env::consts::ARCH.to_owned(), counts);
        return write(&file);
    }
    compare(&counts, &expected.expect("else it is skipped"));
}

fn compare(counts: &Counts, expected: &Counts) {
    let mut off = false;
    let mut table = String::new();
    for (path, &count) in &counts.instructions {
        let before = expected.instructions.get(path).copied().unwrap_or_default();
        let change = count as f64 / before as f64 - 1.0;
        off |= change.is_nan() || change.abs() > TOLERANCE;
        table += &format!(
            "{path}: {count}, before {before} ({:+.1} %)\n",
            change * 100.0
        );
    }
    say(table.trim_end());
    assert!(
        !off,
        "the instructions of a path are off by more than {:.0} %:\n{table}\
         Fewer are good news, and more may be what a change is worth: `make instructions` then writes \
         {FILE}, to be committed with the change.\n\
         They also differ a little by the versions of Rust and of the C library: these were counted \
         with \"{}\", those before with \"{}\".",
        TOLERANCE * 100.0,
        counts.rustc,
        expected.rustc,
    );
}

fn counts() -> Counts {
    let program = build();
    let instructions = PATHS.map(|path| (path.to_owned(), count(program.as_ref(), path)));
    let rustc = output(Command::new("rustc").arg("--version"));
    Counts {
        rustc: rustc.trim().to_owned(),
        instructions: instructions.into(),
    }
}

/// Builds the paths as in production, with optimisation, and returns the path of the program.
fn build() -> String {
    let package = env!("CARGO_PKG_NAME");
    let messages = output(
        Command::new(env!("CARGO"))
            // `scripts/test-runner` sets it, and cargo would rebuild everything.
            .env_remove("RUSTC_BOOTSTRAP")
            .args([
                "build",
                "--locked",
                "--profile=instructions",
                "--bin=instructions",
            ])
            .args([
                "--package",
                package,
                "--message-format=json-render-diagnostics",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR")),
    );
    #[derive(Deserialize)]
    struct Message {
        executable: Option<String>,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .next_back()
        .expect("cargo says what it has built")
}

/// Returns the number of instructions that `program` takes in the function `counted`, on this path.
fn count(program: &Path, path: &str) -> u64 {
    let valgrind = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--toggle-collect=*instructions*counted*",
        ])
        .arg("--callgrind-out-file=/dev/null")
        .args([program.as_os_str(), path.as_ref()])
        .output()
        .expect("valgrind is here");
    // "==123== Collected : 456"
    let report = String::from_utf8_lossy(&valgrind.stderr);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    collected
        .and_then(|(_, count)| count.trim().parse().ok())
        .filter(|&count| valgrind.status.success() && count > 0)
        .unwrap_or_else(|| panic!("{path} could not be counted: {report}"))
}

fn read() -> BTreeMap<String, Counts> {
    let file = fs::read_to_string(FILE).expect("the counts are there");
    serde_json::from_str(&file).expect("the counts are JSON")
}

fn write(file: &BTreeMap<String, Counts>) {
    let json = serde_json::to_string_pretty(file).expect("maps with text keys can be JSON");
    fs::write(FILE, json + "\n").expect("the counts can be written");
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("its output is text")
}

/// Prints even if a test passes, when its output is not shown.
fn say(text: &str) {
    writeln!(stderr(), "{text}").expect("there is a stderr");
}
