//! A second controller beside the one that restarts workloads: it counts ConfigMaps by a label, with a queue, a
//! metric and Events of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Method;
use http::request::Parts;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata};
use pod_reloader_core::scope::Scope;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::live::keys::Keys;
use crate::metrics::Metrics;
use crate::mock::lease::{Cluster, Trouble};
use crate::mock::{self, Chunks};
use crate::restart::controller::Restarts;
use crate::restart::loop_status::LoopStatus;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::settings::Settings;
use crate::runtime::budget::Budget;
use crate::runtime::controller::{Controller, ControllerErrors, Shown, TermMetrics, term};
use crate::runtime::events::{Events, Report};
use crate::runtime::follower::Follower;
use crate::runtime::heartbeat::Heartbeat;
use crate::runtime::leader::lead;
use crate::runtime::queue::Item;
use crate::runtime::resources::{Resources, api};
use crate::runtime::watch_age::Watches;
use crate::runtime::worker::{Handler, PANIC_PAUSE, Worker};

const A_MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_second_controller_works_beside_the_first() {
    let apiserver = Apiserver::with(&["a", "b"]);
    let both = Both::new(&apiserver);
    let term = tokio::spawn(both.term());
    sleep(A_MINUTE).await;
    assert_eq!(both.counter.counted(), "counted 2");
    assert_eq!(apiserver.calls("POST", "events"), 2);
    assert_eq!(both.metrics.leading.get(), 1);
    assert!(apiserver.calls("GET", "/deployments") > 0);
    assert!(!both.heartbeat.is_stuck());
    both.counter.errors.count(None);
    let text = both.metrics.text();
    for (controller, count) in [("counter", 1), ("restart", 0)] {
        let series = format!(
            "reconcile_errors_total{{controller=\"{controller}\",reason=\"other\"}} {count}\n"
        );
        assert!(text.contains(&series), "{text}");
    }
    term.abort();
    sleep(A_MINUTE * 5).await;
    assert_eq!(both.counter.counted(), "counted 0");
    assert_eq!(both.metrics.leading.get(), 0);
    assert!(!both.heartbeat.is_stuck(), "nobody has to beat");
}

#[tokio::test(start_paused = true)]
async fn both_controllers_work_while_this_replica_leads_and_stop_with_it() {
    let apiserver = Apiserver::with(&["a"]);
    let both = Both::new(&apiserver);
    let (cluster, stop) = (Cluster::default(), CancellationToken::new());
    cluster.write(json!({"holderIdentity": "another", "leaseDurationSeconds": 15}));
    let name = |text| Name::parse(text).unwrap();
    let leading = both.clone();
    let election = lead(
        cluster.client(),
        name("ns"),
        name("lease"),
        move || leading.term(),
        stop.clone(),
    );
    let election = tokio::spawn(election);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(both.counter.counted(), "counted 0", "another one leads");
    sleep(A_MINUTE).await;
    assert_eq!(both.counter.counted(), "counted 1");
    assert_eq!(both.metrics.leading.get(), 1);

    // Nobody can renew the Lease.
    cluster.now(Some(Trouble::Fails));
    sleep(A_MINUTE).await;
    assert_eq!(both.counter.counted(), "counted 0");
    assert_eq!(both.metrics.leading.get(), 0);
    cluster.now(None);
    sleep(A_MINUTE).await;
    assert_eq!(both.counter.counted(), "counted 1");

    stop.cancel();
    election.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(both.counter.counted(), "counted 0");
    assert_eq!(both.metrics.leading.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_handling_panics_is_left_alone_for_a_while_and_holds_up_no_other() {
    let apiserver = Apiserver::with(&["a", "broken", "b"]);
    let both = Both::new(&apiserver);
    let _term = tokio::spawn(both.term());
    sleep(A_MINUTE).await;
    assert_eq!(both.counter.counted(), "counted 2");
    assert_eq!(*both.counter.metrics.panics.lock(), 1);
    assert_eq!(both.metrics.leading.get(), 1);
    sleep(PANIC_PAUSE).await;
    assert_eq!(*both.counter.metrics.panics.lock(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_panics_or_ends_by_itself_ends_the_term() {
    for panics in [false, true] {
        let both = Both::new(&Apiserver::with(&["a"]));
        let mut controllers = both.controllers();
        let ends = move || async move {
            sleep(A_MINUTE).await;
            assert!(!panics, "a bug");
        };
        controllers.push(Controller::new("ends", ends));
        let term = term(controllers, both.heartbeat.clone());
        let ended = tokio::spawn(both.metrics.clone().shown_to_lead(term)).await;
        assert_eq!(ended.is_err_and(|error| error.is_panic()), panics);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(both.metrics.leading.get(), 0);
        assert_eq!(both.counter.counted(), "counted 0");
    }
}

/// Both controllers, and what they have in common.
#[derive(Clone)]
struct Both {
    restarts: Restarts,
    counter: Counter,
    metrics: Metrics,
    heartbeat: Arc<Heartbeat>,
}

impl Both {
    fn new(apiserver: &Apiserver) -> Self {
        let client = apiserver.client();
        let (events, send) = Events::new(client.clone());
        tokio::spawn(send);
        let metrics = Metrics::new();
        let operator = Name::parse("operator").unwrap();
        let secret = Name::parse("keys").unwrap();
        let restarts = Restarts {
            clients: mock::clients(&client),
            scope: Scope::new([], operator.clone()),
            copy_grace: Duration::from_secs(300),
            settings: Settings::plain(),
            budget: Budget::new(),
            resync_period: A_MINUTE * 60,
            keys: Arc::new(Keys::new(client.clone(), &operator, &secret)),
            events: events.clone(),
            notifications: None,
            metrics: metrics.clone(),
            recent_writes: RecentWrites::default(),
            loop_status: LoopStatus::default(),
            ourselves: Arc::new(OnceLock::from(String::new())),
        };
        Self {
            restarts,
            counter: Counter::new(client, events, &metrics),
            metrics,
            heartbeat: Arc::default(),
        }
    }

    fn controllers(&self) -> Vec<Controller> {
        let (restarts, counter) = (self.restarts.clone(), self.counter.clone());
        vec![
            Controller::new("restart", move || restarts.clone().term()),
            Controller::new("counter", move || counter.clone().term()),
        ]
    }

    fn term(&self) -> impl Future<Output = ()> + use<> {
        let term = term(self.controllers(), self.heartbeat.clone());
        self.metrics.clone().shown_to_lead(term)
    }
}

/// Counts the ConfigMaps with a label.
#[derive(Clone)]
struct Counter {
    client: Client,
    events: Events,
    errors: ControllerErrors,
    metrics: CounterMetrics,
    all: Metrics,
}

/// The counts, of one term or of all.
#[derive(Clone, Default)]
struct CounterMetrics {
    counted: Gauge,
    panics: Arc<Mutex<usize>>,
}

/// The state of one term.
struct Work {
    worker: Worker<Counted>,
    events: Events,
    counted: Mutex<BTreeSet<Counted>>,
    metrics: CounterMetrics,
}

/// A ConfigMap by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Counted(Name, Name);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigMap {}/{}", self.0, self.1)
    }
}

impl Item for Counted {
    fn namespace(&self) -> &Name {
        &self.0
    }
}

impl Counter {
    fn new(client: Client, events: Events, metrics: &Metrics) -> Self {
        let own = CounterMetrics::default();
        metrics.register(|ours| {
            ours.register("counted", "ConfigMaps with the label", own.counted.clone());
        });
        Self {
            client,
            events,
            errors: metrics.errors.of("counter"),
            metrics: own,
            all: metrics.clone(),
        }
    }

    /// The line of its metric.
    fn counted(&self) -> String {
        let text = self.all.text();
        let mut ours = text
            .lines()
            .filter_map(|line| line.strip_prefix("pod_reloader_"));
        let line = ours.find(|line| line.starts_with("counted "));
        line.unwrap().to_owned()
    }
}

impl Counter {
    /// Runs one term, watch and worker.
    async fn term(self) {
        let work = Arc::new(Work {
            worker: Worker::default(),
            events: self.events,
            counted: Mutex::default(),
            metrics: self.metrics,
        });
        let config_maps: Resources<ConfigMetadata> = Resources::new(
            api(&self.client, None, ConfigKind::ConfigMap),
            "ConfigMap",
            &Budget::new(),
        );
        let _shown = Shown::new(work.metrics.clone());
        let config_maps = config_maps.with_labels("count=me".to_owned());
        let watching = config_maps.follow(Watches::default(), Seen(work.clone()));
        tokio::select! {
            () = watching => {}
            () = work.worker.run(&work) => {}
        }
    }
}

/// Queues the ConfigMaps that are seen.
struct Seen(Arc<Work>);

impl Follower<ConfigMetadata> for Seen {
    type Noted = ();
    type List = ();

    fn listed(&mut self, object: ConfigMetadata) -> Option<()> {
        if let Some(seen) = object.reference(ConfigKind::ConfigMap) {
            let seen = Counted(seen.namespace, seen.name);
            self.0.worker.push(seen, Instant::now());
        }
        None
    }

    /// Those that are gone stay counted.
    fn all_listed(&mut self, (): ()) {}

    fn gone(&mut self, _: ConfigMetadata) {}
}

impl Handler for Work {
    type Item = Counted;

    async fn handle(&self, item: &Counted) -> Option<Instant> {
        if item.1.as_str() == "broken" {
            *self.metrics.panics.lock() += 1;
            panic!("a bug");
        }
        let mut counted = self.counted.lock();
        counted.insert(item.clone());
        self.metrics.counted.set(counted.len() as i64);
        let about = ObjectReference {
            namespace: Some(item.0.to_string()),
            name: Some(item.1.to_string()),
            ..ObjectReference::default()
        };
        let report = Report {
            reason: "Counted",
            note: item.to_string(),
            is_problem: false,
            related: None,
        };
        self.events.publish(about, report);
        None
    }
}

impl TermMetrics for CounterMetrics {
    fn reset(&self) {
        self.counted.set(0);
    }
}

/// An apiserver with ConfigMaps that have the label, and nothing else.
#[derive(Clone, Default)]
struct Apiserver {
    names: Vec<String>,
    calls: Arc<Mutex<Vec<(Method, String)>>>,
}

impl Apiserver {
    fn with(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            names,
            ..Self::default()
        }
    }

    fn client(&self) -> Client {
        let this = self.clone();
        mock::streaming_client(move |head| {
            let answer = this.answer(&head);
            async move { answer }
        })
    }

    fn answer(&self, head: &Parts) -> (u16, Chunks) {
        let call = head.uri.to_string();
        self.calls.lock().push((head.method.clone(), call.clone()));
        if call.contains("watch=true") {
            return (200, mock::open(""));
        }
        let names = match call.contains("labelSelector=count") {
            true => &self.names[..],
            false => &[],
        };
        let items = names.iter().map(
            |name| json!({"metadata": {"namespace": "ns", "name": name, "resourceVersion": "1"}}),
        );
        let items: Vec<_> = items.collect();
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
        (200, mock::whole(list.to_string()))
    }

    fn calls(&self, method: &str, path: &str) -> usize {
        let calls = self.calls.lock();
        let is_it = |(of, url): &&(Method, String)| of == method && url.contains(path);
        calls.iter().filter(is_it).count()
    }
}
