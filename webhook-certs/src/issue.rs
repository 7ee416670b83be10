//! Creates keys, CAs and leaves.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};

use crate::Error;
use crate::bundle::Ca;

/// Validity of a CA.
pub(crate) const CA_LIFE: Duration = days(5 * 365);
/// Validity of a leaf, if its CA is valid for as long.
pub(crate) const LEAF_LIFE: Duration = days(90);
/// Time by which validity begins earlier than now, because clocks differ.
pub(crate) const BACKDATED: Duration = Duration::from_secs(60 * 60);

/// A certificate and its key, in PEM.
pub(crate) struct Leaf {
    pub(crate) chain: String,
    pub(crate) key: String,
}

/// Creates a CA, which signs leaves but no further CAs.
pub(crate) fn ca(name: &str, now: SystemTime) -> Result<(Ca, KeyPair), Error> {
    let failed = failed("a CA");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = ca_params(name);
    set_validity(&mut params, now, now + CA_LIFE);
    let certificate = params.self_signed(&key).map_err(failed)?;
    let ca = Ca::parse(&certificate.pem()).expect("a CA of ours parses");
    Ok((ca, key))
}

/// Creates a leaf with a new key. The names must have been checked.
pub(crate) fn leaf(
    name: &str,
    dns_names: &[String],
    (ca, ca_key): (&Ca, &KeyPair),
    now: SystemTime,
) -> Result<Leaf, Error> {
    let failed = failed("a certificate");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = CertificateParams::new(dns_names).map_err(failed)?;
    params.distinguished_name = common_name(name);
    // The authority key identifier distinguishes the CAs of a bundle, which all have the same name.
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params, now, ca.not_after.min(now + LEAF_LIFE));
    let issuer = Issuer::new(ca_params(name), ca_key);
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok(Leaf {
        chain: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Returns a time as certificates count it.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the parameters of a CA of ours. Its serial number is rcgen's default, a digest of the random key.
fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("{name} CA"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params
}

fn common_name(name: &str) -> rcgen::DistinguishedName {
    let mut distinguished = rcgen::DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, end: SystemTime) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970(now - BACKDATED);
    params.not_after = epoch + since_1970(end);
}

fn failed(what: &'static str) -> impl Fn(rcgen::Error) -> Error + Copy {
    move |source| Error::Issue {
        what,
        source: source.into(),
    }
}

pub(crate) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}
