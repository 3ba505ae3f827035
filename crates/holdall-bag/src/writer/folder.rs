//! The bag directory: made new, small text files replaced atomically, a ring's files removed.

use holdall_io::hold::is_held;
use holdall_io::mutex::lock;
use holdall_io::{
    disk::{DiskError, Operation},
    fs,
    lock::{Locking, WriteLock},
    sealed::Seal,
    survivor::directory_identity,
};
use holdall_model::time::Timestamp;
use holdall_storage::RepairTarget;
use holdall_storage::{Storage, error::StorageResult, reader::StorageReader, writer::MetadataEntries};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::JoinHandle,
};

/// Identity of the file that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileIdentity {
    /// It cannot be known (now).
    Unknown,
    /// No file has it.
    None,
    /// This one.
    Is(fs::FileNumbers),
}

impl FileIdentity {
    /// Unknown: the file does not exist yet.
    pub(crate) fn or_unknown(self) -> Self {
        match self {
            Self::None => Self::Unknown,
            other => other,
        }
    }
}

/// Operations that a bag needs on the directory in addition to its storage files. Replacing and removing may be done
/// later, in order and all before a durable text is written. Their failures are not reported by a later call:
/// [`BagFolder::take_failure`] returns them.
pub trait BagFolder: Send {
    /// Makes the directory and its parents.
    ///
    /// # Errors
    /// When it exists already or cannot be made.
    fn create_new(&self, directory: &Path) -> Result<(), DiskError>;

    /// Replaces a text file so that it is seen old or new, never in part. `durable` waits until it survives a power cut.
    ///
    /// # Errors
    /// When it cannot be written; the old one is left as it was.
    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError>;

    /// Removes a directory that was just made and in which nothing was recorded, because the start has failed. Best effort.
    fn discard(&self, _directory: &Path) {}

    /// Removes a file, or a directory of files; a missing one is not an error.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_file(&self, path: &Path) -> Result<(), DiskError>;

    /// As [`BagFolder::remove_file`], done when it returns: for a caller that depends on the file being gone.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_file_now(&self, path: &Path) -> Result<(), DiskError> {
        self.remove_file(path)
    }

    /// As [`BagFolder::remove_file`], but only while the path is that of the file (or directory) with this identity: another one, or a
    /// link, is left alone.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove_that(&self, path: &Path, _identity: FileIdentity) -> Result<(), DiskError> {
        self.remove_file(path)
    }

    /// Identity that distinguishes the bag's directory from its copies; `None` if unknown.
    fn directory_identity(&self, _directory: &Path) -> Option<String> {
        None
    }

    /// Whether messages of a file with these first and last log times are being copied, so that a ring keeps it.
    fn is_held(&self, _directory: &Path, _first: Timestamp, _last: Timestamp) -> bool {
        false
    }

    /// The first error since the last call of what was done later, unless it was made good since: a text that could not be replaced, and
    /// then was.
    fn take_failure(&self) -> Option<DiskError> {
        None
    }

    /// Opens a storage file of the bag again, to read the part that a failed disk has kept.
    ///
    /// # Errors
    /// When nothing of it can be read.
    fn open_reader(&self, storage: &dyn Storage, path: &Path) -> StorageResult<Box<dyn StorageReader>> {
        storage.open_reader(path)
    }

    /// Length in bytes of a storage file as the disk has it.
    ///
    /// # Errors
    /// The file does not exist, or its length cannot be read.
    fn file_len(&self, path: &Path) -> Result<u64, DiskError> {
        fs::file_len(path)
    }

    /// Cuts a closed storage file of the bag to a length in bytes, and makes that durable. Data after that length may never have been written.
    ///
    /// # Errors
    /// When the disk does not do it.
    fn cut(&self, path: &Path, length_bytes: u64) -> Result<(), DiskError> {
        let file = fs::EditedFile::open(path)?;
        file.set_len(length_bytes)?;
        file.sync()
    }

    /// Which file has this name at the moment. A folder without such numbers does not know.
    fn file_identity(&self, _path: &Path) -> FileIdentity {
        FileIdentity::Unknown
    }

    /// Writes the summary and footer of a storage file that a full disk has torn, with `records` before them.
    ///
    /// # Errors
    /// It cannot be written; the readable part stays readable.
    fn complete_file(
        &self,
        storage: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
    ) -> StorageResult<()> {
        // A chunk that was still open may be shortened even where its header spans two sectors, as one of 10
        // does: a power cut right between the two takes what was never reported durable.
        storage.repair(path, records, RepairTarget::Copy).map(drop)
    }
}

/// A job for the folder's thread.
enum Job {
    Replace(PathBuf, Vec<u8>),
    Remove(PathBuf, FileIdentity),
}

/// A job that failed.
struct Failure {
    /// The text that could not be replaced; `None` for a file that could not be removed.
    text: Option<PathBuf>,
    error: DiskError,
}

/// The most jobs that wait; a caller that brings more waits for one to end.
const JOBS_MAX: usize = 64;

/// State that the thread shares with its callers.
#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    is_working: bool,
    is_ending: bool,
    /// The first failures of each text, and of removing, that no later job has made good.
    failures: Vec<Failure>,
}

impl State {
    /// Takes note of how a job ended; `text` is the one that it was to replace.
    fn ended(&mut self, text: Option<PathBuf>, done: Result<(), DiskError>) {
        match done {
            Ok(()) if text.is_some() => self.failures.retain(|failure| failure.text != text),
            Ok(()) => {}
            Err(error) if self.failures.iter().all(|failure| failure.text != text) => {
                self.failures.push(Failure { text, error });
            }
            Err(_) => {}
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// A panic elsewhere leaves the state unchanged since the last job.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait_while(&self, condition: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        self.changed
            .wait_while(self.lock(), condition)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all jobs are done.
    fn settle(&self) -> MutexGuard<'_, State> {
        self.wait_while(|state| state.is_working || !state.jobs.is_empty())
    }

    fn give(&self, job: Job) {
        let mut state = self.wait_while(|state| state.jobs.len() >= JOBS_MAX);
        match (state.jobs.back_mut(), job) {
            // No reader has seen the older text yet.
            (Some(Job::Replace(last_path, last_bytes)), Job::Replace(path, bytes)) if *last_path == path => {
                *last_bytes = bytes;
            }
            (_, job) => state.jobs.push_back(job),
        }
        drop(state);
        self.changed.notify_all();
    }

    fn work(&self) {
        loop {
            let mut state = self.wait_while(|state| state.jobs.is_empty() && !state.is_ending);
            let Some(job) = state.jobs.pop_front() else {
                return;
            };
            state.is_working = true;
            drop(state);
            let (text, done) = match job {
                Job::Replace(path, bytes) => {
                    let done = replace(&path, &bytes);
                    (Some(path), done)
                }
                Job::Remove(path, identity) => (None, remove(&path, identity)),
            };
            let mut state = self.lock();
            state.is_working = false;
            state.ended(text, done);
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// The least room that a text has on the disk while the bag is written, for the last text in case the disk is
/// full by then.
const TEXT_ROOM_BYTES_MIN: u64 = 64 << 10;

fn replace(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let room_bytes = TEXT_ROOM_BYTES_MIN.max(2 * bytes.len() as u64);
    fs::write_atomically_with_room(path, bytes, room_bytes)
}

/// Replaces a text for good. On a full disk it is written into the room of the old one.
fn replace_for_good(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    match fs::write_atomically(path, bytes) {
        Err(error) if error.is_no_space() => fs::write_over(path, bytes).map_err(|_| error),
        other => other,
    }
}

/// Removes a file or a directory of files, if it is the one with this identity.
fn remove(path: &Path, identity: FileIdentity) -> Result<(), DiskError> {
    let now = match fs::file_numbers(path) {
        Ok(now) => now,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_that = match identity {
        FileIdentity::Is(that) => that == now,
        FileIdentity::Unknown | FileIdentity::None => !fs::is_link(path),
    };
    let is_removed = if !is_that {
        false
    } else if fs::is_dir(path) {
        fs::remove_dir_all(path)?;
        true
    } else {
        fs::remove_that_file(path, now)?
    };
    if !is_removed {
        tracing::warn!(
            "{}: another file has this name now, it was not removed",
            path.display()
        );
    }
    Ok(())
}

/// The lock of a directory that was just made. A recording works without it where locks are not available: it
/// protects the bag from other programs.
fn hold(directory: &Path) -> Option<WriteLock> {
    match WriteLock::try_hold(directory) {
        Ok(Locking::Held(lock)) => Some(lock),
        Ok(Locking::Impossible) => None,
        Ok(Locking::Taken(other)) => {
            tracing::warn!("{}: {other} locked the new bag", directory.display());
            None
        }
        Err(error) => {
            tracing::warn!("the new bag is not locked: {error}");
            None
        }
    }
}

/// Directories of the operating system. A separate thread does, in order, the work that need not be waited for: the
/// drain must not block on it. On ext4 with `discard` freeing a file of 1 GB waits 120 to 300 ms for the
/// disk, and replacing a small one up to 200 ms while the disk is busy (measured: 110 of 2400 camera images
/// lost to that in 10 s of 1.49 GB/s with nine splits).
#[derive(Default)]
pub struct OsFolder {
    shared: Arc<Shared>,
    thread: OnceLock<Option<JoinHandle<()>>>,
    /// Lock of the bag's directory, the first that was made: other programs see that it is being written.
    lock: OnceLock<Option<WriteLock>>,
    /// Texts are sealed with it.
    seal: Option<Seal>,
}

impl OsFolder {
    /// A folder whose texts are sealed.
    pub fn sealed(seal: Seal) -> Self {
        Self {
            shared: Arc::default(),
            thread: OnceLock::new(),
            lock: OnceLock::new(),
            seal: Some(seal),
        }
    }

    /// A text's bytes in its file.
    fn stored(&self, path: &Path, text: &str) -> Result<Vec<u8>, DiskError> {
        match &self.seal {
            None => Ok(text.as_bytes().to_vec()),
            Some(seal) => seal
                .seal_bytes(text.as_bytes())
                .map_err(|source| DiskError::new(path, Operation::Write, source)),
        }
    }

    /// Gives a job to the thread, or does it here when the system gives no thread.
    fn give(&self, job: Job) -> Result<(), DiskError> {
        let thread = self.thread.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name("bag-folder".to_owned());
            named.spawn(move || shared.work()).ok()
        });
        match (thread, job) {
            (Some(_), job) => {
                self.shared.give(job);
                Ok(())
            }
            (None, Job::Replace(path, bytes)) => replace(&path, &bytes),
            (None, Job::Remove(path, identity)) => remove(&path, identity),
        }
    }
}

impl Drop for OsFolder {
    /// Waits until all is done. A caller that needs the error has written a durable text before.
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take().flatten() {
            // A panic of the thread was printed, and no caller is left to return it to.
            let _ = thread.join();
        }
    }
}

impl BagFolder for OsFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        fs::create_dir_new(directory)?;
        self.lock.get_or_init(|| hold(directory));
        Ok(())
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        let bytes = self.stored(path, text)?;
        if durable {
            drop(self.shared.settle());
            replace_for_good(path, &bytes)?;
            self.shared.lock().ended(Some(path.to_owned()), Ok(()));
            return Ok(());
        }
        if self.thread.get().is_none() && !fs::exists(path)? {
            // The first text: nothing is recorded yet, and a program that sees the directory finds it there.
            return replace(path, &bytes);
        }
        self.give(Job::Replace(path.to_owned(), bytes))
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.give(Job::Remove(path.to_owned(), FileIdentity::Unknown))
    }

    fn remove_file_now(&self, path: &Path) -> Result<(), DiskError> {
        drop(self.shared.settle());
        remove(path, FileIdentity::Unknown)
    }

    fn remove_that(&self, path: &Path, identity: FileIdentity) -> Result<(), DiskError> {
        self.give(Job::Remove(path.to_owned(), identity))
    }

    fn directory_identity(&self, directory: &Path) -> Option<String> {
        directory_identity(directory).ok()
    }

    fn take_failure(&self) -> Option<DiskError> {
        let mut state = self.shared.lock();
        (!state.failures.is_empty()).then(|| state.failures.remove(0).error)
    }

    fn is_held(&self, directory: &Path, first: Timestamp, last: Timestamp) -> bool {
        is_held(directory, first, last)
    }

    fn discard(&self, directory: &Path) {
        if let Err(error) = fs::remove_dir_all(directory) {
            tracing::warn!("the empty bag is still there: {error}");
        }
    }

    fn file_identity(&self, path: &Path) -> FileIdentity {
        match fs::file_numbers(path) {
            Ok(numbers) => FileIdentity::Is(numbers),
            Err(error) if error.is_not_found() => FileIdentity::None,
            Err(_) => FileIdentity::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_one_or_a_link_has_replaced_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = OsFolder::default();
        let [path, elsewhere] = ["bag_0.mcap", "elsewhere"].map(|name| dir.path().join(name));
        let made = |text: &str| {
            fs::write_atomically(&path, text.as_bytes()).unwrap();
            folder.file_identity(&path)
        };
        let removed = |identity| {
            folder.remove_that(&path, identity).unwrap();
            drop(folder.shared.settle());
            !path.exists()
        };
        let ours = made("ours");
        let theirs = made("theirs");
        assert!(ours != theirs && !removed(ours));
        fs::rename_over(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(!removed(theirs) && !removed(FileIdentity::Unknown));
        fs::rename_over(&elsewhere, &path).unwrap();
        assert!(removed(theirs));
        assert_eq!(folder.take_failure().map(|failure| failure.to_string()), None);
    }

    #[test]
    fn a_text_is_replaced_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.yaml");
        let folder = OsFolder::default();
        for (text, durable) in [("one", false), ("two", false), ("three", true)] {
            folder.replace_text(&path, text, durable).unwrap();
        }
        assert_eq!(fs::read_to_string(&path, 10).unwrap(), "three");
        assert_eq!(fs::list_dir(dir.path()).unwrap().len(), 1);
        folder.remove_file(&path).unwrap();
        folder.remove_file(&path).unwrap();
        drop(folder);
        assert!(!fs::exists(&path).unwrap());
    }

    #[test]
    fn what_is_done_later_is_done_in_order_and_its_error_is_returned_to_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, gone) = (dir.path().join("kept"), dir.path().join("no directory/text"));
        let folder = OsFolder::default();
        folder.replace_text(&kept, "first", false).unwrap();
        for number in 0..1000 {
            folder.remove_file(&kept).unwrap();
            folder.replace_text(&kept, &number.to_string(), false).unwrap();
        }
        drop(folder.shared.settle());
        assert_eq!(fs::read_to_string(&kept, 10).unwrap(), "999");
        folder.replace_text(&gone, "text", false).unwrap();
        folder.replace_text(&kept, "last", true).unwrap();
        assert_eq!(fs::read_to_string(&kept, 10).unwrap(), "last");
        let failure = folder.take_failure().unwrap();
        assert!(
            failure.path.starts_with(dir.path().join("no directory")),
            "{failure}"
        );
        assert!(folder.take_failure().is_none());
    }

    #[test]
    fn the_error_of_one_job_drops_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, text) = (
            dir.path().join("bag_7.mcap"),
            dir.path().join("folder/metadata.yaml"),
        );
        let folder = OsFolder::default();
        folder
            .replace_text(&dir.path().join("kept"), "first", false)
            .unwrap();
        folder
            .replace_text(&dir.path().join("kept"), "starts the thread", false)
            .unwrap();
        for removes_now in [false, true] {
            fs::write_atomically(&empty, b"").unwrap();
            folder.replace_text(&text, "no such directory", false).unwrap();
            drop(folder.shared.settle());
            if removes_now {
                folder.remove_file_now(&empty).unwrap();
            } else {
                folder.remove_file(&empty).unwrap();
                drop(folder.shared.settle());
            }
            assert!(
                !fs::exists(&empty).unwrap(),
                "the file of the next job is removed"
            );
        }
        assert!(folder.take_failure().is_some());
        // A text that is replaced after all has not failed.
        folder.replace_text(&text, "no such directory", false).unwrap();
        drop(folder.shared.settle());
        fs::create_dir_new(&dir.path().join("folder")).unwrap();
        folder.replace_text(&text, "now", true).unwrap();
        assert!(folder.take_failure().is_none());
    }
}
