//! Installs an operator: its rights, its Service, its webhook, its certificate.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::{control_plane::ControlPlane, credentials::ca_params, port::free_ports};

/// The traces of one operator in a cluster, under a namespace of its own.
#[derive(Debug)]
pub struct Installation {
    /// Its namespace, after which its webhook configuration and its bindings are named too.
    pub namespace: String,
    /// The port of the webhook on 127.0.0.1.
    pub port: u16,
    certificates: Certificates,
}

/// Which calls the apiserver makes to the webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
    /// The only namespace that it is called for; all of them without it.
    pub only_namespace: Option<String>,
    /// Whether match conditions keep away workloads that are not subscribed, and our own writes.
    pub match_conditions: bool,
}

impl Installation {
    /// Creates the namespace, the service account with its rights, and the Service, and issues a
    /// serving certificate into a directory below `directory`. Nothing calls the webhook yet.
    ///
    /// # Errors
    /// When the apiserver refuses, or a file cannot be written.
    pub async fn create(
        control_plane: &ControlPlane,
        namespace: &str,
        directory: &Path,
    ) -> Result<Self> {
        let manifests =
            include_str!("../manifests/operator.yaml").replace("@NAMESPACE@", namespace);
        control_plane
            .kubectl()
            .run_with_input(&["apply", "--filename=-"], &manifests)
            .await?;
        Ok(Self {
            namespace: namespace.to_owned(),
            port: free_ports().next().context("every port is taken")?,
            certificates: Certificates::issue(namespace, &directory.join("webhook-tls"))?,
        })
    }

    /// The directory with `tls.crt` and `tls.key`, as the kubelet mounts it.
    pub fn tls_directory(&self) -> &Path {
        &self.certificates.directory
    }

    /// The user that the operator is to the apiserver.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{SERVICE_ACCOUNT}", self.namespace)
    }

    /// Replaces the serving certificate the way the kubelet does: a new directory, and a symlink
    /// renamed onto the old one.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn rotate_certificate(&self) -> Result<()> {
        self.certificates.rotate()
    }

    /// The webhook configuration of this operator.
    pub fn webhook_configuration(&self, options: &WebhookOptions) -> Value {
        let mut webhook = json!({
            "name": "pod-reloader.cs.sap.com",
            "clientConfig": {
                "service": {
                    "name": SERVICE,
                    "namespace": self.namespace,
                    "path": "/mutate",
                    "port": self.port,
                },
                "caBundle": ByteString(self.certificates.ca.clone().into_bytes()),
            },
            "rules": [{
                "apiGroups": ["apps"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["deployments", "statefulsets", "daemonsets"],
                "scope": "Namespaced",
            }],
            "failurePolicy": options.failure_policy,
            "reinvocationPolicy": "IfNeeded",
            "sideEffects": "None",
            "timeoutSeconds": 3,
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": self.namespace_selector(options),
        });
        if options.match_conditions {
            webhook["matchConditions"] = json!([
                {"name": "subscribed", "expression": SUBSCRIBED},
                {"name": "not-our-own-write",
                 "expression": format!("request.userInfo.username != '{}'", self.username())},
            ]);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self.namespace},
            "webhooks": [webhook],
        })
    }

    fn namespace_selector(&self, options: &WebhookOptions) -> Value {
        let key = "kubernetes.io/metadata.name";
        let requirement = match &options.only_namespace {
            Some(only) => json!({"key": key, "operator": "In", "values": [only]}),
            None => {
                json!({"key": key, "operator": "NotIn", "values": ["kube-system", self.namespace]})
            }
        };
        json!({"matchExpressions": [requirement]})
    }
}

/// The service account of the operator.
pub const SERVICE_ACCOUNT: &str = "pod-reloader";
const SERVICE: &str = "pod-reloader";

const SUBSCRIBED: &str = "has(object.metadata.annotations) && \
    ('pod-reloader.cs.sap.com/configmaps' in object.metadata.annotations || \
     'pod-reloader.cs.sap.com/secrets' in object.metadata.annotations)";

/// A CA, and what it issued for one Service.
#[derive(Debug)]
struct Certificates {
    directory: PathBuf,
    ca: String,
    issuer: Issuer<'static, KeyPair>,
    server_name: String,
    version: AtomicU32,
}

impl Certificates {
    fn issue(namespace: &str, directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let key = KeyPair::generate()?;
        let params = ca_params()?;
        let ca = params.self_signed(&key)?.pem();
        let certificates = Self {
            directory: directory.to_owned(),
            ca,
            issuer: Issuer::new(params, key),
            server_name: format!("{SERVICE}.{namespace}.svc"),
            version: AtomicU32::new(0),
        };
        certificates.rotate()?;
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), directory.join(file))?;
        }
        Ok(certificates)
    }

    fn rotate(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new([self.server_name.clone()])?;
        params
            .distinguished_name
            .push(DnType::CommonName, self.server_name.clone());
        let certificate = params.signed_by(&key, &self.issuer)?;
        let version = format!("..v{}", self.version.fetch_add(1, Ordering::Relaxed));
        let mounted = self.directory.join(&version);
        fs::create_dir(&mounted)?;
        fs::write(mounted.join("tls.crt"), certificate.pem())?;
        fs::write(mounted.join("tls.key"), key.serialize_pem())?;
        let link = self.directory.join("..data_tmp");
        symlink(&version, &link)?;
        fs::rename(&link, self.directory.join("..data"))?;
        Ok(())
    }
}
