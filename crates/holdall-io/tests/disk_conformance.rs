//! Every disk meets the requirements of the `Disk` trait.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use holdall_io::{
    disk::{Disk, DiskError, WritePath},
    disk_conformance::{DiskUnderTest, check_all},
    memory::MemoryDisk,
    os::{DiskMode, OsDisk},
    sim::{SimClock, SimDisk, SimDiskOptions},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

struct Memory;

impl DiskUnderTest for Memory {
    type Disk = MemoryDisk;
    fn start(&self) -> (MemoryDisk, PathBuf) {
        (MemoryDisk::new(), PathBuf::from("bag"))
    }
    fn content(&self, disk: &MemoryDisk, path: &Path) -> Option<Vec<u8>> {
        disk.files().read(path)
    }
}

struct Sim(SimDiskOptions);

impl DiskUnderTest for Sim {
    type Disk = SimDisk;
    fn start(&self) -> (SimDisk, PathBuf) {
        (
            SimDisk::new(self.0.clone(), SimClock::default()),
            PathBuf::from("bag"),
        )
    }
    fn content(&self, disk: &SimDisk, path: &Path) -> Option<Vec<u8>> {
        disk.handle().read(path)
    }
}

struct Os {
    root: TempDir,
    mode: DiskMode,
}

impl Os {
    fn in_dir(dir: &Path, mode: DiskMode) -> Self {
        Self {
            root: TempDir::new_in(dir).unwrap(),
            mode,
        }
    }

    fn on_disk(mode: DiskMode) -> Self {
        Self::in_dir(Path::new(env!("CARGO_TARGET_TMPDIR")), mode)
    }
}

impl DiskUnderTest for Os {
    type Disk = OsDisk;
    fn start(&self) -> (OsDisk, PathBuf) {
        let dir = TempDir::new_in(self.root.path()).unwrap().keep();
        (OsDisk::open(&dir, self.mode).unwrap(), dir)
    }
    fn content(&self, _disk: &OsDisk, path: &Path) -> Option<Vec<u8>> {
        std::fs::read(path).ok()
    }
}

/// Why the build folder's file system does not support direct writes, if it does not.
fn direct_refused() -> Option<DiskError> {
    OsDisk::open(Path::new(env!("CARGO_TARGET_TMPDIR")), DiskMode::Direct).err()
}

#[test]
fn memory_disk_conforms() {
    check_all(&Memory);
}

#[test]
fn simulated_disk_conforms() {
    for seed in 0..50 {
        check_all(&Sim(SimDiskOptions {
            seed,
            ..SimDiskOptions::default()
        }));
    }
}

#[test]
fn simulated_disk_with_stalls_conforms() {
    let stall = Duration::from_secs(3);
    check_all(&Sim(SimDiskOptions {
        seed: 7,
        stalls_per_million: 300_000,
        stall,
        ..SimDiskOptions::default()
    }));
}

#[test]
fn buffered_disk_conforms() {
    check_all(&Os::on_disk(DiskMode::Buffered));
}

#[test]
fn automatic_disk_conforms() {
    check_all(&Os::on_disk(DiskMode::Auto));
}

#[test]
fn direct_disk_conforms() {
    match direct_refused() {
        Some(error) => eprintln!("skipped: {error}"),
        None => check_all(&Os::on_disk(DiskMode::Direct)),
    }
}

#[test]
fn direct_is_chosen_where_it_is_possible() {
    let disk = OsDisk::open(Path::new(env!("CARGO_TARGET_TMPDIR")), DiskMode::Auto).unwrap();
    let found = disk.write_path();
    match direct_refused() {
        None => assert_eq!(found, WritePath::Direct),
        Some(_) => assert!(
            found.as_str() == "buffered" && found.reason().is_some(),
            "{found:?}"
        ),
    }
}

#[test]
fn memory_file_system_is_written_buffered() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return eprintln!("skipped: no /dev/shm");
    }
    let subject = Os::in_dir(shm, DiskMode::Auto);
    let (disk, _) = subject.start();
    let found = disk.write_path();
    assert_eq!(found.as_str(), "buffered");
    assert!(
        found.reason().unwrap().contains("keeps its files in memory"),
        "{found:?}"
    );
    drop(disk);
    check_all(&subject);
}

#[test]
fn folder_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let error = OsDisk::open(&missing, DiskMode::Auto).err().unwrap();
    assert!(error.is_not_found() && error.path == missing);
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(OsDisk::open(&file, DiskMode::Auto).is_err());
}
