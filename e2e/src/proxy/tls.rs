//! Creates both sides of the proxy's TLS.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Returns an acceptor for 127.0.0.1 with a new certificate, and writes its CA to the file `ca`.
pub(super) fn acceptor(ca: &Path) -> Result<TlsAcceptor> {
    let ca_key = KeyPair::generate()?;
    let ca_params = ca_params();
    let ca_certificate = ca_params.self_signed(&ca_key)?;
    fs::write(ca, ca_certificate.pem()).with_context(|| format!("writing {}", ca.display()))?;
    let key = KeyPair::generate()?;
    let certificate = serving_params()?.signed_by(&key, &Issuer::new(ca_params, ca_key))?;

    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns a connector to servers that prove themselves by one of the CAs in `ca_pem`.
pub(super) fn connector(ca_pem: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots
            .add(ca.context("parsing the CA of the apiserver")?)
            .context("adding the CA of the apiserver")?;
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "pod-reloader e2e fault proxy CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn serving_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "fault proxy");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

const HTTP_1_1: &[u8] = b"http/1.1";
