//! Tells whether the replicas take more and more memory.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// What all replicas took, over time.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    samples: Vec<Sample>,
}

/// What one replica took at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    replica: usize,
    run: Run,
    at: Duration,
    kib: f64,
    files: usize,
}

/// A run of its program, before and since it leads for the first time: a leader knows all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    pid: i32,
    has_led: bool,
}

/// How the memory of one replica grew over a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// In KiB per minute.
    pub(crate) slope: f64,
    /// In KiB.
    pub(crate) mean: f64,
    minutes: f64,
}

impl Memory {
    /// Notes what a replica takes now, if it runs.
    pub(crate) fn sample(&mut self, replica: usize, pid: i32, leads: bool, at: Duration) {
        let led = Run { pid, has_led: true };
        let has_led = leads || self.samples.iter().any(|sample| sample.run == led);
        // One that is being restarted has nothing to tell.
        if let Ok((kib, files)) = usage(pid) {
            self.samples.push(Sample {
                replica,
                run: Run { pid, has_led },
                at,
                kib,
                files,
            });
        }
    }

    /// What a replica took last.
    pub(crate) fn last(&self, replica: usize) -> Option<(f64, usize)> {
        let mut samples = self.samples.iter().rev();
        let sample = samples.find(|sample| sample.replica == replica)?;
        Some((sample.kib, sample.files))
    }

    /// The most files that any of them had open.
    pub(crate) fn most_files(&self) -> usize {
        self.samples
            .iter()
            .map(|sample| sample.files)
            .max()
            .unwrap_or_default()
    }

    /// One line for each minute: the mean of each replica in MiB, and its files.
    pub(crate) fn table(&self, replicas: usize) -> String {
        let minute = |sample: &Sample| sample.at.as_secs() / 60;
        let last = self.samples.iter().map(minute).max().unwrap_or_default();
        let mut table = "minute".to_owned();
        (0..replicas).for_each(|at| table += &format!("   replica {at}: MiB  files"));
        for at in 0..=last {
            table += &format!("\n{at:6}");
            for replica in 0..replicas {
                let of_minute: Vec<_> = self
                    .samples
                    .iter()
                    .filter(|sample| sample.replica == replica && minute(sample) == at)
                    .collect();
                let kib = of_minute.iter().map(|sample| sample.kib).sum::<f64>();
                let mib = kib / 1024.0 / of_minute.len().max(1) as f64;
                let files = of_minute.last().map_or(0, |sample| sample.files);
                table += &format!("{mib:17.1} {files:6}");
            }
        }
        table
    }

    /// How the memory of a replica grew in the second half of `whole`: least squares, with a level of its own for each
    /// run, the first minute of which does not count.
    pub(crate) fn growth(&self, replica: usize, whole: Duration) -> Option<Growth> {
        let own = |sample: &&Sample| sample.replica == replica;
        let (mut covariance, mut variance) = (0.0, 0.0);
        let mut counted = Vec::new();
        let samples = self.samples.iter().filter(own);
        let mut runs: Vec<_> = samples.map(|sample| sample.run).collect();
        runs.dedup();
        for run in runs {
            let of_run = self.samples.iter().filter(|sample| sample.run == run);
            let of_run: Vec<_> = of_run.collect();
            let began = of_run.first()?.at;
            let settled: Vec<_> = of_run
                .iter()
                .filter(|sample| sample.at >= whole / 2 && sample.at >= began + WARM_UP)
                .map(|sample| (sample.at.as_secs_f64() / 60.0, sample.kib))
                .collect();
            let number = settled.len() as f64;
            let middle = settled.iter().map(|(at, _)| at).sum::<f64>() / number;
            let mean = settled.iter().map(|(_, kib)| kib).sum::<f64>() / number;
            for (at, kib) in &settled {
                covariance += (at - middle) * (kib - mean);
                variance += (at - middle) * (at - middle);
            }
            counted.extend(settled);
        }
        (variance > 0.0).then(|| Growth {
            slope: covariance / variance,
            mean: counted.iter().map(|(_, kib)| kib).sum::<f64>() / counted.len() as f64,
            minutes: whole.as_secs_f64() / 120.0,
        })
    }
}

impl Growth {
    /// Less than 100 KiB a minute, or than 2 % over the time.
    pub(crate) fn is_flat(&self) -> bool {
        self.slope < 100.0 || self.slope * self.minutes < 0.02 * self.mean
    }
}

/// Resident KiB, and open files.
fn usage(pid: i32) -> Result<(f64, usize)> {
    let directory = format!("/proc/{pid}");
    let status = fs::read_to_string(format!("{directory}/status"))?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
        .context("no VmRSS")?;
    Ok((
        resident.parse()?,
        fs::read_dir(format!("{directory}/fd"))?.count(),
    ))
}

const WARM_UP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(kib: impl Fn(u64, i32) -> f64) -> Memory {
        let samples = (0..60).map(|at| {
            let pid = if at < 40 { 1 } else { 2 };
            Sample {
                replica: 0,
                run: Run { pid, has_led: true },
                at: Duration::from_secs(10 * at),
                kib: kib(at, pid),
                files: 10,
            }
        });
        Memory {
            samples: samples.collect(),
        }
    }

    const WHOLE: Duration = Duration::from_secs(600);

    #[test]
    fn a_restart_is_no_growth() {
        let growth = memory(|_, pid| if pid == 1 { 10_000.0 } else { 20_000.0 }).growth(0, WHOLE);
        let growth = growth.expect("there are samples");
        assert!(growth.slope.abs() < 0.1 && growth.is_flat(), "{growth:?}");
    }

    #[test]
    fn what_grows_in_every_run_is_seen() {
        let growth = memory(|at, _| 10_000.0 + 50.0 * at as f64).growth(0, WHOLE);
        let growth = growth.expect("there are samples");
        assert!(
            (growth.slope - 300.0).abs() < 0.1 && !growth.is_flat(),
            "{growth:?}"
        );
    }
}
