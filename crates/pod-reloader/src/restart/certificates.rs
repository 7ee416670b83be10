//! Certificates: finds out when those expire that pods have loaded, because a restart may not wait for a window that
//! long.
//!
//! Its rule is `pod_reloader_core::certificates`, which the gates ask.

use std::sync::Arc;

use pod_reloader_core::certificates::{Certificate, Loaded};
use pod_reloader_core::decision::present_value;
use pod_reloader_core::digest::{ConfigObject, Presence};
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::Workload;
use tracing::debug;

use crate::restart::digests::{Digests, Snapshot};
use crate::restart::parts::Parts;

/// The key of a Secret that holds certificates.
const CERTIFICATES: &str = "tls.crt";
/// The maximum number of Secrets of one workload whose certificates are looked at.
const MAX_SECRETS: usize = 16;

/// Finds that out when the config hash is right: later, nobody knows what the pods have loaded.
pub(crate) struct LoadedCertificates {
    parts: Arc<Parts>,
    digests: Arc<Digests>,
}

impl LoadedCertificates {
    pub(crate) fn new(parts: &Arc<Parts>, digests: &Arc<Digests>) -> Self {
        Self {
            parts: parts.clone(),
            digests: digests.clone(),
        }
    }

    /// Notes when the certificates expire that the pods of a workload with the right hash have loaded, if it
    /// is restarted only at certain times. Returns false if that could not be found out.
    pub(crate) async fn note(&self, workload: &Workload, snapshot: &Snapshot) -> bool {
        let gates = workload.rare().gates.as_deref();
        let has_windows = gates.is_some_and(|it| it.windows.is_some());
        let Some(config_hash) = present_value(workload).filter(|_| has_windows) else {
            return true;
        };
        let id = &*workload.id;
        let memories = &self.parts.progress.memories;
        let are_known = memories.with(id, |memory| {
            let loaded = memory.certificates.as_ref();
            loaded.is_some_and(|loaded| loaded.is_of(config_hash))
        });
        if are_known {
            return true;
        }
        let mut certificates = Vec::new();
        for (secret, object) in secrets_with_certificates(workload, snapshot).take(MAX_SECRETS) {
            match self.digests.source().certificate_expiry(secret).await {
                Ok(Some((version, expires))) if *version == *object.resource_version() => {
                    certificates.extend(expires.map(|expires| Certificate {
                        secret: secret.clone(),
                        digest: object.digest,
                        expires,
                    }));
                }
                // It has changed since, so what the pods have loaded is not there any more.
                Ok(_) => {}
                Err(error) => {
                    debug!(workload = %workload.id, %secret.name, %error, "cannot read the certificates of a workload");
                    return false;
                }
            }
        }
        // It may have been deleted in the meantime.
        if self.parts.workloads.get(&workload.id).is_some() {
            let config_hash = config_hash.into();
            let loaded = Loaded {
                config_hash,
                certificates,
            };
            memories.with(id, |memory| memory.certificates = Some(Box::new(loaded)));
        }
        true
    }
}

/// Returns the Secrets whose certificates a workload tracks.
fn secrets_with_certificates<'a>(
    workload: &'a Workload,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a Reference, &'a ConfigObject)> {
    snapshot
        .objects
        .iter()
        .filter_map(|(reference, presence)| match presence {
            Presence::Present(object) if reference.kind == ConfigKind::Secret => {
                let extent = workload.references.extent(reference)?;
                extent.includes(CERTIFICATES).then_some((reference, object))
            }
            Presence::Present(_) | Presence::Absent => None,
        })
}
