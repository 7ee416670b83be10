//! The most frequent paths through the rules, each from the bytes received to the bytes sent.

use pod_reloader_core::admission::{Step, begin};
use pod_reloader_core::copies::Copies;
use pod_reloader_core::decision::{Decision, FirstStamp, decide};
use pod_reloader_core::digest::Objects;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::index::Index;
use pod_reloader_core::patch::{self, Stamp};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::review::{Request, response};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::WorkloadId;

use super::inputs;

/// Answers an admission without reading anything.
pub(crate) fn admission(review: &[u8], scope: &Scope, keys: &Keyring) -> Vec<u8> {
    let request = Request::parse(review).expect("it is a review");
    let step = begin(&request, scope, keys, "").expect("its objects are Deployments");
    let Step::Answer(answer) = step else {
        panic!("the pod template changes");
    };
    response(&request.uid, &answer.patch, &answer.warnings)
}

/// Answers an admission whose answer depends on `objects`.
pub(crate) fn admission_read(
    review: &[u8],
    objects: &[(Reference, String)],
    scope: &Scope,
    keys: &Keyring,
) -> Vec<u8> {
    let request = Request::parse(review).expect("it is a review");
    let step = begin(&request, scope, keys, "").expect("its objects are Deployments");
    let Step::Read(pending) = step else {
        panic!("the pod template stays the same");
    };
    let facts = pending.facts(read(objects), &Copies::new(), keys);
    let answer = pending.answer(facts.as_ref(), keys, FirstStamp::Rollout);
    response(&request.uid, &answer.patch, &answer.warnings)
}

/// Restarts the Deployment `id` because `objects` changed: from reading these to making the patch, and on
/// to reading the `answer`, which is the Deployment after the patch.
pub(crate) fn reconcile(
    index: &mut Index,
    id: &WorkloadId,
    objects: &[(Reference, String)],
    keys: &Keyring,
    answer: &str,
) -> Vec<u8> {
    let workload = index.workload(id).expect("the index knows it");
    let decision = decide(&workload, &read(objects), keys, FirstStamp::Rollout);
    let Decision::Set { config_hash, .. } = decision else {
        panic!("it stays as it is");
    };
    let patch = patch::stamp(&workload, &Stamp::of(&config_hash));
    let patch = serde_json::to_vec(&patch).expect("a patch can be JSON");
    index.apply(inputs::workload(answer));
    patch
}

fn read(objects: &[(Reference, String)]) -> Objects {
    objects
        .iter()
        .map(|(reference, json)| (reference.clone(), inputs::present(json)))
        .collect()
}
