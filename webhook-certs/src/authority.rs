//! Decides what the Secret with our CA should hold next.

use std::time::{Duration, SystemTime};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::ServerName;

use crate::bundle::{self, Ca};
use crate::issue::{self, BACKDATED, LEAF_LIFE, days};
use crate::{Error, ServingCertificate, Stored};

/// A CA of our own, and the certificate that it issues.
///
/// Several replicas may ask one after the other, each with the content that the previous one wrote: they
/// agree.
///
/// # Guarantees
/// - A leaf verifies against a CA of the bundle beside it, and never outlives it.
/// - While clients may not know the newest CA, the leaf remains one of an older CA, if there is one that can
///   serve. So a client that trusts either the old bundle or the new one accepts the leaf.
/// - Anything broken is replaced, and CAs that are still valid stay in the bundle.
///
/// # Caveats
/// - The keys of older CAs are gone. If they leave no leaf that can serve, the newest CA issues one before it
///   is trusted: see [`CurrentCertificate::replace_once_trusted`].
///
/// [`CurrentCertificate::replace_once_trusted`]: crate::CurrentCertificate::replace_once_trusted
#[derive(Clone, Debug)]
pub struct Authority {
    name: String,
    dns_names: Vec<String>,
}

/// The next step for the Secret.
#[derive(Debug)]
pub enum Next {
    /// The Secret stays as it is.
    Keep,
    /// The Secret should get new content.
    Write {
        /// The new content.
        stored: Stored,
        /// Difference from the present content.
        change: Change,
    },
}

/// The new part of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The newest CA, and a leaf of it.
    Everything,
    /// The newest CA, for future leaves.
    Ca,
    /// The leaf.
    Leaf,
    /// Only the bundle: CAs that nobody needs any more are gone.
    Bundle,
}

impl Authority {
    /// Creates an authority for a certificate with these DNS names. `name` is the certificate's common name;
    /// that of the CA is `name CA`.
    ///
    /// # Errors
    /// [`Error::Name`] if one is not a DNS name.
    pub fn new(name: &str, dns_names: Vec<String>) -> Result<Self, Error> {
        let is_no_name = |name: &&String| {
            !matches!(
                ServerName::try_from(name.as_str()),
                Ok(ServerName::DnsName(_))
            )
        };
        if let Some(name) = dns_names.iter().find(is_no_name) {
            return Err(Error::Name { name: name.clone() });
        }
        Ok(Self {
            name: name.to_owned(),
            dns_names,
        })
    }

    /// Returns the content that the Secret should have next, given its `present` content. For a Secret that
    /// does not exist, that is [`Stored::default`].
    ///
    /// `trusted` is the bundle, in PEM, that clients trust now. Its CAs stay trusted when a new one is
    /// created, even if the Secret has lost them. `is_published` says that clients are known to trust the
    /// bundle of `present`.
    ///
    /// # Errors
    /// [`Error::Issue`] if there are no random bytes, or a certificate cannot express `now`.
    pub fn next(
        &self,
        present: &Stored,
        trusted: &[u8],
        now: SystemTime,
        is_published: bool,
    ) -> Result<Next, Error> {
        let mut bundle = bundle::parse(&present.ca_bundle);
        bundle.retain(|ca| !ca.has_expired(now));
        let leaf = self.served(present, &bundle, now);
        let wants_leaf = match &leaf {
            None => true,
            Some((leaf, NEWEST)) => is_due(leaf.not_before(), leaf.not_after(), now),
            Some(_) => is_published,
        };
        let mut issuer = leaf.map(|(_, issuer)| issuer);
        let mut trusted = bundle::parse(trusted);
        trusted.retain(|ca| !ca.has_expired(now));
        let is_replaced = lacks_newest(&bundle, &trusted);
        if let Some((ca, key)) = newest(&bundle, &present.ca_key, now).filter(|_| !is_replaced) {
            let ca_is_due = is_due(ca.not_before, ca.not_after, now);
            // A leaf of a CA that ends soon would soon be due again: the next CA comes first.
            if wants_leaf && !(ca_is_due && issuer.is_some()) {
                let leaf = issue::leaf(&self.name, &self.dns_names, (ca, &key), now)?;
                let stored = Stored {
                    ca_bundle: bundle::to_pem(&needed(&bundle, None, now)),
                    ca_key: present.ca_key.clone(),
                    chain: leaf.chain.into(),
                    key: leaf.key.into(),
                };
                // Anything wrong with a CA, such as its name or a constraint, shows in its leaves.
                if self.served(&stored, &bundle[..1], now).is_some() {
                    let change = Change::Leaf;
                    return Ok(Next::Write { stored, change });
                }
            } else if !ca_is_due {
                let ca_bundle = bundle::to_pem(&needed(&bundle, issuer, now));
                if ca_bundle == present.ca_bundle {
                    return Ok(Next::Keep);
                }
                let stored = Stored {
                    ca_bundle,
                    ..present.clone()
                };
                let change = Change::Bundle;
                return Ok(Next::Write { stored, change });
            }
        }
        if is_replaced {
            // In front, so that it is not cut off.
            bundle.insert(NEWEST, trusted[0].clone());
            issuer = issuer.map(|issuer| issuer + 1);
        }
        bundle::add(&mut bundle, trusted);
        self.with_new_ca(present, bundle, issuer, now)
    }

    /// Puts a new CA before those of `bundle`. A leaf that can serve stays.
    fn with_new_ca(
        &self,
        present: &Stored,
        mut bundle: Vec<Ca>,
        issuer: Option<usize>,
        now: SystemTime,
    ) -> Result<Next, Error> {
        let (ca, ca_key) = issue::ca(&self.name, now)?;
        bundle.insert(NEWEST, ca.clone());
        let bundle = needed(&bundle, issuer.map(|issuer| issuer + 1), now);
        let (chain, key, change) = if issuer.is_some() {
            (present.chain.clone(), present.key.clone(), Change::Ca)
        } else {
            let leaf = issue::leaf(&self.name, &self.dns_names, (&ca, &ca_key), now)?;
            (leaf.chain.into(), leaf.key.into(), Change::Everything)
        };
        let stored = Stored {
            ca_bundle: bundle::to_pem(&bundle),
            ca_key: ca_key.serialize_pem().into(),
            chain,
            key,
        };
        if self.served(&stored, &bundle, now).is_none() {
            return Err(Error::Issue {
                what: "a certificate",
                source: "it would not verify".into(),
            });
        }
        Ok(Next::Write { stored, change })
    }

    /// Returns the leaf, and the index of its CA in the bundle, if clients can accept it now.
    fn served(
        &self,
        stored: &Stored,
        bundle: &[Ca],
        now: SystemTime,
    ) -> Option<(ServingCertificate, usize)> {
        let leaf = stored.serving_certificate().ok()?;
        if !self.dns_names.iter().all(|name| leaf.covers(name)) {
            return None;
        }
        let issuer = bundle
            .iter()
            .position(|ca| ca.is_valid(now) && leaf.is_issued_by(&ca.der, now))?;
        Some((leaf, issuer))
    }
}

/// Returns true if a bundle lacks the CA that clients were told of last: somebody has replaced the Secret, and replicas
/// still serve what the previous one issued.
fn lacks_newest(bundle: &[Ca], trusted: &[Ca]) -> bool {
    let newest = trusted.first();
    newest.is_some_and(|ca| bundle.iter().all(|known| known.der != ca.der))
}

/// Returns the newest CA and its key, if it can issue.
fn newest<'a>(bundle: &'a [Ca], key: &[u8], now: SystemTime) -> Option<(&'a Ca, KeyPair)> {
    let ca = bundle.get(NEWEST).filter(|ca| ca.is_valid(now))?;
    let key = std::str::from_utf8(key).ok()?;
    let key = KeyPair::from_pkcs8_pem_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256).ok()?;
    (key.public_key_raw() == ca.public_key).then_some((ca, key))
}

/// Returns the CAs that may have issued a leaf which is still valid. `issuer` is the index of the CA of the
/// present leaf.
fn needed(bundle: &[Ca], issuer: Option<usize>, now: SystemTime) -> Vec<Ca> {
    let (newest, older) = bundle.split_first().expect("there is a newest CA");
    let mut needed = vec![newest.clone()];
    bundle::add(&mut needed, issuer.map(|issuer| bundle[issuer].clone()));
    // The others lost their keys when the newest one was created.
    if now < newest.not_before + BACKDATED + LEAF_LIFE + CLOCKS_DIFFER {
        bundle::add(&mut needed, older.iter().cloned());
    }
    needed.truncate(MAX_CAS);
    needed
}

/// Returns true if less than a third of the validity is left.
fn is_due(not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> bool {
    let whole = not_after.duration_since(not_before).unwrap_or_default();
    let left = not_after.duration_since(now).unwrap_or_default();
    left < whole / 3
}

/// Index of the newest CA in a bundle.
const NEWEST: usize = 0;
/// Maximum number of CAs in a bundle, whatever happens to the Secret.
const MAX_CAS: usize = 4;
/// Maximum difference between the clocks of those that issue and those that verify.
const CLOCKS_DIFFER: Duration = days(1);
