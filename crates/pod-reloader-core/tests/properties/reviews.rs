//! Checks that reviews are refused, or answered with a patch that does what the webhook promises.

use std::sync::LazyLock;

use k8s_openapi::ByteString;
use pod_reloader_core::admission::{Answer, Outcome, Pending, Revisions, Step, begin};
use pod_reloader_core::copies::Copies;
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::digest::{Aspects, ConfigObject, Contents, Objects, Presence};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::review::{GroupKind, Options, Request, UserInfo, response};
use pod_reloader_core::scope::Scope;
use serde_json::{Value, json};

use crate::choices::Choices;
use crate::mutation::mutate;
use crate::object::{
    baseline, config_hash, is_nothing, is_workload, member, patched, without_ours, workload,
};

/// Begins the review `body` and checks every answer that it can get.
pub(crate) fn hold(body: &[u8]) {
    let request = match Request::parse(body) {
        Ok(request) => request,
        Err(error) => return assert!(error.to_string().len() < 100, "{error}"),
    };
    match step(&request) {
        None | Some(Step::Settle(_)) => (),
        Some(Step::Answer(answer)) => holds(&request, &answer, None),
        Some(Step::Read(pending)) => {
            for contents in possible_objects(&pending) {
                let answer = answered(&pending, contents.as_ref());
                holds(&request, &answer, contents.as_ref());
            }
        }
    }
}

/// Returns the answer, given these objects, and no copies.
fn answered(pending: &Pending, objects: Option<&Objects>) -> Answer {
    let facts = objects.and_then(|it| pending.facts(it.clone(), &Copies::new(), &keys()));
    pending.answer(facts.as_ref(), &keys(), FirstStamp::Rollout)
}

/// Does the same for a review in the apiserver's form, with some changes.
pub(crate) fn hold_mutated(choices: &[u8]) {
    let mut choices = Choices::new(choices);
    let old = workload(&mut choices);
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": "apps", "version": "v1", "kind": old["kind"]},
            "operation": choices.one(&["UPDATE", "CREATE"]),
            "namespace": "ns",
            "userInfo": {"username": choices.one(&["admin", OURSELVES])},
            "object": old,
            "oldObject": old,
            "options": {"fieldManager": choices.one(&["kubectl", "pod-reloader"])},
        },
    });
    if choices.flag() {
        review["request"]["object"]["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    }
    while !choices.is_empty() {
        mutate(&mut review["request"], &VALUES, &mut choices);
    }
    hold(review.to_string().as_bytes());
}

fn step(request: &Request<'_>) -> Option<Step> {
    let scope = Scope::new([], Name::parse("operator").expect("it is a name")).and_pins(true);
    match begin(request, &scope, &keys(), OURSELVES) {
        // Without revisions, a request means what it says.
        Ok(Step::Settle(unsettled)) => Some(unsettled.settle(Revisions::Unknown, &scope, &keys())),
        Ok(step) => Some(step),
        Err(error) => {
            assert!(error.to_string().len() < 100, "{error}");
            None
        }
    }
}

/// Returns the possible results of the reads that `pending` asks for.
fn possible_objects(pending: &Pending) -> [Option<Objects>; 4] {
    let all = |presence: Presence| {
        let reference = |reference: &_| (Clone::clone(reference), presence.clone());
        Some(
            pending
                .workload()
                .references
                .named()
                .map(reference)
                .collect(),
        )
    };
    let present = |value| Presence::Present(object(value));
    [
        None,
        all(Presence::Absent),
        all(present("1")),
        all(present("2")),
    ]
}

fn holds(request: &Request<'_>, answer: &Answer, objects: Option<&Objects>) {
    holds_of_response(request, answer);
    let is_ignored = answer.outcome == Outcome::Ignored;
    if is_ignored && answer.patch.is_empty() {
        return;
    }
    let read = |raw: Option<&serde_json::value::RawValue>| -> Option<Value> {
        serde_json::from_str(raw?.get()).ok().filter(is_workload)
    };
    let Some(object) = read(request.object) else {
        return;
    };
    let is_update = request.operation == "UPDATE";
    let old = read(request.old_object).filter(|_| is_update);
    if is_update && old.is_none() {
        return;
    }
    let after = patched(&object, &answer.patch).expect("a patch applies to its object");
    let others = |it: &Value| without_settings(without_ours(it), old.as_ref());
    assert_eq!(others(&after), others(&object));
    if is_ignored {
        assert!(old.is_some(), "settings stay, and nothing else is written");
        return holds_again(request, &after, objects);
    }

    let old_hash = old.as_ref().and_then(config_hash);
    let true_hash = objects.map(|objects| keys().hash(&Contents::whole(objects)).to_string());
    let hash = config_hash(&after);
    assert!(
        hash == config_hash(&object) || hash == old_hash || hash == true_hash.as_deref(),
        "{hash:?}"
    );
    let is_known = [Some(&object), old.as_ref()]
        .into_iter()
        .flatten()
        .any(|known| baseline(known) == baseline(&after));
    // For a workload that is being restored, the baseline may also hold the true hash.
    let is_true = baseline(&after).zip(true_hash.as_deref());
    let is_true = is_true.is_some_and(|(baseline, hash)| !is_update && baseline.ends_with(hash));
    assert!(is_known || is_true, "{after}");
    for place in [&["metadata"][..], &["spec", "template", "metadata"]] {
        let size = |object| annotations_size(object, place);
        let limit = size(&object).max(256 << 10);
        assert!(size(&after) <= limit, "too long at {place:?}");
    }
    if let Some(old) = &old
        && template(old) == template(&object)
        && !is_ourselves(request)
    {
        assert_eq!(hash, old_hash, "a rollout by an admission");
    }
    // If the hash was retained without a read, nothing else in the template may differ.
    if let Some(old) = &old
        && (answer.outcome, objects) == (Outcome::Unchanged, None)
    {
        // An empty template is the same as none.
        let known = |object| Some(template(object)).filter(|it| !is_nothing(it));
        assert_eq!(known(old), known(&object), "an edit went unseen");
    }
    holds_again(request, &after, objects);
}

/// Returns an object without what is stored of the settings of a workload: that may stay whatever a request says.
fn without_settings(mut object: Value, old: Option<&Value>) -> Value {
    const PREFIX: &str = "pod-reloader.cs.sap.com/";
    for parent in ["annotations", "labels"] {
        let stored = old.map_or(&Value::Null, |old| &old["metadata"][parent]);
        if let Some(own) = member(&mut object, &["metadata", parent]) {
            own.retain(|key, value| !key.starts_with(PREFIX) || stored[key] != *value);
        }
        if let Some(metadata) = member(&mut object, &["metadata"]) {
            metadata.retain(|name, value| name != parent || !is_nothing(value));
        }
    }
    object
}

/// Returns the size of the annotations at `place`, measured the way Kubernetes does.
fn annotations_size(object: &Value, place: &[&str]) -> usize {
    let place = place.iter().fold(object, |it, field| &it[*field]);
    let annotations = place["annotations"].as_object().into_iter().flatten();
    let sizes = annotations.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    sizes.sum()
}

/// Checks that nothing changes if the apiserver asks again, with the object that our patch has changed.
fn holds_again(request: &Request<'_>, object: &Value, objects: Option<&Objects>) {
    let object = serde_json::value::to_raw_value(object).expect("it is JSON");
    let again = Request {
        uid: request.uid.clone(),
        kind: GroupKind {
            group: request.kind.group.clone(),
            kind: request.kind.kind.clone(),
        },
        sub_resource: request.sub_resource.clone(),
        namespace: request.namespace.clone(),
        operation: request.operation.clone(),
        user_info: UserInfo::default(),
        object: Some(&object),
        old_object: request.old_object,
        options: request.options.as_ref().map(|it| Options {
            field_manager: it.field_manager.clone(),
        }),
        dry_run: None,
    };
    let answer = match step(&again).expect("it was one before") {
        Step::Answer(answer) => answer,
        Step::Read(pending) => answered(&pending, objects),
        Step::Settle(_) => panic!("it asks for revisions twice"),
    };
    if !is_ourselves(request) {
        assert_eq!(answer.patch, [], "asked again");
    }
}

fn holds_of_response(request: &Request<'_>, answer: &Answer) {
    assert!(answer.warnings.len() <= 11);
    for warning in &answer.warnings {
        assert!(warning.len() < 1024 && !warning.contains(char::is_control));
    }
    let body = response(&request.uid, &answer.patch, &answer.warnings);
    let body: Value = serde_json::from_slice(&body).expect("it is JSON");
    let response = &body["response"];
    assert_eq!(response["uid"], *request.uid);
    assert_eq!(response["allowed"], true);
    let patch: Option<ByteString> =
        serde_json::from_value(response["patch"].clone()).expect("it is base64");
    let patch = patch.map_or(json!([]), |patch| {
        serde_json::from_slice(&patch.0).expect("it is JSON")
    });
    assert_eq!(patch, json!(answer.patch));
}

/// Returns the pod template without the config hash. `null` members and empty metadata are the same as none.
fn template(object: &Value) -> Value {
    let mut object = without_ours(object);
    for path in [&["spec", "template", "metadata"][..], &["spec", "template"]] {
        if let Some(members) = member(&mut object, path) {
            members.retain(|name, value| {
                let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
                !(value.is_null() || name == "metadata" && is_empty)
            });
        }
    }
    object["spec"]["template"].take()
}

fn is_ourselves(request: &Request<'_>) -> bool {
    request.user_info.username.as_deref() == Some(OURSELVES)
}

/// The values that replace others.
static VALUES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let objects = |value| -> Objects {
        let reference = |name| Reference {
            kind: ConfigKind::ConfigMap,
            namespace: Name::parse("ns").expect("it is a name"),
            name: Name::parse(name).expect("it is a name"),
        };
        [(reference("a"), Presence::Present(object(value)))].into()
    };
    let hash = |key, value| {
        let keys = Keyring::new(vec![HashKey::new([key; 32])]).expect("there is one");
        keys.hash(&Contents::whole(&objects(value))).to_string()
    };
    let mut values = vec![
        json!(hash(1, "1")),
        json!(hash(1, "2")),
        json!(hash(2, "1")),
        json!(format!("={}", hash(1, "1"))),
        json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:template": {"f:metadata":
            {"f:annotations": {"f:pod-reloader.cs.sap.com/config-hash": {}}}}}}}]),
    ];
    for text in [
        "a",
        "a,b",
        "A \n?",
        "true",
        "10s",
        "CREATE",
        "DELETE",
        "scale",
        "kube-system",
    ] {
        values.push(json!(text));
    }
    // Together with a hash, this is too much for one map of annotations.
    values.push(json!("x".repeat((256 << 10) - 100)));
    values.extend([
        json!(null),
        json!({}),
        json!([]),
        json!(""),
        json!(7),
        json!(1e300),
    ]);
    values
});

fn object(value: &str) -> ConfigObject {
    let object = json!({"metadata": {"uid": "1", "resourceVersion": "1"}, "data": {"k": value}});
    ConfigObject::parse(object.to_string().as_bytes(), Aspects::default())
        .expect("it is a ConfigMap")
}

fn keys() -> Keyring {
    Keyring::new(vec![HashKey::new([1; 32])]).expect("there is one")
}

const OURSELVES: &str = "system:serviceaccount:operator:pod-reloader";
