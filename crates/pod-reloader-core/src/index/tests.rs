use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::dialect::Dialect;
use crate::dialects::Dialects;
use crate::fixtures::{Builder, deployment, reference};

fn affected(applied: Applied) -> Option<Affected> {
    match applied {
        Applied::Unchanged => None,
        Applied::Managed(affected) => Some(affected),
        Applied::LeftOut(_) => panic!("there is room for all"),
    }
}

fn references(applied: Applied) -> Option<Vec<Reference>> {
    affected(applied).map(|affected| affected.references)
}

fn is_managed(applied: &Applied) -> bool {
    matches!(applied, Applied::Managed(_))
}

fn names_of(index: &Index, config_map: &str) -> Vec<String> {
    index
        .workloads_of(&reference(config_map))
        .map(|id| id.name.to_string())
        .collect()
}

fn matching(workload: Builder, pattern: &str) -> Workload {
    workload
        .annotated("configmap.reloader.stakater.com/reload", pattern)
        .read_in(Dialects {
            spoken: BTreeSet::from([Dialect::PodReloader, Dialect::Stakater]),
            ..Dialects::default()
        })
}

fn namespace() -> Name {
    Name::parse("ns").unwrap()
}

/// Returns the weight of a workload that lists these.
fn weight_of(list: &str) -> usize {
    deployment("a").lists(list).build().weight()
}

#[test]
fn the_data_keys_that_any_workload_tracks_of_an_object_are_requested() {
    let mut index = Index::default();
    index.apply(deployment("web").lists("app[mode,level],other[x]").build());
    index.apply(deployment("api").lists("app[level]").build());
    let required = deployment("job").lists("app").requires("app", Some("url"));
    index.apply(required.build());
    let keys = |index: &Index| Vec::from_iter(index.data_keys(&reference("app")));
    assert_eq!(keys(&index), ["level", "mode", "url"].map(Box::from));
    index.delete(&deployment("web").build().id);
    assert_eq!(keys(&index), ["level", "url"].map(Box::from));
}

#[test]
fn a_workload_is_found_by_what_it_lists_now() {
    let mut index = Index::default();
    let new = index.apply(deployment("web").lists("a,b").build());
    assert_eq!(references(new), Some(vec![reference("a"), reference("b")]));
    assert_eq!(
        references(index.apply(deployment("api").lists("b").build())),
        Some(vec![])
    );
    assert_eq!(names_of(&index, "b"), ["api", "web"]);
    assert_eq!(index.referenced(), (2, 3));

    let affected = index.apply(deployment("web").lists("c").build());
    assert_eq!(
        references(affected),
        Some(vec![reference("a"), reference("c")])
    );
    assert_eq!(names_of(&index, "b"), ["api"]);
    assert_eq!(names_of(&index, "c"), ["web"]);
    assert!(!index.is_referenced(&reference("a")));
}

#[test]
fn the_same_workload_again_is_no_news() {
    let mut index = Index::default();
    let web = || deployment("web").lists("a");
    assert!(is_managed(&index.apply(web().build())));
    assert!(matches!(index.apply(web().build()), Applied::Unchanged));
    assert!(is_managed(&index.apply(web().stamped("x").build())));
    let known = index.workload(&web().build().id).unwrap();
    assert_eq!(known.config_hash(), Some("x"));
    assert_eq!(index.weight(&namespace()), known.weight());
}

#[test]
fn a_regular_expression_that_comes_or_goes_does_not_affect_what_others_track() {
    let mut index = Index::default();
    index.apply(deployment("web").lists("app,db").build());
    let came = affected(index.apply(matching(deployment("api"), "a.*"))).unwrap();
    assert_eq!(came.references, []);
    assert_eq!(came.namespaces, [(ConfigKind::ConfigMap, namespace())]);
    assert!(index.stays_tracked(&reference("app"), &came));
    assert!(!index.stays_tracked(&reference("agent"), &came));

    let narrower = affected(index.apply(matching(deployment("api"), "ag.*,x.*"))).unwrap();
    assert!(index.stays_tracked(&reference("agent"), &narrower));
    assert!(!index.stays_tracked(&reference("alloy"), &narrower));
    assert!(!index.stays_tracked(&reference("xenon"), &narrower));

    let went = index.delete(&deployment("api").build().id).unwrap();
    assert!(index.stays_tracked(&reference("app"), &went));
    assert!(!index.stays_tracked(&reference("agent"), &went));
}

#[test]
fn a_match_of_a_regular_expression_is_tracked_after_its_name_is_unlisted() {
    let mut index = Index::default();
    index.apply(matching(deployment("api"), "a.*"));
    let came = index.apply(deployment("web").lists("app,db").build());
    assert_eq!(references(came), Some(vec![reference("db")]));
    let went = index.delete(&deployment("web").build().id).unwrap();
    assert_eq!(went.references, [reference("db")]);
}

#[test]
fn all_that_name_an_object_share_the_reference_to_it() {
    let mut index = Index::default();
    let of = |name| deployment(name).lists("app,listed").requires("app", None);
    let workloads = ["web", "api"].map(|name| of(name).requires("other", None).build());
    let ids = workloads.each_ref().map(|workload| workload.id.clone());
    for workload in workloads {
        index.apply(workload);
    }
    let [web, api] = ids.map(|id| index.workload(&id).unwrap());
    for workload in [&web, &api] {
        let required = workload.requirements.iter().map(|it| &it.reference);
        let named = workload.references.shared();
        let all: Vec<_> = named.chain(&workload.listed_only).chain(required).collect();
        assert_eq!(all.len(), 4, "app and listed, listed alone, and app");
        for reference in all {
            let known = index.shared_reference(reference).unwrap();
            assert!(Arc::ptr_eq(reference, &known), "{reference}");
        }
    }
    let namespace = |workload: &Workload| {
        let [other] = &*workload.untracked_requirements else {
            panic!("the pods need one object that is not listed")
        };
        other.reference.namespace.as_str().as_ptr()
    };
    assert_eq!(namespace(&web), namespace(&api));
}

#[test]
fn a_namespace_that_is_full_takes_in_no_more_and_goes_on_with_what_it_has() {
    let mut index: Index = Index::new(2 * weight_of("a"));
    assert!(is_managed(&index.apply(deployment("c").lists("a").build())));
    assert!(is_managed(&index.apply(deployment("b").lists("a").build())));
    let mut apply = |name: &str| index.apply(deployment(name).lists("a").build());
    for (name, expected) in [
        ("a", (true, true)),
        ("d", (true, false)),
        ("a", (false, false)),
    ] {
        let Applied::LeftOut(LeftOut {
            affected: None,
            is_news,
            is_first,
            ..
        }) = apply(name)
        else {
            panic!("there is no room for {name}");
        };
        assert_eq!((is_news, is_first), expected, "{name}");
    }
    assert!(matches!(apply("c"), Applied::Unchanged));
    assert_eq!(names_of(&index, "a"), ["b", "c"]);
    assert!(is_managed(&index.apply(deployment("c").lists("b").build())));
}

#[test]
fn a_workload_that_outgrows_the_share_of_its_namespace_is_left_out_until_it_fits() {
    let mut index: Index = Index::new(weight_of("a") + weight_of("a,b"));
    for name in ["a", "b"] {
        index.apply(deployment(name).lists("a").build());
    }
    let Applied::LeftOut(LeftOut { affected, .. }) =
        index.apply(deployment("b").lists("a,b,c").build())
    else {
        panic!("it has become too large");
    };
    assert!(affected.is_some_and(|affected| affected.references.is_empty()));
    assert_eq!(names_of(&index, "a"), ["a"]);
    let id = deployment("b").build().id;
    assert!(index.is_left_out(&id));
    assert!(is_managed(
        &index.apply(deployment("b").lists("a,b").build())
    ));
    assert!(!index.is_left_out(&id));
}

#[test]
fn our_own_writes_make_no_workload_too_large() {
    let hash = format!("v1.dcdaaec6.{}", "0".repeat(64));
    let written = deployment("a").lists("a").stamped(&hash);
    let written = written.annotation("baseline", &format!("{hash}={hash}"));
    assert_eq!(written.build().weight(), weight_of("a"));
}

#[test]
fn workloads_that_were_left_out_are_named_once_they_fit() {
    let mut index: Index = Index::new(weight_of("a,b,c"));
    index.apply(deployment("z").lists("a,b,c").build());
    for (name, list) in [("a", "a,b,c,d"), ("b", "a"), ("c", "b"), ("d", "b,c")] {
        index.apply(deployment(name).lists(list).build());
    }
    assert_eq!(index.that_fit(&namespace()), []);
    assert_eq!(index.left_out().count(), 4);
    index.delete(&deployment("z").build().id);
    let fit = index.that_fit(&namespace());
    let names: Vec<_> = fit.iter().map(|id| &*id.name).collect();
    assert_eq!(
        names,
        ["b"],
        "the first is too large, the others do not fit beside it"
    );
    for name in ["a", "b", "c", "d"] {
        index.delete(&deployment(name).build().id);
    }
    assert_eq!(index.left_out().count(), 0);
    assert!(index.namespaces.is_empty());
}

#[test]
fn a_limited_number_of_left_out_workloads_is_remembered() {
    let mut index: Index = Index::new(0);
    for number in 0..=MAX_LEFT_OUT {
        index.apply(deployment(&format!("web-{number}")).lists("a").build());
    }
    assert_eq!(index.left_out().count(), MAX_LEFT_OUT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn both_ways_agree_after_any_history(
        history in prop::collection::vec(("[a-c]", prop::option::of("[a-d](,[a-d]){0,3}")), 0..40)
    ) {
        let mut index = Index::default();
        let mut expected = BTreeMap::new();
        for (name, list) in history {
            match list {
                Some(list) => {
                    index.apply(deployment(&name).lists(&list).build());
                    expected.insert(name, list);
                }
                None => {
                    index.delete(&deployment(&name).build().id);
                    expected.remove(&name);
                }
            }
        }
        for config_map in ["a", "b", "c", "d"] {
            let listing: Vec<_> = expected.iter()
                .filter(|(_, list)| list.split(',').any(|item| item == config_map))
                .map(|(name, _)| name.clone())
                .collect();
            prop_assert_eq!(names_of(&index, config_map), listing);
        }
    }

    #[test]
    fn a_namespace_never_weighs_more_than_its_share_after_any_history(
        history in prop::collection::vec(("[a-e]", prop::option::of("[a-d](,[a-d]){0,3}")), 0..40)
    ) {
        let share = 3 * weight_of("a");
        let mut index: Index = Index::new(share);
        let mut there = BTreeSet::new();
        for (name, list) in history {
            match list {
                Some(list) => {
                    index.apply(deployment(&name).lists(&list).build());
                    there.insert(name);
                }
                None => {
                    index.delete(&deployment(&name).build().id);
                    there.remove(&name);
                }
            }
            let managed: Vec<_> = index.workloads().cloned().collect();
            let weights = managed.iter().filter_map(|id| index.workload(id)).map(|it| it.weight());
            prop_assert_eq!(index.weight(&namespace()), weights.sum::<usize>());
            prop_assert!(index.weight(&namespace()) <= share);
            let all = managed.iter().chain(index.left_out());
            let mut all: Vec<_> = all.map(|id| id.name.to_string()).collect();
            all.sort();
            prop_assert!(all.iter().eq(&there));
        }
    }
}
