//! Tests of the documents: the commands that they show work, the manifests that they show are accepted, and
//! their links lead somewhere.
//!
//! Each fenced block of `console`, `sh` or `bash` is run, and each of `yaml` is given to helm or to the
//! apiserver, unless a mark above it gives a reason not to. The marks are listed in `e2e/README.md`.

mod block;
mod links;
mod manifest;
mod output;
mod reader;

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{ControlPlane, ControlPlaneOptions, Programs, chart, crds};

use self::{
    block::{Block, blocks},
    links::Page,
    reader::Reader,
};

/// Variable that selects the pages whose paths contain its value.
const PAGE: &str = "PAGE";

/// Pages about copies, fields and problems, which have the most commands. They take about as long as all others.
const LONG: [&str; 8] = [
    "docs/base-secret.md",
    "docs/copy.md",
    "docs/custom-resources.md",
    "docs/field-bindings.md",
    "docs/migration/",
    "docs/operating.md",
    "docs/runbooks.md",
    "docs/troubleshooting.md",
];

#[tokio::test]
async fn what_pages_about_copies_fields_and_problems_show_works_as_it_stands() -> Result<()> {
    work(is_long).await
}

#[tokio::test]
async fn what_all_other_pages_show_works_as_it_stands() -> Result<()> {
    work(|name| !is_long(name)).await
}

#[test]
fn each_long_page_exists() -> Result<()> {
    let names: Vec<_> = pages()?.iter().map(Page::name).collect();
    for part in LONG {
        let is_there = names.iter().any(|name| name.starts_with(part));
        ensure!(is_there, "there is no page {part}");
    }
    Ok(())
}

fn is_long(name: &str) -> bool {
    LONG.iter().any(|page| name.starts_with(page))
}

/// Runs a group of pages on one control plane that nobody else uses, one after the other: the commands are run as
/// shown, and each page names its release `pod-reloader`.
async fn work(is_in_group: impl Fn(&str) -> bool) -> Result<()> {
    let chosen = env::var(PAGE).unwrap_or_default();
    let mut pages = pages()?;
    pages.retain(|page| page.name().contains(&chosen));
    ensure!(!pages.is_empty(), "no page is called {PAGE}={chosen}");
    let mut read = Vec::new();
    for page in pages.into_iter().filter(|page| is_in_group(&page.name())) {
        let blocks = blocks(&page.text).with_context(|| page.name())?;
        // Another test renders the values.
        if !blocks.iter().all(Block::are_values) {
            read.push((page.name(), blocks));
        }
    }
    if read.is_empty() {
        return Ok(());
    }
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let types = ["rollouts", "clusters", "harbors"].map(|name| crds::crd(name).to_string());
    let create = ["apply", "--filename=-"];
    let types = types.join("\n---\n");
    control_plane
        .kubectl()
        .run_with_input(&create, &types)
        .await?;
    let mut failed = Vec::new();
    for (name, blocks) in read {
        let began = Instant::now();
        let reader = Reader::new(&control_plane)?;
        if let Err(error) = reader.read(&blocks).await {
            let again = format!("to run this page alone: {PAGE}={name} make test TEST=docs::what_");
            let logs = reader.logs().await;
            failed.push(format!("{name}:{error:#}\n{logs}\n{again}"));
        }
        if blocks.iter().any(Block::may_change_the_cluster) {
            let cleared = reader.clear().await;
            cleared.with_context(|| format!("after {name}, of which failed: {failed:?}"))?;
        }
        let took = began.elapsed();
        if took > Duration::from_secs(1) {
            println!("{name}: {took:.1?}");
        }
    }
    control_plane.stop().await;
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

#[test]
fn every_file_of_values_renders() -> Result<()> {
    let helm = Programs::find()?.program("helm");
    let mut rendered = 0;
    for page in pages()? {
        for block in blocks(&page.text).with_context(|| page.name())? {
            if !block.are_values() {
                continue;
            }
            let mut values = tempfile::NamedTempFile::new()?;
            values.write_all(block.text.as_bytes())?;
            let output = Command::new(&helm)
                .args(["template", "pod-reloader", "--namespace=pod-reloader"])
                .arg(chart())
                .arg("--set=image.repository=registry.example.com/pod-reloader")
                .arg("--values")
                .arg(values.path())
                .env("GOGC", "400")
                .output()?;
            ensure!(
                output.status.success(),
                "{}:{}\n{}{}",
                page.name(),
                block.line,
                block.text,
                String::from_utf8_lossy(&output.stderr)
            );
            rendered += 1;
        }
    }
    ensure!(rendered > 15, "{rendered}");
    Ok(())
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let pages = pages()?;
    ensure!(pages.len() > 10, "{} pages", pages.len());
    let dead: Vec<_> = pages.iter().flat_map(Page::dead_links).collect();
    ensure!(dead.is_empty(), "{}", dead.join("\n"));
    Ok(())
}

#[test]
fn every_target_of_make_in_the_text_exists() -> Result<()> {
    let makefile = fs::read_to_string(root().join("Makefile"))?;
    let mut named = 0;
    for page in pages()? {
        for code in page.text.split('`').skip(1).step_by(2) {
            let Some(target) = code
                .strip_prefix("make ")
                .and_then(|args| args.split(' ').next())
            else {
                continue;
            };
            named += 1;
            let rule = format!("\n{target}:");
            ensure!(makefile.contains(&rule), "{}: make {target}", page.name());
        }
    }
    ensure!(named > 10, "{named}");
    Ok(())
}

/// Returns the documents in a stable order.
fn pages() -> Result<Vec<Page>> {
    let mut paths = Vec::new();
    for directory in ["", "charts/pod-reloader", "e2e", "examples"] {
        add_pages(&root().join(directory), false, &mut paths)?;
    }
    add_pages(&root().join("docs"), true, &mut paths)?;
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path)?;
        Ok(Page { path, text })
    };
    paths.into_iter().map(read).collect()
}

fn add_pages(directory: &Path, deep: bool, paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            add_pages(&path, deep, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Returns the folder of the repository.
fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("this crate lies in the repository")
}
