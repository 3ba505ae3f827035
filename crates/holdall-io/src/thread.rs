//! The cores and priorities of threads. Optional: a refusal is returned and changes nothing.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::{fs, io};

/// Highest priority of `SCHED_FIFO`.
pub const RT_PRIORITY_MAX: u8 = 99;

/// Keeps the calling thread, and threads that it starts from now on, to these processor cores (see sched_setaffinity(2)).
///
/// # Errors
/// When the process may use none of these cores, or a number exceeds the kernel's set.
pub fn keep_to_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("core {core} is beyond what the kernel can name"),
            ));
        }
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes the threads of this process whose name `is_meant` run before all ordinary ones (`SCHED_FIFO`);
/// threads that they start do not. Returns how many there are.
///
/// # Errors
/// Mostly `EPERM`: it needs `CAP_SYS_NICE` or a limit `rtprio` of this height.
pub fn prefer_threads(priority: u8, is_meant: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        // Threads may end during the loop.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let thread = entry.file_name().to_string_lossy().parse::<libc::pid_t>();
        let (true, Ok(thread)) = (is_meant(name.trim_end()), thread) else {
            continue;
        };
        let parameters = libc::sched_param {
            sched_priority: libc::c_int::from(priority),
        };
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        // SAFETY: the parameters are valid for the call, which only reads them.
        if unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } != 0 {
            return Err(io::Error::last_os_error());
        }
        count += 1;
    }
    Ok(count)
}

/// Whether all threads of this process whose name `is_meant` sleep, so that the work they began is done; true if that cannot be seen.
pub fn are_asleep(is_meant: impl Fn(&str) -> bool) -> bool {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let mut awake = stats.filter_map(|stat| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        (is_meant(name) && !rest.trim_start().starts_with('S')).then_some(())
    });
    awake.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_cores() -> String {
        let status = fs::read_to_string("/proc/thread-self/status").expect("procfs");
        let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:"));
        line.expect("Linux tells it")
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    }

    #[test]
    fn a_thread_and_those_that_it_starts_are_kept_to_their_cores() {
        let first = |cores: &str| cores.split(['-', ',']).next().unwrap_or_default().to_owned();
        let core = first(&allowed_cores());
        let number = core.parse().expect("a number");
        let kept = std::thread::spawn(move || {
            keep_to_cores(&[number]).expect("a core that it may use");
            std::thread::spawn(allowed_cores).join().expect("no panic")
        });
        assert_eq!(kept.join().expect("no panic"), core);
    }

    #[test]
    fn cores_that_are_not_there_are_refused() {
        std::thread::spawn(|| {
            assert!(keep_to_cores(&[1023]).is_err());
            assert!(keep_to_cores(&[1 << 20]).is_err());
            assert!(keep_to_cores(&[]).is_err());
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn only_threads_that_are_named_are_preferred() {
        assert_eq!(prefer_threads(1, |_| false).expect("nothing is asked for"), 0);
    }
}
