//! The operator needs every rule of the chart's RBAC, and no other, and so does the writer.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use pod_reloader_e2e::{
    AuditEvent, Mark, Options, PATIENCE, Scene, done_if, merge, own_kinds,
    proxy::{Answer, Fault, Requests, Rule},
    wait_for,
    workload::{CONFIG_MAPS, Kind, Workload, both_kinds, config_map, secret},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pins::PIN;
use crate::{bind, http_reload, keep, protect, secret_provider_classes, stuck, sync, watches};

/// A way for a workload to list an object, and the object with a value.
type Config = (fn(Workload, &str) -> Workload, fn(&str, &str) -> Value);

const CONFIG_MAP: Config = (Workload::lists, config_map);
const SECRET: Config = (Workload::lists_secrets, secret);

/// API group, resource, name that the rule is restricted to, and verb.
type Permission = (String, String, Option<String>, String);

#[tokio::test]
async fn with_its_own_ca_in_all_namespaces_the_operator_uses_every_rule_and_lacks_none()
-> Result<()> {
    let values = json!({"watch": {"namespaceSelector": {"matchLabels": {"rbac-test": "x"}}}});
    let options = Options {
        everywhere: true,
        namespace_labels: vec!["rbac-test=x".to_owned()],
        ..options(values)
    };
    Scene::play(options, async |scene| {
        work(scene, &[CONFIG_MAP, SECRET]).await?;
        break_own_certificate(scene).await?;
        uses_every_rule(scene, &["Role", "ClusterRole", "ClusterRole"]).await?;
        // What is switched off asks for nothing, not even in vain. Namespaces are watched by the label of this scene.
        let mut requests = scene.requests(scene.began()).await?;
        let of_others = [
            "harbors",
            "namespaces",
            "pods",
            "secretproviderclasspodstatuses",
        ];
        let is_ours = |resource: &str| own_kinds().iter().any(|own| own.plural == resource);
        requests.retain(|it| is_ours(&it.resource) || of_others.contains(&&*it.resource));
        requests.retain(|request| !request.uri.contains("labelSelector=rbac-test%3Dx"));
        ensure!(requests.is_empty(), "{requests:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn with_copies_to_namespaces_the_writer_uses_every_rule_and_lacks_none() -> Result<()> {
    let mut options = sync::copying(Value::Null);
    options.proxied = true;
    options.args = vec!["--leader-elect".to_owned()];
    sync::play(options, async |scene| {
        sync::copy_both_kinds(scene).await?;
        uses_every_rule_since(scene, scene.began(), &["Role", "ClusterRole"]).await
    })
    .await
}

#[tokio::test]
async fn with_bound_fields_the_writer_uses_every_rule_and_lacks_none() -> Result<()> {
    let mut options = bind::binding_fields(Value::Null);
    options.args = vec!["--leader-elect".to_owned()];
    Scene::play(options, async |scene| {
        bind::fields_of_each_kind(scene).await?;
        uses_every_rule_since(scene, scene.began(), &["Role", "Role"]).await
    })
    .await
}

#[tokio::test]
async fn beside_a_writer_the_operator_uses_every_rule_and_lacks_none() -> Result<()> {
    let options = in_one_namespace(bind::binding_fields(Value::Null).values);
    Scene::play(options, async |scene| {
        bind::with_definitions(&scene.control_plane).await?;
        work(scene, &[CONFIG_MAP, SECRET]).await?;
        let harbor = bind::harbor(json!({}));
        wait_for("the webhook to look for bindings", PATIENCE, async || {
            let tried = scene.try_create(&scene.namespace, &harbor).await;
            let requests = scene.requests(scene.began()).await?;
            let looked = requests.iter().any(|it| it.resource == "fieldbindings");
            done_if(looked, format!("{tried:?}"))
        })
        .await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

#[tokio::test]
async fn with_pins_the_operator_uses_every_rule_and_lacks_none() -> Result<()> {
    works_with(pinning("restart"), leave_a_copy_behind).await
}

#[tokio::test]
async fn with_secret_provider_classes_the_operator_uses_every_rule_and_lacks_none() -> Result<()> {
    secret_provider_classes::play(in_one_namespace(Value::Null), async |scene| {
        work(scene, &[CONFIG_MAP, SECRET]).await?;
        secret_provider_classes::rotate_one(scene).await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

#[tokio::test]
async fn with_protection_the_operator_uses_every_rule_and_lacks_none() -> Result<()> {
    let mut options = in_one_namespace(json!({"protect": {"enabled": true, "templates": true}}));
    options.args.push("--copy-grace-period=1s".to_owned());
    works_with(options, async |scene| {
        protect::in_use::what_templates_name_stays(scene).await?;
        keep::keep_and_let_go(scene).await
    })
    .await
}

#[tokio::test]
async fn with_stateful_sets_that_go_on_by_themselves_the_operator_uses_every_rule_and_lacks_none()
-> Result<()> {
    let mut values = stuck::unsticking();
    // Releases are not watched then.
    merge(&mut values, &json!({"releaseWait": "0s"}));
    works_with(in_one_namespace(values), stuck::goes_on).await
}

#[tokio::test]
async fn with_pods_that_reload_the_operator_uses_every_rule_and_lacks_none() -> Result<()> {
    let options = in_one_namespace(http_reload::values());
    works_with(options, http_reload::reload_a_change).await
}

#[tokio::test]
async fn if_secrets_are_ignored_the_operator_has_rights_only_to_its_own_secrets() -> Result<()> {
    let options = in_one_namespace(json!({"ignoreSecrets": true}));
    Scene::play(options, async |scene| {
        work(scene, &[CONFIG_MAP]).await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

#[tokio::test]
async fn the_operator_creates_the_jobs_of_cron_jobs_that_it_runs() -> Result<()> {
    let values = json!({"customResources": ["cronjobs"], "runCronJobsOnChange": true});
    Scene::play(in_one_namespace(values), async |scene| {
        let pod = json!({
            "containers": [{"name": "main", "image": "app"}],
            "restartPolicy": "Never",
            // The first run is still active when it is replaced.
            "schedulerName": "nobody",
        });
        let job = json!({"spec": {"template": {"spec": pod}}});
        let nightly = json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly", "annotations": {CONFIG_MAPS: "app"}},
            "spec": {
                "schedule": "0 0 1 1 *",
                "concurrencyPolicy": "Replace",
                "jobTemplate": job,
            },
        });
        scene.apply(&[config_map("app", "1"), nightly]).await?;
        work(scene, &[CONFIG_MAP, SECRET]).await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

#[tokio::test]
async fn an_operator_that_only_observes_has_no_right_to_write_to_workloads() -> Result<()> {
    Scene::play(pinning("observe"), async |scene| {
        leave_a_copy_behind(scene).await?;
        let web = Workload::deployment("web")
            .lists("app")
            .lists_secrets("app");
        scene.apply(&both_kinds("app", "1")).await?;
        let before = scene.create(&web).await?;
        // The operator repeats a message only after it has sent another one.
        for (changed, name) in [
            (config_map("app", "2"), "ConfigMap app"),
            (secret("app", "2"), "Secret app"),
            (config_map("app", "3"), "ConfigMap app"),
        ] {
            scene.apply(&[changed]).await?;
            scene
                .event_that(&web, name, |_, note| note.contains(name))
                .await?;
        }
        uses_every_rule(scene, &["Role", "Role"]).await?;
        ensure!(scene.snapshot(&web).await? == before, "it wrote");
        Ok(())
    })
    .await
}

/// The certificate, and the Secret with the keys of the hash, are created from outside.
#[tokio::test]
async fn without_a_loop_and_without_own_secrets_the_operator_may_only_read_and_copy_config()
-> Result<()> {
    let mut options = pinning("restart");
    options.failure_policy = "Ignore";
    options.released = true;
    Scene::play(options.clone(), async |scene| {
        scene.operator.stop().await;
        let began = scene.mark().await?;
        let mut values = options.values(&scene.namespace);
        let more = json!({"reconcile": "none", "hashKeysSecret": scene.installation.hash_keys()});
        merge(&mut values, &more);
        let mut installation = scene.installation.clone();
        installation.upgrade(&values).await?;
        let directory = scene.directory().join("off");
        let operator = scene.start_replica(&installation, &directory, &[]).await?;
        scene.apply(&both_kinds("app", "1")).await?;
        let web = Workload::deployment("web")
            .lists("app")
            .lists_secrets("app")
            .annotated(PIN, "configmaps");
        let before = scene.create(&web).await?;
        ensure!(before.key.is_some(), "the webhook was not called");
        // Its revisions are of the other kind.
        scene
            .create(&Workload::new(Kind::StatefulSet, "data").lists("app"))
            .await?;
        uses_every_rule_since(scene, began, &["Role", "Role"]).await?;
        operator.stop().await;
        Ok(())
    })
    .await
}

/// Returns options with pins, in one namespace.
fn pinning(reconcile: &str) -> Options {
    let mut options = in_one_namespace(json!({"reconcile": reconcile, "pin": {"enabled": true}}));
    options.args.push("--copy-grace-period=1s".to_owned());
    options
}

/// Has the webhook make a copy that nobody uses soon afterwards.
async fn leave_a_copy_behind(scene: &Scene) -> Result<()> {
    let gone = Workload::deployment("gone").lists("gone");
    let gone = gone.annotated(PIN, "configmaps");
    scene.apply(&[config_map("gone", "1")]).await?;
    scene.create(&gone).await?;
    scene.delete(&gone.reference()).await?;
    Ok(())
}

/// Returns options for one namespace, with a certificate of cert-manager.
fn in_one_namespace(mut values: Value) -> Options {
    let of_cert_manager = json!({"webhook": {"certManager": {"enabled": true}}});
    merge(&mut values, &of_cert_manager);
    options(values)
}

fn options(values: Value) -> Options {
    Options {
        values,
        proxied: true,
        args: vec!["--leader-elect".to_owned()],
        ..Options::default()
    }
}

/// Makes the operator in one namespace do everything that it does to workloads, and `more`. Asserts that it has used every
/// rule.
async fn works_with(options: Options, more: impl AsyncFnOnce(&Scene) -> Result<()>) -> Result<()> {
    Scene::play(options, async |scene| {
        work(scene, &[CONFIG_MAP, SECRET]).await?;
        more(scene).await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

/// Makes the operator do everything that it does to workloads: set hashes, restart pods, lose against
/// somebody else's write, and report, including a repeated Event.
async fn work(scene: &Scene, config: &[Config]) -> Result<()> {
    let objects = config.iter().map(|(_, object)| object("app", "1"));
    scene.apply(&objects.collect::<Vec<_>>()).await?;
    let workloads = Kind::ALL.map(|kind| {
        let name = format!("web-{}", kind.as_str().to_lowercase());
        let lists = |workload, (list, _): &Config| list(workload, "app");
        config
            .iter()
            .fold(Workload::new(kind, &name).without_pods(), lists)
    });
    for workload in &workloads {
        scene.create(workload).await?;
    }
    let proxy = scene.proxy.as_ref().context("the scene has a proxy")?;
    for round in 2..4 {
        let conflicts: Vec<_> = workloads
            .iter()
            .map(|workload| {
                let path = format!("/{}", workload.name);
                let write = Requests::containing(path).method(Method::PATCH);
                let conflict = Fault::Answer(Answer::error(StatusCode::CONFLICT));
                proxy.add(Rule::new(write, conflict).times(1))
            })
            .collect();
        // One change, which makes one message.
        let (_, object) = config[0];
        scene.apply(&[object("app", &round.to_string())]).await?;
        for (workload, conflict) in workloads.iter().zip(conflicts) {
            conflict.applied(1, PATIENCE).await?;
            scene.right(workload).await?;
            scene.event(workload, "ConfigChanged").await?;
        }
    }
    Ok(())
}

async fn break_own_certificate(scene: &Scene) -> Result<()> {
    let namespace = &scene.installation.namespace;
    let secret = format!("secret/{namespace}-tls");
    let patch = json!({"data": {"tls.crt": "cnViYmlzaA=="}});
    scene.merge_in(namespace, &secret, &patch).await
}

/// Asserts that the operator has used exactly what the chart grants since its start, and that nothing was
/// refused. It watches as much as the documents say.
async fn uses_every_rule(scene: &Scene, kinds: &[&str]) -> Result<()> {
    uses_every_rule_since(scene, scene.began(), kinds).await?;
    watches::are_as_documented(scene).await
}

/// Asserts the same of the operator or the writer, since `began`, without their watches.
async fn uses_every_rule_since(scene: &Scene, began: Mark, kinds: &[&str]) -> Result<()> {
    let granted = granted(scene).await?;
    let mut found: Vec<_> = granted.iter().map(|(kind, _)| &**kind).collect();
    found.sort_unstable();
    let mut expected = kinds.to_vec();
    expected.sort_unstable();
    ensure!(found == expected, "{found:?}");
    let granted: BTreeSet<Permission> = granted
        .into_iter()
        .flat_map(|(_, permissions)| permissions)
        .collect();
    let user = scene.installation.username();
    wait_for("every rule to be used", 2 * PATIENCE, async || {
        let mut requests = scene.requests_naming(&user, began).await?;
        requests.retain(|request| request.user == user);
        let refused: Vec<_> = requests
            .iter()
            .filter(|request| request.code == Some(403))
            .collect();
        ensure!(refused.is_empty(), "a rule is missing: {refused:?}");
        let used: BTreeSet<Permission> = requests.iter().flat_map(permissions).collect();
        let unused: Vec<_> = granted.difference(&used).collect();
        done_if(unused.is_empty(), format!("unused: {unused:?}"))
    })
    .await
}

/// Returns the permissions for a request: by a rule for all names, or by one for its own name.
fn permissions(request: &AuditEvent) -> [Permission; 2] {
    let group = match request.uri.strip_prefix("/apis/") {
        Some(rest) => rest.split('/').next().unwrap_or_default(),
        None => "",
    };
    let resource = match &*request.subresource {
        "" => request.resource.clone(),
        part => format!("{}/{part}", request.resource),
    };
    let for_name = |name: Option<String>| {
        (
            group.to_owned(),
            resource.clone(),
            name,
            request.verb.clone(),
        )
    };
    [for_name(None), for_name(Some(request.name.clone()))]
}

/// Returns what each role of the process permits that the test is about.
async fn granted(scene: &Scene) -> Result<Vec<(String, Vec<Permission>)>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rule {
        api_groups: Vec<String>,
        resources: Vec<String>,
        #[serde(default)]
        resource_names: Vec<String>,
        verbs: Vec<String>,
    }
    let process = format!("--selector={}", scene.installation.selector());
    let get = [
        "get",
        "roles,clusterroles",
        "--all-namespaces",
        "--output=json",
        &process,
    ];
    let list: Value = serde_json::from_str(&scene.tool().run(&get).await?)?;
    let roles = list["items"].as_array().context("a list")?;
    let mut granted = Vec::new();
    for role in roles {
        let rules: Vec<Rule> = serde_json::from_value(role["rules"].clone())?;
        let mut permissions = Vec::new();
        for rule in &rules {
            let names: Vec<_> = match &rule.resource_names[..] {
                [] => vec![None],
                names => names.iter().cloned().map(Some).collect(),
            };
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    for name in &names {
                        permissions.extend(rule.verbs.iter().map(|verb| {
                            (group.clone(), resource.clone(), name.clone(), verb.clone())
                        }));
                    }
                }
            }
        }
        let kind = role["kind"].as_str().context("a kind")?;
        granted.push((kind.to_owned(), permissions));
    }
    Ok(granted)
}
