//! Describes a running control plane to another process.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::components::RealNode;

/// Variable that names the directory of a control plane that a parent process runs.
pub const CONTROL_PLANE_VARIABLE: &str = "POD_RELOADER_E2E_CONTROL_PLANE";

/// The facts about a control plane that a test needs; `control-plane.json` in its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Directory of this control plane.
    pub directory: PathBuf,
    /// URL of the apiserver.
    pub api_url: String,
    /// CA of the apiserver's certificate.
    pub certificate_authority: PathBuf,
    /// Kubeconfig of a user in `system:masters`.
    pub kubeconfig: PathBuf,
    /// Folder with kubectl, helm and the control plane's programs.
    pub programs: PathBuf,
    /// Audit log of the apiserver.
    pub audit_log: PathBuf,
    /// Folder with one log for each process.
    pub logs: PathBuf,
    /// Its node, if pods really run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_node: Option<RealNode>,
}

impl Description {
    pub(crate) fn write(&self) -> Result<()> {
        let path = self.directory.join(FILE);
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Reads the control plane that [`CONTROL_PLANE_VARIABLE`] names, if it is set.
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
