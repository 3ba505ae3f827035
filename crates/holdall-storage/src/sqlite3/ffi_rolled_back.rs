//! A file system for SQLite (a "VFS") that reads a database through its rollback journal.
#![allow(unsafe_code, reason = "SQLite calls a file system through C functions")]

use super::{
    ffi_reader::{refuse_truncate, refuse_write},
    ffi_vfs::{METHODS, SYSTEM, System, bytes_of, check_registered},
    locks::ReaderLocks,
    rollback::RolledBack,
};
use rusqlite::{Connection, OpenFlags, ffi};
use std::{
    cell::Cell,
    ffi::{CStr, c_int, c_void},
    ptr,
    sync::Arc,
};

/// Name under which the file system is registered.
pub(super) const NAME: &CStr = c"holdall-rolled-back";
/// Bytes that SQLite keeps for an open file.
pub(super) const FILE_BYTES: usize = size_of::<RolledBackFile>();

thread_local! {
    /// The database that this thread is opening.
    static READING: Cell<*const RolledBack> = const { Cell::new(ptr::null()) };
}

/// Opens a connection that reads a database through its journal. `uri` names it as immutable: SQLite then looks for no journal itself.
///
/// # Errors
/// Anything that SQLite refuses.
pub(super) fn connect(rolled_back: &Arc<RolledBack>, uri: &str) -> rusqlite::Result<Connection> {
    check_registered()?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    READING.set(Arc::as_ptr(rolled_back));
    let opened = Connection::open_with_flags_and_vfs(uri, flags, NAME);
    READING.set(ptr::null());
    opened
}

/// SQLite's view of a database that is read through its journal.
#[repr(C)]
struct RolledBackFile {
    base: ffi::sqlite3_file,
    /// Owned: the file holds a count of the `Arc`.
    rolled_back: *const RolledBack,
    /// Owned; null where the journal is locked for all connections.
    locks: *mut ReaderLocks,
}

static READ_METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    xClose: Some(close_rolled_back),
    xRead: Some(read_rolled_back),
    xWrite: Some(refuse_write),
    xTruncate: Some(refuse_truncate),
    xSync: Some(accept_level),
    xFileSize: Some(rolled_back_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(refuse_control),
    xSectorSize: Some(no_value),
    xDeviceCharacteristics: Some(no_value),
    ..METHODS
};

pub(super) unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let rolled_back = READING.replace(ptr::null());
    if flags & ffi::SQLITE_OPEN_MAIN_DB == 0 || rolled_back.is_null() {
        let Some(Some(System(system))) = SYSTEM.get() else {
            return ffi::SQLITE_CANTOPEN;
        };
        // SAFETY: a static of the library; SQLite's own arguments, and more memory than the system's file needs.
        return unsafe {
            (**system).xOpen.map_or(ffi::SQLITE_CANTOPEN, |open| {
                open(*system, name, file, flags, out_flags)
            })
        };
    }
    // SAFETY: as below.
    let locks = match unsafe { &*rolled_back }.locks() {
        Ok(locks) => locks.map_or(ptr::null_mut(), |locks| Box::into_raw(Box::new(locks))),
        Err(_) => return ffi::SQLITE_CANTOPEN,
    };
    // SAFETY: the pointer is that of an `Arc` which the caller of SQLite holds during this call; the file holds a count until it is closed.
    unsafe { Arc::increment_strong_count(rolled_back) };
    let ours = RolledBackFile {
        base: ffi::sqlite3_file {
            pMethods: &raw const READ_METHODS,
        },
        rolled_back,
        locks,
    };
    // SAFETY: SQLite gave `szOsFile` bytes, which are enough.
    unsafe { file.cast::<RolledBackFile>().write(ours) };
    // SAFETY: null, or a place for the flags.
    if let Some(out_flags) = unsafe { out_flags.as_mut() } {
        *out_flags = flags;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close_rolled_back(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: opened by `open`; SQLite passes a file that is not closed yet.
    let locks = unsafe { (*file.cast::<RolledBackFile>()).locks };
    if !locks.is_null() {
        // SAFETY: made by `open` out of a box; SQLite does not use the file afterwards.
        drop(unsafe { Box::from_raw(locks) });
    }
    // SAFETY: opened by `open`, which has taken a count; SQLite does not use the file afterwards.
    unsafe { Arc::decrement_strong_count((*file.cast::<RolledBackFile>()).rolled_back) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn read_rolled_back(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes memory of `count` bytes, which it does not read before this call has filled it.
    let buffer = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes_of(count)) };
    // SAFETY: opened by `open`; the count keeps it alive.
    let rolled_back = unsafe { &*(*file.cast::<RolledBackFile>()).rolled_back };
    match rolled_back.read(offset.unsigned_abs(), buffer) {
        Ok(available) if available == buffer.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn rolled_back_size(
    file: *mut ffi::sqlite3_file,
    length: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: as in `read_rolled_back`; SQLite passes a place for the result.
    unsafe {
        let bytes = (*(*file.cast::<RolledBackFile>()).rolled_back).length();
        *length = ffi::sqlite3_int64::try_from(bytes).unwrap_or(ffi::sqlite3_int64::MAX);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn accept_level(_file: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// The locks of an open file, if it has its own.
fn locks<'file>(file: *mut ffi::sqlite3_file) -> Option<&'file ReaderLocks> {
    // SAFETY: SQLite passes a file that `open` has opened and that is not closed yet.
    unsafe { (*file.cast::<RolledBackFile>()).locks.as_ref() }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let Some(locks) = locks(file) else {
        return ffi::SQLITE_OK;
    };
    if level > ffi::SQLITE_LOCK_SHARED {
        return ffi::SQLITE_READONLY;
    }
    if !locks.try_share() {
        return ffi::SQLITE_BUSY;
    }
    // SAFETY: opened by `open`; the count keeps it alive.
    unsafe { &*(*file.cast::<RolledBackFile>()).rolled_back }.refresh();
    ffi::SQLITE_OK
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    if let Some(locks) = locks(file)
        && level < ffi::SQLITE_LOCK_SHARED
    {
        locks.release();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, result: *mut c_int) -> c_int {
    let is_reserved = locks(file).is_some_and(|locks| locks.writer().is_some());
    // SAFETY: SQLite passes a place for the result.
    unsafe { *result = c_int::from(is_reserved) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn refuse_control(
    _file: *mut ffi::sqlite3_file,
    _request: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn no_value(_file: *mut ffi::sqlite3_file) -> c_int {
    0
}
