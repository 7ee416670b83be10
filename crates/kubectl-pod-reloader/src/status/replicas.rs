//! Checks the replicas of an operator.

use serde_json::Value;

use super::Check;
use super::leader::Alive;
use crate::print::Verdict;

/// Checks the replicas of the Deployment. It may have none, if the operator runs outside the cluster.
pub(super) fn replicas(deployment: &Value, alive: Alive) -> Check {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
    if wanted == 0 {
        let (verdict, text) = match alive {
            Alive::Yes => (Verdict::Good, "none in the cluster: it runs elsewhere"),
            Alive::No => (Verdict::Bad, "none: it is switched off"),
            Alive::Unknown => (
                Verdict::Unknown,
                "none in the cluster: without a Lease, nothing shows whether it runs elsewhere",
            ),
        };
        return Check::new("Replicas", verdict, text);
    }
    let verdict = match ready {
        0 => Verdict::Bad,
        ready if ready < wanted => Verdict::Bad,
        _ => Verdict::Good,
    };
    Check::new("Replicas", verdict, format!("{ready} of {wanted} ready"))
}
