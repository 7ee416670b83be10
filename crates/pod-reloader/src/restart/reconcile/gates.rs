//! Gates: what users have put in the way of a restart.

use std::time::Duration;

use jiff::{Timestamp, Zoned};
use pod_reloader_core::decision::present_value;
use pod_reloader_core::digest::{ConfigObject, Presence};
use pod_reloader_core::gate::{self, Closed};
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::debug;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::certificates::{Certificate, Loaded};
use crate::restart::digests::Snapshot;

/// The time after which a workload looks at the clock again while its restart window is closed. Somebody may
/// set the clock, or suspend the machine.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(600);
/// The key of a Secret that holds certificates.
const CERTIFICATES: &str = "tls.crt";
/// The maximum number of Secrets of one workload whose certificates are looked at.
const MAX_SECRETS: usize = 16;

impl Reconciler {
    /// Returns what to do with a workload that users keep from getting `config_hash`, and reports that.
    pub(super) fn gated(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        config_hash: &str,
    ) -> Option<Action> {
        let now = (self.settings.clock)();
        let gates = workload.gates.as_deref();
        let closed = gate::closed(gates, &snapshot.objects, config_hash, now)?;
        let action = if let Closed::Until(opens) = &closed {
            if self.expires_before(workload, snapshot, opens).is_some() {
                return None;
            }
            // It opens by itself, so others of its stages wait for it.
            self.worker
                .push_all(self.stages.stops_waiting(&workload.id));
            let wait = opens.timestamp().duration_since(now).unsigned_abs();
            Action::RequeueAt(Instant::now() + wait.min(LOOK_AT_CLOCK))
        } else {
            self.is_held_up(workload);
            Action::AwaitChange
        };
        self.progress.report(workload, Notice::Gated(closed));
        Some(action)
    }

    /// Reports that a workload whose other gates are open is about to be restarted although its restart window
    /// is closed, if it is.
    pub(super) fn report_outside_window(&self, workload: &Workload, snapshot: &Snapshot) {
        let gates = workload.gates.as_deref();
        let windows = gates.and_then(|gates| gates.windows.as_ref()?.as_ref());
        let opens = windows.and_then(|windows| windows.next_opening((self.settings.clock)()));
        if let Some(opens) = opens
            && let Some(expires) = self.expires_before(workload, snapshot, &opens)
        {
            let notice = Notice::OutsideWindow(expires, opens);
            self.progress.report(workload, notice);
        }
    }

    /// Returns when a certificate expires that the pods have loaded and that a restart replaces, if that is
    /// before their restart window opens.
    fn expires_before(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        opens: &Zoned,
    ) -> Option<Timestamp> {
        let (id, config_hash) = (&workload.id, present_value(workload)?);
        let objects = &snapshot.objects;
        let expires = self.memories.with(id, |memory| {
            memory.certificates.first_expiry(config_hash, objects)
        })?;
        (expires < opens.timestamp()).then_some(expires)
    }

    /// Notes when the certificates expire that the pods of a workload with the right hash have loaded, if it
    /// is restarted only at certain times. Returns false if that could not be found out.
    pub(super) async fn has_loaded(&self, workload: &Workload, snapshot: &Snapshot) -> bool {
        let gates = workload.gates.as_deref();
        let has_windows = gates.is_some_and(|it| it.windows.is_some());
        let Some(config_hash) = present_value(workload).filter(|_| has_windows) else {
            return true;
        };
        let id = &workload.id;
        let are_known = self
            .memories
            .with(id, |memory| memory.certificates.are_known(config_hash));
        if are_known {
            return true;
        }
        let mut certificates = Vec::new();
        for (secret, object) in secrets_with_certificates(workload, snapshot).take(MAX_SECRETS) {
            match self.digests.source().certificate_expiry(secret).await {
                Ok(Some((version, expires))) if *version == *object.resource_version => {
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
        if self.workloads.get(&workload.id).is_some() {
            let config_hash = config_hash.into();
            let loaded = Loaded {
                config_hash,
                certificates,
            };
            self.memories
                .with(id, |memory| memory.certificates.load(loaded));
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
