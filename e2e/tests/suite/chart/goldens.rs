//! Renders each values file in `ci`, and compares the rendering with its golden file.

use std::fs;
use std::sync::OnceLock;

use anyhow::{Result, bail, ensure};
use pod_reloader_e2e::chart;

use super::{SERVES_POLICY, golden, helm, profiles, template_args, values_name};

/// What the chart renders with the values file `NAME-values.yaml` in `ci`.
pub(super) struct Rendering {
    pub(super) name: String,
    pub(super) text: String,
}

#[test]
fn every_file_of_values_renders_what_it_did_before() -> Result<()> {
    for Rendering { name, text } in renderings()? {
        ensure!(
            *text == rendered(name)?,
            "{name}: another time, other bytes"
        );
        golden(
            &chart().join("ci/golden").join(format!("{name}.yaml")),
            text,
        )?;
    }
    Ok(())
}

/// Returns the rendering of each values file. All tests of a process share them.
pub(super) fn renderings() -> Result<&'static [Rendering]> {
    static RENDERINGS: OnceLock<Result<Vec<Rendering>>> = OnceLock::new();
    match RENDERINGS.get_or_init(render_all) {
        Ok(renderings) => Ok(renderings),
        Err(error) => bail!("{error:#}"),
    }
}

fn render_all() -> Result<Vec<Rendering>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(chart().join("ci"))? {
        names.extend(values_name(&entry?.path()));
    }
    names.sort();
    let render = |name: String| {
        let text = rendered(&name)?;
        Ok(Rendering { name, text })
    };
    names.into_iter().map(render).collect()
}

/// Renders the chart with one values file. One that adds to a profile is rendered on top of it.
fn rendered(name: &str) -> Result<String> {
    let values = chart().join("ci").join(format!("{name}-values.yaml"));
    let files = [profiles::profile_of(name), Some(values)];
    let values: Vec<_> = files
        .iter()
        .flatten()
        .map(|file| format!("--values={}", file.display()))
        .collect();
    let mut args = template_args().to_vec();
    args.push(SERVES_POLICY);
    args.extend(values.iter().map(String::as_str));
    helm(&args)
}
