//! `reindex`: rewrites `metadata.yaml` from the storage files, and indexes MCAP files without an index.

use super::{
    Ending, ToolError,
    accounts::{self, Unreadable},
    check::check_locked,
    check_payloads::check_payloads,
    description::replace_metadata,
    in_place::replace_file,
    relabel::Relabel,
    repair::PROBLEMS_LISTED_MAX,
};
use holdall_bag::{
    live::lock_bag,
    reader::{Bag, DAMAGED_KEY, io_error, is_account_sum, listing},
    writer::{STATE_KEY, note_sealed},
};
use holdall_io::{fs, new_file::remove_left_over};
use holdall_model::{
    loss::ledger::{LEDGER_CUSTOM_KEY, MissingFile},
    metadata::{BagMetadata, FileInformation, MEMORY_KEY, METADATA_BYTES_MAX},
    time::Timestamp,
    topic::TopicInfo,
    units::counted,
};
use holdall_storage::{
    Storage,
    check::{FileCheck, Finding, Severity, check_file},
    chunks::{AttachmentChange, ChunkStorage},
    reader::FileCondition,
    storage_of_directory, storage_of_file,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// The result of a reindex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reindexed {
    /// The bag directory.
    pub directory: PathBuf,
    /// MCAP files that got an index.
    pub indexed: Vec<PathBuf>,
    /// Number of readable messages in the bag.
    pub messages: u64,
    /// Number of messages that its files' indexes list but that cannot be read.
    pub unreadable: u64,
    /// Storage files were found to be gone, or to have lost messages.
    pub has_missing_files: bool,
    /// Number of problems that a check finds in the bag now.
    pub problem_count: u64,
    /// Notices for the user about the files, one sentence each.
    pub notices: Vec<String>,
}

impl Reindexed {
    /// What was found in the files when they were read; `None` if they are whole.
    fn damage(&self) -> Option<String> {
        let found = match (self.unreadable, self.problem_count) {
            (0, 0) => return None,
            (0, _) => "files of this bag are damaged".to_owned(),
            (count, _) => format!("{} of this bag cannot be read", counted(count, "message")),
        };
        Some(format!("{found} (`holdall check` lists the damage)"))
    }

    /// How it ended, as a repair of the same bag does.
    pub fn ending(&self) -> Ending {
        Ending::of(self.unreadable > 0 || self.has_missing_files, self.problem_count)
    }
}

/// Rewrites the description of a bag. A file with a new index replaces the old one when it is complete and
/// durable.
///
/// # Errors
/// A directory without storage files, a file that cannot be read or written.
pub fn reindex(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Reindexed, ToolError> {
    if !fs::exists(path)? {
        let source = std::io::ErrorKind::NotFound.into();
        return Err(io_error("open", path, source).into());
    }
    if !fs::is_dir(path) {
        let reason = "it is not a bag directory; a single file needs no metadata".to_owned();
        return Err(ToolError::Unsupported {
            path: path.to_owned(),
            reason,
        });
    }
    let _lock = lock_bag(path)?;
    reindex_locked(path, progress)
}

/// As [`reindex`], of a bag that this process has locked.
fn reindex_locked(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Reindexed, ToolError> {
    remove_left_over(path);
    let listed = listing::storage_files(path)?;
    // Each file is read twice: to add an index, and to check it.
    let total: u64 = 2 * listed
        .iter()
        .map(|file| fs::file_len(file).unwrap_or(0))
        .sum::<u64>();
    let mut done = Reindexed {
        directory: path.to_owned(),
        ..Reindexed::default()
    };
    let mut bytes = 0;
    for file in &listed {
        if let Some(chunks) = storage_of_file(file).and_then(Storage::chunks)
            && index_file(file, chunks)?
        {
            done.indexed.push(file.clone());
        }
        bytes += fs::file_len(file)?;
        progress(bytes, total);
    }
    // The user's own entries, which no storage file has.
    let (described, was_right) = Bag::open_to_describe(path).ok().unzip();
    let bag = Bag::rebuild(path)?;
    let bag = match &described {
        Some(described) => bag.with_known_of(described),
        None => bag,
    };
    let kept = described.map(|bag| bag.metadata().clone()).unwrap_or_default();
    let mut metadata = bag.stored_metadata();
    let unreadable = correct_counts(&bag, &mut metadata, &mut done, &mut |at| {
        progress(bytes + at, total)
    })?;
    keep_entries(&mut metadata.custom_data, kept.custom_data);
    metadata.ros_distro = metadata.ros_distro.or(kept.ros_distro);
    let all = accounts::Taken {
        topic: &|_, _| true,
        publishers: None,
        is_partial: false,
        is_changed: false,
        span: [None; 2],
    };
    let accounts = accounts::gather(
        std::slice::from_ref(&bag),
        &all,
        &Relabel::default(),
        &|_| true,
        &BTreeMap::new(),
    )?;
    metadata.custom_data.extend(accounts.custom_data);
    if let Some(damage) = done.damage() {
        metadata.custom_data.insert(DAMAGED_KEY.to_owned(), damage);
    }
    note_sealed(path, &mut metadata);
    if let Some(ledger) = accounts::corrected(&bag, &unreadable)? {
        metadata.custom_data.extend(ledger.custom_data());
        metadata
            .custom_data
            .insert(LEDGER_CUSTOM_KEY.to_owned(), ledger.to_json());
    }
    replace_metadata(&path.join("metadata.yaml"), &listed, &metadata.to_yaml())?;
    done.messages = metadata.message_count;
    done.notices.splice(0..0, bag.notices().iter().cloned());
    note_state(path, was_right.unwrap_or(false), &mut done)?;
    Ok(done)
}

/// Adds entries that no storage file has, and removes those that are made anew.
fn keep_entries(entries: &mut BTreeMap<String, String>, kept: BTreeMap<String, String>) {
    for (key, value) in kept {
        entries.entry(key).or_insert(value);
    }
    let is_made = |key: &str| [STATE_KEY, MEMORY_KEY, DAMAGED_KEY].contains(&key) || is_account_sum(key);
    entries.retain(|key, _| !is_made(key));
}

/// Describes a bag anew, which this process has locked and a repair cannot fix, so that every verb knows of the damage; true if its metadata is
/// another one now.
///
/// # Errors
/// As [`reindex`].
pub(super) fn describe_damage(path: &Path) -> Result<bool, ToolError> {
    if !fs::is_dir(path) || storage_of_directory(path).is_some() {
        return Ok(false);
    }
    let text = || fs::read(&path.join("metadata.yaml"), METADATA_BYTES_MAX).ok();
    let before = text();
    reindex_locked(path, &mut |_, _| ())?;
    Ok(before != text())
}

/// Notes what is missing or wrong in the bag that was described anew. Files that a description which `was_right` had as missing were reported before.
fn note_state(path: &Path, was_right: bool, done: &mut Reindexed) -> Result<(), ToolError> {
    let state = Bag::open_locked(path)?.state()?;
    done.has_missing_files = !was_right && !state.missing_files.is_empty();
    if done.has_missing_files {
        let missing = state.missing_files.iter();
        done.notices
            .extend(missing.map(|file| format!("{}: {file}", path.display())));
    }
    // All files were read: if nothing was found, a check finds nothing.
    if !done.notices.is_empty() || done.problem_count > 0 {
        let found = check_locked(path, &mut |_, _| ())?;
        done.problem_count = found.problems();
        let problems = found
            .findings()
            .filter(|finding| finding.severity == Severity::Problem);
        let problems = problems.take(PROBLEMS_LISTED_MAX).map(Finding::to_string);
        done.notices
            .extend(problems.map(|problem| format!("problem: {problem}")));
    }
    Ok(())
}

/// Reads the files that have an index, and corrects the metadata if they have fewer messages than the index
/// states. The messages of a file without an end were counted already. Returns those that cannot be read.
fn correct_counts(
    bag: &Bag,
    metadata: &mut BagMetadata,
    done: &mut Reindexed,
    progress: &mut dyn FnMut(u64),
) -> Result<Unreadable, ToolError> {
    let mut unreadable = Unreadable::default();
    for (_, findings) in check_payloads(bag) {
        done.problem_count += findings.problems;
    }
    for (index, file) in bag.files().iter().enumerate() {
        let reader = file.open_whole()?;
        let summary = reader.summary();
        if matches!(summary.condition, FileCondition::Damaged { .. }) {
            done.problem_count += 1;
            continue;
        }
        let found = check_file(&file.path, progress)?;
        done.problem_count += found.findings.problems;
        let missing = summary.message_count.saturating_sub(found.message_count);
        if missing == 0 {
            continue;
        }
        done.unreadable += missing;
        done.notices.push(format!(
            "{}: {missing} of {} messages cannot be read, and metadata.yaml leaves them out (`holdall check` says why)",
            file.path.display(),
            summary.message_count
        ));
        let mut gone = BTreeMap::new();
        for channel in &summary.channels {
            *gone.entry(channel.info.topic.name.clone()).or_default() += channel.message_count;
            change_topic(
                metadata,
                &channel.info.topic,
                channel.message_count,
                u64::saturating_sub,
            );
        }
        for (topic, count) in &found.topics {
            let gone: &mut u64 = gone.entry(topic.name.clone()).or_default();
            *gone = gone.saturating_sub(*count);
            change_topic(metadata, topic, *count, u64::saturating_add);
        }
        for (topic, count) in gone {
            *unreadable.by_topic.entry(topic).or_default() += count;
        }
        if let Some(about) = metadata.files.get_mut(index) {
            unreadable.files.push(MissingFile {
                file: Some(about.path.clone()),
                messages: missing,
                of: summary.message_count,
                ..MissingFile::default()
            });
            describe(about, &found);
        }
    }
    if done.unreadable > 0 {
        let files = &metadata.files;
        metadata.message_count = files.iter().map(|file| file.message_count).sum();
        metadata.starting_time = files.iter().filter_map(|file| file.starting_time).min();
        let end = files
            .iter()
            .filter_map(|file| Some(file.starting_time?.saturating_add(file.duration)))
            .max();
        metadata.duration = span(metadata.starting_time, end);
    }
    Ok(unreadable)
}

fn change_topic(metadata: &mut BagMetadata, topic: &TopicInfo, count: u64, change: fn(u64, u64) -> u64) {
    let mut topics = metadata.topics_with_message_count.iter_mut();
    let is_match = |known: &TopicInfo| known.name == topic.name && known.type_name == topic.type_name;
    if let Some(topic) = topics.find(|topic| is_match(&topic.topic_metadata)) {
        topic.message_count = change(topic.message_count, count);
    }
}

fn describe(about: &mut FileInformation, found: &FileCheck) {
    about.message_count = found.message_count;
    about.starting_time = found.starting_time;
    about.duration = span(found.starting_time, found.ending_time);
}

fn span(start: Option<Timestamp>, end: Option<Timestamp>) -> Duration {
    let times = start.zip(end);
    times.map_or(Duration::ZERO, |(start, end)| end.saturating_since(start))
}

/// Adds an index to a file that is whole and has none; true if it was added.
fn index_file(path: &Path, chunks: &dyn ChunkStorage) -> Result<bool, ToolError> {
    let Ok(input) = chunks.open(path) else {
        // Damage is reported when the bag is opened.
        return Ok(false);
    };
    let has_index = input.has_index()?;
    if has_index || matches!(input.summary().condition, FileCondition::Damaged { .. }) {
        return Ok(false);
    }
    let records = input.summary().metadata.clone();
    replace_file(path, chunks, input, &records, AttachmentChange::default())?;
    Ok(true)
}
