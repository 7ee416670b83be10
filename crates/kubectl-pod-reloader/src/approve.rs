//! `approve`: approves the content that a workload waits for.

use pod_reloader_core::annotations::APPROVE;
use pod_reloader_core::gate;
use pod_reloader_core::sync_status::SyncStatus;
use serde::Serialize;

use crate::args::{Chosen, Target};
use crate::cluster::{Cluster, Unseen, annotate};
use crate::operators::Operators;
use crate::print::{Answer, Piece, Text, Verdict, by};
use crate::workloads::{self, Reply, Seen};

/// The outcome of an approval.
#[derive(Debug, Serialize)]
pub(crate) struct Approval {
    kind: String,
    namespace: String,
    name: String,
    /// The content that waits, by its digits. `None` if none does, or if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
    /// True if the content that waits is approved.
    approved: bool,
    /// True if that was written just now, or would have been in a dry run.
    changed: bool,
    /// True if nothing is stored.
    #[serde(rename = "dryRun", skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
    /// The outcome in words.
    state: String,
    #[serde(skip)]
    verdict: Verdict,
}

/// The outcomes of several approvals.
#[derive(Debug, Serialize)]
pub(crate) struct Approvals {
    workloads: Vec<Approval>,
}

/// The content to write an approval for, or the answer that writes none.
enum Step {
    Approve(String),
    End(Approval),
}

/// Approves the content that a workload waits for. If `content` is given, only if it is that content.
///
/// # Errors
/// When the workload cannot be read.
pub(crate) async fn approve(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
    content: Option<&str>,
) -> Result<(Approval, Verdict), Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let step = match without_asking(&seen) {
        Some(state) => Step::end(&seen, Verdict::Bad, &state),
        None => {
            let reply = seen.query_status(cluster).await;
            given_reply(&seen, &reply, content)
        }
    };
    let approval = match step {
        Step::Approve(content) => write(cluster, &seen, content).await,
        Step::End(approval) => approval,
    };
    let verdict = approval.verdict;
    Ok((approval, verdict))
}

/// Approves the content that each of the chosen workloads waits for, which are `targets`. Tries each, whatever happens
/// to the others.
pub(crate) async fn approve_each(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
    targets: &[Target],
    content: Option<&str>,
) -> (Approvals, Verdict) {
    let mut workloads = Vec::new();
    for target in targets {
        let cluster = cluster.of(target);
        let approval = match approve(&cluster, operators, target, content).await {
            Ok((approval, _)) => approval,
            Err(error) => Approval::failed(&cluster, chosen, target, &error),
        };
        workloads.push(approval);
    }
    let verdicts = workloads.iter().map(|approval| approval.verdict);
    let verdict = verdicts.fold(Verdict::Good, Verdict::max);
    (Approvals { workloads }, verdict)
}

/// Returns the reason to approve nothing if the workload itself shows one.
fn without_asking(seen: &Seen<'_>) -> Option<String> {
    match (&seen.obstacle, &seen.workload.rare().gates) {
        (Some(obstacle), _) => Some(format!("it is not managed: {obstacle}")),
        (None, Some(gates)) if gates.needs_approval => None,
        (None, _) => Some("it needs no approval".to_owned()),
    }
}

/// Returns what to do about a workload that needs approval, given what the operator says of it.
fn given_reply(seen: &Seen<'_>, reply: &Reply, asked: Option<&str>) -> Step {
    let report = match reply {
        Reply::Answered(report) => report,
        Reply::Unanswered => {
            let text = "the webhook of pod-reloader does not answer, and only it knows the content";
            return Step::end(seen, Verdict::Unknown, text);
        }
        Reply::Impossible(error) if error.is_forbidden() => {
            return Step::end(seen, Verdict::Bad, &error.words());
        }
        Reply::Impossible(error) => return Step::end(seen, Verdict::Unknown, &error.words()),
    };
    let (verdict, text) = match (report.sync_status, &report.content) {
        (SyncStatus::Due(_), Some(pending)) => return step(seen, pending, asked),
        (SyncStatus::Due(_), None) => (
            Verdict::Unknown,
            "the operator does not tell the content: it is of another version",
        ),
        (SyncStatus::Current | SyncStatus::BaselineDue, _) => {
            return nothing_is_pending(seen, asked);
        }
        (SyncStatus::MissingConfig, _) => (
            Verdict::Bad,
            "there is nothing to approve yet: its pods could not start, because config is missing",
        ),
        (SyncStatus::NotManaged, _) => (
            Verdict::Bad,
            "it is not managed: it is outside the operator's scope",
        ),
        (SyncStatus::Unknown, _) => (Verdict::Unknown, "pod-reloader cannot read its objects now"),
    };
    Step::end(seen, verdict, text)
}

/// Returns what to do if `pending` waits and `asked`, if given, is to be approved.
fn step(seen: &Seen<'_>, pending: &str, asked: Option<&str>) -> Step {
    let gates = seen.workload.rare().gates.as_deref();
    let approved = gates.and_then(|it| it.approved.as_deref());
    let (verdict, state) = match asked {
        Some(asked) if asked != pending => (
            Verdict::Bad,
            format!("not approved: content {pending} waits, not {asked}"),
        ),
        _ if approved == Some(pending) => (
            Verdict::Good,
            format!("content {pending} was already approved{}", held(seen)),
        ),
        _ => return Step::Approve(pending.to_owned()),
    };
    Step::End(Approval {
        pending: Some(pending.to_owned()),
        approved: verdict == Verdict::Good,
        ..Approval::of(seen, verdict, state)
    })
}

/// Refuses to approve content that the pods do not have and that does not wait.
fn nothing_is_pending(seen: &Seen<'_>, asked: Option<&str>) -> Step {
    let workload = &seen.workload;
    let own = [workload.config_hash(), workload.markers.baseline.as_deref()];
    let has = |asked: &str| {
        own.into_iter()
            .flatten()
            .any(|it| gate::digits(it) == asked)
    };
    match asked.filter(|asked| !has(asked)) {
        Some(asked) => {
            let text =
                format!("not approved: nothing is pending, so content {asked} does not wait");
            Step::end(seen, Verdict::Bad, &text)
        }
        None => Step::end(seen, Verdict::Good, "nothing is pending"),
    }
}

async fn write(cluster: &Cluster, seen: &Seen<'_>, content: String) -> Approval {
    let (place, name) = (seen.place(), &seen.workload.id.name);
    let written = annotate(cluster, place, name, APPROVE, Some(&content)).await;
    let is_written = written.is_ok();
    let (verdict, state) = match written {
        Ok(()) => {
            let remark = cluster.writes.remark();
            let state = format!("approved content {content}{}{remark}", held(seen));
            (Verdict::Good, state)
        }
        Err(error) => (Verdict::Bad, error.words()),
    };
    Approval {
        pending: Some(content),
        approved: is_written,
        changed: is_written,
        is_dry_run: cluster.writes.is_dry_run(),
        ..Approval::of(seen, verdict, state)
    }
}

/// Returns a remark if the approval alone changes nothing.
fn held(seen: &Seen<'_>) -> &'static str {
    let gates = seen.workload.rare().gates.as_deref();
    match gates.is_some_and(|gates| gates.hold.is_some()) {
        true => ", but it is on hold",
        false => "",
    }
}

impl Step {
    fn end(seen: &Seen<'_>, verdict: Verdict, state: &str) -> Self {
        Self::End(Approval::of(seen, verdict, state.to_owned()))
    }
}

impl Approval {
    fn line(&self) -> [Piece; 2] {
        let head = format!(
            "{} {} in namespace {}: ",
            self.kind, self.name, self.namespace
        );
        [head.into(), by(self.verdict, &*self.state)]
    }

    /// Returns an answer about a workload that cannot be read.
    fn failed(cluster: &Cluster, chosen: &Chosen, target: &Target, error: &Unseen) -> Self {
        let (verdict, state) = if !error.is_absent() {
            (Verdict::Unknown, error.words())
        } else if chosen.is_selected() {
            (Verdict::Good, "gone".to_owned())
        } else {
            (Verdict::Bad, error.words())
        };
        Self {
            kind: target.kind.clone(),
            namespace: cluster.namespace.to_string(),
            name: target.name.clone(),
            pending: None,
            approved: false,
            changed: false,
            is_dry_run: cluster.writes.is_dry_run(),
            state,
            verdict,
        }
    }

    /// Returns an answer that approves nothing.
    fn of(seen: &Seen<'_>, verdict: Verdict, state: String) -> Self {
        let id = &seen.workload.id;
        Self {
            kind: id.kind.to_string(),
            namespace: id.namespace.to_string(),
            name: id.name.to_string(),
            pending: None,
            approved: false,
            changed: false,
            is_dry_run: false,
            state,
            verdict,
        }
    }
}

impl Answer for Approval {
    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line(self.line());
        text
    }
}

impl Answer for Approvals {
    fn text(&self) -> Text {
        let mut text = Text::default();
        for approval in &self.workloads {
            text.line(approval.line());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, deployment, operator};
    use pod_reloader_core::name::Name;
    use serde_json::{Value, json};

    const PENDING: &str = "restart due for a change; version 0.1.0; content 48a63946";

    /// Returns a cluster whose workload has these annotations, and about which the webhook reports
    /// `sync_status`.
    fn shop(annotations: &[(&str, &str)], sync_status: &str) -> Canned {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
        for (key, value) in annotations {
            web["metadata"]["annotations"][format!("pod-reloader.cs.sap.com/{key}")] = json!(value);
        }
        web["spec"]["template"]["metadata"]["annotations"] = json!({
            "pod-reloader.cs.sap.com/config-hash": "v1.dcdaaec6.00112233467b0198a29241395d135eb7",
        });
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all("/apis/apps/v1/namespaces/shop/deployments", &[web])
            .reporting(sync_status)
    }

    fn gated(sync_status: &str) -> Canned {
        shop(&[("approval", "required")], sync_status)
    }

    async fn approved(canned: Canned, content: Option<&str>) -> (String, Verdict, Vec<Value>) {
        let writes = canned.writes();
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let web = Target::here("deploy", "web");
        let told = approve(&cluster, &operators, &web, content).await;
        let (approval, verdict) = told.unwrap();
        let text = approval.text().without_styles();
        let head = "Deployment web in namespace shop: ";
        let text = text.strip_prefix(head).unwrap().trim_end().to_owned();
        let writes = writes.lock().unwrap();
        let written = writes.iter().map(|(_, patch)| patch.clone()).collect();
        (text, verdict, written)
    }

    #[tokio::test]
    async fn exactly_the_content_that_waits_is_approved() {
        for asked in [None, Some("48a63946")] {
            let (text, verdict, written) = approved(gated(PENDING), asked).await;
            assert_eq!(text, "approved content 48a63946");
            assert_eq!(verdict, Verdict::Good);
            let patch = json!({"metadata": {"annotations": {APPROVE: "48a63946"}}});
            assert_eq!(written, [patch]);
        }
        let (text, verdict, written) = approved(gated(PENDING), Some("00000000")).await;
        assert_eq!(text, "not approved: content 48a63946 waits, not 00000000");
        assert_eq!((verdict, written), (Verdict::Bad, vec![]));
    }

    #[tokio::test]
    async fn nothing_is_written_if_nothing_waits_for_an_approval() {
        let ungated = |annotations: &[(&str, &str)]| shop(annotations, PENDING);
        let unneeded = (Verdict::Bad, "it needs no approval");
        let nothing = (Verdict::Good, "nothing is pending");
        let current = || gated("current; version 0.1.0");
        let other = "not approved: nothing is pending, so content 48a63946 does not wait";
        for (canned, asked, (verdict, told)) in [
            (ungated(&[]), None, unneeded),
            (ungated(&[("hold", "true")]), None, unneeded),
            (current(), None, nothing),
            (gated("baseline due; version 0.1.0"), None, nothing),
            // A pipeline that is repeated.
            (current(), Some("00112233"), nothing),
            (current(), Some("48a63946"), (Verdict::Bad, other)),
        ] {
            let answer = approved(canned, asked).await;
            assert_eq!(answer, (told.to_owned(), verdict, vec![]));
        }
    }

    #[tokio::test]
    async fn content_that_is_not_known_is_not_approved() {
        let old = "restart due for a change; version 0.1.0";
        for (canned, asked, verdict, told) in [
            (
                gated("missing config; version 0.1.0"),
                None,
                Verdict::Bad,
                "there is nothing to approve yet: its pods could not start, because config is missing",
            ),
            (
                gated("unknown; version 0.1.0"),
                None,
                Verdict::Unknown,
                "pod-reloader cannot read its objects now",
            ),
            (
                gated(old),
                None,
                Verdict::Unknown,
                "the operator does not tell the content: it is of another version",
            ),
        ] {
            let answer = approved(canned, asked).await;
            assert_eq!(answer, (told.to_owned(), verdict, vec![]));
        }
    }

    #[tokio::test]
    async fn content_that_is_approved_already_is_not_approved_again() {
        let held = shop(
            &[
                ("approval", "required"),
                ("approve", "48a63946"),
                ("hold", "true"),
            ],
            PENDING,
        );
        let (text, verdict, written) = approved(held, None).await;
        assert_eq!(
            text,
            "content 48a63946 was already approved, but it is on hold"
        );
        assert_eq!((verdict, written), (Verdict::Good, vec![]));
    }

    #[tokio::test]
    async fn each_workload_is_approved_whatever_happens_to_the_others() {
        let canned = gated(PENDING);
        let writes = canned.writes();
        let cluster = canned
            .forbids("/apis/apps/v1/namespaces/shop/deployments/secret")
            .cluster();
        let operators = Operators::find(&cluster, None).await;
        let targets = ["gone", "secret", "web"].map(|name| Target::here("deploy", name));
        let chosen = Chosen::Named(targets.to_vec());
        let (approvals, verdict) =
            approve_each(&cluster, &operators, &chosen, &targets, None).await;
        let text = approvals.text().without_styles();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some(
                r#"deploy gone in namespace shop: Error from server (NotFound): deployments.apps "gone" not found"#
            )
        );
        assert_eq!(
            lines.next(),
            Some(
                r#"deploy secret in namespace shop: Error from server (Forbidden): it is forbidden: User "u" cannot read it"#
            )
        );
        assert_eq!(
            lines.next(),
            Some("Deployment web in namespace shop: approved content 48a63946")
        );
        assert_eq!((verdict, writes.lock().unwrap().len()), (Verdict::Bad, 1));
        // As for one workload, the lack of a right says nothing of the content.
        let (_, verdict) = approve_each(&cluster, &operators, &chosen, &targets[1..], None).await;
        assert_eq!(verdict, Verdict::Unknown);
        let selected = Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: false,
        };
        let (approvals, verdict) =
            approve_each(&cluster, &operators, &selected, &targets[..1], None).await;
        let text = approvals.text().without_styles();
        assert_eq!(text, "deploy gone in namespace shop: gone\n");
        assert_eq!(verdict, Verdict::Good);
    }

    #[tokio::test]
    async fn each_workload_of_all_namespaces_is_approved_in_its_own() {
        let mut web = deployment("web");
        web["metadata"]["namespace"] = json!("blog");
        web["metadata"]["annotations"] = json!({
            "pod-reloader.cs.sap.com/configmaps": "app",
            "pod-reloader.cs.sap.com/approval": "required",
        });
        let of_blog = "/apis/apps/v1/namespaces/blog/deployments";
        let canned = gated(PENDING).with_all(of_blog, &[web]);
        let writes = canned.writes();
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let web = Target {
            kind: "deploy".to_owned(),
            name: "web".to_owned(),
            namespace: Some(Name::parse("blog").unwrap()),
        };
        let web = [web];
        let chosen = Chosen::Named(web.to_vec());
        let (approvals, verdict) = approve_each(&cluster, &operators, &chosen, &web, None).await;
        assert_eq!(
            approvals.text().without_styles(),
            "Deployment web in namespace blog: approved content 48a63946\n"
        );
        assert_eq!(verdict, Verdict::Good);
        let written = writes.lock().unwrap();
        assert!(written[0].0.starts_with(of_blog), "{written:?}");
    }

    #[tokio::test]
    async fn an_approval_that_is_refused_names_the_user_and_the_right() {
        let web = "/apis/apps/v1/namespaces/shop/deployments/web";
        let (text, verdict, written) = approved(gated(PENDING).forbids_writes(web), None).await;
        assert_eq!(
            text,
            r#"Error from server (Forbidden): it is forbidden: User "u" cannot patch it"#
        );
        assert_eq!((verdict, written), (Verdict::Bad, vec![]));
    }
}
