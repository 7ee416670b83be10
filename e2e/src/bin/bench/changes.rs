//! Measures the way from a change of a ConfigMap to the changed pod templates: the time, the requests, and
//! the work.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pod_reloader_e2e::{Mark, Process, Scene};
use serde_json::json;
use tokio::time::{Instant, interval, sleep};

use crate::{
    clear,
    figures::{Figures, Spread},
    observer::Observer,
    scene,
    subject::{Running, Subject},
};

/// Workloads with several objects, by name: the number of objects besides the one that changes.
const SEVERAL: [(&str, usize); 2] = [("two", 1), ("ten", 9)];
/// What is measured in turns.
const SUBJECTS: [Subject; 3] = [Subject::Floor, Subject::ReadingFloor, Subject::Operator];
/// Pause between two independent changes.
const PAUSE: Duration = Duration::from_millis(100);
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Rate of the stream, in changes per second, and its duration.
const RATE: usize = 200;
const STREAM: Duration = Duration::from_secs(20);
/// One in this many changes is to an object that a workload lists.
const ONE_IN: usize = 5;
/// Number of workloads that the stream concerns, each through a ConfigMap of its own, and number of other
/// ConfigMaps that it changes.
const CONCERNED: usize = 20;
const UNCONCERNED: usize = 80;

/// Measures without a settle period.
pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let scene = scene("0s").await?;
    let bench = Bench::begin(&scene).await?;
    let (rounds, changes, crowd) = if quick { (1, 50, 200) } else { (5, 100, 500) };
    bench.create(SUBJECTS, "one", 1).await?;
    bench.create(SUBJECTS, "crowd", crowd).await?;
    for (name, others) in SEVERAL {
        let (objects, workload) = Subject::with_others(name, others);
        scene.put_all(&objects).await?;
        scene.create_all(&[workload]).await?;
    }
    bench.observer.quiet(Duration::from_secs(2)).await;
    scene.operator.stop().await;

    let mut gets = Vec::new();
    let mut measured = SUBJECTS.map(|_| Measured::default());
    let mut several = SEVERAL.map(|_| Vec::new());
    let mut requests = BTreeMap::new();
    for _ in 0..rounds {
        gets.extend(bench.gets(changes).await?);
        for (measured, subject) in measured.iter_mut().zip(SUBJECTS) {
            let running = Running::start(&scene, subject).await?;
            let process = running.process();
            let before_fan_out = bench.round(subject, process, (changes, crowd), measured);
            let before_fan_out = before_fan_out.await?;
            if subject == Subject::Operator {
                requests = at_rest(&scene, before_fan_out).await?;
                for (took, (name, _)) in several.iter_mut().zip(SEVERAL) {
                    bench.changes(subject, name, 5, PAUSE).await?;
                    took.extend(bench.changes(subject, name, changes, PAUSE).await?);
                }
            }
            running.stop().await;
        }
    }
    let get = Spread::of(gets);
    figures.say("a GET of a ConfigMap", None, get.to_string(), "-");
    let [floor, reading_floor, ours] = measured;
    let least = Spread::of(floor.apart.clone()).plus(get.median);
    for (took, (name, _)) in several.into_iter().zip(SEVERAL) {
        let what = format!("change to pod template, if the workload lists {name} objects");
        let goal = "1.05 x (floor + GET)";
        figures.compare(&what, least, Spread::of(took), goal);
    }
    Measured::compare([floor, ours.clone()], get.median, crowd, "", figures);
    let who = "beside a floor that reads: ";
    Measured::compare([reading_floor, ours], 0.0, crowd, who, figures);
    figures.say(
        "requests for that",
        Some(&format!("{crowd} patches")),
        told(&requests),
        "a PATCH each, 1 GET; Events beside",
    );

    let running = Running::start(&scene, Subject::Operator).await?;
    let stream = bench.stream(quick).await?;
    figures.say(
        &format!(
            "{RATE} changes a second, one in {ONE_IN} of a listed object: right after the last"
        ),
        None,
        format!(
            "{:.0} ms, {} rollouts, {} lists",
            stream.late.as_secs_f64() * 1e3,
            stream.rollouts,
            stream.lists
        ),
        "100 ms, no list",
    );
    running.stop().await;

    let mark = scene.mark().await?;
    let running = Running::start(&scene, Subject::Operator).await?;
    let restarted = at_rest(&scene, mark).await?;
    figures.say(
        &format!("restart over {} workloads", crowd + 1 + CONCERNED),
        None,
        told(&restarted),
        "no write",
    );
    running.stop().await;
    clear(scene).await;
    Ok(())
}

/// Measures with the default settle period.
pub(crate) async fn measure_settled(figures: &mut Figures, quick: bool) -> Result<()> {
    let scene = scene("5s").await?;
    let bench = Bench::begin(&scene).await?;
    bench.create(Subject::BOTH, "one", 1).await?;
    let changes = bench
        .changes(Subject::Operator, "one", if quick { 2 } else { 10 }, PAUSE)
        .await?;
    figures.say(
        "change to pod template, settle period 5 s",
        None,
        Spread::of(changes).to_string(),
        "-",
    );
    let stream = bench.stream(quick).await?;
    figures.say(
        &format!("{RATE} changes a second, settle period 5 s: right after the last"),
        None,
        format!(
            "{:.1} s, {} rollouts, {} lists",
            stream.late.as_secs_f64(),
            stream.rollouts,
            stream.lists
        ),
        "40 rollouts, no list",
    );
    clear(scene).await;
    Ok(())
}

/// What was measured of one subject.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    /// From changes to pod templates, ten a second.
    apart: Vec<Duration>,
    /// CPU for one of these changes.
    cpu: Vec<Duration>,
    /// Wake-ups of the process for all of them.
    wake_ups: u64,
    /// From changes to pod templates, each right after the last.
    at_once: Vec<Duration>,
    /// CPU for one of these changes.
    busy: Vec<Duration>,
    /// From a change to the last pod template of many.
    fan_out: Vec<Duration>,
}

impl Measured {
    /// Compares two subjects after all rounds. `get` is the time that one GET takes, in seconds, and `who` the
    /// beginning of each line.
    pub(crate) fn compare(
        [floor, other]: [Self; 2],
        get: f64,
        crowd: usize,
        who: &str,
        figures: &mut Figures,
    ) {
        let mut add = |what: &str, [floor, other]: [Vec<Duration>; 2], more, goal| {
            let (floor, other) = (Spread::of(floor).plus(more), Spread::of(other));
            figures.compare(&format!("{who}{what}"), floor, other, goal);
        };
        let changes = floor.apart.len();
        let apart = [floor.apart, other.apart];
        add("change to pod template", apart, get, "1.1 x (floor + GET)");
        let at_once = [floor.at_once, other.at_once];
        let what = "the same, each right after the last";
        add(what, at_once, get, "1.3 x (floor + GET)");
        let busy = [floor.busy, other.busy];
        let what = "CPU for one change, each right after the last";
        add(what, busy, 0.0, "1.0 ms");
        let cpu = [floor.cpu, other.cpu];
        add("CPU for one change, ten a second", cpu, 0.0, "1.0 ms");
        let what = format!("one ConfigMap, {crowd} Deployments: all patched");
        add(&what, [floor.fan_out, other.fan_out], 0.0, "1.1 x floor");
        let of_one = |woken: u64| format!("{:.1}", woken as f64 / changes as f64);
        let [floor, other] = [floor.wake_ups, other.wake_ups].map(of_one);
        let what = "wake-ups of the process for one change, ten a second";
        figures.say(&format!("{who}{what}"), Some(&floor), other, "-");
    }
}

/// A scene, and the means to observe it.
pub(crate) struct Bench<'a> {
    scene: &'a Scene,
    config_maps: Api<ConfigMap>,
    pub(crate) observer: Observer,
}

/// The result of many changes in a row.
struct Streamed {
    /// Time from the last change until the last pod template was right.
    late: Duration,
    rollouts: usize,
    lists: usize,
}

impl<'a> Bench<'a> {
    pub(crate) async fn begin(scene: &'a Scene) -> Result<Self> {
        Ok(Self {
            config_maps: Api::namespaced(scene.client.clone(), &scene.namespace),
            observer: Observer::begin(&scene.client, &scene.namespace),
            scene,
        })
    }

    /// Creates a ConfigMap and the Deployments that it concerns, for each of these subjects.
    pub(crate) async fn create(
        &self,
        subjects: impl IntoIterator<Item = Subject>,
        of: &str,
        count: usize,
    ) -> Result<()> {
        for subject in subjects {
            self.scene.put_all(&[subject.config_map(of, count)]).await?;
            self.scene
                .create_all(&subject.deployments(of, count))
                .await?;
        }
        self.observer.quiet(Duration::from_secs(2)).await;
        Ok(())
    }

    /// Measures a process that has just started: so many changes ten a second, as many right after each other, and
    /// one that concerns a crowd. Returns the time before the last one.
    pub(crate) async fn round(
        &self,
        subject: Subject,
        process: &Process,
        (changes, crowd): (usize, usize),
        measured: &mut Measured,
    ) -> Result<Mark> {
        self.warm_up(subject).await?;
        let (before, woken) = (process.cpu_time()?, process.wake_ups()?);
        let apart = self.changes(subject, "one", changes, PAUSE).await?;
        measured.apart.extend(apart);
        let spent = process.cpu_time()? - before;
        measured.cpu.push(spent / changes as u32);
        measured.wake_ups += process.wake_ups()? - woken;
        let before = process.cpu_time()?;
        let at_once = self.changes(subject, "one", changes, Duration::ZERO);
        measured.at_once.extend(at_once.await?);
        let spent = process.cpu_time()? - before;
        measured.busy.push(spent / changes as u32);
        let mark = self.scene.mark().await?;
        measured.fan_out.push(self.fan_out(subject, crowd).await?);
        Ok(mark)
    }

    /// Measures reads of a ConfigMap, ten a second.
    pub(crate) async fn gets(&self, count: usize) -> Result<Vec<Duration>> {
        let name = Subject::Floor.name("one");
        let mut all = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            self.config_maps.get(&name).await?;
            all.push(began.elapsed());
            sleep(PAUSE).await;
        }
        Ok(all)
    }

    /// Changes a ConfigMap, and returns the time at which that was done.
    pub(crate) async fn change(&self, config_map: &str, value: &str) -> Result<Instant> {
        let patch = json!({"data": {"key": value}});
        let params = PatchParams::default();
        self.config_maps
            .patch(config_map, &params, &Patch::Merge(&patch))
            .await?;
        Ok(Instant::now())
    }

    /// Makes changes until one is seen: the first ones after a start may come before watches and connections.
    pub(crate) async fn warm_up(&self, subject: Subject) -> Result<()> {
        let deployment = format!("{}-0", subject.name("one"));
        let before = self.observer.now(|seen| seen.of(&deployment).len());
        for attempt in 0.. {
            self.change(&subject.name("one"), &format!("warm up {attempt} {before}"))
                .await?;
            let second = Duration::from_secs(1);
            let changed = self.observer.until("a change", second, |seen| {
                (seen.of(&deployment).len() > before).then_some(())
            });
            if changed.await.is_ok() {
                break;
            }
            ensure!(attempt < 60, "{subject:?} does nothing");
        }
        self.changes(subject, "one", 5, PAUSE).await?;
        Ok(())
    }

    /// Changes one ConfigMap that concerns one Deployment, again and again. Returns the times from each write
    /// until the new pod template is seen.
    pub(crate) async fn changes(
        &self,
        subject: Subject,
        of: &str,
        count: usize,
        pause: Duration,
    ) -> Result<Vec<Duration>> {
        let config_map = subject.name(of);
        let deployment = format!("{config_map}-0");
        let mut all = Vec::new();
        for number in 0..count {
            let before = self.observer.now(|seen| seen.of(&deployment).len());
            let written = self
                .change(&config_map, &format!("{before} {number}"))
                .await?;
            let seen = self
                .observer
                .until("the change of the pod template", PATIENCE, |seen| {
                    seen.of(&deployment).get(before).map(|(at, _)| *at)
                });
            all.push(seen.await?.saturating_duration_since(written));
            sleep(pause).await;
        }
        Ok(all)
    }

    /// Changes one ConfigMap that concerns many Deployments. Returns the time until the last of them is seen.
    async fn fan_out(&self, subject: Subject, count: usize) -> Result<Duration> {
        self.observer.quiet(Duration::from_secs(2)).await;
        let before = self.observer.now(|seen| seen.values);
        let written = self
            .change(&subject.name("crowd"), &before.to_string())
            .await?;
        let seen = self
            .observer
            .until("the last pod template", PATIENCE, |seen| {
                (seen.values >= before + count).then(Instant::now)
            });
        let all = seen.await?.saturating_duration_since(written);
        // The controllers still have work to do, which the next measurement must not feel.
        sleep(Duration::from_secs(3)).await;
        Ok(all)
    }

    /// Makes many changes in a row, most of them of objects that nobody lists.
    async fn stream(&self, quick: bool) -> Result<Streamed> {
        let subject = Subject::Operator;
        let names: Vec<_> = (0..CONCERNED)
            .map(|number| format!("stream-{number}"))
            .collect();
        for name in &names {
            self.scene.put_all(&[subject.config_map(name, 1)]).await?;
            self.scene.create_all(&subject.deployments(name, 1)).await?;
        }
        let others: Vec<_> = (0..UNCONCERNED)
            .map(|number| format!("other-{number}"))
            .collect();
        for name in &others {
            self.scene.put_all(&[subject.config_map(name, 0)]).await?;
        }
        self.observer.quiet(Duration::from_secs(8)).await;
        let mark = self.scene.mark().await?;
        let before = self.observer.now(|seen| seen.values);
        let period = if quick { STREAM / 4 } else { STREAM };
        let count = RATE * period.as_secs() as usize;
        let mut ticks = interval(period / count as u32);
        let mut writes = stream::FuturesUnordered::new();
        for number in 0..count {
            ticks.tick().await;
            let name = match number % ONE_IN {
                0 => &names[number / ONE_IN % names.len()],
                _ => &others[number % others.len()],
            };
            let (name, value) = (subject.name(name), number.to_string());
            writes.push(async move { self.change(&name, &value).await });
            while writes.len() > 64 {
                writes.try_next().await?;
            }
        }
        let mut last = Instant::now();
        while let Some(written) = writes.next().await {
            last = written?;
        }
        let mut right = last;
        for name in &names {
            let workload = &subject.deployments(name, 1)[0];
            let expected = self.scene.expected_key(workload).await?;
            let seen = self.observer.until("the right hash", PATIENCE, |seen| {
                let (at, value) = seen.of(&workload.name).last()?;
                (*value == expected).then_some(*at)
            });
            right = right.max(seen.await?);
        }
        let requests = count_requests(self.scene, mark).await?;
        Ok(Streamed {
            late: right - last,
            rollouts: self.observer.now(|seen| seen.values) - before,
            lists: requests
                .iter()
                .filter(|((verb, _), _)| verb == "list")
                .map(|(_, count)| count)
                .sum(),
        })
    }
}

/// Requests of the operator by verb and resource, without watches.
pub(crate) type Requests = BTreeMap<(String, String), usize>;

async fn count_requests(scene: &Scene, mark: Mark) -> Result<Requests> {
    let mut counts = Requests::new();
    for request in scene.requests(mark).await? {
        let is_answered = request.stage == "ResponseComplete" && request.verb != "watch";
        if is_answered && !request.resource.is_empty() {
            *counts.entry((request.verb, request.resource)).or_default() += 1;
        }
    }
    Ok(counts)
}

/// Returns the requests since `mark`, once there are no more.
pub(crate) async fn at_rest(scene: &Scene, mark: Mark) -> Result<Requests> {
    let mut before = None;
    loop {
        let counts = count_requests(scene, mark).await?;
        if before.as_ref() == Some(&counts) && !counts.is_empty() {
            return Ok(counts);
        }
        before = Some(counts);
        sleep(Duration::from_secs(2)).await;
    }
}

pub(crate) fn told(requests: &Requests) -> String {
    let all: Vec<_> = requests
        .iter()
        .map(|((verb, resource), count)| format!("{count} {verb} {resource}"))
        .collect();
    all.join(", ")
}
