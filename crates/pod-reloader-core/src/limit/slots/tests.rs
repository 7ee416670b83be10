//! Which workloads get a slot while those of other namespaces want one, too.

use serde_json::json;

use super::*;
use crate::fixtures;
use crate::kind::WorkloadKind;
use crate::object::WorkloadObject;
use crate::scope::Scope;
use crate::staging::Defaults;
use crate::workload::Stall;

fn now() -> Instant {
    Instant::now()
}

/// Returns a Deployment with so many available pods of one.
fn deployment(namespace: &str, name: &str, available: u64) -> Workload {
    let object = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "generation": 1},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
        "status": {
            "observedGeneration": 1,
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": available,
        },
    });
    let object: WorkloadObject = serde_json::from_value(object).unwrap();
    let scope = Scope::new([], fixtures::name("operator")).and_stages(Defaults {
        judges_all: true,
        ..Defaults::default()
    });
    scope.read(WorkloadKind::DEPLOYMENT, object).unwrap()
}

/// Returns slots with these limits, and with rollouts in progress that users began: namespace and name of each.
fn slots(limits: (usize, usize), in_progress: &[(&str, &str)]) -> Slots {
    let (cluster, namespace) = limits;
    let mut slots = Slots::new(Limits { cluster, namespace });
    for (namespace, name) in in_progress {
        slots.saw(&deployment(namespace, name, 0), now());
    }
    slots
}

impl Slots {
    /// Makes a pass over a workload that is to be restarted. Returns the limit that keeps it from going.
    fn pass(&mut self, namespace: &str, name: &str) -> Option<Full> {
        let workload = deployment(namespace, name, 1);
        self.pass_begins(&workload.id);
        let taken = self.ask(&workload, now());
        if taken.is_ok() {
            self.take(&workload, now());
        }
        self.pass_ended(&workload.id, now());
        taken.err().map(|(full, _)| full)
    }

    /// Ends a rollout. Returns the names of the workloads that go because of that.
    fn end(&mut self, namespace: &str, name: &str) -> Vec<String> {
        names(self.saw(&deployment(namespace, name, 1), now()))
    }
}

fn names(ids: Vec<WorkloadId>) -> Vec<String> {
    ids.iter().map(|id| id.name.to_string()).collect()
}

#[test]
fn rollouts_of_users_of_one_namespace_leave_the_slots_of_others_free() {
    let eve = ["1", "2", "3", "4", "5"].map(|name| ("eve", name));
    let mut slots = slots((5, 0), &eve);
    assert_eq!(slots.pass("shop", "web"), None);
    assert_eq!(slots.pass("shop", "api"), None);
    assert_eq!(slots.pass("shop", "worker"), Some(Full::Part(2)));
    assert_eq!(slots.pass("bank", "web"), None);
    assert_eq!(slots.pass("bank", "api"), Some(Full::Cluster(5)));
    assert_eq!(slots.pass("eve", "6"), Some(Full::Part(2)));
}

#[test]
fn workloads_that_are_made_again_with_different_names_take_no_more_than_the_part_of_their_namespace()
 {
    let mut slots = slots((4, 0), &[]);
    for round in 0..3 {
        for number in 0..4 {
            let workload = deployment("eve", &format!("{round}-{number}"), 0);
            slots.saw(&workload, now());
            slots.free(&workload.id, now());
            slots.saw(&workload, now());
        }
    }
    assert_eq!(slots.pass("eve", "next"), Some(Full::Part(2)));
    assert_eq!(slots.pass("shop", "web"), None);
    assert_eq!(slots.pass("shop", "api"), None);
}

#[test]
fn a_namespace_without_a_rollout_begins_one_when_the_cluster_is_full() {
    let mut slots = slots((4, 0), &[("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]);
    assert_eq!(slots.pass("c", "web"), None);
    assert_eq!(slots.pass("c", "api"), Some(Full::Cluster(4)));
    assert_eq!(slots.pass("d", "web"), None);
}

/// Returns slots of which four are held in namespace `held`, while four workloads of two others wait for a second
/// one: `z` and `y` of `b`, and then `x` and `w` of `a`.
fn with_four_that_wait() -> Slots {
    let held = ["1", "2", "3", "4"].map(|name| ("held", name));
    let in_progress = [&held[..], &[("a", "0"), ("b", "0")][..]].concat();
    let mut slots = slots((6, 4), &in_progress);
    for (namespace, name) in [("b", "z"), ("b", "y"), ("a", "x"), ("a", "w")] {
        assert_eq!(slots.pass(namespace, name), Some(Full::Cluster(6)));
    }
    slots
}

#[test]
fn the_workload_that_has_waited_longest_goes_first_and_namespaces_take_turns() {
    let mut slots = with_four_that_wait();
    let turns = [("b", "z"), ("a", "x"), ("b", "y"), ("a", "w")];
    // Looking again costs nobody a place.
    for name in ["y", "z"] {
        assert_eq!(slots.pass("b", name), Some(Full::Cluster(6)));
    }
    for (held, (namespace, name)) in ["1", "2", "3", "4"].into_iter().zip(turns) {
        assert_eq!(slots.end("held", held), [name]);
        assert_eq!(slots.pass(namespace, name), None);
    }
}

#[test]
fn a_workload_that_asks_later_does_not_get_the_slot_of_one_that_waits() {
    let mut slots = with_four_that_wait();
    assert_eq!(slots.end("held", "1"), ["z"]);
    assert_eq!(slots.pass("a", "later"), Some(Full::Cluster(6)));
    assert_eq!(slots.pass("b", "y"), Some(Full::Cluster(6)));
    assert_eq!(slots.pass("b", "z"), None);
}

#[test]
fn a_slot_that_a_workload_does_not_take_in_its_turn_goes_to_the_next_one() {
    let mut slots = with_four_that_wait();
    assert_eq!(slots.end("held", "1"), ["z"]);
    let z = deployment("b", "z", 1);
    // It asks, and then somebody holds it.
    slots.pass_begins(&z.id);
    assert!(slots.ask(&z, now()).is_ok());
    assert_eq!(names(slots.pass_ended(&z.id, now())), ["y"]);
    // It is gone.
    let y = deployment("b", "y", 1);
    assert_eq!(names(slots.free(&y.id, now())), ["x"]);
    assert_eq!(slots.pass("a", "x"), None);
}

#[test]
fn a_slot_stays_free_for_a_workload_until_its_pass_ends() {
    let mut slots = slots((2, 2), &[("a", "0")]);
    let (web, api) = (deployment("a", "web", 1), deployment("a", "api", 1));
    slots.pass_begins(&web.id);
    assert!(slots.ask(&web, now()).is_ok());
    slots.pass_begins(&api.id);
    let refused = slots.ask(&api, now()).map_err(|(full, _)| full);
    assert_eq!(refused, Err(Full::Namespace(2)));
    assert!(slots.pass_ended(&api.id, now()).is_empty());
    slots.take(&web, now());
    assert!(slots.pass_ended(&web.id, now()).is_empty());
}

#[test]
fn a_workload_that_is_paused_in_the_middle_of_its_rollout_gives_its_slot_back() {
    let mut slots = slots((0, 1), &[("shop", "web")]);
    assert_eq!(slots.pass("shop", "api"), Some(Full::Namespace(1)));
    let mut paused = deployment("shop", "web", 0);
    paused.stall = Some(Stall::Paused);
    slots.saw(&paused, now());
    assert_eq!(slots.pass("shop", "api"), None);
}
