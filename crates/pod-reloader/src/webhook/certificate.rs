//! Keeps the webhook's serving certificate, and the CAs of its clients, in line with the files on disk.

use std::path::PathBuf;
use std::time::Duration;

use tracing::info;
use webhook_certs::{CertificateDirectory, ClientAuthorities, CurrentCertificate, Reload};

use crate::metrics::Metrics;
use crate::runtime::complaint::Complaint;

/// The time between two checks for a new certificate.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// The time between two checks while there is no certificate.
pub(crate) const MISSING_INTERVAL: Duration = Duration::from_secs(1);

/// Serves the certificate in `directory`, and follows its changes for ever.
pub(crate) async fn reload(
    directory: CertificateDirectory,
    certificate: CurrentCertificate,
    metrics: Metrics,
) {
    let mut complaint = Complaint::default();
    loop {
        match certificate.reload(&directory) {
            Ok(outcome) => {
                complaint.settled();
                announce(outcome, &certificate, &metrics);
            }
            Err(error) => complaint.warn(
                &error,
                "cannot take the serving certificate, keeping the last good one",
            ),
        }
        let is_missing = certificate.current().is_none();
        tokio::time::sleep(if is_missing {
            MISSING_INTERVAL
        } else {
            INTERVAL
        })
        .await;
    }
}

/// Accepts clients with certificates of the CAs in `file`, and follows its changes for ever.
pub(crate) async fn reload_client_authorities(file: PathBuf, authorities: ClientAuthorities) {
    let mut complaint = Complaint::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        match authorities.reload(&file) {
            Ok(changed) => {
                complaint.settled();
                if changed {
                    info!("the CAs of clients have changed");
                }
            }
            Err(error) => complaint.warn(
                &error,
                "cannot take the CAs of clients, keeping the last good ones",
            ),
        }
    }
}

/// Reports a newly used certificate in the log and the metrics.
pub(crate) fn announce(outcome: Reload, certificate: &CurrentCertificate, metrics: &Metrics) {
    if let Reload::Replaced { not_after } = outcome {
        info!(
            serial = certificate.current().map(|now| now.serial().to_owned()),
            "serving a new certificate"
        );
        metrics.certificate_not_after(not_after);
    }
}

#[cfg(test)]
mod tests;
