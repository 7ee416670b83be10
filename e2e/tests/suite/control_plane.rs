//! Tests of what the other tests take for granted about their control plane.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, api::PostParams};
use pod_reloader_e2e::{
    Attempt, Component, ControlPlane, ControlPlaneOptions, OLDEST_KUBERNETES, PATIENCE, wait_for,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::proxy::the_client_sees_the_apiserver_go_and_come_back;

#[tokio::test]
async fn a_deployment_rolls_out_until_its_pods_are_ready() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    let namespace = create_namespace(&control_plane).await?;
    let namespaced = ["--namespace", &*namespace];
    let kubectl = control_plane.kubectl();

    let create = ["create", "deployment", "web", "--image=web", "--replicas=3"];
    kubectl.run(&[&namespaced[..], &create].concat()).await?;
    let rolled_out = ["rollout", "status", "deployment", "web", "--timeout=5m"];
    kubectl
        .run(&[&namespaced[..], &rolled_out].concat())
        .await?;

    let ready = "--output=jsonpath={.status.readyReplicas}";
    let get = ["get", "deployment", "web", ready];
    let ready = kubectl.run(&[&namespaced[..], &get].concat()).await?;
    assert_eq!(ready, "3");
    Ok(())
}

#[tokio::test]
async fn the_audit_log_holds_the_bodies_of_service_accounts_and_of_nobody_else() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    let namespace = create_namespace(&control_plane).await?;
    let account_name = format!("system:serviceaccount:{namespace}:default");
    let subject = format!("--serviceaccount={namespace}:default");
    let binding = [
        "--namespace",
        &*namespace,
        "create",
        "rolebinding",
        "edit",
        "--clusterrole=edit",
        &*subject,
    ];
    control_plane.kubectl().run(&binding).await?;
    let token = wait_for("the default service account", PATIENCE, async || {
        let token = control_plane.service_account_token(&namespace, "default");
        Ok(token.await.into())
    })
    .await?;
    let client = control_plane.kubeconfig_for(token).client().await?;
    let account: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let admin: Api<ConfigMap> = Api::namespaced(control_plane.admin_client().await?, &namespace);
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
        .naming(&namespace, mark)
        .await?
        .into_iter()
        .filter(|event| {
            event.namespace == namespace
                && event.verb == "create"
                && event.resource == "configmaps"
                && event.code == Some(201)
        })
        // Leaves out the requests of controllers and of the apiserver itself.
        .filter(|event| [&*account_name, "admin"].contains(&&*event.user))
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
            (account_name, Some(json!("of-account"))),
            ("admin".to_owned(), None),
        ]
    );
    Ok(())
}

/// One control plane for all of this: each step ends with one that works.
#[tokio::test]
async fn a_component_that_was_paused_or_restarted_comes_back_where_it_was() -> Result<()> {
    let control_plane = Arc::new(ControlPlane::start(ControlPlaneOptions::default()).await?);
    let client = control_plane.admin_client().await?;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    config_maps
        .create(&PostParams::default(), &config_map("kept")?)
        .await?;
    let apiserver = control_plane.process(Component::Apiserver)?;

    apiserver.pause()?;
    let paused = timeout(Duration::from_millis(500), client.apiserver_version()).await;
    apiserver.resume()?;
    assert!(paused.is_err(), "{paused:?}");
    wait_for("an answer", PATIENCE, async || {
        Ok(Attempt::from(client.apiserver_version().await))
    })
    .await?;

    for component in Component::PLAYED {
        control_plane.restart(component).await?;
    }
    the_client_sees_the_apiserver_go_and_come_back(&control_plane).await?;

    config_maps.get("kept").await?;
    let control_plane = Arc::into_inner(control_plane).context("somebody still uses it")?;
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

/// Asserts that the oldest control plane has only what its version has. A test of the manifests starts one.
pub(crate) async fn is_of_the_oldest_version(control_plane: &ControlPlane) -> Result<()> {
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

/// Creates a namespace that no other test uses.
async fn create_namespace(control_plane: &ControlPlane) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(control_plane.admin_client().await?);
    let metadata = json!({"metadata": {"generateName": "control-plane-"}});
    let namespace = serde_json::from_value(metadata)?;
    let created = namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    created.metadata.name.context("the apiserver gives a name")
}

fn config_map(name: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name }, "data": { "key": name } }),
    )?)
}
