//! Reports the progress, and at the end the result.

use std::{
    env, fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use pod_reloader_e2e::{FailedCalls, Scene};

use crate::{
    REPLICAS,
    history::History,
    memory::{Growth, Memory, Usage},
    users::{Counts, Users},
    verdict::Verdict,
};

/// The report, with what it has already printed.
pub(crate) struct Report {
    minutes: u32,
    workloads: usize,
    counts: Arc<Mutex<Counts>>,
    told: Counts,
    hash_changes: usize,
    hash_changes_before: usize,
    faults: usize,
    untold_faults: Vec<String>,
    /// Faults after which something did not recover.
    troubles: Vec<String>,
    last_failed_calls: FailedCalls,
    passed_by: usize,
}

impl Report {
    pub(crate) fn begin(
        minutes: u32,
        users: &Users,
        history: &History,
        failed_calls: FailedCalls,
    ) -> Self {
        Self {
            minutes,
            workloads: users.population.workloads.len(),
            counts: users.counted(),
            told: Counts::default(),
            hash_changes: history.hash_changes(),
            hash_changes_before: history.hash_changes(),
            faults: 0,
            untold_faults: Vec::new(),
            troubles: Vec::new(),
            last_failed_calls: failed_calls,
            passed_by: 0,
        }
    }

    /// Records a fault that is over.
    pub(crate) fn struck(&mut self, fault: Result<String>) {
        self.faults += 1;
        self.untold_faults.push(fault.unwrap_or_else(|error| {
            let trouble = format!("{error:#}");
            self.troubles.push(trouble.clone());
            trouble
        }));
    }

    /// Records the apiserver's counters.
    pub(crate) fn count(&mut self, failed_calls: FailedCalls) {
        self.passed_by += failed_calls.since(self.last_failed_calls).passed_by;
        self.last_failed_calls = failed_calls;
    }

    /// Returns the line of a minute.
    pub(crate) fn minute(&mut self, minute: u32, history: &History, memory: &Memory) -> String {
        let counts = self.counts();
        let hash_changes = history.hash_changes();
        let usage = (0..REPLICAS).filter_map(|replica| memory.last(replica));
        let usage: Vec<_> = usage
            .map(|Usage { own, files, .. }| format!("{:.1} MiB {files} files", own / 1024.0))
            .collect();
        let line = format!(
            "minute {minute:2}: {} config changes, {} touches, {} edits, {} restarts, {} writes failed \
             and {} in outages; {}; {}",
            counts.config_changes - self.told.config_changes,
            counts.touches - self.told.touches,
            counts.edits - self.told.edits,
            hash_changes - self.hash_changes,
            counts.failed.len() - self.told.failed.len(),
            counts.lost_to_outages - self.told.lost_to_outages,
            usage.join(", "),
            match self.untold_faults.as_slice() {
                [] => "no fault has ended".to_owned(),
                faults => faults.join(", "),
            },
        );
        self.untold_faults.clear();
        self.hash_changes = hash_changes;
        self.told = counts;
        line
    }

    /// Prints the result, and returns true if all went well.
    ///
    /// # Errors
    /// When the logs of the replicas cannot be copied.
    pub(crate) fn close(
        self,
        scene: &Scene,
        history: &History,
        memory: &Memory,
        verdict: &Verdict,
        seed: u64,
    ) -> Result<bool> {
        let counts = self.counts();
        println!("\n{}\n", memory.table(REPLICAS));
        let wrong = [
            ("lost", &verdict.lost),
            ("spurious", &verdict.spurious),
            ("moved back", &verdict.moved_back),
            ("told", &verdict.told),
            ("failed", &counts.failed),
            ("trouble", &self.troubles),
        ];
        for (what, lines) in &wrong {
            lines
                .iter()
                .take(SHOWN)
                .for_each(|line| println!("{what}: {line}"));
        }
        let whole = Duration::from_secs(60) * self.minutes;
        let growths = (0..REPLICAS).filter_map(|replica| memory.growth(replica, whole));
        let growths: Vec<_> = growths.collect();
        let is_judged = self.minutes >= JUDGED_FROM;
        let is_flat = !growths.is_empty() && growths.iter().all(Growth::is_flat);
        let is_good = (is_flat || !is_judged) && wrong.iter().all(|(_, lines)| lines.is_empty());
        if !is_good {
            keep_logs(scene, seed)?;
        }
        println!(
            "all was right {} s after the end; {} writes failed, and {} in outages; the slowest took {:.1} s; \
             {} were let pass, as the webhook could not be reached; at most {} files",
            verdict.convergence.as_secs(),
            counts.failed.len(),
            counts.lost_to_outages,
            counts.slowest.as_secs_f64(),
            self.passed_by,
            memory.most_files(),
        );
        let steepest = growths.iter().map(|growth| growth.slope).reduce(f64::max);
        let memory = format!(
            "memory {} ({})",
            match (is_judged, is_flat) {
                (false, _) => "not judged before it has run for 10 min",
                (true, true) => "flat",
                (true, false) => "not flat",
            },
            steepest.map_or("too few samples".to_owned(), |it| format!(
                "{it:.0} KiB/min"
            )),
        );
        println!(
            "soak: {} min, {} workloads, {} faults, {} config changes, {} restarts: {} lost, {} spurious, \
             {} moved back, {memory}",
            self.minutes,
            self.workloads,
            self.faults,
            counts.config_changes,
            history.hash_changes() - self.hash_changes_before,
            verdict.lost.len(),
            verdict.spurious.len(),
            verdict.moved_back.len(),
        );
        Ok(is_good)
    }

    fn counts(&self) -> Counts {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn keep_logs(scene: &Scene, seed: u64) -> Result<()> {
    let directory = env::temp_dir().join(format!("pod-reloader-soak-{seed}"));
    fs::create_dir_all(&directory)?;
    for (at, replica) in scene.processes().enumerate() {
        fs::write(
            directory.join(format!("replica-{at}.log")),
            replica.operator.log()?,
        )?;
    }
    println!("the logs of the replicas are in {}", directory.display());
    Ok(())
}

/// Minute from which memory is judged. An Event is remembered for 6 min, and a restart for 10.
const JUDGED_FROM: u32 = 10;
/// Number of problems of one kind that are shown.
const SHOWN: usize = 10;
