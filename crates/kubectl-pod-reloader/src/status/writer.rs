//! Checks the writer of an operator: the process that writes Secrets and custom resources for it.

use clap::ValueEnum;
use pod_reloader_settings::{Args, ControllerName};
use serde_json::Value;

use super::Check;
use super::leader::leader;
use super::replicas::replicas;
use crate::cluster::{Cluster, Place};
use crate::operators::Operator;
use crate::print::Verdict;

/// The name of the check.
const NAME: &str = "Writer";
/// Query that selects the Deployments of writers by their label.
const OF_A_WRITER: &str = "labelSelector=app.kubernetes.io/component%3Dwriter";

/// Checks replicas and leader of the writer. `None` if the operator itself runs all controllers that are switched on.
pub(super) async fn writer(cluster: &Cluster, operator: &Operator) -> Option<Check> {
    if !leaves_writing(&operator.args) {
        return None;
    }
    let namespace = operator.installed.namespace.as_str();
    let place = Place::new("apps/v1", "deployments", Some(namespace));
    let found: Vec<Value> = match cluster.pages(place, OF_A_WRITER).all().await {
        Ok(found) => found,
        Err(error) => return Some(Check::unseen(NAME, &error)),
    };
    let is_its = |it: &Value| {
        label(it, "component") == Some("writer")
            && label(it, "instance") == label(&operator.deployment, "instance")
    };
    let Some(deployment) = found.into_iter().find(is_its) else {
        let text = format!("none: there is no Deployment of it in namespace {namespace}");
        return Some(Check::new(NAME, Verdict::Bad, text));
    };
    Some(match Operator::of(deployment) {
        Some(Ok((writer, _))) => of_read(cluster, &writer).await,
        Some(Err(unread)) => Check::new(NAME, Verdict::Unknown, unread.to_string()),
        None => Check::new(NAME, Verdict::Unknown, "its Deployment cannot be read"),
    })
}

async fn of_read(cluster: &Cluster, writer: &Operator) -> Check {
    let (leader, alive) = leader(cluster, writer).await;
    let replicas = replicas(&writer.deployment, alive);
    let verdict = replicas.verdict.max(leader.verdict);
    let mut lines = replicas.lines;
    lines.extend(leader.lines.iter().map(|line| format!("leader: {line}")));
    Check::of_lines(NAME, verdict, lines)
}

/// Returns true if the operator does not run a controller that is switched on, and that a writer runs in its place.
fn leaves_writing(args: &Args) -> bool {
    let mut of_a_writer = ControllerName::value_variants()
        .iter()
        .filter(|it| it.runs_in_writer());
    of_a_writer.any(|it| args.switches_on(*it) && !args.controllers.include(*it))
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"][format!("app.kubernetes.io/{name}")].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, operator_with};
    use crate::operators::Operators;
    use serde_json::json;

    fn of_release(component: &str, flags: &[&str]) -> Value {
        let mut deployment = operator_with(flags);
        deployment["metadata"]["labels"] = json!({
            "app.kubernetes.io/component": component, "app.kubernetes.io/instance": "ours",
        });
        deployment
    }

    /// Returns verdict and text of the check, for an operator with these flags and these Deployments beside it.
    async fn checked(flags: &[&str], beside: &[Value]) -> Option<(Verdict, String)> {
        let operators = json!({"items": [of_release("controller", flags)]});
        let cluster = Canned::shop()
            .with("/apis/apps/v1/deployments", operators)
            .with(
                "/apis/apps/v1/namespaces/ops/deployments",
                json!({"items": beside}),
            )
            .cluster();
        let operators = Operators::find(&cluster, None).await;
        let check = writer(&cluster, &operators.all[0]).await?;
        Some((check.verdict, check.lines.join(", ")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_is_missing_or_not_ready_is_a_fault() {
        let mut ready = of_release("writer", &["--sync", "--controllers=sync,bind"]);
        ready["status"]["readyReplicas"] = json!(1);
        let mut behind = ready.clone();
        behind["status"]["readyReplicas"] = json!(0);
        let mut of_others = ready.clone();
        of_others["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("theirs");
        let flags = ["--sync", "--controllers=restart,keep"];
        let leader = "leader: no election: every replica reconciles";
        for (beside, verdict, text) in [
            (ready, Verdict::Good, format!("1 of 1 ready, {leader}")),
            (behind, Verdict::Bad, format!("0 of 1 ready, {leader}")),
            (
                of_others,
                Verdict::Bad,
                "none: there is no Deployment of it in namespace ops".to_owned(),
            ),
        ] {
            assert_eq!(checked(&flags, &[beside]).await, Some((verdict, text)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_leaves_nothing_to_a_writer_needs_none() {
        let kinds =
            r#"[{"group":"goharbor.io","version":"v1beta1","resource":"harbors","kind":"Harbor"}]"#;
        let binds = format!("--field-bindings-kinds={kinds}");
        let binds = binds.as_str();
        for flags in [
            &["--controllers=restart,keep"][..],
            &["--sync"],
            &["--sync", "--controllers=*,-bind"],
            &[binds, "--controllers=restart,bind"],
        ] {
            assert_eq!(checked(flags, &[]).await, None, "{flags:?}");
        }
        let leaves = checked(&[binds, "--controllers=restart,sync"], &[]).await;
        assert!(leaves.is_some());
    }
}
