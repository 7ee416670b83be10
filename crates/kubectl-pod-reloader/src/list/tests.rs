use super::*;
use crate::cluster::canned::{Canned, deployment, operator, operator_with};
use pod_reloader_core::annotations::CONFIG_HASH;
use serde_json::{Value, json};

const HASH: &str = "v1.dcdaaec6.00112233467b0198a29241395d135eb7a8d25cb046628dc25951ea0ba3d94e28";

/// Returns a Deployment that is managed and has a hash.
fn managed(name: &str) -> Value {
    let mut workload = deployment(name);
    workload["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/configmaps": "app"});
    workload["spec"]["template"]["metadata"]["annotations"] = json!({CONFIG_HASH: HASH});
    workload
}

fn event(about: &str, reason: &str, minutes: i64) -> Value {
    let at = Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
    json!({
        "reportingComponent": "pod-reloader", "reason": reason, "type": "Normal",
        "message": format!("{reason} of {about}"), "eventTime": at.to_string(),
        "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": about},
    })
}

/// Returns a cluster with an operator and these workloads of the namespace `shop`.
fn shop(workloads: &[Value], events: &[Value]) -> Canned {
    let all = [workloads, &[operator()]].concat();
    Canned::shop()
        .with("/apis/apps/v1/deployments", json!({"items": all}))
        .with_all("/apis/apps/v1/namespaces/shop/deployments", workloads)
        .with("/api/v1/namespaces/shop/events", json!({"items": events}))
        .with("/api/v1/events", json!({"items": events}))
}

async fn listed(canned: Canned, is_of_all: bool, live: bool) -> (Listed, Verdict) {
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let query = Query {
        namespace: (!is_of_all).then_some(&cluster.namespace),
        selector: Some("team=a"),
        live,
        reads_events: true,
    };
    list(&cluster, &operators, query).await.unwrap()
}

#[tokio::test]
async fn managed_workloads_are_listed_with_what_events_say() {
    let workloads = [managed("web"), managed("api"), deployment("alone")];
    let events = [
        event("web", "ConfigChanged", 5),
        event("api", "WaitingForStage", 1),
        event("api", "ConfigChanged", 200),
    ];
    let (list, verdict) = listed(shop(&workloads, &events), false, false).await;
    assert_eq!(
        list.text().without_styles(),
        "\
NAME                  STATUS             LAST RESTART   WAITS FOR
deployment.apps/api   waiting            3h20m          WaitingForStage of api
deployment.apps/web   nothing reported   5m             -
"
    );
    assert_eq!(
        list.names().without_styles(),
        "deployment.apps/api\ndeployment.apps/web\n"
    );
    let wide = list.wide().without_styles();
    assert!(wide.contains("00112233"), "{wide}");
    assert!(wide.contains("ops/reloader"), "{wide}");
    assert_eq!(verdict, Verdict::Good);
    let (list, _) = listed(shop(&workloads, &events), true, false).await;
    let text = list.text().without_styles();
    assert!(text.starts_with("NAMESPACE   NAME"), "{text}");
    let json = serde_json::to_value(&list).unwrap();
    assert_eq!(json["kind"], "WorkloadList");
    assert_eq!(json["items"][0]["status"], "waiting");
    assert_eq!(json["items"][0]["waitsFor"], "WaitingForStage of api");
}

#[tokio::test]
async fn the_number_of_requests_does_not_depend_on_the_number_of_workloads() {
    let all = (0..1000).map(|at| {
        let mut workload = managed("web");
        workload["metadata"]["name"] = json!(format!("web-{at}"));
        workload["metadata"]["namespace"] = json!(format!("shop-{at}"));
        workload
    });
    let operator =
        operator_with(&["--watch-namespace-selector={\"matchLabels\":{\"team\":\"a\"}}"]);
    let all = Vec::from_iter(all.chain([operator]));
    let namespaces = (0..1000)
        .map(|at| json!({"metadata": {"name": format!("shop-{at}"), "labels": {"team": "a"}}}));
    let namespaces = Vec::from_iter(namespaces);
    let canned = Canned::shop()
        .with("/apis/apps/v1/deployments", json!({"items": all}))
        .with("/api/v1/namespaces", json!({"items": namespaces}));
    let reads = canned.reads();
    let (list, _) = listed(canned, true, false).await;
    assert_eq!(list.items.len(), 1000);
    let reads = reads.lock().unwrap();
    // The operator's Deployment, Events, namespaces, three kinds of workloads.
    assert!(reads.len() <= 7, "{reads:?}");
    let selecting = reads
        .iter()
        .filter(|it| it.contains("labelSelector=team%3Da"));
    assert_eq!(selecting.count(), 3, "{reads:?}");
}

#[tokio::test]
async fn a_list_of_names_reads_no_events() {
    let canned = shop(&[managed("web")], &[]).forbids("/api/v1/namespaces/shop/events");
    let reads = canned.reads();
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let query = Query {
        namespace: Some(&cluster.namespace),
        selector: None,
        live: false,
        reads_events: false,
    };
    let (listed, verdict) = list(&cluster, &operators, query).await.unwrap();
    assert_eq!(listed.names().without_styles(), "deployment.apps/web\n");
    assert_eq!(verdict, Verdict::Good);
    let reads = reads.lock().unwrap();
    assert!(!reads.iter().any(|it| it.contains("/events")), "{reads:?}");
}

#[tokio::test]
async fn the_operator_is_asked_only_if_the_user_wants_that() {
    let workloads = [managed("api"), managed("web")];
    let canned = || {
        shop(&workloads, &[])
            .reporting("current")
            .reporting_of("web", "restart due for a change")
    };
    let status = |list: &Listed| {
        let status = list.items.iter().map(|item| item.status.to_string());
        Vec::from_iter(status)
    };
    let (list, _) = listed(canned(), false, false).await;
    assert_eq!(status(&list), ["nothing reported", "nothing reported"]);
    let (list, verdict) = listed(canned(), false, true).await;
    assert_eq!(status(&list), ["up to date", "restart due"]);
    assert_eq!(verdict, Verdict::Good);
    let silent = canned().with_no_report();
    let (list, verdict) = listed(silent, false, true).await;
    assert_eq!(status(&list), ["nothing reported", "restart due"]);
    assert_eq!(
        list.unseen,
        ["1 workload not asked about: the webhook of pod-reloader does not answer"]
    );
    assert_eq!(verdict, Verdict::Unknown);
}

#[tokio::test]
async fn what_cannot_be_seen_makes_the_list_uncertain() {
    let canned = shop(&[managed("web")], &[]).forbids("/api/v1/namespaces/shop/events");
    let (list, verdict) = listed(canned, false, false).await;
    let [item] = &*list.items else {
        panic!("{:?}", list.items)
    };
    assert_eq!(item.status.to_string(), "not known");
    assert_eq!(verdict, Verdict::Unknown);
    let none = Canned::shop().with_all(
        "/apis/apps/v1/namespaces/shop/deployments",
        &[managed("web")],
    );
    let (list, verdict) = listed(none, false, false).await;
    assert_eq!((list.items.len(), verdict), (0, Verdict::Bad));
    assert_eq!(list.text().without_styles(), "");
}

async fn round(canned: Canned) -> Round {
    round_of(canned, false).await
}

async fn round_of(canned: Canned, is_of_all: bool) -> Round {
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let query = Query {
        namespace: (!is_of_all).then_some(&cluster.namespace),
        selector: None,
        live: false,
        reads_events: true,
    };
    read(&cluster, &operators, query).await.unwrap()
}

#[tokio::test]
async fn a_watch_tells_what_has_changed_since_the_last_list() {
    let [web, api] = ["web", "api"].map(managed);
    let both = [web.clone(), api];
    let mut watch = Watch::new(false);
    let mut told = |round: &Round| watch.lines(round).without_styles();
    let first = round(shop(&both, &[])).await;
    assert_eq!(
        told(&first),
        "\
NAME                  STATUS             LAST RESTART   WAITS FOR
deployment.apps/api   nothing reported   -              -
deployment.apps/web   nothing reported   -              -
"
    );
    assert_eq!(told(&first), "");
    let waits = [event("web", "WaitingForStage", 1)];
    let waiting = round(shop(&both, &waits)).await;
    assert_eq!(
        told(&waiting),
        "deployment.apps/web   waiting            -              WaitingForStage of web\n"
    );
    let restarts = [event("web", "ConfigChanged", 5)];
    let restarted = round(shop(&both, &restarts)).await;
    assert_eq!(
        told(&restarted),
        "deployment.apps/web   nothing reported   5m             -\n"
    );
    let alone = round(shop(&[web], &restarts)).await;
    assert_eq!(
        told(&alone),
        "deployment.apps/api   gone               -              -\n"
    );
}

#[tokio::test]
async fn a_workload_that_cannot_be_seen_for_a_while_is_not_gone() {
    let shop = || shop(&[managed("web")], &[]);
    let deployments = "/apis/apps/v1/namespaces/shop/deployments";
    let seen = round(shop()).await;
    let dark = round(shop().refuses(deployments, "etcd is down")).await;
    let mut watch = Watch::new(false);
    assert!(watch.lines(&seen).without_styles().contains("web"));
    assert!(watch.notes(&seen).is_empty());
    assert_eq!(watch.lines(&dark).without_styles(), "");
    let notes = watch.notes(&dark);
    let is_told = |note: &String| note.contains("etcd is down");
    assert!(notes.iter().any(is_told), "{notes:?}");
    assert!(watch.notes(&dark).is_empty(), "once is enough");
    assert_eq!(watch.lines(&seen).without_styles(), "");
}

#[tokio::test]
async fn events_that_cannot_be_read_for_a_while_change_no_line() {
    let events = "/api/v1/namespaces/shop/events";
    let waits = [event("web", "WaitingForStage", 1)];
    let [web, api] = ["web", "api"].map(managed);
    let alone = [web.clone()];
    let seen = || shop(&alone, &waits);
    let mut watch = Watch::new(false);
    let mut told = |round: &Round| watch.lines(round).without_styles();
    let good = round(seen()).await;
    assert!(told(&good).contains("waiting"));
    let dark = round(seen().refuses(events, "etcd is down")).await;
    assert!(!dark.is_whole);
    assert_eq!(told(&dark), "");
    assert_eq!(told(&good), "");
    let both = [web, api];
    let dark = round(shop(&both, &waits).refuses(events, "etcd is down")).await;
    let new = told(&dark);
    assert!(new.starts_with("deployment.apps/api "), "{new}");
    assert_eq!(new.lines().count(), 1, "{new}");
    assert_eq!(told(&dark), "");
}

#[tokio::test]
async fn without_the_right_to_list_events_changes_are_told() {
    let events = "/api/v1/namespaces/shop/events";
    let mut rolling = managed("web");
    rolling["status"]["availableReplicas"] = json!(0);
    let mut watch = Watch::new(false);
    let first = round(shop(&[managed("web")], &[]).forbids(events)).await;
    assert!(first.is_whole);
    assert!(watch.lines(&first).without_styles().contains("not known"));
    let second = round(shop(&[rolling], &[]).forbids(events)).await;
    let told = watch.lines(&second).without_styles();
    assert!(told.contains("rolling out"), "{told}");
}

/// Returns a Deployment that is managed, and whose hash the operator wrote so many minutes ago.
fn written(name: &str, minutes: i64) -> Value {
    let at = Timestamp::now() - jiff::SignedDuration::from_mins(minutes);
    let hash = format!("f:{CONFIG_HASH}");
    let annotations = json!({"f:annotations": {hash: {}}});
    let mut workload = managed(name);
    workload["metadata"]["managedFields"] = json!([{
        "manager": "pod-reloader", "operation": "Apply", "apiVersion": "apps/v1",
        "time": at.to_string(), "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:template": {"f:metadata": annotations}}},
    }]);
    workload
}

#[tokio::test]
async fn the_end_of_an_event_is_no_restart() {
    let restart = |minutes| [event("web", "ConfigChanged", minutes)];
    let mut watch = Watch::new(false);
    let mut told = |round: &Round| watch.lines(round).without_styles();
    let first = round(shop(&[written("web", 59)], &restart(60))).await;
    assert!(told(&first).contains("60m"));
    // The operator has written something else since then.
    let over = round(shop(&[written("web", 30)], &[])).await;
    assert!(over.listed.items[0].last_restart.is_some());
    assert_eq!(told(&over), "");
    let never = round(shop(&[managed("web")], &[])).await;
    assert_eq!(told(&never), "");
    let again = round(shop(&[managed("web")], &restart(5))).await;
    let again = told(&again);
    assert!(again.contains("5m"), "{again}");
}

#[tokio::test]
async fn a_workload_is_gone_whatever_cannot_be_read_of_namespaces() {
    let of = |namespace: &str| {
        let mut web = managed("web");
        web["metadata"]["namespace"] = json!(namespace);
        web
    };
    let selector = "--watch-namespace-selector={\"matchLabels\":{\"team\":\"a\"}}";
    let operator = [operator_with(&[selector])];
    let with = |workloads: &[Value]| {
        let all = [workloads, &operator].concat();
        Canned::shop()
            .with("/apis/apps/v1/deployments", json!({"items": all}))
            .forbids("/api/v1/namespaces")
            .forbids("/api/v1/namespaces/shop")
            .forbids("/api/v1/namespaces/blog")
    };
    let mut watch = Watch::new(false);
    let both = round_of(with(&[of("blog"), of("shop")]), true).await;
    assert_eq!(watch.lines(&both).without_styles().lines().count(), 3);
    let one = round_of(with(&[of("shop")]), true).await;
    let told = watch.lines(&one).without_styles();
    assert!(told.starts_with("blog "), "{told}");
    assert!(told.contains("gone"), "{told}");
}

#[tokio::test]
async fn a_workload_whose_type_may_no_longer_be_listed_is_not_gone() {
    let [web, api] = ["web", "api"].map(managed);
    let stateful_sets = "/apis/apps/v1/namespaces/shop/statefulsets";
    let seen =
        |deployments: &[Value]| shop(deployments, &[]).with_all(stateful_sets, &[managed("db")]);
    let mut watch = Watch::new(false);
    let all = round(seen(&[web.clone(), api])).await;
    assert!(
        watch
            .lines(&all)
            .without_styles()
            .contains("statefulset.apps/db")
    );
    let less = round(seen(&[web]).forbids(stateful_sets)).await;
    let told = watch.lines(&less).without_styles();
    assert!(told.starts_with("deployment.apps/api "), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[tokio::test]
async fn a_long_list_has_a_long_pause_but_not_a_longer_one_than_a_minute() {
    let second = std::time::Duration::from_secs(1);
    let whole = round(shop(&[], &[])).await;
    assert_eq!(whole.pause(second / 100), 2 * second);
    assert_eq!(whole.pause(5 * second), 45 * second);
    assert_eq!(whole.pause(30 * second), 60 * second);
    let deployments = "/apis/apps/v1/namespaces/shop/deployments";
    let dark = round(shop(&[], &[]).refuses(deployments, "etcd is down")).await;
    assert_eq!(dark.pause(second / 100), 2 * second);
    assert_eq!(dark.pause(15 * second), 15 * second);
}
