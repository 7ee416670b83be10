//! Limits of the rollouts that are under way at once.

use std::collections::BTreeSet;

use pod_reloader_core::annotations::{DEADLINE, HOLD, STAGE};

use super::stages::{becomes, patched, right, staged, with_pods};
use super::*;

const DEADLINE_OF_ALL: Duration = Duration::from_secs(600);

/// Starts a loop with these limits, and with these Deployments at rest.
async fn limited(limits: Limits, deployments: impl IntoIterator<Item = Value>) -> Operator {
    let apiserver = Apiserver::default();
    apiserver.write_config_map("app", "1");
    for object in deployments {
        apiserver.write_deployment(with_pods(object, 1));
    }
    let operator = start(apiserver, limiting(limits));
    operator.sees_all();
    // Each becomes healthy, so that the next one gets its first hash.
    for _ in 0..operator.apiserver.deployments().len() {
        pass(Duration::from_secs(10)).await;
        for name in right(&operator) {
            becomes(&operator, &name, 1);
        }
    }
    operator.apiserver.forget_calls();
    operator
}

fn limiting(limits: Limits) -> Settings {
    Settings {
        limits,
        ..settings()
    }
}

fn start(apiserver: Apiserver, settings: Settings) -> Operator {
    let operator = Operator::start_as(apiserver, settings, Dialects::default());
    operator.lists_are_whole();
    operator
}

/// All workloads of these tests are in one namespace, which has half of the limit.
const TWO: Limits = Limits {
    cluster: 4,
    namespace: 0,
};

fn five() -> [Value; 5] {
    ["a", "b", "c", "d", "e"].map(deployment)
}

#[tokio::test(start_paused = true)]
async fn no_more_rollouts_of_a_namespace_are_under_way_than_its_part_of_the_limit() {
    let operator = limited(TWO, five()).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a", "b"]);
    let note = "waiting before restarting pods: 2 rollouts are in progress, which is the part of the cluster's limit that one namespace has";
    assert_eq!(operator.notes("WaitingForSlot"), [note; 3]);
    becomes(&operator, "a", 0);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b"]);

    // Whoever is done makes room for another one, at once.
    becomes(&operator, "b", 1);
    pass(Duration::from_millis(100)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
    becomes(&operator, "c", 1);
    pass(Duration::from_millis(100)).await;
    assert_eq!(right(&operator), ["a", "b", "c", "d"]);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b", "c", "d"]);
    operator.apiserver.delete_deployment("a");
    operator.reconciler.workload_gone(&id("a"));
    pass(Duration::from_millis(100)).await;
    assert_eq!(operator.patches().len(), 5, "each once");
}

#[tokio::test(start_paused = true)]
async fn one_that_never_becomes_healthy_makes_room_at_its_deadline_and_does_not_count_again() {
    let operator = limited(TWO, five()).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    becomes(&operator, "b", 1);
    pass(Duration::from_secs(1)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
    pass(DEADLINE_OF_ALL).await;
    for name in ["c", "d"] {
        // Its status changes, but nobody makes it roll anew.
        becomes(&operator, "a", 0);
        becomes(&operator, name, 1);
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(right(&operator).len(), 5);
    assert_eq!(operator.patches().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_back_to_an_earlier_replica_set_counts_until_it_is_healthy() {
    let operator = limited(TWO, five()).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a", "b"]);
    // The deployment controller has seen the pod template, and still shows the end of the last rollout.
    let mut object = operator.apiserver.deployment("a");
    object["status"] = json!({
        "observedGeneration": object["metadata"]["generation"],
        "replicas": 1, "updatedReplicas": 0, "availableReplicas": 1,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
    });
    operator.writes(object);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b"]);
    becomes(&operator, "a", 1);
    pass(Duration::from_millis(100)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn rollouts_of_users_count_too_also_for_a_new_leader() {
    let operator = limited(TWO, five()).await;
    for name in ["d", "e"] {
        operator.edits(name, |object| object["metadata"]["generation"] = json!(100));
    }
    let operator = start(operator.ends(), limiting(TWO));
    operator.sees_all();
    pass(Duration::from_secs(10)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    // Those that are under way anyway are restarted without another rollout beside.
    assert_eq!(right(&operator), ["d", "e"]);
    becomes(&operator, "d", 1);
    pass(Duration::from_millis(100)).await;
    assert_eq!(right(&operator), ["a", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_a_limit_of_its_own_and_stages_hold_within_it() {
    let limits = Limits {
        cluster: 0,
        namespace: 2,
    };
    let all = five().map(|object| {
        let name = apiserver::name_of(&object);
        let mut object = staged(&name);
        object["metadata"]["annotations"][STAGE] = json!(if name == "e" { "0" } else { "1" });
        object
    });
    let operator = limited(limits, all).await;
    pass(Duration::from_secs(60)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["e"]);
    becomes(&operator, "e", 1);
    pass(Duration::from_secs(60)).await;
    assert_eq!(right(&operator), ["a", "b", "e"]);
    let notes = operator.notes("WaitingForSlot");
    assert!(
        notes
            .last()
            .unwrap()
            .ends_with("which is the limit of the namespace"),
        "{notes:?}"
    );
    becomes(&operator, "a", 1);
    pass(Duration::from_secs(1)).await;
    assert_eq!(right(&operator), ["a", "b", "c", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_waits_for_its_stage_does_not_wait_for_a_slot() {
    let limits = Limits {
        cluster: 0,
        namespace: 1,
    };
    let operator = limited(limits, ["a", "b"].map(staged)).await;
    pass(Duration::from_secs(60)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a"]);
    let events = ["WaitingForStage", "WaitingForSlot"].map(|it| operator.events(it));
    assert_eq!(events, [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_held_while_it_waits_for_a_slot_gives_up_its_place() {
    let operator = limited(TWO, five()).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a", "b"]);
    operator.annotates("c", HOLD, "true");
    pass(Duration::from_secs(1)).await;
    becomes(&operator, "b", 1);
    pass(Duration::from_millis(100)).await;
    assert_eq!(right(&operator), ["a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_takes_no_slot() {
    let operator = limited(TWO, five()).await;
    operator.apiserver.reacts([Reaction::Refused(403)]);
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    let patched = BTreeSet::from_iter(patched(&operator));
    assert_eq!(patched.len(), 5, "{patched:?}");
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_pods_takes_no_slot() {
    let mut idle = deployment("a");
    idle["spec"]["replicas"] = json!(0);
    let mut hasty = deployment("b");
    hasty["metadata"]["annotations"][DEADLINE] = json!("20s");
    let operator = limited(TWO, [idle, hasty, deployment("c"), deployment("d")]).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(right(&operator), ["a", "b", "c"]);
    // Its own deadline is over, and the next look at `d` is due.
    pass(Duration::from_secs(35)).await;
    assert_eq!(right(&operator), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_again_and_again_keeps_its_slot_only_until_its_deadline() {
    let operator = limited(TWO, five()).await;
    operator.apiserver.reacts([Reaction::Refused(500)]);
    operator.changes("app", "2").await;
    let patched = || BTreeSet::from_iter(patched(&operator)).len();
    pass(DEADLINE_OF_ALL / 2).await;
    assert_eq!(patched(), 2);
    pass(DEADLINE_OF_ALL * 2).await;
    assert!(patched() > 2, "{}", patched());
}

#[tokio::test(start_paused = true)]
async fn restarts_that_are_only_reported_take_no_slot() {
    let operator = limited(TWO, five()).await;
    let settings = Settings {
        observe: true,
        ..limiting(TWO)
    };
    let operator = start(operator.ends(), settings);
    operator.sees_all();
    pass(Duration::from_secs(1)).await;
    operator.changes("app", "2").await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(operator.events("WouldRestart"), 5);
    assert_eq!(operator.events("WaitingForSlot"), 0);
}
