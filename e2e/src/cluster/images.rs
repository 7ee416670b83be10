//! Runs a registry, and pushes to it what the node pulls.

use std::{env::consts::ARCH, fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use tokio::{net::TcpStream, process::Command};

use super::{Earlier, OperatorImage, Plan, room::run};
use crate::{
    components::{EarlierVersion, PushedImage},
    launch::REGISTRY,
    process::{Process, Program},
    programs::Programs,
    tool::Tool,
    wait::{Attempt, PATIENCE, wait_for},
};

/// A registry, and the names of its images.
pub(super) struct Images {
    registry: Process,
    /// Image that sleeps.
    pub(super) pause: String,
    /// Image of pods that answer with what they have read.
    pub(super) answers: String,
    /// Image of the operator.
    pub(super) operator: PushedImage,
    /// Version from which a test upgrades, if there is one.
    pub(super) earlier: Option<EarlierVersion>,
}

impl Images {
    /// Starts the registry, and pushes the images.
    pub(super) async fn serve(plan: &Plan) -> Result<Self> {
        let registry = Process::start(registry(plan)?)?;
        wait_for("the registry to listen", PATIENCE, async || {
            registry.must_run()?;
            Ok(Attempt::from(TcpStream::connect(REGISTRY).await))
        })
        .await?;
        let crane = Tool::new(
            plan.crane.clone(),
            plan.directory.join("no-kubeconfig"),
            plan.directory.clone(),
        )
        .apart();
        let operator = push_operator(&crane, plan, &plan.operator, TAG).await?;
        let earlier = match &plan.earlier {
            Some(Earlier { chart, operator }) => Some(EarlierVersion {
                chart: chart.clone(),
                operator: push_operator(&crane, plan, operator, "earlier").await?,
            }),
            None => None,
        };
        let program = Programs::find_with_real_node()?.program("answers");
        let images = ["pause", "answers"].map(|name| format!("{REGISTRY}/{name}:{TAG}"));
        for (name, tag) in ["pause", "answers"].iter().zip(&images) {
            let folder = plan.directory.join(format!("image-{name}"));
            make(&crane, &folder, &program, name, tag).await?;
        }
        let [pause, answers] = images;
        Ok(Self {
            registry,
            pause,
            answers,
            operator,
            earlier,
        })
    }

    pub(super) async fn stop(self) {
        self.registry.stop(Duration::from_secs(5)).await;
    }
}

/// Pushes an image of the operator with a tag.
async fn push_operator(
    crane: &Tool,
    plan: &Plan,
    image: &OperatorImage,
    tag: &str,
) -> Result<PushedImage> {
    let repository = format!("{REGISTRY}/pod-reloader");
    let name = format!("{repository}:{tag}");
    let pushed = match image {
        OperatorImage::Layout(layout) => push(crane, layout, &name).await?,
        OperatorImage::Program(program) => {
            let folder = plan.directory.join(format!("image-operator-{tag}"));
            make(crane, &folder, program, "pod-reloader", &name).await?
        }
    };
    let digest = pushed.trim().rsplit_once('@');
    let (_, digest) = digest.context("crane printed no digest")?;
    Ok(PushedImage {
        repository,
        tag: format!("{tag}@{digest}"),
    })
}

/// Pushes a layout, and returns what it is called with its digest.
async fn push(crane: &Tool, layout: &Path, tag: &str) -> Result<String> {
    let layout = layout.display().to_string();
    crane.run(&["push", &layout, tag]).await
}

/// Pushes an image that runs `program`, which is in it as `/NAME`, and returns what it is called with its digest. Beside
/// the program, it has the libraries that the program loads. `folder` is made for that.
async fn make(
    crane: &Tool,
    folder: &Path,
    program: &Path,
    name: &str,
    tag: &str,
) -> Result<String> {
    fs::create_dir(folder)?;
    fs::copy(program, folder.join(name))
        .with_context(|| format!("copying {}", program.display()))?;
    let layer = folder.join("layer.tar").display().to_string();
    let folder = folder.display().to_string();
    let mut archive: Vec<String> = ["--create", "--dereference", "--owner=0", "--group=0"]
        .map(str::to_owned)
        .into();
    archive.extend([format!("--file={layer}"), "--directory=/".to_owned()]);
    archive.extend(libraries(program).await?);
    archive.extend([format!("--directory={folder}"), name.to_owned()]);
    run("tar", archive).await?;
    crane
        .run(&[
            "append",
            "--oci-empty-base",
            "--new_layer",
            &layer,
            "--new_tag",
            tag,
        ])
        .await?;
    let entrypoint = format!("--entrypoint=/{name}");
    let platform = format!("--set-platform=linux/{}", architecture());
    let image = ["mutate", tag, &entrypoint, &platform, "--tag", tag];
    crane.run(&[&image[..], &SETTINGS].concat()).await
}

/// Returns the paths below `/` of the libraries that a program loads, and of what loads them. A static program has none.
async fn libraries(program: &Path) -> Result<Vec<String>> {
    // Ctrl-C does not reach it, as with the other programs of a start.
    let listed = Command::new("ldd")
        .arg(program)
        .process_group(0)
        .output()
        .await
        .context("running ldd")?;
    // It fails for a static program.
    let listed = listed.status.success().then_some(listed.stdout);
    Ok(paths(&String::from_utf8(listed.unwrap_or_default())?))
}

/// Returns the paths in what `ldd` prints, without their first slash.
fn paths(listed: &str) -> Vec<String> {
    let paths = listed.lines().filter_map(|line| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix('/'))
    });
    paths.map(str::to_owned).collect()
}

/// Returns the architecture of this machine, as images call it.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn registry(plan: &Plan) -> Result<Program> {
    let configuration = plan.directory.join("registry.yaml");
    let storage = plan.directory.join("registry");
    let text = format!(
        "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
         storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{REGISTRY}\"}}\n",
        storage.display()
    );
    fs::write(&configuration, text)?;
    Ok(Program {
        name: "registry".to_owned(),
        executable: plan.registry.clone(),
        args: vec!["serve".into(), configuration.into()],
        env: vec![
            ("HOME".into(), plan.directory.clone().into()),
            // It would look for somebody to send its traces to.
            ("OTEL_TRACES_EXPORTER".into(), "none".into()),
        ],
        log: plan.directory.join("registry.log"),
    })
}

/// The same as in the image that `make image` writes. Programs in Go do not read these variables.
const SETTINGS: [&str; 3] = [
    "--user=65532:65532",
    "--env=MALLOC_ARENA_MAX=2",
    "--env=MALLOC_MMAP_THRESHOLD_=65536",
];

const TAG: &str = "real";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_has_one_path() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2c)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f2d)\n";
        assert_eq!(
            paths(listed),
            [
                "lib/x86_64-linux-gnu/libc.so.6",
                "lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(paths("\tstatically linked\n"), <[&str; 0]>::default());
    }
}
