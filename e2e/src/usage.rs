//! Resource usage of a process.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use crate::process::Process;

impl Process {
    /// Returns the peak of its memory, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn peak_memory(&self) -> Result<usize> {
        self.memory("VmHWM")
    }

    /// Returns its current memory, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resident_memory(&self) -> Result<usize> {
        self.memory("VmRSS")
    }

    /// Returns the part of its current memory that is not backed by files, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn anonymous_memory(&self) -> Result<usize> {
        self.memory("RssAnon")
    }

    /// Returns the processor time of its threads, except those that have ended.
    ///
    /// # Errors
    /// When it does not run.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let schedule = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_processor = schedule.split(' ').next().unwrap_or_default();
            total += Duration::from_nanos(on_processor.parse()?);
        }
        Ok(total)
    }

    /// Returns the number of times that its threads have gone to sleep, and so have been woken up, except those that
    /// have ended.
    ///
    /// # Errors
    /// When it does not run.
    pub fn wake_ups(&self) -> Result<u64> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let switches = switches.with_context(|| format!("no switches in {status}"))?;
            total += switches.trim().parse::<u64>()?;
        }
        Ok(total)
    }

    /// Returns the number of its open file descriptors.
    ///
    /// # Errors
    /// When it does not run.
    pub fn open_files(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.pid()))?.count())
    }

    fn memory(&self, field: &str) -> Result<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let value = status
            .lines()
            .find_map(|line| {
                line.strip_prefix(field)?
                    .strip_prefix(':')?
                    .strip_suffix("kB")
            })
            .with_context(|| format!("no {field} in {status}"))?;
        Ok(value.trim().parse::<usize>()? * 1024)
    }
}
