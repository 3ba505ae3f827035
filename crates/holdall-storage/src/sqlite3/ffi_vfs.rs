//! A file system for SQLite (a "VFS"): the database that is being written goes through the disk layer, all other files through SQLite's own.
#![allow(unsafe_code, reason = "SQLite calls a file system through C functions")]

use super::{
    ffi_reader, ffi_rolled_back,
    locks::WriterLocks,
    pages::{IsFull, Pages, Source},
};
use holdall_io::{
    disk::{DiskError, FileId},
    queue::DiskQueue,
};
use rusqlite::{Connection, OpenFlags, ffi};
use std::{
    cell::{Cell, RefCell, RefMut},
    ffi::{CStr, c_int, c_void},
    marker::PhantomData,
    path::Path,
    ptr,
    sync::{Arc, OnceLock},
};

/// Name under which the file system for written databases is registered.
const NAME: &CStr = c"holdall-blocks";

thread_local! {
    /// The file of the database that this thread is opening.
    static OPENING: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// State that SQLite's file and its user share.
struct Shared {
    pages: RefCell<Pages>,
    /// The queue, while a caller has lent it.
    queue: Cell<*mut DiskQueue>,
    locks: Arc<WriterLocks>,
    /// The lock that SQLite has requested.
    level: Cell<c_int>,
    /// A write failed: the file may have a part of a transaction.
    has_failed: Cell<bool>,
}

/// A database file that is written through the disk layer. The connection to it must be closed before this is dropped.
pub(super) struct BlockFile {
    shared: Arc<Shared>,
}

// SAFETY: the only other owners of `shared` are a `Lent`, which cannot leave its thread and borrows the queue of the caller, and SQLite's
// file, which is called by the connection of the same writer: one thread at a time uses all of them.
unsafe impl Send for BlockFile {}

/// The queue is SQLite's until this is dropped.
pub(super) struct Lent<'queue> {
    shared: Arc<Shared>,
    queue: PhantomData<&'queue mut DiskQueue>,
}

impl Drop for Lent<'_> {
    /// Takes the queue back.
    fn drop(&mut self) {
        self.shared.queue.set(ptr::null_mut());
    }
}

impl BlockFile {
    /// Opens the empty file that a queue has made at `path` as a new database. It is the writer's for as long as `locks` live.
    ///
    /// # Errors
    /// Anything that SQLite refuses.
    pub(super) fn open(
        path: &Path,
        file: FileId,
        flags: OpenFlags,
        locks: Arc<WriterLocks>,
    ) -> rusqlite::Result<(Connection, Self)> {
        check_registered()?;
        #[allow(clippy::arc_with_non_send_sync, reason = "see the implementation of Send")]
        let shared = Arc::new(Shared {
            pages: RefCell::new(Pages::new(file)),
            queue: Cell::new(ptr::null_mut()),
            locks,
            level: Cell::new(ffi::SQLITE_LOCK_NONE),
            has_failed: Cell::new(false),
        });
        OPENING.set(Arc::as_ptr(&shared));
        let opened = Connection::open_with_flags_and_vfs(path, flags, NAME);
        OPENING.set(ptr::null());
        opened.map(|connection| (connection, Self { shared }))
    }

    /// Lets SQLite use the queue as long as the result lives: without it no page can be written.
    pub(super) fn lend<'queue>(&self, q: &'queue mut DiskQueue) -> Lent<'queue> {
        self.shared.queue.set(q);
        Lent {
            shared: Arc::clone(&self.shared),
            queue: PhantomData,
        }
    }

    /// The pages, while SQLite does not run.
    pub(super) fn pages(&self) -> RefMut<'_, Pages> {
        self.shared.pages.borrow_mut()
    }

    /// The locks of the database.
    pub(super) fn locks(&self) -> Arc<WriterLocks> {
        Arc::clone(&self.shared.locks)
    }

    /// The error of the disk that made a call of SQLite fail.
    pub(super) fn take_error(&self) -> Option<DiskError> {
        self.shared.pages.borrow_mut().take_error()
    }

    /// The database's length in bytes, without the space that is reserved after it.
    pub(super) fn length(&self) -> u64 {
        self.shared.pages.borrow().length()
    }
}

/// SQLite's view of an open database; SQLite's own file for the same path follows it in memory, for reads.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    shared: *const Shared,
}

/// Offset of SQLite's own file in the memory of an open file.
pub(super) const FILE_BYTES: usize = size_of::<File>();

pub(super) static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// SQLite's own file system, once this one is registered in addition.
pub(super) static SYSTEM: OnceLock<Option<System>> = OnceLock::new();

pub(super) struct System(pub(super) *mut ffi::sqlite3_vfs);

// SAFETY: SQLite's own file system is a static of the library, which all threads may use.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

pub(super) fn check_registered() -> rusqlite::Result<()> {
    let system = SYSTEM.get_or_init(register).as_ref();
    system.map(drop).ok_or_else(|| {
        rusqlite::Error::InvalidParameterName("the file system of databases cannot be registered".into())
    })
}

fn register() -> Option<System> {
    // SAFETY: the call initializes the library where that was not done; a null name asks for the default.
    let system = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    // SAFETY: null, or a file system that lives as long as the library.
    let mut ours = *unsafe { system.as_ref() }?;
    ours.szOsFile += c_int::try_from(size_of::<File>().max(ffi_rolled_back::FILE_BYTES)).ok()?;
    ours.pNext = ptr::null_mut();
    let file_systems: [(&CStr, Open); 3] = [
        (NAME, open),
        (ffi_reader::NAME, ffi_reader::open),
        (ffi_rolled_back::NAME, ffi_rolled_back::open),
    ];
    for (name, open) in file_systems {
        ours.zName = name.as_ptr();
        ours.xOpen = Some(open);
        // SQLite keeps the pointer forever.
        let ours = Box::into_raw(Box::new(ours));
        // SAFETY: a whole file system that is never freed; it does not become the default.
        if unsafe { ffi::sqlite3_vfs_register(ours, 0) } != ffi::SQLITE_OK {
            return None;
        }
    }
    Some(System(system))
}

/// How SQLite opens a file.
type Open = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;

/// SQLite's own file, which follows the [`File`].
///
/// # Safety
/// `file` was opened by [`open`].
pub(super) unsafe fn system_file(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite gave `szOsFile` bytes, which begin with a `File`.
    unsafe { file.cast::<u8>().add(FILE_BYTES).cast() }
}

/// Calls a method of SQLite's own file.
macro_rules! forward {
    ($method:ident, $file:expr $(, $argument:expr)*) => {{
        // SAFETY: called by SQLite with a file that `open` has opened.
        let file = unsafe { system_file($file) };
        // SAFETY: an open file has methods, and the system's file system has them all.
        let method = unsafe { (*(*file).pMethods).$method };
        // SAFETY: the arguments are SQLite's own.
        method.map_or(ffi::SQLITE_NOTFOUND, |method| unsafe { method(file $(, $argument)*) })
    }};
}
pub(super) use forward;

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(System(system))) = SYSTEM.get() else {
        return ffi::SQLITE_CANTOPEN;
    };
    let is_database = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
    let shared = if is_database {
        OPENING.replace(ptr::null())
    } else {
        ptr::null()
    };
    // SAFETY: a static of the library.
    let Some(open_system_file) = (unsafe { (**system).xOpen }) else {
        return ffi::SQLITE_CANTOPEN;
    };
    if shared.is_null() {
        // SAFETY: SQLite's own arguments; the memory is larger than the system's file needs.
        return unsafe { open_system_file(*system, name, file, flags, out_flags) };
    }
    // SAFETY: the memory has `szOsFile` bytes, our file and then the system's.
    let ours = unsafe { &mut *file.cast::<File>() };
    ours.base.pMethods = ptr::null();
    ours.shared = shared;
    // SAFETY: as above.
    let opened = unsafe { open_system_file(*system, name, system_file(file), flags, out_flags) };
    if opened == ffi::SQLITE_OK {
        ours.base.pMethods = &raw const METHODS;
    }
    opened
}

/// The state that an open file shares with its user.
fn shared_of<'file>(file: *mut ffi::sqlite3_file) -> &'file Shared {
    // SAFETY: SQLite passes a file that `open` has opened; its target lives as long as the connection, see `BlockFile`.
    unsafe { &*(*file.cast::<File>()).shared }
}

/// Runs `action` with the pages and, while it is lent, the queue.
fn with_pages<T>(shared: &Shared, action: impl FnOnce(&mut Pages, Option<&mut DiskQueue>) -> T) -> T {
    // SAFETY: null, or the queue that a `Lent` borrows exclusively; SQLite runs in a call of its borrower, on the same thread.
    let queue = unsafe { shared.queue.get().as_mut() };
    action(&mut shared.pages.borrow_mut(), queue)
}

/// The result of a call that needs the queue.
fn needing_queue(
    file: *mut ffi::sqlite3_file,
    failed: c_int,
    action: impl FnOnce(&mut Pages, &mut DiskQueue) -> Result<(), IsFull>,
) -> c_int {
    let shared = shared_of(file);
    let result = with_pages(shared, |pages, queue| queue.map(|queue| action(pages, queue)));
    if let Some(Ok(())) = result {
        return ffi::SQLITE_OK;
    }
    shared.has_failed.set(true);
    match result {
        Some(Err(IsFull(true))) => ffi::SQLITE_FULL,
        // Without a queue a connection is closed after a failure: the journal stays, for the next program that opens the database.
        _ => failed,
    }
}

pub(super) fn bytes_of(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(xClose, file)
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes memory of `count` bytes, which it does not read before this call has filled it.
    let buffer = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes_of(count)) };
    let place = offset.unsigned_abs();
    match with_pages(shared_of(file), |pages, queue| pages.read(queue, place, buffer)) {
        Ok(Source::Memory) => ffi::SQLITE_OK,
        Ok(Source::File { available: 0 }) => {
            buffer.fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Ok(Source::File { available }) => {
            let result = forward!(xRead, file, to, count, offset);
            // After the end is reserved space, or nothing.
            if available < buffer.len()
                && (result == ffi::SQLITE_OK || result == ffi::SQLITE_IOERR_SHORT_READ)
            {
                buffer[available..].fill(0);
                return ffi::SQLITE_IOERR_SHORT_READ;
            }
            result
        }
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes `count` bytes.
    let page = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes_of(count)) };
    needing_queue(file, ffi::SQLITE_IOERR_WRITE, |pages, q| {
        pages.write(q, offset.unsigned_abs(), page)
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: ffi::sqlite3_int64) -> c_int {
    needing_queue(file, ffi::SQLITE_IOERR_TRUNCATE, |pages, q| {
        pages.truncate(q, length.unsigned_abs())
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    needing_queue(file, ffi::SQLITE_IOERR_FSYNC, Pages::sync)
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, length: *mut ffi::sqlite3_int64) -> c_int {
    let bytes = with_pages(shared_of(file), |pages, _| pages.length());
    // SAFETY: SQLite passes a place for the result.
    unsafe { *length = ffi::sqlite3_int64::try_from(bytes).unwrap_or(ffi::sqlite3_int64::MAX) };
    ffi::SQLITE_OK
}

/// The database is reserved all the time: only readers must leave before pages change, and that is waited for.
unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let shared = shared_of(file);
    if level > shared.level.get() {
        if level == ffi::SQLITE_LOCK_EXCLUSIVE {
            shared.locks.exclude_readers();
        }
        shared.level.set(level);
    }
    ffi::SQLITE_OK
}

/// Readers come back when all pages of a transaction are in the file. After a failure they never are: then the file stays locked
/// until it is closed, and the next program finds its journal.
unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let shared = shared_of(file);
    let before = shared.level.get();
    if level >= before {
        return ffi::SQLITE_OK;
    }
    shared.level.set(level);
    if before < ffi::SQLITE_LOCK_EXCLUSIVE {
        return ffi::SQLITE_OK;
    }
    let settled = needing_queue(file, ffi::SQLITE_IOERR_UNLOCK, Pages::settle);
    if !shared.has_failed.get() {
        shared.locks.admit_readers();
    }
    settled
}

/// No other program can have reserved it.
unsafe extern "C" fn check_reserved_lock(_file: *mut ffi::sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the result.
    unsafe { *result = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut ffi::sqlite3_file,
    request: c_int,
    argument: *mut c_void,
) -> c_int {
    match request {
        // All pages of a transaction are given, and the journal is still there: it must not go before they are in the file.
        ffi::SQLITE_FCNTL_SYNC => needing_queue(file, ffi::SQLITE_IOERR_WRITE, Pages::settle),
        // The disk layer reserves space.
        ffi::SQLITE_FCNTL_SIZE_HINT | ffi::SQLITE_FCNTL_CHUNK_SIZE => ffi::SQLITE_OK,
        ffi::SQLITE_FCNTL_MMAP_SIZE => ffi::SQLITE_NOTFOUND,
        _ => forward!(xFileControl, file, request, argument),
    }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(xSectorSize, file)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(xDeviceCharacteristics, file)
}
