//! Renders each values file in `ci`, and compares the rendering with its golden file.

mod compact;
mod differences;

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use pod_reloader_e2e::{OLDEST_KUBERNETES, Programs, chart, go_program};
use serde_json::Value;

use self::differences::{BASE, Part, Renderings};
use super::{SERVES_POLICY, golden, helm, profiles, run, template_args, values_name};

/// Values files that combine features. They come last, so that most of their objects are as in the file of a feature.
const COMBINATIONS: [&str; 4] = ["details", "everything", "of-others", "platform"];

/// First line of each golden file with differences.
const HEADER: &str = "# Written by `make golden`. CONTRIBUTING.md says how to read it.\n";

/// What the chart renders with the values file `NAME-values.yaml` in `ci`.
pub(super) struct Rendering {
    pub(super) name: String,
    pub(super) text: String,
}

#[test]
fn every_file_of_values_renders_what_it_did_before() -> Result<()> {
    let parts = parts()?;
    let mut earlier = Renderings::default();
    for Rendering { name, text } in renderings()? {
        // Each feature is in one of them. Others that vary would also differ from their golden file, sooner or later.
        if name == BASE || COMBINATIONS.contains(&name.as_str()) {
            let again = rendered(name)?;
            ensure!(*text == again, "{name}: another time, other bytes");
        }
        let differences = earlier.add(name, text, &parts)?;
        if name == BASE {
            golden(&golden_file(name), text)?;
        } else {
            golden(&golden_file(name), &format!("{HEADER}{differences}"))?;
        }
    }
    Ok(())
}

#[test]
fn every_golden_file_has_its_file_of_values() -> Result<()> {
    let renderings = renderings()?;
    for entry in fs::read_dir(chart().join("ci/golden"))? {
        let path = entry?.path();
        let mut names = renderings.iter().map(|rendering| &rendering.name);
        let has_values = names.any(|name| golden_file(name) == path);
        ensure!(has_values, "{}: nothing writes it", path.display());
    }
    Ok(())
}

/// The golden files are rendered by Helm 4, and so by neither of these.
#[test]
#[ignore = "builds one more Helm: make test-versions"]
fn the_oldest_helm_renders_every_file_of_values_as_helm_3_does() -> Result<()> {
    let oldest = go_program("oldest-helm")?;
    let current = Programs::find()?.program("helm3");
    // Without a cluster, Helm 3.10 assumes a version of Kubernetes that the chart refuses.
    let version = format!("--kube-version={OLDEST_KUBERNETES}");
    for name in names()? {
        let mut args = arguments(&name);
        args.push(version.clone());
        let expected = run(&current, &args)?;
        let found = run(&oldest, &args).with_context(|| name.clone())?;
        let mut lines = found.lines().zip(expected.lines());
        let first = lines.find(|(found, expected)| found != expected);
        ensure!(found == expected, "{name} is another: {first:?}");
    }
    Ok(())
}

/// So the effect of every value is in a golden file.
#[test]
fn every_value_differs_from_its_default_in_a_file_of_values() -> Result<()> {
    let read = |file: PathBuf| -> Result<Value> {
        Ok(serde_saphyr::from_str(&fs::read_to_string(file)?)?)
    };
    let defaults = read(chart().join("values.yaml"))?;
    let files = renderings()?.iter();
    let files = files.map(|Rendering { name, .. }| read(values_file(name)));
    let files = files.collect::<Result<Vec<_>>>()?;
    let mut unchanged = Vec::new();
    // Every object would have another name, and so would be in that golden file as a whole. Tests of names set it.
    let leaves = leaves(&defaults).into_iter();
    for (path, default) in leaves.filter(|(path, _)| path != "/fullnameOverride") {
        let differs = |file: &Value| file.pointer(&path).is_some_and(|value| *value != *default);
        if !files.iter().any(differs) {
            unchanged.push(path);
        }
    }
    ensure!(unchanged.is_empty(), "no file in ci sets {unchanged:?}");
    Ok(())
}

/// Returns all values that contain no others, each with the path to it.
fn leaves(values: &Value) -> Vec<(String, &Value)> {
    match values.as_object().filter(|fields| !fields.is_empty()) {
        None => vec![(String::new(), values)],
        Some(fields) => {
            let below = |(name, value)| {
                let leaves = leaves(value).into_iter();
                leaves.map(move |(path, leaf)| (format!("/{name}{path}"), leaf))
            };
            fields.iter().flat_map(below).collect()
        }
    }
}

/// Returns the values that the chart takes from files.
fn parts() -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(chart().join("files"))? {
        let path = entry?.path();
        let definition: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let has_spec = definition["spec"].is_object();
        ensure!(has_spec, "{}: it has no spec", path.display());
        parts.push(Part {
            file: path.strip_prefix(chart())?.display().to_string(),
            value: definition["spec"].clone(),
        });
    }
    let dashboard = "dashboards/pod-reloader.json";
    parts.push(Part {
        file: dashboard.to_owned(),
        value: Value::from(fs::read_to_string(chart().join(dashboard))?),
    });
    Ok(parts)
}

fn golden_file(name: &str) -> PathBuf {
    let ending = if name == BASE { "yaml" } else { "diff" };
    chart().join("ci/golden").join(format!("{name}.{ending}"))
}

fn values_file(name: &str) -> PathBuf {
    chart().join("ci").join(format!("{name}-values.yaml"))
}

/// Returns the rendering of each values file, in the order in which they are compared. All tests of a process share them.
pub(super) fn renderings() -> Result<&'static [Rendering]> {
    static RENDERINGS: OnceLock<Result<Vec<Rendering>>> = OnceLock::new();
    match RENDERINGS.get_or_init(render_all) {
        Ok(renderings) => Ok(renderings),
        Err(error) => bail!("{error:#}"),
    }
}

fn render_all() -> Result<Vec<Rendering>> {
    let render = |name: String| {
        let text = rendered(&name)?;
        Ok(Rendering { name, text })
    };
    names()?.into_iter().map(render).collect()
}

/// Returns the name of each values file, in the order in which their renderings are compared.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(chart().join("ci"))? {
        names.extend(values_name(&entry?.path()));
    }
    names.sort();
    // A stable order, in which the base is the first one.
    names.sort_by_key(|name| {
        let is_combination = COMBINATIONS.contains(&name.as_str()) || name.starts_with("profile-");
        (name != BASE, is_combination)
    });
    Ok(names)
}

fn rendered(name: &str) -> Result<String> {
    let args = arguments(name);
    helm(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the arguments with which Helm renders one values file. One that adds to a profile is rendered on top of it.
fn arguments(name: &str) -> Vec<String> {
    let files = [profiles::profile_of(name), Some(values_file(name))];
    let files = files.iter().flatten();
    let values = files.map(|file| format!("--values={}", file.display()));
    let args = template_args().into_iter().chain([SERVES_POLICY]);
    args.map(str::to_owned).chain(values).collect()
}
