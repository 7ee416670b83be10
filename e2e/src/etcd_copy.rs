//! Copies etcd's data, and swaps the copy in later, as a restore from a backup does.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::components::Component;
use crate::control_plane::ControlPlane;

/// The data of etcd at some point in time.
#[derive(Debug)]
pub struct EtcdCopy(TempDir);

/// The processes that keep running while etcd is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    /// The apiserver keeps running, against all advice. Its caches still hold what is now the future.
    UnderApiserver,
    /// Nothing that uses etcd keeps running: the apiserver stops before the restore and starts after it.
    WithApiserver,
}

impl EtcdCopy {
    /// Copies the data while etcd is paused. The copy is consistent, like the disk of a machine that lost
    /// power.
    ///
    /// # Errors
    /// When the control plane was joined, not started, or the data cannot be copied.
    pub fn take(control_plane: &ControlPlane) -> Result<Self> {
        let copy = TempDir::with_prefix("pod-reloader-etcd-")?;
        let etcd = control_plane.process(Component::Etcd)?;
        etcd.pause()?;
        let copied = copy_directory(&control_plane.etcd_data_dir(), copy.path());
        etcd.resume()?;
        copied.map(|()| Self(copy))
    }

    /// Replaces the data of etcd by the copy, and waits until etcd and the apiserver are ready. All
    /// resourceVersions go back.
    ///
    /// # Errors
    /// When the data cannot be copied, or one of the two does not come back.
    pub async fn restore(&self, control_plane: &ControlPlane, restore: Restore) -> Result<()> {
        let etcd = control_plane.process(Component::Etcd)?;
        let apiserver = control_plane.process(Component::Apiserver)?;
        if restore == Restore::WithApiserver {
            apiserver.kill().await;
        }
        etcd.kill().await;
        let data = control_plane.etcd_data_dir();
        fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        copy_directory(self.0.path(), &data)?;
        etcd.start_again()?;
        control_plane.ready(Component::Etcd).await?;
        if restore == Restore::WithApiserver {
            apiserver.start_again()?;
        }
        control_plane.ready(Component::Apiserver).await
    }
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    let context = || format!("copying {} to {}", from.display(), to.display());
    fs::create_dir_all(to).with_context(context)?;
    for entry in fs::read_dir(from).with_context(context)? {
        let entry = entry.with_context(context)?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(context)?;
        }
    }
    Ok(())
}
