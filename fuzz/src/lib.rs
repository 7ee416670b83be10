//! The checks of each target: the properties that the tests of `pod-reloader-core` check, too.

#[path = "../../crates/pod-reloader-core/tests/properties/annotations.rs"]
mod annotations;
#[path = "../../crates/pod-reloader-core/tests/properties/choices.rs"]
mod choices;
#[path = "../../crates/pod-reloader-core/tests/properties/digests.rs"]
mod digests;
#[path = "../../crates/pod-reloader-core/tests/properties/discovery.rs"]
mod discovery;
#[path = "../../crates/pod-reloader-core/tests/properties/mutation.rs"]
mod mutation;
#[path = "../../crates/pod-reloader-core/tests/properties/object.rs"]
mod object;
#[path = "../../crates/pod-reloader-core/tests/properties/patches.rs"]
mod patches;
#[path = "../../crates/pod-reloader-core/tests/properties/pod_spec.rs"]
mod pod_spec;
#[path = "../../crates/pod-reloader-core/tests/properties/reviews.rs"]
mod reviews;

/// Lists come to references.
pub fn annotations(input: &[u8]) {
    annotations::hold(input);
}

/// Any bytes are a review that can be answered, or refused.
pub fn reviews(input: &[u8]) {
    reviews::hold(input);
}

/// Reviews with some changes are answered with a patch that applies.
pub fn mutated_reviews(input: &[u8]) {
    reviews::hold_mutated(input);
}

/// Every use of a config object in a pod spec is found.
pub fn discovery(input: &[u8]) {
    discovery::hold(input);
}

/// Different contents have different digests and hashes.
pub fn digests(input: &[u8]) {
    digests::hold(input);
}

/// The loop's patch applies to the workload that it was made from alone.
pub fn patches(input: &[u8]) {
    patches::hold(input);
}
