//! The checks of each target: the properties that the tests of `pod-reloader-core` check, too.

#[path = "../../crates/pod-reloader-core/tests/properties/annotations.rs"]
mod annotations;
#[path = "../../crates/pod-reloader-core/tests/properties/built_workload.rs"]
mod built_workload;
#[path = "../../crates/pod-reloader-core/tests/properties/choices.rs"]
mod choices;
#[path = "../../crates/pod-reloader-core/tests/properties/digests.rs"]
mod digests;
#[path = "../../crates/pod-reloader-core/tests/properties/discovery.rs"]
mod discovery;
#[path = "../../crates/pod-reloader-core/tests/properties/metadata.rs"]
mod metadata;
#[path = "../../crates/pod-reloader-core/tests/properties/mutation.rs"]
mod mutation;
#[path = "../../crates/pod-reloader-core/tests/properties/needs.rs"]
mod needs;
#[path = "../../crates/pod-reloader-core/tests/properties/object.rs"]
mod object;
#[path = "../../crates/pod-reloader-core/tests/properties/patches.rs"]
mod patches;
#[path = "../../crates/pod-reloader-core/tests/properties/pinned_pods.rs"]
mod pinned_pods;
#[path = "../../crates/pod-reloader-core/tests/properties/pod_spec.rs"]
mod pod_spec;
#[path = "../../crates/pod-reloader-core/tests/properties/raw.rs"]
mod raw;
#[path = "../../crates/pod-reloader-core/tests/properties/reviews.rs"]
mod reviews;
#[path = "../../crates/pod-reloader-core/tests/properties/templates.rs"]
mod templates;
#[path = "../../crates/pod-reloader-core/tests/properties/workloads.rs"]
mod workloads;
#[path = "../../crates/pod-reloader-core/tests/properties/written.rs"]
mod written;

/// Lists come to references.
pub fn annotations(input: &[u8]) {
    annotations::hold(input);
}

/// Pods lack what keeps a kubelet from starting them.
pub fn needs(input: &[u8]) {
    needs::hold(input);
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

/// JSON is read the same whether it is built or only looked into.
pub fn raw(input: &[u8]) {
    raw::hold(input);
}

/// All names of pinned ConfigMaps in a pod are replaced, or none.
pub fn pinned_pods(input: &[u8]) {
    pinned_pods::hold(input);
}

/// A workload is read the same whether it is built or not.
pub fn workloads(input: &[u8]) {
    workloads::hold(input);
}

/// Pod templates differ if more than what is ours differs.
pub fn templates(input: &[u8]) {
    templates::hold(input);
}

/// Metadata is read the same whether it is built or not.
pub fn metadata(input: &[u8]) {
    metadata::hold(input);
}
