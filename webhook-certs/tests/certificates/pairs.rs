//! Pairs of chain and key: which are accepted, and which are rejected.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use webhook_certs::{Error, ServingCertificate, first_expiry};

use crate::issuing::{NAME, issue, issue_ed25519, issue_with_ca};

fn load(chain: &str, key: &str) -> Result<ServingCertificate, Error> {
    ServingCertificate::from_pem(chain.as_bytes(), key.as_bytes())
}

#[test]
fn a_leaf_with_its_ca_is_accepted_and_the_leaf_is_used() {
    let issued = issue_with_ca(0x1234);
    let certificate = load(&issued.chain, &issued.key).unwrap();
    assert_eq!(certificate.serial(), "12:34");
}

#[test]
fn validity_is_the_leafs() {
    let issued = issue(1);
    let certificate = load(&issued.chain, &issued.key).unwrap();
    let unix = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(certificate.not_before(), unix(1_577_836_800));
    assert_eq!(certificate.not_after(), unix(4_070_908_800));
}

#[test]
fn the_expiry_of_a_chain_is_that_of_the_certificate_that_expires_first() {
    let expiry = |chain: &str| {
        let expiry = first_expiry(chain.as_bytes())?;
        let since = expiry.duration_since(SystemTime::UNIX_EPOCH);
        Some(since.unwrap().as_secs())
    };
    let early = issue(1).chain;
    let late = include_str!("throwaway/test-ec.crt");
    assert_eq!(expiry(&early), Some(4_070_908_800));
    assert!(expiry(late) > expiry(&early));
    assert_eq!(expiry(&format!("{late}{early}")), expiry(&early));
    assert_eq!(expiry(&format!("{early}{late}")), expiry(&early));
    let broken = early.replace("MII", "AAA");
    for none in ["", "no certificate", &broken, &format!("{late}{broken}")] {
        assert_eq!(expiry(none), None, "{none}");
    }
}

#[test]
fn a_certificate_covers_the_names_that_it_lists() {
    let issued = issue(1);
    let certificate = load(&issued.chain, &issued.key).unwrap();
    assert!(certificate.covers(NAME));
    assert!(!certificate.covers("other.default.svc"));
    assert!(!certificate.covers("no name"));
}

#[test]
fn an_ed25519_key_is_taken() {
    let issued = issue_ed25519(1);
    load(&issued.chain, &issued.key).unwrap();
}

#[test]
fn an_rsa_key_is_taken_as_pkcs1() {
    load(
        include_str!("throwaway/test-rsa.crt"),
        include_str!("throwaway/test-rsa-pkcs1.key"),
    )
    .unwrap();
}

#[test]
fn an_rsa_key_is_taken_as_pkcs8() {
    load(
        include_str!("throwaway/test-rsa.crt"),
        include_str!("throwaway/test-rsa-pkcs8.key"),
    )
    .unwrap();
}

#[test]
fn an_ec_key_is_taken_as_sec1_behind_its_parameters() {
    load(
        include_str!("throwaway/test-ec.crt"),
        include_str!("throwaway/test-ec-sec1.key"),
    )
    .unwrap();
}

#[test]
fn a_new_certificate_with_the_old_key_is_rejected() {
    let (old, new) = (issue(1), issue(2));
    assert!(matches!(load(&new.chain, &old.key), Err(Error::Mismatch)));
}

#[test]
fn a_key_of_another_kind_is_rejected() {
    let issued = issue(1);
    let error = load(&issued.chain, include_str!("throwaway/test-rsa-pkcs1.key")).unwrap_err();
    assert!(matches!(error, Error::Mismatch));
}

#[test]
fn a_chain_with_the_ca_before_the_leaf_is_rejected() {
    let issued = issue_with_ca(1);
    let second = issued.chain.rfind("-----BEGIN").unwrap();
    let turned = format!("{}{}", &issued.chain[second..], &issued.chain[..second]);
    assert!(matches!(load(&turned, &issued.key), Err(Error::Mismatch)));
}

#[test]
fn empty_files_are_rejected() {
    let issued = issue(1);
    assert!(matches!(load("", &issued.key), Err(Error::Chain { .. })));
    assert!(matches!(load(&issued.chain, ""), Err(Error::Key { .. })));
}

#[test]
fn garbage_is_rejected() {
    let issued = issue(1);
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(
        load("garbage", &issued.key),
        Err(Error::Chain { .. })
    ));
    assert!(matches!(load(no_der, &issued.key), Err(Error::Leaf { .. })));
    assert!(matches!(
        load(&issued.chain, "garbage"),
        Err(Error::Key { .. })
    ));
    assert!(matches!(
        load(&issued.chain, no_key),
        Err(Error::Key { .. })
    ));
}

#[test]
fn half_a_file_is_rejected_wherever_it_ends() {
    let issued = issue_with_ca(1);
    for end in 0..issued.key.trim_end().len() {
        assert!(
            load(&issued.chain, &issued.key[..end]).is_err(),
            "key cut at {end}"
        );
    }
    let leaf = issued.chain.find("-----END").unwrap();
    for end in 0..leaf {
        assert!(
            load(&issued.chain[..end], &issued.key).is_err(),
            "chain cut at {end}"
        );
    }
}

/// The parser takes a PEM on one line for a header, and quotes headers in its errors.
#[test]
fn no_error_quotes_the_key() {
    let issued = issue(1);
    let one_line = issued.key.replace('\n', "");
    let body = issued.key.lines().nth(1).unwrap();
    let bytes = format!("{:?}", &body.as_bytes()[..8]);
    let bytes = bytes.trim_matches(['[', ']']);
    for error in
        [load(&issued.chain, &one_line), load(&one_line, &issued.key)].map(Result::unwrap_err)
    {
        let mut said = format!("{error} {error:?}");
        let mut cause = error.source();
        while let Some(error) = cause {
            said += &format!(" {error} {error:?}");
            cause = error.source();
        }
        assert!(
            !said.contains(&body[..8]) && !said.contains(bytes),
            "{said}"
        );
    }
}

#[test]
fn debug_shows_nothing_of_the_key() {
    let issued = issue(7);
    let certificate = load(&issued.chain, &issued.key).unwrap();
    let debug = format!("{certificate:?}");
    assert!(
        debug.starts_with("ServingCertificate { serial: \"07\", not_before: "),
        "{debug}"
    );
    assert!(debug.ends_with(", .. }"), "{debug}");
}
