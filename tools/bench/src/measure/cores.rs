//! How busy each processor is over time, and how much of the page cache is unwritten, from the kernel's own
//! counters.

use super::{
    sampling::{SAMPLES_MAX, Sampling},
    usage::number_of,
};
use crate::error::BenchResult;
use holdall_io::clock::Clock;
use serde::{Deserialize, Serialize};
use std::{fs, sync::Arc};

/// One sample of all processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Share of the time since the last sample in which each processor was busy, 0 to 1.
    pub busy: Vec<f64>,
    /// Bytes that programs have written and the disk has not: memory that no recorder counts as its own.
    #[serde(default)]
    pub dirty_bytes: u64,
}

/// Samples until it is stopped.
#[derive(Debug)]
pub(crate) struct CoreSampler(Sampling<Vec<CoreSample>>);

/// Busy and total ticks of one processor.
type Ticks = (u64, u64);

impl CoreSampler {
    /// Starts sampling.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(clock: Arc<dyn Clock>) -> BenchResult<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut last = parse(&read("/proc/stat"));
        let sample = move |samples: &mut Vec<CoreSample>, at_s: f64| {
            let now = parse(&read("/proc/stat"));
            if samples.len() < SAMPLES_MAX {
                samples.push(CoreSample {
                    at_s,
                    busy: last
                        .iter()
                        .zip(&now)
                        .map(|(last, now)| share(*last, *now))
                        .collect(),
                    dirty_bytes: dirty_bytes(&read("/proc/meminfo")),
                });
            }
            last = now;
        };
        Sampling::start("core-sampler", clock, Vec::new(), sample).map(Self)
    }

    /// Ends and returns the samples.
    pub fn stop(self) -> Vec<CoreSample> {
        self.0.stop()
    }
}

fn share(last: Ticks, now: Ticks) -> f64 {
    let total = now.1.saturating_sub(last.1);
    if total == 0 {
        return 0.0;
    }
    now.0.saturating_sub(last.0) as f64 / total as f64
}

/// `Dirty` and `Writeback` of `/proc/meminfo` (proc_meminfo(5)).
fn dirty_bytes(meminfo: &str) -> u64 {
    let kibibytes = |field: &str| number_of(meminfo, field);
    let all = kibibytes("Dirty:").unwrap_or(0) + kibibytes("Writeback:").unwrap_or(0);
    all * 1024
}

/// Reads the lines `cpu0 …` of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq,
/// steal, and guests, which are part of user and nice.
fn parse(stat: &str) -> Vec<Ticks> {
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines()
        .filter(is_processor)
        .map(|line| {
            let fields = line.split_ascii_whitespace().skip(1).take(8);
            let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
            let total: u64 = ticks.iter().sum();
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            (total - idle, total)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn idle_and_waiting_count_as_not_busy() {
        let stat = "cpu  9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 0\ncpu1 0 0 0 100 0 0 0 0 0 0\nintr 7\n";
        assert_eq!(parse(stat), [(20, 100), (0, 100)]);
        assert!((share((20, 100), (70, 200)) - 0.5).abs() < 1e-12);
        assert_eq!(share((1, 5), (1, 5)), 0.0);
    }

    #[test]
    fn unwritten_bytes_are_dirty_or_in_writeback() {
        let meminfo = "MemTotal: 9 kB\nDirty:   3 kB\nWriteback:  4 kB\nWritebackTmp: 8 kB\n";
        assert_eq!(dirty_bytes(meminfo), 7 << 10);
        assert_eq!(dirty_bytes(""), 0);
    }

    #[test]
    fn a_short_run_has_at_least_one_sample_of_every_processor() {
        let sampler = CoreSampler::start(Arc::new(SystemClock)).unwrap();
        let samples = sampler.stop();
        let processors = std::thread::available_parallelism().unwrap().get();
        assert!(!samples.is_empty());
        assert!(samples[0].busy.len() >= processors.min(1));
        assert!(
            samples
                .iter()
                .flat_map(|one| &one.busy)
                .all(|busy| (0.0..=1.0).contains(busy))
        );
    }
}
