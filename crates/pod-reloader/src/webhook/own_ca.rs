//! Manages a CA and a certificate of our own: in a Secret, in the webhook configuration, and in use.

mod error;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch};
use kube::{Api, Client};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info};
use webhook_certs::{Authority, Change, CurrentCertificate, Distrust, Next, Publication, Stored};

use self::error::AuthorityError;
use crate::metrics::Metrics;
use crate::runtime::client::{DEADLINE, patch_params, post_params, within};
use crate::runtime::complaint::Complaint;
use crate::runtime::error::CallError;
use crate::webhook::certificate;

/// The objects in which the CA is stored, and those it is for.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The operator's own namespace.
    pub(crate) namespace: Name,
    /// The Secret in that namespace that holds the CA and the certificate.
    pub(crate) secret: Name,
    /// The Service in that namespace that the certificate is for.
    pub(crate) service: Name,
    /// The MutatingWebhookConfiguration that must trust the CA.
    pub(crate) configuration: Name,
}

/// One replica's part in managing the CA. Every replica does the same, and all agree on the Secret.
pub(crate) struct OwnAuthority {
    authority: Authority,
    secrets: Api<Secret>,
    secret: Reference,
    configurations: Api<MutatingWebhookConfiguration>,
    configuration: Name,
    certificate: CurrentCertificate,
    is_trusted: Arc<AtomicBool>,
    metrics: Metrics,
    publication: Publication,
    distrust: Distrust,
    /// The last bundle that the Secret held, in case somebody deletes the Secret.
    last_bundle: Vec<u8>,
}

impl OwnAuthority {
    /// Returns a manager that puts certificates in use through `certificate`. It sets `is_trusted` once it
    /// has seen the CAs in the webhook configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of the Service does not make a DNS name.
    pub(crate) fn new(
        client: &Client,
        places: &Places,
        certificate: CurrentCertificate,
        is_trusted: Arc<AtomicBool>,
        metrics: Metrics,
    ) -> Result<Self, webhook_certs::Error> {
        let names = dns_names(&places.service, &places.namespace);
        let authority = Authority::new(COMMON_NAME, names)?;
        Ok(Self {
            authority,
            secrets: Api::namespaced(client.clone(), places.namespace.as_str()),
            secret: Reference {
                kind: ConfigKind::Secret,
                namespace: places.namespace.clone(),
                name: places.secret.clone(),
            },
            configurations: Api::all(client.clone()),
            configuration: places.configuration.clone(),
            certificate,
            is_trusted,
            metrics,
            publication: Publication::default(),
            distrust: Distrust::default(),
            last_bundle: vec![],
        })
    }

    /// Manages the CA, for ever.
    pub(crate) async fn keep(mut self) {
        let mut complaint = Complaint::default();
        loop {
            match self.check_undisturbed().await {
                Ok(()) => complaint.settled(),
                Err(error) => complaint.warn(
                    &error,
                    "cannot manage the webhook's CA and certificate, trying again",
                ),
            }
            tokio::time::sleep(if self.is_trusted.load(Ordering::Relaxed) {
                certificate::INTERVAL
            } else {
                certificate::MISSING_INTERVAL
            })
            .await;
        }
    }

    /// Makes a pass, and repeats it at once if another replica interfered.
    async fn check_undisturbed(&mut self) -> Result<(), AuthorityError> {
        for _ in 1..ATTEMPTS {
            match self.check().await {
                Err(error) if error.is_race() => debug!("another replica was faster"),
                checked => return checked,
            }
        }
        self.check().await
    }

    /// Brings the Secret, the certificate in use and the webhook configuration in line.
    ///
    /// Any bundle in the configuration was in the Secret before. The Secret is read after the
    /// configuration, so it is at least as new. The configuration is patched only if nobody has written it
    /// since it was read. So no replica ever moves it back to an older bundle.
    async fn check(&mut self) -> Result<(), AuthorityError> {
        let configuration = self.read_configuration().await;
        let secret = self.read_secret().await?;
        let present = secret.as_ref().map(stored).unwrap_or_default();
        match &configuration {
            Ok(configuration) if outdated(configuration, &present.ca_bundle).is_empty() => {
                self.saw_published(&present.ca_bundle);
            }
            _ => self.publication.lost(),
        }

        let mut trusted = configuration.as_ref().map(bundles).unwrap_or_default();
        trusted.extend_from_slice(&self.last_bundle);
        let is_published = self.is_published(&present);
        let next = self
            .authority
            .next(&present, &trusted, SystemTime::now(), is_published)
            .map_err(|source| AuthorityError::Issue { source })?;
        let stored = match next {
            Next::Keep => present,
            Next::Write { stored, change } => {
                let written = self.write_secret(secret.as_ref(), &stored).await;
                if written.as_ref().is_err_and(|error| !error.is_race()) {
                    // A certificate that we are not allowed to renew may still be good for a long time.
                    drop(self.put_in_force(&present));
                }
                written?;
                info!(secret = %self.secret, "{}", announcement(change));
                stored
            }
        };
        self.last_bundle.clone_from(&stored.ca_bundle);
        self.put_in_force(&stored)?;
        self.publish(&configuration?, &stored.ca_bundle).await?;
        self.is_trusted.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn read_configuration(&self) -> Result<MutatingWebhookConfiguration, AuthorityError> {
        within(
            DEADLINE,
            self.configurations.get(self.configuration.as_str()),
        )
        .await
        .map_err(|source| self.configuration_error(source))
    }

    /// Reads the Secret. Returns `None` if it does not exist.
    async fn read_secret(&self) -> Result<Option<Secret>, AuthorityError> {
        within(DEADLINE, self.secrets.get_opt(self.secret.name.as_str()))
            .await
            .map_err(|source| self.secret_error(source))
    }

    /// Creates the Secret, or writes its entries if nobody else has written it since it was read. It may have fields that
    /// our types do not know, so it is never written as a whole.
    async fn write_secret(
        &self,
        present: Option<&Secret>,
        stored: &Stored,
    ) -> Result<(), AuthorityError> {
        let entries = stored.clone().into_entries();
        let entries = entries.map(|(name, bytes)| (name.to_owned(), ByteString(bytes)));
        let entries = BTreeMap::from(entries);
        let written = match present {
            None => {
                let secret = self.new_secret(entries);
                within(DEADLINE, self.secrets.create(&post_params(), &secret)).await
            }
            // With the resourceVersion of the read, the write fails if the Secret has changed.
            Some(secret) => {
                let version = &secret.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version}, "data": entries});
                let (name, patch) = (self.secret.name.as_str(), Patch::Merge(patch));
                within(DEADLINE, self.secrets.patch(name, &patch_params(), &patch)).await
            }
        };
        written
            .map(drop)
            .map_err(|source| self.secret_error(source))
    }

    fn new_secret(&self, entries: BTreeMap<String, ByteString>) -> Secret {
        let label = ("app.kubernetes.io/managed-by", "pod-reloader");
        Secret {
            metadata: ObjectMeta {
                name: Some(self.secret.name.to_string()),
                labels: Some([(label.0.to_owned(), label.1.to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(entries),
            ..Secret::default()
        }
    }

    fn put_in_force(&self, stored: &Stored) -> Result<(), AuthorityError> {
        let leaf = stored
            .serving_certificate()
            .map_err(|source| AuthorityError::Issue { source })?;
        let is_published = self.is_published(stored);
        let outcome = self
            .certificate
            .replace_once_trusted(leaf, is_published, SystemTime::now());
        certificate::announce(outcome, &self.certificate, &self.metrics);
        Ok(())
    }

    /// Writes the bundle to those webhooks of the configuration that have another one. If they all have it, and clients go
    /// on refusing the certificate, it is written once more.
    async fn publish(
        &mut self,
        configuration: &MutatingWebhookConfiguration,
        bundle: &[u8],
    ) -> Result<(), AuthorityError> {
        let outdated = outdated(configuration, bundle);
        let is_refused = outdated.is_empty() && self.is_refused(configuration, bundle);
        let written: Vec<_> = if is_refused {
            let webhooks = webhooks(configuration).enumerate();
            webhooks
                .map(|(index, webhook)| (index, another_form(bundle, ca_bundle(webhook))))
                .collect()
        } else {
            let outdated = outdated.into_iter();
            outdated.map(|index| (index, bundle.to_owned())).collect()
        };
        if written.is_empty() {
            return Ok(());
        }
        let version = &configuration.metadata.resource_version;
        let mut patch =
            vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
        patch.extend(written.into_iter().map(|(index, bundle)| {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            json!({"op": "add", "path": path, "value": ByteString(bundle)})
        }));
        let patch = serde_json::from_value(json!(patch)).expect("it is a JSON Patch");
        let params = patch_params();
        let name = self.configuration.as_str();
        let patch = Patch::Json::<()>(patch);
        within(DEADLINE, self.configurations.patch(name, &params, &patch))
            .await
            .map_err(|source| self.configuration_error(source))?;
        if is_refused {
            info!(configuration = %self.configuration, "wrote the same CAs to the webhook configuration again: clients refuse the certificate");
        } else {
            info!(configuration = %self.configuration, "wrote the CAs to the webhook configuration");
        }
        self.saw_published(bundle);
        Ok(())
    }

    /// Returns true if clients refuse the certificate for longer than it takes them to learn of the bundle.
    fn is_refused(&mut self, configuration: &MutatingWebhookConfiguration, bundle: &[u8]) -> bool {
        let version = configuration.metadata.resource_version.as_deref();
        let (version, refusals) = (version.unwrap_or_default(), self.certificate.refusals());
        let now = Instant::now().into_std();
        self.distrust.lasts(version, bundle, refusals, now)
    }

    fn saw_published(&mut self, bundle: &[u8]) {
        self.publication.saw(bundle, Instant::now().into_std());
    }

    fn is_published(&self, stored: &Stored) -> bool {
        self.publication
            .is_settled(&stored.ca_bundle, Instant::now().into_std())
    }

    fn secret_error(&self, source: CallError) -> AuthorityError {
        let secret = self.secret.clone();
        AuthorityError::Secret { secret, source }
    }

    fn configuration_error(&self, source: CallError) -> AuthorityError {
        let name = self.configuration.clone();
        AuthorityError::WebhookConfiguration { name, source }
    }
}

fn stored(secret: &Secret) -> Stored {
    let data = secret.data.as_ref();
    Stored::from_entries(|name| data?.get(name).map(|bytes| bytes.0.clone()))
}

/// Returns the indices of those webhooks that have another bundle.
fn outdated(configuration: &MutatingWebhookConfiguration, bundle: &[u8]) -> Vec<usize> {
    let webhooks = webhooks(configuration).enumerate();
    webhooks
        .filter(|(_, webhook)| !is_form_of(bundle, ca_bundle(webhook)))
        .map(|(index, _)| index)
        .collect()
}

/// Returns true if this is the bundle as it is, or in its other form.
fn is_form_of(bundle: &[u8], present: &[u8]) -> bool {
    present == bundle || present.strip_suffix(b"\n") == Some(bundle)
}

/// Returns the same bundle in another form than the present one, by an empty line at its end. For a write that changes
/// nothing, the apiserver does not look at the configuration again.
fn another_form(bundle: &[u8], present: &[u8]) -> Vec<u8> {
    let mut form = bundle.to_owned();
    if present == bundle {
        form.push(b'\n');
    }
    form
}

/// Returns the bundles of all webhooks, one after the other.
fn bundles(configuration: &MutatingWebhookConfiguration) -> Vec<u8> {
    webhooks(configuration)
        .flat_map(ca_bundle)
        .copied()
        .collect()
}

fn webhooks(
    configuration: &MutatingWebhookConfiguration,
) -> impl Iterator<Item = &MutatingWebhook> {
    configuration.webhooks.iter().flatten()
}

fn ca_bundle(webhook: &MutatingWebhook) -> &[u8] {
    let bundle = webhook.client_config.ca_bundle.as_ref();
    bundle.map(|bundle| bundle.0.as_slice()).unwrap_or_default()
}

/// Returns the DNS names of the Service. The apiserver uses the first; people and other clients may use the
/// others.
fn dns_names(service: &Name, namespace: &Name) -> Vec<String> {
    let mut names = ["svc", "svc.cluster.local"]
        .map(|domain| format!("{service}.{namespace}.{domain}"))
        .to_vec();
    // A namespace can be a number, but a top-level domain cannot.
    if !namespace.as_str().bytes().all(|byte| byte.is_ascii_digit()) {
        names.push(format!("{service}.{namespace}"));
    }
    names
}

fn announcement(change: Change) -> &'static str {
    match change {
        Change::Everything => "made a CA and a certificate",
        Change::Ca => "made a new CA, the certificate follows when it is trusted",
        Change::Leaf => "made a new certificate",
        Change::Bundle => "took out CAs that are no longer needed",
    }
}

const COMMON_NAME: &str = "pod-reloader";
/// The maximum number of tries. Each lost race means that another replica has made progress, so little is
/// left to disagree on.
const ATTEMPTS: usize = 5;

#[cfg(test)]
mod tests;
