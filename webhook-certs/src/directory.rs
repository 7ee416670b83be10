//! Reads a serving certificate from a directory, as Kubernetes mounts a TLS Secret.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::stored::{CHAIN, KEY};
use crate::{Error, ServingCertificate};

/// A directory with `tls.crt` and `tls.key`, as Kubernetes mounts a TLS Secret.
#[derive(Clone, Debug)]
pub struct CertificateDirectory {
    path: PathBuf,
}

impl CertificateDirectory {
    /// Names a directory, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the current content. The calls block, for the time of reading two small files.
    ///
    /// # Guarantees
    /// Chain and key come from the same version of the Secret: if the chain changed while the key
    /// was read, both are read again.
    ///
    /// # Errors
    /// [`Error::Read`] for a missing or unreadable file, [`Error::Unsettled`] if the files changed
    /// at every attempt, [`Error::Pair`] for contents that cannot serve.
    pub fn read(&self) -> Result<ServingCertificate, Error> {
        let (chain, key) = self.settled(|path| fs::read(path))?;
        ServingCertificate::from_pem(&chain, &key).map_err(|source| Error::Pair {
            directory: self.path.clone(),
            source: Box::new(source),
        })
    }

    /// Reads a chain that is the same before and after its key is read.
    fn settled(
        &self,
        mut read: impl FnMut(&PathBuf) -> io::Result<Vec<u8>>,
    ) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut read = |name| {
            let path = self.path.join(name);
            read(&path).map_err(|source| Error::Read { path, source })
        };
        let mut chain = read(CHAIN)?;
        for _ in 0..ATTEMPTS {
            let key = read(KEY)?;
            let chain_now = read(CHAIN)?;
            if chain_now == chain {
                return Ok((chain, key));
            }
            chain = chain_now;
        }
        Err(Error::Unsettled {
            directory: self.path.clone(),
        })
    }
}

/// The kubelet replaces a mounted Secret about once a minute at most, so the second attempt succeeds.
const ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each read with the next of `contents`.
    fn settled_over(contents: &[&str]) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut contents = contents.iter();
        CertificateDirectory::new("/certs")
            .settled(|_| Ok(contents.next().unwrap().as_bytes().to_vec()))
    }

    #[test]
    fn a_swap_between_chain_and_key_is_read_again() {
        let pair =
            settled_over(&["old chain", "new key", "new chain", "new key", "new chain"]).unwrap();
        assert_eq!(pair, (b"new chain".to_vec(), b"new key".to_vec()));
    }

    #[test]
    fn files_that_change_at_every_read_are_given_up() {
        let error = settled_over(&["1", "key", "2", "key", "3", "key", "4"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "reading tls.crt and tls.key in /certs: they kept changing"
        );
    }
}
