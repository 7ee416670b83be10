//! Decides whether a workload needs a new config hash: the rule of the reconcile loop.

use std::collections::BTreeSet;

use crate::digest::Contents;
use crate::discovery::Requirement;
use crate::hash::{ConfigHash, KeyId, Keyring, Verdict};
use crate::sap;
use crate::workload::Workload;

/// What becomes of a workload that has subscribed and has no config hash yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstStamp {
    /// It is given one, which restarts its pods once.
    Rollout,
    /// It is given a baseline: its first change of content is its first restart.
    Baseline,
}

/// What a workload should carry, given the contents of what it references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// What it carries stands for the contents.
    Keep,
    /// It stays as it is, because its pods could not start: these are not there.
    Hold(Vec<Requirement>),
    /// It gets this config hash, which restarts its pods.
    Set {
        /// The value of KEY.
        config_hash: String,
        /// What for.
        cause: Cause,
    },
    /// It gets this baseline, which restarts nothing.
    Baseline(String),
}

/// Why pods are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The workload has just subscribed.
    FirstStamp,
    /// The contents changed.
    Changed,
    /// The value of SAP's controller does not verify: something changed while nobody looked.
    ChangedBeforeTakeover,
}

/// What `workload` should carry, given the `contents` of its references.
///
/// *Guarantees*: a value that verifies under any key is kept; a value that cannot be verified is
/// never by itself a reason to restart; no pod is restarted into a configuration it cannot start with.
///
/// *Caveats*: `contents` must hold each reference of the workload, as one consistent read each.
pub fn decide(
    workload: &Workload,
    contents: &Contents,
    keys: &Keyring,
    first_stamp: FirstStamp,
) -> Decision {
    if workload.references.accepted.is_empty() {
        return Decision::Keep;
    }
    let decision = match (workload.config_hash.as_deref(), first_stamp) {
        (Some(value), _) => keep_verified(value, workload, contents, keys),
        // A baseline stays one when the flag is taken back.
        (None, _) if baseline(workload, "").is_some() => {
            keep_baseline("", workload, contents, keys)
        }
        (None, FirstStamp::Baseline) => keep_baseline("", workload, contents, keys),
        (None, FirstStamp::Rollout) => set(contents, keys, Cause::FirstStamp),
    };
    if decision == Decision::Keep {
        return decision;
    }
    let missing: Vec<_> = workload.missing(contents).cloned().collect();
    if missing.is_empty() {
        decision
    } else {
        Decision::Hold(missing)
    }
}

fn keep_verified(
    value: &str,
    workload: &Workload,
    contents: &Contents,
    keys: &Keyring,
) -> Decision {
    match keys.verify(value, contents) {
        Verdict::Current => Decision::Keep,
        Verdict::Outdated => set(contents, keys, Cause::Changed),
        Verdict::Foreign => keep_baseline(value, workload, contents, keys),
    }
}

/// For a KEY that says nothing about contents, the baseline does.
fn keep_baseline(
    value: &str,
    workload: &Workload,
    contents: &Contents,
    keys: &Keyring,
) -> Decision {
    let new = || Decision::Baseline(format!("{value}={}", keys.hash(contents)));
    match baseline(workload, value) {
        Some(hash) => match keys.verify(hash, contents) {
            Verdict::Current => Decision::Keep,
            Verdict::Outdated => set(contents, keys, Cause::Changed),
            Verdict::Foreign => new(),
        },
        None => match sap::verify(value, workload, contents) {
            Verdict::Outdated => set(contents, keys, Cause::ChangedBeforeTakeover),
            Verdict::Current | Verdict::Foreign => new(),
        },
    }
}

/// The keys without which it could no longer be told whether `workload` is up to date: that of its config
/// hash, and that of the baseline which speaks of it.
pub fn keys_relied_on(workload: &Workload) -> BTreeSet<KeyId> {
    let value = workload.config_hash.as_deref();
    let baseline = baseline(workload, value.unwrap_or_default());
    let hashes = value.into_iter().chain(baseline);
    hashes
        .filter_map(ConfigHash::parse)
        .map(|hash| hash.key_id())
        .collect()
}

/// The hash of the workload's baseline, where it speaks of this value of KEY.
fn baseline<'a>(workload: &'a Workload, value: &str) -> Option<&'a str> {
    let (of, hash) = workload.markers.baseline.as_deref()?.rsplit_once('=')?;
    (of == value).then_some(hash)
}

fn set(contents: &Contents, keys: &Keyring, cause: Cause) -> Decision {
    Decision::Set {
        config_hash: keys.hash(contents).to_string(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::ConfigObject;
    use crate::fixtures::{Builder, contents, deployment, holding, keyring};
    use crate::hash::{HashKey, KEY_LENGTH};
    use sha2::{Digest as _, Sha256};

    fn now(object: Option<ConfigObject>) -> Contents {
        contents(&[("a", object)])
    }

    fn hash(value: &str) -> String {
        keyring(&[1]).hash(&now(holding(value))).to_string()
    }

    fn decided(workload: Builder, object: Option<ConfigObject>) -> Decision {
        decide(
            &workload.lists("a").build(),
            &now(object),
            &keyring(&[1]),
            FirstStamp::Rollout,
        )
    }

    fn changed(value: &str) -> Decision {
        Decision::Set {
            config_hash: hash(value),
            cause: Cause::Changed,
        }
    }

    #[test]
    fn a_hash_that_stands_for_the_contents_is_kept() {
        assert_eq!(
            decided(deployment("web").stamped(&hash("1")), holding("1")),
            Decision::Keep
        );
    }

    #[test]
    fn a_change_of_content_sets_a_new_hash() {
        assert_eq!(
            decided(deployment("web").stamped(&hash("1")), holding("2")),
            changed("2")
        );
    }

    #[test]
    fn an_optional_object_that_goes_or_comes_sets_a_new_hash() {
        let absent = keyring(&[1]).hash(&now(None)).to_string();
        let gone = Decision::Set {
            config_hash: absent.clone(),
            cause: Cause::Changed,
        };
        assert_eq!(decided(deployment("web").stamped(&hash("1")), None), gone);
        assert_eq!(
            decided(deployment("web").stamped(&absent), holding("1")),
            changed("1")
        );
    }

    #[test]
    fn a_required_object_that_goes_holds_and_alike_again_keeps() {
        let workload = || deployment("web").requires("a", None).stamped(&hash("1"));
        let Decision::Hold(missing) = decided(workload(), None) else {
            panic!()
        };
        assert_eq!(missing[0].reference.name.as_str(), "a");
        assert_eq!(decided(workload(), holding("1")), Decision::Keep);
        assert_eq!(decided(workload(), holding("2")), changed("2"));
    }

    #[test]
    fn a_hash_that_was_made_while_a_required_object_was_absent_is_not_reported_as_held() {
        let absent = keyring(&[1]).hash(&now(None)).to_string();
        assert_eq!(
            decided(deployment("web").requires("a", None).stamped(&absent), None),
            Decision::Keep
        );
    }

    #[test]
    fn a_required_key_that_goes_holds() {
        let workload = deployment("web")
            .requires("a", Some("gone"))
            .stamped(&hash("1"));
        assert!(matches!(decided(workload, holding("2")), Decision::Hold(_)));
    }

    #[test]
    fn a_first_stamp_is_a_rollout_or_a_baseline() {
        let stamped = Decision::Set {
            config_hash: hash("1"),
            cause: Cause::FirstStamp,
        };
        assert_eq!(decided(deployment("web"), holding("1")), stamped);

        let with_flag = |workload: Builder, object| {
            decide(
                &workload.lists("a").build(),
                &now(object),
                &keyring(&[1]),
                FirstStamp::Baseline,
            )
        };
        let baseline = format!("={}", hash("1"));
        assert_eq!(
            with_flag(deployment("web"), holding("1")),
            Decision::Baseline(baseline.clone())
        );
        let workload = || deployment("web").annotation("baseline", &baseline);
        assert_eq!(with_flag(workload(), holding("1")), Decision::Keep);
        assert_eq!(with_flag(workload(), holding("2")), changed("2"));
        assert_eq!(decided(workload(), holding("1")), Decision::Keep);
    }

    #[test]
    fn a_first_stamp_waits_for_what_the_pods_need() {
        let workload = deployment("web").requires("a", None);
        assert!(matches!(decided(workload, None), Decision::Hold(_)));
    }

    #[test]
    fn the_keys_of_hash_and_baseline_are_relied_on() {
        let relied_on = |workload: &Workload| Vec::from_iter(keys_relied_on(workload));
        let key = |seed| HashKey::new([seed; KEY_LENGTH]).id();
        let contents = contents(&[("app", holding("1"))]);
        let hash = |seed| keyring(&[seed]).hash(&contents).to_string();
        let workload = || deployment("web").lists("app");
        assert_eq!(relied_on(&workload().build()), []);
        assert_eq!(relied_on(&workload().stamped("sha256").build()), []);
        assert_eq!(relied_on(&workload().stamped(&hash(1)).build()), [key(1)]);
        let baseline = format!("sha256={}", hash(2));
        let foreign = workload()
            .stamped("sha256")
            .annotation("baseline", &baseline);
        assert_eq!(relied_on(&foreign.build()), [key(2)]);
        let left = workload()
            .stamped(&hash(1))
            .annotation("baseline", &baseline);
        assert_eq!(relied_on(&left.build()), [key(1)], "of another value");
    }

    #[test]
    fn a_foreign_value_gets_a_baseline_and_rolls_when_the_contents_leave_it() {
        for foreign in [
            "rubbish",
            "",
            "a=b",
            &keyring(&[9]).hash(&now(None)).to_string(),
        ] {
            let workload = || deployment("web").stamped(foreign);
            let baseline = format!("{foreign}={}", hash("1"));
            assert_eq!(
                decided(workload(), holding("1")),
                Decision::Baseline(baseline.clone())
            );
            let workload = || workload().annotation("baseline", &baseline);
            assert_eq!(decided(workload(), holding("1")), Decision::Keep);
            assert_eq!(decided(workload(), holding("2")), changed("2"));
        }
    }

    #[test]
    fn a_baseline_of_another_value_or_under_a_lost_key_is_written_anew() {
        let lost = keyring(&[9]).hash(&now(holding("1")));
        for old in [
            format!("other={}", hash("1")),
            format!("x={lost}"),
            "rubbish".to_owned(),
        ] {
            let workload = deployment("web").stamped("x").annotation("baseline", &old);
            let baseline = Decision::Baseline(format!("x={}", hash("2")));
            assert_eq!(decided(workload, holding("2")), baseline);
        }
    }

    #[test]
    fn a_value_of_sap_that_verifies_gets_a_baseline_and_one_that_does_not_rolls() {
        let sap = |line: &str| hex::encode(Sha256::digest(line));
        let current = sap("configmap/ns/a/uid-c.7\n");
        let workload = deployment("web").stamped(&current);
        let baseline = Decision::Baseline(format!("{current}={}", hash("1")));
        assert_eq!(decided(workload, holding("1")), baseline);

        let workload = deployment("web").stamped(&sap("configmap/ns/a/uid-c.6\n"));
        let rolled = Decision::Set {
            config_hash: hash("1"),
            cause: Cause::ChangedBeforeTakeover,
        };
        assert_eq!(decided(workload, holding("1")), rolled);
    }

    #[test]
    fn after_a_restore_a_foreign_value_waits_for_the_objects_that_the_pods_need() {
        let workload = || deployment("web").requires("a", None).stamped("x");
        assert!(matches!(decided(workload(), None), Decision::Hold(_)));
        let baseline = Decision::Baseline(format!("x={}", hash("1")));
        assert_eq!(decided(workload(), holding("1")), baseline);
    }

    #[test]
    fn a_workload_whose_lists_name_nothing_is_kept() {
        let workload = deployment("web").lists(" , ?limit=1").build();
        let decision = decide(
            &workload,
            &contents(&[]),
            &keyring(&[1]),
            FirstStamp::Rollout,
        );
        assert_eq!(decision, Decision::Keep);
    }
}
