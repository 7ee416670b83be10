//! Creates the keys, certificates and tokens by which the parts of a control plane know each other.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::components::{KUBERNETES_SERVICE, RealNode};

/// The credential files of one control plane.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// CA of the serving certificate.
    pub(crate) ca: PathBuf,
    /// Serving certificate of apiserver, controller-manager and scheduler.
    pub(crate) serving_certificate: PathBuf,
    pub(crate) serving_key: PathBuf,
    /// Certificate by which kubelets know the apiserver.
    pub(crate) kubelet_client_certificate: PathBuf,
    pub(crate) kubelet_client_key: PathBuf,
    /// Key that signs the tokens of service accounts.
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public_key: PathBuf,
    /// List of [`User::ALL`], for `--token-auth-file`.
    pub(crate) tokens: PathBuf,
    user_tokens: Vec<(User, String)>,
}

impl Credentials {
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let ca_params = ca_params()?;
        let ca_certificate = ca_params.self_signed(&ca_key)?;
        let ca = Issuer::new(ca_params, ca_key);
        let serving_key = KeyPair::generate()?;
        let serving_certificate = serving_params()?.signed_by(&serving_key, &ca)?;
        let kubelet_client_key = KeyPair::generate()?;
        let kubelet_client_certificate =
            kubelet_client_params().signed_by(&kubelet_client_key, &ca)?;
        let service_account_key = KeyPair::generate()?;
        let user_tokens = User::ALL
            .into_iter()
            .map(|user| Ok((user, random_hex()?)))
            .collect::<Result<Vec<_>>>()?;

        let write = |name: &str, content: String| {
            let path = directory.join(name);
            fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
            anyhow::Ok(path)
        };
        Ok(Self {
            ca: write("ca.crt", ca_certificate.pem())?,
            serving_certificate: write("serving.crt", serving_certificate.pem())?,
            serving_key: write("serving.key", serving_key.serialize_pem())?,
            kubelet_client_certificate: write(
                "kubelet-client.crt",
                kubelet_client_certificate.pem(),
            )?,
            kubelet_client_key: write("kubelet-client.key", kubelet_client_key.serialize_pem())?,
            service_account_key: write("service-account.key", service_account_key.serialize_pem())?,
            service_account_public_key: write(
                "service-account.pub",
                service_account_key.public_key_pem(),
            )?,
            tokens: write("tokens.csv", tokens_file(&user_tokens))?,
            user_tokens,
        })
    }

    pub(crate) fn token(&self, user: User) -> &str {
        self.user_tokens
            .iter()
            .find_map(|(of, token)| (*of == user).then_some(token))
            .expect("there is a token for each of User::ALL")
    }
}

/// The users who have a token from the start. All are in `system:masters`, except those of a real node, which have
/// the rights that they have everywhere. The controller-manager runs without service accounts of its own, so that
/// the audit log tells it from operators, and therefore needs the rights of all its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Admin,
    ControllerManager,
    Scheduler,
    Kwok,
    CertManager,
    Kubelet,
    KubeProxy,
}

impl User {
    pub(crate) const ALL: [Self; 7] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::CertManager,
        Self::Kubelet,
        Self::KubeProxy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kwok => "kwok",
            Self::CertManager => "cert-manager",
            // The Node authorizer knows a kubelet by this name, which ends with that of its node.
            Self::Kubelet => "system:node:real",
            Self::KubeProxy => "system:kube-proxy",
        }
    }

    /// Returns the group of the user, if any.
    fn group(self) -> Option<&'static str> {
        match self {
            Self::Kubelet => Some("system:nodes"),
            // Kubernetes binds a role to this name.
            Self::KubeProxy => None,
            _ => Some("system:masters"),
        }
    }
}

/// Returns 32 hexadecimal digits that nobody can guess.
pub(crate) fn random_hex() -> Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn ca_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "pod-reloader e2e CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn serving_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(SERVING_NAMES.map(str::to_owned))?;
    params
        .distinguished_name
        .push(DnType::CommonName, "control plane");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn kubelet_client_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver-kubelet-client");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn tokens_file(tokens: &[(User, String)]) -> String {
    tokens
        .iter()
        .map(|(user, token)| {
            let name = user.name();
            let group = user.group().map(|group| format!(",{group}"));
            format!("{token},{name},{name}{}\n", group.unwrap_or_default())
        })
        .collect()
}

const SERVING_NAMES: [&str; 7] = [
    "127.0.0.1",
    RealNode::ADDRESS,
    KUBERNETES_SERVICE,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];
