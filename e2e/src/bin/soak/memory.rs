//! Tells if the memory of the replicas grows without end.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

/// The usage of all replicas over time.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    samples: Vec<Sample>,
}

/// The usage of one replica at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    replica: usize,
    run: Run,
    at: Duration,
    usage: Usage,
}

/// The usage of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Resident memory in KiB, including the pages of the program itself, which are loaded one by one.
    pub(crate) resident: f64,
    /// Heap and stacks, which are part of the resident memory, in KiB.
    pub(crate) own: f64,
    /// Number of open files.
    pub(crate) files: usize,
}

/// A run of the program, split at the time when it first leads: a leader knows all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    pid: i32,
    has_led: bool,
}

/// The growth of one replica's memory over a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// Growth in KiB per minute.
    pub(crate) slope: f64,
    /// Resident memory at the end, in KiB.
    resident: f64,
    minutes: f64,
}

impl Memory {
    /// Records the current usage of a replica, if it runs.
    pub(crate) fn sample(&mut self, replica: usize, pid: i32, leads: bool, at: Duration) {
        let led = Run { pid, has_led: true };
        let has_led = leads || self.samples.iter().any(|sample| sample.run == led);
        // A replica that is being restarted has no usage.
        if let Ok(usage) = Usage::of(pid) {
            self.samples.push(Sample {
                replica,
                run: Run { pid, has_led },
                at,
                usage,
            });
        }
    }

    /// Returns the last usage of a replica.
    pub(crate) fn last(&self, replica: usize) -> Option<Usage> {
        let mut samples = self.samples.iter().rev();
        let sample = samples.find(|sample| sample.replica == replica)?;
        Some(sample.usage)
    }

    /// Returns the highest number of files that any replica had open.
    pub(crate) fn most_files(&self) -> usize {
        self.samples
            .iter()
            .map(|sample| sample.usage.files)
            .max()
            .unwrap_or_default()
    }

    /// Returns a table with one line for each minute: the last sample of each replica.
    pub(crate) fn table(&self, replicas: usize) -> String {
        let minute = |sample: &Sample| sample.at.as_secs() / 60;
        let last = self.samples.iter().map(minute).max().unwrap_or_default();
        let mut table = "minute".to_owned();
        (0..replicas).for_each(|at| table += &format!("   replica {at}: RSS   own MiB  files"));
        for at in 0..=last {
            table += &format!("\n{at:6}");
            for replica in 0..replicas {
                let mut samples = self.samples.iter().rev();
                let sample =
                    samples.find(|sample| sample.replica == replica && minute(sample) == at);
                table += &sample.map_or_else(String::new, |Sample { usage, .. }| {
                    let (resident, own) = (usage.resident / 1024.0, usage.own / 1024.0);
                    format!("{resident:17.1} {own:9.1} {:6}", usage.files)
                });
            }
        }
        table
    }

    /// Returns the growth of a replica's heap in the second half of `whole`: the median of the slopes between
    /// any two samples of a run, leaving out the time in which a run warms up. By this measure, a single
    /// step, such as the heap that a list takes for the first time, is no growth; a staircase is.
    pub(crate) fn growth(&self, replica: usize, whole: Duration) -> Option<Growth> {
        let of_replica = self
            .samples
            .iter()
            .filter(|sample| sample.replica == replica);
        let of_replica: Vec<_> = of_replica.collect();
        let began = |run| of_replica.iter().find(|sample| sample.run == run);
        let is_settled = |sample: &&&Sample| {
            let began = began(sample.run).map_or(sample.at, |first| first.at);
            sample.at >= whole / 2 && sample.at >= began + WARM_UP
        };
        let settled: Vec<_> = of_replica.iter().filter(is_settled).collect();
        let mut slopes = Vec::new();
        for (at, one) in settled.iter().enumerate() {
            let later = settled[at + 1..].iter();
            for other in later.filter(|other| other.run == one.run && other.at > one.at) {
                let minutes = (other.at - one.at).as_secs_f64() / 60.0;
                slopes.push((other.usage.own - one.usage.own) / minutes);
            }
        }
        slopes.sort_unstable_by(f64::total_cmp);
        Some(Growth {
            slope: *slopes.get(slopes.len() / 2)?,
            resident: settled.last()?.usage.resident,
            minutes: whole.as_secs_f64() / 120.0,
        })
    }
}

impl Growth {
    /// Returns true for less than 100 KiB a minute, or less than 2 % over the period.
    pub(crate) fn is_flat(&self) -> bool {
        self.slope < 100.0 || self.slope * self.minutes < 0.02 * self.resident
    }
}

impl Usage {
    fn of(pid: i32) -> Result<Self> {
        let directory = format!("/proc/{pid}");
        let status = fs::read_to_string(format!("{directory}/status"))?;
        let kib = |name| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            anyhow::Ok(value.context(name)?.parse::<f64>()?)
        };
        Ok(Self {
            resident: kib("VmRSS:")?,
            own: kib("RssAnon:")?,
            files: fs::read_dir(format!("{directory}/fd"))?.count(),
        })
    }
}

const WARM_UP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(own: impl Fn(u64, i32) -> f64) -> Growth {
        let samples = (0..90).map(|at| {
            let pid = if at < 60 { 1 } else { 2 };
            let usage = Usage {
                resident: 20_000.0,
                own: own(at, pid),
                files: 10,
            };
            Sample {
                replica: 0,
                run: Run { pid, has_led: true },
                at: Duration::from_secs(10 * at),
                usage,
            }
        });
        let samples = samples.collect();
        let growth = Memory { samples }.growth(0, Duration::from_secs(900));
        growth.expect("there are samples")
    }

    #[test]
    fn a_restart_and_a_step_are_not_growth() {
        let restarted = growth(|_, pid| if pid == 1 { 5_000.0 } else { 9_000.0 });
        assert!(restarted.is_flat(), "{restarted:?}");
        let stepped = growth(|at, _| if at < 70 { 5_000.0 } else { 9_000.0 });
        assert!(stepped.is_flat(), "{stepped:?}");
    }

    #[test]
    fn growth_in_every_run_is_seen() {
        let growing = growth(|at, _| 5_000.0 + 50.0 * at as f64);
        assert!((growing.slope - 300.0).abs() < 0.1, "{growing:?}");
        let staircase = growth(|at, _| 5_000.0 + 300.0 * (at / 6) as f64);
        assert!(!growing.is_flat() && !staircase.is_flat(), "{staircase:?}");
    }
}
