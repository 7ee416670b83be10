//! A Git repository that GitOps tools read from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tool::Tool;

/// A repository with the branch [`BRANCH`], in a directory of its own. Each application has a folder in it.
#[derive(Debug)]
pub struct Repository {
    directory: PathBuf,
    git: Tool,
}

impl Repository {
    /// Creates an empty repository in a directory that does not exist yet.
    ///
    /// # Errors
    /// When git is missing, or the directory cannot be written.
    pub async fn create(directory: PathBuf) -> Result<Self> {
        fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let none = directory.join("no-kubeconfig");
        let git = Tool::new("git".into(), none, directory.clone());
        let repository = Self { directory, git };
        let branch = format!("--initial-branch={BRANCH}");
        repository.git(&["init", "--quiet", &branch]).await?;
        Ok(repository)
    }

    /// Returns its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Replaces what is in the folder of an application by one file for each manifest. Nobody sees that before the next
    /// commit.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, application: &str, manifests: &[Value]) -> Result<()> {
        let folder = self.directory.join(application);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        for manifest in manifests {
            let part = |value: &Value| value.as_str().map(str::to_lowercase);
            let kind = part(&manifest["kind"]).context("no kind")?;
            let name = part(&manifest["metadata"]["name"]).context("no name")?;
            // JSON is YAML, and kustomize takes only files of that name.
            fs::write(
                folder.join(format!("{kind}-{name}.yaml")),
                manifest.to_string(),
            )?;
        }
        Ok(())
    }

    /// Commits everything that was written, also if that is nothing, and returns the name of the commit.
    ///
    /// # Errors
    /// When git fails.
    pub async fn commit(&self) -> Result<String> {
        self.git(&["add", "--all"]).await?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message=Change"])
            .await?;
        let commit = self.git(&["rev-parse", "HEAD"]).await?;
        Ok(commit.trim().to_owned())
    }

    async fn git(&self, args: &[&str]) -> Result<String> {
        let directory = self.directory.display().to_string();
        let common = [
            "-C",
            &directory,
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.com",
            "-c",
            "commit.gpgsign=false",
        ];
        self.git.run(&[&common[..], args].concat()).await
    }
}

/// The branch that is committed to.
pub const BRANCH: &str = "main";
