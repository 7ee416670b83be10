//! The operator's replicas in a scene, one or many.

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};

use super::{Options, Scene};
use crate::{
    balancer::Balancer,
    control_plane::ControlPlane,
    installation::Installation,
    kubeconfig::KubeconfigFile,
    operator::Operator,
    proxy::Proxy,
    wait::{Attempt, PATIENCE, wait_for},
};

/// A replica of the operator of a [`Scene`]. Clones are the same replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Process of the replica.
    pub operator: Operator,
    /// Proxy between it and the apiserver, if [`Options::proxied`] or [`Options::selection`] asks for it.
    pub proxy: Option<Proxy>,
    /// Port of its webhook.
    pub port: u16,
}

/// All replicas of a scene, and the balancer in front of them.
pub(super) struct Replicas {
    all: Mutex<Vec<Replica>>,
    balancer: Option<Balancer>,
}

impl Replicas {
    /// Starts the replicas that `options` ask for, and also returns the first one. They need not be ready
    /// yet.
    pub(super) async fn start(
        control_plane: &ControlPlane,
        installation: &Installation,
        directory: &Path,
        options: &Options,
    ) -> Result<(Self, Replica)> {
        if options.replicas == 0 {
            let only = Replica::start(control_plane, installation, directory, options).await?;
            let replicas = Self {
                all: Mutex::new(vec![only.clone()]),
                balancer: None,
            };
            return Ok((replicas, only));
        }
        let replicas = Self {
            all: Mutex::default(),
            balancer: Some(Balancer::start(installation.port).await?),
        };
        for _ in 0..options.replicas {
            replicas
                .add(control_plane, installation, directory, options)
                .await?;
        }
        let first = replicas.all().first().cloned();
        Ok((replicas, first.context("one was added")?))
    }

    async fn add(
        &self,
        control_plane: &ControlPlane,
        installation: &Installation,
        directory: &Path,
        options: &Options,
    ) -> Result<Replica> {
        let balancer = self.balancer.as_ref();
        let balancer = balancer.context("the scene was set without replicas")?;
        let installation = installation.another_replica()?;
        let directory = directory.join(format!("replica-{}", installation.port));
        let mut options = options.clone();
        options.args.insert(0, "--leader-elect".to_owned());
        let replica = Replica::start(control_plane, &installation, &directory, &options).await?;
        balancer.add(&replica.operator, replica.port);
        self.all().push(replica.clone());
        Ok(replica)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replica {
    pub(super) async fn start(
        control_plane: &ControlPlane,
        installation: &Installation,
        directory: &Path,
        options: &Options,
    ) -> Result<Self> {
        let proxy = match options.has_proxies() {
            true => Some(Proxy::start_with(control_plane, options.selection.clone()).await?),
            false => None,
        };
        let kubeconfig = kubeconfig(control_plane, installation, proxy.as_ref()).await?;
        Ok(Self {
            operator: Operator::start(installation, &kubeconfig, directory, &options.args)?,
            proxy,
            port: installation.port,
        })
    }

    /// Returns the proxy between the replica and the apiserver.
    ///
    /// # Errors
    /// When neither [`Options::proxied`] nor [`Options::selection`] asked for it.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy.as_ref().context("the scene has no proxies")
    }
}

impl Scene {
    /// Returns all replicas, including those that do not run now.
    pub fn replicas(&self) -> Vec<Replica> {
        self.replicas.all().clone()
    }

    /// Returns the balancer, which passes calls of the webhook on to the replicas.
    ///
    /// # Errors
    /// When [`Options::replicas`] did not ask for any.
    pub fn balancer(&self) -> Result<&Balancer> {
        let balancer = self.replicas.balancer.as_ref();
        balancer.context("the scene was set without replicas")
    }

    /// Starts one more replica, and waits until it is ready.
    ///
    /// # Errors
    /// When [`Scene::balancer`] fails, or the replica does not become ready.
    pub async fn add_replica(&self) -> Result<Replica> {
        let directory = self.directory.path();
        let replica = self
            .replicas
            .add(
                &self.control_plane,
                &self.installation,
                directory,
                &self.options,
            )
            .await?;
        replica.operator.ready().await?;
        Ok(replica)
    }

    /// Forgets a replica that has been stopped for good.
    pub fn forget(&self, replica: &Replica) {
        self.replicas
            .all()
            .retain(|known| known.port != replica.port);
    }

    /// Waits until exactly one replica leads.
    ///
    /// # Errors
    /// When that takes longer than [`PATIENCE`].
    pub async fn leader(&self) -> Result<Replica> {
        wait_for("one replica to lead", PATIENCE, async || {
            let mut leading = Vec::new();
            for replica in self.replicas() {
                if replica.operator.is_leading().await {
                    leading.push(replica);
                }
            }
            Ok(match leading.as_slice() {
                [leader] => Attempt::Done(leader.clone()),
                _ => Attempt::NotYet(format!("{} lead", leading.len())),
            })
        })
        .await
    }

    /// Returns the replicas that do not lead, as soon as one does.
    ///
    /// # Errors
    /// Same as [`Scene::leader`].
    pub async fn followers(&self) -> Result<Vec<Replica>> {
        let leader = self.leader().await?;
        let mut replicas = self.replicas();
        replicas.retain(|replica| replica.port != leader.port);
        Ok(replicas)
    }
}

/// Returns the kubeconfig by which a replica of `installation` reaches the apiserver.
pub(super) async fn kubeconfig(
    control_plane: &ControlPlane,
    installation: &Installation,
    proxy: Option<&Proxy>,
) -> Result<KubeconfigFile> {
    let token = control_plane
        .service_account_token(&installation.namespace, installation.service_account())
        .await?;
    Ok(match proxy {
        Some(proxy) => proxy.kubeconfig_for(token),
        None => control_plane.kubeconfig_for(token),
    })
}
