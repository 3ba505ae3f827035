//! Main memory that this process can have: the machine's, within the limits of its control groups.

use crate::machine::{ReadFile, number_after};
use std::path::{Path, PathBuf};

/// Names of a control group's files, by the version of control groups.
struct Names {
    root: &'static str,
    limit: &'static str,
    /// Above this one the kernel makes the group's programs wait.
    soft_limit: Option<&'static str>,
    used: &'static str,
    /// Pages of files that were not used lately, in `memory.stat`: the kernel takes them first; and those that were.
    inactive: &'static str,
    active: &'static str,
}

const VERSION_1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    soft_limit: None,
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file ",
    active: "total_active_file ",
};

const VERSION_2: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    soft_limit: Some("memory.high"),
    used: "memory.current",
    inactive: "inactive_file ",
    active: "active_file ",
};

/// A control group with a limit for memory.
struct Group {
    names: &'static Names,
    folder: PathBuf,
    limit: u64,
}

impl Group {
    /// What its processes can still have, in bytes.
    fn available(&self, read: ReadFile<'_>) -> Option<u64> {
        let used: u64 = read(&self.folder.join(self.names.used))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        let statistics = read(&self.folder.join("memory.stat")).unwrap_or_default();
        let files = |name| number_after(&statistics, name).unwrap_or(0);
        let reclaimable = files(self.names.inactive) + files(self.names.active) / 2;
        Some(self.limit.saturating_sub(used.saturating_sub(reclaimable)))
    }
}

/// The groups that this process is in, each within the next, that have a limit. In a container its own group is at the root.
fn groups(read: ReadFile<'_>) -> Vec<Group> {
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let path_of = |line: &str| {
        let (_, controllers_and_path) = line.split_once(':')?;
        let (controllers, path) = controllers_and_path.split_once(':')?;
        let is_memory = controllers.split(',').any(|controller| controller == "memory");
        let names = if is_memory { &VERSION_1 } else { &VERSION_2 };
        (is_memory || controllers.is_empty()).then(|| (names, PathBuf::from(path)))
    };
    let mut paths: Vec<_> = own.lines().filter_map(path_of).collect();
    if paths.is_empty() {
        paths.push((&VERSION_2, PathBuf::from("/")));
    }
    let group = |names: &'static Names, path: &Path| {
        let folder = Path::new(names.root).join(path.strip_prefix("/").ok()?);
        // No number: without a limit.
        let number = |name| read(&folder.join(name)).ok()?.trim().parse().ok();
        let limit = [number(names.limit), names.soft_limit.and_then(number)]
            .into_iter()
            .flatten()
            .min()?;
        Some(Group { names, folder, limit })
    };
    paths
        .iter()
        .flat_map(|(names, path)| path.ancestors().filter_map(|path| group(names, path)))
        .collect()
}

fn of_machine(read: ReadFile<'_>, name: &str) -> Option<u64> {
    let text = read(Path::new("/proc/meminfo")).ok()?;
    number_after(&text, name)?.checked_mul(1024)
}

/// Memory that this process can have when no other has any, in bytes. `None` if the system does not show it.
pub fn memory_bytes(read: ReadFile<'_>) -> Option<u64> {
    let limits = groups(read).into_iter().map(|group| group.limit);
    of_machine(read, "MemTotal:").into_iter().chain(limits).min()
}

/// Memory that this process can still have at present, in bytes. `None` if the system does not show it.
pub fn available_memory_bytes(read: ReadFile<'_>) -> Option<u64> {
    let groups = groups(read);
    let limits = groups.iter().filter_map(|group| group.available(read));
    of_machine(read, "MemAvailable:").into_iter().chain(limits).min()
}

/// The part of [`memory_bytes`] that programs can have no more of, 0 to 1.
pub fn used_memory(read: ReadFile<'_>) -> Option<f64> {
    let (all, available) = (memory_bytes(read)?, available_memory_bytes(read)?);
    Some(1.0 - available as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal: 16 kB\nMemAvailable:   8 kB\n");

    fn both(files: &[(&str, &str)]) -> [Option<u64>; 2] {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map_or(Err(io::ErrorKind::NotFound.into()), |(_, text)| {
                Ok((*text).to_owned())
            })
        };
        [memory_bytes(&read), available_memory_bytes(&read)]
    }

    #[test]
    fn without_limits_it_is_the_machines() {
        assert_eq!(both(&[MACHINE]), [Some(16 << 10), Some(8 << 10)]);
        let unlimited = [
            MACHINE,
            ("/proc/self/cgroup", "0::/user.slice\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ];
        assert_eq!(both(&unlimited), [Some(16 << 10), Some(8 << 10)]);
        assert_eq!(both(&[]), [None, None]);
    }

    #[test]
    fn the_tightest_group_around_the_process_bounds_it() {
        let service = [
            MACHINE,
            ("/proc/self/cgroup", "0::/robot.slice/holdall.service\n"),
            ("/sys/fs/cgroup/robot.slice/memory.max", "5000\n"),
            ("/sys/fs/cgroup/robot.slice/memory.current", "4000\n"),
            (
                "/sys/fs/cgroup/robot.slice/memory.stat",
                "active_file 900\ninactive_file 300\n",
            ),
            ("/sys/fs/cgroup/robot.slice/holdall.service/memory.max", "9000\n"),
            (
                "/sys/fs/cgroup/robot.slice/holdall.service/memory.current",
                "100\n",
            ),
        ];
        assert_eq!(both(&service), [Some(5000), Some(1750)]);
        let mut throttled = service.to_vec();
        throttled.push(("/sys/fs/cgroup/robot.slice/memory.high", "4500\n"));
        assert_eq!(both(&throttled), [Some(4500), Some(1250)]);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_root() {
        let container = [
            MACHINE,
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "5000\n"),
            ("/sys/fs/cgroup/memory.current", "6000\n"),
        ];
        assert_eq!(both(&container), [Some(5000), Some(0)]);
        let older = [
            MACHINE,
            (
                "/proc/self/cgroup",
                "9:name=systemd:/\n4:cpu,memory:/docker/920e\n0::/\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 200\n",
            ),
        ];
        assert_eq!(both(&older), [Some(5000), Some(4200)]);
    }
}
