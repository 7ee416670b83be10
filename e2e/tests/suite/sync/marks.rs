//! The policies bind the writer to objects that it would call its own: each row of the table that its rules are tested
//! with.

use anyhow::{Context, Result};
use http::{Method, Request};
use kube::Client;
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Namespaces, apply_sync, copying, name_of, play, read_sync, source, sync};

/// The part of a row that this test reads. Its form is told where the rules are tested.
#[derive(Deserialize)]
struct Row {
    name: String,
    #[serde(default = "secret")]
    kind: String,
    #[serde(default)]
    suffix: String,
    #[serde(default, rename = "in")]
    namespace: String,
    #[serde(default)]
    fields: Value,
    may_write: bool,
    may_delete: bool,
}

fn secret() -> String {
    "Secret".to_owned()
}

#[tokio::test]
async fn the_policies_let_the_writer_write_and_delete_what_the_table_of_marks_says() -> Result<()> {
    let rows = include_str!("../../../../crates/pod-reloader-core/tests/marks.json");
    let mut rows: Vec<Row> = serde_json::from_str(rows)?;
    // What is refused comes first, and waits until the policies are in force.
    rows.sort_by_key(|row| row.may_write);
    let values = json!({"pin": {"enabled": true}, "protect": {"enabled": true}});
    play(copying(values), async |scene| {
        let shop = Namespaces::of(scene).create("shop", false).await?;
        scene.apply(&[source("1")]).await?;
        let ours = sync(scene, "all", json!({}));
        apply_sync(scene, &ours).await?;
        scene.operator.stop().await;
        let owner = name_of(&ours)?;
        let uid = read_sync(scene, owner).await?["metadata"]["uid"].clone();
        let table = Table {
            scene,
            writer: scene.operators_client().await?,
            owner: json!({
                "apiVersion": "pod-reloader.github.io/v1alpha1",
                "kind": "ClusterConfigSync",
                "name": owner,
                "uid": uid,
            }),
        };
        for (index, row) in rows.iter().enumerate() {
            let namespace = match &*row.namespace {
                "" => &*shop,
                "own" => &*scene.installation.namespace,
                other => other,
            };
            let name = format!("{}-{index}{}", scene.namespace, row.suffix);
            let object = table.object(row, namespace, &name).await?;
            let path = path(&row.kind, namespace);
            let stored = post(&scene.client, &path, &object).await;
            let stored = stored.with_context(|| row.name.clone())?;
            let path = format!("{path}/{name}");
            let outcome = table.answers(row, &path, &stored).await;
            let delete = Request::delete(&*path).body(Vec::new())?;
            scene.client.request::<Value>(delete).await?;
            outcome?;
        }
        Ok(())
    })
    .await
}

struct Table<'a> {
    scene: &'a Scene,
    writer: Client,
    /// The reference to the ClusterConfigSync: the garbage collector deletes what has an owner that is not there.
    owner: Value,
}

impl Table<'_> {
    /// Returns the object of a row.
    async fn object(&self, row: &Row, namespace: &str, name: &str) -> Result<Value> {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": row.kind,
            "metadata": marks(&self.owner),
            "data": {"value": "MQ=="},
        });
        object["metadata"]["name"] = json!(name);
        if row.kind == "Secret" {
            object["type"] = json!("Opaque");
        }
        merge_patch(&mut object, &row.fields);
        if object["metadata"]["ownerReferences"] == "ROOT" {
            let root = "configmap/kube-root-ca.crt";
            let root = self.scene.object_in(namespace, root).await?["metadata"]["uid"].clone();
            object["metadata"]["ownerReferences"] = json!([
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": root},
            ]);
        }
        in_full(&object, namespace, name)
    }

    /// Waits until the answers to the writer's token are those of the row.
    async fn answers(&self, row: &Row, path: &str, stored: &Value) -> Result<()> {
        let mut copy = stored.clone();
        // Data and type stay, because some cannot change.
        merge_patch(&mut copy, &json!({"metadata": marks(&self.owner)}));
        let [namespace, name] = ["namespace", "name"].map(|field| &stored["metadata"][field]);
        let both = namespace.as_str().zip(name.as_str());
        let (namespace, name) = both.context("it has both")?;
        let copy = in_full(&copy, namespace, name)?;
        let expected = (row.may_write, row.may_delete);
        wait_for(&row.name, PATIENCE, async || {
            let may_write = self.may(Method::PUT, path, &copy).await?;
            let may_delete = self.may(Method::DELETE, path, &Value::Null).await?;
            Ok(match (may_write, may_delete) == expected {
                true => Attempt::Done(()),
                false => Attempt::NotYet(format!("write: {may_write}, delete: {may_delete}")),
            })
        })
        .await
    }

    /// Returns true if the writer may do this, and false if a policy refuses it. Nothing is done.
    async fn may(&self, method: Method, path: &str, body: &Value) -> Result<bool> {
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?dryRun=All"))
            .header("content-type", "application/json")
            .body(body)?;
        match self.writer.request::<Value>(request).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status))
                if status.message.contains("ValidatingAdmissionPolicy") =>
            {
                Ok(false)
            }
            Err(error) => Err(error).context("neither allowed nor refused by a policy"),
        }
    }
}

/// Returns the metadata of an exact copy.
fn marks(owner: &Value) -> Value {
    json!({
        "labels": {"pod-reloader.github.io/copied-from": "platform"},
        "annotations": {
            "pod-reloader.github.io/copy-of": "platform/NAME@NAMESPACE",
            "pod-reloader.github.io/seal": "SEAL",
        },
        "ownerReferences": [owner],
    })
}

/// Returns an object with everything that its placeholders stand for. To a policy, one seal is as good as another.
fn in_full(object: &Value, namespace: &str, name: &str) -> Result<Value> {
    let mut text = object.to_string();
    for seal in ["SEAL", "BEFORE", "LOST", "ELSEWHERE"] {
        text = text.replace(&format!("\"{seal}\""), &format!("\"{}\"", "0".repeat(32)));
    }
    let text = text.replace("NAMESPACE", namespace).replace("NAME", name);
    Ok(serde_json::from_str(&text)?)
}

/// Applies a merge patch: what is null there goes.
fn merge_patch(object: &mut Value, patch: &Value) {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.remove(key)),
            Value::Object(_) if object.get(key).is_some_and(Value::is_object) => {
                merge_patch(&mut object[key], value);
            }
            value => drop(object.insert(key.clone(), value.clone())),
        }
    }
}

fn path(kind: &str, namespace: &str) -> String {
    let resource = match kind {
        "Secret" => "secrets",
        _ => "configmaps",
    };
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes())?;
    Ok(client.request(request).await?)
}
