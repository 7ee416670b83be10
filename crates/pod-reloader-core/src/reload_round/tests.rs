//! Rounds of three pods, in played time.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::fixtures::id;
use crate::http_reload::Target;

const DELAY: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(60);
const OK: Answer = Answer::Status(200, None);

fn pod(number: u8) -> Value {
    json!({
        "metadata": {
            "name": format!("web-{number}"),
            "uid": format!("uid-{number}"),
            "creationTimestamp": "2026-11-23T12:00:00Z",
            "labels": {"pod-template-hash": "5f"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f", "uid": "rs", "controller": true}],
        },
        "status": {
            "phase": "Running",
            "podIP": format!("10.0.0.{number}"),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[field] = value;
    pod
}

fn unready(number: u8) -> Value {
    let conditions = json!([{"type": "Ready", "status": "False"}]);
    with(pod(number), "/status/conditions", conditions)
}

/// A round that is played, and the cluster with it.
struct Play {
    round: Round,
    began: Instant,
    now: Instant,
    /// The pods that are there, by their numbers.
    pods: BTreeMap<u8, Value>,
    /// The answers to come, by the names of the pods. The last one stays.
    answers: BTreeMap<String, Vec<Answer>>,
    /// What was done, with the time in seconds.
    done: Vec<(u64, String)>,
}

impl Play {
    fn new(pods: impl IntoIterator<Item = Value>) -> Self {
        let now = Instant::now();
        let reload = HttpReload::of_test(
            Target::parse("http://:8080/-/reload").unwrap(),
            DELAY,
            TIMEOUT,
        );
        Self {
            round: Round::new(&reload, None, Reach::Pods, now),
            began: now,
            now,
            pods: (1..).zip(pods).collect(),
            answers: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    fn of_three() -> Self {
        Self::new([pod(1), pod(2), pod(3)])
    }

    fn answers(mut self, pod: &str, answers: &[Answer]) -> Self {
        self.answers.insert(pod.to_owned(), answers.to_vec());
        self
    }

    fn seconds(&self) -> u64 {
        self.now.duration_since(self.began).as_secs()
    }

    fn note(&mut self, what: String) {
        self.done.push((self.seconds(), what));
    }

    /// Plays on until `seconds` have passed or the round has ended.
    fn until(&mut self, seconds: u64) -> Option<Result<usize, Failed>> {
        let id = id("web");
        while self.seconds() < seconds {
            match self.round.step(self.now) {
                Step::End(outcome) => return Some(outcome),
                Step::Wait(until) => {
                    assert!(until > self.now, "it would wait for nothing");
                    let end = self.began + Duration::from_secs(seconds);
                    self.now = until.min(end);
                }
                Step::List => {
                    let pods = self.pods.values().cloned();
                    let pods = pods.map(|it| serde_json::from_value(it).unwrap());
                    self.round.listed(&id, pods.collect(), self.now);
                }
                Step::Sync(pods) => {
                    let pods: Vec<_> = pods.into_iter().cloned().collect();
                    for pod in pods {
                        self.note(format!("sync {}", pod.name()));
                        self.round.synced(pod.uid(), self.now);
                    }
                }
                Step::Ask(pods) => {
                    let pods: Vec<_> = pods
                        .into_iter()
                        .map(|(pod, at)| (pod.clone(), at))
                        .collect();
                    for (pod, address) in pods {
                        self.note(format!("ask {address}"));
                        let answers = self.answers.get_mut(pod.name());
                        let answer = answers.map_or(OK, |it| match it.len() {
                            1 => it[0],
                            _ => it.remove(0),
                        });
                        self.round.answered(pod.uid(), answer, self.now);
                    }
                }
            }
        }
        None
    }

    fn ends(&mut self) -> Result<usize, Failed> {
        self.until(600).expect("it ends")
    }

    fn asked(&self) -> Vec<(u64, &str)> {
        let asked = self.done.iter().filter_map(|(at, what)| {
            let address = what.strip_prefix("ask 10.0.0.")?;
            Some((*at, address.strip_suffix(":8080")?))
        });
        asked.collect()
    }
}

fn failed(pod: &str, why: Why) -> Result<usize, Failed> {
    let pod = Some(pod.into());
    Err(Failed { pod, why })
}

#[test]
fn each_pod_is_made_to_sync_and_asked_once_after_the_delay() {
    let mut play = Play::of_three();
    assert_eq!(play.ends(), Ok(3));
    let synced: Vec<_> = play
        .done
        .iter()
        .take(3)
        .map(|(at, it)| (*at, it.as_str()))
        .collect();
    assert_eq!(
        synced,
        [(0, "sync web-1"), (0, "sync web-2"), (0, "sync web-3")]
    );
    assert_eq!(play.asked(), [(10, "1"), (10, "2"), (10, "3")]);
}

#[test]
fn a_workload_without_pods_has_reloaded() {
    assert_eq!(Play::new([]).ends(), Ok(0));
}

#[test]
fn a_pod_that_comes_is_not_asked_and_one_that_goes_is_not_waited_for() {
    let mut play = Play::of_three();
    assert_eq!(play.until(5), None);
    play.pods.remove(&1);
    let going = with(
        pod(2),
        "/metadata/deletionTimestamp",
        json!("2026-11-23T13:00:00Z"),
    );
    play.pods.insert(2, going);
    play.pods.insert(4, pod(4));
    assert_eq!(play.ends(), Ok(1));
    assert_eq!(play.asked(), [(10, "3")]);
}

#[test]
fn pods_of_others_and_pods_that_have_ended_are_left_alone() {
    let foreign = with(
        pod(1),
        "/metadata/ownerReferences/0/name",
        json!("other-5f"),
    );
    let bare = with(pod(2), "/metadata/ownerReferences", json!([]));
    let ended = with(pod(3), "/status/phase", json!("Failed"));
    assert_eq!(Play::new([foreign, bare, ended]).ends(), Ok(0));
}

#[test]
fn a_pod_that_is_not_ready_is_waited_for_until_it_is_or_goes() {
    let mut play = Play::new([pod(1), unready(2), unready(3)]);
    assert_eq!(play.until(20), None);
    assert_eq!(play.asked(), [(10, "1")]);
    play.pods.insert(2, pod(2));
    play.pods.remove(&3);
    assert_eq!(play.ends(), Ok(2));
    assert_eq!(play.asked(), [(10, "1"), (20, "2")]);
}

#[test]
fn a_pod_that_is_never_ready_fails_the_round_in_the_end() {
    let mut play = Play::new([pod(1), unready(2)]);
    assert_eq!(play.ends(), failed("web-2", Why::NotReady));
    assert_eq!(play.seconds(), 70);
}

#[test]
fn a_pod_may_say_that_it_does_not_have_the_config_yet() {
    let pause = |seconds| Some(Duration::from_secs(seconds));
    let mut play = Play::new([pod(1), pod(2)])
        .answers(
            "web-1",
            &[Answer::Status(425, None), Answer::Status(503, pause(5)), OK],
        )
        .answers("web-2", &[Answer::Status(503, pause(86_400)), OK]);
    assert_eq!(play.ends(), Ok(2));
    assert_eq!(
        play.asked(),
        [(10, "1"), (10, "2"), (12, "1"), (17, "1"), (40, "2")]
    );
    let mut never = Play::new([pod(1)]).answers("web-1", &[Answer::Status(425, pause(0))]);
    assert_eq!(never.ends(), failed("web-1", Why::NotYet(425)));
    assert!(never.asked().len() <= 60, "it is not asked all the time");
}

#[test]
fn any_other_answer_fails_the_round_at_once() {
    for status in [100, 301, 307, 400, 404, 429, 500, 502, 504] {
        let mut play = Play::of_three().answers("web-2", &[Answer::Status(status, None)]);
        assert_eq!(play.ends(), failed("web-2", Why::Refused(status)));
        assert_eq!(play.seconds(), 10, "{status}");
    }
}

#[test]
fn a_pod_without_an_answer_is_asked_again_until_the_end() {
    let mut late = Play::new([pod(1)]).answers("web-1", &[Answer::None, Answer::None, OK]);
    assert_eq!(late.ends(), Ok(1));
    assert_eq!(late.asked(), [(10, "1"), (12, "1"), (14, "1")]);
    let mut never = Play::new([pod(1)]).answers("web-1", &[Answer::None]);
    assert_eq!(never.ends(), failed("web-1", Why::NoAnswer));
    assert_eq!(never.seconds(), 70);
}

#[test]
fn a_pod_whose_address_is_not_its_own_is_never_called() {
    let host = with(pod(1), "/spec", json!({"hostNetwork": true}));
    assert_eq!(Play::new([host]).ends(), failed("web-1", Why::HostNetwork));
    for address in [
        "169.254.169.254",
        "127.0.0.1",
        "224.0.0.1",
        "0.0.0.0",
        "fe80::1",
        "::1",
        "::",
        "::ffff:169.254.169.254",
    ] {
        let odd = with(pod(1), "/status/podIP", json!(address));
        let mut play = Play::new([odd]);
        assert_eq!(play.ends(), failed("web-1", Why::Address), "{address}");
        assert_eq!(play.done, []);
    }
    let v6 = with(pod(1), "/status/podIP", json!("fd00::7"));
    let mut play = Play::new([v6]);
    assert_eq!(play.ends(), Ok(1));
    assert_eq!(play.done[1].1, "ask [fd00::7]:8080");
}

#[test]
fn outside_of_a_cluster_pods_of_this_machine_are_called() {
    let loopback = |text: &str| Reach::PodsAndLoopback.includes(text.parse().unwrap());
    assert!(loopback("127.0.0.7") && loopback("::1"));
    assert!(!loopback("169.254.169.254") && !loopback("0.0.0.0"));
}

#[test]
fn a_pod_that_is_older_than_a_changed_object_is_restarted() {
    let of = |created: &str| {
        let mut play = Play::of_three();
        let created: Timestamp = created.parse().unwrap();
        play.round.config_created = Some(created.as_second());
        play.ends()
    };
    assert_eq!(of("2026-11-23T12:00:00Z"), Ok(3));
    assert_eq!(of("2026-11-23T12:00:01Z"), failed("web-1", Why::Older));
}

#[test]
fn a_call_of_the_apiserver_that_fails_is_made_again_unless_it_is_refused() {
    let mut play = Play::of_three();
    play.round.not_listed(false, play.now);
    assert_eq!(play.ends(), Ok(3));
    assert_eq!(play.asked()[0], (12, "1"));
    let mut refused = Play::of_three();
    refused.round.not_listed(true, refused.now);
    assert_eq!(refused.ends(), Err(Failed::NOT_LISTED));
    let synced = |is_refused| {
        let mut play = Play::new([pod(1)]);
        let Step::List = play.round.step(play.now) else {
            panic!()
        };
        let id = id("web");
        let pods = vec![serde_json::from_value(pod(1)).unwrap()];
        play.round.listed(&id, pods, play.now);
        play.round.not_synced("uid-1", is_refused, play.now);
        play.ends()
    };
    assert_eq!(synced(false), Ok(1));
    assert_eq!(synced(true), failed("web-1", Why::NotSynced));
}

#[test]
fn an_answer_that_is_late_or_of_nobody_changes_nothing() {
    let mut play = Play::of_three();
    assert_eq!(play.until(5), None);
    play.round.answered("uid-9", OK, play.now);
    play.round
        .answered("uid-9", Answer::Status(500, None), play.now);
    play.round.synced("uid-9", play.now);
    assert_eq!(play.ends(), Ok(3));
}

#[test]
fn the_patch_of_a_pod_changes_nothing_but_our_annotation() {
    let key = CONFIG_SYNC.replace('/', "~1");
    for annotations in [
        json!(null),
        json!({}),
        json!({"a": "b"}),
        json!({CONFIG_SYNC: "before"}),
    ] {
        let object = with(pod(1), "/metadata/annotations", annotations.clone());
        let read: ReloadingPod = serde_json::from_value(object.clone()).unwrap();
        let mut after = object.clone();
        assert!(apply(&mut after, read.sync("now")));
        assert_eq!(
            after.pointer(&format!("/metadata/annotations/{key}")),
            Some(&json!("now"))
        );
        let mut expected = annotations.as_object().cloned().unwrap_or_default();
        expected.insert(CONFIG_SYNC.to_owned(), json!("now"));
        assert_eq!(
            after,
            with(object.clone(), "/metadata/annotations", json!(expected))
        );
        let mut other = with(object, "/metadata/uid", json!("another"));
        assert!(!apply(&mut other, read.sync("now")));
    }
}

/// Applies a patch as the apiserver does: a member that is absent is null. Returns false if a test fails.
fn apply(object: &mut Value, patch: json_patch::Patch) -> bool {
    for operation in patch.0 {
        match &operation {
            json_patch::PatchOperation::Test(test) => {
                if *object.pointer(test.path.as_str()).unwrap_or(&Value::Null) != test.value {
                    return false;
                }
            }
            _ => json_patch::patch(object, &[operation]).unwrap(),
        }
    }
    true
}
