//! A file system for SQLite (a "VFS") that reads or writes a database in place, with locks that another descriptor of this process does not end:
//! SQLite's own ones end when any descriptor of the file is closed.
#![allow(unsafe_code, reason = "SQLite calls a file system through C functions")]

use super::{
    ffi_vfs::{FILE_BYTES, METHODS, SYSTEM, System, forward, system_file},
    locks::ReaderLocks,
};
use rusqlite::ffi;
use std::{
    cell::Cell,
    ffi::{CStr, OsStr, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

/// Name under which the file system is registered.
pub(super) const NAME: &CStr = c"holdall-reader";

/// SQLite's view of a database that is used in place; SQLite's own file for the same path follows it in memory.
#[repr(C)]
struct ReaderFile {
    base: ffi::sqlite3_file,
    /// Owned, until the file is closed.
    locks: *mut Locked,
}

/// The locks of an open file, and which of SQLite's levels they are.
struct Locked {
    locks: ReaderLocks,
    level: Cell<c_int>,
}

const _: () = assert!(
    size_of::<ReaderFile>() == FILE_BYTES,
    "SQLite's own file follows at one place in all files"
);

static READER_METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(refuse_write),
    xTruncate: Some(refuse_truncate),
    xSync: Some(no_sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    ..METHODS
};

static WRITER_METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xLock: Some(raise),
    xUnlock: Some(lower),
    ..READER_METHODS
};

pub(super) unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(System(system))) = SYSTEM.get() else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: a static of the library.
    let Some(open_system_file) = (unsafe { (**system).xOpen }) else {
        return ffi::SQLITE_CANTOPEN;
    };
    if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
        // SAFETY: SQLite's own arguments; the memory is larger than the system's file needs.
        return unsafe { open_system_file(*system, name, file, flags, out_flags) };
    }
    // SAFETY: SQLite passes a text that ends with a zero.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let is_written = flags & ffi::SQLITE_OPEN_READWRITE != 0;
    let opened = match is_written {
        true => ReaderLocks::open_to_write(path),
        false => ReaderLocks::open(path),
    };
    let Ok(locks) = opened else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: the memory has `szOsFile` bytes, our file and then the system's.
    let ours = unsafe { &mut *file.cast::<ReaderFile>() };
    ours.base.pMethods = ptr::null();
    // SAFETY: as above.
    let opened = unsafe { open_system_file(*system, name, system_file(file), flags, out_flags) };
    if opened == ffi::SQLITE_OK {
        ours.locks = Box::into_raw(Box::new(Locked {
            locks,
            level: Cell::new(ffi::SQLITE_LOCK_NONE),
        }));
        ours.base.pMethods = match is_written {
            true => &raw const WRITER_METHODS,
            false => &raw const READER_METHODS,
        };
    }
    opened
}

/// The locks of an open file.
fn locked<'file>(file: *mut ffi::sqlite3_file) -> &'file Locked {
    // SAFETY: SQLite passes a file that `open` has opened and that is not closed yet.
    unsafe { &*(*file.cast::<ReaderFile>()).locks }
}

fn locks<'file>(file: *mut ffi::sqlite3_file) -> &'file ReaderLocks {
    &locked(file).locks
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: made by `open`; SQLite does not use the file after this call.
    drop(unsafe { Box::from_raw((*file.cast::<ReaderFile>()).locks) });
    forward!(xClose, file)
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    forward!(xRead, file, to, count, offset)
}

pub(super) unsafe extern "C" fn refuse_write(
    _file: *mut ffi::sqlite3_file,
    _from: *const c_void,
    _count: c_int,
    _offset: ffi::sqlite3_int64,
) -> c_int {
    ffi::SQLITE_READONLY
}

pub(super) unsafe extern "C" fn refuse_truncate(
    _file: *mut ffi::sqlite3_file,
    _length: ffi::sqlite3_int64,
) -> c_int {
    ffi::SQLITE_READONLY
}

unsafe extern "C" fn no_sync(_file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, length: *mut ffi::sqlite3_int64) -> c_int {
    forward!(xFileSize, file, length)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    if level > ffi::SQLITE_LOCK_SHARED {
        return ffi::SQLITE_READONLY;
    }
    match locks(file).try_share() {
        true => ffi::SQLITE_OK,
        false => ffi::SQLITE_BUSY,
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    if level < ffi::SQLITE_LOCK_SHARED {
        locks(file).release();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    forward!(xWrite, file, from, count, offset)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: ffi::sqlite3_int64) -> c_int {
    forward!(xTruncate, file, length)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    forward!(xSync, file, flags)
}

unsafe extern "C" fn raise(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let locked = locked(file);
    if level <= locked.level.get() {
        return ffi::SQLITE_OK;
    }
    let is_locked = match level {
        ffi::SQLITE_LOCK_SHARED => locked.locks.try_share(),
        ffi::SQLITE_LOCK_RESERVED => locked.locks.try_reserve(),
        _ => locked.locks.try_exclude(),
    };
    if !is_locked {
        return ffi::SQLITE_BUSY;
    }
    locked.level.set(level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn lower(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let locked = locked(file);
    match level {
        ffi::SQLITE_LOCK_NONE => locked.locks.release_all(),
        _ => locked.locks.release_to_shared(),
    }
    locked.level.set(level.min(locked.level.get()));
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, result: *mut c_int) -> c_int {
    let is_reserved = locks(file).writer().is_some();
    // SAFETY: SQLite passes a place for the result.
    unsafe { *result = c_int::from(is_reserved) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    request: c_int,
    argument: *mut c_void,
) -> c_int {
    match request {
        ffi::SQLITE_FCNTL_MMAP_SIZE => ffi::SQLITE_NOTFOUND,
        _ => forward!(xFileControl, file, request, argument),
    }
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    forward!(xShmMap, file, region, bytes, extend, to)
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    forward!(xShmLock, file, offset, count, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: called by SQLite with a file that `open` has opened.
    let file = unsafe { system_file(file) };
    // SAFETY: an open file of the system's file system, which has this method.
    if let Some(barrier) = unsafe { (*(*file).pMethods).xShmBarrier } {
        // SAFETY: SQLite's own argument.
        unsafe { barrier(file) };
    }
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, remove: c_int) -> c_int {
    forward!(xShmUnmap, file, remove)
}
