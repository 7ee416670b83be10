//! Clients that write around a bound field, or a value of their own into it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pod_reloader_e2e::{Attempt, AuditEvent, Mark, PATIENCE, Scene, Tool, mentions, wait_for};
use serde_json::{Value, json};

use super::fields::{STORES, bind, has, is, rests, secret, store, writes};
use super::{binding_fields, with_definitions};
use crate::sync::are_paced;

/// Another manager, which applies on the server side.
const ARGO: &str = "--field-manager=argocd-controller";

#[tokio::test]
async fn a_field_outlives_what_clients_write_around_it() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        scene
            .apply(&[secret("creds", json!({"password": "bound"}))])
            .await?;
        let names = ["applied", "server-side", "replaced", "helm3", "helm4"];
        let password = json!([{"key": "password", "path": "spec.password"}]);
        let bindings = names.map(|name| bind(name, "creds", name, password.clone()));
        scene.apply(&bindings).await?;
        let of = |name: &str, port: u16| store(name, json!({"port": port})).to_string();
        let charts = ["helm3", "helm4"].map(|name| Chart::new(scene, name));
        let [helm3, helm4] = charts;
        let (helm3, helm4) = (helm3?, helm4?);
        for port in [1, 2] {
            let apply = ["apply", "--filename=-"];
            scene
                .kubectl_with_input(&apply, &of("applied", port))
                .await?;
            let server_side = ["apply", "--server-side", ARGO, "--filename=-"];
            scene
                .kubectl_with_input(&server_side, &of("server-side", port))
                .await?;
            let replace = match port {
                1 => ["create", "--filename=-"],
                _ => ["replace", "--filename=-"],
            };
            let mark = scene.mark().await?;
            scene
                .kubectl_with_input(&replace, &of("replaced", port))
                .await?;
            helm3.upgrade(port).await?;
            helm4.upgrade(port).await?;
            for name in names {
                has(
                    scene,
                    STORES,
                    name,
                    "/spec",
                    json!({"port": port, "password": "bound"}),
                )
                .await?;
            }
            // Only a client that replaces the whole object has taken the field away.
            let written = writes(scene, mark).await?;
            let expected = [names.len() - 2, 1][usize::from(port == 2)];
            let written: Vec<_> = written.iter().map(|it| &*it.name).collect();
            ensure!(written.len() >= expected, "{port}: {written:?}");
            ensure!(port == 1 || written == ["replaced"], "{port}: {written:?}");
        }
        for name in names {
            is(scene, name, "Applied").await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn who_keeps_writing_a_placeholder_is_named_and_met_once_a_minute() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        let mark = scene.mark().await?;
        let names = ["argo", "kubectl", "helm"];
        let password = json!([{"key": "password", "path": "spec.password"}]);
        let bindings = names.map(|name| bind(name, "creds", name, password.clone()));
        scene
            .apply(&[secret("creds", json!({"password": "bound"}))])
            .await?;
        scene.apply(&bindings).await?;
        let git = |name: &str| store(name, json!({"password": "placeholder"})).to_string();
        let helm = Chart::with(
            scene,
            "helm",
            json!({"port": "{{ .Values.port }}", "password": "placeholder"}),
        )?;
        let forced = [
            "apply",
            "--server-side",
            ARGO,
            "--force-conflicts",
            "--filename=-",
        ];
        let replace = ["replace", "--filename=-"];
        // The first time, the field is new. The second time, it is set again at once.
        for round in [1, 2] {
            scene.kubectl_with_input(&forced, &git("argo")).await?;
            let write = match round {
                1 => ["create", "--filename=-"],
                _ => replace,
            };
            scene.kubectl_with_input(&write, &git("kubectl")).await?;
            helm.upgrade(round).await?;
            for name in names {
                has(scene, STORES, name, "/spec/password", json!("bound")).await?;
            }
        }
        // Helm 3 writes only what its chart has changed.
        helm.upgrade(3).await?;
        has(scene, STORES, "helm", "/spec/password", json!("bound")).await?;
        // Helm 4 applies on the server's side, without force.
        scene
            .apply(&[bind("helm4", "creds", "helm4", password)])
            .await?;
        let placeholder = json!({"port": "{{ .Values.port }}", "password": "placeholder"});
        let helm4 = Chart::with(scene, "helm4", placeholder)?;
        helm4.upgrade(1).await?;
        has(scene, STORES, "helm4", "/spec/password", json!("bound")).await?;
        let told = helm4.upgrade(2).await.err().context("it is a conflict")?;
        let told = format!("{told:#}");
        mentions(&told, "conflict with \"pod-reloader\"")?;
        let refused = scene.mark().await?;
        helm4.upgrade_with(3, &["--server-side=false"]).await?;
        has(scene, STORES, "helm4", "/spec/port", json!(3)).await?;
        has(scene, STORES, "helm4", "/spec/password", json!("bound")).await?;
        rests(scene).await?;
        let written = writes_to(scene, refused, "helm4").await?;
        ensure!(written.is_empty(), "{written:?}");
        for (name, manager, write) in [
            ("argo", "argocd-controller", &forced[..]),
            ("kubectl", "kubectl-replace", &replace[..]),
        ] {
            let write = async || scene.kubectl_with_input(write, &git(name)).await.map(drop);
            let status = held_up(scene, name, write).await?;
            let message = status["fields"][0]["message"].as_str().unwrap_or_default();
            ensure!(message.starts_with(manager), "{message}");
        }
        is(scene, "helm", "Applied").await?;
        let without_force = [
            "apply",
            "--server-side",
            "--field-manager=flux",
            "--filename=-",
        ];
        let output = scene.kubectl_output(&without_force, &git("helm")).await?;
        mentions(&output.stderr, "conflict with \"pod-reloader\"")?;
        rests(scene).await?;
        for name in ["argo", "kubectl"] {
            let written = writes_to(scene, mark, name).await?;
            ensure!(written.len() >= 2, "{written:?}");
            // The first one gave the field its value, and the others gave it back.
            for pair in written[1..].windows(2) {
                ensure!(pair[1].pause_after(&pair[0])? >= A_MINUTE, "{written:?}");
            }
        }

        // A new value is written at once, whoever has the field.
        scene
            .apply(&[secret("creds", json!({"password": "rotated"}))])
            .await?;
        for name in names {
            has(scene, STORES, name, "/spec/password", json!("rotated")).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_owner_who_answers_each_write_with_another_value_is_held_up() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        let mark = scene.mark().await?;
        let password = json!([{"key": "password", "path": "spec.password"}]);
        let binding = bind("cycle", "creds", "cycle", password);
        scene
            .apply(&[secret("creds", json!({"password": "0"})), binding])
            .await?;
        scene.apply(&[store("cycle", json!({}))]).await?;
        // Until it takes longer than a few seconds.
        let mut turns = 0;
        wait_for("the cycle to be held up", PATIENCE * 2, async || {
            let object = scene.custom_object("example.com/v1", STORES, "cycle");
            if object.await?["spec"]["password"].as_str() == Some(&turns.to_string()) {
                turns += 1;
                let creds = secret("creds", json!({"password": turns.to_string()}));
                scene.apply(&[creds]).await?;
            }
            is_held_up(scene, "cycle").await
        })
        .await?;
        let written = writes_to(scene, mark, "cycle").await?;
        ensure!(written.len() >= 3, "{written:?}");
        let pauses = written.windows(2).map(|two| two[1].pause_after(&two[0]));
        are_paced(&pauses.collect::<Result<Vec<_>>>()?)
    })
    .await
}

/// Writes to a Store each time that its field has the bound value, until the operator holds that up. Returns the
/// status of the FieldBinding with the same name.
async fn held_up(scene: &Scene, name: &str, write: impl AsyncFn() -> Result<()>) -> Result<Value> {
    let what = format!("FieldBinding {name} to be held up");
    wait_for(&what, PATIENCE * 2, async || {
        let object = scene.custom_object("example.com/v1", STORES, name).await?;
        if object["spec"]["password"] == "bound" {
            write().await?;
        }
        is_held_up(scene, name).await
    })
    .await
}

/// Returns the status of a FieldBinding once somebody else keeps changing its field, or its key.
async fn is_held_up(scene: &Scene, name: &str) -> Result<Attempt<Value>> {
    let version = "pod-reloader.github.io/v1alpha1";
    let binding = scene.custom_object(version, "fieldbindings", name).await?;
    let status = binding["status"].clone();
    Ok(match status["conditions"][0]["reason"] == "Contended" {
        true => Attempt::Done(status),
        false => Attempt::NotYet(status.to_string()),
    })
}

/// A write of the operator to a custom resource, and the read that came before it.
#[derive(Debug)]
struct Write {
    read: Timestamp,
    received: Timestamp,
}

impl Write {
    /// Returns the longest pause that the operator can have made after the write `before`. It measures its pauses from
    /// a moment between read and write.
    fn pause_after(&self, before: &Self) -> Result<Duration> {
        Ok(self.received.duration_since(before.read).try_into()?)
    }
}

/// Returns the writes of the operator to a Store since a mark. Those that came too late, because somebody else had
/// written to the Store since it was read, are left out.
async fn writes_to(scene: &Scene, mark: Mark, name: &str) -> Result<Vec<Write>> {
    let requests = scene.requests(mark).await?;
    let (mut writes, mut read) = (Vec::new(), None);
    let is_of_it = |it: &&AuditEvent| it.resource == STORES && it.name == name;
    for it in requests.iter().filter(is_of_it) {
        match &*it.verb {
            "get" => read = Some(it.received),
            "patch" if it.code == Some(200) => writes.push(Write {
                read: read.context("it reads before it writes")?,
                received: it.received,
            }),
            _ => {}
        }
    }
    Ok(writes)
}

/// The time between two repairs of a field.
const A_MINUTE: Duration = Duration::from_secs(60);

/// A chart of a user with one Store, and the release of it, which have the same name.
struct Chart<'a> {
    scene: &'a Scene,
    name: &'static str,
    path: String,
}

impl<'a> Chart<'a> {
    fn new(scene: &'a Scene, name: &'static str) -> Result<Self> {
        Self::with(scene, name, json!({"port": "{{ .Values.port }}"}))
    }

    fn with(scene: &'a Scene, name: &'static str, spec: Value) -> Result<Self> {
        let path = scene.directory().join(name);
        std::fs::create_dir_all(path.join("templates"))?;
        let chart = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"});
        let template = store(name, spec).to_string();
        let template = template.replace("\"{{ .Values.port }}\"", "{{ .Values.port }}");
        std::fs::write(path.join("Chart.yaml"), chart.to_string())?;
        std::fs::write(path.join("templates/store.yaml"), template)?;
        Ok(Self {
            scene,
            name,
            path: path.display().to_string(),
        })
    }

    /// Installs the release, or upgrades it, by the Helm that it is named after.
    async fn upgrade(&self, port: u16) -> Result<()> {
        self.upgrade_with(port, &[]).await
    }

    /// Does the same, with more arguments.
    async fn upgrade_with(&self, port: u16, args: &[&str]) -> Result<()> {
        let port = format!("--set=port={port}");
        let namespace = ["--namespace", &self.scene.namespace];
        let upgrade = ["upgrade", "--install", self.name, &self.path, &port];
        let helm: Tool = match self.name {
            "helm4" => self.scene.control_plane.helm(),
            _ => self.scene.control_plane.helm3(),
        };
        helm.run(&[&namespace[..], &upgrade, args].concat())
            .await
            .map(drop)
    }
}
