//! Upgrades a release of an earlier version while it manages many workloads, and switches each optional feature of the
//! chart on and off. Reports each rollout that is not documented.

mod population;
mod release;
mod rolls;
mod sentinels;
mod state;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Result, ensure};
use clap::Parser;
use pod_reloader_e2e::features::{Feature, features};
use pod_reloader_e2e::workload::config_map;
use pod_reloader_e2e::{Attempt, Version, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    population::{Kept, population},
    release::Release,
    rolls::Rolls,
    state::{Change, State},
};

/// Upgrades a release of an earlier version while it manages many workloads, and switches each optional feature of the
/// chart on and off. Ends with 0 only if nothing rolled that is not documented to.
#[derive(Parser)]
struct Args {
    /// Folder of the earlier version, as scripts/earlier prints it.
    #[arg(long)]
    from: PathBuf,
    /// How many workloads are managed.
    #[arg(long, default_value = "500")]
    workloads: usize,
    /// Features to switch, by parts of their names [default: all].
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Args {
        from,
        workloads,
        features: picked,
    } = Args::parse();
    let earlier = Version::earlier(&from)?;
    let mut run = Run::begin(earlier, workloads).await?;
    let outcome = run.all(&picked).await;
    if let Err(error) = outcome {
        run.faults.push(format!("{error:#}"));
    }
    let Run {
        release,
        all,
        upgrades,
        rollouts,
        faults,
        ..
    } = run;
    let managed = all.iter().filter(|kept| kept.form.is_managed()).count();
    println!(
        "\n{managed} managed workloads, {upgrades} upgrades, {rollouts} rollouts as documented"
    );
    for fault in &faults {
        println!("WRONG: {fault}");
    }
    release.stop().await;
    Ok(match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A release, its workloads, and what has happened to them.
struct Run {
    release: Release,
    namespaces: Vec<String>,
    all: Vec<Kept>,
    state: State,
    upgrades: usize,
    /// Number of rollouts that were to be.
    rollouts: usize,
    /// What was not to be.
    faults: Vec<String>,
}

impl Run {
    /// Installs the earlier version, and creates the workloads.
    async fn begin(earlier: Version, workloads: usize) -> Result<Self> {
        let began = Instant::now();
        let population = population(workloads, &earlier);
        let mut release = Release::install(earlier).await?;
        release.scene.prepare_features().await?;
        let scene = &release.scene;
        let namespaces: Vec<_> = population.iter().map(|it| it.name.clone()).collect();
        let namespace =
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        scene
            .apply(&namespaces.iter().map(namespace).collect::<Vec<_>>())
            .await?;
        for namespace in &population {
            let workloads: Vec<_> = namespace
                .kept
                .iter()
                .map(|it| it.workload.clone())
                .collect();
            scene
                .put_all_in(&namespace.name, &namespace.objects)
                .await?;
            scene.create_all_in(&namespace.name, &workloads).await?;
        }
        release.watch_over(&namespaces).await?;
        let all: Vec<Kept> = population.into_iter().flat_map(|it| it.kept).collect();
        let state = State::read(&release.scene.client).await?;
        let wrong = all
            .iter()
            .find(|kept| state.has_key(kept) != kept.form.is_managed());
        if let Some(kept) = wrong {
            anyhow::bail!("{kept} is managed by the earlier version, or is not, unlike expected");
        }
        let seconds = began.elapsed().as_secs();
        println!(
            "{} workloads are there after {seconds} s, {workloads} of them managed",
            all.len()
        );
        Ok(Self {
            release,
            namespaces,
            all,
            state,
            upgrades: 0,
            rollouts: 0,
            faults: Vec::new(),
        })
    }

    /// Upgrades to the present version, and switches all features that are picked.
    async fn all(&mut self, picked: &[String]) -> Result<()> {
        let began = Instant::now();
        self.release.upgrade(Version::present()).await?;
        self.upgrades += 1;
        self.compare("the upgrade", began, |_| false).await?;
        self.change("2").await?;
        let mut features = features(&self.namespaces);
        features.retain(|it| picked.is_empty() || picked.iter().any(|part| it.name.contains(part)));
        ensure!(
            !features.is_empty(),
            "no feature has such a name: {picked:?}"
        );
        let default = self.release.manifest().await?;
        for feature in &features {
            // One feature that fails says nothing about the others.
            if let Err(error) = self.feature(feature, &default).await {
                self.faults.push(format!("{}: {error:#}", feature.name));
            }
        }
        self.change("3").await
    }

    /// Switches a feature on and off.
    async fn feature(&mut self, feature: &Feature, default: &str) -> Result<()> {
        let name = feature.name;
        self.switch(&format!("{name} on"), &feature.values, rolls::on(name))
            .await?;
        let is_on = self.release.manifest().await? != *default;
        self.switch(&format!("{name} off"), &json!({}), rolls::off(name))
            .await?;
        let is_off = self.release.manifest().await? == *default;
        ensure!(
            is_on && is_off,
            "the manifest is on: {is_on}, off: {is_off}"
        );
        Ok(())
    }

    async fn switch(&mut self, what: &str, values: &Value, rolls: Rolls) -> Result<()> {
        let began = Instant::now();
        let outcome = self.release.switch(values).await;
        self.upgrades += 1;
        if let Err(error) = outcome {
            self.faults.push(format!("{what}: {error:#}"));
        }
        self.compare(what, began, rolls).await
    }

    /// Changes one ConfigMap: those that list it roll once, and no others.
    async fn change(&mut self, value: &str) -> Result<()> {
        const CHANGED: &str = "app-0";
        let began = Instant::now();
        let scene = &self.release.scene;
        scene
            .put_all_in(FIRST, &[config_map(CHANGED, value)])
            .await?;
        let rolls: Rolls = |kept| kept.namespace == FIRST && kept.follows(CHANGED);
        ensure!(
            self.all.iter().any(rolls),
            "there are too few workloads: none lists {CHANGED}"
        );
        wait_for("those that list it to be restarted", PATIENCE, async || {
            let state = State::read(&scene.client).await?;
            let same = |kept: &&Kept| rolls(kept) && state.change(&self.state, kept).is_none();
            let same = self.all.iter().filter(same).count();
            Ok(match same {
                0 => Attempt::Done(()),
                same => Attempt::NotYet(format!("{same} were not")),
            })
        })
        .await?;
        self.release.quiet(&json!({})).await?;
        self.compare("a changed ConfigMap", began, rolls).await
    }

    /// Compares what has rolled since the last time with what was to roll, once.
    async fn compare(&mut self, what: &str, began: Instant, rolls: Rolls) -> Result<()> {
        const SHOWN: usize = 5;
        let after = State::read(&self.release.scene.client).await?;
        let (mut rolled, mut baselines, mut wrong) = (0, 0, Vec::new());
        for kept in &self.all {
            let expected = rolls(kept).then_some(Change::Rollouts(1));
            let change = after.change(&self.state, kept);
            if change != expected {
                wrong.push((kept, change));
            } else if change.is_some() {
                rolled += 1;
            }
            baselines += usize::from(after.has_other_baseline(&self.state, kept));
        }
        let seconds = began.elapsed().as_secs();
        println!(
            "{what}: {rolled} rollouts, {baselines} baselines, {} faults, {seconds} s",
            wrong.len()
        );
        if !wrong.is_empty() {
            self.faults
                .push(format!("{what}: {} workloads", wrong.len()));
        }
        for (kept, change) in wrong.into_iter().take(SHOWN) {
            println!("  {kept}: {change:?}");
            for line in self.release.said_of(kept).iter().rev().take(SHOWN) {
                println!("    {line}");
            }
        }
        self.rollouts += rolled;
        self.state = after;
        Ok(())
    }
}

/// Namespace in which a ConfigMap changes.
const FIRST: &str = "upgrade-0";
const PATIENCE: Duration = Duration::from_secs(180);
