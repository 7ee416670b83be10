//! Seals: how an object that we have made is told from one that somebody else has given the same marks.
//!
//! Labels, annotations and owners say what an object of ours is for, and whoever may write the object may write them,
//! too. A seal is a MAC over what they say, under the [keys of the config hash](crate::hash): only we can make one. It
//! holds for one object of one kind, namespace and name, so it proves nothing on another.

use crate::hash::Keyring;
use crate::reference::Reference;

/// The annotation with the seal of an object that we have made: 32 hexadecimal digits.
pub const SEAL: &str = "pod-reloader.cs.sap.com/seal";
/// The annotation of a copy that says what it was made of. A pinned copy has the name of its ConfigMap. A synced copy has
/// its source and its own namespace, `NAMESPACE/NAME@NAMESPACE`: if somebody clones it into another namespace, the clone
/// has the wrong one. Anybody may write it, so it takes a [`SEAL`].
pub const COPY_OF: &str = "pod-reloader.cs.sap.com/copy-of";

/// What the marks of an object say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// What it is for.
    pub purpose: Purpose,
    /// Its kind, namespace and name.
    pub object: &'a Reference,
    /// What it was made of, in the form that its other annotation has.
    pub of: &'a str,
}

/// What an object of ours is for. A seal for one purpose proves nothing for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is the copy of a [ClusterConfigSync](crate::config_sync).
    Sync,
    /// It is a copy that [pods are pinned to](crate::pins).
    Pin,
    /// It [stores](crate::kept) an object that is about to be deleted.
    Store,
}

impl Purpose {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Pin => "pin",
            Self::Store => "store",
        }
    }
}

/// Who has sealed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// We have, under the key that seals are made with now.
    Now,
    /// We have, under an earlier key. Before that key is removed, the object needs another seal.
    Before,
    /// Nobody whose key is known. Whatever its marks say, the object is not ours.
    Never,
}

impl Keyring {
    /// Returns the seal for an object of which this is true, as the annotation [`SEAL`] has it.
    pub fn seal(&self, claim: &Claim<'_>) -> String {
        hex::encode(&self.writing().mac_of(&parts(claim))[..LENGTH])
    }

    /// Returns who has sealed an object, given what its marks say and the value of its annotation [`SEAL`].
    pub fn sealed(&self, claim: &Claim<'_>, seal: Option<&str>) -> Sealed {
        let mut bytes = [0; LENGTH];
        // Also hex in upper case is refused, which we never write.
        let is_lower = |text: &&str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let seal = seal.filter(is_lower);
        let decoded = seal.and_then(|seal| hex::decode_to_slice(seal, &mut bytes).ok());
        match decoded.and_then(|()| self.maker(&parts(claim), &bytes)) {
            Some(0) => Sealed::Now,
            Some(_) => Sealed::Before,
            None => Sealed::Never,
        }
    }
}

/// The length of a seal, in bytes.
const LENGTH: usize = 16;

fn parts<'a>(claim: &Claim<'a>) -> [&'a str; 6] {
    let object = claim.object;
    [
        "seal",
        claim.purpose.as_str(),
        object.kind.as_str(),
        object.namespace.as_str(),
        object.name.as_str(),
        claim.of,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{keyring, name};
    use crate::reference::ConfigKind;

    fn object(kind: ConfigKind, namespace: &str, text: &str) -> Reference {
        Reference {
            kind,
            namespace: name(namespace),
            name: name(text),
        }
    }

    #[test]
    fn a_seal_holds_for_one_claim_about_one_object() {
        let keys = keyring(&[1]);
        let pull = object(ConfigKind::Secret, "shop", "pull");
        let claim = |purpose, object, of| Claim {
            purpose,
            object,
            of,
        };
        let own = claim(Purpose::Sync, &pull, "platform/pull@shop");
        let seal = keys.seal(&own);
        assert_eq!(seal.len(), 32);
        assert_eq!(keys.sealed(&own, Some(&seal)), Sealed::Now);
        let others = [
            object(ConfigKind::ConfigMap, "shop", "pull"),
            object(ConfigKind::Secret, "shopp", "ull"),
            object(ConfigKind::Secret, "shop", "other"),
        ];
        for other in &others {
            let other = claim(Purpose::Sync, other, "platform/pull@shop");
            assert_eq!(keys.sealed(&other, Some(&seal)), Sealed::Never, "{other:?}");
        }
        for other in [
            claim(Purpose::Pin, &pull, "platform/pull@shop"),
            claim(Purpose::Sync, &pull, "other/pull@shop"),
        ] {
            assert_eq!(keys.sealed(&other, Some(&seal)), Sealed::Never, "{other:?}");
        }
    }

    #[test]
    fn a_seal_under_an_earlier_key_holds_and_one_under_a_foreign_key_does_not() {
        let pull = object(ConfigKind::Secret, "shop", "pull");
        let claim = Claim {
            purpose: Purpose::Sync,
            object: &pull,
            of: "platform/pull@shop",
        };
        let seal = keyring(&[1]).seal(&claim);
        assert_eq!(keyring(&[2, 1]).sealed(&claim, Some(&seal)), Sealed::Before);
        assert_eq!(keyring(&[1, 2]).sealed(&claim, Some(&seal)), Sealed::Now);
        assert_eq!(keyring(&[2]).sealed(&claim, Some(&seal)), Sealed::Never);
    }

    #[test]
    fn what_is_no_seal_is_refused() {
        let keys = keyring(&[1]);
        let pull = object(ConfigKind::Secret, "shop", "pull");
        let claim = Claim {
            purpose: Purpose::Sync,
            object: &pull,
            of: "platform/pull@shop",
        };
        let seal = keys.seal(&claim);
        let upper = seal.to_uppercase();
        let longer = format!("{seal}00");
        for odd in [
            None,
            Some(""),
            Some(&seal[..30]),
            Some(&*longer),
            Some("x"),
            Some(&*upper),
        ] {
            assert_eq!(keys.sealed(&claim, odd), Sealed::Never, "{odd:?}");
        }
    }
}
