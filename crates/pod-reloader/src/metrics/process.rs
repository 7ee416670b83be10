//! The resources that the process uses, under the names that every exporter uses.

use std::fmt;
use std::fs;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The metrics of this process. A value that cannot be read is left out.
#[derive(Debug)]
pub(super) struct Process {
    /// The time when the process began.
    pub(super) since: SystemTime,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut show = |name, help, unit, metric: &dyn EncodeMetric| {
            let encoder = encoder.encode_descriptor(name, help, unit, metric.metric_type())?;
            metric.encode(encoder)
        };
        let (seconds, bytes) = (Some(&Unit::Seconds), Some(&Unit::Bytes));
        let cpu = ConstCounter::new(cpu_seconds());
        show(
            "process_cpu",
            "User and system CPU time, in seconds",
            seconds,
            &cpu,
        )?;
        let since = ConstGauge::new(super::since_1970(self.since));
        show(
            "process_start_time",
            "Start time of the process, in seconds since 1970",
            seconds,
            &since,
        )?;
        if let Some(resident) = resident_bytes() {
            let resident = ConstGauge::new(resident);
            show(
                "process_resident_memory",
                "Resident memory",
                bytes,
                &resident,
            )?;
        }
        if let Some(open) = open_files() {
            let open = ConstGauge::new(open);
            show(
                "process_open_fds",
                "Number of open file descriptors",
                None,
                &open,
            )?;
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            let limit = ConstGauge::new(i64::try_from(limit).unwrap_or(i64::MAX));
            show(
                "process_max_fds",
                "Maximum number of open file descriptors",
                None,
                &limit,
            )?;
        }
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_files() -> Option<i64> {
    // One of them is the directory itself.
    let open = fs::read_dir("/proc/self/fd")
        .ok()?
        .count()
        .saturating_sub(1);
    i64::try_from(open).ok()
}
