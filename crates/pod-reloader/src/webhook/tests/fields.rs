//! The fields of new objects: those that cannot be filled stay as they are, and no write is refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use pod_reloader_core::field_binding::kind::BoundKind;

use super::fields::Fields;
use super::*;
use crate::live::fields::FieldReads;
use crate::mock::{self, Answer};

/// The value of the key, in base64 and as it is.
const VALUE: [&str; 2] = ["aHVudGVyMg==", "hunter2"];

/// Returns a webhook that fills the fields of Harbors, with an apiserver that answers reads of FieldBindings and of
/// their sources like this.
fn filling(
    bindings: impl Fn() -> Answer + Clone + Send + Sync + 'static,
    source: impl Fn() -> Answer + Clone + Send + Sync + 'static,
) -> Router {
    let client = mock::client(move |head, _| {
        let answer = match head.uri.path() {
            "/apis/pod-reloader.github.io/v1alpha1/namespaces/ns/fieldbindings" => bindings(),
            "/api/v1/namespaces/ns/secrets/s3" => source(),
            other => panic!("nobody asks for {other}"),
        };
        async move { answer }
    });
    let kinds = json!([
        {"group": "goharbor.io", "version": "v1beta1", "resource": "harbors", "kind": "Harbor", "fillOnCreate": true},
        {"group": "goharbor.io", "version": "v1beta1", "resource": "registries", "kind": "Registry"},
    ]);
    let mut kinds = BoundKind::parse_all(&kinds.to_string()).unwrap();
    kinds.retain(|it| it.fill_on_create);
    let scope = Scope::new([Name::parse("ns").unwrap()], own_namespace());
    let (webhook, _keys) = parts_of(client.clone(), scope);
    let fields = Fields {
        kinds: kinds.into(),
        reads: FieldReads::new(client, Budget::new()),
    };
    webhook.router(SwitchedOn {
        fields: Some(fields),
        ..SwitchedOn::default()
    })
}

fn secret() -> Answer {
    Ok(json!({"metadata": {"name": "s3", "resourceVersion": "5"}, "data": {"accesskey": VALUE[0]}}))
}

fn nothing() -> Answer {
    panic!("nothing is to be read")
}

/// Returns FieldBindings of Harbor `registry`, each with these fields, or of another target.
fn bindings(all: &[(&str, Value, Value)]) -> Value {
    let items = all.iter().map(|(name, target, fields)| {
        let mut binding = json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {
                "source": {"kind": "Secret", "name": "s3"},
                "target": {"apiVersion": "goharbor.io/v1beta1", "kind": "Harbor", "name": "registry"},
                "fields": fields,
            },
        });
        json_patch::merge(&mut binding["spec"]["target"], target);
        binding
    });
    json!({"metadata": {"resourceVersion": "9"}, "items": items.collect::<Vec<_>>()})
}

fn harbor() -> Value {
    json!({
        "apiVersion": "goharbor.io/v1beta1",
        "kind": "Harbor",
        "metadata": {"name": "registry", "namespace": "ns"},
        "spec": {"s3": {"region": "eu"}},
    })
}

/// Returns the object as it is created, and the warnings.
async fn created(router: &Router, object: &Value, request: Value) -> (Value, Vec<String>) {
    let mut review = create(object);
    json_patch::merge(&mut review["request"], &request);
    let answer = call(router, post("/fields?timeout=3s", &review.to_string())).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["response"]["allowed"], true);
    let warnings = answer["response"]["warnings"].as_array().cloned();
    let warnings = warnings.unwrap_or_default();
    let warnings = warnings.iter().filter_map(Value::as_str).map(str::to_owned);
    (patched(&answer, object), warnings.collect())
}

fn access_key() -> Value {
    json!([{"key": "accesskey", "path": "spec.s3.accesskey"}])
}

#[tokio::test]
async fn a_new_object_gets_the_values_of_its_keys_also_in_a_dry_run() {
    let other = json!({"name": "another"});
    let all = bindings(&[
        ("mine", json!({}), access_key()),
        ("of-another", other, access_key()),
    ]);
    let router = filling(move || Ok(all.clone()), secret);
    let mut expected = harbor();
    expected["spec"]["s3"]["accesskey"] = json!(VALUE[1]);
    for request in [json!({}), json!({"dryRun": true})] {
        let created = created(&router, &harbor(), request).await;
        assert_eq!(created, (expected.clone(), vec![]));
    }
}

#[tokio::test]
async fn a_new_object_that_is_too_deep_to_be_built_is_filled() {
    let all = bindings(&[("mine", json!({}), access_key())]);
    let router = filling(move || Ok(all.clone()), secret);
    let mut object = harbor();
    object["spec"]["deep"] = (0..200).fold(json!(0), |inner, _| json!([inner]));
    let (filled, warnings) = created(&router, &object, json!({})).await;
    assert_eq!(filled["spec"]["s3"]["accesskey"], VALUE[1]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[tokio::test]
async fn what_cannot_be_filled_is_said_without_a_value() {
    let fields = json!([
        {"key": "accesskey", "path": "spec.s3.accesskey"},
        {"key": "accesskey", "path": "spec.s3.port", "as": "Integer"},
        {"key": "accesskey", "path": "spec.gcs.key"},
        {"key": "bucket", "path": "spec.s3.bucket"},
    ]);
    let all = bindings(&[("mine", json!({}), fields)]);
    let there = all.clone();
    let (filled, warnings) = created(
        &filling(move || Ok(there.clone()), secret),
        &harbor(),
        json!({}),
    )
    .await;
    assert_eq!(filled["spec"]["s3"]["accesskey"], VALUE[1]);
    let expected = [
        "spec.s3.port is not filled (InvalidValue)",
        "spec.gcs.key is not filled (PathNotFound)",
        "spec.s3.bucket is not filled (KeyNotFound)",
    ];
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.contains(expected), "{warning}");
        assert!(!VALUE.iter().any(|it| warning.contains(it)), "{warning}");
    }
    assert_eq!(warnings.len(), expected.len());
    let gone = filling(move || Ok(all.clone()), || Err((404, "NotFound")));
    let (left, warnings) = created(&gone, &harbor(), json!({})).await;
    assert_eq!(left, harbor());
    assert!(warnings[0].contains("(SourceNotFound)"), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_filled_and_refuses_no_write() {
    let all = bindings(&[("mine", json!({}), access_key())]);
    let unreadable = filling(move || Ok(all.clone()), || Err((403, "Forbidden")));
    let (left, warnings) = created(&unreadable, &harbor(), json!({})).await;
    assert_eq!(left, harbor());
    assert!(
        warnings[0].contains("spec.s3.accesskey is not filled (Failed)"),
        "{warnings:?}"
    );
    let unlisted = filling(|| Err((500, "InternalError")), nothing);
    let (left, warnings) = created(&unlisted, &harbor(), json!({})).await;
    assert_eq!(left, harbor());
    assert!(
        warnings[0].contains("cannot tell which fields"),
        "{warnings:?}"
    );
}

/// The values are for the apiserver only, so nothing is read for what it does not send.
#[tokio::test]
async fn nothing_is_read_for_an_object_whose_fields_are_not_filled() {
    let router = filling(nothing, nothing);
    let with = |fields: Value| {
        let mut object = harbor();
        json_patch::merge(&mut object, &fields);
        object
    };
    for (object, request) in [
        (harbor(), json!({"operation": "UPDATE"})),
        (harbor(), json!({"subResource": "status"})),
        (harbor(), json!({"namespace": "elsewhere"})),
        (harbor(), json!({"namespace": "../ns"})),
        (with(json!({"kind": "Registry"})), json!({})),
        (
            with(json!({"apiVersion": "goharbor.io/v1alpha3"})),
            json!({}),
        ),
        (
            with(json!({"metadata": {"name": null, "generateName": "r-"}})),
            json!({}),
        ),
        (json!({"kind": "Harbor"}), json!({})),
        (json!([1]), json!({})),
    ] {
        let left = created(&router, &object, request.clone()).await;
        assert_eq!(left, (object, vec![]), "{request}");
    }
}

#[tokio::test]
async fn a_large_object_is_filled_beside_the_others_and_only_by_some_bindings() {
    let names: Vec<_> = (0..20).map(|at| format!("b{at:02}")).collect();
    let all = names.iter().enumerate().map(|(at, name)| {
        let path = format!("spec.s3.f{at:02}");
        (
            &**name,
            json!({}),
            json!([{"key": "accesskey", "path": path}]),
        )
    });
    let all = bindings(&all.collect::<Vec<_>>());
    let router = filling(move || Ok(all.clone()), secret);
    let mut large = harbor();
    large["spec"]["text"] = json!("x".repeat(LARGE_REVIEW));
    let (filled, warnings) = created(&router, &large, json!({})).await;
    let filled = filled["spec"]["s3"].as_object().unwrap();
    assert_eq!(filled.len(), 1 + 16, "{:?}", filled.keys());
    assert!(warnings[0].contains("only the 16 oldest"), "{warnings:?}");
}

#[tokio::test]
async fn so_many_bindings_that_listing_them_takes_too_long_are_not_all_listed() {
    let names: Vec<_> = (0..500).map(|at| format!("b{at:03}")).collect();
    let all = names.iter().map(|it| (&**it, json!({}), access_key()));
    let mut page = bindings(&all.collect::<Vec<_>>());
    page["metadata"]["continue"] = json!("more");
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = pages.clone();
    let listed = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(page.clone())
    };
    let (left, warnings) = created(&filling(listed, nothing), &harbor(), json!({})).await;
    assert_eq!(left, harbor());
    assert!(warnings[0].contains("more than 2000"), "{warnings:?}");
    assert_eq!(pages.load(Ordering::Relaxed), 4);
}
