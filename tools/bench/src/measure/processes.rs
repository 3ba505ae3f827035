//! Processor time and memory of other processes, over time and at their end, from `/proc`.

use super::{
    sampling::{SAMPLES_MAX, Sampling},
    usage::{number_of, stat_field},
};
use crate::error::BenchResult;
use holdall_io::clock::Clock;
use serde::{Deserialize, Serialize};
use std::{fs, sync::Arc};

/// One sample of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Processors that it kept busy since the last sample: 1 is one of them all the time.
    pub busy: f64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
}

/// Resources that a process used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Its name.
    pub name: String,
    /// Processor time of all its threads in seconds.
    pub cpu_s: f64,
    /// The part of it spent in the kernel.
    pub cpu_system_s: f64,
    /// Highest sampled resident memory, in bytes.
    pub rss_max_bytes: u64,
    /// Bytes that it wrote to file systems on disks, through the page cache or past it; `None` if the
    /// kernel does not count them.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Samples over time.
    pub samples: Vec<ProcessSample>,
    /// Processor time by thread name, the busiest first, as far as it was sampled.
    #[serde(default)]
    pub threads: Vec<ThreadUse>,
}

/// Processor time that the threads of one name used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Their name, cut by the kernel to 15 bytes.
    pub name: String,
    /// Number of threads.
    pub count: u32,
    /// Processor time in seconds.
    pub cpu_s: f64,
}

/// The use of process `id` up to now. Works also for one that has ended and is not yet reaped, but without its memory.
pub(crate) fn process_use(name: &str, id: u32) -> ProcessUse {
    let (user, system) = cpu_seconds(&fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default());
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    ProcessUse {
        name: name.to_owned(),
        cpu_s: user + system,
        cpu_system_s: system,
        rss_max_bytes: kibibytes(&status, "VmHWM:"),
        written_bytes: written_bytes(&id.to_string()),
        samples: Vec::new(),
        threads: thread_use(id),
    }
}

/// Bytes that process `id` (or `self`) has written to disks, from `/proc/<id>/io` (proc_pid_io(5)); file
/// systems in memory do not count.
pub fn written_bytes(id: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/io")).ok()?;
    number_of(&text, "write_bytes:")
}

/// Memory of a process now: bytes that belong to no file, and address space; 0 after its end.
pub(crate) fn memory_use(id: u32) -> [u64; 2] {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    ["RssAnon:", "VmSize:"].map(|field| kibibytes(&status, field))
}

/// A program's threads end one after the other: for each name the largest values are kept.
fn keep_most(kept: &mut Vec<ThreadUse>, now: Vec<ThreadUse>) {
    for one in now {
        match kept.iter_mut().find(|other| other.name == one.name) {
            Some(other) if other.cpu_s > one.cpu_s => {}
            Some(other) => *other = one,
            None => kept.push(one),
        }
    }
    kept.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s));
}

/// Numbers at the end of a thread's name, which distinguish it from its siblings, are left out.
fn thread_use(id: u32) -> Vec<ThreadUse> {
    let mut threads: Vec<ThreadUse> = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{id}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.split_once('(') else {
            continue;
        };
        let name = rest.rsplit_once(')').map_or(rest, |(name, _)| name);
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        let (user, system) = cpu_seconds(&stat);
        match threads.iter_mut().find(|one| one.name == name) {
            Some(one) => {
                one.count += 1;
                one.cpu_s += user + system;
            }
            None => threads.push(ThreadUse {
                name: name.to_owned(),
                count: 1,
                cpu_s: user + system,
            }),
        }
    }
    threads.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s));
    threads
}

/// Reads `utime` and `stime` (proc_pid_stat(5)), which follow a name that may contain blanks.
fn cpu_seconds(stat: &str) -> (f64, f64) {
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |number: usize| stat_field(stat, number) as f64 / ticks_per_s;
    (seconds(14), seconds(15))
}

fn kibibytes(status: &str, field: &str) -> u64 {
    number_of(status, field).unwrap_or(0) * 1024
}

/// Samples processes until it is stopped.
#[derive(Debug)]
pub(crate) struct ProcessSampler(Sampling<Vec<ProcessUse>>);

impl ProcessSampler {
    /// Starts sampling these processes.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(processes: Vec<(String, u32)>, clock: Arc<dyn Clock>) -> BenchResult<Self> {
        let each = |processes: &[(String, u32)]| -> Vec<ProcessUse> {
            processes
                .iter()
                .map(|(name, id)| process_use(name, *id))
                .collect()
        };
        let seen = each(&processes);
        let mut last_s = 0.0;
        let sample = move |seen: &mut Vec<ProcessUse>, at_s: f64| {
            for (kept, now) in seen.iter_mut().zip(each(&processes)) {
                add(kept, now, at_s, last_s);
            }
            last_s = at_s;
        };
        Sampling::start("process-sampler", clock, seen, sample).map(Self)
    }

    /// Ends and returns the resources that each process used.
    pub fn stop(self) -> Vec<ProcessUse> {
        self.0.stop()
    }
}

/// Adds a sample. A process that has ended has no memory any more; its last figures are kept.
fn add(kept: &mut ProcessUse, now: ProcessUse, at_s: f64, last_s: f64) {
    if now.rss_max_bytes == 0 || kept.samples.len() >= SAMPLES_MAX {
        return;
    }
    kept.samples.push(ProcessSample {
        at_s,
        busy: (now.cpu_s - kept.cpu_s).max(0.0) / (at_s - last_s).max(1e-9),
        rss_bytes: now.rss_max_bytes,
    });
    kept.cpu_s = now.cpu_s;
    kept.cpu_system_s = now.cpu_system_s;
    kept.rss_max_bytes = kept.rss_max_bytes.max(now.rss_max_bytes);
    keep_most(&mut kept.threads, now.threads);
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_io::clock::SystemClock;

    #[test]
    fn names_with_brackets_and_blanks_are_skipped() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_seconds(stat), (2.5, 0.5));
        assert_eq!(
            kibibytes("VmPeak:\t 9 kB\nVmHWM:\t    12 kB\n", "VmHWM:"),
            12 << 10
        );
    }

    #[test]
    fn bytes_written_to_a_disk_are_counted() {
        // In the program's folder, which is on a disk; a temporary folder may be in memory.
        let program = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(program.parent().unwrap()).unwrap();
        let Some(before) = written_bytes("self") else {
            return;
        };
        std::io::Write::write_all(&mut &file, &vec![7; 1 << 20]).unwrap();
        assert!(written_bytes("self").unwrap() >= before + (1 << 20));
        let ours = process_use("me", std::process::id());
        assert!(ours.written_bytes.unwrap() >= before + (1 << 20));
    }

    #[test]
    fn a_threads_use_is_kept_after_its_end() {
        let of = |name: &str, cpu_s| ThreadUse {
            name: name.to_owned(),
            count: 1,
            cpu_s,
        };
        let mut kept = vec![of("receive", 2.0), of("drain", 1.0)];
        keep_most(&mut kept, vec![of("drain", 3.0), of("sync", 0.5)]);
        assert_eq!(kept, [of("drain", 3.0), of("receive", 2.0), of("sync", 0.5)]);
    }

    #[test]
    fn this_process_is_sampled_at_least_once() {
        let id = std::process::id();
        let sampler = ProcessSampler::start(vec![("me".to_owned(), id)], Arc::new(SystemClock)).unwrap();
        let seen = sampler.stop();
        assert_eq!(seen.len(), 1);
        assert!(
            !seen[0].samples.is_empty() && seen[0].rss_max_bytes > 0,
            "{seen:?}"
        );
        // This thread and the sampling one.
        let threads: u32 = seen[0].threads.iter().map(|one| one.count).sum();
        assert!(threads >= 2, "{seen:?}");
        assert!(
            seen[0].threads.iter().any(|one| one.name == "process-sampler"),
            "{seen:?}"
        );
    }
}
