//! A user and its password that change minutes apart are one restart.

use pod_reloader_core::annotations::{RESTART_WINDOW, STAGE, STAGED, TOGETHER};

use super::releases::{ENDED, UNDER_WAY, helm, of_shop};
use super::stages::becomes;
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn together(name: &str) -> Value {
    let mut object = listing(deployment(name), "user, password, app");
    object["metadata"]["annotations"][TOGETHER] = json!("user, password");
    object
}

/// Starts a loop with Deployments at rest.
async fn at_rest(deployments: impl IntoIterator<Item = Value>) -> Operator {
    let operator = Operator::start(Apiserver::default());
    for name in ["user", "password", "app"] {
        operator.apiserver.write_config_map(name, "1");
    }
    for object in deployments {
        operator.apiserver.write_deployment(object);
    }
    operator.lists_are_whole();
    operator.sees_all();
    pass(Duration::from_secs(10)).await;
    operator.sees_all();
    pass(Duration::from_secs(1)).await;
    operator.apiserver.forget_calls();
    operator
}

#[tokio::test(start_paused = true)]
async fn a_password_that_comes_eight_minutes_after_its_user_makes_one_restart() {
    let operator = at_rest([together("web")]).await;
    operator.changes("user", "2").await;
    pass(8 * MINUTE).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(
        operator.notes("WaitingForTogether"),
        [
            "waiting for 900 s at most before restarting pods: the annotation pod-reloader.cs.sap.com/together says that ConfigMap password changes, too"
        ]
    );
    assert_eq!(operator.metrics.held_up.together.get(), 1);

    operator.changes("password", "2").await;
    // What comes along with it settles with it.
    pass(Duration::from_secs(1)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(operator.patches().len(), 1);
    operator.sees_all();
    pass(30 * MINUTE).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(
        operator.notes("ConfigChanged"),
        ["restarting pods: ConfigMap app, ConfigMap password, ConfigMap user changed"]
    );
    assert_eq!(operator.events("TogetherTimedOut"), 0);
    assert_eq!(operator.metrics.held_up.together.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_password_that_never_comes_is_waited_for_until_the_time_out() {
    let operator = at_rest([together("web")]).await;
    let began = Instant::now();
    operator.changes("user", "2").await;
    pass(30 * MINUTE).await;
    assert_about(operator.only_patch() - began, 15 * MINUTE);
    assert_eq!(
        operator.notes("TogetherTimedOut"),
        ["no change of ConfigMap password in time: restarting pods without waiting any longer"]
    );
    assert_eq!(operator.events("WaitingForTogether"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_password_that_is_late_by_a_minute_is_rolled_out_at_once() {
    let operator = at_rest([together("web")]).await;
    operator.changes("user", "2").await;
    pass(16 * MINUTE).await;
    operator.sees_all();
    operator.changes("password", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_change_only_the_fresh_reads_show_waits_for_its_password() {
    // Without a settle period, nothing else looks at the change once more.
    let operator = at_rest([of_shop(settling(together("web"), "0s"))]).await;
    helm(&operator, 2, UNDER_WAY, false);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.events("WaitingForRelease"), 1);
    // No watch shows this.
    operator.apiserver.write_config_map("user", "2");
    helm(&operator, 2, ENDED, true);
    pass(MINUTE).await;
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.events("WaitingForTogether"), 1);
    operator.changes("password", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resync_and_an_edit_of_something_else_end_no_wait() {
    let operator = at_rest([together("web")]).await;
    operator.changes("user", "2").await;
    for minute in 0..14 {
        let mut web = operator.apiserver.deployment("web");
        web["spec"]["replicas"] = json!(minute);
        operator.apiserver.write_deployment(web);
        operator.sees_all();
        operator.hears("user").await;
        operator.hears("password").await;
        pass(MINUTE).await;
    }
    assert_eq!(operator.patches().len(), 0);
    assert_eq!(operator.events("WaitingForTogether"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_neither_restarts_at_once_nor_waits_for_ever() {
    let old = at_rest([together("web")]).await;
    old.changes("user", "2").await;
    pass(4 * MINUTE).await;
    let new = Operator::start(old.ends());
    let began = Instant::now();
    new.sees("web");
    pass(30 * MINUTE).await;
    assert_about(new.only_patch() - began, 15 * MINUTE);
    let notes = new.notes("WaitingForTogether");
    assert!(
        notes[0].ends_with("not seen: ConfigMap password, ConfigMap user"),
        "{notes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn objects_that_appear_together_after_their_workload_are_not_waited_for() {
    let mut web = listing(together("web"), "user, password");
    let names = ["user", "password"];
    let absent = Objects::from(names.map(|it| (reference(it), Presence::Absent)));
    let template = &mut web["spec"]["template"];
    let hash = keys().hash(&Contents::whole(&absent)).to_string();
    template["metadata"]["annotations"] = json!({CONFIG_HASH: hash});
    let sources = names.map(|it| json!({"configMapRef": {"name": it}}));
    template["spec"]["containers"] = json!([{"name": "main", "envFrom": sources}]);
    let operator = Operator::start(Apiserver::default());
    operator.writes(web);
    pass(MINUTE).await;
    assert_eq!(operator.events("MissingConfig"), 1);

    for name in names {
        operator.changes(name, "1").await;
    }
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
    assert_eq!(operator.events("WaitingForTogether"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_workload_with_a_window_waits_for_both() {
    set_clock("2026-11-23T01:55:00Z");
    let mut web = together("web");
    web["metadata"]["annotations"][RESTART_WINDOW] = json!("02:00-04:00 UTC");
    let operator = Operator::start(Apiserver::default());
    for name in ["user", "password", "app"] {
        operator.apiserver.write_config_map(name, "1");
    }
    operator.apiserver.write_deployment(web);
    operator.sees_all();
    pass(6 * MINUTE).await;
    operator.sees_all();
    pass(MINUTE).await;
    operator.apiserver.forget_calls();

    // The window is open, but the password is missing.
    operator.changes("user", "2").await;
    pass(8 * MINUTE).await;
    assert_eq!(operator.patches().len(), 0);
    operator.changes("password", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
    operator.sees_all();
    pass(MINUTE).await;
    operator.apiserver.forget_calls();

    // Both are there, but the window is closed.
    set_clock("2026-11-23T05:00:00Z");
    operator.changes("user", "3").await;
    pass(8 * MINUTE).await;
    operator.changes("password", "3").await;
    let began = clock();
    pass(22 * 60 * MINUTE).await;
    assert_eq!(operator.patches().len(), 1);
    assert!(clock() > began);
    assert_eq!(operator.events("RestartPending"), 1);
    assert_eq!(operator.events("TogetherTimedOut"), 0);
}

#[tokio::test(start_paused = true)]
async fn those_of_a_later_stage_wait_for_one_that_waits_for_a_password() {
    let staged = |name: &str, stage: &str| {
        let mut object = super::stages::with_pods(together(name), 1);
        object["metadata"]["annotations"][STAGED] = json!("all");
        object["metadata"]["annotations"][STAGE] = json!(stage);
        object
    };
    let mut second = staged("second", "1");
    second["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(TOGETHER);
    let operator = at_rest([staged("first", "0"), second]).await;
    for _ in 0..2 {
        for name in ["first", "second"] {
            becomes(&operator, name, 1);
        }
        pass(MINUTE).await;
    }
    operator.apiserver.forget_calls();

    operator.changes("user", "2").await;
    pass(8 * MINUTE).await;
    assert_eq!(
        operator.patches().len(),
        0,
        "{:?}",
        operator.apiserver.calls()
    );
    operator.changes("password", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.patches().len(), 1);
    becomes(&operator, "first", 1);
    pass(MINUTE).await;
    assert_eq!(operator.patches().len(), 2);
    assert_eq!(operator.events("WaitingForStage"), 1);
}
