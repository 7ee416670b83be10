//! Finds the programs of the control plane.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, Result, bail, ensure};

/// Variable that names the folder of the programs. Without it, the build script says where its cache is.
pub const PROGRAMS_VARIABLE: &str = "POD_RELOADER_CONTROL_PLANE_BIN";

/// The folder with etcd, kube-apiserver and the rest.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Finds the folder. It looks once: the build script reads all sources of the programs each time, and the tests of the
    /// chart ask for Helm hundreds of times.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn find() -> Result<Self> {
        static FOUND: OnceLock<Programs> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let programs = Self::found("demo")?;
        programs.must_have(&REQUIRED, "make control-plane")?;
        Ok(FOUND.get_or_init(|| programs).clone())
    }

    /// Finds the folder, which must also have the programs of a real node.
    ///
    /// # Errors
    /// When a program is missing.
    pub fn find_with_real_node() -> Result<Self> {
        let programs = Self::found("cluster")?;
        let build = "e2e/control-plane/build.sh --for=cluster";
        programs.must_have(&REQUIRED, build)?;
        programs.must_have(&REQUIRED_FOR_REAL_NODE, build)?;
        Ok(programs)
    }

    /// Returns the folder of those who need it for `purpose`, as the build script has it.
    fn found(purpose: &str) -> Result<Self> {
        let directory = match env::var_os(PROGRAMS_VARIABLE) {
            Some(directory) => PathBuf::from(directory),
            None => built(purpose)?,
        };
        Ok(Self { directory })
    }

    fn must_have(&self, names: &[&str], build: &str) -> Result<()> {
        let directory = &self.directory;
        for name in names {
            ensure!(
                directory.join(name).exists(),
                "{name} is missing in {}: run `{build}`",
                directory.display()
            );
        }
        Ok(())
    }

    /// Checks that Kubernetes of a minor version, such as `1.30`, has been built.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn must_have_version(&self, version: &str) -> Result<()> {
        let Self { directory } = self.of_version(version);
        ensure!(
            directory.is_dir(),
            "{} is missing: run `make control-plane KUBERNETES={version}`",
            directory.display()
        );
        Ok(())
    }

    /// Returns the folder with Kubernetes of a minor version.
    pub(crate) fn of_version(&self, version: &str) -> Self {
        Self::at(&self.directory.join(version))
    }

    pub(crate) fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Returns the folder itself.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Returns a program of this workspace, as built by cargo; `None` if cargo has not built it.
pub fn of_the_workspace(name: &str) -> Option<PathBuf> {
    // Test binaries lie one folder below the programs.
    let own = env::current_exe().ok()?;
    let folders = own.ancestors().skip(1).take(2);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns the folder of prometheus and promtool; `None` if there are to be none.
///
/// # Errors
/// When they are missing and cannot be obtained.
pub fn prometheus() -> Result<Option<PathBuf>> {
    let found = said_by("../scripts/prometheus", &[])?;
    Ok(match found.trim() {
        "none" => None,
        folder => Some(PathBuf::from(folder)),
    })
}

/// Returns the output of a script of this repository.
fn said_by(script: &str, args: &[&str]) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    let output = Command::new(&script)
        .args(args)
        .output()
        .with_context(|| format!("running {}", script.display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the path of a program that `scripts/go-program` builds where it is missing, such as a registry.
///
/// # Errors
/// When it cannot be built.
pub fn go_program(name: &str) -> Result<PathBuf> {
    let path = said_by("../scripts/go-program", &[name])?;
    Ok(PathBuf::from(path.trim()))
}

fn built(purpose: &str) -> Result<PathBuf> {
    let purpose = format!("--for={purpose}");
    let stdout = said_by("control-plane/build.sh", &["--where", &purpose])?;
    let directory = stdout
        .lines()
        .last()
        .context("the build script printed no folder")?;
    Ok(PathBuf::from(directory))
}

const REQUIRED: [&str; 10] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
    "stages",
    "helm",
    "cert-manager",
    "cert-manager-crds",
];

const REQUIRED_FOR_REAL_NODE: [&str; 11] = [
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "bridge",
    "host-local",
    "loopback",
    "portmap",
    "answers",
];
