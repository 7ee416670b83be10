//! The operator needs every rule of the chart's RBAC, and no other.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use pod_reloader_e2e::{
    Attempt, AuditEvent, Options, PATIENCE, Scene,
    proxy::{Answer, Fault, Requests, Rule},
    wait_for,
    workload::{Kind, Workload, config_map, secret},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// API group, resource, the name that the rule is bound to, verb.
type Permission = (String, String, Option<String>, String);

#[tokio::test]
async fn with_a_ca_of_its_own_in_all_namespaces_it_uses_every_rule_and_lacks_none() -> Result<()> {
    let values = json!({"webhook": {"namespaceSelector": {"matchLabels": {"rbac-test": "x"}}}});
    let options = Options {
        namespace_labels: vec!["rbac-test=x".to_owned()],
        ..options(true, values)
    };
    Scene::play(options, async |scene| {
        work(scene).await?;
        break_own_certificate(scene).await?;
        uses_every_rule(scene, &["Role", "ClusterRole", "ClusterRole"]).await
    })
    .await
}

#[tokio::test]
async fn with_cert_manager_in_one_namespace_it_has_no_cluster_role_at_all() -> Result<()> {
    let values = json!({"webhook": {"certManager": {"enabled": true}}});
    Scene::play(options(false, values), async |scene| {
        work(scene).await?;
        uses_every_rule(scene, &["Role", "Role"]).await
    })
    .await
}

fn options(everywhere: bool, values: Value) -> Options {
    Options {
        everywhere,
        values,
        proxied: true,
        args: vec!["--leader-elect".to_owned()],
        ..Options::default()
    }
}

/// Everything that the operator does to workloads: it stamps, rolls, is overtaken by somebody else's
/// write, and tells of it, twice of the same.
async fn work(scene: &Scene) -> Result<()> {
    scene
        .apply(&[config_map("app", "1"), secret("app", "1")])
        .await?;
    let workloads = Kind::ALL.map(|kind| {
        Workload::new(kind, &format!("web-{}", kind.as_str().to_lowercase()))
            .lists("app")
            .lists_secrets("app")
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
        // One change, of which there is one thing to say.
        scene
            .apply(&[config_map("app", &round.to_string())])
            .await?;
        for (workload, conflict) in workloads.iter().zip(conflicts) {
            conflict.applied(1, PATIENCE).await?;
            scene.right(workload).await?;
            scene.event(workload, "ConfigChanged").await?;
        }
    }
    Ok(())
}

async fn break_own_certificate(scene: &Scene) -> Result<()> {
    let secret = format!("{}-tls", scene.installation.namespace);
    let patch = r#"{"data": {"tls.crt": "cnViYmlzaA=="}}"#;
    let patch = ["patch", "secret", &secret, "--patch", patch];
    scene.operators_kubectl(&patch).await.map(|_| ())
}

/// Claims that what the chart grants is what the operator has done since its start, and that nothing
/// was refused.
async fn uses_every_rule(scene: &Scene, kinds: &[&str]) -> Result<()> {
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
        let mut requests = scene.all_requests(scene.began()).await?;
        requests.retain(|request| request.user == user);
        let refused: Vec<_> = requests
            .iter()
            .filter(|request| request.code == Some(403))
            .collect();
        ensure!(refused.is_empty(), "a rule is missing: {refused:?}");
        let used: BTreeSet<Permission> = requests.iter().flat_map(permissions).collect();
        let unused: Vec<_> = granted.difference(&used).collect();
        Ok(if unused.is_empty() {
            Attempt::Done(())
        } else {
            Attempt::NotYet(format!("unused: {unused:?}"))
        })
    })
    .await
}

/// What a request needs: by a rule for all names, or for its own.
fn permissions(request: &AuditEvent) -> [Permission; 2] {
    let group = match request.uri.strip_prefix("/apis/") {
        Some(rest) => rest.split('/').next().unwrap_or_default(),
        None => "",
    };
    let for_name = |name: Option<String>| {
        (
            group.to_owned(),
            request.resource.clone(),
            name,
            request.verb.clone(),
        )
    };
    [for_name(None), for_name(Some(request.name.clone()))]
}

/// What each role of the release permits.
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
    let release = format!(
        "--selector=app.kubernetes.io/instance={}",
        scene.installation.namespace
    );
    let get = [
        "get",
        "roles,clusterroles",
        "--all-namespaces",
        "--output=json",
        &release,
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
