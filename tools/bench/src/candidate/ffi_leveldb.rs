//! The C interface of the real LevelDB, loaded at run time: the library is a rival, and nothing else needs
//! it.
#![allow(unsafe_code, reason = "calls of a foreign library")]

use libloading::Library;
use std::{
    ffi::{CStr, CString, c_char, c_int, c_uchar, c_void},
    mem::ManuallyDrop,
    path::Path,
    ptr,
    sync::Arc,
};

/// The library's file names: Debian's, with its number, first.
const LIBRARY_NAMES: [&str; 3] = ["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"];

/// How to install it.
pub(crate) const INSTALL: &str = "LevelDB is not installed: there is no libleveldb (Debian: libleveldb1d)";

/// `leveldb_no_compression` of its C header.
const NO_COMPRESSION: c_int = 0;

/// The name that rosbag2's plugin gives to the order of its messages, with its final zero.
const COMPARATOR_NAME: &CStr = c"Timestamp Comparator";

type Opaque = *mut c_void;
type ErrorText = *mut *mut c_char;
type Create = unsafe extern "C" fn() -> Opaque;
type Destroy = unsafe extern "C" fn(Opaque);
type Compare = extern "C" fn(Opaque, *const c_char, usize, *const c_char, usize) -> c_int;
type Name = extern "C" fn(Opaque) -> *const c_char;

/// LevelDB's functions, as `leveldb/c.h` declares them.
#[derive(Clone, Copy)]
struct Calls {
    options_create: Create,
    options_destroy: Destroy,
    set_create_if_missing: unsafe extern "C" fn(Opaque, c_uchar),
    set_error_if_exists: unsafe extern "C" fn(Opaque, c_uchar),
    set_compression: unsafe extern "C" fn(Opaque, c_int),
    set_comparator: unsafe extern "C" fn(Opaque, Opaque),
    comparator_create: unsafe extern "C" fn(Opaque, extern "C" fn(Opaque), Compare, Name) -> Opaque,
    comparator_destroy: Destroy,
    write_options_create: Create,
    write_options_destroy: Destroy,
    open: unsafe extern "C" fn(Opaque, *const c_char, ErrorText) -> Opaque,
    close: Destroy,
    write: unsafe extern "C" fn(Opaque, Opaque, Opaque, ErrorText),
    batch_create: Create,
    batch_destroy: Destroy,
    batch_clear: Destroy,
    batch_put: unsafe extern "C" fn(Opaque, *const c_char, usize, *const c_char, usize),
    free: Destroy,
}

/// The library.
pub(crate) struct LevelDb {
    calls: Calls,
    /// The library of these functions. It is never unloaded: LevelDB's compaction thread, once started, waits
    /// in its code until the program ends.
    _library: ManuallyDrop<Library>,
}

impl LevelDb {
    /// Searches the system's library folders; `None` when it is not installed, or is another library of that
    /// name.
    pub fn find() -> Option<Arc<Self>> {
        LIBRARY_NAMES.iter().find_map(|name| Self::load(name))
    }

    fn load(name: &str) -> Option<Arc<Self>> {
        // SAFETY: LevelDB's constructors do nothing but initialize its own statics.
        let library = unsafe { Library::new(name) }.ok()?;
        macro_rules! call {
            ($name:literal) => {
                // SAFETY: the types above match leveldb/c.h, which has not changed since 1.18; the
                // library outlives the pointer.
                unsafe { *library.get($name).ok()? }
            };
        }
        let calls = Calls {
            options_create: call!(b"leveldb_options_create\0"),
            options_destroy: call!(b"leveldb_options_destroy\0"),
            set_create_if_missing: call!(b"leveldb_options_set_create_if_missing\0"),
            set_error_if_exists: call!(b"leveldb_options_set_error_if_exists\0"),
            set_compression: call!(b"leveldb_options_set_compression\0"),
            set_comparator: call!(b"leveldb_options_set_comparator\0"),
            comparator_create: call!(b"leveldb_comparator_create\0"),
            comparator_destroy: call!(b"leveldb_comparator_destroy\0"),
            write_options_create: call!(b"leveldb_writeoptions_create\0"),
            write_options_destroy: call!(b"leveldb_writeoptions_destroy\0"),
            open: call!(b"leveldb_open\0"),
            close: call!(b"leveldb_close\0"),
            write: call!(b"leveldb_write\0"),
            batch_create: call!(b"leveldb_writebatch_create\0"),
            batch_destroy: call!(b"leveldb_writebatch_destroy\0"),
            batch_clear: call!(b"leveldb_writebatch_clear\0"),
            batch_put: call!(b"leveldb_writebatch_put\0"),
            free: call!(b"leveldb_free\0"),
        };
        Some(Arc::new(Self {
            calls,
            _library: ManuallyDrop::new(library),
        }))
    }

    /// Takes the text of an error, if there is one.
    fn taken(&self, text: *mut c_char) -> Result<(), String> {
        if text.is_null() {
            return Ok(());
        }
        // SAFETY: LevelDB returned a text with a final zero, which we own until we free it.
        let reason = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: it came from LevelDB's malloc and is not used any more.
        unsafe { (self.calls.free)(text.cast()) };
        Err(reason)
    }
}

/// The order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Compared as bytes.
    Bytes,
    /// Compared as numbers of 64 bits in this machine's byte order, under the plugin's name.
    Stamps,
}

/// Keys of eight bytes are compared as signed numbers; no other keys occur.
extern "C" fn compare_stamps(
    _: Opaque,
    a: *const c_char,
    a_len: usize,
    b: *const c_char,
    b_len: usize,
) -> c_int {
    // A key of another length counts as the least number.
    let stamp = |at: *const c_char, len: usize| {
        if len != size_of::<i64>() {
            return None;
        }
        // SAFETY: LevelDB gives slices that are valid during the call, and this one has eight bytes.
        Some(i64::from_ne_bytes(unsafe { ptr::read_unaligned(at.cast()) }))
    };
    stamp(a, a_len).cmp(&stamp(b, b_len)) as c_int
}

extern "C" fn comparator_name(_: Opaque) -> *const c_char {
    COMPARATOR_NAME.as_ptr()
}

extern "C" fn nothing_to_free(_: Opaque) {}

/// An open database with a batch that is being filled.
pub struct Database {
    leveldb: Arc<LevelDb>,
    database: Opaque,
    options: Opaque,
    write_options: Opaque,
    comparator: Option<Opaque>,
    batch: Opaque,
    batched: u64,
}

// SAFETY: LevelDB's databases may be used by any thread; options, comparator and batch belong to this value
// alone.
unsafe impl Send for Database {}

impl Database {
    /// A new database in the directory `path`, without compression, as rosbag2's plugin opens them.
    ///
    /// # Errors
    /// LevelDB's error, one clause.
    pub fn create(leveldb: &Arc<LevelDb>, path: &Path, order: Order) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| "the path has a zero byte".to_owned())?;
        let calls = leveldb.calls;
        // SAFETY: takes no arguments; the result is freed in `drop`.
        let options = unsafe { (calls.options_create)() };
        // SAFETY: the functions live as long as the program, and use no state.
        let comparator = (order == Order::Stamps).then(|| unsafe {
            (calls.comparator_create)(ptr::null_mut(), nothing_to_free, compare_stamps, comparator_name)
        });
        // SAFETY: `options` was made above; the comparator outlives the database, see `drop`.
        unsafe {
            (calls.set_create_if_missing)(options, 1);
            (calls.set_error_if_exists)(options, 1);
            (calls.set_compression)(options, NO_COMPRESSION);
            if let Some(comparator) = comparator {
                (calls.set_comparator)(options, comparator);
            }
        }
        let mut text = ptr::null_mut();
        // SAFETY: all arguments are valid during the call; it returns null and a text, or a database.
        let database = unsafe { (calls.open)(options, name.as_ptr(), &raw mut text) };
        let opened = Self {
            // SAFETY: takes no arguments; freed in `drop`.
            write_options: unsafe { (calls.write_options_create)() },
            // SAFETY: takes no arguments; freed in `drop`.
            batch: unsafe { (calls.batch_create)() },
            leveldb: Arc::clone(leveldb),
            database,
            options,
            comparator,
            batched: 0,
        };
        leveldb.taken(text)?;
        if opened.database.is_null() {
            return Err("it could not be opened".to_owned());
        }
        Ok(opened)
    }

    /// Puts a value into the batch.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: both slices are valid during the call, which copies them.
        unsafe {
            (self.leveldb.calls.batch_put)(
                self.batch,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
        self.batched += 1;
    }

    /// Writes the batch, if it is not empty. Not synced: the plugin does not do that either.
    ///
    /// # Errors
    /// LevelDB's error, one clause.
    pub fn write(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.batched) == 0 {
            return Ok(());
        }
        let mut text = ptr::null_mut();
        // SAFETY: all of them were made in `create` and are freed in `drop`.
        unsafe {
            (self.leveldb.calls.write)(self.database, self.write_options, self.batch, &raw mut text);
            (self.leveldb.calls.batch_clear)(self.batch);
        }
        self.leveldb.taken(text)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let calls = self.leveldb.calls;
        // SAFETY: each was made in `create` and is not used again; the comparator is freed after the database
        // that uses it.
        unsafe {
            (calls.batch_destroy)(self.batch);
            (calls.write_options_destroy)(self.write_options);
            if !self.database.is_null() {
                (calls.close)(self.database);
            }
            (calls.options_destroy)(self.options);
            if let Some(comparator) = self.comparator {
                (calls.comparator_destroy)(comparator);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than LevelDB's write buffer of 4 MiB starts its thread; such a thread in unloaded code would end
    /// the program.
    #[test]
    fn the_library_stays_when_its_last_database_is_closed() {
        let Some(leveldb) = LevelDb::find() else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::create(&leveldb, &folder.path().join("db"), Order::Stamps).unwrap();
        drop(leveldb);
        let value = vec![7; 64 << 10];
        for stamp in 0..200_i64 {
            database.put(&stamp.to_ne_bytes(), &value);
            database.write().unwrap();
        }
        drop(database);
        let again = LevelDb::find().unwrap();
        assert!(Database::create(&again, &folder.path().join("other"), Order::Bytes).is_ok());
    }
}
