//! What is remembered of one workload, as another one that tracks the same object finds it.

use serde_json::json;

use super::*;
use crate::annotations::{SOAK, STAGE};
use crate::fixtures;
use crate::kind::WorkloadKind;
use crate::object::WorkloadObject;
use crate::scope::Scope;
use crate::staging::{Defaults, Staged};

/// The time within which a workload must become healthy.
const DEADLINE: u64 = 600;

fn object(text: &str) -> Reference {
    Reference::config_map(&fixtures::name("shop"), &fixtures::name(text))
}

/// Returns a Deployment whose one pod is available or not. It soaks for so many seconds. `last` waits for all others.
fn deployment(name: &str, is_healthy: bool, soak: u64) -> Workload {
    let object = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "generation": 1,
            "annotations": {
                SOAK: format!("{soak}s"),
                STAGE: if name == "last" { "2" } else { "1" },
            },
        },
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
        "status": {
            "observedGeneration": 1,
            "replicas": 1, "updatedReplicas": 1, "availableReplicas": u64::from(is_healthy),
        },
    });
    let object: WorkloadObject = serde_json::from_value(object).unwrap();
    let scope = Scope::new([], fixtures::name("operator")).and_stages(Defaults {
        staged: Staged::Everything,
        soak: Duration::from_secs(30),
        deadline: Duration::from_secs(DEADLINE),
        judges_all: false,
    });
    scope.read(WorkloadKind::DEPLOYMENT, object).unwrap()
}

/// The Deployments `first` and `last`, and the time in seconds.
struct Shop {
    stages: Stages,
    began: Instant,
    first: Workload,
    last: Workload,
}

impl Shop {
    /// Starts with healthy ones.
    fn open() -> Self {
        let mut shop = Self {
            stages: Stages::default(),
            began: Instant::now() + Duration::from_secs(10_000),
            first: deployment("first", true, 30),
            last: deployment("last", true, 30),
        };
        for workload in [shop.first.clone(), shop.last.clone()] {
            shop.stages.saw(&workload, shop.began);
        }
        shop
    }

    /// Starts with healthy ones, of which `first` has got a change.
    fn on_trial() -> Self {
        let mut shop = Self::open();
        let change = shop.change("app", 1);
        shop.goes(&[change], 2);
        shop
    }

    fn at(&self, second: u64) -> Instant {
        self.began + Duration::from_secs(second)
    }

    /// Notes how `first` is now.
    fn becomes(&mut self, is_healthy: bool, soak: u64, second: u64) {
        self.first = deployment("first", is_healthy, soak);
        let now = self.at(second);
        self.stages.saw(&self.first, now);
    }

    /// Makes a pass over `first` that finds this.
    fn finds(&mut self, look: Look, second: u64) {
        let now = self.at(second);
        self.stages.looked(&self.first, look, None, now);
    }

    /// Returns the change of an object that was seen at this time.
    fn change(&self, name: &str, second: u64) -> Changed {
        Changed {
            object: object(name),
            at: self.at(second),
            is_known: true,
        }
    }

    /// Makes a pass over `first`, which lacks these changes and gets them.
    fn goes(&mut self, changed: &[Changed], second: u64) {
        self.finds(Look::Due, second);
        let now = self.at(second);
        let own = self.peer(&self.first, changed, now);
        let turn = self.stages.turn(&own, changed, now);
        assert_eq!(turn.wait, None);
        self.stages.goes(&self.first.id, changed, now);
    }

    fn peer<'a>(&self, workload: &'a Workload, changed: &[Changed], now: Instant) -> Peer<'a> {
        let staging = workload.staged().unwrap();
        self.stages.peer(workload, staging, changed, now)
    }

    /// Makes a pass over `last`, which lacks a change. Returns the reason why it waits for `first`.
    fn waits(&mut self, changed: Changed, second: u64) -> Option<Why> {
        let now = self.at(second);
        self.waits_at(changed, now)
    }

    fn waits_at(&mut self, changed: Changed, now: Instant) -> Option<Why> {
        let last = self.last.clone();
        self.stages.looked(&last, Look::Due, None, now);
        let changed = [changed];
        let own = self.peer(&last, &changed, now);
        let consumers = [self.first.clone(), last.clone()].map(Arc::new);
        for object in self.stages.to_compute(&changed, &own, now) {
            self.stages.compute(object, &consumers, now);
        }
        let wait = self.stages.turn(&own, &changed, now).wait?;
        assert_eq!(wait.workload, *self.first.id);
        Some(wait.why)
    }
}

#[test]
fn a_workload_is_waited_for_until_it_has_soaked() {
    let mut shop = Shop::on_trial();
    assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
    shop.finds(Look::Right, 4);
    assert_eq!(shop.waits(shop.change("app", 1), 31), Some(Why::IsTried));
    shop.becomes(true, 30, 40);
    assert_eq!(shop.waits(shop.change("app", 1), 40), None);
}

#[test]
fn a_workload_has_soaked_even_for_one_that_has_just_waited_for_it() {
    let mut shop = Shop::on_trial();
    shop.finds(Look::Right, 3);
    let soaked = shop.at(2 + 30);
    let waits = shop.waits_at(shop.change("app", 1), soaked - FRESH / 2);
    assert_eq!(waits, Some(Why::IsTried));
    // What was computed a moment ago is not used again: whoever waited now would do so for another half a minute.
    assert_eq!(shop.waits_at(shop.change("app", 1), soaked), None);
}

#[test]
fn a_workload_that_was_not_healthy_before_holds_nobody_back() {
    let mut shop = Shop::open();
    shop.becomes(false, 30, 0);
    let change = shop.change("app", 1);
    shop.goes(&[change], 2);
    shop.finds(Look::Right, 3);
    assert_eq!(shop.waits(shop.change("app", 1), 5), None);
}

#[test]
fn writes_that_do_not_arrive_do_not_prolong_the_deadline() {
    let mut shop = Shop::open();
    for second in [2, 400] {
        let change = shop.change("app", 1);
        shop.goes(&[change], second);
    }
    assert_eq!(shop.waits(shop.change("app", 1), 500), Some(Why::IsTried));
    let late = 2 + DEADLINE + 1;
    assert_eq!(
        shop.waits(shop.change("app", 1), late),
        Some(Why::GoesFirst)
    );
}

#[test]
fn a_workload_whose_write_is_refused_is_no_longer_waited_for() {
    // Without an answer, the write may have arrived.
    for (is_refused, why) in [(true, None), (false, Some(Why::IsTried))] {
        let mut shop = Shop::on_trial();
        assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
        let told = shop.stages.looked_in_vain(&shop.first, is_refused);
        assert_eq!(told, [(*shop.last.id).clone()]);
        assert_eq!(shop.waits(shop.change("app", 1), 5), why, "{is_refused}");
    }
}

#[test]
fn an_object_that_was_not_tracked_before_has_a_deadline_of_its_own() {
    let mut shop = Shop::open();
    let change = shop.change("app", 2);
    shop.goes(&[change], 3);
    shop.finds(Look::Right, 4);
    // The other object has changed before.
    let change = shop.change("other", 1);
    shop.goes(&[change], DEADLINE + 100);
    let waits = shop.waits(shop.change("other", 1), DEADLINE + 105);
    assert_eq!(waits, Some(Why::IsTried));
}

#[test]
fn the_latest_trial_with_an_object_counts() {
    let mut shop = Shop::open();
    for second in [1, 100] {
        let change = shop.change("app", second);
        shop.goes(&[change], second + 1);
        shop.finds(Look::Right, second + 2);
    }
    // `last` lacks both changes, and asks for the one that it has seen.
    assert_eq!(shop.waits(shop.change("app", 1), 104), Some(Why::IsTried));
}

#[test]
fn an_edit_of_its_settings_does_not_let_a_workload_soak_anew() {
    let mut shop = Shop::on_trial();
    shop.finds(Look::Right, 3);
    shop.becomes(true, 31, 20);
    shop.becomes(true, 31, 35);
    assert_eq!(shop.waits(shop.change("app", 1), 35), None);
}

#[test]
fn a_workload_that_is_forgotten_waits_for_nobody() {
    let mut shop = Shop::on_trial();
    assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
    assert!(shop.stages.is_waited_for(&shop.first.id));
    assert_eq!(
        shop.stages.forget(&shop.last.id),
        [(*shop.first.id).clone()]
    );
    assert!(!shop.stages.is_waited_for(&shop.first.id));
}

#[test]
fn a_workload_that_is_forgotten_during_its_pass_leaves_no_wait_behind() {
    let mut shop = Shop::on_trial();
    shop.stages.forget(&shop.last.id);
    assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
    assert!(!shop.stages.is_waited_for(&shop.first.id));
}

#[test]
fn workloads_are_told_that_the_one_they_wait_for_is_gone_and_wait_for_the_next_one_with_its_name() {
    let mut shop = Shop::on_trial();
    assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
    assert_eq!(
        shop.stages.forget(&shop.first.id),
        [(*shop.last.id).clone()]
    );
    shop.becomes(true, 30, 4);
    let change = shop.change("app", 1);
    shop.goes(&[change], 5);
    assert_eq!(shop.waits(shop.change("app", 1), 6), Some(Why::IsTried));
    assert!(shop.stages.is_waited_for(&shop.first.id));
    assert_eq!(
        shop.stages.stops_waiting(&shop.last.id),
        Some((*shop.first.id).clone())
    );
    assert!(!shop.stages.is_waited_for(&shop.first.id));
}

/// The next one with its name does not know that anybody waits for it.
#[test]
fn a_workload_soon_looks_again_if_the_one_that_it_waits_for_is_already_gone() {
    let mut shop = Shop::on_trial();
    assert_eq!(shop.waits(shop.change("app", 1), 3), Some(Why::IsTried));
    shop.stages.forget(&shop.first.id);
    let (now, last) = (shop.at(3), shop.last.clone());
    let changed = [shop.change("app", 1)];
    let own = shop.peer(&last, &changed, now);
    let wait = shop.stages.turn(&own, &changed, now).wait.unwrap();
    assert_eq!(wait.workload, *shop.first.id);
    assert_eq!(wait.until, now + UNSEEN);
}

#[test]
fn pods_that_have_reloaded_before_anybody_looked_are_on_no_trial() {
    let mut shop = Shop::open();
    let until = shop.at(60);
    let now = shop.at(1);
    shop.stages.begins_to_reload(&shop.first.id, until, now);
    assert_eq!(shop.waits(shop.change("app", 1), 2), Some(Why::IsTried));
    shop.finds(Look::Right, 3);
    assert_eq!(shop.waits(shop.change("app", 1), 5), None);
}

#[test]
fn an_undo_ends_the_trial_with_what_else_had_changed() {
    let mut shop = Shop::open();
    let both = ["app", "other"].map(|name| shop.change(name, 1));
    shop.goes(&both, 2);
    shop.finds(Look::Right, 3);
    assert_eq!(shop.waits(shop.change("other", 1), 4), Some(Why::IsTried));
    let (now, undone) = (shop.at(5), vec![object("app")]);
    shop.stages
        .looked(&shop.first, Look::Right, Some(undone), now);
    assert_eq!(shop.waits(shop.change("app", 1), 6), Some(Why::Failed));
    assert_eq!(shop.waits(shop.change("other", 1), 8), None);
}

#[test]
fn a_workload_that_nobody_has_looked_at_since_the_change_is_unseen() {
    let mut shop = Shop::open();
    shop.finds(Look::Right, 3);
    assert_eq!(shop.waits(shop.change("app", 10), 11), Some(Why::IsUnseen));
    shop.finds(Look::Right, 12);
    assert_eq!(shop.waits(shop.change("app", 10), 14), None);
}

#[test]
fn what_was_computed_for_a_change_that_nobody_saw_counts_for_no_other() {
    let mut shop = Shop::open();
    shop.becomes(false, 30, 0);
    shop.finds(Look::Right, 3);
    let unseen = Changed {
        is_known: false,
        ..shop.change("app", 1)
    };
    // It may have got the content before anybody looked, and its rollout is not over.
    assert_eq!(shop.waits(unseen, 5), Some(Why::IsTried));
    assert_eq!(shop.waits(shop.change("app", 1), 5), None);
}

#[test]
fn what_was_computed_for_a_change_counts_for_no_later_one() {
    let mut shop = Shop::open();
    let change = shop.change("app", 1);
    shop.goes(&[change], 1);
    shop.finds(Look::Right, 1);
    assert_eq!(shop.waits(shop.change("app", 1), 2), Some(Why::IsTried));
    assert_eq!(shop.waits(shop.change("app", 2), 2), Some(Why::IsUnseen));
}
