//! New pods use the copies that their annotation names, by the policy or by the webhook: both do the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, done_if, lacks_mutating_policies, wait_for};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{PINS, pinning, read_key};

#[tokio::test]
async fn by_the_policy_the_pods_of_a_pinned_workload_use_copies() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    Scene::play(pinning(&json!({})), async |scene| {
        odd_pods_start_as_expected(scene)
            .await
            .context("odd pods")?;
        the_pods_of_a_pinned_workload_use_copies(scene).await?;
        // The policy needs no operator.
        scene.operator.stop().await;
        let probe = probe(scene).await?;
        ensure!(probe == [COPY], "{probe:?}");
        for kind in ["mutatingadmissionpolicybinding", "mutatingadmissionpolicy"] {
            let name = format!("{}-pins", scene.installation.namespace);
            scene.kubectl(&["delete", kind, &name]).await?;
        }
        without_anybody_pods_use_the_live_objects(scene).await
    })
    .await
}

#[tokio::test]
async fn by_the_webhook_the_pods_of_a_pinned_workload_use_copies() -> Result<()> {
    Scene::play(pinning(&by_webhook()), async |scene| {
        odd_pods_start_as_expected(scene)
            .await
            .context("odd pods")?;
        the_pods_of_a_pinned_workload_use_copies(scene).await?;
        scene.operator.stop().await;
        without_anybody_pods_use_the_live_objects(scene).await
    })
    .await
}

/// Returns the values for pods that are pinned by the webhook.
pub(super) fn by_webhook() -> Value {
    json!({"policy": {"enabled": false}})
}

async fn the_pods_of_a_pinned_workload_use_copies(scene: &Scene) -> Result<()> {
    pins_are_in_force(scene).await?;
    let mut copy = config_map(COPY, "1");
    copy["immutable"] = json!(true);
    let live = ["app", "other"].map(|name| config_map(name, "1"));
    scene.apply(&live).await?;
    scene.apply(&[copy, secret("app", "1")]).await?;
    let pins = format!("app={COPY}");
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"template": {"metadata": {"labels": {"app": "job"}}, "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "volumes": spec()["volumes"],
            "containers": spec()["containers"],
        }}},
    });
    let web = workload("web", Some(&pins));
    let plain = workload("plain", None);
    let empty = workload("empty", Some(""));
    let workloads = [&web, &plain, &empty].map(Workload::manifest);
    scene.apply(&workloads).await?;
    scene.apply(&[job]).await?;
    for (name, pins) in [
        ("web", &[("app", COPY)][..]),
        ("plain", &[]),
        ("empty", &[]),
        ("job", &[]),
    ] {
        let manifest = if name == "job" { job_spec() } else { spec() };
        for pod in pods(scene, name).await? {
            let names = names(&pod);
            ensure!(names == expected(&manifest, pins), "{name}: {names:?}");
        }
    }
    let template = &scene.object(&web.reference()).await?["spec"]["template"];
    let names = names(&template["spec"]);
    ensure!(names == expected(&spec(), &[]), "{names:?}");
    Ok(())
}

/// Asserts that pods start, and soon, if nobody is there to pin them.
async fn without_anybody_pods_use_the_live_objects(scene: &Scene) -> Result<()> {
    wait_for("nobody to pin pods", PATIENCE, async || {
        let probe = timeout(Duration::from_secs(10), probe(scene)).await??;
        done_if(probe == ["app"], format!("{probe:?}"))
    })
    .await?;
    let late = workload("late", Some(&format!("app={COPY}")));
    scene.apply(&[late.manifest()]).await?;
    for pod in pods(scene, "late").await? {
        let names = names(&pod);
        ensure!(names == expected(&spec(), &[]), "{names:?}");
    }
    Ok(())
}

/// Asserts what becomes of odd pods, by dry runs, which leave nothing behind.
async fn odd_pods_start_as_expected(scene: &Scene) -> Result<()> {
    pins_are_in_force(scene).await?;
    let of = |source: &str, stem: &str| format!("app={COPY},{source}={stem}-0123456789");
    let longest = of(&"x".repeat(253), &"x".repeat(242));
    let dotted = of(
        &format!("{}.{}", "x".repeat(241), "y".repeat(11)),
        &"x".repeat(241),
    );
    let too_long = of(&"x".repeat(254), &"x".repeat(242));
    let not_cut = of(&"x".repeat(243), &"x".repeat(241));
    let both = [("app", COPY), ("other", "other-abcdefghij")];
    let app = [("app", COPY)];
    let pinned: [(&str, &[(&str, &str)]); 7] = [
        ("app=app-0123456789", &app),
        ("app=app-0123456789,other=other-abcdefghij", &both),
        (
            "other=other-abcdefghij,absent=absent-0123456789,app=app-0123456789",
            &both,
        ),
        ("a.b-c=a.b-c-0123456789", &[]),
        (
            "\u{a0}app=app-0123456789 , other=other-abcdefghij\u{2003}\n",
            &both,
        ),
        (&longest, &app),
        (&dotted, &app),
    ];
    let malformed = [
        "",
        " ",
        ",",
        "=",
        "app",
        "app=",
        "=app-0123456789",
        "app=app-0123456789,",
        ",app=app-0123456789",
        "app=app-0123456789,,other=other-0123456789",
        "app=app-0123456789,garbage",
        "app=app-0123456789=app-0123456789",
        "app=app-0123456789,app=app-9876543210",
        "app=app-0123456789,app=app-0123456789",
        "app=app-0123456789,Other=Other-0123456789",
        "app=app-0123456789,other=../other-0123456789",
        "app=app-0123456789,other_=other_-0123456789",
        "app =app-0123456789",
        "app=\u{e4}-0123456789",
        "-app=-app-0123456789",
        "app=app.-0123456789",
        "a..b=a..b-0123456789",
        // A second invocation would find the names of copies.
        "app=app-0123456789,app-0123456789=app-0123456789-0123456789",
        "{\"app\":\"app-0123456789\"}",
        // Anything else but copies of the ConfigMap: a reviewer of the template would not see what its pods use.
        "app=prod-db",
        "app=app",
        "app=other,other=app",
        "app=other-0123456789",
        "app=app-more-0123456789",
        "app=app0123456789",
        "app=app-012345678",
        "app=app-01234567890",
        "app=app-012345678w",
        "app=app-0123456789,other=prod-db",
        &too_long,
        &not_cut,
    ];
    let malformed = malformed.iter().map(|pins| (*pins, &[][..]));
    for (pins, in_force) in pinned.into_iter().chain(malformed) {
        let names = names(&created(scene, Some(pins), &spec()).await?);
        ensure!(names == expected(&spec(), in_force), "{pins:?}: {names:?}");
    }
    let unpinned = names(&created(scene, None, &spec()).await?);
    ensure!(unpinned == expected(&spec(), &[]), "{unpinned:?}");
    for spec in odd_specs() {
        let pod = created(scene, Some(&format!("app={COPY}")), &spec).await?;
        let (names, expected) = (names(&pod), expected(&spec, &[("app", COPY)]));
        ensure!(names == expected, "{spec}: {names:?}");
    }
    Ok(())
}

/// Returns specs that lack what others have, or have much of it.
fn odd_specs() -> Vec<Value> {
    let with = |path: &str, value: Value| {
        let mut spec = spec();
        if let Some(place) = spec.pointer_mut(path) {
            *place = value;
        }
        spec
    };
    let volume = |source: Value| json!([{"name": "only", "projected": {"sources": [source]}}]);
    let variables = |count: usize| -> Vec<Value> {
        let variable = |number: usize| {
            let source = json!({"name": "app", "key": format!("key-{number}")});
            json!({"name": format!("V{number}"), "valueFrom": {"configMapKeyRef": source}})
        };
        (0..count).map(variable).collect()
    };
    let many: Vec<_> = (0..64)
        .map(|number| json!({"name": format!("c{number}"), "image": "app", "env": variables(64)}))
        .collect();
    vec![
        json!({"containers": [{"name": "main", "image": "app"}]}),
        with("/volumes", json!(null)),
        with("/volumes", json!([])),
        with("/volumes/1", json!({"name": "plain", "emptyDir": {}})),
        with("/volumes/1/configMap/optional", json!(true)),
        with(
            "/volumes",
            volume(json!({"serviceAccountToken": {"path": "token"}})),
        ),
        with("/initContainers", json!(null)),
        with("/initContainers/0/restartPolicy", json!("Always")),
        with("/containers/0/env", json!(null)),
        with(
            "/containers/0/env",
            json!([{"name": "A"}, {"name": "B", "valueFrom": null}]),
        ),
        with(
            "/containers/0/env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        ),
        with("/containers/0/envFrom", json!([])),
        with(
            "/containers/0/envFrom",
            json!([{"prefix": "A", "secretRef": {"name": "app"}}]),
        ),
        json!({"containers": many}),
    ]
}

/// Waits until a new pod would use a copy.
/// Waits until new pods are pinned: a policy takes effect a moment after it was made.
pub(crate) async fn pins_are_in_force(scene: &Scene) -> Result<()> {
    read_key(scene).await?;
    wait_for("a pod to be pinned", PATIENCE, async || {
        let probe = probe(scene).await?;
        done_if(probe == [COPY], format!("{probe:?}"))
    })
    .await
}

/// Returns the names in a new pod that names ConfigMap `app`, and that is pinned.
async fn probe(scene: &Scene) -> Result<Vec<String>> {
    let from = json!([{"configMapRef": {"name": "app"}}]);
    let spec = json!({"containers": [{"name": "main", "image": "app", "envFrom": from}]});
    let pod = created(scene, Some(&format!("app={COPY}")), &spec).await?;
    Ok(names(&pod))
}

/// Returns the spec of a pod as it would be created, in a dry run.
async fn created(scene: &Scene, pins: Option<&str>, spec: &Value) -> Result<Value> {
    let annotations = pins.map(|pins| json!({PINS: pins}));
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "odd", "annotations": annotations},
        "spec": spec,
    });
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    let uri = format!("/api/v1/namespaces/{}/pods?dryRun=All", scene.namespace);
    let request = Request::post(uri).header("content-type", "application/json");
    let request = request.body(pod.to_string().into_bytes())?;
    let created = scene.client.request::<Value>(request).await?;
    Ok(created["spec"].clone())
}

/// Returns the specs of the pods of a workload, once there are two of them, or one of a Job.
async fn pods(scene: &Scene, app: &str) -> Result<Vec<Value>> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let of_app = ListParams::default().labels(&format!("app={app}"));
    let count = if app == "job" { 1 } else { 2 };
    wait_for("pods to run", PATIENCE, async || {
        let list = serde_json::to_value(pods.list(&of_app).await?.items)?;
        let list = list.as_array().cloned().unwrap_or_default();
        let has_started = |pod: &Value| pod["status"]["startTime"].is_string();
        Ok(match list.len() == count && list.iter().all(has_started) {
            true => Attempt::Done(list.iter().map(|pod| pod["spec"].clone()).collect()),
            false => Attempt::NotYet(format!("{list:?}")),
        })
    })
    .await
}

/// Returns a workload that the operator does not manage, so that it leaves its pins alone.
fn workload(name: &str, pins: Option<&str>) -> Workload {
    let annotations = pins.map(|pins| json!({PINS: pins}));
    Workload::deployment(name)
        .with(&["spec", "replicas"], json!(2))
        .with(
            &["spec", "template", "metadata", "annotations"],
            json!(annotations),
        )
        .with(&["spec", "template", "spec"], spec())
}

/// Returns a pod spec that names ConfigMaps `app` and `other`, and Secret `app`, in every way.
pub(super) fn spec() -> Value {
    let env = |name: &str, source: &str, object: &str| json!({"name": name, "valueFrom": {source: {"name": object, "key": "key"}}});
    let container = |name: &str| {
        json!({
            "name": name,
            "image": "app:1",
            "env": [
                {"name": "PLAIN", "value": "app"},
                env("OTHER", "configMapKeyRef", "other"),
                env("APP", "configMapKeyRef", "app"),
                env("SECRET", "secretKeyRef", "app"),
            ],
            "envFrom": [
                {"secretRef": {"name": "app"}},
                {"configMapRef": {"name": "other"}},
                {"prefix": "A_", "configMapRef": {"name": "app"}},
            ],
        })
    };
    json!({
        "automountServiceAccountToken": false,
        "volumes": [
            {"name": "secret", "secret": {"secretName": "app"}},
            {"name": "app", "configMap": {"name": "app", "optional": false}},
            {"name": "other", "configMap": {"name": "other"}},
            {"name": "all", "projected": {"sources": [
                {"secret": {"name": "app"}},
                {"configMap": {"name": "app", "items": [{"key": "key", "path": "app"}]}},
                {"configMap": {"name": "other", "items": [{"key": "key", "path": "other"}]}},
            ]}},
        ],
        "containers": [container("main"), container("second")],
        "initContainers": [container("first")],
    })
}

/// Returns the part of it that the Job has.
fn job_spec() -> Value {
    json!({"volumes": spec()["volumes"], "containers": spec()["containers"]})
}

/// Returns the names of ConfigMaps and Secrets anywhere in a pod spec, in an order that depends on nothing
/// but the places.
pub(super) fn names(spec: &Value) -> Vec<String> {
    expected(spec, &[])
}

/// Returns the same, with the names of pinned ConfigMaps replaced.
pub(super) fn expected(spec: &Value, pins: &[(&str, &str)]) -> Vec<String> {
    let copy_of = |name: &str| {
        let pin = pins.iter().find(|(live, _)| *live == name);
        pin.map_or(name, |(_, copy)| copy).to_owned()
    };
    match spec {
        Value::Object(fields) => {
            let names = fields.iter().flat_map(|(field, value)| {
                let name = value["name"].as_str();
                match field.as_str() {
                    "configMap" | "configMapRef" | "configMapKeyRef" => {
                        name.map(copy_of).into_iter().collect()
                    }
                    "secret" | "secretRef" | "secretKeyRef" => {
                        let name = name.or(value["secretName"].as_str());
                        let name = name.map(|name| format!("Secret {name}"));
                        name.into_iter().collect()
                    }
                    _ => expected(value, pins),
                }
            });
            names.collect()
        }
        Value::Array(items) => items.iter().flat_map(|it| expected(it, pins)).collect(),
        _ => Vec::new(),
    }
}

const COPY: &str = "app-0123456789";
