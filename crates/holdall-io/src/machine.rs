//! The machine's resources and load: processors, memory, receive buffers, clock.

use crate::{
    clock::{Clock, SystemClock},
    process::process_cpu_time,
};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::sync_channel,
    time::Duration,
};

/// Reads one of the system's small files.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// Reads a file of `/proc` or `/sys`.
///
/// # Errors
/// When the system does not have it.
pub fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path)
}

/// Processors that this process may use, limits of its control group included.
pub fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors that the kernel's statistics are of: all of the machine.
pub fn processors_of_machine() -> usize {
    processors_in(&read(Path::new("/proc/stat")).unwrap_or_default()).max(1)
}

fn processors_in(stat: &str) -> usize {
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_processor).count()
}

/// Time that all processors together have spent, since the machine was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTimes {
    /// When they were read.
    at: Duration,
    /// Processors that were online then.
    processors: usize,
    /// Time without work, in ticks.
    idle: u64,
    /// How often a processor has gone from one thread to another.
    switches: u64,
    /// Processes that make room for others.
    yielding: BTreeMap<u64, Yielding>,
}

/// A process of low priority (nice above 0, or `SCHED_IDLE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Yielding {
    parent: u64,
    /// Ticks used by the process and by its children that have ended.
    ticks: u64,
}

/// The time that all processors have spent.
pub fn processor_times() -> ProcessorTimes {
    let stat = read(Path::new("/proc/stat")).unwrap_or_default();
    ProcessorTimes {
        at: SystemClock.monotonic(),
        processors: processors_in(&stat),
        idle: idle_ticks(&stat),
        switches: number_after(&stat, "ctxt").unwrap_or(0),
        yielding: yielding(),
    }
}

impl ProcessorTimes {
    /// How often a processor has gone from one thread to another since an earlier moment.
    pub fn switches_since(&self, before: &Self) -> u64 {
        self.switches.saturating_sub(before.switches)
    }

    /// Busy time since an earlier moment, and the part of it spent on low-priority work, which makes room for a recorder. All time that is not idle
    /// counts as busy: kernels without a tick on idle processors measure idle time, but sample the rest at ticks, which miss threads that a timer
    /// wakes.
    pub fn since(&self, before: &Self) -> (Duration, Duration) {
        // The ticks of a process pass to its parent when it ends; they are gone once no low-priority ancestor is left.
        let moved = |(id, one): &(&u64, &Yielding)| {
            self.yielding.contains_key(id) || self.yielding.contains_key(&one.parent)
        };
        let had: u64 = before
            .yielding
            .iter()
            .filter(moved)
            .map(|(_, one)| one.ticks)
            .sum();
        let has: u64 = self.yielding.values().map(|one| one.ticks).sum();
        let idle = ticks(self.idle.saturating_sub(before.idle));
        let span = self.at.saturating_sub(before.at);
        let available = span.saturating_mul(u32::try_from(self.processors).unwrap_or(u32::MAX));
        let busy = available.saturating_sub(idle);
        (busy, ticks(has.saturating_sub(had)).min(busy))
    }
}

/// A clock tick of the kernel's statistics is a hundredth of a second on every Linux that runs programs like this one (`USER_HZ`).
fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(10))
}

/// Ticks of the line `cpu` of `/proc/stat` (proc_stat(5)) without work: idle, and waiting for a disk.
fn idle_ticks(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let fields = line.into_iter().flat_map(str::split_ascii_whitespace);
    fields
        .skip(3)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum()
}

/// Policy of threads that run when nothing else wants to (sched(7)).
const SCHED_IDLE: i64 = 5;

/// All processes that make room for others.
fn yielding() -> BTreeMap<u64, Yielding> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = read(&entry.path().join("stat")).ok()?;
        Some((id, yielding_of(&stat)?))
    };
    processes.filter_map(one).collect()
}

/// The process of a `/proc/PID/stat` (proc_pid_stat(5)), if it makes room; fields are numbered from 1, and the third follows the name in brackets.
fn yielding_of(stat: &str) -> Option<Yielding> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    let is_yielding = field(19)? > 0 || field(41) == Some(SCHED_IDLE);
    let times = [14, 15, 16, 17].map(|number| field(number).and_then(|ticks| u64::try_from(ticks).ok()));
    is_yielding.then_some(Yielding {
        parent: u64::try_from(field(4)?).ok()?,
        ticks: times.into_iter().flatten().sum(),
    })
}

/// A thread of this process: its number, its name, and its processor time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Time on a processor.
    pub busy: Duration,
    /// Time during which it could have run but other threads had the processors.
    pub queued: Duration,
    /// How often it has waited for something.
    pub waits: u64,
}

/// The threads of this process.
pub fn thread_times() -> Vec<ThreadTime> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    // Threads may end during the loop.
    let time = |folder: PathBuf| {
        let name = read(&folder.join("comm")).ok()?;
        let statistics = read(&folder.join("schedstat")).ok()?;
        let status = read(&folder.join("status")).unwrap_or_default();
        let mut times = statistics.split_ascii_whitespace().map(str::parse);
        let mut time = || times.next()?.ok().map(Duration::from_nanos);
        Some(ThreadTime {
            id: folder.file_name()?.to_str()?.parse().ok()?,
            name: name.trim_end().to_owned(),
            busy: time()?,
            queued: time().unwrap_or_default(),
            waits: number_after(&status, "voluntary_ctxt_switches:").unwrap_or(0),
        })
    };
    threads.filter_map(|entry| time(entry.path())).collect()
}

/// Wake-ups of two threads in one measurement of their cost, and the number of measurements.
const WAKES: u32 = 1000;
const ROUNDS: usize = 5;

/// Processor time that it takes to let one thread wait and another one run, on this machine now: the middle of several measurements.
pub fn switch_cost() -> Duration {
    let mut costs = [(); ROUNDS].map(|()| one_switch_cost());
    costs.sort_unstable();
    costs[ROUNDS / 2]
}

fn one_switch_cost() -> Duration {
    let (there, from_there) = sync_channel::<()>(0);
    let (here, from_here) = sync_channel::<()>(0);
    let before = process_cpu_time().total();
    let other = move || while from_there.recv().is_ok() && here.send(()).is_ok() {};
    let Ok(thread) = std::thread::Builder::new()
        .name("switches".to_owned())
        .spawn(other)
    else {
        return Duration::ZERO;
    };
    let mut wakes = 0;
    while wakes < WAKES && there.send(()).is_ok() && from_here.recv().is_ok() {
        wakes += 2;
    }
    drop(there);
    // It has nothing to panic about.
    drop(thread.join());
    process_cpu_time().total().saturating_sub(before) / WAKES
}

/// Bytes that this process has made the disk write; `None` if the kernel does not count them.
pub fn written_bytes() -> Option<u64> {
    let text = read(Path::new("/proc/self/io")).ok()?;
    number_after(&text, "write_bytes:")
}

/// Time without work of all processors of the machine together, read cheaply enough for every second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    ticks: u64,
    /// Processors that are online.
    pub processors: usize,
}

/// Time without work so far.
pub fn idle() -> Idle {
    let stat = read(Path::new("/proc/stat")).unwrap_or_default();
    Idle {
        ticks: idle_ticks(&stat),
        processors: processors_in(&stat).max(1),
    }
}

impl Idle {
    /// The busy share of all processors, 0 to 1, since an earlier moment that was `span` before.
    pub fn busy_since(&self, before: &Self, span: Duration) -> f64 {
        let idle = ticks(self.ticks.saturating_sub(before.ticks));
        let available = span.as_secs_f64() * self.processors as f64;
        (1.0 - idle.as_secs_f64() / available.max(1e-9)).clamp(0.0, 1.0)
    }
}

/// The name of this computer.
pub fn host_name() -> Option<String> {
    let name = read(Path::new("/proc/sys/kernel/hostname")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Largest receive buffer in bytes that a program can have for a socket; `None` if the system does not show it (a container).
pub fn receive_buffer_bytes_max(read: ReadFile<'_>) -> Option<u64> {
    read(Path::new("/proc/sys/net/core/rmem_max"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// UDP packets that the kernel has dropped because a receive buffer was full, of all sockets of this network.
pub fn dropped_packets(read: ReadFile<'_>) -> u64 {
    let version_4 = read(Path::new("/proc/net/snmp"))
        .ok()
        .and_then(|text| dropped_in(&text));
    let version_6 = read(Path::new("/proc/net/snmp6")).ok();
    let version_6 = version_6.and_then(|text| number_after(&text, "Udp6RcvbufErrors"));
    version_4.unwrap_or(0) + version_6.unwrap_or(0)
}

/// `RcvbufErrors` of `/proc/net/snmp`: a line of names, and a line of numbers.
fn dropped_in(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let at = lines.next()?.split(' ').position(|name| name == "RcvbufErrors")?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

/// How the processors' speed is governed, each way once; empty if it is not (a virtual machine).
pub fn governors(read: ReadFile<'_>) -> Vec<String> {
    let path = |number: usize| {
        PathBuf::from(format!(
            "/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor"
        ))
    };
    let mut all: Vec<String> = (0..processor_count())
        .filter_map(|number| read(&path(number)).ok())
        .map(|text| text.trim().to_owned())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Whether a program keeps the system's clock, as the kernel knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockState {
    /// A program keeps it in step with a reference, within this error.
    Synchronised {
        /// The largest error that the program claims.
        error_max: Duration,
    },
    /// Nothing keeps it.
    Free,
    /// The kernel does not show it.
    #[default]
    Unknown,
}

/// How the system's clock is kept (adjtimex(2)).
pub fn clock_state() -> ClockState {
    // SAFETY: a timex consists of numbers, all of which may be zero; no mode is set, so the call only reads.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is valid and writable.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    if result < 0 {
        return ClockState::Unknown;
    }
    if result == libc::TIME_ERROR || state.status & libc::STA_UNSYNC != 0 {
        return ClockState::Free;
    }
    ClockState::Synchronised {
        error_max: Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(0)),
    }
}

/// The first number after a name at the beginning of a line.
pub(crate) fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_and_does_not_wait_for_a_disk_is_busy() {
        let stat = "cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nctxt 5\n";
        assert_eq!((processors_in(stat), idle_ticks(stat)), (2, 450));
        assert_eq!((processors_in(""), idle_ticks("")), (0, 0));
        let times = |at_s, idle| ProcessorTimes {
            at: Duration::from_secs(at_s),
            processors: 2,
            idle,
            ..ProcessorTimes::default()
        };
        let busy = |before, after: ProcessorTimes| after.since(&before).0.as_secs_f64();
        assert_eq!(busy(times(100, 450), times(110, 1450)), 10.0);
        assert_eq!(busy(times(100, 0), times(110, 2001)), 0.0);
    }

    /// A line of `/proc/PID/stat` with this nice value and policy.
    fn stat(nice: i64, policy: u64) -> String {
        let mut fields = vec!["0".to_owned(); 50];
        for (number, value) in [(4, 77), (14, 1), (15, 2), (16, 3), (17, 4)] {
            fields[number - 3] = value.to_string();
        }
        fields[19 - 3] = nice.to_string();
        fields[41 - 3] = policy.to_string();
        format!("7 (a name) with ) (b) {}", fields.join(" "))
    }

    #[test]
    fn processes_of_low_priority_make_room() {
        let found = Some(Yielding {
            parent: 77,
            ticks: 10,
        });
        assert_eq!(yielding_of(&stat(0, 0)), None);
        assert_eq!(yielding_of(&stat(-5, 0)), None);
        assert_eq!(yielding_of(&stat(19, 0)), found);
        assert_eq!(yielding_of(&stat(0, 5)), found);
        assert_eq!(yielding_of("nothing"), None);
    }

    #[test]
    fn the_time_of_processes_that_end_is_counted_once() {
        let times = |at_s, all: &[(u64, u64, u64)]| ProcessorTimes {
            at: Duration::from_secs(at_s),
            processors: 1,
            idle: 0,
            switches: 0,
            yielding: all
                .iter()
                .map(|(id, parent, ticks)| {
                    (
                        *id,
                        Yielding {
                            parent: *parent,
                            ticks: *ticks,
                        },
                    )
                })
                .collect(),
        };
        // 10 is the parent of 11, which ends; 20 ends with its parent, which does not make room; 30 is new.
        let before = times(10, &[(10, 1, 50), (11, 10, 30), (20, 2, 500)]);
        let after = times(11, &[(10, 1, 95), (30, 10, 7)]);
        let (busy, low) = after.since(&before);
        assert_eq!(
            (busy.as_millis(), low.as_millis()),
            (1000, (95 + 7 - 50 - 30) * 10)
        );
    }

    #[test]
    fn dropped_packets_of_both_versions_are_counted() {
        let read = |path: &Path| {
            Ok(match path.file_name().and_then(|name| name.to_str()) {
                Some("snmp") => "Ip: A\nIp: 1\nUdp: InDatagrams RcvbufErrors X\nUdp: 9 5 1\n".to_owned(),
                _ => "Udp6InDatagrams  3\nUdp6RcvbufErrors  \t2\n".to_owned(),
            })
        };
        assert_eq!(dropped_packets(&read), 7);
        assert_eq!(dropped_packets(&|_| Err(io::ErrorKind::NotFound.into())), 0);
    }

    #[test]
    fn this_machine_has_processors_memory_and_threads() {
        assert!(processor_count() >= 1);
        assert!(processor_times().since(&ProcessorTimes::default()).0 > Duration::ZERO);
        assert!(
            thread_times()
                .iter()
                .any(|thread| !thread.name.is_empty() && thread.id > 0)
        );
        assert!(switch_cost() > Duration::ZERO);
        // Whatever the state is, it can be read.
        clock_state();
    }
}
