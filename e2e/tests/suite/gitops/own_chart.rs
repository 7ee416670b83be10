//! Syncs and upgrades of our own chart leave the CA in its webhook configuration alone.

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, api::DeleteParams};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{
    Attempt, Options, PATIENCE, Scene, chart, has_mutating_policies, merge, wait_for,
};
use serde_json::{Value, json};

use super::{Sync, no_drift};

#[tokio::test]
async fn syncs_of_our_chart_leave_the_ca_of_cert_manager_alone() -> Result<()> {
    syncs_leave_the_ca_alone(CertificateOf::CertManager).await
}

#[tokio::test]
async fn syncs_of_our_chart_leave_the_operators_own_ca_alone() -> Result<()> {
    syncs_leave_the_ca_alone(CertificateOf::Operator).await
}

#[tokio::test]
async fn upgrades_of_our_chart_leave_the_ca_alone() -> Result<()> {
    for certificate in [CertificateOf::CertManager, CertificateOf::Operator] {
        let options = Options {
            released: true,
            ..certificate.options()
        };
        let values = options.clone();
        Scene::play(options, async |scene| {
            let ca = ca_bundle(scene).await?;
            let mut installation = scene.installation.clone();
            installation
                .upgrade(&values.values(&scene.namespace))
                .await?;
            assert_eq!(ca_bundle(scene).await?, ca);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// By server-side apply, Helm can remove no webhook whose CA somebody else has written: what is left of it would be invalid.
#[tokio::test]
async fn upgrades_of_our_chart_switch_webhooks_on_and_off() -> Result<()> {
    let options = Options {
        released: true,
        ..CertificateOf::CertManager.options()
    };
    let off = options.clone();
    Scene::play(options, async |scene| {
        let off = off.values(&scene.namespace);
        let mut on = off.clone();
        merge(
            &mut on,
            &json!({
                "pin": {"enabled": true},
                "policy": {"enabled": false},
                "protect": {"enabled": true},
            }),
        );
        ca_bundle(scene).await?;
        let ca = scene.ca_bundle().await?;
        let mut installation = scene.installation.clone();
        for (values, called) in [(&on, 4), (&off, 1), (&on, 4)] {
            installation.upgrade(values).await?;
            let in_all = wait_for("the CA in all webhooks", PATIENCE, async || {
                Ok(scene.ca_bundle().await.into())
            });
            assert_eq!(in_all.await?, ca);
            let configuration = configurations(scene)
                .get(&scene.installation.namespace)
                .await?;
            let webhooks = configuration.webhooks.into_iter().flatten();
            assert_eq!(webhooks.filter(|it| it.rules.is_some()).count(), called);
        }
        Ok(())
    })
    .await
}

async fn syncs_leave_the_ca_alone(certificate: CertificateOf) -> Result<()> {
    let options = certificate.options();
    let values = options.clone();
    Scene::play(options, async |scene| {
        let rendered = rendered(scene, &values).await?;
        // The first sync creates it, without a CA.
        let name = &scene.installation.namespace;
        configurations(scene)
            .delete(name, &DeleteParams::default())
            .await?;
        Sync::Flux.write(scene, None, &rendered).await?;
        let ca = ca_bundle(scene).await?;
        // The second sync on the side of the client knows what the first one has applied.
        for (way, rounds) in [(Sync::Flux, 1), (Sync::ArgoClientSide, 2)] {
            for _ in 0..rounds {
                way.write(scene, None, &rendered).await?;
                assert_eq!(ca_bundle(scene).await?, ca);
            }
            no_drift(scene, way, None, &rendered).await?;
        }
        // The webhook is called, too.
        let web = Workload::deployment("web").lists("app");
        let before = scene.create(&web).await?;
        scene.apply(&[config_map("app", "1")]).await?;
        scene.rolls_once(&web, &before).await.map(|_| ())
    })
    .await
}

/// The issuer of the webhook's certificate, which also writes the `caBundle`.
#[derive(Clone, Copy)]
enum CertificateOf {
    CertManager,
    Operator,
}

impl CertificateOf {
    fn options(self) -> Options {
        Options::with_values(match self {
            Self::CertManager => json!({"webhook": {"certManager": {"enabled": true}}}),
            Self::Operator => Value::Null,
        })
    }
}

/// Renders our chart like Argo CD's repo server.
async fn rendered(scene: &Scene, options: &Options) -> Result<Vec<Value>> {
    let installation = &scene.installation;
    let chart = chart().display().to_string();
    let mut template = vec![
        "template",
        &installation.namespace,
        &chart,
        "--namespace",
        &installation.namespace,
        "--skip-tests",
        "--values=-",
    ];
    if has_mutating_policies().await? {
        template.push("--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy");
    }
    let values = installation.values(&options.values(&scene.namespace));
    let rendered = installation
        .helm
        .run_with_input(&template, &values.to_string())
        .await?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered)?;
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Returns the CA in the webhook configuration, once there is one, with the generation. The generation shows
/// if somebody wiped the CA and somebody else wrote it again.
async fn ca_bundle(scene: &Scene) -> Result<(String, Option<i64>)> {
    let configurations = configurations(scene);
    wait_for("a caBundle", PATIENCE, async || {
        let configuration = configurations.get(&scene.installation.namespace).await?;
        let configuration = serde_json::to_value(configuration)?;
        let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
        let generation = configuration["metadata"]["generation"].as_i64();
        Ok(match bundle.as_str() {
            Some(bundle) => Attempt::Done((bundle.to_owned(), generation)),
            None => Attempt::NotYet("there is none".to_owned()),
        })
    })
    .await
}

fn configurations(scene: &Scene) -> Api<MutatingWebhookConfiguration> {
    Api::all(scene.client.clone())
}
