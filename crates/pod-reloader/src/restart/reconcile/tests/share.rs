//! Tests full namespaces, and the memory of objects as workloads come and go.

use pod_reloader_core::annotations::TOGETHER;
use pod_reloader_core::dialect::Dialect;
use pod_reloader_core::object::Object;
use pod_reloader_core::workload::Reading;

use super::*;

/// Starts a loop in which a namespace has room for so many bytes.
fn with_memory(namespace_memory: usize) -> Operator {
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    let settings = Settings {
        namespace_memory,
        ..settings()
    };
    Operator::start_as(apiserver, settings, Dialects::default())
}

fn speaking_stakater() -> Operator {
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    Operator::start_as(apiserver, settings(), both_dialects())
}

fn both_dialects() -> Dialects {
    Dialects {
        spoken: [Dialect::PodReloader, Dialect::Stakater].into(),
        ..Dialects::default()
    }
}

fn matching(mut object: Value, pattern: &str) -> Value {
    object["metadata"]["annotations"] = json!({"configmap.reloader.stakater.com/reload": pattern});
    object
}

fn large(name: &str) -> Value {
    let names: Vec<_> = (0..50).map(|number| format!("{name}-{number}")).collect();
    listing(deployment(name), &names.join(","))
}

fn weight(object: Value) -> usize {
    let object: WorkloadObject = serde_json::from_value(object).unwrap();
    let workload = object.into_workload(
        WorkloadKind::DEPLOYMENT,
        &Reading::default(),
        &Inherited::default(),
    );
    workload.unwrap().weight()
}

impl Operator {
    fn left_out(&self) -> i64 {
        self.reconciler.publish();
        self.metrics.left_out.get()
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_room_in_its_namespace_is_reported_and_managed_once_it_fits() {
    let operator = with_memory(weight(large("large")));
    operator.writes(large("large"));
    operator.writes(deployment("web"));
    pass(Duration::from_secs(20)).await;
    // Each list shows the workload again, like this.
    operator.sees("web");
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), "");
    assert_ne!(operator.config_hash("large"), "");
    assert_eq!(operator.left_out(), 1);
    assert_eq!(operator.events("NamespaceTooLarge"), 1);
    assert!(!operator.reconciler.is_referenced(&reference("app")));

    operator.reconciler.workload_gone(&id("large"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.left_out(), 0);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_becomes_smaller_makes_room_for_another() {
    let operator = with_memory(weight(large("large")));
    operator.writes(large("large"));
    operator.writes(deployment("web"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.left_out(), 1);
    operator.writes(deployment("large"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.left_out(), 0);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_workload_that_does_not_fit_any_more() {
    let operator = with_memory(weight(large("large")));
    operator.apiserver.write_config_map("base", "1");
    let mut web = listing(deployment("web"), "app,base");
    web["metadata"]["annotations"][TOGETHER] = json!("app,base");
    operator.writes(web);
    pass(Duration::from_secs(20)).await;
    let remembered = || operator.reconciler.progress.memories.ids(|_| true);
    assert_eq!(remembered(), [id("web")]);

    let names: Vec<_> = (0..200).map(|number| format!("app-{number}")).collect();
    let larger = operator.apiserver.deployment("web");
    operator.writes(listing(larger, &names.join(",")));
    assert_eq!(operator.left_out(), 1);
    assert!(remembered().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_gone_is_no_longer_left_out() {
    let operator = with_memory(weight(large("large")));
    operator.writes(large("large"));
    operator.writes(deployment("web"));
    operator.writes(deployment("api"));
    assert_eq!(operator.left_out(), 2);
    operator.reconciler.workload_gone(&id("web"));
    assert_eq!(operator.left_out(), 1);
    // The watch has not yet reported that `api` is gone, too.
    operator.apiserver.delete_deployment("api");
    operator.reconciler.workload_gone(&id("large"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.left_out(), 0);
    assert_eq!(operator.patches().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_regular_expression_that_comes_or_goes_leaves_changes_of_others_watched() {
    let operator = speaking_stakater();
    operator.writes(deployment("web"));
    pass(Duration::from_secs(20)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(1)).await;
    let reads = operator.reads("app").len();
    operator.writes(matching(deployment("api"), "x.*"));
    pass(Duration::from_millis(100)).await;
    assert_eq!(operator.reads("app").len(), reads, "it was just read");
    operator.reconciler.workload_gone(&id("api"));
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    let notes = operator.notes("ConfigChanged");
    let last = notes.last().map(String::as_str);
    assert_eq!(last, Some("restarting pods: ConfigMap app changed"));
}

#[tokio::test(start_paused = true)]
async fn objects_that_only_a_new_regular_expression_matches_are_listed_anew() {
    let operator = speaking_stakater();
    operator.writes(matching(deployment("web"), "app.*"));
    pass(Duration::from_secs(20)).await;
    // No workload matches it, so its events are ignored.
    operator.apiserver.write_config_map("new", "1");
    operator.writes(matching(deployment("api"), "new.*"));
    pass(Duration::from_secs(20)).await;
    assert!(!operator.reads("new").is_empty(), "it is found");
    operator.changes("new", "2").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("api"), operator.hash_of("new"));
    assert_eq!(operator.config_hash("web"), "");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_comes_while_its_namespace_is_first_listed_is_not_missed() {
    let operator = speaking_stakater();
    let web = matching(deployment("web"), "app.*");
    let web: WorkloadObject = serde_json::from_value(web).unwrap();
    let web = web.into_workload(
        WorkloadKind::DEPLOYMENT,
        &Reading::new(both_dialects(), []),
        &Inherited::default(),
    );
    let web = web.unwrap();
    let digests = &operator.reconciler.digests;
    let takes = Duration::from_secs(1);
    operator.apiserver.now(|state| state.list_takes = takes);
    let comes = async {
        pass(takes / 2).await;
        operator.apiserver.write_config_map("app-2", "1");
        digests.observe(&reference("app-2"), Some("2"), Instant::now());
    };
    let (first, ()) = tokio::join!(digests.snapshot(&web, None), comes);
    assert!(!first.unwrap().objects.contains_key(&reference("app-2")));
    let next = digests.snapshot(&web, None).await.unwrap();
    assert!(next.objects.contains_key(&reference("app-2")));
}
