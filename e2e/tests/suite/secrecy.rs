//! No byte of a Secret leaves the operator, nor anything from which it could be guessed.

use std::{fs::File, io::Read};

use anyhow::{Result, ensure};
use http::StatusCode;
use k8s_openapi::ByteString;
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule};
use pod_reloader_e2e::receiver::Receiver;
use pod_reloader_e2e::workload::{Workload, secret};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[tokio::test]
async fn nothing_that_the_operator_says_or_writes_reveals_a_secret() -> Result<()> {
    let receiver = Receiver::start(true).await?;
    let directory = tempfile::tempdir()?;
    let options = Options {
        proxied: true,
        args: vec![
            receiver.argument(directory.path(), "chat")?,
            "--notifications-send=all".to_owned(),
        ],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let mut values = Vec::new();
        let mut next = || -> Result<String> {
            values.push(random_value()?);
            Ok(values.last().cloned().unwrap_or_default())
        };
        let proxy = scene.proxy.as_ref().expect("the scene is proxied");
        let app = || {
            let path = format!("/api/v1/namespaces/{}/secrets/app", scene.namespace);
            Requests::exactly(path)
        };
        let mark = scene.mark().await?;

        // The Secret is created, and changes. `kubectl apply` leaves a copy in an annotation of the Secret.
        scene.apply(&[secret("app", &next()?)]).await?;
        let web = Workload::podless("web")
            .lists_secrets("app")
            .requires_secret("app");
        let before = scene.create(&web).await?;
        scene.apply(&[secret("app", &next()?)]).await?;
        let before = scene.rolls_once(&web, &before).await?;

        // The Secret may not be read.
        let forbidden = Answer::error(StatusCode::FORBIDDEN);
        let rule = proxy.add(Rule::new(app(), Fault::Answer(forbidden)));
        scene.apply(&[secret("app", &next()?)]).await?;
        scene.event(&web, "ConfigUnreadable").await?;
        rule.remove();
        scene.apply(&[secret("app", &next()?)]).await?;
        let mut before = scene.rolls_once(&web, &before).await?;

        // The answer is not a Secret, or breaks off.
        let value = next()?;
        let malformed = |data: Value| {
            let metadata = json!({"name": "app", "uid": "u", "resourceVersion": "1"});
            let object = json!({"kind": "Secret", "metadata": metadata, "data": data});
            Fault::Answer(Answer::json(StatusCode::OK, &object))
        };
        for fault in [
            malformed(json!(value)),
            malformed(json!({"key": [value]})),
            malformed(json!({"key": {&*value: value}})),
            malformed(json!([value])),
            Fault::Answer(Answer::json(StatusCode::OK, &json!(value))),
            Fault::Answer(Answer::json(StatusCode::BAD_GATEWAY, &json!(value))),
            Fault::Answer(Answer::json(
                StatusCode::NOT_FOUND,
                &json!({"message": value}),
            )),
            Fault::TruncateBody(300),
        ] {
            let description = format!("{fault:?}");
            let rule = proxy.add(Rule::new(app(), fault));
            scene.apply(&[secret("app", &next()?)]).await?;
            let patient = rule.applied(2, PATIENCE).await;
            patient.map_err(|error| error.context(description))?;
            rule.remove();
            before = scene.rolls_once(&web, &before).await?;
        }

        // The watch delivers something that is not a Secret.
        let secrets = Requests::containing("/secrets").watches();
        for object in [
            json!({"metadata": 7, "data": {"key": value}}),
            json!({"metadata": {"name": [value], "annotations": {"copy": value}}}),
            json!(value),
        ] {
            let line = json!({"type": "MODIFIED", "object": object});
            proxy.inject_once_open(&secrets, line).await?;
            scene.apply(&[secret("app", &next()?)]).await?;
            before = scene.rolls_once(&web, &before).await?;
        }
        proxy.inject_once_open(&secrets, &value).await?;

        // Somebody sends the webhook something that is not a Deployment.
        let rubbish = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "rubbish", "annotations": {
                "pod-reloader.cs.sap.com/secrets": value}},
            "spec": {"replicas": value, "template": value},
        });
        let create = ["create", "--validate=false", "--filename=-"];
        let refused = scene.kubectl_output(&create, &rubbish.to_string()).await?;
        ensure!(refused.code != Some(0), "{}", refused.stdout);

        // The Secret is deleted, and comes back.
        scene.delete("secret/app").await?;
        scene.event(&web, "MissingConfig").await?;
        scene.apply(&[secret("app", &next()?)]).await?;
        scene.rolls_once(&web, &before).await?;

        let mut said = said(scene, mark).await?;
        // Before it stops, it sends the messages that are waiting.
        scene.operator.stop().await;
        receiver.changes("web", 1).await?;
        said.push(("the notifications", format!("{:?}", receiver.messages())));
        for (place, text) in &said {
            ensure!(!text.is_empty(), "{place} is empty");
            for value in &values {
                for (form, trace) in traces(value) {
                    ensure!(!text.contains(&trace), "{form} of a value is in {place}");
                }
            }
        }
        let kept = scene
            .kubectl(&["get", "secret", "app", "--output=yaml"])
            .await?;
        ensure!(
            values
                .iter()
                .any(|value| kept.contains(&ByteString(value.clone().into()).encoded())),
            "looked for the wrong thing"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn memory_is_never_dumped_into_a_file() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let pid = scene.operator.process().pid();
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let words: Vec<_> = core.unwrap_or_default().split_whitespace().collect();
        ensure!(words[4..] == ["0", "0", "bytes"], "{limits}");
        Ok(())
    })
    .await
}

/// Returns everything that the operator has said and written, by place.
pub(crate) async fn said(
    scene: &Scene,
    mark: pod_reloader_e2e::Mark,
) -> Result<Vec<(&'static str, String)>> {
    let requests = scene.requests(mark).await?;
    ensure!(
        requests.iter().any(|request| request.verb == "patch"),
        "the operator has written nothing"
    );
    let log = wait_for("the log", PATIENCE, async || {
        let log = scene.operator.log()?;
        Ok(if log.contains("restarting pods") {
            Attempt::Done(log)
        } else {
            Attempt::NotYet("it tells of no restart".to_owned())
        })
    })
    .await?;
    let workloads = ["get", "deployments,replicasets", "--output=yaml"];
    let events = ["get", "events.events.k8s.io", "--output=yaml"];
    Ok(vec![
        ("the log", log),
        ("the metrics", scene.operator.metrics().await?),
        ("the Events", scene.kubectl(&events).await?),
        ("the workloads", scene.kubectl(&workloads).await?),
        ("the requests", format!("{requests:?}")),
    ])
}

/// Returns the forms in which a value would be recognised.
pub(crate) fn traces(value: &str) -> [(&'static str, String); 4] {
    let digest = Sha256::digest(value);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let base64 = |bytes: &[u8]| ByteString(bytes.to_vec()).encoded();
    [
        ("the text", value.to_owned()),
        ("the base64", base64(value.as_bytes())),
        ("the SHA-256", hex),
        ("the base64 of the SHA-256", base64(&digest)),
    ]
}

trait Encoded {
    fn encoded(&self) -> String;
}

impl Encoded for ByteString {
    /// Returns the value in base64, as in JSON.
    fn encoded(&self) -> String {
        json!(self).as_str().unwrap_or_default().to_owned()
    }
}

/// Returns letters that nobody can guess, and that do not occur anywhere else.
pub(crate) fn random_value() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes
        .map(|byte| char::from(b'A' + byte % 26))
        .iter()
        .collect())
}
