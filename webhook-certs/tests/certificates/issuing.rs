//! Creates certificates, and mounts them as the kubelet does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, CertifiedIssuer, DnType, KeyPair, PKCS_ED25519, SerialNumber, date_time_ymd,
};

/// DNS name of all these certificates.
pub(crate) const NAME: &str = "pod-reloader.default.svc";

/// A chain and a key in PEM, and the leaf's serial number.
pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) serial: u64,
}

fn params(serial: u64) -> CertificateParams {
    let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2099, 1, 1);
    params
}

/// Creates a self-signed certificate with an ECDSA key.
pub(crate) fn issue(serial: u64) -> Issued {
    self_signed(serial, &KeyPair::generate().unwrap())
}

/// Creates a self-signed certificate with an Ed25519 key.
pub(crate) fn issue_ed25519(serial: u64) -> Issued {
    self_signed(serial, &KeyPair::generate_for(&PKCS_ED25519).unwrap())
}

fn self_signed(serial: u64, key: &KeyPair) -> Issued {
    let chain = params(serial).self_signed(key).unwrap().pem();
    Issued {
        chain,
        key: key.serialize_pem(),
        serial,
    }
}

/// Creates a leaf and the CA that signed it, in one chain.
pub(crate) fn issue_with_ca(serial: u64) -> Issued {
    let mut ca = CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "test CA");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = params(serial).signed_by(&key, &ca).unwrap();
    Issued {
        chain: leaf.pem() + &ca.pem(),
        key: key.serialize_pem(),
        serial,
    }
}

/// A mounted TLS Secret: `tls.crt -> ..data/tls.crt`, and `..data` a symlink that is swapped.
pub(crate) struct Mount {
    path: PathBuf,
    version: u32,
}

impl Mount {
    /// Creates an empty mount; `name` distinguishes it from those of other tests.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), path.join(file)).unwrap();
        }
        Self { path, version: 0 }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new version, swaps `..data` to it, and removes the old version.
    pub(crate) fn swap(&mut self, chain: &str, key: &str) {
        let old = self.path.join(format!("..version-{}", self.version));
        self.version += 1;
        let new = format!("..version-{}", self.version);
        fs::create_dir(self.path.join(&new)).unwrap();
        fs::write(self.path.join(&new).join("tls.crt"), chain).unwrap();
        fs::write(self.path.join(&new).join("tls.key"), key).unwrap();
        symlink(&new, self.path.join("..data_tmp")).unwrap();
        fs::rename(self.path.join("..data_tmp"), self.path.join("..data")).unwrap();
        if old.exists() {
            fs::remove_dir_all(old).unwrap();
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
