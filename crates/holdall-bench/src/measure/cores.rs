//! How busy each processor is over time, read from the kernel's own counters.

use crate::error::{BenchError, BenchResult};
use holdall_io::clock::Clock;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The kernel counts in hundredths of a second; shorter looks say nothing.
const INTERVAL: Duration = Duration::from_millis(200);

/// Samples kept at most: an hour. A longer run keeps its beginning.
const SAMPLES_MAX: usize = 18_000;

/// One look at all processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSample {
    /// Seconds since the beginning.
    pub at_s: f64,
    /// Share of the time since the last look in which each processor was busy, 0 to 1.
    pub busy: Vec<f64>,
}

/// Looks again and again until it is stopped.
#[derive(Debug)]
pub struct CoreSampler {
    stop: mpsc::SyncSender<()>,
    thread: JoinHandle<Vec<CoreSample>>,
}

/// Busy and total ticks of one processor.
type Ticks = (u64, u64);

impl CoreSampler {
    /// Begins.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(clock: Arc<dyn Clock>) -> BenchResult<Self> {
        let (stop, stopped) = mpsc::sync_channel::<()>(1);
        let thread = thread::Builder::new()
            .name("core-sampler".to_owned())
            .spawn(move || sample(clock.as_ref(), &stopped))
            .map_err(|source| BenchError::Thread { source })?;
        Ok(Self { stop, thread })
    }

    /// Ends; what was seen.
    pub fn stop(self) -> Vec<CoreSample> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn sample(clock: &dyn Clock, stopped: &mpsc::Receiver<()>) -> Vec<CoreSample> {
    let start = clock.monotonic();
    let mut last = parse(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let mut samples = Vec::new();
    loop {
        // The last look is shorter than the others, so that short runs have one at all.
        let ended = !matches!(
            stopped.recv_timeout(INTERVAL),
            Err(mpsc::RecvTimeoutError::Timeout)
        );
        let now = parse(&fs::read_to_string("/proc/stat").unwrap_or_default());
        if samples.len() < SAMPLES_MAX {
            samples.push(CoreSample {
                at_s: clock.monotonic().saturating_sub(start).as_secs_f64(),
                busy: last
                    .iter()
                    .zip(&now)
                    .map(|(last, now)| share(*last, *now))
                    .collect(),
            });
        }
        if ended {
            return samples;
        }
        last = now;
    }
}

fn share(last: Ticks, now: Ticks) -> f64 {
    let total = now.1.saturating_sub(last.1);
    if total == 0 {
        return 0.0;
    }
    now.0.saturating_sub(last.0) as f64 / total as f64
}

/// Reads the lines `cpu0 …` of `/proc/stat` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal, and guests, which
/// are within user and nice.
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
