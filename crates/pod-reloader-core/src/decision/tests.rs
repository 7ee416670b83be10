use super::*;
use crate::annotations;
use crate::dialect::Dialect;
use crate::dialects::Dialects;
use crate::digest::ConfigObject;
use crate::fixtures::{Builder, config_map, deployment, hashed_by, holding, keyring, objects};
use crate::hash::{HashKey, KEY_LENGTH};
use crate::mark::Marks;
use crate::workload::TimeField;
use serde_json::json;
use sha2::{Digest as _, Sha256};

fn now(object: Option<ConfigObject>) -> Objects {
    objects(&[("a", object)])
}

fn hash(value: &str) -> String {
    hashed_by(1, &now(holding(value)))
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
fn a_hash_that_stands_for_the_contents_stays() {
    assert_eq!(
        decided(deployment("web").stamped(&hash("1")), holding("1")),
        Decision::Unchanged
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
    let absent = hashed_by(1, &now(None));
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
fn the_hash_stays_while_a_required_object_is_missing_and_if_it_returns_unchanged() {
    let workload = || deployment("web").requires("a", None).stamped(&hash("1"));
    let Decision::MissingConfig(missing) = decided(workload(), None) else {
        panic!()
    };
    assert_eq!(missing[0].reference.name.as_str(), "a");
    assert_eq!(decided(workload(), holding("1")), Decision::Unchanged);
    assert_eq!(decided(workload(), holding("2")), changed("2"));
}

#[test]
fn a_workload_that_was_created_before_a_required_object_waits_like_one_that_lost_it() {
    let absent = hashed_by(1, &now(None));
    let workload = || deployment("web").requires("a", None).stamped(&absent);
    let Decision::MissingConfig(missing) = decided(workload(), None) else {
        panic!()
    };
    assert_eq!(missing[0].reference.name.as_str(), "a");
    assert_eq!(decided(workload(), holding("1")), changed("1"));
}

/// Decides for a workload that is restarted in the given way.
fn decided_by(restart: Restart, workload: Builder, object: Option<ConfigObject>) -> Decision {
    let mut workload = workload.lists("a").build();
    workload.restart = restart;
    let first_stamp = FirstStamp::Rollout;
    decide(&workload, &now(object), &keyring(&[1]), first_stamp)
}

fn by_time() -> Restart {
    let (depth, value) = (0, None);
    Restart::At(Box::new(TimeField { depth, value }))
}

#[test]
fn a_pending_change_restarts_a_workload_that_switches_to_a_restart_time() {
    let foreign = || deployment("web").stamped("x");
    for before in [
        || deployment("web").stamped(&hash("1")),
        || deployment("web").annotation("baseline", &format!("={}", hash("1"))),
        || {
            let baseline = format!("x={}", hash("1"));
            deployment("web")
                .stamped("x")
                .annotation("baseline", &baseline)
        },
        || {
            let (other, now) = (hash("0"), hash("1"));
            let workload = deployment("web").stamped(&other);
            workload.annotation("baseline", &format!("{other}~={now}"))
        },
    ] {
        let decided = |value| decided_by(by_time(), before(), holding(value));
        assert_eq!(decided("2"), changed("2"));
        let unchanged = Decision::Baseline(baseline_by_time(&hash("1")));
        assert_eq!(decided("1"), unchanged, "no restart without a change");
    }
    let unknown = decided_by(by_time(), foreign(), holding("2"));
    assert_eq!(unknown, Decision::Baseline(baseline_by_time(&hash("2"))));
}

#[test]
fn a_pending_change_restarts_a_workload_that_switches_back_to_its_template() {
    let baseline = baseline_by_time(&hash("1"));
    for (before, value) in [
        (deployment("web"), ""),
        (deployment("web").stamped("x"), "x"),
        (deployment("web").stamped(&hash("0")), &hash("0")),
    ] {
        let before = before.annotation("baseline", &baseline).json();
        let decided = |value| decided_by(Restart::Template, before.clone().into(), holding(value));
        assert_eq!(decided("2"), changed("2"), "{value}");
        let Decision::Baseline(baseline) = decided("1") else {
            panic!("{value}: {:?}", decided("1"));
        };
        assert!(
            baseline.ends_with(&hash("1")),
            "no restart without a change"
        );
    }
}

#[test]
fn the_hash_stays_while_a_required_data_key_is_missing() {
    let workload = deployment("web")
        .requires("a", Some("gone"))
        .stamped(&hash("1"));
    assert!(matches!(
        decided(workload, holding("2")),
        Decision::MissingConfig(_)
    ));
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
    assert_eq!(with_flag(workload(), holding("1")), Decision::Unchanged);
    assert_eq!(with_flag(workload(), holding("2")), changed("2"));
    assert_eq!(decided(workload(), holding("1")), Decision::Unchanged);
}

#[test]
fn a_first_stamp_waits_for_what_the_pods_need() {
    let workload = deployment("web").requires("a", None);
    assert!(matches!(
        decided(workload, None),
        Decision::MissingConfig(_)
    ));
}

#[test]
fn the_hash_keys_of_hash_and_baseline_are_relied_on() {
    let relied_on = |workload: &Workload| Vec::from_iter(keys_relied_on(workload));
    let key = |seed| HashKey::new([seed; KEY_LENGTH]).id();
    let objects = objects(&[("app", holding("1"))]);
    let hash = |seed| hashed_by(seed, &objects);
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
fn a_foreign_value_gets_a_baseline_and_rolls_when_the_contents_differ_from_it() {
    for foreign in ["rubbish", "", "a=b", &hashed_by(9, &now(None))] {
        let workload = || deployment("web").stamped(foreign);
        let baseline = format!("{foreign}={}", hash("1"));
        assert_eq!(
            decided(workload(), holding("1")),
            Decision::Baseline(baseline.clone())
        );
        let workload = || workload().annotation("baseline", &baseline);
        assert_eq!(decided(workload(), holding("1")), Decision::Unchanged);
        assert_eq!(decided(workload(), holding("2")), changed("2"));
    }
}

#[test]
fn a_baseline_of_another_value_or_under_a_lost_key_is_written_anew() {
    let lost = hashed_by(9, &now(holding("1")));
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
    assert!(matches!(
        decided(workload(), None),
        Decision::MissingConfig(_)
    ));
    let baseline = Decision::Baseline(format!("x={}", hash("1")));
    assert_eq!(decided(workload(), holding("1")), baseline);
}

#[test]
fn the_hash_of_a_workload_whose_lists_name_nothing_stays() {
    let workload = deployment("web").lists(" , ?limit=1").build();
    let decision = decide(
        &workload,
        &objects(&[]),
        &keyring(&[1]),
        FirstStamp::Rollout,
    );
    assert_eq!(decision, Decision::Unchanged);
}

/// A workload read in our dialect and Stakater's, with ConfigMaps `a`, `b` and so on of given values.
struct Mixed {
    workload: Builder,
    objects: Objects,
}

impl Mixed {
    fn new(annotations: &[(&str, &str)]) -> Self {
        let annotate =
            |workload: Builder, (key, value): &(&str, &str)| workload.annotated(key, value);
        Self {
            workload: annotations.iter().fold(deployment("web"), annotate),
            objects: Objects::new(),
        }
    }

    fn using(mut self, name: &str) -> Self {
        let env = json!([{"envFrom": [{"configMapRef": {"name": name}}]}]);
        let containers = "/spec/template/spec/containers";
        self.workload = self.workload.with(containers, env);
        self
    }

    fn holding(mut self, name: &str, value: &str) -> Self {
        self.objects.extend(objects(&[(name, holding(value))]));
        self
    }

    fn ignoring(self, name: &str, value: &str) -> Self {
        self.marked(name, value, Marks::STAKATER_IGNORE)
    }

    fn matching(self, name: &str, value: &str) -> Self {
        self.marked(name, value, Marks::STAKATER_MATCH)
    }

    fn marked(mut self, name: &str, value: &str, marks: Marks) -> Self {
        let mut object = holding(value).unwrap();
        object.marks = marks;
        self.objects.extend(objects(&[(name, Some(object))]));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.objects.extend(objects(&[(name, None)]));
        self
    }

    fn stamped(mut self, value: &str) -> Self {
        self.workload = self.workload.stamped(value);
        self
    }

    fn with_baseline(mut self, baseline: &str) -> Self {
        self.workload = self.workload.annotation("baseline", baseline);
        self
    }

    fn decided(self) -> Decision {
        let spoken = [Dialect::PodReloader, Dialect::Stakater];
        let workload = self.workload.read_in(Dialects {
            spoken: spoken.into(),
            ..Dialects::default()
        });
        decide(
            &workload,
            &self.objects,
            &keyring(&[1]),
            FirstStamp::Rollout,
        )
    }
}

const LIST: (&str, &str) = (annotations::CONFIG_MAPS, "a");
const RELOAD: &str = "configmap.reloader.stakater.com/reload";
const SEARCH: &str = "reloader.stakater.com/search";

fn hash_of(values: &[(&str, &str)]) -> String {
    let objects: Objects = values
        .iter()
        .flat_map(|(name, value)| objects(&[(name, holding(value))]))
        .collect();
    hashed_by(1, &objects)
}

fn rolls(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::Set {
            cause: Cause::Changed,
            ..
        }
    )
}

#[test]
fn a_workload_that_opts_in_by_another_dialect_gets_a_baseline_first() {
    let stakater = Mixed::new(&[(RELOAD, "a")]).holding("a", "1").decided();
    assert_eq!(
        stakater,
        Decision::Baseline(format!("={}", hash_of(&[("a", "1")])))
    );
    let both = Mixed::new(&[(RELOAD, "a"), LIST])
        .holding("a", "1")
        .decided();
    assert!(matches!(
        both,
        Decision::Set {
            cause: Cause::FirstStamp,
            ..
        }
    ));
}

#[test]
fn another_dialect_rolls_nothing_and_what_it_adds_is_tracked_from_then_on() {
    let both = || Mixed::new(&[LIST, (RELOAD, "b")]).stamped(&hash_of(&[("a", "1")]));
    let all = hash_of(&[("a", "1"), ("b", "1")]);
    let baseline = format!("{}~={all}", hash_of(&[("a", "1")]));
    let now = |b| both().holding("a", "1").holding("b", b);
    assert_eq!(now("1").decided(), Decision::Baseline(baseline.clone()));
    assert_eq!(
        now("1").with_baseline(&baseline).decided(),
        Decision::Unchanged
    );
    assert!(rolls(&now("2").with_baseline(&baseline).decided()));
    // If both happen at once, that is a change.
    let changed = both().holding("a", "2").holding("b", "1");
    assert!(rolls(&changed.decided()));
}

#[test]
fn a_match_that_comes_rolls_even_beside_another_dialect() {
    let both = Mixed::new(&[LIST, (RELOAD, "b.*")]).stamped(&hash_of(&[("a", "1")]));
    assert!(rolls(&both.holding("a", "1").holding("b1", "1").decided()));
}

#[test]
fn a_mark_that_is_set_or_taken_away_rolls_nothing() {
    let (two, one) = (hash_of(&[("a", "1"), ("b", "1")]), hash_of(&[("a", "1")]));
    let ignored = |stamp: &str| {
        Mixed::new(&[(RELOAD, "a,b")])
            .stamped(stamp)
            .holding("a", "1")
            .ignoring("b", "1")
    };
    let counting = |stamp: &str| {
        Mixed::new(&[(RELOAD, "a,b")])
            .stamped(stamp)
            .holding("a", "1")
            .holding("b", "1")
    };
    assert_eq!(
        ignored(&two).decided(),
        Decision::Baseline(format!("{two}~={one}"))
    );
    assert_eq!(
        counting(&one).decided(),
        Decision::Baseline(format!("{one}~={two}"))
    );
    let marked_again = counting(&two).with_baseline(&format!("{two}~={one}"));
    assert_eq!(marked_again.decided(), Decision::Unchanged);
    // A change made while the object is ignored restarts nothing, even after the mark is removed.
    let unmarked = counting(&two)
        .holding("b", "2")
        .with_baseline(&format!("{two}~={one}"));
    assert!(matches!(unmarked.decided(), Decision::Baseline(_)));
}

#[test]
fn every_mark_at_once_rolls_nothing() {
    let names = ["a", "b", "c", "d"];
    let all = hash_of(&names.map(|name| (name, "1")));
    let ignoring = |marked: &[&str]| {
        names.iter().fold(
            Mixed::new(&[(RELOAD, "a,b,c,d,e")]).stamped(&all),
            |mixed, name| match marked.contains(name) {
                true => mixed.ignoring(name, "1"),
                false => mixed.holding(name, "1"),
            },
        )
    };
    assert!(matches!(
        ignoring(&names[1..]).ignoring("e", "1").decided(),
        Decision::Set { .. }
    ));
    let others = ignoring(&["b", "c"]).ignoring("e", "1");
    let first = ignoring(&["b"]).ignoring("e", "1").decided();
    let Decision::Baseline(baseline) = first else {
        panic!()
    };
    assert!(matches!(
        others.with_baseline(&baseline).decided(),
        Decision::Baseline(_)
    ));
}

#[test]
fn a_match_of_a_regular_expression_rolls_when_it_comes_and_goes() {
    let matching = || Mixed::new(&[(RELOAD, "a.*")]);
    let (one, two) = (
        hash_of(&[("a1", "1")]),
        hash_of(&[("a1", "1"), ("a2", "1")]),
    );
    let came = matching()
        .stamped(&one)
        .holding("a1", "1")
        .holding("a2", "1");
    assert!(rolls(&came.decided()));
    let gone = matching().stamped(&two).holding("a1", "1").without("a2");
    assert!(rolls(&gone.decided()));
    let stays = matching().stamped(&one).holding("a1", "1").without("a2");
    assert_eq!(stays.decided(), Decision::Unchanged);
}

#[test]
fn a_match_that_the_pods_need_is_missing_config_while_it_is_gone() {
    let matching = || {
        let mut matching = Mixed::new(&[(RELOAD, "a.*")]);
        matching.workload = matching.workload.requires("a1", None);
        matching.stamped(&hash_of(&[("a1", "1"), ("a2", "1")]))
    };
    for value in ["1", "2"] {
        let gone = matching().holding("a2", value).decided();
        assert!(matches!(gone, Decision::MissingConfig(_)), "{gone:?}");
    }
    let back = || matching().holding("a1", "1");
    assert_eq!(back().holding("a2", "1").decided(), Decision::Unchanged);
    assert!(rolls(&back().holding("a2", "2").decided()));
}

#[test]
fn the_first_match_that_comes_and_the_last_that_goes_roll() {
    let (none, one) = (hash_of(&[]), hash_of(&[("a1", "1")]));
    let matching = || Mixed::new(&[(RELOAD, "a.*")]);
    let baseline = format!("={none}");
    assert_eq!(matching().decided(), Decision::Baseline(baseline.clone()));
    let waiting = || matching().with_baseline(&baseline);
    assert_eq!(waiting().decided(), Decision::Unchanged);
    assert!(rolls(&waiting().holding("a1", "1").decided()));
    assert!(rolls(&matching().stamped(&one).decided()));
    assert_eq!(matching().stamped(&none).decided(), Decision::Unchanged);
}

#[test]
fn a_mark_on_the_only_object_rolls_nothing() {
    for list in [(RELOAD, "a"), (SEARCH, "true")] {
        let web = |stamp: &str| Mixed::new(&[list]).using("a").stamped(stamp);
        let (none, one) = (hash_of(&[]), hash_of(&[("a", "1")]));
        let ignored = Decision::Baseline(format!("{one}~={none}"));
        assert_eq!(web(&one).ignoring("a", "1").decided(), ignored, "{list:?}");
        let changed = || web(&one).with_baseline(&format!("{one}~={none}"));
        assert_eq!(changed().ignoring("a", "2").decided(), Decision::Unchanged);
        let counts = Decision::Baseline(format!("{one}~={}", hash_of(&[("a", "2")])));
        assert_eq!(changed().matching("a", "2").decided(), counts);
    }
}

#[test]
fn a_match_mark_that_is_taken_away_rolls_nothing() {
    let (none, one) = (hash_of(&[]), hash_of(&[("a", "1")]));
    let web = || Mixed::new(&[(SEARCH, "true")]).using("a").stamped(&one);
    let baseline = format!("{one}~={none}");
    let unmarked = web().holding("a", "1").decided();
    assert_eq!(unmarked, Decision::Baseline(baseline.clone()));
    let changed = web().holding("a", "2").with_baseline(&baseline);
    assert_eq!(changed.decided(), Decision::Unchanged);
}

#[test]
fn an_object_that_is_no_longer_selected_rolls_nothing_in_any_dialect() {
    for list in [LIST, (RELOAD, "a")] {
        let (none, one) = (hash_of(&[]), hash_of(&[("a", "1")]));
        let baseline = format!("{one}~={none}");
        let web = |value, mark| {
            let web = Mixed::new(&[list]).stamped(&one);
            web.marked("a", value, mark)
        };
        let hidden = web("1", Marks::NOT_SELECTED).decided();
        assert_eq!(hidden, Decision::Baseline(baseline.clone()), "{list:?}");
        let changed = web("2", Marks::NOT_SELECTED).with_baseline(&baseline);
        assert_eq!(changed.decided(), Decision::Unchanged, "{list:?}");
        let selected = web("2", Marks::SELECTED).with_baseline(&baseline);
        let counts = Decision::Baseline(format!("{one}~={}", hash_of(&[("a", "2")])));
        assert_eq!(selected.decided(), counts, "{list:?}");
    }
}

/// This differs from Stakater's Reloader: one hash covers all objects, so it cannot tell that only the
/// marked object has changed.
#[test]
fn content_that_changes_together_with_a_mark_rolls_once_if_it_was_tracked() {
    let both = hash_of(&[("a", "1"), ("b", "1")]);
    let ignored = Mixed::new(&[(RELOAD, "a,b")]).stamped(&both);
    let ignored = ignored.holding("a", "1").ignoring("b", "2");
    assert!(rolls(&ignored.decided()));
    let none = hash_of(&[]);
    let matched = Mixed::new(&[(SEARCH, "true")]).using("a").stamped(&none);
    let counts = Decision::Baseline(format!("{none}~={}", hash_of(&[("a", "2")])));
    assert_eq!(matched.matching("a", "2").decided(), counts);
}

/// Returns a workload that searches among `a`, which exists with a mark, and `names`.
fn searching(names: &[&str]) -> Mixed {
    let names = names.iter().chain(&["a"]);
    let from = names.map(|name| json!({"configMapRef": {"name": name, "optional": true}}));
    let mut search = Mixed::new(&[(SEARCH, "true")]).matching("a", "1");
    let containers = json!([{"envFrom": from.collect::<Vec<_>>()}]);
    search.workload = search
        .workload
        .with("/spec/template/spec/containers", containers);
    search
}

/// Returns the hash that `search` would be stamped with.
fn hash_in(search: Mixed) -> String {
    match search.decided() {
        Decision::Baseline(baseline) => baseline.trim_start_matches('=').to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_that_is_created_with_the_mark_rolls_and_one_that_gets_it_does_not() {
    let absent = hash_in(searching(&["b"]).without("b"));
    let created = searching(&["b"]).matching("b", "1").stamped(&absent);
    assert!(rolls(&created.decided()));

    let unmarked = hash_in(searching(&["b"]).holding("b", "1"));
    let marked = || searching(&["b"]).matching("b", "1");
    let baseline = Decision::Baseline(format!("{unmarked}~={}", hash_in(marked())));
    assert_eq!(marked().stamped(&unmarked).decided(), baseline);
}

#[test]
fn an_object_with_the_mark_rolls_when_it_goes_and_when_it_comes_again() {
    let there = hash_in(searching(&["b"]).matching("b", "1"));
    let Decision::Set { config_hash, .. } =
        searching(&["b"]).without("b").stamped(&there).decided()
    else {
        panic!("it is gone")
    };
    let again = searching(&["b"]).matching("b", "2").stamped(&config_hash);
    assert!(rolls(&again.decided()));
}

#[test]
fn objects_without_the_mark_that_come_and_go_roll_nothing() {
    let names = ["b", "c", "d", "e"];
    let at = |name: &str, created: &str| {
        let mut object = holding("1").unwrap();
        object.created = Some(created.parse().unwrap());
        objects(&[(name, Some(object))])
    };
    // The names are in a different order than the times.
    let all = ["03", "01", "04", "02"];
    let there = |count: usize| {
        let mut search = searching(&names);
        for (name, created) in names.iter().zip(all) {
            search = match created.parse::<usize>().unwrap() <= count {
                true => {
                    search.objects.extend(at(name, created));
                    search
                }
                false => search.without(name),
            };
        }
        search
    };
    for before in 0..=4 {
        for after in 0..=4 {
            let now = there(after).stamped(&hash_in(there(before))).decided();
            let is_known = before == after || after > before;
            let is_baseline = matches!(now, Decision::Baseline(_)) || now == Decision::Unchanged;
            assert!(is_baseline || !is_known, "{before} {after}: {now:?}");
        }
    }
    let gone = there(1).stamped(&hash_in(there(2))).decided();
    assert!(matches!(gone, Decision::Baseline(_)), "{gone:?}");
}

#[test]
fn a_mark_on_what_a_regular_expression_matches_rolls_nothing() {
    let (both, one) = (
        hash_of(&[("a1", "1"), ("a2", "1")]),
        hash_of(&[("a2", "1")]),
    );
    let baseline = format!("{both}~={one}");
    let web = || {
        let web = Mixed::new(&[(RELOAD, "a.*")]).holding("a2", "1");
        web.stamped(&both)
    };
    let ignored = web().ignoring("a1", "1").decided();
    assert_eq!(ignored, Decision::Baseline(baseline.clone()));
    let changed = web().ignoring("a1", "2").with_baseline(&baseline);
    assert_eq!(changed.decided(), Decision::Unchanged);
    let unmarked = web().holding("a1", "1").with_baseline(&baseline);
    assert_eq!(unmarked.decided(), Decision::Unchanged);
}

#[test]
fn nothing_rolls_while_nothing_is_tracked_yet() {
    let mut hidden = holding("1").unwrap();
    hidden.marks = Marks::NOT_SELECTED;
    let baseline = Decision::Baseline(format!("={}", hash_of(&[])));
    assert_eq!(decided(deployment("web"), Some(hidden)), baseline);
}

#[test]
fn a_listed_object_that_comes_or_goes_rolls_in_other_dialects_too() {
    let listing = || Mixed::new(&[(RELOAD, "a")]);
    let gone = listing().stamped(&hash_of(&[("a", "1")])).without("a");
    assert!(rolls(&gone.decided()));
    let absent = objects(&[("a", None)]);
    let absent = hashed_by(1, &absent);
    assert!(rolls(
        &listing().stamped(&absent).holding("a", "1").decided()
    ));
}

#[test]
fn only_changes_of_tracked_data_keys_roll() {
    let object = |x: &str, y: &str| Some(config_map(&json!({"data": {"x": x, "y": y}})));
    let decided = |stamp: &str, object| {
        let workload = deployment("web").lists("a[x,gone]").stamped(stamp).build();
        decide(&workload, &now(object), &keyring(&[1]), FirstStamp::Rollout)
    };
    let Decision::Set { config_hash, .. } = decided(&hash("1"), object("1", "1")) else {
        panic!()
    };
    assert_eq!(decided(&config_hash, object("1", "2")), Decision::Unchanged);
    assert!(rolls(&decided(&config_hash, object("2", "1"))));
    let gone = Some(config_map(&json!({"data": {"y": "1"}})));
    assert!(rolls(&decided(&config_hash, gone)));
    assert!(rolls(&decided(&config_hash, None)));
}

/// A Deployment whose config hash stands for `stamped`, and whose pods have reloaded `reloaded` since.
fn reloaded(stamped: &str, reloaded: &str) -> Builder {
    let workload = deployment("web").lists("a").stamped(&hash(stamped)).build();
    let baseline = baseline_after_reload(&workload, &hash(reloaded));
    deployment("web")
        .stamped(&hash(stamped))
        .annotation("baseline", &baseline)
}

#[test]
fn content_that_pods_have_reloaded_is_what_they_have() {
    assert_eq!(
        decided(reloaded("1", "2"), holding("2")),
        Decision::Unchanged
    );
    assert_eq!(decided(reloaded("1", "2"), holding("3")), changed("3"));
    // It makes no difference from whom the config hash is.
    let of_others = deployment("web").stamped("x");
    let of_others = of_others.annotation("baseline", &format!("x!={}", hash("2")));
    assert_eq!(decided(of_others, holding("2")), Decision::Unchanged);
    let none = deployment("web").annotation("baseline", &format!("!={}", hash("2")));
    assert_eq!(decided(none, holding("2")), Decision::Unchanged);
}

#[test]
fn content_that_comes_back_after_a_reload_is_due_under_another_hash() {
    let Decision::Set { config_hash, cause } = decided(reloaded("1", "2"), holding("1")) else {
        panic!("the pods have reloaded other content")
    };
    assert_eq!(cause, Cause::Changed);
    assert_ne!(config_hash, hash("1"), "the pod template would not change");
    let objects = now(holding("1"));
    let verdict = keyring(&[1]).verify(&config_hash, &Contents::whole(&objects));
    assert_eq!(verdict, Verdict::Current);
    // Every replica sets the same.
    let again = decided(reloaded("1", "2"), holding("1"));
    assert_eq!(
        again,
        Decision::Set {
            config_hash: config_hash.clone(),
            cause
        }
    );
    // Once it is set, what was reloaded before says nothing.
    let baseline = format!("{}!={}", hash("1"), hash("2"));
    let restarted = deployment("web")
        .stamped(&config_hash)
        .annotation("baseline", &baseline);
    assert_eq!(decided(restarted, holding("1")), Decision::Unchanged);
    let reloaded = format!("{config_hash}!={}", hash("2"));
    let reloaded = deployment("web")
        .stamped(&config_hash)
        .annotation("baseline", &reloaded);
    let Decision::Set {
        config_hash: third, ..
    } = decided(reloaded, holding("1"))
    else {
        panic!("the pods have reloaded other content")
    };
    assert!(third != config_hash && third != hash("1"));
}

#[test]
fn a_reload_that_has_not_ended_is_due_whatever_the_content_is() {
    let workload = deployment("web").lists("a").stamped(&hash("1")).build();
    let baseline = baseline_before_reload(&workload);
    let reloading = || {
        let workload = deployment("web").stamped(&hash("1"));
        workload.annotation("baseline", &baseline)
    };
    assert!(is_reloading(&reloading().lists("a").build()));
    assert_eq!(decided(reloading(), holding("2")), changed("2"));
    let back = decided(reloading(), holding("1"));
    assert!(
        matches!(
            back,
            Decision::Set {
                cause: Cause::Changed,
                ..
            }
        ),
        "{back:?}"
    );
    // A new config hash has restarted the pods in the meantime.
    let restarted = deployment("web").stamped(&hash("2"));
    let restarted = restarted.annotation("baseline", &baseline).lists("a");
    assert!(!is_reloading(&restarted.build()));
}

#[test]
fn a_lost_key_of_what_was_reloaded_restarts_nothing() {
    let lost = hashed_by(9, &now(holding("2")));
    let baseline = format!("{}!={lost}", hash("1"));
    let workload = deployment("web").stamped(&hash("1"));
    let workload = workload.annotation("baseline", &baseline);
    let expected = Decision::Baseline(format!("{}!={}", hash("1"), hash("3")));
    assert_eq!(decided(workload, holding("3")), expected);
}

#[test]
fn the_key_of_what_was_reloaded_is_relied_on() {
    let lost = keyring(&[9]).hash(&Contents::whole(&now(holding("2"))));
    let workload = deployment("web").stamped(&hash("1"));
    let workload = workload.annotation("baseline", &format!("{}!={lost}", hash("1")));
    assert!(keys_relied_on(&workload.build()).contains(&lost.key_id));
}
