//! The life of a release of the chart, from beginning to end, as a user sees it.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    Installation, Options, Scene, Snapshot, has_mutating_policies, merge, play_test_pod,
    workload::{Workload, config_map},
};
use serde_json::json;

#[tokio::test]
async fn in_all_namespaces_with_a_ca_of_its_own() -> Result<()> {
    // All namespaces without this label belong to other tests.
    const LABEL: &str = "lifecycle";
    live(Options {
        everywhere: true,
        values: json!({"watch": {"namespaceSelector": {"matchLabels": {LABEL: "x"}}}}),
        namespace_labels: vec![format!("{LABEL}=x")],
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn in_one_namespace_with_cert_manager_and_all_that_is_off_by_default() -> Result<()> {
    let values = json!({
        "webhook": {"certManager": {"enabled": true}},
        "fence": {"enabled": true},
        "networkPolicy": {"enabled": true},
    });
    live(Options::with_values(values)).await
}

/// Installs, upgrades, tests, rolls back and uninstalls a release. Pods are restarted only when the
/// workload's config changes.
async fn live(options: Options) -> Result<()> {
    let options = Options {
        released: true,
        ..options
    };
    Scene::play(options.clone(), async |scene| {
        let (web, created) = scene.create_listing(Workload::deployment("web")).await?;
        let before = rolls(scene, &web, &created, "2").await?;

        let mut values = options.values(&scene.namespace);
        let upgrade = json!({
            // Same as in a cluster; kwok plays these pods.
            "replicaCount": 2,
            "settlePeriod": "400ms",
            "tests": {"namespace": scene.namespace},
        });
        merge(&mut values, &upgrade);
        let mut installation = scene.installation.clone();
        installation.upgrade(&values).await?;
        ensure!(has_argument(scene, "--settle-period=400ms").await?);
        let (tested, ()) = tokio::try_join!(helm(scene, &["test"], &["--timeout=2m"]), async {
            let name = format!("{}-test", scene.installation.namespace);
            let of = format!("--field-selector=metadata.name={name}");
            play_test_pod(&scene.control_plane, scene.directory(), &of).await
        })?;
        ensure!(tested.contains("Succeeded"), "{tested}");
        scene.operator.stop().await;
        let operator = restarted(scene, &installation, "upgraded").await?;
        scene.rolls_not(&web, &before).await?;
        let before = rolls(scene, &web, &before, "3").await?;

        helm(scene, &["rollback"], &["1", "--wait"]).await?;
        ensure!(has_argument(scene, "--settle-period=300ms").await?);
        operator.stop().await;
        let operator = restarted(scene, &scene.installation, "rolled-back").await?;
        scene.rolls_not(&web, &before).await?;
        let before = rolls(scene, &web, &before, "4").await?;

        operator.stop().await;
        scene.installation.uninstall().await?;
        let left = everything_of_the_release(scene).await?;
        ensure!(left.is_empty(), "{left}");
        let keys = scene.installation.hash_keys();
        scene
            .operators_kubectl(&["get", "secret", &keys])
            .await
            .context("the keys must stay")?;
        ensure!(
            scene.snapshot(&web).await? == before,
            "uninstalling it moved a workload"
        );
        Ok(())
    })
    .await
}

async fn rolls(scene: &Scene, web: &Workload, before: &Snapshot, value: &str) -> Result<Snapshot> {
    scene.apply(&[config_map("app", value)]).await?;
    scene.rolls_once(web, before).await
}

async fn restarted(
    scene: &Scene,
    installation: &Installation,
    name: &str,
) -> Result<pod_reloader_e2e::Operator> {
    scene
        .start_replica(installation, &scene.directory().join(name), &[])
        .await
}

/// Runs helm on the release of the scene.
async fn helm(scene: &Scene, command: &[&str], args: &[&str]) -> Result<String> {
    let installation = &scene.installation;
    let release = [
        &*installation.namespace,
        "--namespace",
        &installation.namespace,
    ];
    installation
        .helm
        .run(&[command, &release, args].concat())
        .await
}

async fn has_argument(scene: &Scene, argument: &str) -> Result<bool> {
    let get = [
        "get",
        "deployment",
        &scene.installation.namespace,
        "--output=yaml",
    ];
    Ok(scene.operators_kubectl(&get).await?.contains(argument))
}

/// Returns the names of all objects that the chart has created and that still exist.
async fn everything_of_the_release(scene: &Scene) -> Result<String> {
    const KINDS: &str = "serviceaccounts,services,deployments,poddisruptionbudgets,networkpolicies,\
        roles,rolebindings,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
        validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations,issuers,\
        certificates,pods,configmaps";
    const MUTATING: &str = "mutatingadmissionpolicies,mutatingadmissionpolicybindings";
    let kinds = match has_mutating_policies().await? {
        true => format!("{KINDS},{MUTATING}"),
        false => KINDS.to_owned(),
    };
    let release = format!(
        "--selector=app.kubernetes.io/instance={}",
        scene.installation.namespace
    );
    scene
        .tool()
        .run(&["get", &kinds, "--all-namespaces", "--output=name", &release])
        .await
}
