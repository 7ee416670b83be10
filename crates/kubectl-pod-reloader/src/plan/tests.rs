//! Plans for a made-up cluster.

use serde_json::json;

use super::*;
use crate::cluster::canned::{
    Canned, assert_mentions, config_map, deployment, operator, operator_with,
};

const HASH: &str = "v1.dcdaaec6.48a639467b0198a29241395d135eb7a8d25cb046628dc25951ea0ba3d94e2871";
const APPS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Returns a Deployment that bears a hash of the operator, and has these annotations of ours.
fn web(name: &str, annotations: &[(&str, &str)]) -> Value {
    let mut web = deployment(name);
    web["metadata"]["annotations"] = json!({});
    for (key, value) in annotations {
        web["metadata"]["annotations"][format!("pod-reloader.cs.sap.com/{key}")] = json!(value);
    }
    web["spec"]["template"]["metadata"]["annotations"] =
        json!({pod_reloader_core::annotations::CONFIG_HASH: HASH});
    web
}

/// Returns the manifest of ConfigMap `app`.
fn app(data: Value) -> Value {
    let metadata = json!({"name": "app", "namespace": "shop"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// Returns a cluster with these workloads and ConfigMap `app`, which has the empty keys `color` and `size`.
fn shop(workloads: &[Value]) -> Canned {
    let mut app = config_map("app", "color");
    app["data"]["size"] = json!("");
    Canned::shop()
        .with("/apis/apps/v1/deployments", json!({"items": [operator()]}))
        .with_all(APPS, workloads)
        .with_all(MAPS, &[app, config_map("other", "key")])
        .reporting("current")
}

async fn plan_of(canned: Canned, manifests: &[Value]) -> (Plan, Outcome) {
    let cluster = canned.cluster();
    let operators = Operators::find(&cluster, None).await;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.json"), list.to_string()).unwrap();
    let sources = Sources::of_folder(folder.path());
    plan(&cluster, &operators, &sources, None).await.unwrap()
}

async fn told(canned: Canned, manifests: &[Value]) -> (String, Outcome) {
    let (plan, outcome) = plan_of(canned, manifests).await;
    (plan.text().without_styles(), outcome)
}

#[tokio::test]
async fn a_change_restarts_those_who_track_it_and_nobody_else() {
    let mut unmanaged = deployment("unmanaged");
    unmanaged["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "app"}}]);
    let shop = shop(&[
        web("all", &[("configmaps", "app")]),
        web("none", &[("configmaps", "other")]),
        web("one", &[("configmaps", "app[size]")]),
        unmanaged,
    ]);
    let (text, outcome) = told(shop.clone(), &[app(json!({"color": "blue"}))]).await;
    let expected = "1 workload with 1 pod would restart, 2 would keep running.

WORKLOAD                    PODS   RESTARTS   REASON
Deployment shop/all         1      yes        ConfigMap app: color
Deployment shop/one         1      no         what it tracks of ConfigMap app stays the same
Deployment shop/unmanaged   1      no         not managed: it has no annotation that opts it in, such as pod-reloader.cs.sap.com/auto: \"true\"

Changes
  ConfigMap shop/app: color
";
    assert_eq!(text, expected);
    assert_eq!(outcome, Outcome::Restarts);
    let (text, outcome) = told(shop, &[app(json!({"color": ""}))]).await;
    assert_eq!(text, "Nothing restarts.\n");
    assert_eq!(outcome, Outcome::Nothing);
}

#[tokio::test]
async fn a_workload_in_the_manifests_is_judged_as_it_will_be() {
    let plain = deployment("web");
    let tracking = |name: &str| web(name, &[("configmaps", "app")]);
    let shop = shop(&[
        plain.clone(),
        tracking("image"),
        tracking("leaves"),
        tracking("more"),
        tracking("same"),
    ]);
    let manifest = |name: &str, annotations: Value| {
        let metadata = json!({"name": name, "namespace": "shop", "annotations": annotations});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    };
    let mut image = manifest("image", json!({}));
    image["spec"]["template"]["spec"]["containers"] = json!([{"name": "main", "image": "new"}]);
    let mut new = web("new", &[("configmaps", "gone")]);
    new["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "gone"}}]);
    let ours = |key: &str, value: &str| json!({format!("pod-reloader.cs.sap.com/{key}"): value});
    let manifests = [
        manifest("web", ours("configmaps", "app")),
        image,
        manifest("more", ours("configmaps", "app,other")),
        manifest("same", json!({"x": "y"})),
        new,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}),
    ];
    let shop = shop.reporting_of("web", "not managed");
    let (text, outcome) = told(shop, &manifests).await;
    for row in [
        "3 workloads with 3 pods would restart, 1 would be new, 1 would keep running.",
        "Deployment shop/web     1      yes         it opts in, and gets its first hash",
        "Deployment shop/more    1      yes         it tracks other objects than before",
        "Deployment shop/image   1      by itself   its pod template changes",
        "Deployment shop/new     1      new         it is new, and its pods wait for ConfigMap gone",
        "Deployment shop/same    1      no          nothing of it changes",
        "1 object of other kinds: they restart nothing",
    ] {
        assert_mentions(&text, row);
    }
    assert_eq!(outcome, Outcome::Restarts);
}

#[tokio::test]
async fn what_waits_is_told_from_what_restarts() {
    let tracking =
        |name: &str, key: &str, value: &str| web(name, &[("configmaps", "app"), (key, value)]);
    let shop = shop(&[
        tracking("approval", "approval", "required"),
        tracking("hold", "hold", "true"),
        tracking("window", "restart-window", "Mon-"),
    ]);
    let manifests = [app(json!({"color": "blue"}))];
    let (text, outcome) = told(shop.clone(), &manifests).await;
    for row in [
        "Nothing restarts, 3 would wait.",
        "waits      ConfigMap app: color; its content waits for approval",
        "waits      ConfigMap app: color; it is on hold",
        "waits      ConfigMap app: color; its restart window cannot be read",
    ] {
        assert_mentions(&text, row);
    }
    assert_eq!(outcome, Outcome::Waits);
    let operators = json!({"items": [operator_with(&["--reconcile=observe"])]});
    let observed = shop.with("/apis/apps/v1/deployments", operators);
    let (text, outcome) = told(observed, &manifests).await;
    assert_mentions(&text, "color, but the operator only observes\n");
    assert_eq!(outcome, Outcome::Nothing);
}

#[tokio::test]
async fn a_restart_that_waits_goes_on_once_a_release_opens_its_gate() {
    let tracking =
        |name: &str, key: &str, value: &str| web(name, &[("configmaps", "app"), (key, value)]);
    let held = |value: &str| {
        let mut app = config_map("app", "color");
        app["metadata"]["annotations"] = json!({pod_reloader_core::annotations::HOLD: value});
        app
    };
    let mut approval = tracking("approval", "approval", "required");
    let shop = shop(&[
        tracking("hold", "hold", "true"),
        approval.clone(),
        tracking("window", "restart-window", "Mon-"),
        tracking("still", "hold", "true"),
    ]);
    let shop = shop.reporting("restart due for a change; version 0.1.0; content 48a63946");
    approval["metadata"]["annotations"][pod_reloader_core::annotations::APPROVE] =
        json!("48a63946");
    let manifests = [
        tracking("hold", "hold", "false"),
        approval,
        tracking("window", "restart-window", "00:00-24:00 Europe/Berlin"),
        tracking("still", "hold", "yes"),
    ];
    let (text, outcome) = told(shop.clone(), &manifests).await;
    for row in [
        "3 workloads with 3 pods would restart, 1 would keep running.",
        "Deployment shop/approval   1      yes        a restart is due already",
        "Deployment shop/hold       1      yes        a restart is due already",
        "Deployment shop/window     1      yes        a restart is due already",
        "Deployment shop/still      1      no         nothing of it changes",
    ] {
        assert_mentions(&text, row);
    }
    assert_eq!(outcome, Outcome::Restarts);

    let shop = shop.with_all(APPS, &[web("web", &[("configmaps", "app")])]);
    let shop = shop.with_all(MAPS, &[held("true")]);
    let mut released = held("false");
    released["apiVersion"] = json!("v1");
    released["kind"] = json!("ConfigMap");
    let (text, outcome) = told(shop, &[released]).await;
    assert_mentions(&text, "yes        a restart is due already");
    assert_eq!(outcome, Outcome::Restarts);
}

#[tokio::test]
async fn staged_restarts_are_shown_in_steps_for_each_object() {
    let staged = |name: &str, stage: &str| {
        web(
            name,
            &[("configmaps", "app"), ("staged", "all"), ("stage", stage)],
        )
    };
    let shop = shop(&[
        staged("a", "1"),
        staged("canary", "0"),
        web("free", &[("configmaps", "app")]),
    ]);
    let (plan, _) = plan_of(shop, &[app(json!({"color": "blue"}))]).await;
    let steps = "
ConfigMap shop/app: in steps, each when the one before has been healthy for its soak
  at once: Deployment free
  1. Deployment canary
  2. Deployment a
";
    let text = plan.text().without_styles();
    assert_mentions(&text, steps);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["staged"][0]["object"], "ConfigMap shop/app");
    assert_eq!(json["workloads"][0]["because"][0]["keys"], json!(["color"]));
}

#[tokio::test]
async fn a_key_that_the_manifest_leaves_out_goes_if_its_applier_has_written_it() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let fields = |keys: &[&str]| {
        let keys = keys.iter().map(|key| (format!("f:{key}"), json!({})));
        json!({"f:data": Value::Object(keys.collect()), "f:metadata": {"f:annotations": {format!("f:{LAST}"): {}}}})
    };
    let mut stored = config_map("app", "color");
    stored["data"] = json!({"color": "", "size": "", "ca": ""});
    stored["metadata"]["annotations"] = json!({LAST: "{}"});
    stored["metadata"]["managedFields"] = json!([
        {"manager": "helm", "operation": "Update", "fieldsV1": fields(&["color", "size"])},
        {"manager": "injector", "operation": "Update", "fieldsV1": fields(&["ca"])},
    ]);
    let shop = shop(&[web("web", &[("configmaps", "app")])]);
    let shop = shop.with(&format!("{MAPS}/app"), stored);
    let (text, _) = told(shop.clone(), &[app(json!({"color": ""}))]).await;
    assert!(
        text.ends_with("Changes\n  ConfigMap shop/app: size\n"),
        "{text}"
    );
    let (text, _) = told(shop, &[app(json!({"color": "", "size": ""}))]).await;
    assert_eq!(text, "Nothing restarts.\n");
}

#[tokio::test]
async fn refusals_and_what_cannot_be_seen_have_codes_of_their_own() {
    let shop = shop(&[web("web", &[("configmaps", "app")])]);
    let manifests = [app(json!({"color": "hunter2"}))];
    let path = format!("{MAPS}/app");
    let invalid = json!({
        "message": "data: hunter2", "reason": "Invalid", "details": {"causes": [{"field": "data"}]},
    });
    let immutable = shop.clone().refuses_trials(&path, 422, invalid);
    let (text, outcome) = told(immutable, &manifests).await;
    assert_mentions(&text, "Refused\n  ConfigMap shop/app: Invalid: data\n");
    assert_eq!(outcome, Outcome::Refused);
    let lack = json!({"message": "configmaps is forbidden: User \"u\" cannot patch"});
    let (text, outcome) = told(shop.clone().refuses_trials(&path, 403, lack), &manifests).await;
    assert!(
        text.contains("you may not patch configmaps in namespace shop (app)"),
        "{text}"
    );
    assert_eq!(outcome, Outcome::Refused);
    let (text, outcome) = told(shop.clone().forbids(&path), &manifests).await;
    assert_mentions(&text, "Not seen\n  ConfigMap shop/app: you may not get");
    assert_eq!(outcome, Outcome::Unknown);
    // The webhook is down: what it would say is assumed.
    let mut down = shop.clone();
    down = down.with_no_report();
    let (text, outcome) = told(down, &manifests).await;
    assert!(
        text.contains("whether Deployment shop/web is up to date now: the webhook"),
        "{text}"
    );
    assert_mentions(&text, "Deployment shop/web   1      yes");
    assert_eq!(outcome, Outcome::Restarts);
    let (json, _) = plan_of(shop, &manifests).await;
    let json = serde_json::to_string(&json).unwrap();
    assert!(!json.contains("hunter2"), "{json}");
}

#[tokio::test]
async fn an_invalid_name_is_refused_unless_its_kind_restarts_nothing() {
    let named = |api_version: &str, kind: &str, name: &str| {
        let metadata = json!({"name": name, "namespace": "shop"});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    };
    let others = [
        named("rbac.authorization.k8s.io/v1", "Role", "app:reader"),
        named("example.com/v1", "Secret", "app:secret"),
    ];
    let (text, outcome) = told(shop(&[]), &others).await;
    assert_mentions(&text, "2 objects of other kinds");
    assert_eq!(outcome, Outcome::Nothing);
    let invalid = [
        named("apps/v1", "Deployment", "Web"),
        named("v1", "Secret", "a/b"),
    ];
    let (text, outcome) = told(shop(&[]), &invalid).await;
    for refusal in [
        "  Deployment shop/Web: that is not a valid name: ",
        "  Secret shop/a/b: that is not a valid name: ",
    ] {
        assert_mentions(&text, refusal);
    }
    assert_eq!(outcome, Outcome::Refused);
}

#[tokio::test]
async fn a_namespace_that_is_yet_to_be_created_has_nothing_to_restart() {
    let mut app = app(json!({"color": "blue"}));
    app["metadata"]["namespace"] = json!("new");
    let missing = json!({"message": "namespaces \"new\" not found"});
    let path = "/api/v1/namespaces/new/configmaps/app";
    let (text, outcome) = told(shop(&[]).refuses_trials(path, 404, missing), &[app]).await;
    assert_eq!(
        text,
        "Nothing restarts.\n\nChanges\n  ConfigMap new/app: created\n"
    );
    assert_eq!(outcome, Outcome::Nothing);
}

#[tokio::test]
async fn a_workload_of_a_new_namespace_is_new_even_if_the_operator_selects_namespaces() {
    let selecting =
        operator_with(&[r#"--watch-namespace-selector={"matchLabels":{"team":"shop"}}"#]);
    let selecting = json!({"items": [selecting]});
    let shop = shop(&[]).with("/apis/apps/v1/deployments", selecting);
    let missing = json!({"message": "namespaces \"new\" not found"});
    let path = "/apis/apps/v1/namespaces/new/deployments/web";
    let mut web = web("web", &[("configmaps", "app")]);
    web["metadata"]["namespace"] = json!("new");
    let manifests = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}),
        web,
    ];
    let shop = shop.refuses_trials(path, 404, missing);
    let (text, outcome) = told(shop.clone(), &manifests).await;
    assert_mentions(&text, "it is new\n");
    assert!(!text.contains("Not seen"), "{text}");
    assert_eq!(outcome, Outcome::Nothing);
    let hidden = shop.forbids("/api/v1/namespaces/new");
    let (_, outcome) = told(hidden, &manifests).await;
    assert_eq!(outcome, Outcome::Unknown);
}

#[tokio::test]
async fn a_secret_that_the_user_may_not_read_stays_as_it_is() {
    let mut web = web("web", &[("configmaps", "app"), ("secrets", "hidden")]);
    web["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{
        "name": "A", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "password"}},
    }]);
    let shop = shop(&[web]).forbids("/api/v1/namespaces/shop/secrets/hidden");
    let (text, outcome) = told(shop, &[app(json!({"color": "blue"}))]).await;
    assert_mentions(&text, "yes        ConfigMap app: color\n");
    assert!(!text.contains("Not seen"), "{text}");
    assert_eq!(outcome, Outcome::Restarts);
}

#[tokio::test]
async fn manifests_without_objects_are_an_error() {
    let cluster = shop(&[]).cluster();
    let operators = Operators::find(&cluster, None).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), "---\n# nothing\n").unwrap();
    let sources = Sources::of_folder(folder.path());
    let error = plan(&cluster, &operators, &sources, None).await.err();
    assert_eq!(
        error.map(|it| it.to_string()).as_deref(),
        Some("the manifests have no objects")
    );
}

#[tokio::test]
async fn a_change_of_files_that_pods_reload_is_told_from_a_restart() {
    let reloading = |name: &str, env: Value| {
        let url = "http://:8080/-/reload";
        let mut web = web(name, &[("configmaps", "app"), ("reload-url", url)]);
        web["spec"]["template"]["spec"] = json!({
            "volumes": [{"name": "config", "configMap": {"name": "app"}}],
            "containers": [{"name": "main", "volumeMounts": [{"name": "config"}], "envFrom": env}],
        });
        web
    };
    let env = json!([{"configMapRef": {"name": "app"}}]);
    let shop = shop(&[reloading("files", json!(null)), reloading("env", env)]);
    let reloads = |canned: Canned| async {
        let (text, outcome) = told(canned, &[app(json!({"color": "blue"}))]).await;
        assert_eq!(outcome, Outcome::Restarts, "a reload may fail");
        text
    };
    let operator = json!({"items": [operator_with(&["--http-reload"])]});
    let text = reloads(shop.clone().with("/apis/apps/v1/deployments", operator)).await;
    for row in [
        "1 workload with 1 pod would restart, 1 would reload.",
        "Deployment shop/env     1      yes        ConfigMap app: color\n",
        "Deployment shop/files   1      reloads    ConfigMap app: color; its pods are asked to reload",
    ] {
        assert_mentions(&text, row);
    }
    // If that is switched off, both restart.
    let text = reloads(shop).await;
    assert_mentions(&text, "2 workloads with 2 pods would restart.");
}
