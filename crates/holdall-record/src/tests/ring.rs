//! A recorder that is killed while the ring of files removes its oldest: removed messages are neither present nor lost.

use super::{
    rescue::{become_original, copied, read, world_with_memory},
    *,
};
use holdall_bag::{
    reader::{Bag, BagAudit},
    writer::{FileIdentity, OsFolder},
};
use holdall_io::disk::DiskError;
use holdall_tools::tools::{check::check, repair::repair};
use std::{collections::BTreeSet, ffi::OsString, sync::Mutex};

/// The removal at which the recorder dies: some before it are in the account.
const REMOVAL: u64 = 3;

/// Copies a bag as a kill leaves it, before or after a file is removed.
struct DyingFolder {
    folder: OsFolder,
    /// Which removals were, and whether the death is after the removal.
    removals: Arc<AtomicU64>,
    is_after: bool,
    copy: Arc<Mutex<Option<PathBuf>>>,
    place: PathBuf,
}

impl DyingFolder {
    fn die(&self, bag: &Path) {
        // A kill stops everything at once, which a copy does not: what other threads still do is in it whole or not at all.
        let mut copy = copied(bag, &self.place);
        while names(&copy) != names(bag) {
            fs::remove_dir_all(&copy).unwrap();
            copy = copied(bag, &self.place);
        }
        become_original(&self.place.join("memory"), bag, &copy);
        *self.copy.lock().unwrap() = Some(copy);
    }
}

/// The files of a bag.
fn names(bag: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(bag).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

impl BagFolder for DyingFolder {
    fn create_new(&self, directory: &Path) -> Result<(), DiskError> {
        self.folder.create_new(directory)
    }

    fn replace_text(&self, path: &Path, text: &str, durable: bool) -> Result<(), DiskError> {
        self.folder.replace_text(path, text, durable)
    }

    fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.folder.remove_file(path)
    }

    fn remove_that(&self, path: &Path, _identity: FileIdentity) -> Result<(), DiskError> {
        let dies = self.removals.fetch_add(1, Ordering::SeqCst) + 1 == REMOVAL;
        let bag = path.parent().unwrap();
        // All earlier work is done; `.none` does not exist.
        self.folder.remove_file_now(&bag.join(".none"))?;
        if dies && !self.is_after {
            self.die(bag);
        }
        self.folder.remove_file_now(path)?;
        if dies && self.is_after {
            self.die(bag);
        }
        Ok(())
    }

    fn directory_identity(&self, directory: &Path) -> Option<String> {
        self.folder.directory_identity(directory)
    }

    fn file_identity(&self, path: &Path) -> FileIdentity {
        self.folder.file_identity(path)
    }
}

/// The bag of a recorder that was killed there, and how many messages were sent until then at least.
fn killed_at_a_removal(storage: &str, is_after: bool, place: &Path) -> PathBuf {
    let (mut world, _memory) = world_with_memory();
    world.options.files.storage_id = storage.to_owned();
    world.options.files.split.bytes_max = Some(60_000);
    world.options.files.split.files_max = Some(3);
    let copy = Arc::<Mutex<Option<PathBuf>>>::default();
    let removals = Arc::<AtomicU64>::default();
    world.folder = Some(Box::new(DyingFolder {
        folder: OsFolder::default(),
        removals: Arc::clone(&removals),
        is_after,
        copy: Arc::clone(&copy),
        place: place.to_owned(),
    }));
    let publisher = world.publisher("/a", RELIABLE);
    let recording = world.record();
    recording.wait_matched(&publisher);
    let is_dying = || removals.load(Ordering::SeqCst) >= REMOVAL;
    let mut sent = 0;
    while !is_dying() && sent < 5000 {
        publisher.send(&payload(sent, 1000));
        sent += 1;
        // The copy of all memory takes a while on a slow machine.
        recording.wait_until("the message is recorded", |recording| {
            is_dying() || recording.recorder.status().recorded >= sent as u64
        });
    }
    while is_dying() && copy.lock().unwrap().is_none() {
        std::thread::yield_now();
    }
    recording.stop();
    copy.lock().unwrap().take().unwrap()
}

/// Neither a file nor a message is missing.
fn assert_nothing_lost(bag: &Path, about: &str) {
    let opened = Bag::open(bag).unwrap();
    let state = opened.state().unwrap();
    assert_eq!(state.missing_files, [], "{about}");
    assert_eq!(
        state.sums().map_or(0, |sums| sums.lost),
        0,
        "{about}: {:?}",
        state.lost
    );
    let audit = BagAudit::of(&opened).unwrap();
    assert_eq!((audit.faults.clone(), audit.shortfall()), (vec![], 0), "{about}");
    let missing: Vec<&String> = opened
        .notices()
        .iter()
        .filter(|notice| notice.contains("missing"))
        .collect();
    assert_eq!(missing, [""; 0], "{about}");
}

#[test]
fn a_kill_while_the_ring_removes_a_file_loses_nothing() {
    for storage in ["mcap", "sqlite3", "leveldb"] {
        for (is_after, has_memory) in [(true, true), (true, false), (false, true), (false, false)] {
            let about = format!("{storage}, after the removal: {is_after}, memory: {has_memory}");
            let place = tempfile::tempdir().unwrap();
            let bag = killed_at_a_removal(storage, is_after, place.path());
            if !has_memory {
                fs::remove_file(bag.join(".holdall-rescue.json")).unwrap();
                fs::remove_file(place.path().join("memory")).unwrap();
            }
            let before = read(&bag);
            assert!(before["/a"].len() > 20, "{about}: {}", before["/a"].len());
            assert_nothing_lost(&bag, &about);
            repair(&bag, None, &mut |_, _| {}).unwrap();
            assert_nothing_lost(&bag, &format!("{about}, repaired"));
            assert!(read(&bag) == before, "{about}: repaired");
            assert!(check(&bag, &mut |_, _| {}).unwrap().is_sound(), "{about}");
        }
    }
}
