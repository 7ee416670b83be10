//! `impact`: which workloads restart when an object changes, and which could not start without it.

mod object;
mod safeguards;
mod users;

use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde::Serialize;

use self::object::Object;
use self::safeguards::Safeguards;
use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::{NONE_FOUND, Operators};
use crate::print::{Answer, Text, Verdict, count};
use crate::steps::{self, Restarted, Steps};
use crate::workloads::{self, Seen};

/// The effect of a change of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Impact {
    kind: String,
    namespace: String,
    name: String,
    /// The key that changes, if only one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// `None` if the user may not see that.
    exists: Option<bool>,
    /// True if the object has that key. `None` if no key is given, or if the user may not see that.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_key: Option<bool>,
    /// True if the object is on hold, and with it every workload that tracks it.
    on_hold: bool,
    /// Everything that keeps the object as it is.
    #[serde(flatten)]
    safeguards: Safeguards,
    /// The order of the restarts, if some of them are staged.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
    /// The workloads that use the object or name it.
    workloads: Vec<Row>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    kind: String,
    name: String,
    /// Number of pods, if the workload states it.
    pods: Option<i64>,
    /// True if a change restarts the workload.
    restarts: bool,
    /// Reason why it does not restart, or when it will.
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
    /// Keys without which its pods do not start, or the object itself.
    needs: Vec<String>,
    #[serde(skip)]
    restarted: Option<Restarted>,
}

/// Finds out what a change of an object of the namespace does, or its creation.
///
/// # Errors
/// When the namespace does not exist.
pub(crate) async fn impact(
    cluster: &Cluster,
    operators: &Operators,
    (kind, name): &(ConfigKind, Name),
    key: Option<&str>,
) -> Result<(Impact, Verdict), Unseen> {
    let reference = Reference {
        kind: *kind,
        namespace: cluster.namespace.clone(),
        name: name.clone(),
    };
    let mut unseen = operators.unseen.clone();
    let body = body(cluster, &reference, &mut unseen).await?;
    let object = Object {
        reference: &reference,
        body: body.as_ref().map(|body| body.as_deref()),
        key,
    };
    let row = |seen: Seen<'_>| object.row(&seen);
    let namespace = Some(&cluster.namespace);
    let (workloads, unlisted) = workloads::list(cluster, operators, namespace, None, row).await;
    let errors = unlisted.words.iter();
    unseen.extend(errors.map(|error| format!("some workloads: {error}")));
    if operators.are_none() {
        unseen.push(NONE_FOUND.to_owned());
    }
    let (safeguards, unseen_of_it) =
        Safeguards::of(cluster, operators, &reference, object.tags()).await;
    unseen.extend(unseen_of_it);
    let impact = Impact {
        kind: kind.to_string(),
        namespace: cluster.namespace.to_string(),
        name: name.to_string(),
        key: key.map(ToOwned::to_owned),
        exists: body.as_ref().map(Option::is_some),
        has_key: object.has_key(),
        on_hold: object.is_held(),
        safeguards,
        steps: Steps::of(workloads.iter().filter_map(|row| row.restarted.as_ref())),
        workloads,
        unseen,
    };
    let is_whole = unlisted.words.is_empty() && !impact.safeguards.lack_users();
    let verdict = match operators.verdict(is_whole) {
        Verdict::Good => impact.verdict(),
        other => other,
    };
    Ok((impact, verdict))
}

/// Returns an object as serialised. The inner `None` means that it does not exist, the outer one that this cannot be
/// seen: then it adds the reason to `unseen`.
///
/// # Errors
/// When the namespace does not exist.
async fn body(
    cluster: &Cluster,
    object: &Reference,
    unseen: &mut Vec<String>,
) -> Result<Option<Option<Vec<u8>>>, Unseen> {
    let Reference {
        kind,
        namespace,
        name,
    } = object;
    let place = Place::new("v1", kind.plural(), Some(namespace.as_str()));
    match cluster.get_raw(place, name.as_str()).await {
        Ok(body) => Ok(Some(Some(body))),
        Err(Unseen::Absent(_)) => {
            cluster.check_namespace(Some(namespace)).await?;
            Ok(Some(None))
        }
        Err(error) => {
            unseen.push(format!("whether {kind} {name} is there: {error}"));
            Ok(None)
        }
    }
}

/// A thing that the user may believe to exist although it does not.
enum Creation {
    OfObject,
    OfKey,
}

impl Impact {
    fn verdict(&self) -> Verdict {
        match self.creation() {
            _ if self.concerns_some() => Verdict::Good,
            Some(_) => Verdict::Bad,
            None if self.exists.is_none() => Verdict::Unknown,
            None => Verdict::Good,
        }
    }

    /// Returns what a change would create, if it creates something.
    fn creation(&self) -> Option<Creation> {
        match (self.exists, self.has_key) {
            (Some(false), _) => Some(Creation::OfObject),
            (_, Some(false)) => Some(Creation::OfKey),
            _ => None,
        }
    }

    /// Returns true if any workload restarts for the object or needs it.
    fn concerns_some(&self) -> bool {
        let mut rows = self.workloads.iter();
        rows.any(|row| row.restarts || !row.needs.is_empty())
    }

    /// Sums up in a sentence or two what restarts, and how many pods.
    fn summary(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        let restarted = self.workloads.iter().filter(|row| row.restarts);
        let pods: i64 = restarted.clone().filter_map(|row| row.pods).sum();
        let restarts = format!(
            "restarts {} with {}.",
            count(restarted.count(), "workload"),
            count(pods, "pod")
        );
        let key = self.key.as_deref().unwrap_or_default();
        match self.creation() {
            Some(Creation::OfObject) if self.workloads.is_empty() => format!(
                "There is no {kind} {name} in namespace {namespace}, and no workload uses it."
            ),
            Some(Creation::OfObject) => {
                let with = match key {
                    "" => String::new(),
                    key => format!(" with key {key}"),
                };
                format!(
                    "There is no {kind} {name} in namespace {namespace}. Its creation{with} {restarts}"
                )
            }
            Some(Creation::OfKey) => {
                format!(
                    "{kind} {name} in namespace {namespace} has no key {key}. Adding it {restarts}"
                )
            }
            None => {
                let of = match key {
                    "" => format!("{kind} {name}"),
                    key => format!("key {key} of {kind} {name}"),
                };
                let there = match self.exists {
                    Some(_) => "",
                    None => ", which you may not see,",
                };
                format!("A change of {of}{there} in namespace {namespace} {restarts}")
            }
        }
    }
}

impl Answer for Impact {
    fn text(&self) -> Text {
        let needing = self.workloads.iter().filter(|row| !row.needs.is_empty());
        let mut text = Text::default();
        text.heading(self.summary());
        let needing = match needing.count() {
            0 => None,
            needing => Some(count(needing, "workload")),
        };
        if let Some(needing) = needing {
            let told = match self.creation() {
                Some(_) => format!("{needing} cannot start until it is there."),
                None => format!("{needing} could not start without it."),
            };
            text.line([told.into()]);
        }
        if self.on_hold {
            text.line(["It is on hold: nothing restarts before it is released.".into()]);
        }
        self.safeguards.lines(&mut text);
        if !self.workloads.is_empty() {
            let rows: Vec<_> = self.workloads.iter().map(Row::cells).collect();
            text.gap();
            text.table(
                ["WORKLOAD", "PODS", "RESTARTS", "PODS NEED", "REMARK"],
                &rows,
            );
        }
        if let Some(steps) = &self.steps {
            text.section(steps::HEADING, &steps.lines());
        }
        self.safeguards.sections(&mut text);
        text.section("Not seen", &self.unseen);
        text
    }
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let yes_or_no = if self.restarts { "yes" } else { "no" };
        [
            format!("{} {}", self.kind, self.name),
            self.pods.map_or("?".to_owned(), |pods| pods.to_string()),
            yes_or_no.to_owned(),
            match self.needs.is_empty() {
                true => "-".to_owned(),
                false => self.needs.join(", "),
            },
            self.remark.clone().unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{
        Canned, assert_mentions, cluster_config_sync, config_map, deployment, operator,
        operator_with,
    };
    use pod_reloader_core::protect::PROTECT;
    use pod_reloader_core::seal::COPY_OF;
    use serde_json::json;

    /// Workload `web` uses two keys of ConfigMap `app`, only one of which exists. Workload `all` lists `app`
    /// and ConfigMap `gone`, and cannot start without `gone`.
    fn shop() -> Canned {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/auto": "true"});
        let variable = |key: &str| {
            let source = json!({"name": "app", "key": key, "optional": true});
            json!({"name": "A", "valueFrom": {"configMapKeyRef": source}})
        };
        web["spec"]["template"]["spec"]["containers"][0]["env"] =
            json!([variable("color"), variable("size")]);
        let mut all = deployment("all");
        all["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app,gone"});
        all["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "gone"}}]);
        let apps = "/apis/apps/v1/namespaces/shop/deployments";
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all(apps, &[web, all])
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "color"), config_map("unused", "color")],
            )
    }

    async fn told(canned: Canned, name: &str, key: Option<&str>) -> (String, Verdict) {
        let cluster = canned.cluster();
        let operators = Operators::find(&cluster, None).await;
        let object = (ConfigKind::ConfigMap, Name::parse(name).unwrap());
        let (impact, verdict) = impact(&cluster, &operators, &object, key).await.unwrap();
        (impact.text().without_styles(), verdict)
    }

    #[tokio::test]
    async fn the_creation_of_an_object_that_does_not_exist_is_explained() {
        let (text, verdict) = told(shop(), "gone", None).await;
        let head = "There is no ConfigMap gone in namespace shop. Its creation restarts 1 workload with 1 pod.\n1 workload cannot start until it is there.\n";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(verdict, Verdict::Good);
    }

    #[tokio::test]
    async fn a_misspelt_object_is_not_said_to_restart_nothing() {
        let (text, verdict) = told(shop(), "typo", None).await;
        let line = "There is no ConfigMap typo in namespace shop, and no workload uses it.\n";
        assert_eq!(text, line);
        assert_eq!(verdict, Verdict::Bad);
        let (text, verdict) = told(shop(), "unused", None).await;
        assert_mentions(&text, "restarts 0 workloads");
        assert_eq!(verdict, Verdict::Good);
        let unseen = "/api/v1/namespaces/shop/configmaps/typo";
        let (text, verdict) = told(shop().forbids(unseen), "typo", None).await;
        assert_mentions(&text, "which you may not see");
        assert_eq!(verdict, Verdict::Unknown);
    }

    #[tokio::test]
    async fn the_addition_of_a_data_key_that_does_not_exist_is_explained() {
        let (text, verdict) = told(shop(), "app", Some("size")).await;
        let head = "ConfigMap app in namespace shop has no key size. Adding it restarts 2 workloads with 2 pods.\n";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(verdict, Verdict::Good);
        let (text, verdict) = told(shop(), "unused", Some("nope")).await;
        assert_mentions(&text, "has no key nope. Adding it restarts 0");
        assert_eq!(verdict, Verdict::Bad);
        let (text, verdict) = told(shop(), "app", Some("color")).await;
        assert!(
            text.starts_with("A change of key color of ConfigMap app in"),
            "{text}"
        );
        assert_eq!(verdict, Verdict::Good);
    }

    #[tokio::test]
    async fn staged_restarts_are_shown_in_steps() {
        let web = |name: &str, annotations: &[(&str, &str)]| {
            let mut web = deployment(name);
            web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
            for (key, value) in annotations {
                let key = format!("pod-reloader.cs.sap.com/{key}");
                web["metadata"]["annotations"][key] = json!(value);
            }
            web
        };
        let staged = ("staged", "all");
        let apps = "/apis/apps/v1/namespaces/shop/deployments";
        let canary = [staged, ("stage", "0")];
        let shop = shop().with_all(
            apps,
            &[
                web("a", &[staged]),
                web("b", &[staged]),
                web("canary", &canary),
                web("free", &[]),
                web("gated", &[staged, ("approval", "required")]),
                web("held", &[staged, ("hold", "true")]),
                web("late", &[staged, ("stage", "2")]),
            ],
        );
        let (text, _) = told(shop.clone(), "app", None).await;
        let steps = "
In steps, each when the one before has been healthy for its soak
  at once: Deployment free
  1. Deployment canary
  2. Deployment a, Deployment b
  3. Deployment late
";
        assert!(text.ends_with(steps), "{text}");
        assert_mentions(&text, "on hold: when it is released\n");
        assert_mentions(&text, "when its content is approved\n");
        let mut app = config_map("app", "color");
        app["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/hold": "true"});
        let held = shop.with("/api/v1/namespaces/shop/configmaps/app", app);
        let (text, _) = told(held, "app", None).await;
        let line = "It is on hold: nothing restarts before it is released.\n";
        assert_mentions(&text, line);
    }

    /// Returns a cluster with pods and workloads, some of which use ConfigMap `app`, which has these labels.
    fn used(labels: serde_json::Value) -> Canned {
        let spec = json!({"containers": [{"envFrom": [{"configMapRef": {"name": "app"}}]}]});
        let metadata = |name: &str| json!({"name": name, "namespace": "shop"});
        let pods = (1..=6).map(|number| {
            let metadata = metadata(&format!("web-{number}"));
            json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        });
        let ended =
            json!({"metadata": metadata("done"), "spec": spec, "status": {"phase": "Failed"}});
        let pods: Vec<_> = pods.chain([ended]).collect();
        let template = json!({"template": {"spec": spec}});
        let nightly = json!({
            "metadata": metadata("nightly"),
            "spec": {"jobTemplate": {"spec": template}},
        });
        let mut app = config_map("app", "color");
        app["metadata"]["labels"] = labels;
        let operators = json!({"items": [operator_with(&["--protect"])]});
        shop()
            .with("/apis/apps/v1/deployments", operators)
            .with("/api/v1/namespaces/shop/configmaps/app", app)
            .with("/api/v1/namespaces/shop/pods", json!({"items": pods}))
            .with(
                "/apis/batch/v1/namespaces/shop/cronjobs",
                json!({"items": [nightly]}),
            )
    }

    #[tokio::test]
    async fn everybody_is_named_who_keeps_an_object_from_being_deleted() {
        let in_use = used(json!({PROTECT: "in-use"}));
        let (text, verdict) = told(in_use.clone(), "app", None).await;
        let line = "It has the label pod-reloader.cs.sap.com/protect=in-use: it is not deleted while a pod uses it.\n";
        assert_mentions(&text, line);
        let users = "
Used by
  Pod web-1
  Pod web-2
  Pod web-3
  Pod web-4
  Pod web-5
  Pod web-6

Used later by the pods of
  CronJob nightly
";
        assert!(text.ends_with(users), "{text}");
        assert_eq!(verdict, Verdict::Good);
        let blind = in_use.forbids("/api/v1/namespaces/shop/pods");
        let (text, verdict) = told(blind, "app", None).await;
        let note = "who uses it: you may not list pods in namespace shop\n";
        assert_mentions(&text, note);
        assert!(!text.contains("nobody"), "{text}");
        assert_eq!(verdict, Verdict::Unknown);
    }

    #[tokio::test]
    async fn users_are_looked_for_only_if_they_matter() {
        for (value, line) in [
            (
                "always",
                "=always: to change or delete it, you need the verb unprotect on it.\n",
            ),
            (
                "allways",
                "Its label pod-reloader.cs.sap.com/protect=allways protects nothing: a ConfigMap takes one of always, in-use, keep.\n",
            ),
        ] {
            let canned = used(json!({PROTECT: value})).forbids("/api/v1/namespaces/shop/pods");
            let (text, verdict) = told(canned, "app", None).await;
            assert_mentions(&text, line);
            assert!(!text.contains("sed by"), "{text}");
            assert_eq!(verdict, Verdict::Good);
        }
    }

    #[tokio::test]
    async fn a_copy_names_its_source_and_a_source_the_number_of_its_copies() {
        let mut copy = config_map("copy", "color");
        copy["metadata"]["annotations"] = json!({COPY_OF: "platform/copy@shop"});
        let sync = |namespace: &str, name: &str| {
            let status = json!({
                "observedGeneration": 1, "selected": 42, "synced": 41,
                "conditions": [{"type": "Ready", "status": "False", "reason": "Syncing", "message": "x"}],
            });
            let mut sync = cluster_config_sync("some", status);
            sync["spec"]["source"] =
                json!({"kind": "ConfigMap", "namespace": namespace, "name": name});
            sync
        };
        let with = |syncs: &[serde_json::Value]| {
            let operators = json!({"items": [operator_with(&["--sync"])]});
            shop()
                .with("/apis/apps/v1/deployments", operators)
                .with("/api/v1/namespaces/shop/configmaps/copy", copy.clone())
                .with_syncs(syncs)
        };
        let (text, _) = told(with(&[sync("platform", "copy")]), "copy", None).await;
        let line =
            "It is a copy of ConfigMap platform/copy: edits are undone, so change the source.\n";
        assert_mentions(&text, line);
        let (text, _) = told(with(&[sync("shop", "other")]), "copy", None).await;
        let line = "It was a copy of ConfigMap platform/copy, and no ClusterConfigSync updates it any more.\n";
        assert_mentions(&text, line);
        let (text, _) = told(with(&[sync("shop", "app")]), "app", None).await;
        let line = "ClusterConfigSync some copies it: 41 of 42 namespaces, Syncing: x.\n";
        assert_mentions(&text, line);
        let forbidden =
            with(&[]).forbids("/apis/pod-reloader.github.io/v1alpha1/clusterconfigsyncs");
        let (text, verdict) = told(forbidden, "copy", None).await;
        assert_mentions(&text, "edits are undone");
        let note = "ClusterConfigSyncs: you may not list clusterconfigsyncs in the cluster\n";
        assert_mentions(&text, note);
        assert_eq!(verdict, Verdict::Good);
    }

    #[tokio::test]
    async fn a_namespace_that_is_not_there_is_an_error() {
        let cluster = shop().cluster_in("nope");
        let operators = Operators::find(&cluster, None).await;
        let object = (ConfigKind::ConfigMap, Name::parse("app").unwrap());
        let error = impact(&cluster, &operators, &object, None).await.err();
        let absent = Unseen::NotFound {
            resource: "namespaces".to_owned(),
            name: "nope".to_owned(),
        };
        assert_eq!(error, Some(absent.clone()));
        let web = crate::args::Target::here("deploy", "web");
        let error = workloads::get(&cluster, &operators, &web).await.err();
        assert_eq!(error, Some(absent.clone()));
        let drawn = crate::graph::draw(&cluster, &operators, Some(&cluster.namespace)).await;
        assert_eq!(drawn.err(), Some(absent));
        let all = crate::args::Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: false,
        };
        let waited = crate::wait::wait(&cluster, &operators, &all, std::time::Duration::ZERO).await;
        assert_eq!(
            waited.0.text().without_styles(),
            "namespaces \"nope\" not found\n"
        );
        assert_eq!(waited.1, Verdict::Bad);
    }
}
