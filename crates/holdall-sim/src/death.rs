//! The death of the recorder's process: at a random moment, possibly in the middle of a step, it is gone, and only state shared with the system
//! stays.

use crate::{
    folder::SimFolder,
    mutation::{self, Mutation},
    network::{Life, Network},
};
use holdall::{
    internals::{POINTER_FILE, Survival},
    writer::BagFolder,
};
use holdall_io::mutex::lock;
use holdall_io::{
    block::{Block, BlockPool},
    disk::{Completion, Disk, DiskError, FileId, Wait},
    sim::SimDiskHandle,
};
use holdall_model::time::Timestamp;
use holdall_storage::{Storage, StorageResult, reader::StorageReader, writer::MetadataEntries};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

/// The remains of a dead recorder.
pub struct Death {
    /// The files of its bag, the pointer to its memory among them.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// The path of its memory.
    pub memory: PathBuf,
    /// The truth about every message until then.
    pub lives: Vec<Life>,
    /// The message that was being offered: publisher and sequence number. It may have been received or not.
    pub offered: Option<(usize, u64)>,
    /// It died within one of its own steps, and not between two.
    pub inside: bool,
    /// The disk had failed before.
    pub disk_failed: bool,
}

/// The parts that the watch needs to collect the remains of a death.
pub(crate) struct Scene {
    pub disk: SimDiskHandle,
    pub folder: SimFolder,
    pub network: Network,
    pub survival: Survival,
    pub mutation: Option<Mutation>,
    /// The path that the memory is copied to.
    pub memory: PathBuf,
    pub bag: PathBuf,
}

impl Scene {
    fn die(&self, inside: bool) -> io::Result<Death> {
        let disk_failed = self.disk.has_failed();
        let pointer = self.survival.copy_as_killed(&self.memory)?;
        let mut files = self.disk.kill();
        files.extend(self.folder.visible());
        if let Some(pointer) = pointer.filter(|_| mutation::leaves_pointer(self.mutation)) {
            files.insert(self.bag.join(POINTER_FILE), pointer.into_bytes());
        }
        if let Some(region) = self.survival.source.region() {
            mutation::change_memory(self.mutation, &self.memory, &region.id())?;
        }
        Ok(Death {
            files,
            memory: self.memory.clone(),
            lives: self.network.lives(),
            offered: self.network.offered(),
            inside,
            disk_failed,
        })
    }
}

#[derive(Default)]
struct State {
    scene: Option<Scene>,
    /// Points that are left until it dies.
    left: Option<u64>,
    death: Option<io::Result<Death>>,
}

/// Counts the moments between which the remains of a death differ, and makes the recorder die at one of them: the world after that leaves no trace.
/// Clones are the same one.
#[derive(Clone, Default)]
pub struct DeathWatch(Arc<Mutex<State>>);

impl DeathWatch {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Begins: before this no point counts.
    pub(crate) fn begin(&self, scene: Scene) {
        if let Some(region) = scene.survival.source.region() {
            let watch = self.clone();
            region.watch(move || watch.point());
        }
        self.lock().scene = Some(scene);
    }

    /// The recorder dies at the point of this number, counted from here.
    pub fn arm(&self, points: u64) {
        let mut state = self.lock();
        if state.scene.is_some() && state.death.is_none() {
            state.left = Some(points);
        }
    }

    /// Marks a moment at which the recorder may die.
    pub fn point(&self) {
        let mut state = self.lock();
        if let Some(left) = &mut state.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                Self::die(&mut state, true);
            }
        }
    }

    /// Whether it is dead.
    pub fn is_dead(&self) -> bool {
        self.lock().death.is_some()
    }

    /// Dies now, if still alive; returns its remains.
    ///
    /// # Errors
    /// When its remains cannot be copied.
    pub fn end(&self) -> io::Result<Option<Death>> {
        let mut state = self.lock();
        Self::die(&mut state, false);
        // The memory refers to this watch.
        state.scene = None;
        state.death.take().transpose()
    }

    fn die(state: &mut State, inside: bool) {
        state.left = None;
        if state.death.is_none() {
            state.death = state.scene.as_ref().map(|scene| scene.die(inside));
        }
    }
}

/// A disk whose every operation is a moment to die at, before and after.
pub struct WatchedDisk {
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// The watch.
    pub watch: DeathWatch,
}

impl WatchedDisk {
    fn watched<T>(&mut self, operation: impl FnOnce(&mut dyn Disk) -> T) -> T {
        self.watch.point();
        let result = operation(&mut *self.disk);
        self.watch.point();
        result
    }
}

impl Disk for WatchedDisk {
    fn create(&mut self, path: &Path, reserve_bytes: u64) -> Result<FileId, DiskError> {
        self.watched(|disk| disk.create(path, reserve_bytes))
    }

    fn submit_create(&mut self, path: &Path, reserve_bytes: u64) -> FileId {
        self.watched(|disk| disk.submit_create(path, reserve_bytes))
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        self.watched(|disk| disk.submit_write(file, offset, block, len));
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        self.watched(|disk| disk.submit_sync(file, token));
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        self.watched(|disk| disk.submit_close(file, length));
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.disk.reap(wait, completions);
        // Polls without a completion do not count as separate moments.
        if completions.len() > before {
            self.watch.point();
        }
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn available_bytes(&self, directory: &Path) -> Result<u64, DiskError> {
        self.disk.available_bytes(directory)
    }

    fn makes_files(&self) -> bool {
        self.disk.makes_files()
    }

    fn register(&mut self, pool: &BlockPool) {
        self.disk.register(pool);
    }
}

/// A directory whose every change is a moment to die at, before and after.
pub struct WatchedFolder {
    /// The directory.
    pub folder: Box<dyn BagFolder>,
    /// The watch.
    pub watch: DeathWatch,
}

impl WatchedFolder {
    fn watched<T>(&self, operation: impl FnOnce(&dyn BagFolder) -> T) -> T {
        self.watch.point();
        let result = operation(&*self.folder);
        self.watch.point();
        result
    }
}

impl BagFolder for WatchedFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.watched(|folder| folder.create_new(directory))
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        self.watched(|folder| folder.replace_text(path, text, durable))
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.watched(|folder| folder.remove_file(path))
    }

    fn is_held(&self, directory: &Path, first: Timestamp, last: Timestamp) -> bool {
        self.folder.is_held(directory, first, last)
    }

    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        self.folder.open_reader(storage, path)
    }

    fn file_len(&self, path: &Path) -> Result<u64, DiskError> {
        self.folder.file_len(path)
    }

    fn cut(&self, path: &Path, length_bytes: u64) -> Result<(), DiskError> {
        self.watched(|folder| folder.cut(path, length_bytes))
    }

    fn complete_file(
        &self,
        storage: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
    ) -> StorageResult<()> {
        self.watched(|folder| folder.complete_file(storage, path, records))
    }
}

/// A directory for memory below the scratch directory of a run.
///
/// # Errors
/// When it cannot be made.
pub fn memory_directory(scratch: &Path) -> io::Result<PathBuf> {
    let directory = scratch.join("memory");
    fs::create_dir(&directory)?;
    Ok(directory)
}
