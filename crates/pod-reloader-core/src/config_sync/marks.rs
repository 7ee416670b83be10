//! Whose an object with the name of a copy is.

use std::sync::Arc;

use super::{ConfigSync, Target};
use crate::hash::Keyring;
use crate::name::Name;
use crate::seal::{Claim, Purpose, Sealed};

/// The seals of the copies of a ClusterConfigSync.
#[derive(Clone, Debug)]
pub struct Seals {
    /// The keys that they are made with.
    pub keys: Arc<Keyring>,
    /// False as long as copies may be left that an earlier version has made, which made no seals.
    pub are_complete: bool,
}

/// Whose an object with the name of a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It is the copy: its seal is made with the key that seals are made with now.
    Ours,
    /// It is the copy, and its seal is made with an earlier key.
    OursBefore,
    /// It is the copy, and an earlier version has made it.
    OursUnsealed,
    /// It says that it is the copy, and anybody may have written that.
    Claimed,
    /// It is somebody else's.
    Foreign,
}

impl Whose {
    /// Returns true if it is the copy.
    pub fn is_ours(self) -> bool {
        match self {
            Self::Ours | Self::OursBefore | Self::OursUnsealed => true,
            Self::Claimed | Self::Foreign => false,
        }
    }
}

impl ConfigSync {
    /// Returns the mark of the copy in this namespace.
    pub fn mark(&self, namespace: &Name) -> String {
        let source = &self.source;
        format!("{}/{}@{namespace}", source.namespace, source.name)
    }

    /// Returns the seal of the copy in this namespace. It is not about the UID of the ClusterConfigSync: copies that
    /// outlive it, and those of a cluster that is restored from a backup, remain ours.
    pub(super) fn seal(&self, namespace: &Name, keys: &Keyring) -> String {
        keys.seal(&Claim {
            purpose: Purpose::Sync,
            object: &self.copy_in(namespace),
            of: &self.mark(namespace),
        })
    }

    /// Returns whose the object is that has the name of the copy in this namespace. Its mark only says what it would
    /// be the copy of. A seal proves it; an owner proves it only as long as copies without a seal may be left.
    pub fn whose(&self, namespace: &Name, target: &Target, seals: &Seals) -> Whose {
        let mark = self.mark(namespace);
        if target.mark() != Some(&*mark) {
            return Whose::Foreign;
        }
        let claim = Claim {
            purpose: Purpose::Sync,
            object: &self.copy_in(namespace),
            of: &mark,
        };
        match seals.keys.sealed(&claim, target.seal()) {
            Sealed::Now => Whose::Ours,
            Sealed::Before => Whose::OursBefore,
            Sealed::Never if !seals.are_complete && target.is_owned_by(&self.uid) => {
                Whose::OursUnsealed
            }
            Sealed::Never => Whose::Claimed,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::super::TargetMetadata;
    use super::super::tests::{sync, target};
    use super::*;
    use crate::fixtures::{keyring, name};
    use crate::seal::{COPY_OF, SEAL};

    /// Returns seals under these keys. All copies have one.
    pub(crate) fn seals(keys: &[u8]) -> Seals {
        Seals {
            keys: Arc::new(keyring(keys)),
            are_complete: true,
        }
    }

    /// Returns seals of which some may be missing.
    pub(crate) fn incomplete() -> Seals {
        Seals {
            are_complete: false,
            ..seals(&[1])
        }
    }

    fn owner() -> Value {
        json!([{"apiVersion": "v1", "kind": "ClusterConfigSync", "name": "pull", "uid": "u-1"}])
    }

    fn marked(mark: &str) -> Value {
        json!({"annotations": {COPY_OF: mark}, "ownerReferences": owner()})
    }

    /// Returns the copy in `shop`, with a seal under this key.
    fn sealed(key: u8) -> Value {
        let mut copy = marked("platform/pull@shop");
        copy["annotations"][SEAL] = sync(json!({})).seal(&name("shop"), &keyring(&[key])).into();
        copy
    }

    fn whose(metadata: &Value, seals: &Seals) -> Whose {
        sync(json!({})).whose(&name("shop"), &target(metadata.clone()), seals)
    }

    #[test]
    fn an_object_is_ours_by_its_seal_and_whoever_owns_it() {
        let mut copy = sealed(1);
        for owners in [owner(), json!(null)] {
            copy["ownerReferences"] = owners;
            assert_eq!(whose(&copy, &seals(&[1])), Whose::Ours);
            assert_eq!(whose(&copy, &seals(&[2, 1])), Whose::OursBefore);
            assert_eq!(whose(&copy, &seals(&[2])), Whose::Claimed);
        }
    }

    #[test]
    fn neither_an_owner_nor_a_mark_nor_both_make_an_object_ours() {
        for (metadata, expected) in [
            (json!({}), Whose::Foreign),
            (json!({"ownerReferences": owner()}), Whose::Foreign),
            (marked("platform/pull@elsewhere"), Whose::Foreign),
            (marked("other/pull@shop"), Whose::Foreign),
            (marked("platform/pull"), Whose::Foreign),
            (marked(""), Whose::Foreign),
            (marked("platform/pull@shop"), Whose::Claimed),
        ] {
            assert_eq!(whose(&metadata, &seals(&[1])), expected, "{metadata}");
        }
    }

    #[test]
    fn the_seal_of_another_copy_proves_nothing() {
        let other_name = sync(json!({"spec": {"source": {"name": "other"}}}));
        let other_kind = sync(json!({"spec": {"source": {"kind": "ConfigMap"}}}));
        let own = sync(json!({}));
        for (from, namespace) in [
            (&own, "elsewhere"),
            (&other_name, "shop"),
            (&other_kind, "shop"),
        ] {
            let mut replayed = marked("platform/pull@shop");
            replayed["annotations"][SEAL] = from.seal(&name(namespace), &keyring(&[1])).into();
            assert_eq!(whose(&replayed, &seals(&[1])), Whose::Claimed, "{replayed}");
        }
    }

    #[test]
    fn as_long_as_seals_are_missing_mark_and_owner_together_prove_it() {
        let copy = marked("platform/pull@shop");
        assert_eq!(whose(&copy, &incomplete()), Whose::OursUnsealed);
        let mut others = copy.clone();
        others["ownerReferences"][0]["uid"] = json!("u-2");
        let mut config_map = copy;
        config_map["ownerReferences"][0]["kind"] = json!("ConfigMap");
        for claimed in [
            others,
            config_map,
            json!({"annotations": {COPY_OF: "platform/pull@shop"}}),
        ] {
            assert_eq!(whose(&claimed, &incomplete()), Whose::Claimed, "{claimed}");
        }
        for foreign in [
            json!({"ownerReferences": owner()}),
            marked("platform/pull@elsewhere"),
        ] {
            assert_eq!(whose(&foreign, &incomplete()), Whose::Foreign, "{foreign}");
        }
    }

    #[test]
    fn only_what_is_ours_is_deleted_where_it_is_not_wanted_any_more() {
        let shop = name("shop");
        let ours = sync(json!({}));
        let removes =
            |metadata: Value, seals: &Seals| ours.removes(&shop, &target(metadata), None, seals);
        assert!(removes(sealed(1), &seals(&[1])));
        assert!(removes(sealed(1), &seals(&[2, 1])));
        assert!(removes(marked("platform/pull@shop"), &incomplete()));
        let mut retained = sealed(1);
        retained["ownerReferences"] = json!(null);
        for (metadata, seals) in [
            (retained, seals(&[1])),
            (sealed(2), seals(&[1])),
            (marked("platform/pull@shop"), seals(&[1])),
            (json!({"ownerReferences": owner()}), incomplete()),
        ] {
            assert!(!removes(metadata.clone(), &seals), "{metadata}");
        }
    }

    #[test]
    fn a_copy_that_is_to_stay_or_that_another_sync_takes_over_is_not_deleted() {
        let (shop, seals, copy) = (name("shop"), seals(&[1]), target(sealed(1)));
        let retain = sync(json!({"spec": {"deletionPolicy": "Retain"}}));
        assert!(!retain.removes(&shop, &copy, None, &seals));
        let ours = sync(json!({}));
        let same = sync(json!({"metadata": {"name": "older", "uid": "u-0"}}));
        assert!(!ours.removes(&shop, &copy, Some(&same), &seals));
        let other = sync(json!({"spec": {"source": {"namespace": "elsewhere"}}}));
        assert!(ours.removes(&shop, &copy, Some(&other), &seals));
    }

    #[test]
    fn marks_and_seals_that_are_none_are_not_kept() {
        let long = "x".repeat(10_000);
        let object = json!({"metadata": {"annotations": {COPY_OF: long, SEAL: long}}});
        let object: TargetMetadata = serde_json::from_value(object).unwrap();
        let target = Target::from(object);
        assert_eq!((target.mark(), target.seal()), (None, None));
    }
}
