//! A disk that keeps its files in memory: for benchmarks of encoders and for tests.

use crate::mutex::lock;
use crate::{
    block::Block,
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, check_write, invalid_input},
};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// The files of a [`MemoryDisk`], shared with its readers.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    files: Arc<Mutex<BTreeMap<PathBuf, Vec<u8>>>>,
}

impl MemoryFiles {
    /// The current content of a file.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.with(|files| files.get(path).cloned())
    }

    /// Paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.with(|files| files.keys().cloned().collect())
    }

    fn with<T>(&self, action: impl FnOnce(&mut BTreeMap<PathBuf, Vec<u8>>) -> T) -> T {
        action(&mut lock(&self.files))
    }
}

/// Use of the bytes by a [`MemoryDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Bytes,
    Nothing,
}

/// A disk in memory. Every operation is done at once and completes in order.
#[derive(Debug)]
pub struct MemoryDisk {
    files: MemoryFiles,
    open: BTreeMap<FileId, PathBuf>,
    next_file: u32,
    keep: Keep,
    done: Vec<Completion>,
}

impl MemoryDisk {
    /// A disk that keeps the written bytes.
    pub fn new() -> Self {
        Self {
            files: MemoryFiles::default(),
            open: BTreeMap::new(),
            next_file: 0,
            keep: Keep::Bytes,
            done: Vec::new(),
        }
    }

    /// A disk that discards all writes, for measuring the speed of an encoder alone.
    pub fn discarding() -> Self {
        Self {
            keep: Keep::Nothing,
            ..Self::new()
        }
    }

    /// Its files; stays valid when the disk is gone.
    pub fn files(&self) -> MemoryFiles {
        self.files.clone()
    }

    fn open_new(&mut self, path: &Path) -> (FileId, Result<(), DiskError>) {
        let file = FileId(self.next_file);
        self.next_file += 1;
        let result = self.files.with(|files| {
            if files.contains_key(path) {
                return Err(DiskError::new(
                    path,
                    Operation::Create,
                    io::Error::from_raw_os_error(libc::EEXIST),
                ));
            }
            files.insert(path.to_owned(), Vec::new());
            Ok(())
        });
        if result.is_ok() {
            self.open.insert(file, path.to_owned());
        }
        (file, result)
    }

    fn path_of(&self, file: FileId, operation: Operation) -> Result<&PathBuf, DiskError> {
        self.open
            .get(&file)
            .ok_or_else(|| invalid_input(Path::new("file"), operation, "the file is not open"))
    }

    fn write(&self, file: FileId, offset: u64, block: &Block, len: usize) -> Result<(), DiskError> {
        let path = self.path_of(file, Operation::Write)?;
        check_write(path, offset, block, len)?;
        if self.keep == Keep::Nothing {
            return Ok(());
        }
        let start = usize::try_from(offset)
            .map_err(|_| invalid_input(path, Operation::Write, "offset larger than memory").at(offset))?;
        self.files.with(|files| {
            let Some(content) = files.get_mut(path) else {
                return;
            };
            if content.len() == start {
                content.extend_from_slice(&block.as_slice()[..len]);
            } else {
                content.resize(content.len().max(start + len), 0);
                content[start..start + len].copy_from_slice(&block.as_slice()[..len]);
            }
        });
        Ok(())
    }

    fn close(&mut self, file: FileId, length: u64) -> Result<(), DiskError> {
        let path = self.path_of(file, Operation::Close)?.clone();
        let length = usize::try_from(length)
            .map_err(|_| invalid_input(&path, Operation::Close, "length larger than memory"))?;
        if self.keep == Keep::Bytes {
            self.files
                .with(|files| files.entry(path).or_default().resize(length, 0));
        }
        self.open.remove(&file);
        Ok(())
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl Disk for MemoryDisk {
    fn create(&mut self, path: &Path, _reserve_bytes: u64) -> Result<FileId, DiskError> {
        let (file, result) = self.open_new(path);
        result.map(|()| file)
    }

    fn submit_create(&mut self, path: &Path, _reserve_bytes: u64) -> FileId {
        let (file, result) = self.open_new(path);
        self.done.push(Completion::Created { file, result });
        file
    }

    fn submit_write(&mut self, file: FileId, offset: u64, block: Block, len: usize) {
        let result = self.write(file, offset, &block, len);
        self.done.push(Completion::Written {
            file,
            offset,
            len,
            block,
            result,
        });
    }

    fn submit_sync(&mut self, file: FileId, token: u64) {
        let result = self.path_of(file, Operation::Sync).map(|_| ());
        self.done.push(Completion::Synced { file, token, result });
    }

    fn submit_close(&mut self, file: FileId, length: u64) {
        let result = self.close(file, length);
        self.done.push(Completion::Closed { file, result });
    }

    fn reap(&mut self, _wait: Wait, completions: &mut Vec<Completion>) {
        completions.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn available_bytes(&self, _dir: &Path) -> Result<u64, DiskError> {
        Ok(u64::MAX)
    }

    fn makes_files(&self) -> bool {
        false
    }
}
