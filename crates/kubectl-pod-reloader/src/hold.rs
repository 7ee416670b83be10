//! `hold` and `release`: keep workloads from being restarted, and let them go on.

use pod_reloader_core::annotations::HOLD;
use pod_reloader_core::mark::is_hold;
use serde::Serialize;

use crate::args::{Chosen, Target, config_kind};
use crate::cluster::{Cluster, Place, Unseen, Writes, annotate, annotation};
use crate::operators::Operators;
use crate::print::{Answer, Text, Verdict, by};
use crate::workloads;

/// The outcome of holding or releasing objects.
#[derive(Debug, Serialize)]
pub(crate) struct Held {
    objects: Vec<Outcome>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    /// Type and name as typed: `deployment/web`.
    object: String,
    /// Its namespace, if objects of all are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Type and name, with that namespace.
    #[serde(skip)]
    shown: String,
    /// True if the object is now as it should be.
    done: bool,
    /// True if its annotation was written or removed, or would have been in a dry run.
    changed: bool,
    /// True if nothing is stored.
    #[serde(rename = "dryRun", skip_serializing_if = "std::ops::Not::not")]
    is_dry_run: bool,
    /// State of the object, or the reason for not changing it.
    state: String,
}

/// Puts the chosen objects on hold, which are `targets`, or ends their hold. Tries each, whatever happens to the others.
pub(crate) async fn each(
    cluster: &Cluster,
    operators: &Operators,
    chosen: &Chosen,
    targets: &[Target],
    hold: bool,
) -> (Held, Verdict) {
    let mut objects = Vec::new();
    for target in targets {
        let outcome = match hold_one(&cluster.of(target), operators, target, hold).await {
            Err(error) if error.is_absent() && chosen.is_selected() => {
                Ok((false, "gone".to_owned()))
            }
            outcome => outcome,
        };
        objects.push(Outcome::of(target, outcome, cluster.writes));
    }
    let verdict = match objects.iter().all(|it| it.done) {
        true => Verdict::Good,
        false => Verdict::Bad,
    };
    (Held { objects }, verdict)
}

/// Puts an object on hold or releases it. Returns true if that made a difference, and the state of the object.
async fn hold_one(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
    hold: bool,
) -> Result<(bool, String), Unseen> {
    let namespace = cluster.namespace.as_str();
    let name = target.name.as_str();
    if let Some(kind) = config_kind(&target.kind) {
        let place = Place::new("v1", kind.plural(), Some(namespace));
        let changed = match set_hold(cluster, place, name, hold).await {
            Err(Unseen::Absent(_)) => {
                let resource = kind.plural().to_owned();
                return Err(cluster.not_found(resource, name).await);
            }
            other => other?,
        };
        return Ok((changed, words(hold, changed).to_owned()));
    }
    let seen = workloads::get(cluster, operators, target).await?;
    let changed = set_hold(cluster, seen.place(), name, hold).await?;
    let words = words(hold, changed);
    let state = match &seen.obstacle {
        Some(obstacle) => format!("{words}, but it is not managed: {obstacle}"),
        None => words.to_owned(),
    };
    Ok((changed, state))
}

/// Writes or removes the annotation. Returns false if that is not necessary.
async fn set_hold(
    cluster: &Cluster,
    place: Place<'_>,
    name: &str,
    hold: bool,
) -> Result<bool, Unseen> {
    let value = annotation(cluster, place, name, HOLD).await?;
    if value.as_deref().is_some_and(is_hold) == hold {
        return Ok(false);
    }
    let value = hold.then_some("true");
    annotate(cluster, place, name, HOLD, value).await?;
    Ok(true)
}

fn words(hold: bool, changed: bool) -> &'static str {
    match (hold, changed) {
        (true, true) => "on hold",
        (true, false) => "was already on hold",
        (false, true) => "released",
        (false, false) => "was not on hold",
    }
}

impl Outcome {
    fn of(target: &Target, outcome: Result<(bool, String), Unseen>, writes: Writes) -> Self {
        let done = outcome.is_ok();
        let (changed, state) = outcome.unwrap_or_else(|error| (false, error.words()));
        let remark = if done { writes.remark() } else { "" };
        Self {
            object: target.typed(),
            namespace: target.namespace.as_ref().map(ToString::to_string),
            shown: target.shown(),
            done,
            changed,
            is_dry_run: writes.is_dry_run(),
            state: format!("{state}{remark}"),
        }
    }
}

impl Answer for Held {
    fn text(&self) -> Text {
        let mut text = Text::default();
        for outcome in &self.objects {
            let verdict = match outcome.done {
                true => Verdict::Good,
                false => Verdict::Bad,
            };
            let state = by(verdict, &*outcome.state);
            text.line([format!("{}: ", outcome.shown).into(), state]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, config_map, deployment, operator};
    use pod_reloader_core::name::Name;
    use serde_json::{Value, json};

    /// Returns a cluster with Deployment `web`, which is managed, Deployment `alone`, which is not, ConfigMap
    /// `app`, and Secret `creds`, which is on hold.
    fn shop() -> Canned {
        let mut web = deployment("web");
        web["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
        let mut creds = config_map("creds", "key");
        creds["metadata"]["annotations"] = json!({HOLD: "yes"});
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
            .with_all(
                "/apis/apps/v1/namespaces/shop/deployments",
                &[web, deployment("alone")],
            )
            .with_all(
                "/api/v1/namespaces/shop/configmaps",
                &[config_map("app", "key")],
            )
            .with_all("/api/v1/namespaces/shop/secrets", &[creds])
    }

    fn selected() -> Chosen {
        Chosen::Selected {
            kind: None,
            selector: None,
            all_namespaces: true,
        }
    }

    async fn told(canned: Canned, objects: &[&str], is_hold: bool) -> (String, Verdict) {
        told_by(&canned.cluster(), objects, is_hold).await
    }

    async fn told_by(cluster: &Cluster, objects: &[&str], is_hold: bool) -> (String, Verdict) {
        let operators = Operators::find(cluster, None).await;
        let target = |typed: &&str| {
            let (kind, name) = typed.split_once('/').unwrap();
            Target::here(kind, name)
        };
        let targets: Vec<_> = objects.iter().map(target).collect();
        let chosen = Chosen::Named(targets.clone());
        let (held, verdict) = each(cluster, &operators, &chosen, &targets, is_hold).await;
        (held.text().without_styles(), verdict)
    }

    #[tokio::test]
    async fn a_hold_writes_one_annotation_of_each_object() {
        let canned = shop();
        let writes = canned.writes();
        let (text, verdict) = told(canned, &["deploy/web", "cm/app", "secret/creds"], true).await;
        assert_eq!(
            text,
            "deploy/web: on hold\ncm/app: on hold\nsecret/creds: was already on hold\n"
        );
        assert_eq!(verdict, Verdict::Good);
        let shop = "namespaces/shop";
        let manager = "fieldManager=pod-reloader-plugin";
        let held = |value: Value| json!({"metadata": {"annotations": {HOLD: value}}});
        assert_eq!(
            *writes.lock().unwrap(),
            [
                (
                    format!("/apis/apps/v1/{shop}/deployments/web?{manager}"),
                    held(json!("true")),
                ),
                (
                    format!("/api/v1/{shop}/configmaps/app?{manager}"),
                    held(json!("true")),
                ),
            ]
        );
    }

    #[tokio::test]
    async fn a_release_removes_the_annotation_if_there_is_one() {
        let canned = shop();
        let writes = canned.writes();
        let (text, verdict) = told(canned, &["secret/creds", "deploy/web"], false).await;
        assert_eq!(
            text,
            "secret/creds: released\ndeploy/web: was not on hold\n"
        );
        assert_eq!(verdict, Verdict::Good);
        let writes = writes.lock().unwrap();
        let (_, patch) = &writes[0];
        assert_eq!(
            (writes.len(), patch),
            (1, &json!({"metadata": {"annotations": {HOLD: null}}}))
        );
    }

    #[tokio::test]
    async fn each_object_is_tried_whatever_happens_to_the_others() {
        let canned = shop().forbids_writes("/api/v1/namespaces/shop/configmaps/app");
        let canned = canned.forbids("/api/v1/namespaces/shop/secrets/creds");
        let objects = ["cm/app", "secret/creds", "cm/gone", "pod/x", "deploy/web"];
        let (text, verdict) = told(canned, &objects, true).await;
        let told: Vec<_> = text.lines().collect();
        assert_eq!(
            told,
            [
                r#"cm/app: Error from server (Forbidden): it is forbidden: User "u" cannot patch it"#,
                r#"secret/creds: Error from server (Forbidden): it is forbidden: User "u" cannot read it"#,
                r#"cm/gone: Error from server (NotFound): configmaps "gone" not found"#,
                "pod/x: no kind of workload is called pod: there are deployments, statefulsets, daemonsets",
                "deploy/web: on hold",
            ]
        );
        assert_eq!(verdict, Verdict::Bad);
    }

    #[tokio::test]
    async fn each_object_of_all_namespaces_is_tried_in_its_own() {
        let config_maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
        let app = [config_map("app", "key")];
        let canned = shop()
            .with_all(&config_maps("blog"), &app)
            .forbids_writes(&format!("{}/app", config_maps("shop")));
        let writes = canned.writes();
        let cluster = canned.cluster_in("elsewhere");
        let operators = Operators::find(&cluster, None).await;
        let targets = ["shop", "blog"].map(|namespace| Target {
            kind: "configmaps".to_owned(),
            name: "app".to_owned(),
            namespace: Some(Name::parse(namespace).unwrap()),
        });
        let chosen = selected();
        let (held, verdict) = each(&cluster, &operators, &chosen, &targets, true).await;
        assert_eq!(
            held.text().without_styles(),
            "configmaps/app in namespace shop: Error from server (Forbidden): it is forbidden: User \"u\" cannot patch it\n\
             configmaps/app in namespace blog: on hold\n"
        );
        assert_eq!(verdict, Verdict::Bad);
        let written = writes.lock().unwrap();
        let [(path, _)] = &**written else {
            panic!("{written:?}")
        };
        assert!(path.starts_with(&config_maps("blog")), "{path}");
        let json = serde_json::to_value(&held).unwrap();
        assert_eq!(json["objects"][1]["namespace"], "blog");
    }

    #[tokio::test]
    async fn a_selected_object_that_is_gone_is_no_fault() {
        let cluster = shop().cluster();
        let operators = Operators::find(&cluster, None).await;
        let targets = ["deploy", "cm"].map(|kind| Target::here(kind, "gone"));
        let (held, verdict) = each(&cluster, &operators, &selected(), &targets, false).await;
        let text = held.text().without_styles();
        assert_eq!(text, "deploy/gone: gone\ncm/gone: gone\n");
        assert_eq!(verdict, Verdict::Good);
    }

    #[tokio::test]
    async fn a_dry_run_asks_the_server_and_stores_nothing() {
        let canned = shop().forbids_writes("/api/v1/namespaces/shop/configmaps/app");
        let writes = canned.writes();
        let mut cluster = canned.cluster();
        cluster.writes = Writes::DryRun;
        let (text, verdict) = told_by(&cluster, &["deploy/web", "cm/app"], true).await;
        let told: Vec<_> = text.lines().collect();
        assert_eq!(told[0], "deploy/web: on hold (server dry run)");
        assert!(told[1].contains("(Forbidden): "), "{text}");
        assert_eq!(verdict, Verdict::Bad);
        assert!(writes.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_hold_of_a_workload_that_is_not_managed_says_so() {
        let (text, verdict) = told(shop(), &["deploy/alone"], true).await;
        assert!(
            text.starts_with("deploy/alone: on hold, but it is not managed: "),
            "{text}"
        );
        assert_eq!(verdict, Verdict::Good);
    }
}
