//! Values of all kinds in fields of all kinds: the right one is written, what is around it stays, and no value is seen
//! anywhere else.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use pod_reloader_e2e::{Attempt, CANARY, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

use super::fields::{STORES, bind, has, is, secret, states, store};
use super::{binding_fields, with_definitions};

#[tokio::test]
async fn each_value_is_in_its_field_alone_and_nobody_repeats_it() -> Result<()> {
    let mut options = binding_fields(Value::Null);
    options.args = vec!["--log-level=trace".to_owned()];
    Scene::play(options, async |scene| {
        with_definitions(&scene.control_plane).await?;
        let value = |suffix: &str| format!("{CANARY}{suffix}");
        let mut creds = secret(
            "creds",
            json!({
                "password": value("1"), "line": format!("{}\n", value("2")), "port": " 5432\n", "tls": "true\n",
                "token": format!("bad {}", value("3")), "code": value("4"),
            }),
        );
        creds["data"] = json!({"binary": ByteString(vec![0xff, 0xfe])});
        let large_value = CANARY.repeat(1_000_000 / CANARY.len());
        let large = secret("large", json!({"large": large_value}));
        for object in [&creds, &large] {
            scene.create_object(object).await?;
        }
        let user = |name: &str| json!({"name": name, "role": "x", "password": "old"});
        let spec = json!({
            "users": [user("viewer"), user("admin")], "accounts": [user("viewer"), user("admin")],
            "port": 1, "password": "old", "code": "1", "token": "good", "tls": false,
        });
        let field = |key: &str, path: &str, of: &str| json!({"key": key, "path": path, "as": of});
        let fine = json!([
            field("password", "spec.users[name=admin].password", "String"),
            field("line", "spec.accounts[name=admin].password", "String"),
            field("port", "spec.port", "Integer"),
            field("tls", "spec.tls", "Boolean"),
        ]);
        let odd = json!([
            field("binary", "spec.password", "String"),
            field("password", "spec.port", "Integer"),
            field("password", "spec.tls", "Boolean"),
            field("password", "spec.users[name=nobody].password", "String"),
            field("password", "spec.users", "String"),
        ]);
        let one = |key: &str, path: &str| json!([field(key, path, "String")]);
        let names = ["fine", "odd", "pattern", "message", "type", "unknown", "large"];
        for name in names {
            scene.apply(&[store(name, spec.clone())]).await?;
        }
        scene
            .apply(&[
                bind("fine", "creds", "fine", fine),
                bind("odd", "creds", "odd", odd),
                bind("pattern", "creds", "pattern", one("code", "spec.code")),
                bind("message", "creds", "message", one("token", "spec.token")),
                bind("type", "creds", "type", one("password", "spec.port")),
                bind("unknown", "creds", "unknown", one("password", "spec.passwrod")),
                bind("large", "large", "large", one("large", "spec.large")),
            ])
            .await?;
        is(scene, "fine", "Applied").await?;
        let mut expected = spec.clone();
        expected["users"][1]["password"] = json!(value("1"));
        expected["accounts"][1]["password"] = json!(format!("{}\n", value("2")));
        expected["port"] = json!(5432);
        expected["tls"] = json!(true);
        has(scene, STORES, "fine", "/spec", expected.clone()).await?;
        let status = is(scene, "odd", "InvalidValue").await?;
        let states: Vec<_> = states(&status)?.into_iter().map(|(_, state)| state).collect();
        let odd = ["InvalidValue", "InvalidValue", "InvalidValue", "PathNotFound", "NotAField"];
        ensure!(states == odd, "{status}");
        for name in ["pattern", "message", "type", "unknown"] {
            is(scene, name, "Rejected").await?;
            has(scene, STORES, name, "/spec", spec.clone()).await?;
        }
        has(scene, STORES, "odd", "/spec", spec.clone()).await?;
        is(scene, "large", "Applied").await?;
        let stored = scene.custom_object("example.com/v1", STORES, "large").await?;
        let stored = stored["spec"]["large"].as_str().unwrap_or_default();
        ensure!(stored == large_value, "{} bytes", stored.len());

        // The element has another place by now, and the client knows nothing of its password.
        let moved = json!([user("first"), user("viewer"), {"name": "admin", "role": "y"}]);
        let patch = json!({"spec": {"users": moved}}).to_string();
        scene
            .kubectl(&["patch", "store", "fine", "--type=merge", "--patch", &patch])
            .await?;
        expected["users"] = moved;
        expected["users"][2]["password"] = json!(value("1"));
        has(scene, STORES, "fine", "/spec", expected).await?;

        let get = |kind: &'static str| ["get", kind, "--output=json", "--show-managed-fields"];
        let bindings = scene.kubectl(&get("fieldbindings")).await?;
        // Events are sent in the background.
        let what = "an Event about each binding that is not applied";
        let events = wait_for(what, PATIENCE, async || {
            let events = scene.kubectl(&get("events.events.k8s.io")).await?;
            let list: Value = serde_json::from_str(&events)?;
            let items = list["items"].as_array().context("a list")?;
            let is_about = |name: &&str| {
                let mut about = items.iter().filter(|event| event["regarding"]["name"] == *name);
                about.any(|event| event["reason"] == "FieldsNotApplied")
            };
            let mut names = ["odd", "pattern", "message", "type", "unknown"].iter();
            Ok(match names.find(|name| !is_about(name)) {
                None => Attempt::Done(events),
                Some(name) => Attempt::NotYet(format!("none about {name}: {events}")),
            })
        })
        .await?;
        let encoded = ByteString(CANARY.into());
        let encoded = serde_json::to_value(&encoded)?.to_string();
        let encoded = encoded.trim_matches('"').trim_end_matches('=');
        for (what, text) in [
            ("log", scene.operator.log()?),
            ("log of the operator", scene.other()?.log()?),
            ("status", bindings),
            ("events", events),
            ("metrics", scene.operator.metrics().await?),
        ] {
            ensure!(!text.is_empty());
            let tells = [CANARY, encoded].into_iter().any(|it| text.contains(it));
            ensure!(!tells, "a value is in the {what}");
        }
        Ok(())
    })
    .await
}
