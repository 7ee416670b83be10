//! The policies bind the operator and the writer to objects that they would call their own: each row of the table that
//! their rules are tested with.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::{Method, Request};
use kube::Client;
use pod_reloader_e2e::{PATIENCE, Scene, done_if, wait_for};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sync::{Namespaces, applied_sync, copying, name_of, play, read_sync, source};

/// The part of the table that this test reads. Its form is told where the rules are tested.
#[derive(Deserialize)]
struct Table {
    exact: BTreeMap<String, Value>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    #[serde(default = "sync_purpose")]
    purpose: String,
    #[serde(default, rename = "in")]
    namespace: String,
    #[serde(default = "us")]
    managers: Vec<String>,
    #[serde(default)]
    fields: Value,
    may_write: Option<bool>,
    may_delete: bool,
}

fn sync_purpose() -> String {
    "sync".to_owned()
}

fn us() -> Vec<String> {
    vec!["pod-reloader".to_owned()]
}

#[tokio::test]
async fn the_policies_allow_what_the_table_of_marks_says() -> Result<()> {
    let table = include_str!("../../../crates/pod-reloader-core/tests/marks.json");
    let Table { exact, mut rows } = serde_json::from_str(table)?;
    // What is refused comes first, and waits until the policies are in force.
    rows.sort_by_key(|row| (row.may_write == Some(true), row.may_delete));
    let values = json!({"pin": {"enabled": true}, "protect": {"enabled": true}});
    play(copying(values), async |scene| {
        let shop = Namespaces::of(scene).create("shop", false).await?;
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        scene.operator.stop().await;
        scene.other()?.stop().await;
        let owner = name_of(&ours)?;
        let uid = read_sync(scene, owner).await?["metadata"]["uid"].clone();
        let marks = Marks {
            scene,
            clients: Clients::of(scene).await?,
            exact,
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
            let place = Place {
                namespace,
                name: format!("{}-{index}", scene.namespace),
            };
            let stored = marks.store(row, &place).await;
            let (path, stored) = stored.with_context(|| row.name.clone())?;
            let outcome = marks.answers(row, &place, &path, &stored).await;
            let delete = Request::delete(&*path).body(Vec::new())?;
            scene.client.request::<Value>(delete).await?;
            outcome?;
        }
        Ok(())
    })
    .await
}

/// What the placeholders for names stand for in an object.
struct Place<'a> {
    namespace: &'a str,
    name: String,
}

/// The clients of the processes that write objects with marks.
struct Clients {
    writer: Client,
    operator: Client,
}

impl Clients {
    async fn of(scene: &Scene) -> Result<Self> {
        Ok(Self {
            writer: scene.operators_client().await?,
            operator: scene.client_of(scene.others_installation()?).await?,
        })
    }

    /// Returns the client of the process that writes objects of this purpose.
    fn writing(&self, purpose: &str) -> &Client {
        match purpose {
            "sync" => &self.writer,
            _ => &self.operator,
        }
    }
}

struct Marks<'a> {
    scene: &'a Scene,
    clients: Clients,
    /// The exact objects, by their purpose.
    exact: BTreeMap<String, Value>,
    /// The reference to the ClusterConfigSync: the garbage collector deletes what has an owner that is not there.
    owner: Value,
}

impl Marks<'_> {
    /// Creates the object of a row, and writes it again for each further manager. Returns its path and the object.
    async fn store(&self, row: &Row, place: &Place<'_>) -> Result<(String, Value)> {
        let mut object = self.exact(&row.purpose)?.clone();
        merge_patch(&mut object, &row.fields);
        let object = self.in_full(object, place).await?;
        let resource = match object["kind"].as_str() {
            Some("Secret") => "secrets",
            _ => "configmaps",
        };
        let all = format!("/api/v1/namespaces/{}/{resource}", place.namespace);
        let name = object["metadata"]["name"].as_str();
        let path = format!("{all}/{}", name.context("it has a name")?);
        let (first, others) = row
            .managers
            .split_first()
            .context("nobody has written it")?;
        let client = &self.scene.client;
        let create = Request::post(format!("{all}?fieldManager={first}"));
        let create = create.header("content-type", "application/json");
        let create = create.body(object.to_string().into_bytes())?;
        let mut stored = client.request(create).await?;
        for manager in others {
            let patch = Request::patch(format!("{path}?fieldManager={manager}"));
            let patch = patch.header("content-type", "application/merge-patch+json");
            let more = json!({"data": {"more": "x"}}).to_string().into_bytes();
            stored = client.request(patch.body(more)?).await?;
        }
        Ok((path, stored))
    }

    /// Waits until the answers to the process that writes such objects are those of the row.
    async fn answers(
        &self,
        row: &Row,
        place: &Place<'_>,
        path: &str,
        stored: &Value,
    ) -> Result<()> {
        let client = self.clients.writing(&row.purpose);
        let mut copy = stored.clone();
        // Data and type stay, because some cannot change.
        let marks = &self.exact(&row.purpose)?["metadata"];
        merge_patch(&mut copy, &json!({"metadata": marks}));
        copy["metadata"]["name"] = stored["metadata"]["name"].clone();
        let copy = self.in_full(copy, place).await?;
        let expected = (row.may_write, row.may_delete);
        wait_for(&row.name, PATIENCE, async || {
            let may_write = match row.may_write {
                Some(_) => Some(may(client, Method::PUT, path, &copy).await?),
                None => None,
            };
            let may_delete = may(client, Method::DELETE, path, &Value::Null).await?;
            done_if(
                (may_write, may_delete) == expected,
                format!("write: {may_write:?}, delete: {may_delete}"),
            )
        })
        .await
    }

    fn exact(&self, purpose: &str) -> Result<&Value> {
        let exact = self.exact.get(purpose);
        exact.with_context(|| format!("{purpose} is not a purpose"))
    }

    /// Returns an object with everything that its placeholders stand for. To a policy, one seal is as good as another.
    async fn in_full(&self, mut object: Value, place: &Place<'_>) -> Result<Value> {
        match object["metadata"]["ownerReferences"].as_str() {
            Some("OWNER") => object["metadata"]["ownerReferences"] = json!([self.owner]),
            Some("ROOT") => {
                let root = "configmap/kube-root-ca.crt";
                let root = self.scene.object_in(place.namespace, root).await?;
                object["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "kube-root-ca.crt",
                    "uid": root["metadata"]["uid"],
                }]);
            }
            _ => {}
        }
        let mut text = object.to_string();
        for seal in ["SEAL", "BEFORE", "LOST", "ELSEWHERE", "ZEROS"] {
            text = text.replace(&format!("\"{seal}\""), &format!("\"{}\"", "0".repeat(32)));
        }
        let text = text
            .replace("NAMESPACE", place.namespace)
            .replace("NAME", &place.name)
            .replace("PLAIN", "0123456789");
        Ok(serde_json::from_str(&text)?)
    }
}

/// Returns true if a process may do this, and false if a policy refuses it. Nothing is done.
async fn may(client: &Client, method: Method, path: &str, body: &Value) -> Result<bool> {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?dryRun=All"))
        .header("content-type", "application/json")
        .body(body)?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => {
            Ok(false)
        }
        Err(error) => Err(error).context("neither allowed nor refused by a policy"),
    }
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
