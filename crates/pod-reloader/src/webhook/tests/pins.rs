//! A write of a workload that pins: the copies are there before the answer names them.

use parking_lot::Mutex;
use pod_reloader_core::pins::CopyNames;

use super::*;

const PINS: &str = "pod-reloader.cs.sap.com/pins";

/// What becomes of a copy that the webhook asks for.
#[derive(Clone, Copy, PartialEq)]
enum Creating {
    Works,
    IsRefused,
    TakesForEver,
}

/// Returns a webhook with pins, and the copies that it has asked for.
async fn pinning(creating: Creating) -> (Router, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = service_fn(move |request: HttpRequest<kube::client::Body>| {
        let log = log.clone();
        async move {
            let (head, body) = request.into_parts();
            let (status, body) = match (head.method, head.uri.path()) {
                (Method::POST, "/api/v1/namespaces/ns/configmaps") => {
                    let body = body.collect().await.unwrap().to_bytes();
                    let copy: Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(copy["data"], config_map()["data"]);
                    assert_eq!(copy["immutable"], true);
                    log.lock()
                        .push(copy["metadata"]["name"].as_str().unwrap().to_owned());
                    match creating {
                        Creating::Works => (StatusCode::CREATED, copy),
                        Creating::IsRefused => failure(403, "Forbidden"),
                        Creating::TakesForEver => std::future::pending().await,
                    }
                }
                (_, "/api/v1/namespaces/operator/secrets/hash-keys") => {
                    (StatusCode::OK, keys_secret())
                }
                (_, "/api/v1/namespaces/ns/configmaps/app") => (StatusCode::OK, config_map()),
                _ => failure(404, "NotFound"),
            };
            let answer = HttpResponse::builder().status(status);
            let body = Full::new(Bytes::from(body.to_string()));
            Ok::<_, Infallible>(answer.body(body).unwrap())
        }
    });
    let client = Client::new(service, "operator");
    let (webhook, keys) = parts_of(client, Scope::new([], own_namespace()).and_pins(true));
    keys.read_since(Instant::now()).await.unwrap();
    (webhook.router(SwitchedOn::default()), asked)
}

fn pinned() -> Value {
    let mut object = deployment("app:1");
    object["metadata"]["annotations"]["pod-reloader.cs.sap.com/pin"] = json!("configmaps");
    object
}

fn copy() -> String {
    let app = ConfigObject::parse(config_map().to_string().as_bytes(), Aspects::default());
    let (keys, namespace) = (keys(), name("ns"));
    let names = CopyNames::new(&keys, &namespace);
    names
        .name_for(&name("app"), &app.unwrap().digest)
        .to_string()
}

async fn annotations_of(router: &Router, review: &Value) -> Value {
    let answer = reviewed(router, review).await;
    let patched = patched(&answer, &pinned());
    patched["spec"]["template"]["metadata"]["annotations"].clone()
}

#[tokio::test]
async fn the_copies_are_made_before_the_answer_names_them() {
    let (router, asked) = pinning(Creating::Works).await;
    let annotations = annotations_of(&router, &create(&pinned())).await;
    let pins = format!("app={}", copy());
    assert_eq!(annotations, json!({KEY: hash(), PINS: pins}));
    assert_eq!(*asked.lock(), [copy()]);
}

#[tokio::test]
async fn a_dry_run_makes_none_and_gets_the_same_answer() {
    let (router, asked) = pinning(Creating::Works).await;
    let mut review = create(&pinned());
    review["request"]["dryRun"] = json!(true);
    let annotations = annotations_of(&router, &review).await;
    assert_eq!(annotations[PINS], format!("app={}", copy()));
    assert_eq!(asked.lock().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_cannot_be_made_costs_the_pins_and_not_the_hash() {
    for creating in [Creating::IsRefused, Creating::TakesForEver] {
        let (router, _) = pinning(creating).await;
        let annotations = annotations_of(&router, &create(&pinned())).await;
        assert_eq!(annotations, json!({KEY: hash(), PINS: ""}));
    }
}
