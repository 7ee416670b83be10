//! Properties of the rules, on inputs that nobody thought of. `make fuzz` looks for more.

mod annotations;
mod built_workload;
mod choices;
mod digests;
mod discovery;
mod metadata;
mod mutation;
mod needs;
mod object;
mod patches;
mod pinned_pods;
mod pod_spec;
mod raw;
mod reviews;
mod templates;
mod workloads;
mod written;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn lists_are_read_up_to_the_first_256_valid_names(lists in "[a-c.A\\-, |\u{0}ä]{0,60}") {
        annotations::hold(lists.as_bytes());
    }

    #[test]
    fn the_first_256_names_of_long_lists_are_tracked(names in vec(0..1296_u16, 200..600)) {
        let names: Vec<_> = names.iter().map(|name| format!("{name:x}")).collect();
        annotations::hold(names.join(",").as_bytes());
    }

    #[test]
    fn a_review_is_answered_with_a_patch_that_applies(choices in vec(any::<u8>(), 0..200)) {
        reviews::hold_mutated(&choices);
    }

    #[test]
    fn any_bytes_are_a_review_or_refused(body in vec(any::<u8>(), 0..200)) {
        reviews::hold(&body);
    }

    #[test]
    fn different_contents_have_different_digests(choices in vec(any::<u8>(), 0..60)) {
        digests::hold(&choices);
    }

    #[test]
    fn the_loops_write_applies_only_to_what_it_was_based_on(choices in vec(any::<u8>(), 0..60)) {
        patches::hold(&choices);
    }

    #[test]
    fn every_use_of_config_in_a_pod_spec_is_found(choices in vec(any::<u8>(), 0..1000)) {
        discovery::hold(&choices);
    }

    #[test]
    fn pods_lack_what_keeps_a_kubelet_from_starting_them(choices in vec(any::<u8>(), 0..1000)) {
        needs::hold(&choices);
    }

    #[test]
    fn json_is_read_the_same_whether_it_is_built_or_not(choices in vec(any::<u8>(), 0..400)) {
        raw::hold(&choices);
    }

    #[test]
    fn all_names_of_pinned_config_maps_in_a_pod_are_replaced_or_none(choices in vec(any::<u8>(), 0..600)) {
        pinned_pods::hold(&choices);
    }

    #[test]
    fn a_workload_is_read_the_same_whether_it_is_built_or_not(choices in vec(any::<u8>(), 0..600)) {
        workloads::hold(&choices);
    }

    #[test]
    fn pod_templates_differ_if_more_than_what_is_ours_differs(choices in vec(any::<u8>(), 0..800)) {
        templates::hold(&choices);
    }

    #[test]
    fn metadata_is_read_the_same_whether_it_is_built_or_not(choices in vec(any::<u8>(), 0..200)) {
        metadata::hold(&choices);
    }
}
