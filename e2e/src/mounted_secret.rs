//! Mounts a Secret as a kubelet does: a symlink is swapped when the Secret changes.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    pin::pin,
};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher::watch_object};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::wait::{Attempt, PATIENCE, wait_for};

/// A Secret in a directory, kept up to date until it is dropped. A kubelet takes a minute for that; tests do not wait that
/// long.
#[derive(Debug)]
pub(crate) struct MountedSecret {
    path: PathBuf,
    refresh: JoinHandle<()>,
}

impl MountedSecret {
    /// Waits for the Secret, as a pod that mounts it does, and mounts it at `path`.
    ///
    /// # Errors
    /// When the Secret does not arrive within a minute, or a file cannot be written.
    pub(crate) async fn mount(
        client: Client,
        namespace: &str,
        name: &str,
        path: PathBuf,
    ) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let what = format!("the Secret {namespace}/{name}, which a pod mounts");
        let secret = wait_for(&what, PATIENCE, async || {
            Ok(match secrets.get_opt(name).await? {
                Some(secret) => Attempt::Done(secret),
                None => Attempt::NotYet("it is not there".to_owned()),
            })
        })
        .await?;
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut mounted = write(&path, &secret)?;
        let (name, directory) = (name.to_owned(), path.clone());
        let refresh = tokio::spawn(async move {
            let mut changes = pin!(watch_object(secrets, &name).default_backoff());
            while let Some(change) = changes.next().await {
                // The Secret is gone or unreadable: a kubelet leaves what it has mounted.
                let Ok(Some(secret)) = change else {
                    continue;
                };
                if version(&secret) != mounted {
                    mounted = write(&directory, &secret).expect("the directory can be written to");
                }
            }
        });
        Ok(Self { path, refresh })
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MountedSecret {
    fn drop(&mut self) {
        self.refresh.abort();
    }
}

/// Writes a new directory, and renames a new symlink over the old one. Returns the Secret's version.
fn write(path: &Path, secret: &Secret) -> Result<String> {
    let version = version(secret);
    let directory = format!("..{version}");
    fs::create_dir_all(path.join(&directory))?;
    for (name, content) in secret.data.iter().flatten() {
        fs::write(path.join(&directory).join(name), &content.0)?;
        let link = path.join(name);
        if !link.is_symlink() {
            symlink(Path::new("..data").join(name), link)?;
        }
    }
    let new = path.join("..data_tmp");
    symlink(&directory, &new)?;
    fs::rename(new, path.join("..data"))?;
    Ok(version)
}

fn version(secret: &Secret) -> String {
    secret.metadata.resource_version.clone().unwrap_or_default()
}
