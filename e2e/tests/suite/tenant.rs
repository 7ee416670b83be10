//! One tenant does its worst in its own namespace; the operator and the users of others are not affected.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use pod_reloader_e2e::caller::{Caller, answer, create, request};
use pod_reloader_e2e::load::{Latencies, under_load};
use pod_reloader_e2e::workload::{CONFIG_MAPS, Workload, config_map};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, crowd, done_if, full, oracle, wait_for};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep};

/// Memory limit of the operator in the chart, in bytes.
const LIMIT: usize = 256 << 20;
/// The memory that the operator takes beside a namespace full of tiny items, in bytes.
const LITTLE: usize = 72 << 20;
/// Field manager of a status query.
const INQUIRY: &str = "pod-reloader-status-query";

#[tokio::test]
async fn nothing_that_a_tenant_does_in_its_namespace_stops_anybody_elsewhere() -> Result<()> {
    let label = std::process::id().to_string();
    let options = Options {
        everywhere: true,
        namespace_labels: vec![format!("tenants={label}")],
        values: json!({
            "dialects": ["pod-reloader", "stakater"],
            "watch": {"namespaceSelector": {"matchLabels": {"tenants": label}}},
            "webhook": {"timeoutSeconds": 30},
        }),
        args: vec![
            "--max-restarts=5".to_owned(),
            format!("--namespace-memory={}", if full() { "32Mi" } else { "2Mi" }),
        ],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let test = async |tenant: &str| worst(scene, &Worst::in_namespace(tenant)).await;
        scene.with_namespace("tenant", test).await
    })
    .await
}

/// Tiny items are what takes many times the memory of its JSON.
#[tokio::test]
async fn a_namespace_full_of_tiny_items_takes_little_memory_and_stops_nobody_elsewhere()
-> Result<()> {
    let label = format!("tiny-{}", std::process::id());
    let options = Options {
        everywhere: true,
        namespace_labels: vec![format!("tenants={label}")],
        values: json!({
            "pin": {"enabled": true},
            "protect": {"enabled": true},
            "watch": {"namespaceSelector": {"matchLabels": {"tenants": label}}},
            "webhook": {"timeoutSeconds": 30},
        }),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let users = Users::settle_in(scene).await?;
        let test = async |tenant: &str| {
            fill(scene, tenant).await?;
            let beside = users.change("beside").await?;
            let process = scene.operator.process();
            let peak = process.peak_memory()?;
            eprintln!("a change took {beside:?}, {} MiB at most", peak >> 20);
            ensure!(peak < LITTLE, "{} MiB", peak >> 20);

            scene.operator.restart().await?;
            let restarted = users.change("restarted").await?;
            // The last thing that the tenant does has been noticed when a copy is missed.
            scene.quiet().await?;
            let peak = scene.operator.process().peak_memory()?;
            eprintln!("a change took {restarted:?}, {} MiB at most", peak >> 20);
            ensure!(peak < LITTLE, "{} MiB from the start", peak >> 20);
            Ok(())
        };
        scene.with_namespace("tenant", test).await
    })
    .await
}

/// Fills a namespace with objects of tiny items: pods with pins, ConfigMaps that claim to be the operator's, revisions
/// of releases, and a Deployment of ConfigMaps with many keys.
async fn fill(scene: &Scene, tenant: &str) -> Result<()> {
    let count = |whole, part| if full() { whole } else { part };
    let pins = |pod: usize, count: usize| -> String {
        let pins: Vec<_> = (0..count)
            .map(|at| format!("{at:x}={at:x}-{:010}", pod * 100_000 + at))
            .collect();
        pins.join(",")
    };
    let pods = (0..count(140, 30)).map(|number| {
        // Some have as many pins as an annotation has room for, others as many as are read.
        let pins = pins(number, if number % 2 == 0 { 12_000 } else { 1_000 });
        json!({
            "metadata": {"name": format!("p{number}"), "annotations": {"pod-reloader.cs.sap.com/pins": pins}},
            "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "x"}]},
        })
    });
    create_all::<Pod>(scene, tenant, "user", pods).await?;
    let fakes = (0..count(600, 40)).map(|number| {
        let original = format!("a{number}/{}/1", "u".repeat(240_000));
        json!({"metadata": {
            "name": format!("f{number}"),
            "labels": {"pod-reloader.cs.sap.com/kept": "stored", "more": "x"},
            "annotations": {"pod-reloader.cs.sap.com/kept-object": original},
        }})
    });
    create_all::<ConfigMap>(scene, tenant, "pod-reloader", fakes).await?;
    let releases = (0..count(50_000, 500)).map(|number| {
        let name = format!("h{number}");
        let labels = json!({"owner": "helm", "status": "deployed", "name": name, "version": "1"});
        json!({"metadata": {"name": name, "labels": labels}})
    });
    create_all::<Secret>(scene, tenant, "user", releases).await?;
    let keys: BTreeMap<_, _> = (0..40_000).map(|at| (format!("{at:x}"), "")).collect();
    let crowded = (0..12)
        .map(|number| json!({"metadata": {"name": format!("crowded-{number}")}, "data": keys}));
    create_all::<ConfigMap>(scene, tenant, "user", crowded).await?;
    let names: Vec<_> = (0..12).map(|number| format!("crowded-{number}")).collect();
    let reads = Workload::deployment("crowded").lists(&names.join(","));
    scene.create_all_in(tenant, &[reads]).await?;
    // The namespace is looked at when a copy is deleted.
    let label = json!({"pod-reloader.cs.sap.com/copy": "x"});
    let copy = json!({"metadata": {"name": "copy", "labels": label}});
    create_all::<ConfigMap>(scene, tenant, "user", [copy]).await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), tenant);
    config_maps.delete("copy", &DeleteParams::default()).await?;
    Ok(())
}

/// Creates objects of one kind, many at once.
async fn create_all<K>(
    scene: &Scene,
    namespace: &str,
    manager: &str,
    objects: impl IntoIterator<Item = Value>,
) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: &Api<K> = &Api::namespaced(scene.client.clone(), namespace);
    let params = &PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    };
    let creates = objects.into_iter().map(|object| async move {
        let object: K = serde_json::from_value(object)?;
        api.create(params, &object).await?;
        anyhow::Ok(())
    });
    stream::iter(creates)
        .buffer_unordered(16)
        .try_collect()
        .await
}

async fn worst(scene: &Scene, tenant: &Worst<'_>) -> Result<()> {
    let users = Users::settle_in(scene).await?;
    let alone = users.change("alone").await?;
    let reviews_alone = users.reviews(20).await?;

    let ended = Cell::new(false);
    let process = scene.operator.process();
    tenant.create_all(scene).await?;
    let others = async {
        let during = under_load(scene, 2, async {
            let mut slowest = Duration::ZERO;
            for change in 0..3 {
                slowest = slowest.max(users.change(&format!("during {change}")).await?);
            }
            Ok(slowest)
        });
        let during = match during.await {
            Ok(during) => tenant.is_told(scene).await.map(|()| during),
            failed => failed,
        };
        ended.set(true);
        during
    };
    let (during, changed, asked) = tokio::join!(
        others,
        tenant.changes(scene, &ended),
        tenant.asks(scene, &ended)
    );
    let ((slowest, writes), changed, asked) = (during?, changed?, asked?);
    let at_its_worst = users.reviews_beside(tenant).await?;
    eprintln!("at its worst: {at_its_worst}");
    if full() {
        let quick = reviews_alone.read.of_a_hundred(100) * 2;
        let quick = quick.max(Duration::from_millis(20));
        users.wait_for_a_quick_apiserver(quick).await?;
        let reviews = users.reviews_beside(tenant).await?;
        eprintln!("once the apiserver has caught up: {reviews}");
        let quick = reviews_alone.answered.of_a_hundred(100) * 2;
        let quick = quick.max(Duration::from_millis(50));
        let answered = reviews.answered.of_a_hundred(99);
        ensure!(answered <= quick, "{reviews}, alone {reviews_alone}");
    }
    process.must_run()?;
    let peak = process.peak_memory()?;
    eprintln!(
        "a change took {alone:?} alone, {slowest:?} at most beside the tenant's {changed} changes and \
         {asked} dry runs; users: {writes}; {} MiB at most",
        peak >> 20
    );
    ensure!(peak < LIMIT, "{} MiB", peak >> 20);

    // An operator that starts lists everything that exists at once.
    scene.operator.restart().await?;
    let restarted = users.change("restarted").await?;
    let peak = process.peak_memory()?;
    eprintln!(
        "a change took {restarted:?} from the start, {} MiB at most",
        peak >> 20
    );
    ensure!(peak < LIMIT, "{} MiB from the start", peak >> 20);
    if full() {
        let patient = (alone * 2).max(Duration::from_secs(1));
        ensure!(slowest <= patient, "{slowest:?} beside it, {alone:?} alone");
        let quick = Duration::from_millis(50);
        // A review waits for the one read that it needs, however long the apiserver takes for it.
        let patient = quick.max(at_its_worst.read.of_a_hundred(99) * 2);
        let answered = at_its_worst.answered.of_a_hundred(99);
        ensure!(answered <= patient, "at its worst: {at_its_worst}");
    }
    Ok(())
}

/// The users of the scene's namespace: three Deployments of one ConfigMap.
struct Users<'a> {
    scene: &'a Scene,
    workloads: Vec<Workload>,
    caller: Caller,
}

impl<'a> Users<'a> {
    async fn settle_in(scene: &'a Scene) -> Result<Self> {
        let lists = |workload: Workload| workload.lists("app");
        let workloads: Vec<_> = crowd("web", 3).into_iter().map(lists).collect();
        scene.apply(&[config_map("app", "first")]).await?;
        scene.create_all(&workloads).await?;
        Ok(Self {
            scene,
            workloads,
            caller: Caller::of(scene).await?,
        })
    }

    /// Changes the ConfigMap. Returns the time until all workloads were restarted.
    async fn change(&self, value: &str) -> Result<Duration> {
        let began = Instant::now();
        self.scene.put_all(&[config_map("app", value)]).await?;
        let object = self.scene.object(&self.workloads[0].reference()).await?;
        let key =
            oracle::config_hash(&self.scene.client, &object, &self.scene.installation).await?;
        let all = self.workloads.len();
        wait_for("the users' workloads to be rolled", PATIENCE, async || {
            let count = self.scene.carrying(&self.scene.namespace, &key).await?;
            done_if(count == all, format!("{count} of {all} are"))
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Waits until the apiserver has caught up with its work: twenty reads in a row take no longer than `quick` each.
    async fn wait_for_a_quick_apiserver(&self, quick: Duration) -> Result<()> {
        let config_maps: Api<ConfigMap> =
            Api::namespaced(self.scene.client.clone(), &self.scene.namespace);
        wait_for("twenty quick reads", 10 * PATIENCE, async || {
            for _ in 0..20 {
                let began = Instant::now();
                config_maps.get("app").await?;
                let took = began.elapsed();
                if took > quick {
                    return Ok(Attempt::NotYet(format!("one took {took:?}")));
                }
            }
            Ok(Attempt::Done(()))
        })
        .await
    }

    /// Makes the webhook answer reviews while the tenant changes a ConfigMap and sends the webhook dry runs.
    /// They are sent to the webhook directly: such reviews keep the apiserver busy.
    async fn reviews_beside(&self, tenant: &Worst<'_>) -> Result<Reviews> {
        let never = Cell::new(false);
        tokio::select! {
            reviews = self.reviews(if full() { 1000 } else { 20 }) => reviews,
            failed = tenant.keeps_asking(&self.caller) => failed,
            ended = tenant.changes(self.scene, &never) => bail!("the changes ended: {ended:?}"),
        }
    }

    /// Makes the webhook answer `count` reviews of a new workload, one after the other.
    async fn reviews(&self, count: usize) -> Result<Reviews> {
        let workload = Workload::deployment("new").lists("app");
        let review = create(&self.scene.namespace, &workload).to_string();
        // A review without an answer of the apiserver in this time would get no patch.
        let review = request(Duration::from_secs(30), &review);
        let config_maps: Api<ConfigMap> =
            Api::namespaced(self.scene.client.clone(), &self.scene.namespace);
        // The apiserver retains its connection, too.
        let mut webhook = self.caller.connect().await?;
        let (mut reviews, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let began = Instant::now();
            config_maps.get("app").await?;
            reads.push(began.elapsed());
            let began = Instant::now();
            webhook.write_all(&review).await?;
            let answered = answer(&mut webhook).await?;
            ensure!(answered.status == 200, "{answered:?}");
            ensure!(answered.body.contains("patch"), "{answered:?}");
            reviews.push(began.elapsed());
        }
        Ok(Reviews {
            answered: Latencies::from(reviews),
            read: Latencies::from(reads),
        })
    }
}

/// The durations of reviews, and of as many reads of the one object that each of them needs.
struct Reviews {
    answered: Latencies,
    read: Latencies,
}

impl fmt::Display for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, read } = self;
        write!(f, "reviews: {answered}; the reads that they need: {read}")
    }
}

/// The load that the tenant makes.
struct Worst<'a> {
    namespace: &'a str,
    /// Number of ConfigMaps and Deployments whose annotations are as long as allowed.
    fat: usize,
    /// Number of Deployments that name 256 objects each, none of them twice.
    wide: usize,
    /// Number of Deployments with regular expressions.
    patterns: usize,
    /// Number of data keys in a dry run.
    keys: usize,
}

impl<'a> Worst<'a> {
    fn in_namespace(namespace: &'a str) -> Self {
        let size = |whole, part| if full() { whole } else { part };
        Self {
            namespace,
            fat: size(200, 12),
            wide: size(1000, 24),
            patterns: size(32, 4),
            keys: size(600_000, 100_000),
        }
    }

    async fn create_all(&self, scene: &Scene) -> Result<()> {
        // Each character takes six in JSON, as written by the apiserver.
        let fat = json!("<".repeat((256 << 10) - 1024));
        let config_maps: Vec<_> = (0..self.fat)
            .map(|number| {
                let mut object = config_map(&format!("fat-{number}"), "1");
                object["metadata"]["annotations"] = json!({"fat": fat});
                object
            })
            .collect();
        scene.put_all_in(self.namespace, &config_maps).await?;
        let fat = crowd("fat", self.fat).into_iter().map(|workload| {
            workload
                .lists("hot")
                .with(&["metadata", "annotations", "fat"], fat.clone())
        });
        let wide = crowd("wide", self.wide).into_iter().map(|workload| {
            let names: Vec<_> = (0..256)
                .map(|number| format!("{}-{number}", workload.name))
                .collect();
            workload.lists(&names.join(","))
        });
        let patterns = crowd("pattern", self.patterns).into_iter().map(|workload| {
            let patterns: Vec<_> = (0..32).map(explosive).collect();
            workload.annotated(
                "configmap.reloader.stakater.com/reload",
                &patterns.join(","),
            )
        });
        let hot = Workload::deployment("hot").lists("hot");
        let all: Vec<_> = fat.chain(wide).chain(patterns).chain([hot]).collect();
        scene
            .put_all_in(self.namespace, &[config_map("hot", "0")])
            .await?;
        scene.create_all_in(self.namespace, &all).await
    }

    /// Changes a ConfigMap ten times a second until `ended`. Returns the number of changes.
    async fn changes(&self, scene: &Scene, ended: &Cell<bool>) -> Result<usize> {
        let mut pace = interval(Duration::from_millis(100));
        let mut count = 0;
        while !ended.get() {
            pace.tick().await;
            let hot = config_map("hot", &count.to_string());
            scene.put_all_in(self.namespace, &[hot]).await?;
            count += 1;
        }
        Ok(count)
    }

    /// Sends the apiserver dry runs with many data keys until `ended`. Returns their number.
    async fn asks(&self, scene: &Scene, ended: &Cell<bool>) -> Result<usize> {
        let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), self.namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": self.asked()}}));
        let params = PatchParams {
            dry_run: true,
            field_manager: Some(INQUIRY.to_owned()),
            ..PatchParams::default()
        };
        let mut count = 0;
        while !ended.get() {
            // The apiserver refuses it in the end, but by then the webhook has been asked.
            let refused = deployments.patch("hot", &params, &patch).await;
            ensure!(refused.is_err(), "annotations of megabytes were taken");
            count += 1;
            // A pace, not a wait: dry runs without a pause would keep the apiserver busy, not the operator.
            sleep(Duration::from_millis(100)).await;
        }
        Ok(count)
    }

    /// Sends the webhook dry runs with many data keys, ten times a second, until it fails.
    async fn keeps_asking<T>(&self, webhook: &Caller) -> Result<T> {
        let mut review = create(self.namespace, &Workload::deployment("hot"));
        review["request"]["object"]["metadata"]["annotations"] = self.asked();
        review["request"]["dryRun"] = json!(true);
        review["request"]["options"]["fieldManager"] = json!(INQUIRY);
        let review = Arc::new(request(Duration::from_secs(10), &review.to_string()));
        let mut pace = interval(Duration::from_millis(100));
        loop {
            pace.tick().await;
            let (webhook, review) = (webhook.clone(), review.clone());
            // Another thread than the one that waits for the users' answers.
            let send = move || Handle::current().block_on(webhook.send(&review));
            let answered = spawn_blocking(send).await??;
            ensure!(answered.status == 200, "{answered:?}");
        }
    }

    /// Returns the annotations of a workload that names many data keys.
    fn asked(&self) -> Value {
        let names: Vec<_> = (0..self.keys).map(|number| format!("{number:x}")).collect();
        let others: Vec<_> = (1..256).map(|number| format!("x{number}")).collect();
        json!({
            CONFIG_MAPS: format!("hot[{}],{}", names.join(","), others.join(",")),
            "pod-reloader.cs.sap.com/restart-on": "needed",
        })
    }

    /// Asserts that the tenant is told why its own workloads wait.
    async fn is_told(&self, scene: &Scene) -> Result<()> {
        // Hundreds of fat workloads take turns, more than once.
        let patience = PATIENCE * if full() { 6 } else { 1 };
        for reason in ["NamespaceTooLarge", "RestartedTooOften"] {
            let what = format!("an Event {reason} in {}", self.namespace);
            wait_for(&what, patience, async || {
                let events = scene.events_in(self.namespace).await?;
                done_if(events.iter().any(|event| event["reason"] == reason), "none")
            })
            .await?;
        }
        Ok(())
    }
}

/// Returns a regular expression that costs a matcher as many states as it may have.
fn explosive(number: usize) -> String {
    format!("([ab]*a[ab]{{{}}}z)", 200 + number)
}
