//! Writes kubeconfig files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

/// The content of a kubeconfig file: one server, one user.
#[derive(Clone, Debug)]
pub struct KubeconfigFile {
    /// The URL of the apiserver, or of a proxy in front of it.
    pub server: String,
    /// File with the CA that `server` must prove itself by.
    pub certificate_authority: PathBuf,
    /// The bearer token.
    pub token: String,
}

impl KubeconfigFile {
    /// Writes the file to `path` as JSON, which every reader of kubeconfigs accepts, since JSON is YAML.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write(path, &self.content().to_string())
    }

    /// Writes the kubeconfig to `path`, and the token to a file of its own, which clients read again and
    /// again, as in a pod.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_with_token_file(&self, path: &Path, token_file: &Path) -> Result<()> {
        write(token_file, &self.token)?;
        let user = json!({ "tokenFile": token_file });
        write(path, &self.content_for(&user).to_string())
    }

    fn content(&self) -> Value {
        self.content_for(&json!({ "token": self.token }))
    }

    fn content_for(&self, user: &Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": NAME,
                "cluster": { "server": self.server, "certificate-authority": self.certificate_authority },
            }],
            "users": [{ "name": NAME, "user": user }],
            "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME } }],
            "current-context": NAME,
        })
    }

    /// Returns a client that never repeats a request, so that a test sees what happens.
    ///
    /// # Errors
    /// When the CA file cannot be read.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.content())?;
        client(kubeconfig).await
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

/// Returns a client for a kubeconfig file, like [`KubeconfigFile::client`].
pub(crate) async fn client_from(path: &Path) -> Result<Client> {
    client(Kubeconfig::read_from(path)?).await
}

/// Returns a client for a kubeconfig file, like [`client_from`], that acts as another user.
pub(crate) async fn client_as(path: &Path, user: &str) -> Result<Client> {
    let mut kubeconfig = Kubeconfig::read_from(path)?;
    for own in &mut kubeconfig.auth_infos {
        let own = own.auth_info.get_or_insert_default();
        own.impersonate = Some(user.to_owned());
    }
    client(kubeconfig).await
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

const NAME: &str = "e2e";
