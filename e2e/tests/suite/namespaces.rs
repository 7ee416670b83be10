//! Problems in one namespace, or with our rights there, stay there.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, both_kinds, config_map, secret};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, crowd, done_if, wait_for};
use serde_json::{Value, json};

/// Removes rights while the operator runs, as a change of its Role does.
#[tokio::test]
async fn without_the_right_to_read_secrets_workloads_with_only_config_maps_go_on() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&both_kinds("app", "1")).await?;
        let web = Workload::podless("web").lists("app");
        let api = Workload::podless("api").lists_secrets("app");
        let before = scene.create(&web).await?;
        let before_api = scene.create(&api).await?;
        let role = &scene.installation.namespace;
        let rules: Value = scene.object(&format!("role/{role}")).await?["rules"].clone();
        let without_secrets = |rules: &Value| -> Value {
            let mut rules = rules.clone();
            for rule in rules.as_array_mut().into_iter().flatten() {
                if let Some(resources) = rule["resources"].as_array_mut() {
                    resources.retain(|resource| resource != "secrets");
                }
            }
            rules
        };
        set_rules(scene, role, &without_secrets(&rules)).await?;
        scene.put_all(&[secret("app", "2")]).await?;
        let note = scene.event(&api, "ConfigUnreadable").await?;
        ensure!(note.contains("Secret app"), "{note}");
        scene.operator.ready().await?;
        scene.put_all(&[config_map("app", "2")]).await?;
        scene.right(&web).await?;
        ensure!(scene.key(&api).await? == before_api.key, "it was written");

        set_rules(scene, role, &rules).await?;
        scene.rolls_once(&api, &before_api).await?;
        scene.rolls_once(&web, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_time_out_of_range_in_any_object_stops_no_watch() -> Result<()> {
    let label = format!("odd-{}", std::process::id());
    let options = Options {
        running: false,
        // Some writes happen while nobody answers.
        everywhere: true,
        namespace_labels: vec![format!("odd={label}")],
        values: json!({"watch": {"namespaceSelector": {"matchLabels": {"odd": label}}}}),
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        let [web, other] = ["web", "other"].map(|name| Workload::podless(name).lists("app"));
        scene
            .apply(&[config_map("app", "1"), web.manifest(), other.manifest()])
            .await?;
        let label = "f:kubernetes.io/metadata.name";
        for (object, fields) in [
            ("configmap/app", json!({"f:data": {"f:key": {}}})),
            ("deployment/other", json!({"f:spec": {"f:replicas": {}}})),
            (
                &*format!("namespace/{}", scene.namespace),
                json!({"f:metadata": {"f:labels": {label: {}}}}),
            ),
        ] {
            date(scene, object, &fields).await?;
        }
        let _operator = scene.start_operator(&[]).await?;
        let first = [
            hash_other_than(scene, "web", &Value::Null).await?,
            hash_other_than(scene, "other", &Value::Null).await?,
        ];
        // Our client cannot parse such a time, so kubectl writes.
        let patch = [
            "patch",
            "configmap/app",
            r#"--patch={"data": {"key": "2"}}"#,
        ];
        scene.kubectl(&patch).await?;
        hash_other_than(scene, "web", &first[0]).await?;
        hash_other_than(scene, "other", &first[1]).await?;
        Ok(())
    })
    .await
}

/// Waits until a Deployment carries a config hash other than `before`. The object is read untyped: the
/// clients of the oracles cannot hold such times either.
async fn hash_other_than(scene: &Scene, name: &str, before: &Value) -> Result<Value> {
    let what = format!("{name} to carry another hash than {before}");
    wait_for(&what, PATIENCE, async || {
        let object = scene.object(&format!("deployment/{name}")).await?;
        let hash = object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH].clone();
        Ok(match hash == *before {
            true => Attempt::NotYet("it does not".to_owned()),
            false => Attempt::Done(hash),
        })
    })
    .await
}

/// Adds a time that jiff cannot hold to the managed fields of `object`, under the manager of `fields`.
async fn date(scene: &Scene, object: &str, fields: &Value) -> Result<()> {
    let get = ["get", object, "--output=json", "--show-managed-fields"];
    let mut stored: Value = serde_json::from_str(&scene.kubectl(&get).await?)?;
    // Makes the write independent of what controllers write in the meantime.
    stored["metadata"]["resourceVersion"].take();
    let managed = &mut stored["metadata"]["managedFields"];
    let mut odd = managed[0].clone();
    odd["manager"] = json!("odd");
    odd["time"] = json!("9999-12-31T23:59:59Z");
    odd["fieldsV1"] = fields.clone();
    let managed = managed.as_array_mut().context("managed fields")?;
    managed.push(odd);
    let replace = [
        "replace",
        "--filename=-",
        "--output=json",
        "--show-managed-fields",
    ];
    let stored = scene
        .kubectl_with_input(&replace, &stored.to_string())
        .await?;
    ensure!(stored.contains("9999-12-31"), "{stored}");
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_deleted_in_a_fan_out_is_gone_and_nobody_complains() -> Result<()> {
    // Rights in all namespaces: those of a Role disappear before the workloads do.
    let label = std::process::id().to_string();
    let options = Options {
        proxied: true,
        everywhere: true,
        namespace_labels: vec![format!("deleted={label}")],
        values: json!({"watch": {"namespaceSelector": {"matchLabels": {"deleted": label}}}}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.put_all(&[config_map("app", "1")]).await?;
        let lists = |workload: Workload| workload.lists("app");
        let workloads: Vec<_> = crowd("web", 30).into_iter().map(lists).collect();
        scene.create_all(&workloads).await?;
        scene.quiet().await?;
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        let patches = Requests::containing("/deployments/").method(http::Method::PATCH);
        let slow = proxy.add(Rule::new(patches, Fault::Delay(Duration::from_secs(1))));
        scene.put_all(&[config_map("app", "2")]).await?;
        slow.applied(1, PATIENCE).await?;
        let namespace = format!("namespace/{}", scene.namespace);
        scene.delete(&namespace).await?;
        let namespaces: Api<Namespace> = Api::all(scene.client.clone());
        wait_for("the namespace to be gone", PATIENCE, async || {
            let found = namespaces.get_metadata_opt(&scene.namespace).await?;
            done_if(found.is_none(), "it is there")
        })
        .await?;
        let log = scene.operator.log()?;
        let complaints = log.lines().filter(|line| line.contains("WARN"));
        let complaints: Vec<_> = complaints
            .filter(|line| line.contains(&scene.namespace) && !line.contains("reloader::watch"))
            .collect();
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        scene.operator.ready().await
    })
    .await
}

/// A foreign policy refuses our patches of one workload: only that workload backs off.
#[tokio::test]
async fn a_workload_that_cannot_be_patched_is_reported_and_holds_up_no_other() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let lists = |name| Workload::podless(name).lists("app");
        let (web, refused) = (lists("web"), lists("refused"));
        let before = scene.create(&web).await?;
        let before_refused = scene.create(&refused).await?;
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/refused",
            scene.namespace
        );
        let patches = Requests::containing(path).method(http::Method::PATCH);
        let forbidden = Fault::Answer(Answer::error(StatusCode::FORBIDDEN));
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        let rule = proxy.add(Rule::new(patches, forbidden));
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&web, &before).await?;
        scene.event(&refused, "PatchRefused").await?;
        let tries = rule.hits().applied;
        ensure!((1..=3).contains(&tries), "{tries} tries");
        rule.remove();
        scene.apply(&[config_map("app", "3")]).await?;
        scene.rolls_once(&refused, &before_refused).await.map(drop)
    })
    .await
}

async fn set_rules(scene: &Scene, role: &str, rules: &Value) -> Result<()> {
    let role = format!("role/{role}");
    scene.merge(&role, &json!({"rules": rules})).await
}
