//! Certificates that an authority issues, and the times at which it renews them.

use std::time::{Duration, SystemTime};

use webhook_certs::{Authority, Change, Next, Stored};
use x509_cert::Certificate;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
    SubjectAltName, SubjectKeyIdentifier,
};

use crate::issuing::NAME;
use crate::trusting::{days, parsed, shakes_hands, start, trusts};

pub(crate) fn authority() -> Authority {
    named(&[NAME, "pod-reloader.default"])
}

fn named(names: &[&str]) -> Authority {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Authority::new("pod-reloader", names).unwrap()
}

/// Returns what an authority writes, or `None` if it leaves the content as it is.
pub(crate) fn written(
    stored: &Stored,
    now: SystemTime,
    is_published: bool,
) -> Option<(Stored, Change)> {
    match authority().next(stored, b"", now, is_published).unwrap() {
        Next::Keep => None,
        Next::Write { stored, change } => Some((stored, change)),
    }
}

/// Returns a CA and a leaf that were issued at `now`.
pub(crate) fn issued(now: SystemTime) -> Stored {
    written(&Stored::default(), now, false).unwrap().0
}

/// Returns `stored` with a leaf of its CA that was issued at `now`.
fn renewed(stored: &Stored, now: SystemTime) -> Stored {
    let elsewhere = Stored {
        chain: vec![],
        ..stored.clone()
    };
    let (renewed, change) = written(&elsewhere, now, true).unwrap();
    assert_eq!(change, Change::Leaf);
    renewed
}

/// Returns a CA so old that there is a newer one, with a leaf that is a day old, just before the switch.
fn overlapping(now: SystemTime) -> Stored {
    let old = renewed(&issued(now - days(4 * 365)), now - days(1));
    let (overlapping, change) = written(&old, now, true).unwrap();
    assert_eq!(change, Change::Ca);
    overlapping
}

fn validity(certificate: &Certificate) -> (SystemTime, SystemTime) {
    let validity = certificate.tbs_certificate().validity();
    (
        validity.not_before.to_system_time(),
        validity.not_after.to_system_time(),
    )
}

#[test]
fn a_ca_signs_leaves_and_nothing_else() {
    let ca = &parsed(&issued(start()).ca_bundle)[0];
    let tbs = ca.tbs_certificate();
    assert_eq!(tbs.subject().to_string(), "CN=pod-reloader CA");
    assert_eq!(validity(ca), (start() - HOUR, start() + days(5 * 365)));
    assert!(is_p_256(ca));
    let (critical, constraints) = tbs.get_extension::<BasicConstraints>().unwrap().unwrap();
    assert!(critical && constraints.ca);
    assert_eq!(constraints.path_len_constraint, Some(0));
    let (critical, usage) = tbs.get_extension::<KeyUsage>().unwrap().unwrap();
    assert!(critical);
    assert_eq!(usage, KeyUsage(KeyUsages::KeyCertSign | KeyUsages::CRLSign));
}

#[test]
fn a_leaf_is_for_a_server_of_those_names() {
    let stored = issued(start());
    let leaf = &parsed(&stored.chain)[0];
    let tbs = leaf.tbs_certificate();
    assert_eq!(tbs.issuer().to_string(), "CN=pod-reloader CA");
    assert_eq!(validity(leaf), (start() - HOUR, start() + days(90)));
    assert!(is_p_256(leaf));
    let (_, names) = tbs.get_extension::<SubjectAltName>().unwrap().unwrap();
    let names = names.0.iter().map(|name| match name {
        GeneralName::DnsName(name) => name.as_str(),
        other => panic!("{other:?}"),
    });
    assert!(names.eq([NAME, "pod-reloader.default"]));
    let (_, usage) = tbs.get_extension::<ExtendedKeyUsage>().unwrap().unwrap();
    assert_eq!(usage.0, [SERVER_AUTH]);
    let (_, usage) = tbs.get_extension::<KeyUsage>().unwrap().unwrap();
    assert_eq!(usage, KeyUsage(KeyUsages::DigitalSignature.into()));
    let (_, constraints) = tbs.get_extension::<BasicConstraints>().unwrap().unwrap();
    assert!(!constraints.ca);
}

#[test]
fn a_leaf_names_the_key_of_its_ca() {
    let stored = issued(start());
    let (ca, leaf) = (&parsed(&stored.ca_bundle)[0], &parsed(&stored.chain)[0]);
    let (_, ca_key) = ca
        .tbs_certificate()
        .get_extension::<SubjectKeyIdentifier>()
        .unwrap()
        .unwrap();
    let (_, named) = leaf
        .tbs_certificate()
        .get_extension::<AuthorityKeyIdentifier>()
        .unwrap()
        .unwrap();
    assert_eq!(named.key_identifier, Some(ca_key.0));
}

#[test]
fn serial_numbers_differ_and_are_long() {
    let (one, two) = (issued(start()), issued(start()));
    let serials = [one.chain, two.chain, one.ca_bundle, two.ca_bundle]
        .map(|pem| parsed(&pem)[0].tbs_certificate().serial_number().clone());
    for (at, serial) in serials.iter().enumerate() {
        assert!(serial.as_bytes().len() >= 16);
        assert!(!serials[..at].contains(serial));
    }
}

#[test]
fn certificates_that_were_made_stay_whether_published_or_not() {
    let stored = issued(start());
    for now in [start(), start() + days(59)] {
        for is_published in [false, true] {
            assert_eq!(written(&stored, now, is_published), None);
        }
    }
}

#[test]
fn a_leaf_is_renewed_when_a_third_is_left() {
    let old = issued(start());
    let now = start() + days(61);
    let (new, change) = written(&old, now, false).unwrap();
    assert_eq!(change, Change::Leaf);
    assert_eq!((&new.ca_bundle, &new.ca_key), (&old.ca_bundle, &old.ca_key));
    assert_ne!(new.key, old.key);
    assert!(trusts(&old.ca_bundle, &new.chain, now + days(89)));
    assert_eq!(written(&new, now, false), None);
}

#[test]
fn a_leaf_never_outlives_its_ca() {
    let stored = issued(start());
    let end = start() + days(5 * 365);
    let leaf = renewed(&stored, end - days(10));
    assert_eq!(validity(&parsed(&leaf.chain)[0]).1, end);
}

#[test]
fn a_leaf_for_other_names_is_made_anew() {
    let other = named(&["other.default.svc"]);
    let stored = issued(start());
    let Next::Write { stored, change } = other.next(&stored, b"", start(), false).unwrap() else {
        panic!("kept")
    };
    assert_eq!(change, Change::Leaf);
    assert!(
        stored
            .serving_certificate()
            .unwrap()
            .covers("other.default.svc")
    );
}

#[test]
fn a_name_that_is_not_a_dns_name_is_refused() {
    for wrong in ["", "a b.svc", "10.0.0.1", "a..svc"] {
        let error = Authority::new("pod-reloader", vec![wrong.to_owned()]).unwrap_err();
        assert_eq!(error.reason(), "name");
    }
}

#[test]
fn a_ca_is_renewed_when_a_third_is_left_and_the_leaf_stays() {
    let two_thirds = start() + days(5 * 365 * 2 / 3);
    let old = renewed(&issued(start()), two_thirds - days(3));
    assert_eq!(written(&old, two_thirds - days(2), true), None);
    let (new, change) = written(&old, two_thirds + days(2), true).unwrap();
    assert_eq!(change, Change::Ca);
    assert_eq!((&new.chain, &new.key), (&old.chain, &old.key));
    assert_ne!(new.ca_key, old.ca_key);
    assert!(new.ca_bundle.ends_with(&old.ca_bundle));
    assert_eq!(parsed(&new.ca_bundle).len(), 2);
}

#[test]
fn the_new_ca_issues_once_it_is_published() {
    let overlapping = overlapping(start());
    assert_eq!(written(&overlapping, start(), false), None);
    let (new, change) = written(&overlapping, start(), true).unwrap();
    assert_eq!(change, Change::Leaf);
    assert_eq!(new.ca_bundle, overlapping.ca_bundle);
    assert_eq!(written(&new, start(), true), None);
}

#[test]
fn a_leaf_waits_for_publication_until_it_has_expired() {
    let overlapping = overlapping(start());
    let last = start() - days(1) + days(90);
    assert_eq!(written(&overlapping, last, false), None);
    let (_, change) = written(&overlapping, last + SECOND, false).unwrap();
    assert_eq!(change, Change::Leaf);
}

#[tokio::test]
async fn handshakes_go_through_all_along_the_renewal_of_a_ca() {
    let now = start();
    let overlapping = overlapping(now);
    let old_bundle = {
        let old = parsed(&overlapping.ca_bundle).len() - 1;
        section(&overlapping.ca_bundle, old)
    };
    let new = written(&overlapping, now, true).unwrap().0;
    let new_bundle = section(&new.ca_bundle, 0);

    assert!(shakes_hands(&old_bundle, &overlapping, now).await);
    assert!(shakes_hands(&overlapping.ca_bundle, &overlapping, now).await);
    assert!(shakes_hands(&new.ca_bundle, &new, now).await);
    assert!(shakes_hands(&new_bundle, &new, now).await);

    assert!(!shakes_hands(&old_bundle, &new, now).await);
    assert!(!shakes_hands(&new_bundle, &overlapping, now).await);
}

#[test]
fn a_ca_is_removed_when_none_of_its_leaves_can_still_be_valid() {
    let new = written(&overlapping(start()), start(), true).unwrap().0;
    let later = start() + days(50);
    let renewed = renewed(&new, later);
    assert_eq!(written(&renewed, start() + days(90), true), None);
    let (pruned, change) = written(&renewed, start() + days(92), true).unwrap();
    assert_eq!(change, Change::Bundle);
    assert_eq!(pruned.ca_bundle, section(&renewed.ca_bundle, 0));
    assert_eq!(pruned.chain, renewed.chain);
}

#[test]
fn a_secret_that_is_lost_leaves_its_cas_trusted() {
    let lost = overlapping(start());
    let later = start() + HOUR;
    let next = authority().next(&Stored::default(), &lost.ca_bundle, later, true);
    let Next::Write { stored, change } = next.unwrap() else {
        panic!("kept")
    };
    assert_eq!(change, Change::Everything);
    assert!(stored.ca_bundle.ends_with(&lost.ca_bundle));
    assert!(trusts(&stored.ca_bundle, &lost.chain, later));
    assert!(trusts(&section(&stored.ca_bundle, 0), &stored.chain, later));
}

#[test]
fn a_sound_secret_that_is_not_the_one_clients_know_gets_a_ca_above_both() {
    let (ours, known) = (issued(start()), issued(start()));
    let next = authority().next(&ours, &known.ca_bundle, start(), true);
    let Next::Write { stored, change } = next.unwrap() else {
        panic!("kept")
    };
    assert_eq!(change, Change::Ca);
    assert_eq!(stored.chain, ours.chain);
    assert_eq!(parsed(&stored.ca_bundle).len(), 3);
    for issued_before in [&ours, &known] {
        assert!(trusts(&stored.ca_bundle, &issued_before.chain, start()));
    }
}

#[test]
fn a_ca_that_ends_within_the_hour_is_followed_by_another_before_its_leaf_is() {
    let end = start() + days(5 * 365);
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let (old, change) = written(&issued(start()), end - minutes(55), true).unwrap();
    assert_eq!(change, Change::Leaf);
    let (stored, change) = written(&old, end - minutes(5), true).unwrap();
    assert_eq!((change, stored.chain), (Change::Ca, old.chain));
}

#[test]
fn an_expired_ca_is_not_taken_over() {
    let expired = issued(start() - days(6 * 365));
    let next = authority().next(&Stored::default(), &expired.ca_bundle, start(), true);
    let Next::Write { stored, .. } = next.unwrap() else {
        panic!("kept")
    };
    assert_eq!(parsed(&stored.ca_bundle).len(), 1);
}

#[test]
fn a_bundle_has_four_cas_at_most_and_always_the_leafs() {
    let mut stored = issued(start());
    let first = stored.clone();
    for _ in 0..6 {
        stored.ca_key = vec![];
        stored = written(&stored, start(), false).unwrap().0;
        assert!(trusts(&stored.ca_bundle, &first.chain, start()));
        assert!(parsed(&stored.ca_bundle).len() <= 4);
    }
    assert_eq!(stored.chain, first.chain);
}

fn is_p_256(certificate: &Certificate) -> bool {
    let info = certificate.tbs_certificate().subject_public_key_info();
    let curve = info.algorithm.parameters.as_ref().unwrap();
    curve.decode_as::<ObjectIdentifier>() == Ok(P_256)
}

/// Returns the section of a PEM at `index`.
fn section(pem: &[u8], index: usize) -> Vec<u8> {
    let text = std::str::from_utf8(pem).unwrap();
    let sections: Vec<_> = text
        .split_inclusive("-----END CERTIFICATE-----\n")
        .collect();
    sections[index].into()
}

const HOUR: Duration = Duration::from_secs(60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const P_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
