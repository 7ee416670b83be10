//! When a certificate expires that somebody else uses.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Returns when the first certificate of a PEM chain expires. `None` if one of them does not parse, or there is
/// none.
pub fn first_expiry(cert_chain: &[u8]) -> Option<SystemTime> {
    let expiry = |certificate: Result<CertificateDer<'_>, _>| {
        let certificate = Certificate::from_der(&certificate.ok()?).ok()?;
        let validity = certificate.tbs_certificate().validity();
        Some(validity.not_after.to_system_time())
    };
    let chain = CertificateDer::pem_slice_iter(cert_chain);
    let expiries: Option<Vec<_>> = chain.map(expiry).collect();
    expiries?.into_iter().min()
}
