//! Tests which watches there are, and that none holds up another, against an apiserver that is a function.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use http::Uri;
use pod_reloader_core::annotations::CONFIG_MAPS;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::kind::CustomResource;
use pod_reloader_core::scope::Labels;
use pod_reloader_core::secret_provider_class::{GROUP, STATUSES};
use serde_json::{Value, json};

use super::*;
use crate::live::keys::Keys;
use crate::metrics::Metrics;
use crate::mock::{self, Chunks, name};
use crate::restart::progress::Progress;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::settings::Settings;
use crate::runtime::events::Events;

#[tokio::test(start_paused = true)]
async fn a_kind_of_config_that_is_never_tracked_is_not_watched() {
    for (ignored, expected) in [
        (None, ["/api/v1/configmaps", "/api/v1/secrets"].as_slice()),
        (Some(ConfigKind::Secret), &["/api/v1/configmaps"]),
        (Some(ConfigKind::ConfigMap), &["/api/v1/secrets"]),
    ] {
        let dialects = Dialects {
            ignored,
            ..Dialects::default()
        };
        let scope = Scope::new([], name("operator")).with(Labels::default(), dialects);
        let operator = Operator::start(scope, |_| None);
        tokio::time::sleep(HOUR).await;
        let calls = operator.calls();
        let mut config: Vec<_> = calls.iter().map(Uri::path).collect();
        config.retain(|path| path.starts_with("/api/v1/"));
        config.sort_unstable();
        config.dedup();
        assert_eq!(config, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_of_the_csi_driver_are_watched_from_when_they_are_served_and_only_if_asked_for() {
    for is_asked_for in [false, true] {
        let served = Arc::new(AtomicBool::new(false));
        let is_served = served.clone();
        let dialects = Dialects {
            classes: is_asked_for,
            ..Dialects::default()
        };
        let scope = Scope::new([], name("operator")).with(Labels::default(), dialects);
        let operator = Operator::start(scope, move |uri| {
            let versions = match is_served.load(Ordering::Relaxed) {
                true => json!([{"version": "v1", "resources": [{"resource": STATUSES}]}]),
                false => json!([]),
            };
            let group = json!({"metadata": {"name": GROUP}, "versions": versions});
            let groups = json!({"metadata": {}, "items": [group]}).to_string();
            (uri.path() == "/apis").then(|| (200, mock::whole(groups)))
        });
        let calls = |part: &str| {
            let calls = operator.calls();
            calls.iter().filter(|it| it.path().contains(part)).count()
        };
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(calls(STATUSES), 0);
        served.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(calls(STATUSES) > 0, is_asked_for);
        let of_groups = operator.calls();
        let of_groups = of_groups.iter().filter(|it| it.path() == "/apis").count();
        assert_eq!(of_groups > 0, is_asked_for);
        served.store(false, Ordering::Relaxed);
        tokio::time::sleep(HOUR).await;
        let so_far = calls(STATUSES);
        tokio::time::sleep(HOUR).await;
        assert_eq!(calls(STATUSES), so_far);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_holds_up_no_other_kind_and_no_other_namespace() {
    let operator = Operator::start(of_team_shop(), |uri| {
        let is_watch = uri.query().is_some_and(|query| query.contains("watch"));
        Some(match uri.path() {
            "/api/v1/namespaces" if is_watch => (200, picked(&["one", "two"])),
            "/apis" => (200, mock::whole(discovery().to_string())),
            "/apis/apps/v1/namespaces/one/deployments" => (503, mock::whole("")),
            "/apis/apps/v1/namespaces/one/daemonsets" => (200, mock::open("")),
            path @ ("/apis/apps/v1/namespaces/two/deployments"
            | "/apis/apps/v1/namespaces/one/statefulsets"
            | "/apis/apps/v1/namespaces/two/daemonsets"
            | "/apis/argoproj.io/v1/namespaces/one/rollouts") => {
                let namespace = path.split('/').nth(5)?;
                let list =
                    json!({"metadata": {"resourceVersion": "1"}, "items": [workload(namespace)]});
                (200, mock::whole(list.to_string()))
            }
            _ => return None,
        })
    });
    tokio::time::sleep(Duration::from_secs(30)).await;
    let workloads = operator.reconciler.workloads.ids(|_| true);
    let mut workloads: Vec<_> = workloads.iter().map(ToString::to_string).collect();
    workloads.sort_unstable();
    assert_eq!(
        workloads,
        [
            "DaemonSet two/web",
            "Deployment two/web",
            "Rollout one/web",
            "StatefulSet one/web"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_no_longer_served_is_no_longer_listed() {
    let asked = Arc::new(Mutex::new(0));
    let operator = Operator::start(of_team_shop(), move |uri| {
        let is_watch = uri.query().is_some_and(|query| query.contains("watch"));
        Some(match uri.path() {
            "/api/v1/namespaces" if is_watch => (200, picked(&["one"])),
            "/apis" => {
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                // Go writes a list without items like this.
                let null = r#"{"metadata":{},"items":null}"#.to_owned();
                let groups = if *asked <= 3 {
                    discovery().to_string()
                } else {
                    null
                };
                (200, mock::whole(groups))
            }
            "/apis/argoproj.io/v1/namespaces/one/rollouts" => (404, mock::whole("")),
            _ => return None,
        })
    });
    let lists = || {
        let calls = operator.calls();
        let lists = calls
            .iter()
            .filter(|it| it.path().contains("/one/rollouts"));
        lists.count()
    };
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(lists() > 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let so_far = lists();
    tokio::time::sleep(HOUR).await;
    assert_eq!(lists(), so_far);
}

/// All watches of an operator whose reconcile loop does not run.
struct Operator {
    reconciler: Arc<Reconciler>,
    calls: Arc<Mutex<Vec<Uri>>>,
    _watches: JoinSet<()>,
}

impl Operator {
    /// Starts the watches. Calls that `answer` leaves open get an empty list, or a watch that shows
    /// nothing.
    fn start(
        scope: Scope,
        answer: impl Fn(&Uri) -> Option<(u16, Chunks)> + Send + Sync + 'static,
    ) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (record, answer) = (calls.clone(), Arc::new(answer));
        let client = mock::streaming_client(move |request| {
            let is_watch = request.uri.query().is_some_and(|it| it.contains("watch"));
            let answer = answer(&request.uri).unwrap_or_else(|| match is_watch {
                true => (200, mock::open("")),
                false => {
                    let list = r#"{"metadata":{"resourceVersion":"1"},"items":null}"#;
                    (200, mock::whole(list))
                }
            });
            record.lock().unwrap().push(request.uri);
            async move { answer }
        });
        let metrics = Metrics::new();
        let budget = Budget::new();
        let (events, _) = Events::new(client.clone());
        let settings = Settings {
            settle_period: Duration::ZERO,
            namespace_memory: 32 << 20,
            ..Settings::plain()
        };
        let reconciler = Arc::new(Reconciler::new(
            settings,
            scope.clone(),
            client.clone(),
            budget.clone(),
            Arc::new(Keys::new(client.clone(), &name("operator"), &name("keys"))),
            Progress::new(events, None, metrics.clone(), RecentWrites::default()),
            metrics,
        ));
        Self {
            _watches: spawn(&client, &scope, &reconciler, &budget),
            reconciler,
            calls,
        }
    }

    fn calls(&self) -> Vec<Uri> {
        self.calls.lock().unwrap().clone()
    }
}

/// Returns the scope of a team's namespaces, with Rollouts in addition to the built-in kinds.
fn of_team_shop() -> Scope {
    let labels = Labels {
        namespace: Some(std::iter::once(("team".to_owned(), "shop".to_owned())).collect()),
        ..Labels::default()
    };
    let rollouts: CustomResource = serde_json::from_value(json!({
        "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
        "podTemplates": ["spec.template"],
    }))
    .unwrap();
    Scope::new([], name("operator"))
        .and_kinds(vec![rollouts.into_kind().unwrap()])
        .with(labels, Dialects::default())
}

fn discovery() -> Value {
    let versions = json!([{"version": "v1", "resources": [{"resource": "rollouts"}]}]);
    let group = json!({"metadata": {"name": "argoproj.io"}, "versions": versions});
    json!({"metadata": {}, "items": [{"metadata": {"name": "other"}}, group]})
}

/// Returns a watch that shows namespaces getting the label some time after it began.
fn picked(namespaces: &[&str]) -> Chunks {
    let event = |namespace: &&str| {
        let object = json!({"metadata": {"name": namespace, "resourceVersion": "2"}});
        format!("{}\n", json!({"type": "ADDED", "object": object}))
    };
    let events: String = namespaces.iter().map(event).collect();
    let a_while = stream::once(tokio::time::sleep(Duration::from_secs(1)));
    a_while
        .flat_map(move |()| mock::open(events.clone()))
        .boxed()
}

fn workload(namespace: &str) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": namespace, "resourceVersion": "1", "annotations": {CONFIG_MAPS: "app"}},
        "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
    })
}

const HOUR: Duration = Duration::from_secs(3600);
