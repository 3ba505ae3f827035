//! The machine that a result was measured on: without it no figure means anything.

use holdall_io::machine::receive_buffer_bytes_max;
use holdall_model::units::{GIB, format_bytes};
use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt::{self, Display},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Known facts about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub processor: String,
    /// The kernel's version.
    pub kernel: String,
    /// Type and options of the file system of the folder.
    pub file_system: String,
    /// Name of the folder's disk, and its model or driver. Empty in results of older versions, and where there is none.
    #[serde(default)]
    pub disk: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Version of this program.
    pub holdall: String,
    /// What a socket may hold, and so how many messages wait for a reader: root gets what it asks for. Empty in results of older versions.
    #[serde(default)]
    pub socket_buffers: String,
    /// Whether it was compiled with optimization; absent in results of older versions.
    #[serde(default)]
    pub is_optimized: Option<bool>,
    /// What else of this program was measured, with its versions. Empty in results of older versions.
    #[serde(default)]
    pub implementations: String,
}

/// Implementations of others in this program, their versions, and whether this build has them. A test compares the versions with those that are built.
const VERSIONS: [(&str, &str, bool); 4] = [
    ("mcap", "0.26.0", true),
    ("Cyclone DDS", "11.0.0", cfg!(feature = "dds")),
    ("zenoh", "1.10.2", cfg!(feature = "zenoh")),
    ("iceoryx2", "0.10.0", cfg!(feature = "iceoryx2")),
];

impl Machine {
    /// Reads the facts of this machine and of the file system of `dir`; unreadable ones stay empty.
    pub fn inspect(dir: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&read("/proc/self/mounts"), &dir).unwrap_or_default(),
            disk: disk(&dir).unwrap_or_default(),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|kib| kibibytes(&kib))
                .unwrap_or(0),
            holdall: env!("CARGO_PKG_VERSION").to_owned(),
            socket_buffers: socket_buffers(),
            is_optimized: Some(!cfg!(debug_assertions)),
            implementations: implementations(),
        }
    }
}

impl Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} × {}, {:.0} GiB memory, Linux {}, {}{}{}; holdall {}",
            self.cores,
            self.processor,
            self.memory_bytes as f64 / GIB,
            self.kernel,
            self.file_system,
            if self.disk.is_empty() { "" } else { " on " },
            self.disk,
            self.holdall
        )?;
        if !self.implementations.is_empty() {
            write!(out, " ({})", self.implementations)?;
        }
        if !self.socket_buffers.is_empty() {
            write!(out, ", socket buffers {}", self.socket_buffers)?;
        }
        if self.is_optimized == Some(false) {
            out.write_str(", an unoptimized build: its processor time is several times that of a release")?;
        }
        Ok(())
    }
}

/// The implementations of others in this program with their versions.
fn implementations() -> String {
    let mut all = vec![format!("SQLite {}", rusqlite::version())];
    let built = VERSIONS.iter().filter(|(.., is_built)| *is_built);
    all.extend(built.map(|(name, version, _)| format!("{name} {version}")));
    all.join(", ")
}

/// Takes from the programs that this one starts what root may: receive buffers beyond the system's limit, which no robot's ordinary user gets.
/// Does nothing for an ordinary user.
pub fn as_ordinary_user() {
    // Refused to those who do not have it.
    let _ = remove_capability_from_bounding_set(CapabilitySet::NET_ADMIN);
}

/// The buffers of programs that this one starts.
pub fn socket_buffers() -> String {
    let is_root = geteuid().is_root();
    let may_exceed = is_root && capability_is_in_bounding_set(CapabilitySet::NET_ADMIN).unwrap_or(false);
    match receive_buffer_bytes_max(&|path| fs::read_to_string(path)) {
        _ if may_exceed => "of any size (root)".to_owned(),
        Some(bytes) => format!("of {} at most (net.core.rmem_max)", format_bytes(bytes)),
        None => "of a size that the system does not show".to_owned(),
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The disk that has `dir`, such as `nvme0n1 (Samsung SSD 980)`: a partition's is the folder above it.
fn disk(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let found = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = match found.join("partition").exists() {
        true => found.parent()?,
        false => &found,
    };
    let model = fs::read_to_string(disk.join("device/model")).ok();
    let driver = || {
        let driver = fs::canonicalize(disk.join("device/driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    let name = disk.file_name()?.to_string_lossy();
    let about = model.map(|model| model.trim().to_owned()).or_else(driver);
    Some(about.map_or(name.to_string(), |about| format!("{name} ({about})")))
}

/// Type and options of the innermost mount that holds `dir`.
fn file_system(mounts: &str, dir: &Path) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(place), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        // If several mounts share a path, the last one is visible.
        if dir.starts_with(place) && best.as_ref().is_none_or(|(len, _)| place.len() >= *len) {
            best = Some((place.len(), format!("{kind} ({options})")));
        }
    }
    best.map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "a / ext4 rw 0 0\nb /data xfs rw,noatime 0 0\nc /data2 tmpfs rw 0 0\n";
        assert_eq!(
            file_system(mounts, Path::new("/data/bags")).unwrap(),
            "xfs (rw,noatime)"
        );
        assert_eq!(file_system(mounts, Path::new("/database")).unwrap(), "ext4 (rw)");
    }

    #[test]
    fn versions_are_those_that_this_program_is_built_with() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let locked = fs::read_to_string(root.join("Cargo.lock")).unwrap();
        let cyclone = fs::read_to_string(root.join("crates/holdall-cyclone-sys/src/lib.rs")).unwrap();
        for (name, version, _) in VERSIONS {
            let is_locked = locked.contains(&format!("name = \"{name}\"\nversion = \"{version}\""));
            let is_of_cyclone = cyclone.starts_with(&format!("//! Eclipse {name} {version},"));
            assert!(is_locked || is_of_cyclone, "{name} {version}");
        }
        assert!(implementations().starts_with("SQLite 3."));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::inspect(Path::new("."));
        assert!(
            machine.cores >= 1 && machine.memory_bytes > 0 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
    }
}
