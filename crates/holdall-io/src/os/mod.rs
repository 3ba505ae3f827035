//! The operating system's disk.

use crate::{
    block::Block,
    disk::{Completion, Disk, DiskError, FileId, Operation, Wait, check_write, invalid_input},
};
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// How files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    /// Direct where the file system and the kernel can, else buffered.
    #[default]
    Auto,
    /// Past the page cache (O_DIRECT, io_uring).
    Direct,
    /// Through the page cache, written back early.
    Buffered,
}

/// Files of the operating system.
pub struct OsDisk {
    open: BTreeMap<FileId, (PathBuf, File)>,
    next_file: u32,
    done: Vec<Completion>,
}

impl OsDisk {
    /// A disk for files in `dir`.
    ///
    /// # Errors
    /// When `dir` cannot be inspected or `mode` is not possible there.
    pub fn open(_dir: &Path, _mode: DiskMode) -> Result<Self, DiskError> {
        Ok(Self {
            open: BTreeMap::new(),
            next_file: 0,
            done: Vec::new(),
        })
    }

    fn file(&self, file: FileId, operation: Operation) -> Result<&(PathBuf, File), DiskError> {
        self.open
            .get(&file)
            .ok_or_else(|| invalid_input(Path::new("file"), operation, "the file is not open"))
    }

    fn open_new(&mut self, path: &Path) -> (FileId, Result<(), DiskError>) {
        let file = FileId(self.next_file);
        self.next_file += 1;
        let opened = OpenOptions::new().write(true).create_new(true).open(path);
        let result = opened
            .map(|opened| drop(self.open.insert(file, (path.to_owned(), opened))))
            .map_err(|e| DiskError::new(path, Operation::Create, e));
        (file, result)
    }

    fn write(&self, file: FileId, offset: u64, block: &Block, len: usize) -> Result<(), DiskError> {
        let (path, opened) = self.file(file, Operation::Write)?;
        check_write(path, offset, block, len)?;
        opened
            .write_all_at(&block.as_slice()[..len], offset)
            .map_err(|e| DiskError::new(path, Operation::Write, e).at(offset))
    }

    fn close(&mut self, file: FileId, length: u64) -> Result<(), DiskError> {
        self.file(file, Operation::Close)?;
        let Some((path, opened)) = self.open.remove(&file) else {
            return Ok(());
        };
        let dir = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        opened
            .set_len(length)
            .and_then(|()| opened.sync_all())
            .and_then(|()| File::open(dir))
            .and_then(|d| d.sync_all())
            .map_err(|e| DiskError::new(path, Operation::Close, e))
    }
}

impl Disk for OsDisk {
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
        let result = self.file(file, Operation::Sync).and_then(|(path, opened)| {
            opened
                .sync_data()
                .map_err(|e| DiskError::new(path, Operation::Sync, e))
        });
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

    fn available_bytes(&self, dir: &Path) -> Result<u64, DiskError> {
        use std::os::unix::ffi::OsStrExt;
        let inspect = |e| DiskError::new(dir, Operation::Inspect, e);
        let path = std::ffi::CString::new(dir.as_os_str().as_bytes()).map_err(|e| inspect(e.into()))?;
        // SAFETY: an all-zero statvfs is valid; the call fills it in.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: `path` is a NUL-terminated string and `stat` is writable.
        if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
            return Err(inspect(std::io::Error::last_os_error()));
        }
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}
