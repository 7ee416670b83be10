//! Checks the admission policy that stands in for the webhook.

use serde_json::Value;

use super::Check;
use crate::cluster::{Cluster, Place, Unseen};
use crate::print::Verdict;

/// Checks if the policy of operator `name` is installed.
pub(super) async fn policy(cluster: &Cluster, name: &str) -> Check {
    const GROUP: &str = "admissionregistration.k8s.io";
    const PLURAL: &str = "mutatingadmissionpolicies";
    let version = match cluster.version_of(GROUP, PLURAL).await {
        Ok(version) => version,
        Err(Unseen::Absent(_)) => {
            let text = "none: this Kubernetes has no MutatingAdmissionPolicy (1.36 has)";
            return Check::new("Policy", Verdict::Good, text);
        }
        Err(error) => return Check::unseen("Policy", &error),
    };
    let api_version = format!("{GROUP}/{version}");
    let policies = Place::new(&api_version, PLURAL, None);
    let bindings = Place::new(&api_version, "mutatingadmissionpolicybindings", None);
    let policy: Result<Value, _> = cluster.get(policies, name).await;
    let binding: Result<Value, _> = cluster.get(bindings, name).await;
    match policy.and(binding) {
        Ok(_) => Check::new(
            "Policy",
            Verdict::Good,
            "preserves the hash while the webhook cannot be reached",
        ),
        Err(Unseen::Absent(_)) => Check::new(
            "Policy",
            Verdict::Good,
            "not installed: while the webhook cannot be reached, a replace may drop the hash (policy.enabled)",
        ),
        Err(error) => Check::unseen("Policy", &error),
    }
}
