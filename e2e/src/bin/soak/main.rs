//! Keeps many users and two replicas of the operator busy while something breaks each minute. Reports at the
//! end if anything was lost, restarted needlessly, moved back, or leaked.

mod faults;
mod history;
mod memory;
mod outage;
mod population;
mod random;
mod report;
mod users;
mod verdict;

use std::{
    cell::RefCell,
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use clap::Parser;
use pod_reloader_e2e::{ControlPlane, ControlPlaneOptions, FailedCalls, Options, Scene};
use serde_json::json;
use tokio::time::{Instant, interval, sleep_until};

use self::{
    faults::Faults, history::History, memory::Memory, outage::Outage, random::Random,
    report::Report, users::Users, verdict::Verdict,
};

/// Keeps many users and two replicas of the operator busy while something breaks each minute. Ends with
/// 0 only if nothing was lost, restarted needlessly, moved back, or leaked.
#[derive(Parser)]
struct Args {
    /// How long the users are busy.
    #[arg(long, default_value = "15")]
    minutes: u32,
    /// How many workloads they have.
    #[arg(long, default_value = "2000")]
    workloads: usize,
    /// Makes users and faults choose as in an earlier run [default: another each time].
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Args {
        minutes,
        workloads,
        seed,
    } = Args::parse();
    let seed = seed.unwrap_or_else(some_seed);
    println!("soak: {minutes} min, {workloads} workloads, seed {seed}");
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let options = Options {
        // Same as the operator's own defaults.
        settle_period: "5s",
        args: ["--drain-period=15s", "--log-level=info"]
            .map(str::to_owned)
            .to_vec(),
        proxied: true,
        replicas: REPLICAS,
        everywhere: true,
        values: json!({"webhook": {"certManager": {"enabled": true}, "timeoutSeconds": 3}}),
        ..Options::ignoring()
    };
    let scene = Scene::set(control_plane, "busy", options).await?;
    let mut random = Random::new(seed);
    let outage = Arc::new(Outage::default());
    let history = History::begin(&scene.client);
    let began = Instant::now();
    let client = scene.client.clone();
    let mut users = Users::settle(client, workloads, random.fork(), Arc::clone(&outage)).await?;
    println!(
        "the workloads are made after {} s",
        began.elapsed().as_secs()
    );

    let faults = Faults::new(random.fork(), outage);
    let failed_calls = FailedCalls::count(&scene.client).await?;
    let report = Report::begin(minutes, &users, &history, failed_calls);
    let report = RefCell::new(report);
    let memory = RefCell::new(Memory::default());
    let began = Instant::now();
    let end = began + minutes * MINUTE;
    tokio::join!(
        users.act_until(end),
        strike_each_minute(&scene, faults, &report, began, end),
        sample(&scene, &memory, began, end),
        tell_each_minute(&scene, &history, &report, &memory, began, end),
    );
    users.restore_config().await;
    for replica in scene.processes() {
        replica.proxy()?.clear();
    }
    let verdict = Verdict::pass(&scene, &users.population, &history).await?;
    let is_good =
        report
            .into_inner()
            .close(&scene, &history, &memory.into_inner(), &verdict, seed)?;
    for replica in scene.processes() {
        replica.operator.process().kill().await;
    }
    scene.control_plane.stop().await;
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Strikes once a minute. The first minute has no fault.
async fn strike_each_minute(
    scene: &Scene,
    mut faults: Faults,
    report: &RefCell<Report>,
    began: Instant,
    end: Instant,
) {
    for minute in 1.. {
        let next = Instant::now().max(began + minute * MINUTE);
        if next >= end {
            return;
        }
        sleep_until(next).await;
        let struck = faults.strike(scene).await;
        report.borrow_mut().struck(struck);
    }
}

async fn sample(scene: &Scene, memory: &RefCell<Memory>, began: Instant, end: Instant) {
    let mut times = interval(Duration::from_secs(10));
    while Instant::now() < end {
        times.tick().await;
        for (at, replica) in scene.replicas().iter().enumerate() {
            let (pid, leads) = (
                replica.operator.process().pid(),
                replica.operator.is_leading().await,
            );
            memory.borrow_mut().sample(at, pid, leads, began.elapsed());
        }
    }
}

async fn tell_each_minute(
    scene: &Scene,
    history: &History,
    report: &RefCell<Report>,
    memory: &RefCell<Memory>,
    began: Instant,
    end: Instant,
) {
    for minute in 1.. {
        let next = began + minute * MINUTE;
        if next > end {
            return;
        }
        sleep_until(next).await;
        let failed_calls = FailedCalls::count(&scene.client).await;
        let mut report = report.borrow_mut();
        // An apiserver that is down has no counters to read.
        if let Ok(failed_calls) = failed_calls {
            report.count(failed_calls);
        }
        println!("{}", report.minute(minute, history, &memory.borrow()));
    }
}

fn some_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() % 1_000_000)
}

const REPLICAS: usize = 2;
const MINUTE: Duration = Duration::from_secs(60);
