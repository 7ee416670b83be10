//! An apiserver that is a function: ConfigMaps and Deployments, and a record of what was asked.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::ByteString;
use kube::Client;
use pod_reloader_core::annotations::BASELINE;
use pod_reloader_core::hash::KEY_LENGTH;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::mock::{self, Answer};

/// Cloning it is cheap: all clones are one apiserver.
#[derive(Clone, Default)]
pub(super) struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    config_maps: BTreeMap<String, Value>,
    deployments: BTreeMap<String, Value>,
    version: u64,
    calls: Vec<(Instant, Call)>,
    /// The texts of Events.
    /// Every read of a ConfigMap fails with this status.
    pub(super) failing_reads: Option<u16>,
    /// The read of this ConfigMap panics, in the middle of whoever reads.
    pub(super) panicking_read: Option<&'static str>,
    /// What becomes of patches, one after the other and over again. Without any, they stand.
    pub(super) reactions: VecDeque<Reaction>,
    /// So many patches come too late: somebody else moves the Deployment before them.
    pub(super) moves: u32,
    /// Every patch is answered as one with a failed test, though nothing moved.
    pub(super) fails_tests: bool,
    /// How long the answer to a read of a ConfigMap takes.
    pub(super) read_takes: Duration,
    /// How long after a patch was applied its answer arrives.
    pub(super) patch_answer_takes: Duration,
}

/// What becomes of a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reaction {
    Stands,
    /// It is accepted, and its change taken out again.
    TakenBack,
    /// It is accepted, and the pod template gets annotations of somebody else in place of ours, with other
    /// values each time.
    Replaced,
    /// It is accepted, and the pod template gets another image, and loses our annotations.
    Rebuilt,
    /// It is accepted, and the baseline taken out again.
    WithoutBaseline,
    /// Somebody else moves the Deployment before it.
    Moved,
    /// It is answered with this status.
    Refused(u16),
    /// It stands, and its answer never comes.
    Unanswered,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    ReadConfigMap(String),
    ReadDeployment(String),
    Patch(String),
    /// An Event with this reason, and this note.
    Event(String, String),
}

impl Apiserver {
    pub(super) fn client(&self) -> Client {
        let this = self.clone();
        mock::client(move |head, body| {
            let this = this.clone();
            async move {
                let (answer, takes) = this.handled(&head.method, head.uri.path(), &body);
                // No answer comes in no time: an answer always is later than its question.
                tokio::time::sleep(takes.max(Duration::from_millis(1))).await;
                answer
            }
        })
    }

    /// Behaves as `set` says from now on.
    pub(super) fn now(&self, set: impl FnOnce(&mut State)) {
        set(&mut self.lock());
    }

    /// Does this with patches from now on.
    pub(super) fn reacts(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.lock().reactions = reactions.into_iter().collect();
    }

    /// Makes or overwrites a ConfigMap whose one value is `value`.
    pub(super) fn write_config_map(&self, name: &str, value: &str) {
        self.write_data(name, json!({"key": value}));
    }

    /// Makes or overwrites a ConfigMap.
    pub(super) fn write_data(&self, name: &str, data: Value) {
        let mut state = self.lock();
        let version = state.next_version();
        let metadata =
            json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version});
        let object = json!({"metadata": metadata, "data": data});
        state.config_maps.insert(name.to_owned(), object);
    }

    /// Makes or overwrites a Deployment.
    pub(super) fn write_deployment(&self, mut object: Value) {
        let mut state = self.lock();
        object["metadata"]["resourceVersion"] = json!(state.next_version());
        let name = name_of(&object);
        state.deployments.insert(name, object);
    }

    pub(super) fn delete_deployment(&self, name: &str) {
        self.lock().deployments.remove(name);
    }

    pub(super) fn config_map(&self, name: &str) -> Value {
        self.lock().config_maps[name].clone()
    }

    pub(super) fn deployment(&self, name: &str) -> Value {
        self.lock().deployments[name].clone()
    }

    /// When it was asked what `is_meant` holds for.
    pub(super) fn times(&self, is_meant: impl Fn(&Call) -> bool) -> Vec<Instant> {
        let state = self.lock();
        let calls = state.calls.iter();
        calls
            .filter(|(_, call)| is_meant(call))
            .map(|(at, _)| *at)
            .collect()
    }

    /// All that it was asked.
    pub(super) fn calls(&self) -> Vec<Call> {
        let state = self.lock();
        state.calls.iter().map(|(_, call)| call.clone()).collect()
    }

    /// Forgets what was asked.
    pub(super) fn forget_calls(&self) {
        self.lock().calls.clear();
    }

    fn handled(&self, method: &Method, path: &str, body: &[u8]) -> (Answer, Duration) {
        let mut state = self.lock();
        if path.ends_with("/secrets/keys") {
            let key = ByteString(vec![7; KEY_LENGTH]);
            let keys = json!({"metadata": {}, "data": {"20250101T000000Z": key}});
            (Ok(keys), Duration::ZERO)
        } else if let Some(name) = path.strip_prefix("/api/v1/namespaces/ns/configmaps/") {
            (state.read_config_map(name), state.read_takes)
        } else if path == "/api/v1/namespaces/ns/configmaps" {
            let items: Vec<_> = state.config_maps.values().collect();
            (Ok(json!({"metadata": {}, "items": items})), Duration::ZERO)
        } else if let Some(name) = path.strip_prefix("/apis/apps/v1/namespaces/ns/deployments/") {
            if method == Method::PATCH {
                let reaction = state.next_reaction();
                let takes = match reaction {
                    Reaction::Unanswered => Duration::from_secs(3600),
                    _ => state.patch_answer_takes,
                };
                (state.patch(name, body, reaction), takes)
            } else {
                state.record(Call::ReadDeployment(name.to_owned()));
                let object = state.deployments.get(name).cloned();
                (object.ok_or((404, "NotFound")), Duration::ZERO)
            }
        } else {
            let event: Value = serde_json::from_slice(body).unwrap();
            let reason = event["reason"].as_str().unwrap_or("again");
            let note = event["note"].as_str().unwrap_or_default();
            state.record(Call::Event(reason.to_owned(), note.to_owned()));
            (Ok(event), Duration::ZERO)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read_config_map(&mut self, name: &str) -> Answer {
        self.record(Call::ReadConfigMap(name.to_owned()));
        assert_ne!(self.panicking_read, Some(name), "as the test asked for");
        if let Some(code) = self.failing_reads {
            return Err((code, "Failing"));
        }
        let object = self.config_maps.get(name).cloned();
        object.ok_or((404, "NotFound"))
    }

    fn next_reaction(&mut self) -> Reaction {
        if self.moves > 0 {
            self.moves -= 1;
            return Reaction::Moved;
        }
        let Some(next) = self.reactions.pop_front() else {
            return Reaction::Stands;
        };
        self.reactions.push_back(next);
        next
    }

    fn patch(&mut self, name: &str, body: &[u8], reaction: Reaction) -> Answer {
        self.record(Call::Patch(name.to_owned()));
        if let Reaction::Refused(code) = reaction {
            return Err((code, "Failing"));
        }
        if reaction == Reaction::Moved {
            let version = self.next_version();
            let object = self.deployments.get_mut(name).unwrap();
            bump(object, &version);
        }
        let mut object = self.deployments.get(name).cloned().unwrap();
        let patch: Patch = serde_json::from_slice(body).unwrap();
        for operation in patch.0 {
            match &operation {
                // Unlike the crate, the apiserver takes a member that is absent for null.
                PatchOperation::Test(test) => {
                    let found = object.pointer(test.path.as_str()).unwrap_or(&Value::Null);
                    if self.fails_tests || *found != test.value {
                        return Err((422, "Invalid"));
                    }
                }
                _ => json_patch::patch(&mut object, &[operation]).unwrap(),
            }
        }
        if reaction != Reaction::TakenBack {
            let version = self.next_version();
            let template = &mut object["spec"]["template"];
            match reaction {
                Reaction::Replaced => {
                    template["metadata"]["annotations"] =
                        json!({"example.com/admitted-at": version});
                }
                Reaction::Rebuilt => {
                    template["metadata"]["annotations"] = json!({});
                    template["spec"]["containers"] = json!([{"name": "main", "image": version}]);
                }
                Reaction::WithoutBaseline => {
                    let annotations = object["metadata"]["annotations"].as_object_mut();
                    annotations.unwrap().remove(BASELINE);
                }
                _ => {}
            }
            bump(&mut object, &version);
            self.deployments.insert(name.to_owned(), object);
        }
        Ok(self.deployments[name].clone())
    }

    fn record(&mut self, call: Call) {
        self.calls.push((Instant::now(), call));
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }
}

fn bump(object: &mut Value, version: &str) {
    let metadata = &mut object["metadata"];
    metadata["resourceVersion"] = json!(version);
    metadata["generation"] = json!(metadata["generation"].as_i64().unwrap() + 1);
}

pub(super) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
