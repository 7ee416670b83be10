//! Pods that reload changed config in place of a restart.

use pod_reloader_core::annotations::{DEADLINE, HOLD, RELOAD_TIMEOUT, RELOAD_URL, STAGED};
use pod_reloader_core::reload_round::{Answer, CONFIG_SYNC};

use super::stages::{becomes, staged, with_pods};
use super::*;

/// Returns a Deployment that mounts ConfigMap `app`, and whose pods reload it.
fn reloading() -> Value {
    let mut object = deployment("web");
    object["metadata"]["annotations"][RELOAD_URL] = json!("http://:8080/-/reload");
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    object["spec"]["template"]["spec"] = json!({
        "containers": [{"name": "main", "volumeMounts": [{"name": "config"}]}],
        "volumes": [{"name": "config", "configMap": {"name": "app"}}],
    });
    object
}

fn pod(number: u8) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{number}"),
            "namespace": "ns",
            "uid": format!("pod-{number}"),
            "labels": {"app": "web", "pod-template-hash": "5f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f", "uid": "rs", "controller": true}],
        },
        "spec": {},
        "status": {"podIP": format!("10.0.0.{number}"), "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Starts a loop with this Deployment, which has three pods and is at rest.
async fn at_rest(web: Value) -> Operator {
    all_at_rest(settings(), [web]).await
}

/// Starts a loop with these Deployments, which are healthy and at rest. The pods are those of `web`.
async fn all_at_rest(settings: Settings, deployments: impl IntoIterator<Item = Value>) -> Operator {
    let apiserver = Apiserver::default();
    apiserver.now(|state| {
        for pod in [1, 2, 3].map(pod) {
            state.pods.insert(apiserver::name_of(&pod), pod);
        }
    });
    for name in ["app", "own"] {
        apiserver.write_config_map(name, "1");
    }
    for object in deployments {
        apiserver.write_deployment(object);
    }
    let operator = start(apiserver, settings);
    let names = operator.apiserver.deployments();
    names.iter().for_each(|name| operator.sees(name));
    // One after the other gets its first hash.
    for _ in &names {
        settles(&operator).await;
        names.iter().for_each(|name| becomes(&operator, name, 1));
    }
    settles(&operator).await;
    operator.apiserver.forget_calls();
    operator
}

/// Starts a loop in which pods may reload.
fn start(apiserver: Apiserver, settings: Settings) -> Operator {
    let scope = scope().with(Labels::default(), Dialects::default());
    let scope = scope.and_http_reloads(true);
    let scope = scope.and_stages(judged(&settings));
    let operator = Operator::start_in(scope, apiserver, settings, RecentWrites::default());
    operator.lists_are_whole();
    operator
}

/// Lets time pass in which objects settle and nothing else ends.
async fn settles(operator: &Operator) {
    pass(Duration::from_secs(5)).await;
    operator.sees("web");
}

async fn changes(operator: &Operator, value: &str) {
    operator.changes("app", value).await;
    settles(operator).await;
}

/// Lets the pods begin to reload changed content, which one of them does not have yet.
async fn begins_to_reload(operator: &Operator) {
    operator.pods_answer(&[("10.0.0.1", NOT_YET)]);
    changes(operator, "2").await;
    pass(Duration::from_secs(20)).await;
    assert!(!operator.asked().is_empty());
}

impl Operator {
    fn asked(&self) -> Vec<String> {
        let calls = self.apiserver.calls().into_iter();
        let asked = calls.filter_map(|call| match call {
            Call::Ask(at) => Some(at),
            _ => None,
        });
        let mut asked: Vec<_> = asked.collect();
        asked.sort();
        asked
    }

    fn baseline(&self) -> String {
        let object = self.apiserver.deployment("web");
        let baseline = object["metadata"]["annotations"][BASELINE].as_str();
        baseline.unwrap_or_default().to_owned()
    }

    fn pods_answer(&self, answers: &[(&str, Answer)]) {
        let answers = answers
            .iter()
            .map(|(at, answer)| ((*at).to_owned(), *answer));
        let answers = answers.collect();
        self.apiserver.now(|state| state.pod_answers = answers);
    }
}

const REFUSED: Answer = Answer::Status(500, None);
const NOT_YET: Answer = Answer::Status(425, None);
const ALL: [&str; 3] = [
    "10.0.0.1:8080/-/reload",
    "10.0.0.2:8080/-/reload",
    "10.0.0.3:8080/-/reload",
];

#[tokio::test(start_paused = true)]
async fn each_pod_is_asked_once_and_nothing_rolls() {
    let operator = at_rest(reloading()).await;
    let before = operator.config_hash("web");
    changes(&operator, "2").await;
    assert_eq!(
        operator.baseline(),
        format!("{before}!=-"),
        "some of them may reload"
    );
    pass(Duration::from_secs(20)).await;
    operator.sees("web");
    assert_eq!(operator.asked(), ALL);
    assert_eq!(operator.config_hash("web"), before);
    assert_eq!(
        operator.baseline(),
        format!("{before}!={}", operator.hash_of("app"))
    );
    let note = "reloaded 3 pods: ConfigMap app changed";
    assert_eq!(operator.notes("ConfigReloaded"), [note]);
    assert_eq!(operator.events("ConfigChanged"), 0);
    operator.apiserver.now(|state| {
        for pod in state.pods.values() {
            assert!(
                pod["metadata"]["annotations"][CONFIG_SYNC].is_string(),
                "{pod}"
            );
        }
    });
    let text = operator.metrics.text();
    assert!(
        text.contains("pod_reloader_reloads_total{outcome=\"reloaded\"} 1"),
        "{text}"
    );
    // A resync finds nothing to do, and neither does another leader.
    operator.apiserver.forget_calls();
    let next = start(operator.apiserver.clone(), settings());
    for operator in [&operator, &next] {
        operator.sees("web");
        operator.hears("app").await;
        pass(Duration::from_secs(60)).await;
    }
    assert_eq!((operator.patches().len(), operator.asked().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_pod_that_cannot_reload_restarts_all() {
    let operator = at_rest(reloading()).await;
    operator.pods_answer(&[("10.0.0.2", REFUSED)]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    let note = "restarting pods, because they cannot reload changed config: pod web-2 answered 500";
    assert_eq!(operator.notes("ReloadFailed"), [note]);
    assert_eq!(
        operator.notes("ConfigChanged"),
        ["restarting pods: ConfigMap app changed"]
    );
    assert_eq!(operator.events("ConfigReloaded"), 0);
    let text = operator.metrics.text();
    assert!(
        text.contains("pod_reloader_reloads_total{outcome=\"failed\"} 1"),
        "{text}"
    );
    // What was begun before says nothing of the pods that start now.
    operator.sees("web");
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.events("ConfigChanged"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pass_does_not_wait_for_pods() {
    let operator = at_rest(reloading()).await;
    operator.pods_answer(&[("10.0.0.1", NOT_YET)]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(30)).await;
    let others: Vec<_> = (0..20).map(|it| format!("other-{it}")).collect();
    for name in &others {
        operator.writes(deployment(name));
    }
    pass(Duration::from_secs(5)).await;
    for name in &others {
        assert_eq!(
            operator.config_hash(name),
            operator.hash_of("app"),
            "{name}"
        );
    }
    operator.pods_answer(&[]);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.events("ConfigReloaded"), 1);
}

#[tokio::test(start_paused = true)]
async fn content_that_changes_meanwhile_begins_another_round() {
    let operator = at_rest(reloading()).await;
    changes(&operator, "2").await;
    changes(&operator, "3").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(
        operator.asked(),
        ALL,
        "the first round has asked nobody yet"
    );
    let baseline = format!("!={}", operator.hash_of("app"));
    assert!(
        operator.baseline().ends_with(&baseline),
        "{}",
        operator.baseline()
    );
    assert_eq!(operator.events("ConfigReloaded"), 1);
}

#[tokio::test(start_paused = true)]
async fn content_that_comes_back_is_reloaded_as_well() {
    let operator = at_rest(reloading()).await;
    let before = operator.config_hash("web");
    // Some of the pods may have reloaded by now.
    operator.pods_answer(&[("10.0.0.1", NOT_YET)]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    operator.apiserver.forget_calls();
    operator.pods_answer(&[]);
    changes(&operator, "1").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.asked(), ALL);
    assert_eq!(operator.config_hash("web"), before);
    operator.sees("web");
    // And if they cannot, the pod template changes although its hash stood for this content.
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    operator.sees("web");
    operator.pods_answer(&[("10.0.0.1", REFUSED)]);
    changes(&operator, "1").await;
    pass(Duration::from_secs(20)).await;
    assert_ne!(operator.config_hash("web"), before);
    assert_eq!(operator.events("ReloadFailed"), 1);
    operator.sees("web");
    operator.apiserver.forget_calls();
    pass(Duration::from_secs(60)).await;
    assert_eq!((operator.patches().len(), operator.asked().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_begins_a_round_again() {
    let operator = at_rest(reloading()).await;
    operator.pods_answer(&[("10.0.0.1", NOT_YET)]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    let apiserver = operator.ends();
    drop(operator);
    // Even if the content is the one again that the config hash stands for.
    apiserver.write_config_map("app", "1");
    apiserver.forget_calls();
    let next = start(apiserver, settings());
    next.pods_answer(&[]);
    next.sees("web");
    pass(Duration::from_secs(30)).await;
    assert_eq!(next.asked(), ALL);
    assert_eq!(next.events("ConfigChanged"), 0);
    assert_eq!(next.events("ConfigReloaded"), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_reload_are_restarted_by_a_new_leader_that_may_not_ask_them() {
    let operator = at_rest(reloading()).await;
    begins_to_reload(&operator).await;
    let apiserver = operator.ends();
    drop(operator);
    let next = Operator::start_in(scope(), apiserver, settings(), RecentWrites::default());
    next.sees("web");
    pass(Duration::from_secs(60)).await;
    assert_eq!(next.asked().len(), 0);
    assert_eq!(next.events("ConfigReloaded"), 0);
    assert_eq!(next.config_hash("web"), next.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_ends_its_rounds() {
    let operator = at_rest(reloading()).await;
    changes(&operator, "2").await;
    let apiserver = operator.ends();
    drop(operator);
    pass(Duration::from_secs(60)).await;
    let asked = apiserver.times(|call| matches!(call, Call::Ask(_)));
    assert_eq!(asked.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_pods_have_in_another_way_restarts_them() {
    let mut web = reloading();
    let env =
        json!([{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "key"}}}]);
    web["spec"]["template"]["spec"]["containers"][0]["env"] = env;
    // Another object is there as files alone.
    web = listing(web, "app, other");
    let other = json!({"name": "other", "configMap": {"name": "other"}});
    web["spec"]["template"]["spec"]["volumes"] = json!([other]);
    web["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "other"}]);
    let operator = at_rest(web).await;
    operator.changes("other", "1").await;
    settles(&operator).await;
    assert_eq!(
        operator.events("ConfigChanged"),
        1,
        "an object that appears restarts pods"
    );
    settles(&operator).await;
    changes(&operator, "2").await;
    assert_eq!(
        (operator.asked().len(), operator.events("ConfigChanged")),
        (0, 2)
    );
    settles(&operator).await;
    operator.changes("other", "2").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(
        (operator.asked().len(), operator.events("ConfigChanged")),
        (3, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hold_keeps_pods_from_reloading_and_nothing_is_lost() {
    let operator = at_rest(reloading()).await;
    operator.annotates("web", HOLD, "true");
    changes(&operator, "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!((operator.asked().len(), operator.patches().len()), (0, 0));
    operator.annotates("web", HOLD, "false");
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.asked(), ALL);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_no_longer_reloads_is_restarted() {
    let operator = at_rest(reloading()).await;
    changes(&operator, "2").await;
    operator.takes_away("web", RELOAD_URL);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.asked().len(), 0);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deleted_ends_its_round() {
    let operator = at_rest(reloading()).await;
    changes(&operator, "2").await;
    operator.apiserver.delete_deployment("web");
    operator.reconciler.workload_gone(&id("web"));
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_has_the_content_is_restarted_after_the_time_out() {
    let mut web = reloading();
    web["metadata"]["annotations"][RELOAD_TIMEOUT] = json!("30s");
    let operator = at_rest(web).await;
    operator.pods_answer(&[("10.0.0.3", NOT_YET)]);
    let began = Instant::now();
    changes(&operator, "2").await;
    while operator.events("ReloadFailed") == 0 {
        pass(Duration::from_secs(1)).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    let asked = operator.asked();
    assert_eq!(asked.iter().filter(|it| **it == ALL[0]).count(), 1);
    assert!(asked.iter().filter(|it| **it == ALL[2]).count() > 5);
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_observes_asks_no_pod() {
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    apiserver.write_deployment(reloading());
    let scope = scope().with(Labels::default(), Dialects::default());
    let scope = scope.and_http_reloads(true);
    let operator = Operator::start_in(scope, apiserver, observing(), RecentWrites::default());
    operator.sees("web");
    settles(&operator).await;
    changes(&operator, "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!((operator.asked().len(), operator.patches().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn reloads_are_braked_like_restarts_and_take_no_more_writes() {
    let operator = at_rest(reloading()).await;
    for value in 2..9 {
        changes(&operator, &value.to_string()).await;
        pass(Duration::from_secs(15)).await;
        operator.sees("web");
    }
    assert_eq!(
        operator.events("ConfigReloaded"),
        4,
        "and the first hash is one"
    );
    assert_eq!(operator.events("RestartedTooOften"), 1);
    assert_eq!(operator.events("ConfigHashReverted"), 0);
}

/// Returns the Deployment whose pods reload, and another one beside it, which has to be restarted. Both are staged.
fn both_staged() -> [Value; 2] {
    let mut web = reloading();
    web["metadata"]["annotations"][STAGED] = json!("configmaps");
    [with_pods(web, 1), staged("worker")]
}

#[tokio::test(start_paused = true)]
async fn later_stages_wait_until_pods_have_reloaded_and_been_healthy() {
    let operator = all_at_rest(settings(), both_staged()).await;
    let before = operator.config_hash("worker");
    begins_to_reload(&operator).await;
    pass(Duration::from_secs(40)).await;
    assert_eq!(operator.config_hash("worker"), before);
    let note =
        "waiting for Deployment web, which gets the changed config first, before restarting pods";
    assert_eq!(operator.notes("WaitingForStage"), [note]);

    operator.pods_answer(&[]);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.events("ConfigReloaded"), 1);
    assert_eq!(operator.config_hash("worker"), before, "no soak is over");
    becomes(&operator, "web", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("worker"), operator.hash_of("app"));
    assert_ne!(operator.config_hash("web"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_unhealthy_while_they_reload_let_no_later_stage_go() {
    for answer in [NOT_YET, REFUSED] {
        let operator = all_at_rest(settings(), both_staged()).await;
        let before = operator.config_hash("worker");
        begins_to_reload(&operator).await;
        operator.pods_answer(&[("10.0.0.1", answer)]);
        becomes(&operator, "web", 0);
        operator.sees("worker");
        pass(Duration::from_secs(900)).await;
        assert_eq!(operator.config_hash("worker"), before);
        assert_eq!(operator.events("ReloadFailed"), 1);
        assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
        operator.sees("web");
        pass(Duration::from_secs(900)).await;
        assert_eq!(operator.config_hash("worker"), before);
        assert_eq!(operator.events("RestartHalted"), 2);
    }
}

/// The time after which nothing that pods were about to do with the content is under way.
const LONG: Duration = Duration::from_secs(60);

/// Lets the pods of a staged workload reload content that makes them unhealthy, does something about the workload, and
/// asserts that the later stage does not get the content.
async fn unhealthy_and_then(edit: impl AsyncFnOnce(&Operator) -> Option<Operator>) -> Operator {
    let [web, worker] = both_staged();
    let mut web = listing(web, "app, own");
    web["spec"]["template"]["spec"] = json!({
        "containers": [{"name": "main", "volumeMounts": [{"name": "config"}, {"name": "own"}]}],
        "volumes": [
            {"name": "config", "configMap": {"name": "app"}},
            {"name": "own", "configMap": {"name": "own"}},
        ],
    });
    let operator = all_at_rest(settings(), [web, worker]).await;
    let before = operator.config_hash("worker");
    begins_to_reload(&operator).await;
    becomes(&operator, "web", 0);
    let operator = edit(&operator).await.unwrap_or(operator);
    pass(LONG).await;
    assert_eq!(operator.config_hash("worker"), before);
    operator
}

#[tokio::test(start_paused = true)]
async fn while_pods_reload_a_change_of_other_config_lets_no_later_stage_go() {
    let edit = async |operator: &Operator| {
        operator.changes("own", "2").await;
        None
    };
    unhealthy_and_then(edit).await;
}

#[tokio::test(start_paused = true)]
async fn while_pods_reload_a_hold_lets_no_later_stage_go() {
    let edit = async |operator: &Operator| {
        operator.annotates("web", HOLD, "true");
        operator.pods_answer(&[("10.0.0.1", REFUSED)]);
        None
    };
    let operator = unhealthy_and_then(edit).await;
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.events("RestartHalted"), 2);
    // Whoever takes the hold away lets it have the whole of the content, by a restart.
    operator.annotates("web", HOLD, "false");
    pass(Duration::from_secs(30)).await;
    assert_ne!(operator.config_hash("web"), operator.config_hash("worker"));
}

#[tokio::test(start_paused = true)]
async fn while_pods_reload_a_short_deadline_lets_no_later_stage_go() {
    let edit = async |operator: &Operator| {
        operator.annotates("web", DEADLINE, "30s");
        None
    };
    unhealthy_and_then(edit).await;
}

#[tokio::test(start_paused = true)]
async fn while_pods_reload_a_new_leader_lets_no_later_stage_go() {
    let edit = async |operator: &Operator| {
        let next = start(operator.ends(), settings());
        ["worker", "web"].iter().for_each(|name| next.sees(name));
        Some(next)
    };
    unhealthy_and_then(edit).await;
}

#[tokio::test(start_paused = true)]
async fn while_pods_reload_a_healthy_workload_on_hold_stops_others_until_its_deadline() {
    let operator = all_at_rest(settings(), both_staged()).await;
    operator.pods_answer(&[("10.0.0.1", REFUSED)]);
    let before = operator.config_hash("worker");
    operator.changes("app", "2").await;
    pass(Duration::from_secs(6)).await;
    operator.annotates("web", HOLD, "true");
    pass(Duration::from_secs(300)).await;
    assert_eq!(operator.config_hash("worker"), before);
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.config_hash("worker"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_unhealthy_with_what_they_have_reloaded_stop_later_stages() {
    let operator = all_at_rest(settings(), both_staged()).await;
    let before = operator.config_hash("worker");
    changes(&operator, "bad").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.events("ConfigReloaded"), 1);
    becomes(&operator, "web", 0);
    pass(Duration::from_secs(900)).await;
    assert_eq!(operator.config_hash("worker"), before);
    assert_eq!(operator.events("RestartHalted"), 2);
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_reload_restart_before_later_stages() {
    let operator = all_at_rest(settings(), both_staged()).await;
    let before = operator.config_hash("worker");
    operator.pods_answer(&[("10.0.0.2", REFUSED)]);
    changes(&operator, "2").await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(operator.config_hash("web"), operator.hash_of("app"));
    assert_eq!(operator.config_hash("worker"), before);
    becomes(&operator, "web", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(operator.config_hash("worker"), operator.hash_of("app"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_reload_count_as_a_rollout_until_they_have() {
    let one = Limits {
        cluster: 1,
        namespace: 0,
    };
    let settings = Settings {
        limits: one,
        ..settings()
    };
    let both = [
        with_pods(reloading(), 1),
        with_pods(deployment("worker"), 1),
    ];
    let operator = all_at_rest(settings, both).await;
    let before = operator.config_hash("worker");
    begins_to_reload(&operator).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.config_hash("worker"), before);
    assert_eq!(operator.events("WaitingForSlot"), 1);
    operator.pods_answer(&[]);
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.events("ConfigReloaded"), 1);
    assert_eq!(operator.config_hash("worker"), operator.hash_of("app"));
}
