//! An apiserver that is a function: it has ConfigMaps and workloads, and records its calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use http::Method;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::ByteString;
use kube::Client;
use pod_reloader_core::annotations::BASELINE;
use pod_reloader_core::reload_round::Answer as PodAnswer;
use pod_reloader_core::secret_provider_class::STATUSES;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::mock::{self, Answer};
use crate::restart::reload_rounds::Ask;

/// A mock apiserver. Clones share its state.
#[derive(Clone, Default)]
pub(super) struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    config_maps: BTreeMap<String, Value>,
    secrets: BTreeMap<String, Value>,
    /// The Deployments and CronJobs, by their names.
    deployments: BTreeMap<String, Value>,
    replica_sets: Vec<Value>,
    /// The Events, by their names.
    events: BTreeMap<String, Value>,
    /// The pods, by their names.
    pub(super) pods: BTreeMap<String, Value>,
    /// What the Secrets Store CSI driver has mounted for them.
    pub(super) statuses: Vec<Value>,
    /// The answers of pods that are asked to reload, by their addresses. Those without one answer 200.
    pub(super) pod_answers: BTreeMap<String, PodAnswer>,
    version: u64,
    calls: Vec<(Instant, Call)>,
    /// If set, every read of a ConfigMap fails with this status.
    pub(super) failing_reads: Option<u16>,
    /// If set, no ConfigMap can be created: this is the status.
    pub(super) failing_creates: Option<u16>,
    /// The ConfigMap whose read panics, within the reading task.
    pub(super) panicking_read: Option<&'static str>,
    /// The reactions to patches, in turn and over again. If empty, every patch stands.
    pub(super) reactions: VecDeque<Reaction>,
    /// The number of patches that come too late, because somebody else changes the Deployment first.
    pub(super) moves: u32,
    /// If true, every patch is answered as one with a failed test, although nothing has changed.
    pub(super) fails_tests: bool,
    /// The time that a read of a ConfigMap takes to be answered.
    pub(super) read_takes: Duration,
    /// The time that a list of ConfigMaps takes to be answered.
    pub(super) list_takes: Duration,
    /// The time from applying a patch until its answer arrives.
    pub(super) patch_answer_takes: Duration,
}

/// A reaction to a patch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reaction {
    Stands,
    /// The patch is accepted, and its change is removed again.
    TakenBack,
    /// The patch is accepted, and our annotations in the pod template are replaced by somebody else's, with
    /// new values each time.
    Replaced,
    /// The patch is accepted, and the pod template gets another image and loses our annotations.
    Rebuilt,
    /// The patch is accepted, and the baseline is removed again.
    WithoutBaseline,
    /// Somebody else changes the Deployment first.
    Moved,
    /// The patch is answered with this status.
    Refused(u16),
    /// The patch stands, but its answer never comes.
    Unanswered,
}

/// A recorded call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    ReadConfigMap(String),
    ReadDeployment(String),
    CreateConfigMap(String),
    Patch(String),
    /// A patch of a pod.
    Sync(String),
    /// A pod at this address is asked to reload, at this path.
    Ask(String),
    CreateJob,
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
                // Answers take time, so that an answer is always later than its question.
                tokio::time::sleep(takes.max(Duration::from_millis(1))).await;
                answer
            }
        })
    }

    /// Returns what asks pods to reload.
    pub(super) fn ask(&self) -> Ask {
        let this = self.clone();
        Box::new(move |address, path| {
            let mut state = this.lock();
            state.record(Call::Ask(format!("{address}{path}")));
            let answer = state.pod_answers.get(&address.ip().to_string()).copied();
            let answer = answer.unwrap_or(PodAnswer::Status(200, None));
            std::future::ready(answer).boxed()
        })
    }

    /// Changes the behaviour from now on.
    pub(super) fn now(&self, set: impl FnOnce(&mut State)) {
        set(&mut self.lock());
    }

    /// Sets the reactions to patches from now on.
    pub(super) fn reacts(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.lock().reactions = reactions.into_iter().collect();
    }

    /// Creates or overwrites a ConfigMap with a single value.
    pub(super) fn write_config_map(&self, name: &str, value: &str) {
        self.write_data(name, json!({"key": value}));
    }

    /// Creates or overwrites a ConfigMap.
    pub(super) fn write_data(&self, name: &str, data: Value) {
        let mut state = self.lock();
        let object = state.config_object(name, data);
        state.config_maps.insert(name.to_owned(), object);
    }

    /// Creates or overwrites a Secret. Returns its resourceVersion.
    pub(super) fn write_secret(&self, name: &str, key: &str, value: &str) -> String {
        let mut state = self.lock();
        let value = ByteString(value.as_bytes().to_vec());
        let object = state.config_object(name, json!({key: value}));
        let version = object["metadata"]["resourceVersion"].as_str();
        let version = version.unwrap().to_owned();
        state.secrets.insert(name.to_owned(), object);
        version
    }

    /// Deletes a Secret.
    pub(super) fn delete_secret(&self, name: &str) {
        self.lock().secrets.remove(name);
    }

    /// Creates or overwrites a ConfigMap that belongs to a Helm release in its namespace.
    pub(super) fn write_config_map_of(&self, release: &str, name: &str, value: &str) {
        self.write_config_map(name, value);
        let mut state = self.lock();
        let object = state.config_maps.get_mut(name).unwrap();
        object["metadata"]["annotations"] = json!({
            "meta.helm.sh/release-name": release,
            "meta.helm.sh/release-namespace": "ns",
        });
    }

    /// Sets an annotation of a ConfigMap, or removes it.
    pub(super) fn annotate_config_map(&self, name: &str, key: &str, value: Option<&str>) {
        let mut state = self.lock();
        let object = state.config_maps.get_mut(name).unwrap();
        object["metadata"]["annotations"] = match value {
            Some(value) => json!({key: value}),
            None => json!({}),
        };
    }

    /// Returns the resourceVersion of a write to an object that nobody here reads.
    pub(super) fn another_version(&self) -> u64 {
        self.lock().next_version().parse().unwrap()
    }

    /// Creates or overwrites a Deployment, or a CronJob.
    pub(super) fn write_deployment(&self, mut object: Value) {
        let mut state = self.lock();
        object["metadata"]["resourceVersion"] = json!(state.next_version());
        let name = name_of(&object);
        state.deployments.insert(name, object);
    }

    /// Makes a revision of a Deployment as it is now, with this number.
    pub(super) fn keep_revision(&self, name: &str, number: u64) {
        let mut state = self.lock();
        let object = &state.deployments[name];
        let set = json!({
            "metadata": {
                "name": format!("{name}-{number}"),
                "uid": format!("{name}-{number}"),
                "annotations": {"deployment.kubernetes.io/revision": number.to_string()},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": name,
                    "uid": object["metadata"]["uid"], "controller": true,
                }],
            },
            "spec": {"template": object["spec"]["template"]},
        });
        state.replica_sets.push(set);
    }

    pub(super) fn delete_deployment(&self, name: &str) {
        self.lock().deployments.remove(name);
    }

    /// Returns the names of all Deployments.
    pub(super) fn deployments(&self) -> Vec<String> {
        self.lock().deployments.keys().cloned().collect()
    }

    pub(super) fn delete_config_map(&self, name: &str) {
        self.lock().config_maps.remove(name);
    }

    pub(super) fn config_map(&self, name: &str) -> Value {
        self.lock().config_maps[name].clone()
    }

    pub(super) fn deployment(&self, name: &str) -> Value {
        self.lock().deployments[name].clone()
    }

    /// Returns the resourceVersion of a Deployment.
    pub(super) fn version_of(&self, name: &str) -> Value {
        self.lock().deployments[name]["metadata"]["resourceVersion"].clone()
    }

    /// Returns the times of the calls for which `is_meant` holds.
    pub(super) fn times(&self, is_meant: impl Fn(&Call) -> bool) -> Vec<Instant> {
        let state = self.lock();
        let calls = state.calls.iter();
        calls
            .filter(|(_, call)| is_meant(call))
            .map(|(at, _)| *at)
            .collect()
    }

    /// Returns all recorded calls.
    pub(super) fn calls(&self) -> Vec<Call> {
        let state = self.lock();
        state.calls.iter().map(|(_, call)| call.clone()).collect()
    }

    /// Forgets the recorded calls.
    pub(super) fn forget_calls(&self) {
        self.lock().calls.clear();
    }

    fn handled(&self, method: &Method, path: &str, body: &[u8]) -> (Answer, Duration) {
        let mut state = self.lock();
        if path.ends_with("/secrets/keys") {
            (Ok(mock::keys_secret()), Duration::ZERO)
        } else if let Some(name) = path.strip_prefix("/api/v1/namespaces/ns/configmaps/") {
            (state.read_config_map(name), state.read_takes)
        } else if let Some(name) = path.strip_prefix("/api/v1/namespaces/ns/secrets/") {
            let object = state.secrets.get(name).cloned();
            (object.ok_or((404, "NotFound")), state.read_takes)
        } else if path == "/api/v1/namespaces/ns/configmaps" && method == Method::POST {
            (state.create_config_map(body), Duration::ZERO)
        } else if path == "/api/v1/namespaces/ns/pods" {
            let items: Vec<_> = state.pods.values().collect();
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            (Ok(list), Duration::ZERO)
        } else if let Some(name) = path.strip_prefix("/api/v1/namespaces/ns/pods/") {
            assert_eq!(method, Method::PATCH);
            state.record(Call::Sync(name.to_owned()));
            let pod = state.pods.get_mut(name).ok_or((404, "NotFound"));
            let patched = pod.and_then(|pod| {
                patch(pod, body)?;
                Ok(pod.clone())
            });
            (patched, Duration::ZERO)
        } else if path.ends_with(STATUSES) {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": state.statuses});
            (Ok(list), Duration::ZERO)
        } else if path == "/apis/apps/v1/namespaces/ns/replicasets" {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": state.replica_sets});
            (Ok(list), Duration::ZERO)
        } else if path == "/api/v1/namespaces/ns/configmaps" {
            let items: Vec<_> = state.config_maps.values().collect();
            let list = json!({"metadata": {}, "items": items});
            (Ok(list), state.list_takes)
        } else if path == "/apis/batch/v1/namespaces/ns/jobs" {
            state.record(Call::CreateJob);
            let job = json!({"metadata": {"name": "job", "uid": "job"}});
            (Ok(job), Duration::ZERO)
        } else if let Some(name) = path.strip_suffix("/status").and_then(workload) {
            let object = state.deployments.get_mut(name).unwrap();
            (patch(object, body).map(|()| object.clone()), Duration::ZERO)
        } else if let Some(name) = workload(path) {
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
            let sent: Value = serde_json::from_slice(body).unwrap();
            let name = match *method {
                Method::POST => sent["metadata"]["name"].as_str(),
                _ => path.rsplit('/').next(),
            };
            let event = state.events.entry(name.unwrap().to_owned()).or_default();
            json_patch::merge(event, &sent);
            let event = event.clone();
            let text = |member: &str| event[member].as_str().unwrap().to_owned();
            state.record(Call::Event(text("reason"), text("note")));
            (Ok(event), Duration::ZERO)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn config_object(&mut self, name: &str, data: Value) -> Value {
        let version = self.next_version();
        let metadata =
            json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version});
        json!({"metadata": metadata, "data": data})
    }

    fn read_config_map(&mut self, name: &str) -> Answer {
        self.record(Call::ReadConfigMap(name.to_owned()));
        assert_ne!(self.panicking_read, Some(name), "as the test asked for");
        if let Some(code) = self.failing_reads {
            return Err((code, "Failing"));
        }
        let object = self.config_maps.get(name).cloned();
        object.ok_or((404, "NotFound"))
    }

    fn create_config_map(&mut self, body: &[u8]) -> Answer {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        let name = name_of(&object);
        self.record(Call::CreateConfigMap(name.clone()));
        if let Some(code) = self.failing_creates {
            return Err((code, "Failing"));
        }
        if self.config_maps.contains_key(&name) {
            return Err((409, "AlreadyExists"));
        }
        object["metadata"]["namespace"] = json!("ns");
        object["metadata"]["uid"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(self.next_version());
        self.config_maps.insert(name, object.clone());
        Ok(object)
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
            let metadata = &mut self.deployments.get_mut(name).unwrap()["metadata"];
            metadata["resourceVersion"] = json!(version);
            next_generation(metadata);
        }
        let mut object = self.deployments.get(name).cloned().unwrap();
        let spec = object["spec"].clone();
        if self.fails_tests {
            return Err((422, "Invalid"));
        }
        patch(&mut object, body)?;
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
            object["metadata"]["resourceVersion"] = json!(version);
            if object["spec"] != spec {
                next_generation(&mut object["metadata"]);
            }
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

/// Returns the name of a workload, if this is its path.
fn workload(path: &str) -> Option<&str> {
    let of_apps = path.strip_prefix("/apis/apps/v1/namespaces/ns/deployments/");
    of_apps.or_else(|| path.strip_prefix("/apis/batch/v1/namespaces/ns/cronjobs/"))
}

/// Applies a JSON Patch as the apiserver does.
fn patch(object: &mut Value, body: &[u8]) -> Result<(), (u16, &'static str)> {
    let patch: Patch = serde_json::from_slice(body).unwrap();
    for operation in patch.0 {
        match &operation {
            // Unlike the crate, the apiserver treats an absent member as null.
            PatchOperation::Test(test) => {
                let found = object.pointer(test.path.as_str()).unwrap_or(&Value::Null);
                if *found != test.value {
                    return Err((422, "Invalid"));
                }
            }
            _ => json_patch::patch(object, &[operation]).unwrap(),
        }
    }
    Ok(())
}

fn next_generation(metadata: &mut Value) {
    metadata["generation"] = json!(metadata["generation"].as_i64().unwrap() + 1);
}

pub(super) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
