//! What documents say of the tests: their names in the table of faults, and the versions that they run on.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{OLDEST_KUBERNETES, chart};

#[test]
fn every_test_that_the_table_of_faults_names_exists() -> Result<()> {
    let table = include_str!("../../README.md").lines();
    let rows: Vec<_> = table.filter(|line| is_row(line)).collect();
    let named = rows
        .iter()
        .flat_map(|row| row.split('`').skip(1).step_by(2));
    let named: Vec<_> = named.filter_map(|code| code.split_once("::")).collect();
    ensure!(rows.len() > 50 && named.len() > rows.len(), "{rows:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let mut sources = Vec::new();
    for directory in ["crates", "e2e/tests"] {
        read(&root.join(directory), &mut sources)?;
    }
    for (module, test) in named {
        let definition = format!("fn {test}(");
        let is_there = sources.iter().any(|(path, text)| {
            path.to_string_lossy().contains(module) && text.contains(&definition)
        });
        ensure!(is_there, "there is no test {module}::{test}");
    }
    Ok(())
}

#[test]
fn the_documented_versions_are_those_that_tests_build() -> Result<()> {
    let page = include_str!("../../../docs/versions.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane");
    let mut modules = vec![
        root.join("go.mod"),
        root.join("helm3/go.mod"),
        root.join("../oldest-helm/go.mod"),
    ];
    for version in fs::read_dir(root.join("versions"))? {
        modules.push(version?.path().join("go.mod"));
    }
    for path in modules {
        let module = fs::read_to_string(&path)?;
        let versions: Vec<_> = module.lines().filter_map(version).collect();
        ensure!(!versions.is_empty(), "{}", path.display());
        for version in versions {
            ensure!(page.contains(version), "versions.md: {version}");
        }
    }
    Ok(())
}

#[test]
fn the_oldest_versions_of_the_documents_are_the_oldest_that_tests_run() -> Result<()> {
    let module = include_str!("../../oldest-helm/go.mod");
    let built = module.lines().find_map(version).context("it needs Helm")?;
    let (helm, _) = built.rsplit_once('.').context("it has a patch version")?;
    let metadata = fs::read_to_string(chart().join("Chart.yaml"))?;
    let readme = include_str!("../../../README.md");
    let install = include_str!("../../../docs/install.md");
    let versions = include_str!("../../../docs/versions.md");
    let kubernetes = OLDEST_KUBERNETES;
    for (page, sentence) in [
        (readme, format!("Kubernetes {kubernetes} or newer")),
        (install, format!("Kubernetes {kubernetes} or newer")),
        (versions, format!("Kubernetes {kubernetes} or newer")),
        (&*metadata, format!(r#"kubeVersion: ">={kubernetes}.0-0""#)),
        (install, format!("Helm {helm} or newer")),
        (versions, format!("| Helm, to install the chart | {helm}. ")),
    ] {
        let begin = page.lines().next().unwrap_or_default();
        ensure!(page.contains(&sentence), "{begin}: {sentence}");
    }
    Ok(())
}

/// Returns the version of Kubernetes or Helm that a line of a go.mod requires.
fn version(line: &str) -> Option<&str> {
    let (module, rest) = line.trim_start().split_once(" v")?;
    let is_it = ["k8s.io/kubernetes", "helm.sh/helm/v3", "helm.sh/helm/v4"].contains(&module);
    is_it.then(|| rest.split(' ').next()).flatten()
}

/// Returns true if a line is a row of the table: it begins with a name such as A1.
fn is_row(line: &str) -> bool {
    let mut name = line.strip_prefix("| ").unwrap_or_default().chars();
    name.next().is_some_and(|first| first.is_ascii_uppercase())
        && name.next().is_some_and(|second| second.is_ascii_digit())
}

/// Adds every Rust file below `directory`, with its path.
fn read(directory: &Path, sources: &mut Vec<(PathBuf, String)>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            sources.push((path, text));
        }
    }
    Ok(())
}
