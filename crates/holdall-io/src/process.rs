//! Resources that this process uses: processor time, memory, descriptors.

use rustix::{
    param::page_size,
    process::{
        Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setpriority_process, setrlimit,
        test_kill_process_group,
    },
};
use std::{collections::BTreeSet, io, os::fd::RawFd, path::Path, time::Duration};

/// Processor time, user and kernel together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Spent in the program.
    pub user: Duration,
    /// Spent in the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

/// Processor time of all threads of this process, ended ones included. Work that kernel threads do for it (interrupts, write-back)
/// is not in it.
pub fn process_cpu_time() -> CpuTime {
    usage(libc::RUSAGE_SELF)
}

/// Processor time of the calling thread.
pub fn thread_cpu_time() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

fn usage(who: libc::c_int) -> CpuTime {
    // SAFETY: an all-zero rusage is valid; the call fills it in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable; both values of `who` exist on every Linux.
    unsafe { libc::getrusage(who, &raw mut usage) };
    CpuTime {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
    }
}

fn duration(time: libc::timeval) -> Duration {
    // Microseconds are below a million, so the product fits.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_usec).unwrap_or(0) * 1000,
    )
}

/// Sets the calling thread's niceness: -20 (before all others) to 19 (after all others).
///
/// # Errors
/// When the system refuses; values below the present one need a privilege.
pub fn set_thread_nice(nice: i32) -> io::Result<()> {
    // None is the calling thread on Linux.
    Ok(setpriority_process(None, nice)?)
}

/// Number of the user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// How a group of processes is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// As by Ctrl-C.
    Interrupt,
    /// As by a service manager.
    Terminate,
    /// It cannot refuse.
    Kill,
}

/// Asks all processes of a group to end; false if it has none.
pub fn end_group(leader: u32, signal: EndSignal) -> bool {
    let signal = match signal {
        EndSignal::Interrupt => Signal::INT,
        EndSignal::Terminate => Signal::TERM,
        EndSignal::Kill => Signal::KILL,
    };
    group(leader).is_some_and(|group| kill_process_group(group, signal).is_ok())
}

/// Whether a group has processes.
pub fn group_exists(leader: u32) -> bool {
    group(leader).is_some_and(|group| test_kill_process_group(group).is_ok())
}

fn group(leader: u32) -> Option<Pid> {
    i32::try_from(leader).ok().and_then(Pid::from_raw)
}

/// Whether there is a process of this number.
pub fn exists(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

/// Whether a process of this number runs: one that ended and was not waited for yet does not.
pub fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name before them may contain anything.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let has_ended = matches!(fields.next(), None | Some("Z" | "X"));
    // Threads may outlive the first one.
    !has_ended
        || fields
            .nth(16)
            .is_some_and(|threads| !matches!(threads, "0" | "1"))
}

/// Resident memory of this process in bytes.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn rss_bytes() -> io::Result<u64> {
    // The second field of statm is the resident set in pages.
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "/proc/self/statm has no resident size",
            )
        })?;
    Ok(pages * page_size() as u64)
}

/// Open descriptors of this process.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn open_fds() -> io::Result<BTreeSet<RawFd>> {
    let mut fds = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        if let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
            fds.insert(fd);
        }
    }
    // The descriptor of this listing is closed by now; it may or may not still be listed, so check each.
    // SAFETY: plain system call without pointers.
    fds.retain(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
    Ok(fds)
}

/// Number of further descriptors that this process can open, counted up to `wanted`; `None` if the system does
/// not show it.
///
/// If that is less than wanted, the soft limit is raised as far as the hard one allows.
pub fn free_descriptors(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let (current, maximum) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    let free = free_below(current, wanted);
    if free >= wanted || current >= maximum {
        return Some(free);
    }
    let raised = maximum.min(current.saturating_add(wanted - free));
    let limit = Rlimit {
        current: Some(raised),
        ..limit
    };
    // If this is refused, the system refuses descriptors above the old limit.
    let _ = setrlimit(Resource::Nofile, limit);
    Some(free_below(raised, wanted))
}

/// Descriptors below `limit` that are not open, up to `wanted`. Asks for each: listing `/proc/self/fd` would take one itself.
fn free_below(limit: u64, wanted: u64) -> u64 {
    let highest = RawFd::try_from(limit).unwrap_or(RawFd::MAX);
    // SAFETY: plain system call without pointers.
    let is_free = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } < 0;
    let free = (0..highest)
        .filter(is_free)
        .take(usize::try_from(wanted).unwrap_or(usize::MAX));
    u64::try_from(free.count()).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = thread_cpu_time().total();
        let mut sum = 0u64;
        while thread_cpu_time().total() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_time().total() >= thread_cpu_time().total() - before);
    }

    #[test]
    fn a_thread_can_be_made_nicer() {
        let nice_of = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let after_name = stat.rsplit(')').next().unwrap().to_owned();
            after_name
                .split_whitespace()
                .nth(16)
                .unwrap()
                .parse::<i32>()
                .unwrap()
        };
        let found = std::thread::spawn(move || {
            set_thread_nice(7).unwrap();
            nice_of()
        });
        assert_eq!(found.join().unwrap(), 7);
        assert_ne!(nice_of(), 7, "only the thread that asked");
    }

    #[test]
    fn touched_memory_is_resident() {
        // More than all else of this process, whose other tests take and return memory meanwhile.
        let memory = std::hint::black_box(vec![1u8; 256 << 20]);
        assert!(rss_bytes().unwrap() >= memory.len() as u64);
    }

    #[test]
    fn free_descriptors_are_counted_up_to_what_is_wanted() {
        assert_eq!(free_descriptors(5), Some(5));
        assert_eq!(free_below(3, 100), 0, "the standard streams are open");
    }

    #[test]
    fn open_file_is_among_the_descriptors() {
        let file = tempfile::tempfile().unwrap();
        assert!(open_fds().unwrap().contains(&file.as_raw_fd()));
    }
}
