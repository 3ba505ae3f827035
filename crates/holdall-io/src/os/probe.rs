//! Features that the file system of a folder and the kernel support.

use super::direct;
use crate::{
    block::{BLOCK_ALIGNMENT, BlockPool, BlockPoolOptions},
    disk::{DiskError, Operation},
};
use rustix::{
    fs::{Mode, OFlags, open, statfs},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

/// `f_type` of ramfs (linux/magic.h; the libc crate does not have it).
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Tries a direct write in `dir`, and leaves no file.
///
/// # Errors
/// Why direct writing is not possible there.
pub(super) fn try_direct(dir: &Path) -> Result<(), DiskError> {
    let fail = |source| DiskError::new(dir, Operation::Open, source);
    direct::is_ring_available().map_err(|source| {
        fail(io::Error::new(
            source.kind(),
            format!("direct writing needs io_uring, which is not available: {source}"),
        ))
    })?;
    let refused = |source: io::Error| {
        fail(io::Error::new(
            source.kind(),
            format!("the file system refuses direct writes (O_DIRECT): {source}"),
        ))
    };
    if is_in_memory(dir).map_err(fail)? {
        // It may accept O_DIRECT, but has no disk, and reserving space would fill memory.
        return Err(refused(io::Error::new(
            io::ErrorKind::Unsupported,
            "it keeps its files in memory",
        )));
    }
    let file = open_unnamed(dir).map_err(refused)?;
    let pool = BlockPool::new(BlockPoolOptions {
        block_bytes: BLOCK_ALIGNMENT,
        block_count: 2,
        huge_pages: false,
    })
    .map_err(fail)?;
    let Some(block) = pool.take() else { return Ok(()) };
    match file.write_at(block.as_slice(), 0) {
        // A full disk is detected when data is really written.
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(refused(error)),
        _ => Ok(()),
    }
}

/// Whether the file system of `dir` keeps its files in memory.
fn is_in_memory(dir: &Path) -> io::Result<bool> {
    let stat = statfs(dir)?;
    Ok(stat.f_type == libc::TMPFS_MAGIC || stat.f_type == RAMFS_MAGIC)
}

/// A file without a name, open for direct writing; if the file system does not support that, a file whose
/// name is removed at once.
fn open_unnamed(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    match open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let path = dir.join(format!(".holdall-probe-{}", std::process::id()));
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)?;
    // It was made above.
    let _ = std::fs::remove_file(&path);
    Ok(opened)
}

/// Checks that `dir` is a directory.
pub(super) fn check_directory(dir: &Path) -> Result<(), DiskError> {
    let metadata = std::fs::metadata(dir).map_err(|source| DiskError::new(dir, Operation::Open, source))?;
    if metadata.is_dir() {
        return Ok(());
    }
    Err(DiskError::new(
        dir,
        Operation::Open,
        io::Error::from_raw_os_error(libc::ENOTDIR),
    ))
}
