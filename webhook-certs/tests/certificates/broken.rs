//! Secrets that hold anything but a matching CA and certificate.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ECDSA_P384_SHA384, date_time_ymd,
};
use webhook_certs::{Change, Stored};

use crate::authority::{issued, written};
use crate::issuing::NAME;
use crate::trusting::{days, parsed, start, trusts};

/// Asserts that the next content is sound, whatever the present one, and returns it.
fn mended(broken: &Stored) -> (Stored, Change) {
    let (mended, change) = written(broken, start(), false).expect("it is not managed");
    assert!(trusts(&mended.ca_bundle, &mended.chain, start()));
    assert!(
        written(&mended, start(), false).is_none(),
        "it is mended once"
    );
    (mended, change)
}

/// Returns somebody else's CA and leaf, valid now except for the changes by `ca` and `leaf`.
fn foreign(
    key: KeyPair,
    ca: impl FnOnce(&mut CertificateParams),
    leaf: impl FnOnce(&mut CertificateParams),
) -> Stored {
    let mut ca_params = CertificateParams::default();
    ca_params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca_params
        .distinguished_name
        .push(DnType::CommonName, "pod-reloader CA");
    let mut leaf_params =
        CertificateParams::new([NAME.to_owned(), "pod-reloader.default".to_owned()]).unwrap();
    for params in [&mut ca_params, &mut leaf_params] {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2099, 1, 1);
    }
    ca(&mut ca_params);
    leaf(&mut leaf_params);
    let ca_key = key.serialize_pem().into();
    let issuer = CertifiedIssuer::self_signed(ca_params, key).unwrap();
    let key = KeyPair::generate().unwrap();
    Stored {
        ca_bundle: issuer.pem().into(),
        ca_key,
        chain: leaf_params.signed_by(&key, &issuer).unwrap().pem().into(),
        key: key.serialize_pem().into(),
    }
}

fn p_256() -> KeyPair {
    KeyPair::generate().unwrap()
}

#[test]
fn a_foreign_ca_and_leaf_that_are_sound_stay() {
    let sound = foreign(p_256(), |_| {}, |_| {});
    assert!(written(&sound, start(), true).is_none());
}

#[test]
fn without_its_leaf_or_the_leafs_key_the_ca_stays() {
    let sound = issued(start());
    for rubbish in [&b""[..], b"rubbish", &[0xff; 100], &sound.ca_key] {
        for broken in [
            Stored {
                chain: rubbish.into(),
                ..sound.clone()
            },
            Stored {
                key: rubbish.into(),
                ..sound.clone()
            },
        ] {
            let (mended, change) = mended(&broken);
            assert_eq!(change, Change::Leaf);
            assert_eq!(mended.ca_bundle, sound.ca_bundle);
        }
    }
}

#[test]
fn without_the_cas_key_the_leaf_stays_and_its_ca_is_trusted_on() {
    let sound = issued(start());
    let p_384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    for rubbish in [
        b"".to_vec(),
        b"rubbish".to_vec(),
        vec![0xff; 100],
        issued(start()).ca_key,
        sound.key.clone(),
        sound.chain.clone(),
        p_384.serialize_pem().into(),
        include_bytes!("throwaway/test-ec-sec1.key").to_vec(),
        include_bytes!("throwaway/test-rsa-pkcs8.key").to_vec(),
    ] {
        let broken = Stored {
            ca_key: rubbish,
            ..sound.clone()
        };
        let (mended, change) = mended(&broken);
        assert_eq!(change, Change::Ca);
        assert_eq!(mended.chain, sound.chain);
        assert!(mended.ca_bundle.ends_with(&sound.ca_bundle));
    }
}

#[test]
fn without_its_bundle_everything_is_made_anew() {
    let sound = issued(start());
    for rubbish in [
        b"".to_vec(),
        b"rubbish".to_vec(),
        vec![0xff; 100],
        sound.chain.clone(),
    ] {
        let broken = Stored {
            ca_bundle: rubbish,
            ..sound.clone()
        };
        let (mended, change) = mended(&broken);
        assert_eq!(change, Change::Everything);
        assert_eq!(parsed(&mended.ca_bundle).len(), 1);
    }
}

#[test]
fn a_ca_amid_rubbish_is_found_and_the_rubbish_is_removed() {
    let sound = issued(start());
    let rubbish = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n\
        -----BEGIN CERTIFICATE-----\nno end, ";
    let bundle = [
        rubbish.as_bytes(),
        &sound.ca_key,
        &sound.ca_bundle,
        rubbish.as_bytes(),
    ]
    .concat();
    let (mended, change) = mended(&Stored {
        ca_bundle: bundle,
        ..sound.clone()
    });
    assert_eq!(change, Change::Bundle);
    assert_eq!(mended, sound);
}

#[test]
fn a_bundle_whose_newest_ca_has_no_key_gets_a_newer_one() {
    let (sound, other) = (issued(start()), issued(start()));
    let bundle = [other.ca_bundle, sound.ca_bundle.clone()].concat();
    let (mended, change) = mended(&Stored {
        ca_bundle: bundle,
        ..sound.clone()
    });
    assert_eq!(change, Change::Ca);
    assert_eq!(parsed(&mended.ca_bundle).len(), 3);
    assert_eq!(mended.chain, sound.chain);
}

#[test]
fn an_expired_ca_is_removed() {
    let expired = issued(start() - days(5 * 365));
    let (mended, change) = mended(&expired);
    assert_eq!(change, Change::Everything);
    assert_eq!(parsed(&mended.ca_bundle).len(), 1);
}

#[test]
fn a_pair_that_is_not_valid_yet_is_made_anew() {
    let (mended, change) = mended(&issued(start() + days(1)));
    assert_eq!(change, Change::Everything);
    assert_eq!(parsed(&mended.ca_bundle).len(), 2, "it will be valid");
}

#[test]
fn a_leaf_of_another_ca_is_made_anew() {
    let (sound, other) = (issued(start()), issued(start()));
    let (mended, change) = mended(&Stored {
        chain: other.chain,
        key: other.key,
        ..sound.clone()
    });
    assert_eq!(change, Change::Leaf);
    assert_eq!(mended.ca_bundle, sound.ca_bundle);
}

#[test]
fn a_ca_on_another_curve_gets_a_newer_one() {
    let p_384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let broken = foreign(p_384, |_| {}, |_| {});
    let (mended, change) = mended(&broken);
    assert_eq!(change, Change::Ca);
    assert_eq!(mended.chain, broken.chain);
}

#[test]
fn a_certificate_that_is_not_a_ca_is_removed() {
    let broken = foreign(p_256(), |ca| ca.is_ca = IsCa::ExplicitNoCa, |_| {});
    let (mended, change) = mended(&broken);
    assert_eq!(change, Change::Everything);
    assert_eq!(parsed(&mended.ca_bundle).len(), 1);
}

#[test]
fn a_leaf_that_is_for_clients_is_made_anew() {
    let usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let broken = foreign(p_256(), |_| {}, |leaf| leaf.extended_key_usages = usages);
    assert_eq!(mended(&broken).1, Change::Leaf);
}

/// The CA has another name than the one that our leaves give as their issuer.
#[test]
fn a_ca_that_cannot_issue_for_us_gets_a_newer_one() {
    let rename = |ca: &mut CertificateParams| {
        ca.distinguished_name.push(DnType::CommonName, "another CA");
    };
    let broken = foreign(p_256(), rename, |_| {});
    let broken = Stored {
        chain: vec![],
        ..broken
    };
    let (mended, change) = mended(&broken);
    assert_eq!(change, Change::Everything);
    assert_eq!(parsed(&mended.ca_bundle).len(), 2);
}

#[test]
fn debug_shows_nothing_of_the_keys() {
    let stored = issued(start());
    assert_eq!(format!("{stored:?}"), "Stored { .. }");
}
