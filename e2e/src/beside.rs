//! Runs programs of others beside the control plane of a real node.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use crate::{
    control_plane::ControlPlane,
    credentials::random_hex,
    process::{Process, Program},
    tool::Tool,
    wait::{Attempt, PATIENCE, wait_for},
};

/// Where programs of others run: a directory of their own, and the way to the apiserver as an administrator.
pub(crate) struct Beside {
    /// Directory for all that they write.
    pub(crate) directory: PathBuf,
    /// Folder of the programs.
    built: PathBuf,
    logs: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl Beside {
    /// Makes the directory, for programs in the folder `built`.
    pub(crate) fn new(control_plane: &ControlPlane, name: &str, built: &Path) -> Result<Self> {
        let directory = control_plane.description().directory.clone();
        let directory = directory.join(format!("{name}-{}", &random_hex()?[..5]));
        fs::create_dir(&directory)?;
        let own = env::var_os("PATH").unwrap_or_default();
        let programs = control_plane.description().programs.clone();
        let mut path: Vec<PathBuf> = vec![built.to_owned(), programs];
        path.extend(env::split_paths(&own));
        let mut beside = Self {
            directory,
            built: built.to_owned(),
            logs: control_plane.logs_dir().to_owned(),
            env: vec![
                ("PATH".into(), env::join_paths(path)?),
                ("KUBECONFIG".into(), control_plane.kubeconfig_path().into()),
            ],
        };
        beside.set_folder("HOME", "home")?;
        beside.set_folder("TMPDIR", "temporary")?;
        Ok(beside)
    }

    /// Sets a variable of all programs that are run after that.
    pub(crate) fn set(&mut self, variable: &str, value: impl Into<OsString>) {
        self.env.push((variable.into(), value.into()));
    }

    /// Sets a variable to a new folder of this name.
    pub(crate) fn set_folder(&mut self, variable: &str, name: &str) -> Result<()> {
        let folder = self.folder(name)?;
        self.set(variable, folder);
        Ok(())
    }

    /// Makes a folder.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.directory.join(name);
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(folder)
    }

    /// Runs a program under a name, and waits until it listens on a port of 127.0.0.1.
    pub(crate) async fn run(
        &self,
        name: &str,
        program: &str,
        args: &[String],
        port: u16,
    ) -> Result<Process> {
        let process = Process::start(Program {
            name: name.to_owned(),
            executable: self.built.join(program),
            args: args.iter().map(OsString::from).collect(),
            env: self.env.clone(),
            log: self.logs.join(format!("{name}.log")),
        })?;
        wait_for(&format!("{name} to listen"), PATIENCE, async || {
            process.must_run()?;
            Ok(Attempt::from(TcpStream::connect(("127.0.0.1", port)).await))
        })
        .await?;
        Ok(process)
    }
}

/// Creates the types in a folder of manifests, and waits until the apiserver serves them.
pub(crate) async fn create_types(kubectl: &Tool, folder: &Path) -> Result<()> {
    let files = files(folder)?;
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    // They are too large for the annotation of a client-side apply.
    let apply = [&["apply", "--server-side"], &files[..]].concat();
    kubectl.run(&apply).await?;
    established(kubectl, &files).await
}

/// Waits until the apiserver serves types, which are named as kubectl takes them.
pub(crate) async fn established(kubectl: &Tool, types: &[&str]) -> Result<()> {
    let wait = ["wait", "--for=condition=Established", "--timeout=5s"];
    let wait = [&wait[..], types].concat();
    // A type that was just created has no conditions, and then kubectl fails at once.
    wait_for("types to be established", PATIENCE, async || {
        Ok(Attempt::from(kubectl.run(&wait).await.map(drop)))
    })
    .await
}

/// Returns the arguments of kubectl for the manifests in a folder, in the order of their names.
pub(crate) fn files(folder: &Path) -> Result<Vec<String>> {
    let listed = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = Vec::new();
    for file in listed {
        let path = file?.path();
        let is_manifest = path.file_name() != Some("kustomization.yaml".as_ref());
        if is_manifest {
            files.push(format!("--filename={}", path.display()));
        }
    }
    files.sort();
    Ok(files)
}
