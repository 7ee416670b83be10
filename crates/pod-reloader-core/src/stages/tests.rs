use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fixtures;

fn id(number: usize) -> WorkloadId {
    fixtures::id(&format!("w{number:02}"))
}

/// Returns who each due workload of a set waits for. The set is given by stages and standings.
fn waits(set: &[(i32, Standing)]) -> BTreeMap<usize, Option<(usize, Why)>> {
    let ids: Vec<_> = (0..set.len()).map(id).collect();
    let peer = |at: usize| Peer {
        id: &ids[at],
        stage: set[at].0,
        standing: set[at].1,
    };
    let is_due = |at: &usize| matches!(set[*at].1, Standing::DueHealthy | Standing::DueUnhealthy);
    let wait = |at| {
        let others = (0..set.len()).filter(|other| *other != at);
        let front = Front::of(others.map(peer));
        let blocker = front.blocker(&peer(at));
        let among_all = Front::of((0..set.len()).map(peer));
        assert_eq!(blocker, among_all.blocker(&peer(at)), "{set:?}");
        let number = |id: &WorkloadId| ids.iter().position(|it| it == id).unwrap();
        (at, blocker.map(|(id, why)| (number(id), why)))
    };
    (0..set.len()).filter(is_due).map(wait).collect()
}

/// Returns the workloads that may go.
fn go(set: &[(i32, Standing)]) -> Vec<usize> {
    let waits = waits(set).into_iter();
    let free = waits.filter(|(_, blocker)| blocker.is_none());
    free.map(|(at, _)| at).collect()
}

use Standing::{DueHealthy, DueUnhealthy, Failed, Passed, Silent, Tried, Unseen};

#[test]
fn the_first_goes_alone_and_the_others_follow_when_it_has_passed() {
    assert_eq!(
        go(&[(1, DueHealthy), (1, DueHealthy), (1, DueHealthy)]),
        [0]
    );
    assert!(go(&[(1, Tried), (1, DueHealthy), (1, DueHealthy)]).is_empty());
    assert_eq!(go(&[(1, Passed), (1, DueHealthy), (1, DueHealthy)]), [1, 2]);
    assert_eq!(go(&[(1, DueHealthy)]), [0]);
}

#[test]
fn one_that_is_tried_before_all_its_pods_have_the_content_goes_on() {
    let ids = [id(0), id(1), id(2)];
    let peer = |at: usize, standing| Peer {
        id: &ids[at],
        stage: 1,
        standing,
    };
    let front = Front::of([peer(0, DueHealthy), peer(1, Tried), peer(2, Tried)]);
    assert_eq!(front.blocker(&peer(1, Tried)), None);
    assert_eq!(front.blocker(&peer(2, Tried)), None);
    let tried = Some((&ids[1], Why::IsTried));
    assert_eq!(front.blocker(&peer(0, DueHealthy)), tried);
    let front = Front::of([peer(0, Failed), peer(1, Tried)]);
    let failed = Some((&ids[0], Why::Failed));
    assert_eq!(front.blocker(&peer(1, Tried)), failed);
    // A restart may mend what a reload could not.
    assert_eq!(
        front.blocker(&peer(0, DueUnhealthy)),
        Some((&ids[1], Why::IsTried))
    );
    let front = Front::of([peer(0, Failed)]);
    assert_eq!(front.blocker(&peer(0, DueUnhealthy)), None);
}

#[test]
fn a_workload_that_fails_stops_the_others_until_it_gets_other_content() {
    let halted = [(1, Failed), (1, DueHealthy), (1, DueHealthy)];
    assert!(go(&halted).is_empty());
    assert_eq!(waits(&halted)[&2], Some((0, Why::Failed)));
    // It is mended: the one that failed cannot say whether that helps, so the next one goes first.
    assert_eq!(
        go(&[(1, DueUnhealthy), (1, DueHealthy), (1, DueHealthy)]),
        [1]
    );
    assert_eq!(
        go(&[(1, DueUnhealthy), (1, Passed), (1, DueHealthy)]),
        [0, 2]
    );
}

#[test]
fn stages_go_one_after_the_other() {
    let mut set = [
        (2, DueHealthy),
        (0, DueHealthy),
        (1, DueHealthy),
        (0, DueHealthy),
    ];
    assert_eq!(go(&set), [1]);
    set[1].1 = Passed;
    assert_eq!(go(&set), [3]);
    set[3].1 = Tried;
    assert!(go(&set).is_empty());
    set[3].1 = Failed;
    assert_eq!(waits(&set)[&2], Some((3, Why::Failed)));
    set[3].1 = Passed;
    assert_eq!(go(&set), [2]);
    // A workload of the last stage is being tried, because its user has released it: nobody waits for it now.
    set[0].1 = Tried;
    assert_eq!(go(&set), [2]);
    set[2].1 = Passed;
    set[0].1 = DueHealthy;
    assert_eq!(go(&set), [0]);
}

#[test]
fn a_stage_in_which_nobody_can_go_is_passed_over() {
    assert_eq!(go(&[(0, Silent), (1, DueHealthy), (1, DueHealthy)]), [1]);
    assert_eq!(
        go(&[(0, DueUnhealthy), (1, DueHealthy), (1, DueHealthy)]),
        [1]
    );
    assert_eq!(go(&[(0, DueUnhealthy), (1, Passed)]), [0]);
    assert_eq!(go(&[(0, DueUnhealthy), (1, DueUnhealthy)]), [0]);
}

#[test]
fn one_that_nobody_has_looked_at_may_be_the_first() {
    let set = [(1, DueHealthy), (5, Unseen)];
    assert_eq!(waits(&set)[&0], Some((1, Why::IsUnseen)));
}

#[test]
fn each_reason_names_the_one_that_says_most() {
    let set = [
        (1, DueHealthy),
        (1, DueHealthy),
        (0, Tried),
        (0, Failed),
        (0, Unseen),
    ];
    assert_eq!(waits(&set)[&1], Some((3, Why::Failed)));
    assert_eq!(waits(&set[..3])[&1], Some((2, Why::IsTried)));
    assert_eq!(waits(&set[..2])[&1], Some((0, Why::GoesFirst)));
}

/// Returns the steps of a set that is given by stages, whether each is healthy, and whether it counts.
fn steps_of(set: &[(i32, bool, bool)]) -> Vec<Vec<usize>> {
    let ids: Vec<_> = (0..set.len()).map(id).collect();
    let due = set.iter().zip(&ids);
    let due = due.map(|(&(stage, is_healthy, counts), id)| Due {
        id,
        stage,
        is_healthy,
        counts,
    });
    let number = |id: &&WorkloadId| ids.iter().position(|it| it == *id).unwrap();
    let steps = steps(&Vec::from_iter(due)).into_iter();
    steps.map(|it| it.iter().map(number).collect()).collect()
}

#[test]
fn the_steps_begin_with_one_and_follow_the_stages() {
    let healthy = |stage| (stage, true, true);
    let stages = [1, 1, 2, 0, 0].map(healthy);
    assert_eq!(steps_of(&stages), [vec![3], vec![4], vec![0, 1], vec![2]]);
    // One that is not healthy gives no verdict, so another one goes first.
    let sick = (1, false, true);
    assert_eq!(steps_of(&[sick, healthy(1)]), [[1], [0]]);
    assert_eq!(steps_of(&[sick, sick]), [[0], [1]]);
    let idle = (0, false, false);
    assert_eq!(steps_of(&[idle, idle]), [[0, 1]]);
    assert_eq!(steps_of(&[healthy(1)]), [[0]]);
    assert!(steps_of(&[]).is_empty());
}

fn standing() -> impl Strategy<Value = Standing> {
    let all = [
        DueHealthy,
        DueUnhealthy,
        Tried,
        Failed,
        Passed,
        Silent,
        Unseen,
    ];
    proptest::sample::select(all.to_vec())
}

proptest! {
    #[test]
    fn nobody_waits_for_itself_or_in_a_circle(set in vec((-1..3, standing()), 1..9)) {
        let waits = waits(&set);
        for start in waits.keys() {
            let mut at = *start;
            for _ in 0..set.len() {
                match waits.get(&at).copied().flatten() {
                    // What is not due itself waits for nobody.
                    Some((next, _)) if waits.contains_key(&next) => at = next,
                    _ => break,
                }
            }
            let ends = waits[&at].is_none_or(|(last, _)| !waits.contains_key(&last));
            prop_assert!(ends, "{waits:?}");
        }
    }

    #[test]
    fn no_more_than_one_goes_until_one_has_passed(set in vec((-1..3, standing()), 1..9)) {
        let standings: Vec<_> = set.iter().map(|(_, standing)| *standing).collect();
        let free = go(&set);
        if !standings.contains(&Passed) {
            let on_trial = standings.iter().filter(|it| matches!(it, Tried | Failed)).count();
            prop_assert!(free.is_empty() || free.len() == 1 && on_trial == 0, "{free:?}");
        }
        prop_assert!(free.is_empty() || !standings.contains(&Failed), "{free:?}");
        for at in &free {
            let is_earlier = |(stage, standing): &(i32, Standing)| {
                *stage < set[*at].0 && matches!(standing, DueHealthy | Tried | Failed)
            };
            prop_assert!(!set.iter().any(is_earlier), "{at} goes before its time");
        }
    }

    #[test]
    fn every_workload_goes_in_one_step_and_the_first_step_tries_one(
        set in vec((-1..3, any::<bool>(), any::<bool>()), 1..9)
    ) {
        let steps = steps_of(&set);
        let mut all = steps.concat();
        all.sort_unstable();
        prop_assert_eq!(all, Vec::from_iter(0..set.len()));
        let tried = steps[0].iter().filter(|at| set[**at].2);
        prop_assert!(tried.count() <= 1, "{:?}", steps);
    }

    #[test]
    fn as_long_as_nothing_is_on_trial_somebody_goes(set in vec((-1..3, standing()), 1..9)) {
        let is_open = |standing: &Standing| matches!(standing, Tried | Failed | Unseen);
        let is_due = |standing: &Standing| matches!(standing, DueHealthy | DueUnhealthy);
        let standings = || set.iter().map(|(_, standing)| standing);
        if standings().any(is_due) && !standings().any(is_open) {
            prop_assert!(!go(&set).is_empty());
        }
    }
}
