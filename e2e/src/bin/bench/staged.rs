//! Measures what it costs that one workload gets changed config first.

use std::time::Duration;

use anyhow::Result;
use pod_reloader_e2e::crowd;
use pod_reloader_e2e::workload::{Workload, config_map};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::changes::{Bench, PATIENCE};
use crate::figures::{Figures, Spread};
use crate::{clear, scene_with};

/// Whether one workload of the crowd goes first.
const STAGED: [(&str, &str); 2] = [("at-once", "none"), ("staged", "configmaps")];

/// The times from a change until pod templates of a crowd change.
struct Times {
    second: Duration,
    last: Duration,
}

/// Measures without a settle period and without a soak.
pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let values = json!({"staged": {"soak": "0s", "deadline": "2m"}});
    let scene = scene_with("0s", values).await?;
    let bench = Bench::begin(&scene).await?;
    let (rounds, count) = if quick { (1, 100) } else { (5, 500) };
    for (name, staged) in STAGED {
        scene.put_all(&[config_map(name, "0")]).await?;
        let concerned = |workload: Workload| {
            let staged = workload.annotated("pod-reloader.cs.sap.com/staged", staged);
            staged.lists(name).with(&["spec", "replicas"], json!(1))
        };
        let crowd: Vec<_> = crowd(name, count).into_iter().map(concerned).collect();
        scene.create_all(&crowd).await?;
    }
    let mut at_once = Vec::new();
    let mut staged = Vec::new();
    let mut followers = Vec::new();
    for _ in 0..rounds {
        let [(one, _), (other, _)] = STAGED;
        at_once.push(fan_out(&bench, one, count).await?.last);
        let times = fan_out(&bench, other, count).await?;
        staged.push(times.last);
        followers.push(times.last - times.second);
    }
    let at_once = Spread::of(at_once);
    let what = format!("one ConfigMap, {count} Deployments, one goes first: all patched");
    figures.compare(&what, at_once, Spread::of(staged), "-");
    let what = "the same, from when that one is healthy";
    figures.compare(what, at_once, Spread::of(followers), "1.1 x all at once");
    clear(scene).await;
    Ok(())
}

/// Changes a ConfigMap that concerns many Deployments.
async fn fan_out(bench: &Bench<'_>, config_map: &str, count: usize) -> Result<Times> {
    bench.observer.quiet(Duration::from_secs(10)).await;
    let before = bench.observer.now(|seen| seen.values);
    let written = bench.change(config_map, &before.to_string()).await?;
    let seen = async |number: usize| {
        let seen = bench.observer.until("a pod template", PATIENCE, |seen| {
            (seen.values >= before + number).then(Instant::now)
        });
        anyhow::Ok(seen.await?.saturating_duration_since(written))
    };
    let times = Times {
        second: seen(2).await?,
        last: seen(count).await?,
    };
    // The controllers still have work to do, which the next measurement must not feel.
    sleep(Duration::from_secs(10)).await;
    Ok(times)
}
