//! Repairs a bag that was not ended: each torn file gets its end, and `metadata.yaml` is written from the contents of the files.

pub use super::{repair_disk::RepairDisk, salvage::Salvaged};
pub(crate) use holdall_bag::rescue::REPAIR_RECORD;

use crate::tools::{
    Ending, Staged, ToolError,
    bag_copy::copy_bag,
    check::{BagCheck, check_locked},
    reindex::describe_damage,
    repair_account,
    repair_disk::OsFiles,
    salvage::salvage,
};
use holdall_bag::{
    live::{LockError, lock_bag, refuse_if_recorded},
    reader::{Bag, BagState, DAMAGED_KEY, Gone, REPAIRED_KEY, ReadError, expect_bag, listing},
    rescue::{RESCUED_KEY, Rescue, RescueError},
    writer::{STATE_KEY, note_sealed},
};
use holdall_io::{disk::DiskError, fs, new_file::remove_left_over};
use holdall_model::{
    loss::ledger::{LEDGER_CUSTOM_KEY, LEDGER_KEY, LEDGER_RECORD, Ledger},
    marker::{MARKERS_CUSTOM_KEY, Marker},
    metadata::{BagMetadata, MEMORY_KEY},
    units::counted,
};
use holdall_storage::{
    RepairTarget, Storage, StorageError,
    check::{Finding, Severity},
    storage_of_directory, storage_of_file,
    writer::MetadataEntries,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

const METADATA_FILE: &str = "metadata.yaml";

/// Why a bag cannot be repaired. Readable messages stay readable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// It cannot be read.
    #[error(transparent)]
    Bag(#[from] ReadError),
    /// A file of it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It is being recorded.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its recorder is not at its end.
    #[error(transparent)]
    Alive(RescueError),
    /// The directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The place of the copy.
    #[error(transparent)]
    Output(#[from] Box<ToolError>),
    /// No copy of it can be made.
    #[error("{reason}; nothing was written")]
    NoCopy {
        /// The damage.
        reason: String,
    },
}

impl RepairError {
    /// The same error, but for the bag at `read` instead of the copy of it that was being repaired.
    fn of_copy(self, copy: &Path, read: &Path) -> Self {
        let (text, copy) = (self.to_string(), copy.display().to_string());
        match text.contains(&copy) {
            true => Self::NoCopy {
                reason: text.replace(&copy, &read.display().to_string()),
            },
            false => self,
        }
    }
}

impl From<RescueError> for RepairError {
    fn from(error: RescueError) -> Self {
        match error {
            RescueError::Storage(error) => Self::Storage(error),
            RescueError::Disk(error) => Self::Disk(error),
            RescueError::Alive(_) => Self::Alive(error),
        }
    }
}

/// A file of the bag, after the repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// Where it is.
    pub path: PathBuf,
    /// It had its end already, or has it now.
    pub repaired: bool,
    /// Messages in it that can be read, where it was repaired.
    pub messages: Option<u64>,
    /// Bytes that were added.
    pub tail_bytes: u64,
}

impl FileReport {
    fn unchanged(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            repaired: false,
            messages: None,
            tail_bytes: 0,
        }
    }
}

/// Results of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The repaired bag.
    pub bag: PathBuf,
    /// Its files in order.
    pub files: Vec<FileReport>,
    /// `metadata.yaml` was written.
    pub metadata_written: bool,
    /// Messages that can be read, in all files.
    pub messages: u64,
    /// Messages that were in the memory of a recorder that was killed, and are in a separate file now; `None` if there was no such
    /// memory.
    pub rescued: Option<u64>,
    /// Messages copied into a new bag, because the repaired copy was still damaged; `None` if that was not needed.
    pub salvaged: Option<Salvaged>,
    /// Losses in the repair, one sentence each.
    pub unsaved: Vec<String>,
    /// Faults that a check still finds in the bag, the first ones, one sentence each.
    pub problems: Vec<String>,
    /// How many problems a check still finds.
    pub problem_count: u64,
    /// The bag's state now, as every report has it; `None` if it cannot be opened.
    pub state: Option<BagState>,
}

impl RepairReport {
    /// Notes the findings of a check.
    pub(super) fn set_problems(&mut self, found: &BagCheck) {
        self.problem_count = found.problems();
        self.state.clone_from(&found.state);
        let problems = found
            .findings()
            .filter(|finding| finding.severity == Severity::Problem);
        self.problems = problems
            .take(PROBLEMS_LISTED_MAX)
            .map(Finding::to_string)
            .collect();
    }

    /// Notes how many messages of its files' lists a check of the bag could not read.
    fn note_unreadable(&mut self, found: &BagCheck) {
        let readable: u64 = found.files.iter().map(|file| file.message_count).sum();
        let unreadable = self.messages.saturating_sub(readable);
        if unreadable > 0 && self.problem_count > 0 {
            self.unsaved.push(format!(
                "{}: {unreadable} of {} cannot be read",
                self.bag.display(),
                counted(self.messages, "message")
            ));
        }
    }

    /// How it ended: lost are messages that could not be saved, and a storage file that was found to be gone.
    pub fn ending(&self) -> Ending {
        let missing = self.state.iter().any(|state| !state.missing_files.is_empty());
        let is_lost = !self.unsaved.is_empty() || (missing && self.has_changed());
        Ending::of(is_lost, self.problem_count)
    }

    /// Whether there was anything to do.
    pub fn has_changed(&self) -> bool {
        self.salvaged.is_some() || self.metadata_written || self.files.iter().any(|file| file.repaired)
    }
}

/// Repairs the bag at `path` (a directory or a single storage file): in place, or a copy of it at `output`, which must not exist. A copy
/// that is still damaged then is replaced by one of all messages that can be read. The result is checked whole; `progress` is given the bytes checked and in all.
///
/// # Errors
/// The path is not a bag, is being recorded, or cannot be written. The repair can be repeated then, and everything that could be read before still can.
pub fn repair(
    path: &Path,
    output: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport, RepairError> {
    expect_bag(path)?;
    refuse_if_recorded(path)?;
    let Some(output) = output else {
        // If the named path is a link, the user means its target; links inside of a bag are refused.
        let named = fs::is_link(path).then(|| path.canonicalize().ok()).flatten();
        let path = named.as_deref().unwrap_or(path);
        let _lock = lock_bag(path)?;
        remove_left_over(path);
        let memory = memory_of(path)?;
        settle_unwritten(path)?;
        let mut report = repair_there(path, memory, RepairTarget::InPlace, &mut OsFiles)?;
        let found = add_problems(&mut report, progress)?;
        if report.problem_count > 0 && fs::is_dir(path) {
            report.metadata_written |= describe_damage(path).map_err(Box::new)?;
            add_problems(&mut report, progress)?;
        }
        report.note_unreadable(&found);
        return Ok(report);
    };
    // A copy does not show whether its original is alive.
    memory_of(path)?;
    // The copy gets its name when it is whole.
    let staged = Staged::begin(output).map_err(Box::new)?;
    let partial = staged.directory().to_owned();
    copy_bag(path, &partial)?;
    let copied = repair_copy(&partial, progress);
    let mut report = copied.map_err(|error| error.of_copy(&partial, path))?;
    if report.problem_count > 0 && report.messages == 0 && report.salvaged.is_none() {
        let reason = report.problems.first().cloned().unwrap_or_default();
        let reason = format!("nothing of {} can be read: {reason}", path.display());
        return Err(RepairError::NoCopy {
            reason: reason.replace(&partial.display().to_string(), &path.display().to_string()),
        });
    }
    staged.publish().map_err(Box::new)?;
    report.bag = output.to_owned();
    for file in &mut report.files {
        if let Ok(inside) = file.path.strip_prefix(&partial) {
            file.path = if inside.as_os_str().is_empty() {
                output.to_owned()
            } else {
                output.join(inside)
            };
        }
    }
    // Messages that could not be saved are in the bag that was read.
    let (made, read, named) = (
        partial.display().to_string(),
        path.display().to_string(),
        output.display().to_string(),
    );
    let places = report.salvaged.iter_mut();
    let places = places.flat_map(|salvaged| &mut salvaged.left_out.places);
    let reasons = places.map(|place| &mut place.reason);
    for sentence in report.unsaved.iter_mut().chain(reasons) {
        *sentence = sentence.replace(&made, &read);
    }
    for sentence in &mut report.problems {
        *sentence = sentence.replace(&made, &named);
    }
    Ok(report)
}

/// Repairs the copy of a bag, and rebuilds it from readable messages if it is still damaged.
fn repair_copy(copy: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<RepairReport, RepairError> {
    let memory = memory_of(copy)?;
    settle_unwritten(copy)?;
    let mut report = repair_there(copy, memory, RepairTarget::Copy, &mut OsFiles)?;
    add_problems(&mut report, progress)?;
    if report.problem_count > 0 {
        salvage(copy, &mut report, progress)?;
    }
    Ok(report)
}

/// Problems that a report lists; the rest is counted.
pub(super) const PROBLEMS_LISTED_MAX: usize = 20;

/// Checks the repaired bag: a bag that a repair cannot fix must not be called whole.
fn add_problems(
    report: &mut RepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BagCheck, RepairError> {
    let found = check_locked(&report.bag, progress)?;
    report.set_problems(&found);
    Ok(found)
}

/// Removes files of a bag in which nothing was written: they were made ahead by a recorder that was killed, and other programs cannot open
/// them. When that is all that there is, the first becomes one without messages where its storage can. [`repair`] does it first.
///
/// # Errors
/// When a file cannot be read, written or removed.
pub fn settle_unwritten(path: &Path) -> Result<(), RepairError> {
    if !fs::is_dir(path) || storage_of_directory(path).is_some() {
        return Ok(());
    }
    let listed = listing::storage_files(path)?;
    let mut unwritten = Vec::new();
    for file in &listed {
        let numbers = fs::file_numbers(file)?;
        if !fs::is_link(file) && fs::is_unwritten(file)? {
            unwritten.push((file, numbers));
        }
    }
    if unwritten.len() == listed.len()
        && let Some((first, _)) = unwritten.first()
        && let Some(beginning) = storage_of_file(first).and_then(Storage::beginning)
    {
        fs::write_atomically(first, &beginning)?;
        unwritten.remove(0);
    } else if unwritten.len() == listed.len() {
        return Ok(());
    }
    for (file, numbers) in unwritten {
        fs::remove_that_file(file, numbers)?;
    }
    Ok(())
}

/// Repairs the bag at `path` in place, through `disk`.
///
/// # Errors
/// As [`repair`].
pub fn repair_with(path: &Path, disk: &mut dyn RepairDisk) -> Result<RepairReport, RepairError> {
    repair_there(path, memory_of(path)?, RepairTarget::InPlace, disk)
}

/// The memory of a bag's killed recorder. Before anything is written: without it nothing is repaired as long as the recorder is alive.
fn memory_of(path: &Path) -> Result<Option<Rescue>, RepairError> {
    match fs::is_dir(path) {
        true => Ok(Rescue::find_or_warn(path)?),
        false => Ok(None),
    }
}

/// Writes what the bag in `directory` lacks and a killed recorder left in memory into one more file of it.
fn write_rescued(
    directory: &Path,
    rescue: Rescue,
    target: RepairTarget,
    gone: &Gone,
) -> Result<Rescued, RepairError> {
    let bag = Bag::open_files(directory);
    let files = bag.as_ref().map_or(&[][..], Bag::files);
    if rescue.is_in(files)? {
        rescue.end(target);
        return Ok(Rescued::default());
    }
    let (mut missing, has_files) = (rescue.missing(files)?, !files.is_empty());
    drop(bag);
    repair_account::charge(gone, missing.ledger_mut());
    let mut rescued = Rescued {
        messages: missing.count(),
        is_whole: missing.is_all_there(),
        account: None,
    };
    let listed = listing::storage_files(directory)?;
    if rescued.messages == 0 && has_files {
        // Other programs refuse a bag with a file that has no message.
        rescued.account = Some((missing.into_ledger(), rescue));
    } else {
        rescue.write_into(directory, &listed, &missing, target)?;
    }
    Ok(rescued)
}

/// Outcome for the memory of a killed recorder.
#[derive(Default)]
struct Rescued {
    /// Messages that were written into one more file.
    messages: u64,
    /// By the account, all that was received is in the bag now.
    is_whole: bool,
    /// The account, where there is no such file to have it, and the memory, which is needed until the account is in the bag.
    account: Option<(Ledger, Rescue)>,
}

fn repair_there(
    path: &Path,
    memory: Option<Rescue>,
    target: RepairTarget,
    disk: &mut dyn RepairDisk,
) -> Result<RepairReport, RepairError> {
    let write = |memory| {
        let gone = Bag::open_to_describe(path).map(|(bag, _)| bag.gone().clone());
        write_rescued(path, memory, target, &gone.unwrap_or_default())
    };
    let rescued = memory.map(write).transpose()?;
    let (bag, was_ended) = match &rescued {
        // Nothing of it is in memory only.
        Some(Rescued { account: Some(_), .. }) => (Bag::open_files(path)?, false),
        _ => Bag::open_to_describe(path)?,
    };
    let mut metadata = repaired_metadata(&bag);
    let mut report = RepairReport {
        bag: path.to_owned(),
        messages: bag.metadata().message_count,
        rescued: rescued.as_ref().map(|rescued| rescued.messages),
        ..RepairReport::default()
    };
    let paths: Vec<PathBuf> = bag.files().iter().map(|file| file.path.clone()).collect();
    let ledger = repair_account::account_of(&bag);
    let is_whole = rescued.as_ref().is_some_and(|rescued| rescued.is_whole);
    let (rescued, memory) = rescued.and_then(|rescued| rescued.account).unzip();
    let ledger = rescued.or(ledger);
    let sums = repair_account::sums_of(&bag, ledger.as_ref());
    drop(bag);
    repair_account::remove_from(&mut metadata.custom_data, ledger.is_some());
    let mut is_stored = false;
    for (number, file) in paths.iter().enumerate() {
        let is_last = number + 1 == paths.len();
        let ledger = ledger.as_ref().filter(|_| is_last && !was_ended);
        let done = repair_file(file, &metadata, ledger, target, &mut *disk, &mut report.unsaved);
        let done = match done {
            // The messages of the other files are saved.
            Err(RepairError::Storage(error))
                if target == RepairTarget::Copy && error.is_damage_or_format() =>
            {
                FileReport::unchanged(file)
            }
            done => done?,
        };
        is_stored |= done.repaired && ledger.is_some();
        report.files.push(done);
    }
    if is_whole {
        // The torn messages on the disk were also in memory.
        report.unsaved.clear();
    }
    if fs::is_dir(path) && !was_ended {
        metadata.custom_data.extend(sums);
        if let Some(ledger) = ledger.filter(|_| !is_stored) {
            // A file that has its end already takes no more records.
            let key = LEDGER_CUSTOM_KEY.to_owned();
            metadata.custom_data.insert(key, ledger.to_json());
        }
        note_sealed(path, &mut metadata);
        disk.replace_text(&path.join(METADATA_FILE), &metadata.to_yaml())?;
        report.metadata_written = true;
    }
    if let Some(memory) = memory {
        memory.end(target);
    }
    Ok(report)
}

/// The contents of the files, with a note that something may be missing after them.
fn repaired_metadata(bag: &Bag) -> BagMetadata {
    let mut metadata = bag.stored_metadata();
    metadata.custom_data.remove(STATE_KEY);
    metadata.custom_data.remove(MEMORY_KEY);
    metadata.custom_data.remove(DAMAGED_KEY);
    // From now on readers find them here only.
    let markers = bag.markers_of_all_files();
    if !markers.is_empty() {
        let list = Marker::list_to_json(&markers);
        metadata.custom_data.insert(MARKERS_CUSTOM_KEY.to_owned(), list);
    }
    let is_known = bag
        .last_ledger()
        .is_ok_and(|ledger| ledger.is_some_and(|ledger| ledger.checkpoint.is_none()));
    let end = if is_known || metadata.custom_data.contains_key(RESCUED_KEY) {
        "nothing that was received is lost at the end"
    } else {
        "what was lost at the end is unknown"
    };
    metadata
        .custom_data
        .insert(REPAIRED_KEY.to_owned(), end.to_owned());
    metadata
}

fn repair_file(
    path: &Path,
    metadata: &BagMetadata,
    ledger: Option<&Ledger>,
    target: RepairTarget,
    disk: &mut dyn RepairDisk,
    unsaved: &mut Vec<String>,
) -> Result<FileReport, RepairError> {
    let mut report = FileReport::unchanged(path);
    // A packed file is closed before it gets its name.
    let Some(storage) = storage_of_file(path) else {
        return Ok(report);
    };
    // A database in a directory repairs itself: every reader that opens it reads its logs.
    if storage.is_directory() {
        return Ok(report);
    }
    let entry = |key: &str, value: String| MetadataEntries::from([(key.to_owned(), value)]);
    let mut records = vec![
        (
            "rosbag2",
            entry("serialized_metadata", metadata.to_yaml_without_wrapper()),
        ),
        (
            REPAIR_RECORD,
            BTreeMap::from([
                (
                    "by".to_owned(),
                    concat!("holdall ", env!("CARGO_PKG_VERSION")).to_owned(),
                ),
                ("lost_at_the_end".to_owned(), "unknown".to_owned()),
            ]),
        ),
    ];
    if let Some(ledger) = ledger {
        records.push((LEDGER_RECORD, entry(LEDGER_KEY, ledger.to_json())));
    }
    if let Some(repaired) = disk.complete_file(storage, path, &records, target)? {
        report.repaired = true;
        report.messages = Some(repaired.messages);
        report.tail_bytes = repaired.tail_bytes;
        let stored = |what: &String| format!("{}: {what}", path.display());
        unsaved.extend(repaired.unsaved.iter().map(stored));
    }
    Ok(report)
}
