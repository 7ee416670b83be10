//! Publishes the metrics that are computed from all workloads, and forgets what they no longer need.

use super::Reconciler;
use crate::restart::clock::now;

/// Updates these metrics, and forgets whatever is no longer of use.
pub(super) fn publish(reconciler: &Reconciler) {
    let (workloads, digests) = (&reconciler.workloads, &reconciler.digests);
    let (progress, metrics) = (&reconciler.progress, &reconciler.metrics);
    digests.retain(|object| workloads.ask(|it| it.is_referenced(object)));
    progress.recent_writes.tidy();
    reconciler.lost_settings.deleted.lock().tidy(now());
    let (config_objects, references) = workloads.ask(|it| it.referenced());
    metrics.config_objects.set(config_objects as i64);
    metrics.references.set(references as i64);
    metrics.digests.set(digests.len() as i64);
    let left_out = workloads.ask(|it| it.left_out().count());
    metrics.left_out.set(left_out as i64);
    if reconciler.pins.is_some() {
        let without_copies = workloads.without_copies();
        metrics.without_copies.set(without_copies as i64);
    }
    // While lists are missing, some workloads are unknown, and so are the keys that they rely on.
    if reconciler.lists.are_due() {
        return;
    }
    let Some(keys) = reconciler.keys.keyring() else {
        return;
    };
    let relied_on = workloads.relying_on_keys().into_iter();
    let relied_on = relied_on.map(|(key_id, count)| {
        if keys.has(key_id) {
            return (Some(key_id), count);
        }
        progress.log_unknown_key(key_id, count);
        (None, count)
    });
    metrics.hashes(relied_on);
}
