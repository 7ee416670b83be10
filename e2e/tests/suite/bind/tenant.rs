//! One tenant has many FieldBindings, long ones, and custom resources full of tiny items. The writer takes little memory
//! for them, and goes on with the FieldBindings of others.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use http::{Request, header::CONTENT_TYPE};
use pod_reloader_e2e::proxy::Selection;
use pod_reloader_e2e::{
    Attempt, Options, PATIENCE, Scene, THIS_NAMESPACE, done_if, full, merge, wait_for,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fields::{STORES, bind, has, secret, store};
use super::{binding_fields, with_definitions};

/// The memory that the writer takes beside a namespace full of FieldBindings, in bytes.
const LITTLE: usize = 72 << 20;
/// The maximum length of a path.
const LONGEST_PATH: usize = 256;
/// The maximum number of fields of a FieldBinding.
const MOST_FIELDS: usize = 64;
/// The path of FieldBindings in the API.
const BINDINGS: &str = "/apis/pod-reloader.github.io/v1alpha1/fieldbindings";
/// The Secret of the tenant, and the one of the user.
const CREDS: &str = "creds";
/// The Stores of the tenant that are nearly as large as etcd allows.
static LARGE: [Large; 2] = [
    Large {
        list: "items",
        field: "a",
        item: r#"{"a":0}"#,
        count: 160_000,
    },
    Large {
        list: "users",
        field: "name",
        item: r#"{"name":"a"}"#,
        count: 100_000,
    },
];

#[tokio::test]
async fn one_namespace_full_of_bindings_takes_little_memory_and_stops_nobody_elsewhere()
-> Result<()> {
    let values = json!({
        "watch": {"namespaceSelector": {"matchLabels": {"binding-tenants": THIS_NAMESPACE}}},
    });
    let options = Options {
        everywhere: true,
        // Otherwise it would also bind the fields of other tests.
        selection: Some(Selection::new(BINDINGS, format!("scene={THIS_NAMESPACE}"))),
        namespace_labels: vec![format!("binding-tenants={THIS_NAMESPACE}")],
        ..binding_fields(values)
    };
    Scene::play(options, async |scene| {
        with_definitions(&scene.control_plane).await?;
        let user = bind("user", CREDS, "store", fields(["spec.password".to_owned()]));
        scene
            .apply(&[store("store", json!({})), of_scene(scene, user)])
            .await?;
        put_creds(scene, &scene.namespace, "alone").await?;
        has(scene, STORES, "store", "/spec/password", json!("alone")).await?;
        let test = async |tenant: &str| {
            fill(scene, tenant).await?;
            let beside = change(scene, tenant, "beside").await?;
            took_little(scene, beside)?;

            // A writer that starts lists everything that exists at once.
            scene.operator.restart().await?;
            let restarted = change(scene, tenant, "restarted").await?;
            leaves_bindings_out(scene).await?;
            took_little(scene, restarted)
        };
        scene.with_namespace("eve", test).await
    })
    .await
}

/// Fills a namespace with large Stores and their FieldBindings, with tiny FieldBindings that use different objects, and
/// with more long ones than there is room for.
async fn fill(scene: &Scene, tenant: &str) -> Result<()> {
    let count = |whole: usize, part: usize| if full() { whole } else { part };
    put_creds(scene, tenant, "first").await?;
    try_join_all(large_stores().map(|large| large.create(scene, tenant))).await?;
    let large = large_stores().map(Large::binding);
    let tiny = (0..count(2_000, 300)).map(|number| {
        let source = format!("source-{number}");
        let target = format!("target-{number}");
        let password = fields(["spec.password".to_owned()]);
        bind(&format!("tiny-{number}"), &source, &target, password)
    });
    let wide = (0..count(600, 300)).map(|number| {
        let paths = (0..[16, 32, MOST_FIELDS][number % 3]).map(deep_path);
        let target = format!("absent-{number}");
        bind(&format!("wide-{number}"), CREDS, &target, fields(paths))
    });
    // There is room for the first ones, in this order and in that of their names.
    let all = large.chain(tiny).chain(wide);
    let all: Vec<_> = all.map(|binding| of_scene(scene, binding)).collect();
    scene.put_all_in(tenant, &all).await
}

/// Returns the Stores of the tenant that are nearly as large as etcd allows: at full size all of them. For the apiserver,
/// each write of one is some seconds of work.
fn large_stores() -> impl Iterator<Item = &'static Large> {
    LARGE.iter().take(if full() { LARGE.len() } else { 1 })
}

/// Changes the keys of the tenant and of the user. Returns the time until the user's field has its value. The fields of
/// the tenant's large Stores have theirs, too, in the end.
async fn change(scene: &Scene, tenant: &str, value: &str) -> Result<Duration> {
    put_creds(scene, tenant, value).await?;
    let began = Instant::now();
    put_creds(scene, &scene.namespace, value).await?;
    has(scene, STORES, "store", "/spec/password", json!(value)).await?;
    let took = began.elapsed();
    for large in large_stores() {
        large.has_password(scene, tenant, value).await?;
    }
    Ok(took)
}

async fn put_creds(scene: &Scene, namespace: &str, value: &str) -> Result<()> {
    let creds = secret(CREDS, json!({"password": value}));
    scene.put_all_in(namespace, &[creds]).await
}

/// Asserts that the writer has taken little memory since it was started.
fn took_little(scene: &Scene, change: Duration) -> Result<()> {
    let peak = scene.operator.process().peak_memory()?;
    eprintln!("a change took {change:?}, {} MiB at most", peak >> 20);
    ensure!(peak < LITTLE, "{} MiB", peak >> 20);
    Ok(())
}

/// Waits until the writer shows that there was no room for some FieldBindings.
async fn leaves_bindings_out(scene: &Scene) -> Result<()> {
    let name = r#"pod_reloader_field_bindings{reason="NamespaceTooLarge"} "#;
    wait_for("FieldBindings to be left out", PATIENCE, async || {
        let metrics = scene.operator.metrics().await?;
        let count = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(match count {
            None | Some("0") => Attempt::NotYet(format!("{count:?}")),
            Some(_) => Attempt::Done(()),
        })
    })
    .await
}

/// A Store with a list of tiny items.
struct Large {
    /// The name of the list, and of the Store.
    list: &'static str,
    /// The field of each item.
    field: &'static str,
    /// An item, as JSON.
    item: &'static str,
    /// The number of items.
    count: usize,
}

impl Large {
    /// Creates the Store. It is sent as text: the test, too, would need many times its size for a value of it.
    async fn create(&self, scene: &Scene, tenant: &str) -> Result<()> {
        let name = self.list;
        let items = vec![self.item; self.count].join(",");
        let object = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Store","metadata":{{"name":"{name}"}},"spec":{{"{name}":[{items}]}}}}"#
        );
        let create = Request::post(stores(tenant)).header(CONTENT_TYPE, "application/json");
        let create = create.body(object.into_bytes())?;
        scene.client.request_text(create).await?;
        Ok(())
    }

    /// Returns a FieldBinding of its password, and of many items that it does not have.
    fn binding(&self) -> Value {
        let password = ["spec.password".to_owned()].into_iter();
        let items = (1..MOST_FIELDS).map(|item| self.path(item));
        let name = format!("large-{}", self.list);
        bind(&name, CREDS, self.list, fields(password.chain(items)))
    }

    /// Returns the path of a field of an item that it does not have.
    fn path(&self, item: usize) -> String {
        let before = format!("spec.{}[{}=", self.list, self.field);
        let after = "].password";
        let width = LONGEST_PATH - before.len() - after.len();
        format!("{before}{item:0>width$}{after}")
    }

    /// Waits until its password has this value.
    async fn has_password(&self, scene: &Scene, tenant: &str, value: &str) -> Result<()> {
        let password = format!(r#""password":"{value}""#);
        let url = format!("{}/{}", stores(tenant), self.list);
        let what = format!("the password of Store {} to be {value}", self.list);
        wait_for(&what, PATIENCE, async || {
            let get = Request::get(&url).body(Vec::new())?;
            let object = scene.client.request_text(get).await?;
            done_if(
                object.contains(&password),
                format!("it is not in {} bytes", object.len()),
            )
        })
        .await
    }
}

/// Returns the path of the Stores of a namespace in the API.
fn stores(namespace: &str) -> String {
    format!("/apis/example.com/v1/namespaces/{namespace}/{STORES}")
}

/// Returns a path with as many steps as there may be.
fn deep_path(number: usize) -> String {
    let steps = format!(".{}", "a".repeat(15)).repeat(15);
    format!("spec{steps}.f{number:02}")
}

/// Returns the fields of a FieldBinding that get the password at these paths.
fn fields(paths: impl IntoIterator<Item = String>) -> Value {
    let field = |path: String| json!({"key": "password", "path": path});
    paths.into_iter().map(field).collect()
}

/// Returns a FieldBinding that the operator of the scene sees.
fn of_scene(scene: &Scene, mut binding: Value) -> Value {
    let labels = json!({"metadata": {"labels": {"scene": scene.namespace}}});
    merge(&mut binding, &labels);
    binding
}
