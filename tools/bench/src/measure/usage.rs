//! Resources that the process uses (processor time, memory, page faults), read before and after a run.

use holdall_io::{
    clock::Clock,
    fs::append,
    process::{CpuTime, process_cpu_time},
};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path, time::Duration};

/// Counters that the kernel keeps for the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    minor_faults: u64,
    major_faults: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

/// Reads `/proc/self/stat` and `/proc/self/status`; zeros where they cannot be read.
fn counters() -> Counters {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut counters = parse_stat(&stat);
    // Context switches of the whole process are the sum over its threads.
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        counters.voluntary_switches += number_of(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        counters.involuntary_switches += number_of(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
    }
    counters
}

/// Reads the fields after the program's name, which may contain blanks (see proc_pid_stat(5)).
fn parse_stat(stat: &str) -> Counters {
    Counters {
        minor_faults: stat_field(stat, 10),
        major_faults: stat_field(stat, 12),
        ..Counters::default()
    }
}

/// A field of `/proc/PID/stat` by its number in proc_pid_stat(5); 0 where it is missing.
pub(super) fn stat_field(stat: &str, number: usize) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // Field 3 (state) comes first here.
    let field = fields.split_ascii_whitespace().nth(number - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// The number after a name at the beginning of a line, as in `/proc/PID/status` and `/proc/meminfo`.
pub(super) fn number_of(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// Resident memory of the process in bytes: now, and the highest since [`UsageMeter::start`].
pub(crate) fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name| number_of(&status, name).unwrap_or(0) * 1024;
    (field("VmRSS:"), field("VmHWM:"))
}

/// Resources that a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Processor time of all threads in seconds.
    pub cpu_s: f64,
    /// The part of it in user mode (the kernel divides by sampling).
    pub cpu_user_s: f64,
    /// The part of it in the kernel.
    pub cpu_system_s: f64,
    /// Resident memory before the run, in bytes.
    pub rss_start_bytes: u64,
    /// Highest resident memory during the run, in bytes.
    pub rss_max_bytes: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Times that a thread that lives to the end gave up the processor voluntarily.
    pub voluntary_switches: u64,
    /// Times that a thread that lives to the end was interrupted.
    pub involuntary_switches: u64,
}

/// A running measurement.
pub(crate) struct UsageMeter<'a> {
    clock: &'a dyn Clock,
    started: Duration,
    cpu: CpuTime,
    counters: Counters,
    rss_start_bytes: u64,
}

impl<'a> UsageMeter<'a> {
    /// Starts: resets the highest resident memory and reads all counters.
    pub fn start(clock: &'a dyn Clock) -> Self {
        // "5" resets the high-water mark (proc_pid_clear_refs(5)); if that is forbidden, the mark of the
        // whole process remains.
        let _refused = append(Path::new("/proc/self/clear_refs"), b"5").is_err();
        let (rss_start_bytes, _) = resident_bytes();
        let counters = counters();
        Self {
            clock,
            rss_start_bytes,
            counters,
            cpu: process_cpu_time(),
            started: clock.monotonic(),
        }
    }

    /// When it started.
    pub fn started(&self) -> Duration {
        self.started
    }

    /// Resources used since then.
    pub fn stop(&self) -> Usage {
        let elapsed = self.clock.monotonic().saturating_sub(self.started);
        let cpu = process_cpu_time();
        let now = counters();
        let (_, rss_max_bytes) = resident_bytes();
        let before = self.counters;
        Usage {
            elapsed_s: elapsed.as_secs_f64(),
            cpu_s: cpu.total().saturating_sub(self.cpu.total()).as_secs_f64(),
            cpu_user_s: cpu.user.saturating_sub(self.cpu.user).as_secs_f64(),
            cpu_system_s: cpu.system.saturating_sub(self.cpu.system).as_secs_f64(),
            rss_start_bytes: self.rss_start_bytes,
            rss_max_bytes,
            minor_faults: now.minor_faults.saturating_sub(before.minor_faults),
            major_faults: now.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: now.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: now
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn stat_is_read_after_a_name_with_blanks_and_brackets() {
        let stat = "77 (a b) c) R 1 2 3 4 5 6 10 11 12 13 140 150 16 17";
        let found = parse_stat(stat);
        assert_eq!((found.minor_faults, found.major_faults), (10, 12));
        assert_eq!(parse_stat("nonsense"), Counters::default());
    }

    #[test]
    fn work_costs_processor_time() {
        let meter = UsageMeter::start(&SystemClock);
        let (mut random, before) = (fastrand::Rng::with_seed(1), process_cpu_time().total());
        while process_cpu_time().total() - before < Duration::from_millis(2) {
            std::hint::black_box(random.u64(..));
        }
        assert!(meter.stop().cpu_s >= 0.002);
    }

    #[test]
    fn touched_memory_counts_in_the_highest_resident_size() {
        let meter = UsageMeter::start(&SystemClock);
        let touched = vec![1_u8; 32 << 20];
        std::hint::black_box(&touched);
        let usage = meter.stop();
        assert!(usage.rss_max_bytes >= 32 << 20, "{usage:?}");
        assert!(usage.minor_faults > 0 && usage.elapsed_s > 0.0, "{usage:?}");
    }
}
