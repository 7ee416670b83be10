//! Creates the directory of a control plane, and removes it unless it is to be retained.

use std::{env, fs::Permissions, os::unix::fs::PermissionsExt, path::PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::components::ControlPlaneOptions;

/// The directory of one control plane: temporary, unless it is to be retained.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    temporary: Option<TempDir>,
}

impl Directory {
    pub(crate) fn create(options: &ControlPlaneOptions) -> Result<Self> {
        let parent = options.parent.clone().unwrap_or_else(env::temp_dir);
        let temporary = tempfile::Builder::new()
            .prefix("pod-reloader-control-plane-")
            // Tokens and keys are in there.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .with_context(|| format!("creating a directory in {}", parent.display()))?;
        let mut directory = Self {
            path: temporary.path().to_owned(),
            temporary: Some(temporary),
        };
        if options.keep {
            directory.keep();
        }
        Ok(directory)
    }

    pub(crate) fn keep(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            self.path = temporary.keep();
        }
    }
}
