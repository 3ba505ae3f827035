//! `check`: reads a whole bag, checks every file, and compares the content with `metadata.yaml`.

use super::{
    check_metadata::{compare_bag, compare_file},
    check_payloads::check_payloads,
};
use holdall_bag::{
    live::writer_of_bag,
    reader::{Bag, BagState, ReadError, expect_bag, io_error, listing},
    writer::{STATE_KEY, seal_faults},
};
use holdall_io::fs;
use holdall_io::lock::Holder;
use holdall_model::{
    loss::ledger::{LEDGER_KEY, LEDGER_RECORD, Ledger},
    metadata::{BagMetadata, FileInformation, METADATA_BYTES_MAX},
};
use holdall_storage::{
    StorageError,
    check::{FileCheck, Finding, Findings, Severity, check_file},
    compression::{ZSTD_MAGIC, is_packed_name, packed_name},
    reader::FileCondition,
    storage_of_directory, storage_of_file,
};
use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
};

/// The result of checking a bag.
#[derive(Clone, Debug, Default)]
pub struct BagCheck {
    /// The bag directory or the single file.
    pub path: PathBuf,
    /// Each storage file that could be read, in order.
    pub files: Vec<FileCheck>,
    /// Findings about the bag as a whole: its metadata, files that are missing or cannot be read.
    pub bag: Findings,
    /// The process that is recording the bag. The check then reads the data written so far; an unfinished file
    /// is not a problem.
    pub writer: Option<Holder>,
    /// The bag's state, as every report has it; `None` if it cannot be opened.
    pub state: Option<BagState>,
}

impl BagCheck {
    /// True if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems() == 0
    }

    /// Number of problems of the bag and all its files.
    pub fn problems(&self) -> u64 {
        self.bag.problems + self.files.iter().map(|file| file.findings.problems).sum::<u64>()
    }

    /// All listed findings, those of the files first.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let files = self.files.iter().flat_map(|file| &file.findings.list);
        files.chain(&self.bag.list)
    }

    /// Opens the bag for its state and its compressed messages. Why it cannot be opened is among the findings.
    fn open(&mut self) {
        let opened = match self.writer {
            Some(_) => Bag::open(&self.path),
            // Also a bag that this process has locked.
            None => Bag::open_locked(&self.path),
        };
        let Ok(bag) = opened else { return };
        if self.writer.is_none() {
            for (path, findings) in check_payloads(&bag) {
                let file = self.files.iter_mut().find(|file| file.path == path);
                file.map_or(&mut self.bag, |file| &mut file.findings)
                    .extend(findings);
            }
        }
        self.state = bag.state().ok();
        if self.writer.is_some() || self.problems() > 0 {
            // Said already.
        } else if let Some(damage) = bag.damages().next() {
            // What no file shows by itself.
            self.problem(
                &self.path.clone(),
                "storage files",
                "all that was written",
                damage,
            );
        } else if bag.damage().is_some() {
            let found = "none (`holdall reindex` removes the mark)";
            self.problem(
                &self.path.join("metadata.yaml"),
                "mark of damage",
                "damage in the files",
                found,
            );
        }
        let is_damaged = self.files.iter().any(|file| file.findings.problems > 0);
        self.state
            .iter_mut()
            .filter(|_| is_damaged)
            .for_each(BagState::set_damaged);
    }

    fn note(
        &mut self,
        severity: Severity,
        path: &Path,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        self.bag.add(Finding {
            severity,
            path: path.to_owned(),
            offset: None,
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        });
    }

    pub(super) fn problem(
        &mut self,
        path: &Path,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        self.note(Severity::Problem, path, what, expected, found);
    }

    pub(super) fn same<T: PartialEq + fmt::Display>(
        &mut self,
        path: &Path,
        what: impl Into<String>,
        expected: T,
        found: T,
    ) {
        if expected != found {
            self.problem(path, what, expected, found);
        }
    }
}

/// Checks a bag directory or a single storage file from start to end. `progress` receives the bytes done and
/// the bytes in total.
///
/// # Errors
/// A path that cannot be opened or is not a bag. Anything wrong with a bag is a finding.
pub fn check(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<BagCheck, ReadError> {
    check_of(path, writer_of_bag(path), progress)
}

/// As [`check`], of a bag that this process has locked.
pub(super) fn check_locked(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<BagCheck, ReadError> {
    check_of(path, None, progress)
}

fn check_of(
    path: &Path,
    writer: Option<Holder>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BagCheck, ReadError> {
    let about = fs::about(path).map_err(|error| io_error("open", path, error.into_io()))?;
    let mut check = BagCheck {
        path: path.to_owned(),
        writer,
        ..BagCheck::default()
    };
    let is_file = !about.is_dir() || storage_of_directory(path).is_some();
    if is_file {
        if check.writer.is_none() {
            expect_bag(path)?;
        }
        let found = check_written_file(&check, path, &mut |done| progress(done, about.len_bytes))?;
        check.files.push(found);
        check_ledger(&mut check);
        check.open();
        return Ok(check);
    }
    let listed = listing::storage_files(path)?;
    let metadata_path = path.join("metadata.yaml");
    let metadata = read_metadata(&mut check, &metadata_path)?;
    if listed.is_empty() && metadata.is_none() {
        return Err(ReadError::NotABag {
            path: path.to_owned(),
            reason: listing::describe_without_storage(path)?,
        });
    }
    let files = match &metadata {
        Some(metadata) => named_files(&mut check, &metadata_path, metadata, &listed),
        None => listed.into_iter().map(|file| (file, None)).collect(),
    };
    let total: u64 = files.iter().map(|(file, _)| file_bytes(file)).sum();
    let mut done = 0;
    for (file, said) in &files {
        match check_written_file(&check, file, &mut |at| progress(done + at, total)) {
            Ok(found) => {
                // Counts of a recording that is still running are not final.
                if let (Some(said), None) = (said, check.writer) {
                    compare_file(&mut check, &metadata_path, said, &found);
                }
                check.files.push(found);
            }
            Err(_) if check.writer.is_some() && writer_of_bag(file).is_some() => {
                let (what, expected) = ("storage file", "one that can be read");
                check.note(
                    Severity::Notice,
                    file,
                    what,
                    expected,
                    "one in which nothing was written yet",
                );
            }
            Err(error) => check.problem(file, "storage file", "one that can be read", error),
        }
        done += file_bytes(file);
    }
    if let Some(metadata) = &metadata
        && check.files.len() == files.len()
        && check.writer.is_none()
    {
        compare_bag(&mut check, &metadata_path, metadata);
    }
    check_ledger(&mut check);
    check.open();
    Ok(check)
}

/// Checks a file; a file that is being written has no end, which is a notice and not a problem.
fn check_written_file(
    check: &BagCheck,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<FileCheck, StorageError> {
    let writer = check.writer.and_then(|_| writer_of_bag(path));
    let Some(writer) = writer else {
        return check_file(path, progress);
    };
    // Read before the check, during which the file may grow: damage before this place is a problem anyway.
    let opened = storage_of_file(path).map(|storage| storage.open_reader(path));
    let end = match opened {
        Some(Ok(reader)) => match reader.summary().condition {
            FileCondition::Damaged { offset, .. } => offset,
            FileCondition::Complete | FileCondition::Unindexed => u64::MAX,
        },
        _ => 0,
    };
    let mut found = check_file(path, progress)?;
    let is_kept = |finding: &Finding| {
        finding.severity == Severity::Notice || finding.offset.is_some_and(|offset| offset < end)
    };
    let listed = found.findings.list.len();
    found.findings.list.retain(is_kept);
    found.findings.problems -= (listed - found.findings.list.len()) as u64;
    found.findings.add(Finding {
        severity: Severity::Notice,
        path: path.to_owned(),
        offset: None,
        what: "file".to_owned(),
        expected: "one that was closed".to_owned(),
        found: format!("it is being recorded by {writer}; what it holds now was checked"),
    });
    Ok(found)
}

/// Length of a storage file, or of all files of a storage that is a directory.
fn file_bytes(path: &Path) -> u64 {
    let about = fs::about(path);
    if about.as_ref().is_ok_and(fs::About::is_dir) {
        let entries = fs::list_dir(path).unwrap_or_default();
        return entries.iter().map(|entry| file_bytes(&entry.path)).sum();
    }
    about.map_or(0, |about| about.len_bytes)
}

/// The metadata; `None` and a finding when it is missing or damaged.
fn read_metadata(check: &mut BagCheck, path: &Path) -> Result<Option<BagMetadata>, ReadError> {
    let bytes = match fs::read(path, METADATA_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            let expected = "a description of the bag (`holdall reindex` makes it)";
            check.problem(path, "metadata", expected, "none");
            return Ok(None);
        }
        Err(error) => {
            check.problem(
                path,
                "metadata",
                "a description of the bag that can be read",
                error,
            );
            return Ok(None);
        }
    };
    match BagMetadata::from_yaml(&String::from_utf8_lossy(&bytes)) {
        Ok(metadata) => {
            if metadata.custom_data.contains_key(STATE_KEY) {
                let (severity, found) = match check.writer {
                    Some(writer) => (Severity::Notice, format!("it is being recorded by {writer}")),
                    None => (
                        Severity::Problem,
                        "the mark of a recording that was not ended (`holdall repair` gives it its end)"
                            .to_owned(),
                    ),
                };
                check.note(severity, path, "metadata", "a bag that was closed", found);
            }
            Ok(Some(metadata))
        }
        Err(error) => {
            check.problem(path, "metadata", "metadata that can be parsed", error);
            Ok(None)
        }
    }
}

/// The files that the metadata names with their entries; those that are missing, outside the bag or not named
/// are findings.
fn named_files(
    check: &mut BagCheck,
    metadata_path: &Path,
    metadata: &BagMetadata,
    listed: &[PathBuf],
) -> Vec<(PathBuf, Option<FileInformation>)> {
    let mut files = Vec::new();
    let bag = check.path.clone();
    for (index, relative) in metadata.relative_file_paths.iter().enumerate() {
        let is_inside = Path::new(relative)
            .components()
            .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
        if !is_inside || relative.is_empty() {
            check.problem(
                metadata_path,
                "path of a storage file",
                "one inside the bag",
                format!("{relative:?}"),
            );
            continue;
        }
        let path = bag.join(relative);
        if !fs::exists(&path).unwrap_or(false) {
            check.problem(&path, "storage file", "the file that metadata.yaml names", "none");
            continue;
        }
        files.push((path, metadata.files.get(index).cloned()));
    }
    if !metadata.files.is_empty() {
        let what = "files that are described";
        let (named, described) = (metadata.relative_file_paths.len(), metadata.files.len());
        check.same(metadata_path, what, named, described);
    }
    let named: BTreeSet<_> = files.iter().filter_map(|(path, _)| path.file_name()).collect();
    let unnamed = listed
        .iter()
        .filter(|path| path.file_name().is_some_and(|name| !named.contains(name)));
    for path in unnamed {
        let packed = packed_name(path);
        let (severity, found) = if packed.file_name().is_some_and(|name| named.contains(name)) {
            (
                Severity::Notice,
                "an unpacked copy of a file that is named there, as rosbag2 leaves it when it reads a bag",
            )
        } else if check.writer.is_some() && writer_of_bag(path).is_some() {
            (Severity::Notice, "a file that the recorder has just begun")
        } else if is_none(path) {
            (
                Severity::Notice,
                "a file without the beginning of one, left by a recording that was cut off",
            )
        } else {
            (Severity::Problem, "a file that is not named there")
        };
        check.note(severity, path, "storage file", "its name in metadata.yaml", found);
    }
    check_seals(check, metadata, &files);
    files
}

/// Reports files of an encrypted bag that are of another bag, or not those that it was closed with: someone has put them there.
fn check_seals(check: &mut BagCheck, metadata: &BagMetadata, files: &[(PathBuf, Option<FileInformation>)]) {
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    for fault in seal_faults(&check.path.clone(), Some(metadata), &paths) {
        check.problem(
            &fault.path,
            "secret",
            "that of metadata.yaml and its identifier",
            fault.found,
        );
    }
}

/// Whether a file with a storage file's name is not one: space that was reserved and never used, or a lost
/// first block.
fn is_none(path: &Path) -> bool {
    if is_packed_name(path) {
        let head = fs::File::open(path).and_then(|file| file.read_bytes_at(0, ZSTD_MAGIC.len()));
        return head.is_ok_and(|head| head != ZSTD_MAGIC);
    }
    let opened = storage_of_file(path).map(|storage| storage.open_reader(path));
    matches!(opened, Some(Err(StorageError::WrongFormat { .. })))
}

/// A loss ledger must be readable: it lists the missing messages.
fn check_ledger(check: &mut BagCheck) {
    let texts: Vec<(PathBuf, String)> = check
        .files
        .iter()
        .flat_map(|file| {
            file.metadata
                .iter()
                .map(|(name, entries)| (&file.path, name, entries))
        })
        .filter(|(_, name, _)| *name == LEDGER_RECORD)
        .filter_map(|(path, _, entries)| Some((path.clone(), entries.get(LEDGER_KEY)?.clone())))
        .collect();
    for (path, text) in texts {
        if let Err(error) = serde_json::from_str::<Ledger>(&text) {
            check.problem(&path, "loss ledger", "one that can be read", error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn bag(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../holdall/tests/data/rosbag2")
            .join(name)
    }

    /// A copy that can be damaged.
    fn copy(from: &Path) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            fs::write(
                dir.path().join(path.file_name().unwrap()),
                fs::read(&path).unwrap(),
            )
            .unwrap();
        }
        dir
    }

    fn problems(path: &Path) -> Vec<String> {
        let found = check(path, &mut |_, _| ()).unwrap();
        found
            .findings()
            .filter(|finding| finding.severity == Severity::Problem)
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn bags_of_the_real_rosbag2_are_sound() {
        for name in [
            "mcap_default",
            "mcap_split3",
            "mcap_zstd_small",
            "sqlite3_default",
            "sqlite3_message_zstd",
            "sqlite3_split3",
        ] {
            let path = bag(name);
            assert_eq!(problems(&path), [] as [String; 0], "{name}");
        }
    }

    #[test]
    fn metadata_that_contradicts_the_files_is_found() {
        let path = bag("mcap_split3");
        let spoiled = copy(&path);
        let metadata = spoiled.path().join("metadata.yaml");
        let text = fs::read_to_string(&metadata).unwrap();
        let changes = [
            ("message_count: 288", "message_count: 289", "message count"),
            ("nanoseconds: ", "nanoseconds: 1", "duration"),
            (
                "mcap_split3_1.mcap",
                "../mcap_split3_1.mcap",
                "one inside the bag",
            ),
            (
                "mcap_split3_1.mcap",
                "mcap_split3_7.mcap",
                "the file that metadata.yaml names",
            ),
            (
                "storage_identifier: mcap",
                "storage_identifier: sqlite3",
                "storage identifier",
            ),
        ];
        for (from, to, expected) in changes {
            assert!(text.contains(from), "{from}");
            fs::write(&metadata, text.replacen(from, to, 1)).unwrap();
            let found = problems(spoiled.path());
            assert!(
                found.iter().any(|problem| problem.contains(expected)),
                "{to}: {found:#?}"
            );
        }
        fs::remove_file(&metadata).unwrap();
        let found = problems(spoiled.path());
        assert!(
            found.len() == 1 && found[0].contains("holdall reindex"),
            "{found:#?}"
        );
    }

    #[test]
    fn the_copy_that_rosbag2_leaves_beside_a_packed_file_is_no_problem() {
        let path = bag("mcap_default");
        let dir = copy(&path);
        let plain = dir.path().join("mcap_default_0.mcap");
        holdall_storage::compression::pack_file(&plain, &packed_name(&plain)).unwrap();
        let metadata = dir.path().join("metadata.yaml");
        let text = fs::read_to_string(&metadata).unwrap();
        let text = text
            .replace("- mcap_default_0.mcap", "- mcap_default_0.mcap.zstd")
            .replace("compression_format: \"\"", "compression_format: zstd")
            .replace("compression_mode: \"\"", "compression_mode: FILE");
        fs::write(&metadata, text).unwrap();
        assert_eq!(problems(dir.path()), [] as [String; 0]);
        let found = check(dir.path(), &mut |_, _| ()).unwrap();
        let notices: Vec<_> = found.bag.list.iter().map(ToString::to_string).collect();
        assert!(
            notices.len() == 1 && notices[0].contains("unpacked copy"),
            "{notices:?}"
        );
        // Any other file that is not named there is a problem.
        fs::copy(&plain, dir.path().join("mcap_default_1.mcap")).unwrap();
        assert_eq!(problems(dir.path()).len(), 1);
        // A repair leaves a file without a beginning, and counts its former messages.
        fs::remove_file(dir.path().join("mcap_default_1.mcap")).unwrap();
        fs::write(dir.path().join("mcap_default_1.mcap.zstd"), [0xa5; 5000]).unwrap();
        assert_eq!(problems(dir.path()), [] as [String; 0]);
    }

    #[test]
    fn a_damaged_file_is_reported_with_its_place() {
        for (name, file) in [
            ("mcap_default", "mcap_default_0.mcap"),
            ("sqlite3_default", "sqlite3_default_0.db3"),
        ] {
            let path = bag(name);
            let spoiled = copy(&path);
            let file = spoiled.path().join(file);
            let mut bytes = fs::read(&file).unwrap();
            let length = bytes.len();
            bytes.truncate(length * 2 / 3);
            fs::write(&file, &bytes).unwrap();
            let found = problems(spoiled.path());
            assert!(!found.is_empty(), "{name}");
            assert!(found.iter().all(|problem| !problem.contains('\n')), "{found:#?}");
        }
    }

    #[test]
    fn a_path_that_is_not_a_bag_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            check(dir.path(), &mut |_, _| ()),
            Err(ReadError::NotABag { .. })
        ));
        assert!(check(&dir.path().join("none"), &mut |_, _| ()).is_err());
    }
}
