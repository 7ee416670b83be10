//! Tests of what the tests of faults take for granted about the fault proxy.

use std::{
    env,
    pin::Pin,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use pod_reloader_e2e::{
    CONTROL_PLANE_VARIABLE, Component, ControlPlane, ControlPlaneOptions, PATIENCE,
    proxy::{Answer, Fault, Proxy, Requests, Rule, RuleInForce, Selection, error_event},
    wait_for,
};
use serde_json::json;
use tokio::{sync::Mutex, time::timeout};

#[tokio::test]
async fn kubectl_creates_and_gets_through_the_proxy() -> Result<()> {
    let setup = Setup::new().await?;
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    setup
        .proxy
        .kubeconfig_for(setup.token.clone())
        .write(&kubeconfig)?;
    let kubectl = setup.control_plane.kubectl().with_kubeconfig(kubeconfig);
    let posts = setup.add(Rule::count(setup.config_maps().method(Method::POST)));
    let namespace = format!("--namespace={}", setup.namespace);

    kubectl
        .run(&[
            "create",
            "configmap",
            "app",
            "--from-literal=key=value",
            &namespace,
        ])
        .await?;
    let value = kubectl
        .run(&[
            "get",
            "configmap",
            "app",
            "--output=jsonpath={.data.key}",
            &namespace,
        ])
        .await?;

    assert_eq!(value, "value");
    assert_eq!(posts.hits().matched, 1);
    Ok(())
}

#[tokio::test]
async fn the_apiserver_sees_the_service_account() -> Result<()> {
    let setup = Setup::new().await?;
    let reviews: Api<SelfSubjectReview> = Api::all(setup.client.clone());

    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;

    let user = review.status.and_then(|status| status.user_info?.username);
    let expected = format!("system:serviceaccount:{}:default", setup.namespace);
    assert_eq!(user, Some(expected));
    Ok(())
}

#[tokio::test]
async fn a_large_object_passes_in_an_answer_and_in_a_watch() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let value = "x".repeat(900_000);
    let large = serde_json::from_value(json!({
        "metadata": { "name": "large" }, "data": { "key": value },
    }))?;

    setup.through.create(&PostParams::default(), &large).await?;

    let data = |object: ConfigMap| object.data.unwrap_or_default()["key"].len();
    assert_eq!(data(setup.through.get("large").await?), value.len());
    assert_eq!(data(next(&mut watch).await?), value.len());
    Ok(())
}

#[tokio::test]
async fn a_selection_shows_lists_and_watches_only_the_objects_with_its_label() -> Result<()> {
    let setup = Setup::new().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", setup.namespace);
    let selection = Selection::new(path, "scene=shop");
    let proxy = Proxy::start_with(&setup.control_plane, Some(selection)).await?;
    let client = proxy.kubeconfig_for(setup.token.clone()).client().await?;
    let through: Api<ConfigMap> = Api::namespaced(client, &setup.namespace);
    setup.create("other").await?;
    setup.create_labelled("a").await?;

    let listed = through.list(&ListParams::default()).await?;
    let version = listed.metadata.resource_version.clone();
    let version = version.context("a list has a version")?;
    let mut watch: Watch = Box::pin(through.watch(&WatchParams::default(), &version).await?);
    setup.create("another").await?;
    setup.create_labelled("b").await?;

    let names: Vec<_> = listed
        .iter()
        .filter_map(|it| it.metadata.name.as_deref())
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(next_name(&mut watch).await?, "b");
    through.get("other").await?;
    Ok(())
}

#[tokio::test]
async fn a_delayed_watch_is_late_and_in_order_while_a_get_is_prompt() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let delay = Duration::from_secs(6);
    setup.add(Rule::new(setup.config_maps(), Fault::DelayWatch(delay)));

    let start = Instant::now();
    setup.create("a").await?;
    setup.create("b").await?;
    setup.through.get("b").await?;
    let got = start.elapsed();
    let names = [next_name(&mut watch).await?, next_name(&mut watch).await?];
    let watched = start.elapsed();

    assert_eq!(names, ["a", "b"]);
    assert!(got < delay, "the GET took {got:?}");
    assert!(watched >= delay, "the watch took {watched:?}");
    Ok(())
}

#[tokio::test]
async fn a_delay_that_is_removed_keeps_nothing_back() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let hour = Duration::from_secs(60 * 60);
    let late = setup.add(Rule::new(setup.config_maps(), Fault::DelayWatch(hour)));
    let slow = setup.add(Rule::new(setup.config_maps(), Fault::Delay(hour)));
    setup.create("a").await?;
    late.applied(1, PATIENCE).await?;

    let remove = async {
        slow.applied(1, PATIENCE).await?;
        setup.proxy.clear();
        anyhow::Ok(())
    };
    let get = async { Ok(timeout(PATIENCE, setup.through.get("a")).await??) };
    tokio::try_join!(get, remove)?;

    assert_eq!(next_name(&mut watch).await?, "a");
    Ok(())
}

#[tokio::test]
async fn held_lines_of_a_watch_come_in_order_on_release() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let hold = setup.add(Rule::new(setup.config_maps(), Fault::HoldWatch).times(1));
    setup.create("a").await?;
    setup.create("b").await?;
    hold.applied(1, PATIENCE).await?;
    let early = timeout(Duration::from_millis(200), watch.next()).await;

    hold.remove();

    assert!(early.is_err(), "{early:?}");
    assert_eq!(next_name(&mut watch).await?, "a");
    assert_eq!(next_name(&mut watch).await?, "b");
    Ok(())
}

#[tokio::test]
async fn a_hold_on_one_watch_leaves_the_others_and_the_lists_alone() -> Result<()> {
    let setup = Setup::new().await?;
    setup.add(Rule::new(setup.secrets(), Fault::HoldWatch));
    let mut watch = setup.watch().await?;

    setup.create("a").await?;
    let secrets: Api<Secret> = Api::namespaced(setup.client.clone(), &setup.namespace);
    timeout(PATIENCE, secrets.list(&ListParams::default())).await??;

    assert_eq!(next_name(&mut watch).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a_watch_loses_only_the_lines_that_a_rule_names() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let lose = Rule::new(setup.config_maps(), Fault::DropWatch).lines_with("\"name\":\"a\"");
    setup.add(lose);

    setup.create("a").await?;
    setup.create("b").await?;

    assert_eq!(next_name(&mut watch).await?, "b");
    Ok(())
}

#[tokio::test]
async fn a_watch_repeats_every_line_while_a_rule_says_so() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    setup.add(Rule::new(setup.config_maps(), Fault::DuplicateWatch).times(1));

    setup.create("a").await?;
    setup.create("b").await?;

    for name in ["a", "a", "b"] {
        assert_eq!(next_name(&mut watch).await?, name);
    }
    Ok(())
}

#[tokio::test]
async fn an_injected_line_overtakes_held_lines() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;
    let hold = setup.add(Rule::new(setup.config_maps(), Fault::HoldWatch));
    setup.create("a").await?;
    hold.applied(1, PATIENCE).await?;

    let watches = setup
        .proxy
        .inject(&setup.config_maps(), error_event(StatusCode::GONE));

    assert_eq!(watches, 1);
    match timeout(PATIENCE, watch.next()).await? {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => bail!("{other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn a_watch_that_is_cut_fails() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;

    let watches = setup.proxy.cut(&setup.config_maps());

    assert_eq!(watches, 1);
    let end = timeout(PATIENCE, watch.next()).await?;
    assert!(matches!(end, Some(Err(_))), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn a_watch_that_its_client_leaves_is_no_longer_open() -> Result<()> {
    let setup = Setup::new().await?;
    setup.add(Rule::new(setup.config_maps(), Fault::HoldWatch));
    let watch = setup.watch().await?;
    assert_eq!(setup.proxy.open_watches(&setup.config_maps()), 1);

    drop(watch);

    wait_for("the end of the watch", PATIENCE, async || {
        Ok(match setup.proxy.open_watches(&Requests::any()) {
            0 => Ok(()),
            open => Err(anyhow::anyhow!("{open} are open")),
        }
        .into())
    })
    .await
}

#[tokio::test]
async fn one_secret_is_forbidden_and_the_next_is_not() -> Result<()> {
    let setup = Setup::new().await?;
    let path = format!("/api/v1/namespaces/{}/secrets/one", setup.namespace);
    let forbidden = Answer::error(StatusCode::FORBIDDEN);
    setup.add(Rule::new(Requests::exactly(path), Fault::Answer(forbidden)));
    let secrets: Api<Secret> = Api::namespaced(setup.client.clone(), &setup.namespace);

    let one = secrets.get("one").await.expect_err("a rule forbids it");
    let other = secrets.get("other").await.expect_err("there is none");

    assert_eq!(reason(&one), "Forbidden");
    assert_eq!(reason(&other), "NotFound");
    Ok(())
}

#[tokio::test]
async fn an_answer_has_its_headers_and_comes_for_a_write_too() -> Result<()> {
    let setup = Setup::new().await?;
    let slow_down = Answer::error(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "30");
    setup.add(Rule::new(setup.config_maps(), Fault::Answer(slow_down)));
    let request = http::Request::post(format!("/api/v1/namespaces/{}/configmaps", setup.namespace))
        .body(kube::client::Body::from(vec![b' '; 1_000_000]))?;

    let answer = setup.client.send(request).await?;

    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()["retry-after"], "30");
    Ok(())
}

#[tokio::test]
async fn a_hanging_request_ends_by_the_deadline_of_its_client_and_keeps_nobody_waiting()
-> Result<()> {
    let setup = Setup::new().await?;
    setup.create("a").await?;
    let hang = setup.add(Rule::new(setup.config_maps(), Fault::Hang).times(1));

    let deadline = Duration::from_secs(10);
    let hanging = timeout(deadline, setup.through.get("a"));
    let others = async {
        let start = Instant::now();
        hang.applied(1, PATIENCE).await?;
        setup.through.get("a").await?;
        anyhow::Ok(start.elapsed())
    };
    let (hanging, others) = tokio::join!(hanging, others);

    assert!(hanging.is_err(), "{hanging:?}");
    let others = others?;
    assert!(others < deadline, "the other GET took {others:?}");
    Ok(())
}

#[tokio::test]
async fn a_reset_request_has_not_happened_and_the_next_one_works() -> Result<()> {
    let setup = Setup::new().await?;
    let posts = setup.config_maps().method(Method::POST);
    setup.add(Rule::new(posts, Fault::Reset).times(1));

    setup.loses_connection().await?;

    assert!(setup.through.get_opt("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_request_that_loses_its_answer_has_happened() -> Result<()> {
    let setup = Setup::new().await?;
    let posts = setup.config_maps().method(Method::POST);
    setup.add(Rule::new(posts, Fault::LoseAnswer).times(1));

    setup.loses_connection().await?;

    setup.through.get("a").await?;
    Ok(())
}

#[tokio::test]
async fn a_delayed_answer_shows_the_earlier_state() -> Result<()> {
    let setup = Setup::new().await?;
    let lists = setup.config_maps().except_watches();
    let slow =
        setup.add(Rule::new(lists, Fault::DelayAnswer(Duration::from_secs(60 * 60))).times(1));
    let audit_log = setup.control_plane.audit_log().await?;
    let began = audit_log.end()?;

    let change = async {
        wait_for("the answer of the apiserver", PATIENCE, async || {
            let events = audit_log.naming(&setup.namespace, began).await?;
            let mut lists = events.iter().filter(|event| event.verb == "list");
            let is_answered = lists.any(|event| event.uri.contains("metadata.name%3Da"));
            Ok(is_answered.then_some(()).context("not there yet").into())
        })
        .await?;
        setup.create("a").await?;
        slow.remove();
        anyhow::Ok(())
    };
    let parameters = ListParams::default().fields("metadata.name=a");
    let list = async { Ok(setup.through.list(&parameters).await?) };
    let (listed, ()) = tokio::try_join!(list, change)?;

    assert_eq!(listed.items.len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_truncated_body_ends_after_exactly_so_many_bytes() -> Result<()> {
    let setup = Setup::new().await?;
    let value = "x".repeat(900_000);
    let large = serde_json::from_value(json!({
        "metadata": { "name": "large" }, "data": { "key": value },
    }))?;
    setup.through.create(&PostParams::default(), &large).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps/large", setup.namespace);

    for bytes in [0, 10, 500_000] {
        let fault = Fault::TruncateBody(bytes);
        setup.add(Rule::new(Requests::exactly(&path), fault).times(1));
        let request = http::Request::get(&path).body(kube::client::Body::empty())?;
        let mut body = setup.client.send(request).await?.into_body();
        let mut received = 0;
        let end = loop {
            match timeout(PATIENCE, body.frame()).await? {
                Some(Ok(frame)) => received += frame.into_data().unwrap_or_default().len(),
                end => break end,
            }
        };

        assert_eq!(received, bytes);
        assert!(matches!(end, Some(Err(_))), "{end:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_rule_counts_matching_requests_even_if_another_rule_answers_them() -> Result<()> {
    let setup = Setup::new().await?;
    let forbidden = Fault::Answer(Answer::error(StatusCode::FORBIDDEN));
    let answer = setup.add(Rule::new(setup.config_maps(), forbidden).every_nth(2));
    let gets = setup.add(Rule::count(setup.config_maps().method(Method::GET)));
    let posts = setup.add(Rule::count(setup.config_maps().method(Method::POST)));

    let mut answers = Vec::new();
    for _ in 0..4 {
        let error = setup.through.get("none").await.expect_err("there is none");
        answers.push(reason(&error));
    }

    assert_eq!(answers, ["NotFound", "Forbidden", "NotFound", "Forbidden"]);
    assert_eq!((answer.hits().matched, answer.hits().applied), (4, 2));
    assert_eq!((gets.hits().matched, gets.hits().applied), (4, 2));
    assert_eq!(posts.hits().matched, 0);
    Ok(())
}

/// Restarts the apiserver, in a test that has a control plane of its own.
pub(crate) async fn the_client_sees_the_apiserver_go_and_come_back(
    own: &Arc<ControlPlane>,
) -> Result<()> {
    let setup = Setup::on(Arc::clone(own)).await?;
    let mut watch = setup.watch().await?;
    let apiserver = own.process(Component::Apiserver)?;

    apiserver.kill().await;
    let end = timeout(PATIENCE, watch.next()).await?;
    let gone = setup.through.get_opt("a").await;
    apiserver.start_again()?;
    own.ready(Component::Apiserver).await?;

    // kube-rs treats a connection that breaks as the end of the watch.
    assert!(matches!(end, None | Some(Err(_))), "{end:?}");
    assert!(gone.is_err(), "{gone:?}");
    setup.through.get_opt("a").await?;
    Ok(())
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections() -> Result<()> {
    let setup = Setup::new().await?;
    let mut watch = setup.watch().await?;

    drop(setup.proxy);

    let end = timeout(PATIENCE, watch.next()).await?;
    assert!(matches!(end, None | Some(Err(_))), "{end:?}");
    assert!(setup.through.get_opt("a").await.is_err());
    Ok(())
}

/// A namespace, and a proxy for its service account.
struct Setup {
    proxy: Proxy,
    namespace: String,
    token: String,
    /// Client of the service account, through the proxy.
    client: Client,
    /// ConfigMaps, through the proxy.
    through: Api<ConfigMap>,
    /// ConfigMaps, without a proxy.
    direct: Api<ConfigMap>,
    control_plane: Arc<ControlPlane>,
}

impl Setup {
    /// Asserts that the connection is reset when ConfigMap `a` is created.
    async fn loses_connection(&self) -> Result<()> {
        let params = PostParams::default();
        let created = self.through.create(&params, &config_map("a")?).await;
        let error = chain(&created.expect_err("its connection is reset"));
        assert!(error.contains("Connection reset"), "{error}");
        Ok(())
    }

    /// Adds a rule to the proxy.
    fn add(&self, rule: Rule) -> RuleInForce {
        self.proxy.add(rule)
    }

    async fn new() -> Result<Self> {
        Self::on(control_plane().await?).await
    }

    async fn on(control_plane: Arc<ControlPlane>) -> Result<Self> {
        let admin = control_plane.admin_client().await?;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        let namespace =
            serde_json::from_value(json!({ "metadata": { "generateName": "proxy-" } }))?;
        let namespace = namespaces
            .create(&PostParams::default(), &namespace)
            .await?
            .metadata
            .name
            .context("the apiserver gives a name")?;
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), &namespace);
        let binding = serde_json::from_value(json!({
            "metadata": { "name": "edit" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": namespace }],
        }))?;
        bindings.create(&PostParams::default(), &binding).await?;
        let token = wait_for("the default service account", PATIENCE, async || {
            Ok(control_plane
                .service_account_token(&namespace, "default")
                .await
                .into())
        })
        .await?;

        let proxy = Proxy::start(&control_plane).await?;
        let client = proxy.kubeconfig_for(token.clone()).client().await?;
        let through: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        // Authorisation follows a new binding with a delay.
        wait_for("the rights of the account", PATIENCE, async || {
            Ok(through.list(&ListParams::default()).await.into())
        })
        .await?;
        Ok(Self {
            direct: Api::namespaced(admin, &namespace),
            proxy,
            namespace,
            token,
            client,
            through,
            control_plane,
        })
    }

    fn config_maps(&self) -> Requests {
        Requests::under(format!("/api/v1/namespaces/{}/configmaps", self.namespace))
    }

    fn secrets(&self) -> Requests {
        Requests::under(format!("/api/v1/namespaces/{}/secrets", self.namespace))
    }

    async fn create(&self, name: &str) -> Result<()> {
        self.direct
            .create(&PostParams::default(), &config_map(name)?)
            .await?;
        Ok(())
    }

    /// Creates a ConfigMap with the label `scene=shop`.
    async fn create_labelled(&self, name: &str) -> Result<()> {
        let mut labelled = config_map(name)?;
        labelled.metadata.labels = Some([("scene".to_owned(), "shop".to_owned())].into());
        self.direct
            .create(&PostParams::default(), &labelled)
            .await?;
        Ok(())
    }

    /// Watches everything from now on through the proxy, except the object that every namespace has.
    async fn watch(&self) -> Result<Watch> {
        let parameters = WatchParams::default().fields("metadata.name!=kube-root-ca.crt");
        let version = self
            .direct
            .list(&ListParams::default())
            .await?
            .metadata
            .resource_version
            .context("a list has a version")?;
        Ok(Box::pin(self.through.watch(&parameters, &version).await?))
    }
}

type Watch = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<ConfigMap>>>>>;

/// Returns the control plane that the environment names, or one that all tests running at the same time
/// share.
async fn control_plane() -> Result<Arc<ControlPlane>> {
    static SHARED: Mutex<Weak<ControlPlane>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(control_plane) = shared.upgrade() {
        return Ok(control_plane);
    }
    let control_plane = Arc::new(if env::var_os(CONTROL_PLANE_VARIABLE).is_some() {
        ControlPlane::connect()?
    } else {
        ControlPlane::start(ControlPlaneOptions::default()).await?
    });
    *shared = Arc::downgrade(&control_plane);
    Ok(control_plane)
}

/// Returns the next object that `watch` reports.
async fn next(watch: &mut Watch) -> Result<ConfigMap> {
    match timeout(PATIENCE, watch.next()).await.context("no event")? {
        Some(Ok(WatchEvent::Added(object))) => Ok(object),
        other => bail!("{other:?}"),
    }
}

async fn next_name(watch: &mut Watch) -> Result<String> {
    let object = next(watch).await?;
    object.metadata.name.context("objects have names")
}

fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.reason.clone(),
        other => format!("{other:?}"),
    }
}

/// Returns the error with its causes.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn config_map(name: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({ "metadata": { "name": name }, "data": { "key": name } }),
    )?)
}
