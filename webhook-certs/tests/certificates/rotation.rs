//! A mounted directory, through renewals and accidents.

use std::io;

use webhook_certs::{CertificateDirectory, CurrentCertificate, Error, Reload};

use crate::issuing::{Issued, Mount, issue};

/// Returns a mount that holds `issued`, and its certificate in force.
fn in_force(name: &str, issued: &Issued) -> (Mount, CertificateDirectory, CurrentCertificate) {
    let mut mount = Mount::new(name);
    mount.swap(&issued.chain, &issued.key);
    let (directory, current) = (
        CertificateDirectory::new(mount.path()),
        CurrentCertificate::new(),
    );
    current.reload(&directory).unwrap();
    (mount, directory, current)
}

fn serial(current: &CurrentCertificate) -> String {
    current.current().unwrap().serial().to_owned()
}

#[test]
fn every_swap_of_the_symlink_is_seen() {
    let (mut mount, directory, current) = in_force("every-swap", &issue(1));
    for (renewal, expected) in [(2, "02"), (3, "03"), (4, "04")] {
        let renewed = issue(renewal);
        mount.swap(&renewed.chain, &renewed.key);
        assert!(matches!(
            current.reload(&directory),
            Ok(Reload::Replaced { .. })
        ));
        assert_eq!(serial(&current), expected);
    }
}

#[test]
fn the_same_contents_in_a_new_version_change_nothing() {
    let issued = issue(1);
    let (mut mount, directory, current) = in_force("same-contents", &issued);
    mount.swap(&issued.chain, &issued.key);
    assert_eq!(current.reload(&directory).unwrap(), Reload::Unchanged);
}

#[test]
fn a_half_written_pair_leaves_the_last_good_one_in_force_until_it_is_whole() {
    let (old, new) = (issue(1), issue(2));
    let (mut mount, directory, current) = in_force("half-written", &old);

    mount.swap(&new.chain, &old.key);
    assert_eq!(current.reload(&directory).unwrap_err().reason(), "mismatch");
    assert_eq!(serial(&current), "01");

    mount.swap(&new.chain, &new.key);
    current.reload(&directory).unwrap();
    assert_eq!(serial(&current), "02");
}

#[test]
fn empty_files_and_garbage_leave_the_last_good_one_in_force() {
    let (mut mount, directory, current) = in_force("garbage", &issue(1));
    for contents in ["", "garbage"] {
        mount.swap(contents, contents);
        let error = current.reload(&directory).unwrap_err();
        assert!(matches!(&error, Error::Pair { directory, .. } if directory == mount.path()));
    }
    assert_eq!(serial(&current), "01");
}

#[test]
fn a_certificate_that_does_not_exist_yet_is_missing_and_then_taken() {
    let mut mount = Mount::new("not-yet");
    let (directory, current) = (
        CertificateDirectory::new(mount.path()),
        CurrentCertificate::new(),
    );
    let error = current.reload(&directory).unwrap_err();
    let is_missing =
        matches!(&error, Error::Read { source, .. } if source.kind() == io::ErrorKind::NotFound);
    assert!(is_missing);
    assert_eq!(
        error.to_string(),
        format!("reading {}", mount.path().join("tls.crt").display())
    );
    assert!(current.current().is_none());

    let issued = issue(1);
    mount.swap(&issued.chain, &issued.key);
    current.reload(&directory).unwrap();
    assert_eq!(serial(&current), "01");
}
