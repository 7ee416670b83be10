//! Tests of what the other tests take for granted about their control plane.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use pod_reloader_e2e::{
    Attempt, Component, ControlPlane, ControlPlaneOptions, OLDEST_KUBERNETES, PATIENCE, wait_for,
};
use serde_json::{Value, json};
use tokio::time::timeout;

#[tokio::test]
async fn a_deployment_rolls_out_until_its_pods_are_ready() -> Result<()> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let kubectl = control_plane.kubectl();

    kubectl
        .run(&["create", "deployment", "web", "--image=web", "--replicas=3"])
        .await?;
    kubectl
        .run(&["rollout", "status", "deployment", "web", "--timeout=60s"])
        .await?;

    let ready = kubectl
        .run(&[
            "get",
            "deployment",
            "web",
            "--output=jsonpath={.status.readyReplicas}",
        ])
        .await?;
    assert_eq!(ready, "3");
    control_plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_audit_log_holds_the_bodies_of_service_accounts_and_of_nobody_else() -> Result<()> {
    const ACCOUNT: &str = "system:serviceaccount:default:default";
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let kubectl = control_plane.kubectl();
    kubectl
        .run(&[
            "create",
            "rolebinding",
            "edit",
            "--clusterrole=edit",
            "--serviceaccount=default:default",
        ])
        .await?;
    let token = control_plane
        .service_account_token("default", "default")
        .await?;
    let account: Api<ConfigMap> =
        Api::default_namespaced(control_plane.kubeconfig_for(token).client().await?);
    let admin: Api<ConfigMap> = Api::default_namespaced(control_plane.admin_client().await?);
    let audit_log = control_plane.audit_log().await?;
    admin
        .create(&PostParams::default(), &config_map("before")?)
        .await?;
    let mark = audit_log.mark().await?;

    // Authorisation follows a new binding with a delay.
    wait_for("the rights of the account", PATIENCE, async || {
        Ok(account
            .create(&PostParams::default(), &config_map("of-account")?)
            .await
            .into())
    })
    .await?;
    admin
        .create(&PostParams::default(), &config_map("of-admin")?)
        .await?;

    let created: Vec<_> = audit_log
        .since(mark)
        .await?
        .into_iter()
        .filter(|event| {
            event.verb == "create" && event.resource == "configmaps" && event.code == Some(201)
        })
        // Leaves out the requests of controllers and of the apiserver itself.
        .filter(|event| [ACCOUNT, "admin"].contains(&&*event.user))
        .map(|event| {
            (
                event.user,
                event.request_object.map(|body| body["data"]["key"].clone()),
            )
        })
        .collect();
    assert_eq!(
        created,
        [
            (ACCOUNT.to_owned(), Some(json!("of-account"))),
            ("admin".to_owned(), None),
        ]
    );
    control_plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_restarted_component_comes_back_where_it_was() -> Result<()> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(control_plane.admin_client().await?);
    config_maps
        .create(&PostParams::default(), &config_map("kept")?)
        .await?;

    for component in Component::PLAYED {
        control_plane.restart(component).await?;
    }
    control_plane.process(Component::Apiserver)?.kill().await;
    control_plane.process(Component::Apiserver)?.start_again()?;
    control_plane.ready(Component::Apiserver).await?;

    config_maps.get("kept").await?;
    control_plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_paused_apiserver_answers_when_it_goes_on() -> Result<()> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let client = control_plane.admin_client().await?;
    let apiserver = control_plane.process(Component::Apiserver)?;

    apiserver.pause()?;
    let paused = timeout(Duration::from_millis(500), client.apiserver_version()).await;
    apiserver.resume()?;

    assert!(paused.is_err(), "{paused:?}");
    wait_for("an answer", PATIENCE, async || {
        Ok(Attempt::from(client.apiserver_version().await))
    })
    .await?;
    control_plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_component_that_does_not_start_shows_the_end_of_its_log() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let options = ControlPlaneOptions {
        apiserver_args: vec!["--no-such-flag".to_owned()],
        parent: Some(parent.path().to_owned()),
        ..ControlPlaneOptions::default()
    };

    let error = ControlPlane::start(options)
        .await
        .expect_err("the apiserver cannot start");

    let error = format!("{error:#}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_oldest_control_plane_has_only_what_its_version_has() -> Result<()> {
    let options = ControlPlaneOptions {
        kubernetes: Some(OLDEST_KUBERNETES.to_owned()),
        ..ControlPlaneOptions::default()
    };
    let control_plane = ControlPlane::start(options).await?;
    let kubectl = control_plane.kubectl();

    let version: Value = serde_json::from_str(&kubectl.run(&["get", "--raw=/version"]).await?)?;
    let admission = kubectl
        .run(&["get", "--raw=/apis/admissionregistration.k8s.io/v1"])
        .await?;

    let minor = ["major", "minor"].map(|part| version[part].as_str().unwrap_or_default());
    assert_eq!(minor.join("."), OLDEST_KUBERNETES);
    assert!(
        admission.contains("mutatingwebhookconfigurations"),
        "{admission}"
    );
    assert!(
        !admission.contains("mutatingadmissionpolicies"),
        "{admission}"
    );
    control_plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn both_helms_are_of_their_major_version() -> Result<()> {
    let control_plane = ControlPlane::connect()?;

    for (helm, major) in [
        (control_plane.helm3(), "v3."),
        (control_plane.helm(), "v4."),
    ] {
        let version = helm.run(&["version", "--template={{.Version}}"]).await?;

        assert!(version.starts_with(major), "{version}");
    }
    Ok(())
}

fn config_map(name: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name }, "data": { "key": name } }),
    )?)
}
