//! The code of `holdall repair` and `holdall check` on the remains of a crash, over a disk that may also fail in the middle
//! of it.

use crate::{
    found::{self, Found, FoundBag, storage_files},
    plan::Plan,
    verdict::{Invariant, Violation},
};
use holdall::{
    reader::Bag,
    tools::repair::{RepairDisk, RepairError, repair_with},
};
use holdall_io::{
    disk::{DiskError, Operation},
    sim::SimRng,
};
use holdall_storage::RepairTarget;
use holdall_storage::{
    Storage, StorageError,
    check::Severity,
    mcap::McapStorage,
    repair::{RepairPlan, RepairStep, Repaired},
    writer::MetadataEntries,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The beginning of every MCAP file.
const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// How often the power fails while one bag is being repaired, at most.
const CRASHES_MAX: u64 = 3;

/// Most bytes that a repair may change in one place before the end that it adds: a chunk's header, or an opcode.
const CHANGE_BYTES_MAX: usize = 64;

/// The errno of a disk that is gone.
const EIO: i32 = 5;

/// Whether there is anything that could be opened: a crash before the first sync may leave nothing at all, or files of zeros.
fn has_content(bag: &Path) -> bool {
    let begins_well = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(MAGIC));
    storage_files(bag).iter().any(begins_well)
}

/// Opens a bag unchanged.
///
/// # Errors
/// When it does not open.
pub fn opens(bag: &Path) -> Result<(), Violation> {
    if !has_content(bag) {
        return Ok(());
    }
    Bag::open(bag)
        .map(drop)
        .map_err(|error| Violation::new(Invariant::Opens, error.to_string()))
}

/// The structural check of all files and their metadata.
///
/// # Errors
/// The first thing that it finds.
pub fn check(bag: &Path) -> Result<(), Violation> {
    let check = holdall::tools::check::check(bag, &mut |_, _| {})
        .map_err(|error| Violation::new(Invariant::Sound, error.to_string()))?;
    match check
        .findings()
        .find(|finding| finding.severity == Severity::Problem)
    {
        Some(problem) => Err(Violation::new(Invariant::Sound, format!("{problem:?}"))),
        None => Ok(()),
    }
}

/// Repairs a torn bag in place; `before` is its content readable so far. The power fails a few times in the middle.
///
/// # Errors
/// When less can be read at any moment, when the repaired bag is not sound or foreign readers read something else, or when another repair
/// finds something to do.
pub fn judge(plan: &Plan, bag: &Path, before: &FoundBag) -> Result<(), Violation> {
    if !has_content(bag) {
        return Ok(());
    }
    // Empty files are removed first, as in a repair by the program; after a crash each of them may exist or not.
    holdall::tools::repair::settle_unwritten(bag)
        .map_err(|error| Violation::new(Invariant::Repair, error.to_string()))?;
    let mut rng = SimRng::new(plan.seed ^ 0x0004_e9a1);
    let mut crashes_left = rng.below(CRASHES_MAX + 1);
    loop {
        let mut disk = CrashingDisk {
            sector_bytes: plan.disk.sector_bytes,
            steps_left: (crashes_left > 0).then(|| rng.below(12)),
            crashed: false,
            fault: None,
            rng: SimRng::new(rng.next_u64()),
        };
        let repaired = repair_with(bag, &mut disk);
        if let Some(what) = disk.fault {
            return Err(Violation::new(Invariant::Repair, what));
        }
        compare(plan, bag, before)?;
        match repaired {
            Ok(_) => break,
            Err(_) if disk.crashed => crashes_left -= 1,
            // The error states this, and a copy can be repaired.
            Err(RepairError::Storage(StorageError::NotInPlace { .. })) => return copy(plan, bag, before),
            Err(error) => return Err(Violation::new(Invariant::Repair, error.to_string())),
        }
    }
    judge_repaired(plan, bag, before)
}

fn copy(plan: &Plan, bag: &Path, before: &FoundBag) -> Result<(), Violation> {
    let output = bag.with_file_name("repaired");
    holdall::tools::repair::repair(bag, Some(&output), &mut |_, _| ())
        .map_err(|error| Violation::new(Invariant::Repair, format!("as a copy: {error}")))?;
    judge_repaired(plan, &output, before)
}

fn judge_repaired(plan: &Plan, bag: &Path, before: &FoundBag) -> Result<(), Violation> {
    let after = compare(plan, bag, before)?;
    check(bag)?;
    found::compare_foreign(&after).map_err(|error| Violation::new(Invariant::Foreign, error))?;
    let contents = |bag: &FoundBag| -> Vec<_> { bag.files.iter().map(|file| fs::read(file).ok()).collect() };
    let first = contents(&after);
    let again = holdall::tools::repair::repair(bag, None, &mut |_, _| ())
        .map_err(|error| Violation::new(Invariant::Repair, format!("the second time: {error}")))?;
    if again.has_changed() || first != contents(&after) {
        let lengths = |files: &[Option<Vec<u8>>]| -> Vec<_> {
            files.iter().map(|file| file.as_ref().map(Vec::len)).collect()
        };
        let (before, after) = (lengths(&first), lengths(&contents(&after)));
        let what = format!(
            "a second repair found something to do, files of {before:?} bytes, then {after:?}: {again:?}"
        );
        return Err(Violation::new(Invariant::Repair, what));
    }
    Ok(())
}

/// The readable content must equal the content that was readable before.
fn compare(plan: &Plan, bag: &Path, before: &FoundBag) -> Result<FoundBag, Violation> {
    let now =
        found::read(bag, plan.leaves_holes()).map_err(|error| Violation::new(Invariant::Opens, error))?;
    let counts = |message: &Found| message.is_whole() || !plan.leaves_holes();
    // A file without a byte is removed, and those after it have other numbers then.
    let without_file = |(message, topic): &(Found, String)| (Found { file: 0, ..*message }, topic.clone());
    let readable: Vec<_> = now
        .messages
        .iter()
        .filter(|(message, _)| counts(message))
        .map(without_file)
        .collect();
    if !before
        .messages
        .iter()
        .map(without_file)
        .eq(readable.iter().cloned())
    {
        let what = format!(
            "{} messages could be read before the repair, {} since",
            before.messages.len(),
            readable.len()
        );
        return Err(Violation::new(Invariant::Repair, what));
    }
    Ok(now)
}

/// Carries a repair out, until the power fails.
struct CrashingDisk {
    rng: SimRng,
    sector_bytes: usize,
    /// How many steps go well before the power fails; `None` when it does not.
    steps_left: Option<u64>,
    crashed: bool,
    /// Something that a repair did although it must not.
    fault: Option<String>,
}

/// Something that was not synced.
enum Unsynced<'a> {
    Bytes(u64, &'a [u8]),
    Length(u64),
}

impl CrashingDisk {
    /// Whether the power fails right now.
    fn fails(&mut self) -> bool {
        match &mut self.steps_left {
            Some(0) => {
                self.crashed = true;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn failure(path: &Path) -> DiskError {
        DiskError::new(path, Operation::Write, io::Error::from_raw_os_error(EIO))
    }

    /// The file after the plan, or after as much of it as a power cut leaves; true when all of it was done.
    fn execute(&mut self, plan: &RepairPlan, content: &mut Vec<u8>) -> bool {
        let mut unsynced: Vec<Unsynced<'_>> = Vec::new();
        for step in &plan.steps {
            if self.fails() {
                for change in unsynced {
                    self.survive(&change, content);
                }
                return false;
            }
            match step {
                RepairStep::Write { offset, bytes } => unsynced.push(Unsynced::Bytes(*offset, bytes)),
                RepairStep::SetLength(length) => unsynced.push(Unsynced::Length(*length)),
                RepairStep::Sync => {
                    for change in unsynced.drain(..) {
                        match change {
                            Unsynced::Bytes(offset, bytes) => put(content, offset, bytes),
                            // At most the length of something in memory.
                            Unsynced::Length(length) => content.resize(length as usize, 0),
                        }
                    }
                }
            }
        }
        if !unsynced.is_empty() {
            self.fault = Some("a repair ends without a sync".to_owned());
        }
        true
    }

    /// Each sector survives or not.
    fn survive(&mut self, change: &Unsynced<'_>, content: &mut Vec<u8>) {
        match *change {
            Unsynced::Length(length) if self.rng.coin() => content.resize(length as usize, 0),
            Unsynced::Length(_) => {}
            Unsynced::Bytes(offset, mut bytes) => {
                let (mut at, sector) = (offset, self.sector_bytes as u64);
                while !bytes.is_empty() {
                    let room = (sector - at % sector).min(bytes.len() as u64);
                    // At most the number of bytes.
                    let (piece, rest) = bytes.split_at(room as usize);
                    if self.rng.coin() {
                        put(content, at, piece);
                    }
                    (at, bytes) = (at + room, rest);
                }
            }
        }
    }

    /// A repair adds an end; before that it changes only single opcodes and the header of the last chunk, once it has put definitions where
    /// nothing can be read, which [`compare`] judges.
    fn check_plan(&mut self, plan: &RepairPlan) {
        let writes: Vec<(u64, usize)> = plan
            .steps
            .iter()
            .skip_while(|step| !matches!(step, RepairStep::SetLength(_)))
            .filter_map(|step| match step {
                RepairStep::Write { offset, bytes } => Some((*offset, bytes.len())),
                _ => None,
            })
            .collect();
        let [before @ .., (tail, _), (footer, _)] = &writes[..] else {
            return;
        };
        let is_small = |(offset, len): &(u64, usize)| *len <= CHANGE_BYTES_MAX && offset < tail;
        if !before.iter().all(is_small) || footer < tail {
            self.fault = Some(format!(
                "{}: a repair rewrites more than it adds: {writes:?}",
                plan.path.display()
            ));
        }
    }
}

impl RepairDisk for CrashingDisk {
    fn complete_file(
        &mut self,
        _: &dyn Storage,
        path: &Path,
        records: &[(&str, MetadataEntries)],
        target: RepairTarget,
    ) -> Result<Option<Repaired>, StorageError> {
        let Some(plan) = McapStorage.plan_repair(path, records, target)? else {
            return Ok(None);
        };
        self.check_plan(&plan);
        let failed = |_| Self::failure(path);
        let mut content = fs::read(path).map_err(failed)?;
        let is_done = self.execute(&plan, &mut content);
        fs::write(path, content).map_err(failed)?;
        if is_done {
            Ok(Some(plan.outcome))
        } else {
            Err(Self::failure(path).into())
        }
    }

    fn replace_text(&mut self, path: &Path, text: &str) -> Result<(), DiskError> {
        let fails = self.fails();
        // Old or new.
        if !fails || self.rng.coin() {
            fs::write(path, text).map_err(|_| Self::failure(path))?;
        }
        if fails {
            return Err(Self::failure(path));
        }
        Ok(())
    }
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    // At most the length of something in memory.
    let start = offset as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}
