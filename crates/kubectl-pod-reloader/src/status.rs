//! `status`: whether the operators of a cluster are healthy.

mod leader;
mod pending;
mod policy;
mod query;
mod replicas;
mod served;
mod webhook;
mod workloads;
mod writer;

use serde::{Serialize, Serializer};

use self::leader::{Alive, leader};
use self::policy::policy;
use self::query::{by_hashes, reach};
use self::replicas::replicas;
use self::served::{Served, served};
use self::webhook::{certificate, webhook};
use self::workloads::{Managed, Replies, Warnings};
use self::writer::writer;
use crate::bindings::Binding;
use crate::cluster::{Cluster, Unseen};
use crate::events;
use crate::operators::{Installed, Operator, Operators, Unread};
use crate::print::{Answer, Text, Verdict, by};
use crate::syncs::Sync;
use crate::workloads::list;

/// The health of the operators of a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    operators: Vec<OperatorStatus>,
    /// `None` if they are not looked at, or there are none.
    #[serde(rename = "clusterConfigSyncs", skip_serializing_if = "Option::is_none")]
    syncs: Option<Served<Sync>>,
    /// The same.
    #[serde(rename = "fieldBindings", skip_serializing_if = "Option::is_none")]
    bindings: Option<Served<Binding>>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
    /// True if there certainly is no operator.
    #[serde(skip)]
    is_without: bool,
}

#[derive(Debug, Serialize)]
struct OperatorStatus {
    #[serde(flatten)]
    operator: Installed,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    #[serde(rename = "state")]
    verdict: Verdict,
    #[serde(rename = "text", serialize_with = "joined")]
    lines: Vec<String>,
}

fn joined<S: Serializer>(lines: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&lines.join("\n"))
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self::of_lines(name, verdict, vec![text.into()])
    }

    fn of_lines(name: &'static str, verdict: Verdict, lines: Vec<String>) -> Self {
        Self {
            name,
            verdict,
            lines,
        }
    }

    fn unseen(name: &'static str, error: &Unseen) -> Self {
        Self::new(name, Verdict::Unknown, error.to_string())
    }
}

/// Checks every operator, and asks for the sync status of `ask` workloads of each at most.
///
/// # Errors
/// When there is no operator in the namespace that the user named.
pub(crate) async fn status(
    cluster: &Cluster,
    operators: &Operators,
    ask: usize,
) -> Result<(Status, Verdict), Unseen> {
    if let Some(none) = &operators.is_elsewhere {
        return Err(none.clone());
    }
    let all = every_workload(cluster, operators).await;
    let events = events::events(cluster, None).await;
    let warnings = events.as_deref().map(Warnings::of);
    let mut unseen = operators.unseen.clone();
    let unlisted = all.unlisted.iter();
    unseen.extend(unlisted.map(|error| format!("some workloads: {error}")));
    let mut statuses = Vec::new();
    for operator in &operators.all {
        statuses.push(of_read(cluster, operator, &all, warnings.as_ref(), ask).await);
    }
    for operator in &operators.unread {
        statuses.push(of_unread(cluster, operator, &all, warnings.as_ref()).await);
    }
    let checks = statuses.iter().flat_map(|status| &status.checks);
    let worst = checks.map(|check| check.verdict).max();
    let mut verdict = worst.unwrap_or_else(|| operators.verdict(false));
    let status = Status {
        syncs: served(cluster, operators, &mut unseen, &mut verdict).await,
        bindings: served(cluster, operators, &mut unseen, &mut verdict).await,
        operators: statuses,
        unseen,
        is_without: operators.are_none(),
    };
    Ok((status, verdict))
}

/// Checks everything, for an operator whose settings can be read.
async fn of_read(
    cluster: &Cluster,
    operator: &Operator,
    all: &All<'_>,
    warnings: Result<&Warnings<'_>, &&Unseen>,
    ask: usize,
) -> OperatorStatus {
    let is_its = |managed: &&Managed<'_>| {
        let its = managed.seen.operator;
        its.is_some_and(|it| std::ptr::eq(it, operator))
    };
    let managed: Vec<_> = all.managed.iter().filter(is_its).collect();
    let answer = reach(cluster, operator, &managed);
    let ((leader, alive), writer, (webhook, report), policy) = tokio::join!(
        leader(cluster, operator),
        writer(cluster, operator),
        webhook(cluster, &operator.installed.name, answer),
        policy(cluster, &operator.installed.name)
    );
    let alive = match report {
        Some(_) => Alive::Yes,
        None => alive,
    };
    let mut checks = vec![replicas(&operator.deployment, alive), leader];
    checks.extend(writer);
    checks.extend(webhook);
    checks.extend(report.map(|report| certificate(&report)));
    checks.push(policy);
    checks.push(workloads::workloads(&managed, all.unlisted.is_empty()));
    let (sync_statuses, told) =
        workloads::sync_statuses(cluster, operator, &managed, warnings.ok(), ask).await;
    checks.extend(sync_statuses);
    checks.extend(workloads::unanswered(cluster, &managed).await);
    checks.push(workloads::warned(warnings, &managed, &told));
    OperatorStatus {
        operator: operator.installed.clone(),
        checks,
    }
}

/// Checks everything that does not depend on the settings, for an operator whose settings cannot be read.
async fn of_unread(
    cluster: &Cluster,
    operator: &Unread,
    all: &All<'_>,
    warnings: Result<&Warnings<'_>, &&Unseen>,
) -> OperatorStatus {
    // With several operators, nobody can tell which one manages a workload.
    let managed: Vec<_> = match all
        .managed
        .iter()
        .all(|managed| managed.seen.operator.is_none())
    {
        true => all.managed.iter().collect(),
        false => Vec::new(),
    };
    let settings = format!(
        "of another version than this plugin ({}), so not known: who leads and what is managed is not looked at",
        env!("CARGO_PKG_VERSION")
    );
    let mut checks = vec![
        Check::new("Settings", Verdict::Unknown, settings),
        replicas(&operator.deployment, Alive::Unknown),
    ];
    let name = &operator.installed.name;
    let answer = by_hashes(cluster, &managed);
    let (webhook, report) = webhook(cluster, name, answer).await;
    checks.extend(webhook);
    checks.extend(report.map(|report| certificate(&report)));
    checks.push(policy(cluster, name).await);
    checks.push(workloads::warned(warnings, &managed, &Replies::new()));
    OperatorStatus {
        operator: operator.installed.clone(),
        checks,
    }
}

/// The managed workloads of the cluster.
struct All<'a> {
    managed: Vec<Managed<'a>>,
    /// Everything that could not be listed.
    unlisted: Vec<String>,
}

/// Returns the managed workloads of the cluster, or of the namespace if the cluster's cannot be listed.
async fn every_workload<'a>(cluster: &Cluster, operators: &'a Operators) -> All<'a> {
    let (mut managed, unlisted) = list(cluster, operators, None, None, Managed::of).await;
    let unlisted = unlisted.words;
    if managed.is_empty() && !unlisted.is_empty() {
        let own = Some(&cluster.namespace);
        (managed, _) = list(cluster, operators, own, None, Managed::of).await;
    }
    All { managed, unlisted }
}

impl Answer for Status {
    fn text(&self) -> Text {
        let mut text = Text::default();
        let Self {
            operators,
            syncs,
            bindings,
            unseen,
            is_without,
        } = self;
        if operators.is_empty() {
            text.heading(match is_without {
                true => "No pod-reloader was found in this cluster: no Deployment of its chart.",
                false => "No pod-reloader was found where you may look.",
            });
        }
        for OperatorStatus { operator, checks } in operators {
            let version = &operator.version;
            text.heading(format!("pod-reloader {version}: {operator}"));
            let row = |check: &Check| (check.verdict, check.name, check.lines.clone());
            signed(&mut text, &Vec::from_iter(checks.iter().map(row)));
        }
        syncs.iter().for_each(|it| it.show(&mut text));
        bindings.iter().for_each(|it| it.show(&mut text));
        text.section("Not seen", unseen);
        text
    }
}

/// Adds rows with a sign for the verdict, a name, and lines that form one column.
fn signed(text: &mut Text, rows: &[(Verdict, impl AsRef<str>, Vec<String>)]) {
    let widths = rows
        .iter()
        .map(|(_, name, _)| name.as_ref().chars().count());
    let width = widths.max().unwrap_or(0);
    for (verdict, name, lines) in rows {
        let sign = match verdict {
            Verdict::Good => "ok",
            Verdict::Unknown => "??",
            Verdict::Bad => "!!",
        };
        let mut head = vec![
            "  ".into(),
            by(*verdict, sign),
            format!("  {:width$}  ", name.as_ref()).into(),
        ];
        for line in lines {
            head.push(line.as_str().into());
            text.line(head);
            head = vec![" ".repeat(width + 8).into()];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{
        Canned, assert_mentions, binding_operator, cluster_config_sync, deployment, field_binding,
        operator, operator_with, pinning_operator,
    };
    use crate::ready::Own;
    use pod_reloader_core::name::Name;
    use serde_json::json;

    async fn of(canned: Canned, namespace: &str) -> Result<(String, Verdict), Unseen> {
        let cluster = canned.cluster();
        let namespace = Name::parse(namespace).unwrap();
        let operators = Operators::find(&cluster, Some(&namespace)).await;
        let (status, verdict) = status(&cluster, &operators, 9).await?;
        Ok((status.text().without_styles(), verdict))
    }

    /// Returns the verdict on those of a kind that are found.
    async fn find<T: Own>(
        canned: Canned,
        namespace: Option<&str>,
    ) -> Result<Option<Verdict>, Unseen> {
        let cluster = canned.cluster();
        let namespace = namespace.map(|it| Name::parse(it).unwrap());
        let operators = Operators::find(&cluster, namespace.as_ref()).await;
        let found = Served::<T>::find(&cluster, &operators).await;
        found.map(|it| it.map(|it| it.verdict()))
    }

    fn with_operator(operator: serde_json::Value) -> Canned {
        let operators = json!({"items": [operator]});
        Canned::shop()
            .with("/apis/apps/v1/deployments", operators.clone())
            .with("/apis/apps/v1/namespaces/ops/deployments", operators)
    }

    #[tokio::test]
    async fn an_operator_that_is_not_where_the_user_says_is_an_error() {
        for (namespace, error) in [
            ("nope", r#"namespaces "nope" not found"#),
            ("shop", "there is no pod-reloader in namespace shop"),
        ] {
            let told = of(Canned::shop(), namespace).await;
            assert_eq!(told.unwrap_err().to_string(), error);
        }
        let forbidden = Canned::shop().forbids("/apis/apps/v1/namespaces/ops/deployments");
        let (text, verdict) = of(forbidden, "ops").await.unwrap();
        assert_mentions(&text, "you may not list deployments in namespace ops");
        assert_eq!(verdict, Verdict::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn workloads_that_keep_an_earlier_configuration_are_counted() {
        let with = |name: &str, undone: Option<&str>| {
            let mut workload = deployment(name);
            workload["metadata"]["annotations"] = json!({
                "pod-reloader.cs.sap.com/configmaps": "app",
                "pod-reloader.cs.sap.com/pin": "configmaps",
            });
            if let Some(undone) = undone {
                let key = "pod-reloader.cs.sap.com/undone";
                workload["metadata"]["annotations"][key] = json!(undone);
            }
            workload
        };
        let workloads = [with("web", Some("app=app-0123456789")), with("api", None)];
        let canned = Canned::shop()
            .with(
                "/apis/apps/v1/namespaces/ops/deployments",
                json!({"items": [pinning_operator()]}),
            )
            .with("/apis/apps/v1/deployments", json!({"items": workloads}))
            .reporting("current");
        let (text, _) = of(canned, "ops").await.unwrap();
        let line =
            "ok  Workloads  2 managed, 0 with a hash; 1 with undone config: Deployment shop/web";
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_mentions(&text, &line);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_name_what_does_not_exist_are_a_fault_after_some_minutes() {
        let listing = |created: &str| {
            let mut web = deployment("web");
            web["metadata"]["annotations"] =
                json!({"pod-reloader.cs.sap.com/configmaps": "absent"});
            web["metadata"]["creationTimestamp"] = json!(created);
            Canned::shop()
                .with(
                    "/apis/apps/v1/namespaces/ops/deployments",
                    json!({"items": [operator()]}),
                )
                .with("/apis/apps/v1/deployments", json!({"items": [web]}))
                .reporting("current")
        };
        let (text, verdict) = of(listing("2026-01-01T00:00:00Z"), "ops").await.unwrap();
        let line =
            "1 with lists that name what does not exist: Deployment shop/web (ConfigMap absent)\n";
        assert_mentions(&text, line);
        assert_eq!(verdict, Verdict::Bad);
        let now = jiff::Timestamp::now().to_string();
        let (text, _) = of(listing(&now), "ops").await.unwrap();
        assert!(!text.contains("with lists"), "{text}");
    }

    /// Returns a cluster with an old Deployment that has this annotation, whose pods take a ConfigMap `app`.
    fn asking(key: &str, value: &str) -> Canned {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({key: value});
        web["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "app"}}]);
        Canned::shop()
            .with(
                "/apis/apps/v1/namespaces/ops/deployments",
                json!({"items": [operator_with(&["--dialects=pod-reloader,stakater"])]}),
            )
            .with("/apis/apps/v1/deployments", json!({"items": [web]}))
            .reporting("current")
    }

    #[tokio::test(start_paused = true)]
    async fn expressions_that_match_nothing_are_a_fault() {
        let asking = || asking("configmap.reloader.stakater.com/reload", "ap.*,oth.*");
        let app = json!({"metadata": {"name": "app", "namespace": "shop"}});
        let names = "/api/v1/namespaces/shop/configmaps";
        let with_names = asking().with(names, json!({"metadata": {}, "items": [app]}));
        let (text, verdict) = of(with_names, "ops").await.unwrap();
        let line = "1 with regular expressions that match nothing: \
                    Deployment shop/web (ConfigMap \"oth.*\")\n";
        assert_mentions(&text, line);
        assert_eq!(verdict, Verdict::Bad);
        let (text, _) = of(asking().forbids(names), "ops").await.unwrap();
        assert!(!text.contains("Expressions"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_a_million_comparisons_with_expressions_are_left_out() {
        let expressions: Vec<_> = (0..30).map(|n| format!("oth-{n}.*")).collect();
        let expressions = expressions.join(",");
        let asking = asking("configmap.reloader.stakater.com/reload", &expressions);
        let app = |n| json!({"metadata": {"name": format!("app-{n}"), "namespace": "shop"}});
        let all: Vec<_> = (0..33_334).map(app).collect();
        let names = "/api/v1/namespaces/shop/configmaps";
        let with_names = asking.with(names, json!({"metadata": {}, "items": all}));
        let (text, _) = of(with_names, "ops").await.unwrap();
        assert!(!text.contains("match nothing"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn searches_that_find_nothing_are_a_fault() {
        for (annotations, is_found) in [
            (json!({}), false),
            (json!({"reloader.stakater.com/match": "true"}), true),
        ] {
            let app = json!({"metadata": {
                "name": "app", "namespace": "shop", "uid": "1", "resourceVersion": "1",
                "annotations": annotations,
            }});
            let asking = asking("reloader.stakater.com/search", "true");
            let with_app = asking.with_all("/api/v1/namespaces/shop/configmaps", &[app]);
            let (text, _) = of(with_app, "ops").await.unwrap();
            let line = "1 with searches that find nothing: \
                        Deployment shop/web (reloader.stakater.com/match)\n";
            assert_eq!(text.contains(line), !is_found, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn copies_that_cannot_be_made_come_first_and_are_a_fault_like_a_warning() {
        let status = |name: &str, reason: &str| {
            let ready = json!({"type": "Ready", "reason": reason, "message": "it is so"});
            let status = json!({
                "observedGeneration": 1, "selected": 2, "synced": 2, "conditions": [ready],
            });
            cluster_config_sync(name, status)
        };
        let syncs = |reason: &str| {
            let others = (10..31).map(|number| status(&format!("n{number}"), "Syncing"));
            Vec::from_iter(others.chain([status("pull", reason)]))
        };
        let of_operator = |flags: &[&str], syncs: &[serde_json::Value]| {
            with_operator(operator_with(flags)).with_syncs(syncs)
        };
        let path = "/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs";
        let find = find::<Sync>;
        let copying = of_operator(&["--sync"], &syncs("SourceNotFound"));
        let (text, _) = of(copying.clone(), "ops").await.unwrap();
        let section = "
ClusterConfigSyncs
  !!  pull  Secret platform/pull: 2 of 2 namespaces, SourceNotFound: it is so
  ok  n10   Secret platform/pull: 2 of 2 namespaces, Syncing: it is so
";
        assert_mentions(&text, section);
        assert!(text.ends_with("\n  and 2 more\n"), "{text}");
        assert_eq!(find(copying.clone(), None).await, Ok(Some(Verdict::Bad)));
        let well = of_operator(&["--sync"], &syncs("Syncing"));
        assert_eq!(
            find(well.clone(), Some("ops")).await,
            Ok(Some(Verdict::Good))
        );
        assert_eq!(find(of_operator(&["--sync"], &[]), None).await, Ok(None));
        let forbidden = find(well.forbids(path), None).await.unwrap_err();
        assert_eq!(
            forbidden.to_string(),
            "you may not list clusterconfigsyncs in the cluster"
        );
        // Nobody copies, or somebody who is not looked at.
        let idle = of_operator(&[], &syncs("Syncing"));
        assert_eq!(find(idle.clone(), None).await, Ok(Some(Verdict::Bad)));
        assert_eq!(find(idle.clone(), Some("ops")).await, Ok(None));
        assert_eq!(find(idle.forbids(path), None).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn fields_that_are_not_equal_to_their_keys_come_first_and_are_a_fault() {
        let with = |name: &str, is_ready: &str, reason: &str| {
            let ready = json!({"type": "Ready", "status": is_ready, "reason": reason, "message": "it is so"});
            field_binding(
                name,
                json!({"observedGeneration": 1, "conditions": [ready], "fields": [
                    {"path": "spec.accesskey", "state": "Applied"},
                    {"path": "spec.bucket", "state": reason, "message": "it is so"},
                ]}),
            )
        };
        let good = with("good", "True", "Applied");
        let all = [
            good.clone(),
            with("bad", "False", "KeyNotFound"),
            good.clone(),
        ];
        let of_operator = |operator: serde_json::Value, bindings: &[serde_json::Value]| {
            with_operator(operator).with_bindings(None, bindings)
        };
        let find = find::<Binding>;
        let binding = of_operator(binding_operator(), &all);
        let (text, _) = of(binding.clone(), "ops").await.unwrap();
        let section = "
FieldBindings
  !!  shop/bad         Harbor registry from Secret s3: KeyNotFound
                       spec.bucket: KeyNotFound, it is so
  ok  2 FieldBindings  each field is equal to its key
";
        assert_mentions(&text, section);
        assert_eq!(find(binding, None).await, Ok(Some(Verdict::Bad)));
        let well = of_operator(binding_operator(), std::slice::from_ref(&good));
        assert_eq!(find(well, Some("ops")).await, Ok(Some(Verdict::Good)));
        let none = of_operator(binding_operator(), &[]);
        assert_eq!(find(none, None).await, Ok(None));
        // Whoever may look into one namespace sees those there.
        let path = "/apis/pod-reloader.github.io/v1alpha1/fieldbindings";
        let own = of_operator(binding_operator(), &[]).with_bindings(Some("shop"), &all);
        assert_eq!(find(own.forbids(path), None).await, Ok(Some(Verdict::Bad)));
        // Nobody binds fields, or somebody who is not looked at.
        let idle = of_operator(operator(), &[good]);
        assert_eq!(find(idle.clone(), None).await, Ok(Some(Verdict::Bad)));
        assert_eq!(find(idle, Some("ops")).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_with_a_time_out_of_range_breaks_nothing() {
        let mut operator = operator();
        operator["spec"]["template"]["spec"]["containers"][0]["args"] = json!([
            "--hash-keys-secret=keys",
            "--leader-elect",
            "--leader-election-lease=lease",
        ]);
        for seconds in [json!(15), json!(2_147_483_647), json!(-1), json!(null)] {
            let lease = json!({"spec": {
                "holderIdentity": "somebody", "renewTime": "9999-12-31T23:59:59.999999Z",
                "leaseDurationSeconds": seconds,
            }});
            let canned = Canned::shop()
                .with(
                    "/apis/apps/v1/namespaces/ops/deployments",
                    json!({"items": [operator]}),
                )
                .with(
                    "/apis/coordination.k8s.io/v1/namespaces/ops/leases/lease",
                    lease,
                );
            let (text, _) = of(canned, "ops").await.unwrap();
            assert_mentions(&text, "somebody has not renewed the Lease for");
        }
    }
}
