//! The script that runs the tests: which failures it forgives, and which it does not.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::mentions;
use tempfile::TempDir;

#[test]
fn a_test_that_passes_alone_is_named_and_does_not_fail_the_run() -> Result<()> {
    let run = Run::begin()?;
    let output = run.tests(&["steady", "loud_1"]).passes()?;
    let named = "loud_1 failed beside others and passed alone; its first output is in ";
    let (_, record) = output.split_once(named).context("no name")?;
    let record = fs::read_to_string(record.lines().next().unwrap_or_default())?;
    mentions(&record, "the crowd is too loud for loud_1")?;

    let closing = run.runner(&["--end"]).passes()?;
    mentions(&closing, "unsteady tests: 1\n")?;
    mentions(&closing, named)?;
    Ok(())
}

#[test]
fn a_test_that_fails_alone_fails_the_run() -> Result<()> {
    let run = Run::begin()?;
    let output = run.tests(&["steady", "loud_1", "broken"]).fails()?;
    mentions(&output, "to run it alone: make test TEST=broken\n")?;
    // It was alone from the beginning.
    let output = run.tests(&["loud_2"]).fails()?;
    ensure!(!output.contains("once more"), "{output}");
    Ok(())
}

#[test]
fn the_last_lines_name_every_cause_and_no_frame() -> Result<()> {
    let output = Run::begin()?.tests(&["explained"]).fails()?;
    let (_, why) = output
        .split_once("---- why explained failed ----\n")
        .context("no reason")?;
    let (why, _) = why.split_once("to run it alone").context("no end")?;
    ensure!(
        why == "Error: outer\nCaused by:\n    0: inner\n    1: innermost\n",
        "{output}"
    );
    Ok(())
}

#[test]
fn a_program_that_dies_fails_the_run() -> Result<()> {
    Run::begin()?.tests(&["steady", "dies"]).fails()?;
    Ok(())
}

#[test]
fn more_than_three_unsteady_tests_fail_the_run() -> Result<()> {
    let run = Run::begin()?;
    run.tests(&["loud_1", "loud_2"]).passes()?;
    run.tests(&["loud_3", "steady"]).passes()?;
    let output = run.tests(&["loud_4", "steady"]).fails()?;
    mentions(&output, "unsteady tests: 4\n")?;
    Ok(())
}

#[test]
fn many_failures_at_once_are_not_repeated() -> Result<()> {
    let names: Vec<_> = (1..=7).map(|number| format!("loud_{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let output = Run::begin()?.tests(&names).fails()?;
    ensure!(!output.contains("once more"), "{output}");
    Ok(())
}

/// A test program as cargo builds one. Its loud tests fail the first time, and pass then.
const PROGRAM: &str = r#"
macro_rules! loud {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let name = stringify!($name);
            let mark = std::path::Path::new(&std::env::var("MARKS").unwrap()).join(name);
            if !mark.exists() {
                std::fs::write(mark, "").unwrap();
                panic!("the crowd is too loud for {name}");
            }
        }
    )*};
}
loud!(loud_1 loud_2 loud_3 loud_4 loud_5 loud_6 loud_7);

#[test]
fn steady() {}

#[test]
fn broken() {
    panic!("wrong");
}

#[test]
fn dies() {
    std::process::abort();
}

/// Prints itself like an error of anyhow.
struct Explained;

impl std::fmt::Debug for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("outer\n\nCaused by:\n    0: inner\n    1: innermost\n\n")?;
        f.write_str("Stack backtrace:\n   0: run::frame\n             at run.rs:1:1\n")
    }
}

#[test]
fn explained() -> Result<(), Explained> {
    Err(Explained)
}
"#;

/// One run of all tests, with a folder of its own for its records.
struct Run {
    directory: TempDir,
    program: PathBuf,
}

impl Run {
    fn begin() -> Result<Self> {
        let directory = TempDir::new()?;
        let [source, program] = ["tests.rs", "program"].map(|name| directory.path().join(name));
        fs::write(&source, PROGRAM)?;
        let mut compiler = Command::new("rustc");
        compiler.args(["--edition=2024", "--test", "-o"]);
        compiler.arg(&program).arg(&source);
        ensure!(compiler.status()?.success(), "rustc");
        let run = Self { directory, program };
        run.runner(&["--begin"]).passes()?;
        Ok(run)
    }

    /// Runs the tests of these names as one program of the run.
    fn tests(&self, names: &[&str]) -> Outcome {
        let program = self.program.to_string_lossy();
        self.runner(&[&[&*program, "--exact"], names].concat())
    }

    fn runner(&self, args: &[&str]) -> Outcome {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test-runner");
        let output = Command::new(script)
            .args(args)
            .env("TEST_RECORDS", self.directory.path().join("records"))
            .env("MARKS", self.directory.path())
            .env_remove("RERUN")
            .output();
        Outcome(output)
    }
}

struct Outcome(std::io::Result<std::process::Output>);

impl Outcome {
    fn passes(self) -> Result<String> {
        self.ended(true)
    }

    fn fails(self) -> Result<String> {
        self.ended(false)
    }

    /// Returns what was printed.
    fn ended(self, well: bool) -> Result<String> {
        let output = self.0.context("running scripts/test-runner")?;
        let printed = String::from_utf8(output.stdout)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() == well, "{printed}{errors}");
        Ok(printed)
    }
}
