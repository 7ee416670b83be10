//! Certificates that change under load: no write fails, and none bypasses the webhook.

use std::{
    cell::Cell,
    fs,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use futures::future::{try_join_all, try_join3};
use k8s_openapi::{
    ByteString,
    api::{apps::v1::Deployment, core::v1::Secret, rbac::v1::ClusterRole},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use pod_reloader_e2e::load::all_called;
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{
    Attempt, ControlPlane, ControlPlaneOptions, FailedCalls, Installation, Operator, Options,
    Scene, done_if, full, wait_for,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::TlsConnector;

#[tokio::test]
async fn rotations_by_cert_manager_fail_no_write_and_let_none_past_the_webhook() -> Result<()> {
    // A control plane of its own, because all webhooks of a kind share one metric.
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let fail = Options {
        values: json!({"webhook": {"certManager": {"enabled": true}, "timeoutSeconds": TIMEOUT}}),
        released: true,
        ..Options::default()
    };
    let ignore = Options {
        failure_policy: "Ignore",
        ..fail.clone()
    };
    let mut scene = Scene::set(control_plane, "rotated", fail).await?;
    let played = async {
        writable(&scene).await?;
        rotations(&scene, 3).await?;
        let values = ignore.values(&scene.namespace);
        scene.installation.upgrade(&values).await?;
        // Under the other policy, a call that fails would have failed a write.
        rotations(&scene, if full() { 3 } else { 1 }).await?;
        ensure!(
            FailedCalls::count(&scene.client).await?.passed_by == 0,
            "the webhook was passed by"
        );

        // A write that meets one of the deployment controller is tried again, and counts twice.
        observed(&scene).await?;
        scene.operator.stop().await;
        burst(&scene, 0).await?;
        let passed_by = FailedCalls::count(&scene.client).await?.passed_by;
        ensure!(passed_by == WRITERS, "the metric is another: {passed_by}");
        Ok(())
    }
    .await;
    let log = scene.operator.log()?;
    scene.operator.stop().await;
    scene.control_plane.stop().await;
    played.context(log)
}

#[tokio::test]
async fn half_of_a_pair_is_rejected_and_the_last_good_one_stays_in_use() -> Result<()> {
    Scene::play(released(), async |scene| {
        writable(scene).await?;
        let ca = TestAuthority::new()?;
        let host = scene.installation.host();
        let (first, second) = (ca.issue(&host)?, ca.issue(&host)?);
        let secrets = secrets(scene);
        let given = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": "given", "namespace": scene.installation.namespace},
            "stringData": {"tls.crt": first.chain, "tls.key": first.key},
        });
        scene.create_object(&given).await?;
        let ca_bundle = serde_json::to_value(ByteString(ca.pem.clone().into()))?;
        let options = Options::with_values(
            json!({"webhook": {"existingSecret": "given", "caBundle": ca_bundle}}),
        );
        // An upgrade would be refused: the operator has written the caBundle, so it does not belong to helm.
        scene.installation.uninstall().await?;
        let (operator, installation) = upgraded(scene, &scene.operator, &options).await?;
        let serves = Serves(scene, vec![installation.port]);
        let played = under_load(scene, &serves.1, async {
            serves.leaf(&first.chain).await?;
            // Writes one file after the other, as some users do.
            patch(&secrets, "given", json!({"tls.crt": second.chain})).await?;
            let complaint = "keeping the last good one";
            logs(&operator, complaint).await?;
            serves.leaf(&first.chain).await?;
            called(scene).await?;
            patch(&secrets, "given", json!({"tls.key": second.key})).await?;
            serves.leaf(&second.chain).await?;
            called(scene).await?;
            let said = operator.log()?.matches(complaint).count();
            ensure!(said == 1, "said {said} times");
            Ok(())
        })
        .await;
        let log = operator.log()?;
        operator.stop().await;
        played.context(log)
    })
    .await
}

#[tokio::test]
async fn replicas_renew_the_certificate_of_their_own_ca_without_a_failed_write() -> Result<()> {
    let options = Options {
        args: vec!["--leader-elect".to_owned()],
        values: json!({"webhook": {"timeoutSeconds": TIMEOUT}}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        writable(scene).await?;
        let another = scene.installation.another_replica()?;
        let second = started(scene, &another, "second", &["--leader-elect"]).await?;
        let serves = Serves(scene, vec![scene.installation.port, another.port]);
        let played = under_load(scene, &serves.1, async {
            let secrets = secrets(scene);
            let name = format!("{}-tls", scene.installation.namespace);
            let ours = own(&secrets, &name).await?;
            serves.leaf(&ours.chain).await?;

            let ca = TestAuthority::aged(&ours.ca_key)?;
            let old = ca.aged_leaf(&scene.installation.host())?;
            let entries = json!({"tls.crt": old.chain, "tls.key": old.key});
            patch(&secrets, &name, entries).await?;
            let renewed = changed(&secrets, &name, |own| own.chain != old.chain).await?;
            ensure!(renewed.ca_bundle == ours.ca_bundle, "another CA");
            serves.leaf(&renewed.chain).await?;

            patch(&secrets, &name, json!({"ca.crt": ca.pem})).await?;
            let overlap = changed(&secrets, &name, |own| own.ca_key != ours.ca_key).await?;
            ensure!(overlap.chain == renewed.chain, "its CA is not trusted yet");
            for ca in [&ca.pem, &ours.ca_bundle] {
                let bundle = certificates(&overlap.ca_bundle)?;
                ensure!(bundle.contains(&certificates(ca)?[0]), "a CA is lost");
            }
            let renewed = changed(&secrets, &name, |own| own.chain != overlap.chain).await?;
            ensure!(renewed.ca_bundle == overlap.ca_bundle, "another CA");
            serves.leaf(&renewed.chain).await?;
            ensure!(scene.ca_bundle().await? == overlap.ca_bundle, "not written");

            // For a while the new CA cannot be published: nothing that it has issued may be served.
            let roles: Api<ClusterRole> = Api::all(scene.client.clone());
            let role = &format!("{}-own-ca", scene.installation.namespace);
            let rules = roles.get(role).await?.rules;
            rule(&roles, role, json!([])).await?;
            secrets.delete(&name, &DeleteParams::default()).await?;
            let anew = changed(&secrets, &name, |own| own.chain != renewed.chain).await?;
            ensure!(anew.ca_key != renewed.ca_key, "the key was gone");
            for operator in [&scene.operator, &second] {
                logs(operator, "cannot manage the webhook's CA and certificate").await?;
            }
            serves.leaf(&renewed.chain).await?;
            rule(&roles, role, json!(rules)).await?;
            serves.leaf(&anew.chain).await
        })
        .await;
        let log = second.log()?;
        second.stop().await;
        played.context(log)
    })
    .await
}

#[tokio::test]
async fn a_ca_bundle_that_somebody_wipes_or_changes_is_written_again() -> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        let before = scene.ca_bundle().await?;
        let place = "/webhooks/0/clientConfig/caBundle";
        let foreign = serde_json::to_value(ByteString(TestAuthority::new()?.pem.into()))?;
        for patch in [
            json!([{"op": "remove", "path": place}]),
            json!([{"op": "add", "path": place, "value": ""}]),
            json!([{"op": "add", "path": place, "value": foreign}]),
        ] {
            scene.patch_webhook(&patch).await?;
            wait_for("the CA", PATIENCE, async || {
                Ok(match scene.ca_bundle().await {
                    Ok(bundle) if bundle.contains(&before) => Attempt::Done(()),
                    other => Attempt::NotYet(format!("{other:?}")),
                })
            })
            .await?;
            called(scene).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_certificate_for_another_name_is_a_failure_that_the_policy_decides_about() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let before = scene.ca_bundle().await?;
        let other = [
            "create",
            "service",
            "externalname",
            "other",
            "--external-name=localhost",
        ];
        scene.operators_kubectl(&other).await?;
        let set = |place: &str, value: &str| {
            json!([{"op": "replace", "path": format!("/webhooks/0/{place}"), "value": value}])
        };
        let other = set("clientConfig/service/name", "other");
        scene.patch_webhook(&other).await?;
        wait_for("the certificate to be refused", PATIENCE, async || {
            let refusal = scene.is_webhook_called().await.err();
            let said = refusal.map_or_else(String::new, |error| format!("{error:#}"));
            done_if(said.contains("x509: certificate is valid for"), said)
        })
        .await?;
        // As long as the apiserver refuses it, its CAs are written once more, with an empty line at their end.
        let again = format!("{before}\n");
        wait_for("the CAs to be written again", PATIENCE * 2, async || {
            ensure!(scene.is_webhook_called().await.is_err(), "it is trusted");
            let bundle = scene.ca_bundle().await?;
            done_if(bundle == again, bundle)
        })
        .await?;
        let ignore = set("failurePolicy", "Ignore");
        scene.patch_webhook(&ignore).await?;
        wait_for("a create to be allowed", PATIENCE, async || {
            Ok(scene.is_webhook_called().await.map(drop).into())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn the_chart_moves_to_cert_manager_and_back_while_writes_go_on() -> Result<()> {
    Scene::play(released(), async |scene| {
        writable(scene).await?;
        let own_ca = scene.ca_bundle().await?;
        under_load(scene, &[], async {
            let options = Options {
                values: json!({"webhook": {"certManager": {"enabled": true}}}),
                ..Options::ignoring()
            };
            let (operator, _tls) = upgraded(scene, &scene.operator, &options).await?;
            called(scene).await.with_context(|| log(&operator))?;
            ensure!(scene.ca_bundle().await? != own_ca, "not cert-manager's");

            let (operator, _) = upgraded(scene, &operator, &Options::ignoring()).await?;
            called(scene).await.with_context(|| log(&operator))?;
            // A CA from before, and whatever cainjector has left beside it.
            ensure!(
                scene.ca_bundle().await?.ends_with(&own_ca),
                "another CA than before"
            );
            operator.stop().await;
            Ok(())
        })
        .await
    })
    .await
}

/// Makes this number of rotations: by a renewal, by the loss of the Secret, and by a renewal of the CA as well.
async fn rotations(scene: &Scene, count: usize) -> Result<()> {
    let installation = &scene.installation;
    let leaf = installation.namespace.as_str();
    let ca = format!("{leaf}-ca");
    let secret = format!("{leaf}-tls-managed");
    let secrets = secrets(scene);
    let serves = Serves(scene, vec![installation.port]);
    issued(scene, [leaf, &ca], [&secret, &ca]).await?;
    let mark = scene.mark().await?;
    under_load(scene, &serves.1, async {
        for rotation in 0..count {
            let before = own(&secrets, &secret).await?;
            match rotation {
                0 => renew(scene, leaf).await?,
                1 => drop(secrets.delete(&secret, &DeleteParams::default()).await?),
                _ => {
                    let before = own(&secrets, &ca).await?;
                    renew(scene, &ca).await?;
                    changed(&secrets, &ca, |own| own.chain != before.chain).await?;
                    renew(scene, leaf).await?;
                }
            }
            let mut after = changed(&secrets, &secret, |own| own.chain != before.chain).await?;
            if rotation == 2 && after.ca_bundle == before.ca_bundle {
                // cert-manager has not read its own new CA yet, and issued by the old one.
                let early = after;
                renew(scene, leaf).await?;
                after = changed(&secrets, &secret, |own| own.chain != early.chain).await?;
            }
            let same = after.ca_bundle == before.ca_bundle;
            ensure!(same == (rotation < 2), "rotation {rotation}: {same}");
            serves.leaf(&after.chain).await?;
            connected_anew(scene).await?;
        }
        Ok(())
    })
    .await?;
    all_called(scene, mark, WRITERS + 1).await
}

/// Waits until neither certificate is about to be issued, and the first is of the second, its CA. cert-manager
/// may issue a new CA twice.
async fn issued(scene: &Scene, certificates: [&str; 2], names: [&str; 2]) -> Result<()> {
    let secrets = secrets(scene);
    let namespace = &scene.installation.namespace;
    wait_for("both certificates to be issued", PATIENCE, async || {
        for certificate in certificates {
            let name = format!("certificate/{certificate}");
            let object = scene.object_in(namespace, &name).await?;
            let conditions = object["status"]["conditions"].as_array();
            let conditions = conditions.into_iter().flatten();
            let met: Vec<_> = conditions
                .filter(|condition| condition["status"] == "True")
                .map(|condition| &condition["type"])
                .collect();
            if met != ["Ready"] {
                return Ok(Attempt::NotYet(format!("{certificate}: {met:?}")));
            }
        }
        let [leaf, ca] = names.map(|name| own(&secrets, name));
        let (leaf, ca) = (leaf.await?, ca.await?);
        done_if(leaf.ca_bundle == ca.chain, "the CA is another")
    })
    .await
}

/// Makes cert-manager renew a Certificate, as `cmctl renew` does.
async fn renew(scene: &Scene, certificate: &str) -> Result<()> {
    let condition = json!([{
        "op": "add",
        "path": "/status/conditions/-",
        "value": {
            "type": "Issuing",
            "status": "True",
            "reason": "ManuallyTriggered",
            "message": "renew",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        },
    }]);
    let namespace = &scene.installation.namespace;
    let certificates = format!("/apis/cert-manager.io/v1/namespaces/{namespace}/certificates");
    let status = format!("{certificates}/{certificate}/status");
    scene.patch_at(&status, &condition).await
}

/// Creates the objects that [`burst`] writes.
async fn writable(scene: &Scene) -> Result<()> {
    let mut manifests = vec![config_map("app", "1")];
    for writer in 0..WRITERS {
        let workload = Workload::deployment(&format!("load-{writer}")).lists("app");
        let workload = workload.with(&["spec", "replicas"], json!(0));
        manifests.push(workload.manifest());
    }
    scene.apply(&manifests).await
}

/// Runs `test` while many writers write, now and then and as soon as one of `ports` serves or needs another certificate.
/// Asserts that no write fails, and that each port serves a certificate that the webhook configuration trusts.
async fn under_load(
    scene: &Scene,
    ports: &[u16],
    test: impl Future<Output = Result<()>>,
) -> Result<()> {
    let every = |period| {
        let mut interval = interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    };
    let (mut looks, mut bursts) = (every(LOOKS), every(BURSTS));
    let tested = Cell::new(false);
    let test = async {
        test.await?;
        tested.set(true);
        Ok(())
    };
    let news = Notify::new();
    let writes = async {
        let mut number = 0;
        while !tested.get() {
            tokio::select! {
                _ = bursts.tick() => {}
                () = news.notified() => {}
            }
            burst(scene, number).await?;
            number += 1;
        }
        burst(scene, number).await
    };
    let looks = async {
        let mut last = None;
        while !tested.get() {
            looks.tick().await;
            let bundle = scene.ca_bundle().await?;
            let mut leaves = Vec::new();
            for port in ports {
                leaves.push(served(&scene.installation, *port, &bundle).await?);
            }
            let seen = Some((bundle, leaves));
            if seen != last {
                news.notify_one();
                last = seen;
            }
        }
        Ok(())
    };
    try_join3(test, writes, looks).await.map(drop)
}

/// Makes one write of each writer, all in parallel: mostly of a label, now and then of the template.
async fn burst(scene: &Scene, number: usize) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    try_join_all((0..WRITERS).map(async |writer| {
        let patch = match (number + writer) % 20 {
            0 => json!({"spec": {"template": {"metadata": {"labels": {"n": number.to_string()}}}}}),
            _ => json!({"metadata": {"labels": {"n": number.to_string()}}}),
        };
        let name = format!("load-{writer}");
        deployments
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("{patch} to {name}"))
    }))
    .await
    .map(drop)
}

/// Waits until the deployment controller has nothing to write.
async fn observed(scene: &Scene) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    wait_for(
        "the deployment controller to be done",
        PATIENCE,
        async || {
            let list = deployments.list(&ListParams::default()).await?;
            let is_behind = |it: &Deployment| {
                let status = it.status.as_ref();
                status.and_then(|status| status.observed_generation) != it.metadata.generation
            };
            let behind = list.items.iter().filter(|it| is_behind(it)).count();
            Ok(match behind {
                0 => Attempt::Done(()),
                _ => Attempt::NotYet(format!("{behind} Deployments are not observed")),
            })
        },
    )
    .await
}

/// Waits until a create returns a config hash.
async fn called(scene: &Scene) -> Result<()> {
    wait_for("the webhook to be called", PATIENCE, async || {
        done_if(scene.is_webhook_called().await?, "it was not")
    })
    .await
}

/// Makes the apiserver open another connection to the webhook, which means another handshake. It keeps those that it has,
/// and a review that waits has one of its own: so more reviews wait for an operator that stands still.
async fn connected_anew(scene: &Scene) -> Result<()> {
    let port = scene.installation.port;
    let operator = scene.operator.process();
    operator.pause()?;
    let before = connections(port)?;
    // One of them may be a look at the certificate.
    let expected = before + 2;
    let waiting = async {
        let opened = wait_for("new connections", STANDSTILL, async || {
            let now = connections(port)?;
            done_if(now >= expected, format!("{now}, and {before} before"))
        })
        .await;
        operator.resume()?;
        opened
    };
    let reviews = try_join_all((0..expected).map(|_| scene.is_webhook_called()));
    let (opened, reviews) = tokio::join!(waiting, reviews);
    opened?;
    ensure!(
        reviews?.into_iter().all(|called| called),
        "the webhook was passed by"
    );
    Ok(())
}

/// Counts the open connections to the webhook.
fn connections(port: u16) -> Result<usize> {
    const ESTABLISHED: &str = "01";
    let server = format!("0100007F:{port:04X}");
    let sockets = fs::read_to_string("/proc/net/tcp")?;
    let fields = sockets.lines().map(|line| {
        let mut fields = line.split_whitespace().skip(2);
        (fields.next(), fields.next())
    });
    Ok(fields
        .filter(|fields| *fields == (Some(&*server), Some(ESTABLISHED)))
        .count())
}

/// Runs `helm upgrade` with the values of `options`, and starts a new operator in the place of `old`.
async fn upgraded(
    scene: &Scene,
    old: &Operator,
    options: &Options,
) -> Result<(Operator, Installation)> {
    let mut installation = scene.installation.clone();
    let values = options.values(&scene.namespace);
    installation.upgrade(&values).await?;
    old.stop().await;
    let operator = started(scene, &installation, "upgraded", &[]).await?;
    Ok((operator, installation))
}

async fn started(
    scene: &Scene,
    installation: &Installation,
    directory: &str,
    args: &[&str],
) -> Result<Operator> {
    let directory = scene.directory().join(directory);
    scene.start_replica(installation, &directory, args).await
}

/// Waits until an operator's log contains `text`.
async fn logs(operator: &Operator, text: &str) -> Result<()> {
    wait_for(&format!("{text:?} in the log"), PATIENCE, async || {
        done_if(operator.log()?.contains(text), "it is silent")
    })
    .await
}

/// Replaces the rules of a ClusterRole.
async fn rule(roles: &Api<ClusterRole>, name: &str, rules: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"rules": rules}));
    roles.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn log(operator: &Operator) -> String {
    operator.log().unwrap_or_default()
}

/// Replicas, by port.
struct Serves<'a>(&'a Scene, Vec<u16>);

impl Serves<'_> {
    /// Waits until each replica serves the leaf of `chain`.
    async fn leaf(&self, chain: &str) -> Result<()> {
        let Self(scene, ports) = self;
        let leaf = &certificates(chain)?[0];
        for port in ports {
            wait_for("a certificate to be served", PATIENCE, async || {
                let bundle = scene.ca_bundle().await?;
                let served = served(&scene.installation, *port, &bundle).await?;
                done_if(served == *leaf, format!("another one on port {port}"))
            })
            .await?;
        }
        Ok(())
    }
}

/// Returns the leaf that a port serves to a client that trusts `ca_bundle`.
async fn served(
    installation: &Installation,
    port: u16,
    ca_bundle: &str,
) -> Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for ca in certificates(ca_bundle)? {
        roots.add(ca)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(installation.host())?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let (_, connection) = stream.get_ref();
    let chain = connection.peer_certificates();
    let leaf = chain.and_then(<[_]>::first).context("no certificate")?;
    Ok(leaf.clone().into_owned())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
    Ok(certificates.collect::<Result<_, _>>()?)
}

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.client.clone(), &scene.installation.namespace)
}

async fn patch(secrets: &Api<Secret>, name: &str, entries: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"stringData": entries}));
    secrets.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A CA and a certificate in a Secret, in PEM, empty if missing.
struct Own {
    ca_bundle: String,
    ca_key: String,
    chain: String,
}

async fn own(secrets: &Api<Secret>, name: &str) -> Result<Own> {
    let data = secrets.get(name).await?.data.unwrap_or_default();
    let entry = |key: &str| {
        let entry = data.get(key).map(|entry| entry.0.clone());
        String::from_utf8(entry.unwrap_or_default())
    };
    Ok(Own {
        ca_bundle: entry("ca.crt")?,
        ca_key: entry("ca.key")?,
        chain: entry("tls.crt")?,
    })
}

/// Waits until a Secret exists, is complete, and satisfies `is_so`.
async fn changed(
    secrets: &Api<Secret>,
    name: &str,
    mut is_so: impl FnMut(&Own) -> bool,
) -> Result<Own> {
    wait_for(&format!("another {name}"), PATIENCE, async || {
        Ok(match own(secrets, name).await {
            Ok(own) if !own.chain.is_empty() && is_so(&own) => Attempt::Done(own),
            Ok(_) => Attempt::NotYet("it is not".to_owned()),
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        })
    })
    .await
}

/// A CA by which the test issues certificates.
struct TestAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

struct Pair {
    chain: String,
    key: String,
}

impl TestAuthority {
    fn new() -> Result<Self> {
        Self::with(KeyPair::generate()?, ca_params())
    }

    /// Returns the operator's CA as it will be one day: with its key, near its end.
    fn aged(key: &str) -> Result<Self> {
        let mut params = ca_params();
        live(&mut params, 1800 * DAY, 25 * DAY);
        Self::with(KeyPair::from_pem(key)?, params)
    }

    fn with(key: KeyPair, params: CertificateParams) -> Result<Self> {
        Ok(Self {
            pem: params.self_signed(&key)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    fn issue(&self, host: &str) -> Result<Pair> {
        self.sign(leaf_params(host)?)
    }

    /// Issues a certificate of which most of the validity is over.
    fn aged_leaf(&self, host: &str) -> Result<Pair> {
        let mut params = leaf_params(host)?;
        live(&mut params, 80 * DAY, 10 * DAY);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        Ok(Pair {
            chain: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// Returns the parameters that the operator uses for its own CA.
fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = "pod-reloader CA";
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Returns the parameters for the names that the operator needs.
fn leaf_params(host: &str) -> Result<CertificateParams> {
    let short = host.trim_end_matches(".svc").to_owned();
    let long = format!("{host}.cluster.local");
    let mut params = CertificateParams::new([host.to_owned(), short, long])?;
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Sets the validity so that `so_far` has passed and `left` remains.
fn live(params: &mut CertificateParams, so_far: Duration, left: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("it is later than 1970");
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + (now - so_far);
    params.not_after = epoch + now + left;
}

fn released() -> Options {
    Options {
        released: true,
        ..Options::ignoring()
    }
}

/// Seconds that the apiserver waits for the webhook, at most: other tests may keep the machine busy.
const TIMEOUT: u32 = 30;
/// Time for which the operator stands still at most. No review may be given up meanwhile.
const STANDSTILL: Duration = Duration::from_secs(20);
/// Longer than a replica waits until every apiserver has noticed a new CA.
const PATIENCE: Duration = Duration::from_secs(150);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Number of writers. The apiserver retains 25 idle connections to a webhook: with more parallel writes than
/// that, it has to connect again.
const WRITERS: usize = 32;
/// Time between two bursts of writes while no certificate changes. They are most of what these tests cost.
const BURSTS: Duration = Duration::from_secs(30);
/// Time between two looks at the certificates that are served.
const LOOKS: Duration = Duration::from_millis(500);
