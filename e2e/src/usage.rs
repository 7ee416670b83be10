//! What a process has taken up of the machine.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use crate::process::Process;

impl Process {
    /// The most memory that it has had at once, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn peak_memory(&self) -> Result<usize> {
        self.memory("VmHWM")
    }

    /// The memory that it has now, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resident_memory(&self) -> Result<usize> {
        self.memory("VmRSS")
    }

    /// The part of that memory that no file stands behind, in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn anonymous_memory(&self) -> Result<usize> {
        self.memory("RssAnon")
    }

    /// How long its threads have run on a processor, those that have ended aside.
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

    /// How many file descriptors it has open.
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
