//! Describes a running control plane to another process.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Names the directory of a control plane that a parent process runs.
pub const CONTROL_PLANE_VARIABLE: &str = "POD_RELOADER_E2E_CONTROL_PLANE";

/// What a test needs to know of a control plane; `control-plane.json` in its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Where everything of this control plane stands.
    pub directory: PathBuf,
    /// The URL of the apiserver.
    pub api_url: String,
    /// The CA of the apiserver's certificate.
    pub certificate_authority: PathBuf,
    /// A kubeconfig of a user in `system:masters`.
    pub kubeconfig: PathBuf,
    /// The folder with kubectl, helm and the control plane's programs.
    pub programs: PathBuf,
    /// The audit log of the apiserver.
    pub audit_log: PathBuf,
    /// One log for each process.
    pub logs: PathBuf,
}

impl Description {
    pub(crate) fn write(&self) -> Result<()> {
        let path = self.directory.join(FILE);
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The control plane that [`CONTROL_PLANE_VARIABLE`] names, if it is set.
    pub(crate) fn from_environment() -> Result<Option<Self>> {
        env::var_os(CONTROL_PLANE_VARIABLE)
            .map(|directory| Self::read(Path::new(&directory)))
            .transpose()
    }

    fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let content = fs::read(&path).with_context(|| {
            format!(
                "reading {}, which {CONTROL_PLANE_VARIABLE} names",
                path.display()
            )
        })?;
        serde_json::from_slice(&content).with_context(|| format!("parsing {}", path.display()))
    }
}

const FILE: &str = "control-plane.json";
