//! Rebuilds a bag's metadata from the content of its storage files.

use super::{
    bag_file::BagFile,
    error::{ReadError, io_error},
    file::{self, Payloads, UnpackedFiles},
    ros1::{self, Ros1View},
};
use crate::rescue::InMemory;
use holdall_io::fs;
use holdall_model::{
    contract::{CONTRACT_RECORD, ContractRecord},
    metadata::{BagMetadata, FileInformation, TopicWithMessageCount},
    recoding::{RECODED_CUSTOM_KEY, RECODED_RECORD, Recoding},
    repeated::BagRepeats,
    time::Timestamp,
};
use holdall_storage::{
    compression::{CompressionMode, FORMATS, is_packed_name},
    reader::{ChannelSummary, StorageSummary},
    repeated::repeats_of,
};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// How the notice ends of a file without a byte.
const EMPTY_FILE: &str = "the file is empty; the file is left out";

/// Files that are kept open after they have been read; more would exceed the system's limit of open files.
const OPEN_FILES_MAX: usize = 64;

/// Metadata that is being rebuilt.
#[derive(Default)]
pub(super) struct Rebuild {
    metadata: BagMetadata,
    /// Its account of changes of form is of before the last messages.
    is_recoded_open: bool,
    ending_time: Option<Timestamp>,
    /// Index in the metadata by name and type.
    topics: HashMap<(String, String), usize>,
    files: Vec<BagFile>,
    notices: Vec<String>,
    unpacked: UnpackedFiles,
    view: Ros1View,
    /// The marks of the files.
    repeats: BagRepeats,
    /// Files that are still empty.
    unwritten: usize,
    /// Files that cannot be read at all.
    left_out: usize,
    /// The first file that could not be read, and why.
    failure: Option<ReadError>,
}

impl Rebuild {
    /// Metadata with ROS 1 messages presented in this view.
    pub fn new(view: Ros1View) -> Self {
        Self {
            view,
            ..Self::default()
        }
    }

    /// Adds the content of the storage file at `path`; paths are relative to the directory `bag`.
    ///
    /// An unreadable file is left out with a notice, unless it is the only one. A file that `is_written` at
    /// the moment has no end, which needs no notice.
    pub fn add(&mut self, bag: &Path, path: &Path, is_written: bool) -> Result<(), ReadError> {
        let about = match fs::about(path) {
            // A ring has removed it since it was listed.
            Err(error) if error.is_not_found() => return Ok(()),
            about => about.map_err(|error| io_error("open", path, error.into_io()))?,
        };
        let bytes = file::length(path, &about);
        let (reader, payloads) = match file::open_unknown(path) {
            Ok(opened) => opened,
            Err(_) if !fs::exists(path).unwrap_or(true) => return Ok(()),
            Err(error) => {
                self.left_out += 1;
                self.unwritten += usize::from(fs::is_unwritten(path).unwrap_or(false));
                if !is_written {
                    self.notices.push(format!("{error}; the file is left out"));
                }
                self.failure.get_or_insert(error);
                return Ok(());
            }
        };
        let (reader, notices) = ros1::in_view(reader, self.view);
        let repeats = repeats_of(&*reader).map(|repeats| (relative(bag, path), repeats));
        self.repeats.extend(repeats);
        let summary = reader.summary();
        if !is_written {
            self.notices.extend(file::damage(summary));
        }
        self.notices.extend(notices);
        self.add_summary(summary, relative(bag, path));
        self.add_compression(path, payloads);
        self.files.push(BagFile {
            path: path.to_owned(),
            bytes,
            earliest: summary.starting_time,
            latest: summary.ending_time,
            empty: summary.message_count == 0,
            payloads,
            reader: None,
            unpacked: self.unpacked.clone(),
            view: self.view,
            hidden: None,
            kept: None,
        });
        // An unpacked file uses disk space as long as its reader is kept.
        let is_cheap = !is_packed_name(path) && self.files.len() <= OPEN_FILES_MAX;
        if is_cheap && let Some(file) = self.files.last_mut() {
            file.reader = Some(reader);
        }
        Ok(())
    }

    /// The marks of the files.
    pub fn repeats(&self) -> &BagRepeats {
        &self.repeats
    }

    /// The files so far.
    pub fn files(&self) -> &[BagFile] {
        &self.files
    }

    /// Adds a file that is in memory only.
    pub(crate) fn add_in_memory(&mut self, bag: &Path, memory: InMemory) {
        let InMemory {
            path,
            reader,
            storage,
        } = memory;
        if self.metadata.storage_identifier.is_empty() {
            self.metadata.storage_identifier = storage;
        }
        // The messages of a file that was still empty are in this memory.
        self.notices.retain(|notice| !notice.ends_with(EMPTY_FILE));
        let summary = reader.summary();
        self.add_summary(summary, relative(bag, &path));
        self.files.push(BagFile {
            path,
            bytes: summary.file_bytes,
            earliest: summary.starting_time,
            latest: summary.ending_time,
            empty: summary.message_count == 0,
            payloads: Payloads::Plain,
            reader: Some(reader),
            unpacked: self.unpacked.clone(),
            view: self.view,
            hidden: None,
            kept: None,
        });
    }

    /// Whether files were added, and nothing was written in any of them: a recording that ended before its first write.
    pub fn is_unwritten(&self) -> bool {
        self.files.is_empty() && self.unwritten > 0 && self.unwritten == self.left_out
    }

    /// The metadata, the files, and one sentence for each thing that is not as it should be.
    ///
    /// # Errors
    /// No file could be read.
    pub fn finish(mut self) -> Result<(BagMetadata, Vec<BagFile>, Vec<String>), ReadError> {
        if self.files.is_empty()
            && let Some(failure) = self.failure
        {
            return Err(failure);
        }
        if let (Some(start), Some(end)) = (self.metadata.starting_time, self.ending_time) {
            self.metadata.duration = end.saturating_since(start);
        }
        let counts = &self.metadata.topics_with_message_count;
        let count = |topic: &str, kind: &str| {
            let place = self.topics.get(&(topic.to_owned(), kind.to_owned()));
            place.map_or(0, |place| counts[*place].message_count)
        };
        // The list of a recording that was killed is from before its last messages, that of a file that was copied is its bag's.
        let custom_data = &mut self.metadata.custom_data;
        if self.is_recoded_open {
            Recoding::recount(custom_data, count);
        } else {
            // Copies of earlier messages are in no account.
            let copies = |topic: &str, kind: &str| -> usize {
                let channels = self.repeats.values().flat_map(|file| &file.channels);
                let channels = channels.filter(|channel| channel.topic == topic && channel.type_name == kind);
                channels.map(|channel| channel.messages.len()).sum()
            };
            Recoding::reduce(custom_data, |topic, kind| {
                count(topic, kind).saturating_sub(copies(topic, kind) as u64)
            });
        }
        Ok((self.metadata, self.files, self.notices))
    }

    fn add_summary(&mut self, summary: &StorageSummary, relative_path: String) {
        let metadata = &mut self.metadata;
        if metadata.storage_identifier.is_empty() {
            summary.storage_id.clone_into(&mut metadata.storage_identifier);
        }
        let described = summary
            .rosbag2_metadata()
            .and_then(|text| BagMetadata::from_yaml_without_lists(text).ok());
        let recoded = summary.last_metadata(RECODED_RECORD);
        let recoded = recoded.and_then(Recoding::list_of_record);
        self.is_recoded_open |= recoded.is_some();
        metadata.custom_data.extend(recoded);
        if let Some(described) = described {
            self.is_recoded_open &= !described.custom_data.contains_key(RECODED_CUSTOM_KEY);
            metadata.custom_data.extend(described.custom_data);
            if described.ros_distro.is_some() {
                metadata.ros_distro = described.ros_distro;
            }
        }
        let contract = summary.last_metadata(CONTRACT_RECORD);
        let contract = contract.and_then(ContractRecord::from_entries);
        metadata
            .custom_data
            .extend(contract.map(|record| record.custom_data()));
        metadata.message_count += summary.message_count;
        let starts = metadata.starting_time.into_iter().chain(summary.starting_time);
        metadata.starting_time = starts.min();
        self.ending_time = self.ending_time.max(summary.ending_time);
        let span = summary.starting_time.zip(summary.ending_time);
        metadata.files.push(FileInformation {
            path: relative_path.clone(),
            starting_time: summary.starting_time,
            duration: span.map_or_else(Default::default, |(start, end)| end.saturating_since(start)),
            message_count: summary.message_count,
        });
        metadata.relative_file_paths.push(relative_path);
        summary
            .channels
            .iter()
            .for_each(|channel| self.add_channel(channel));
    }

    fn add_compression(&mut self, path: &Path, payloads: Payloads) {
        let mode = match payloads {
            Payloads::Packed => CompressionMode::Message,
            Payloads::Plain if is_packed_name(path) => CompressionMode::File,
            Payloads::Plain => return,
        };
        mode.as_metadata().clone_into(&mut self.metadata.compression_mode);
        FORMATS[0].clone_into(&mut self.metadata.compression_format);
    }

    /// Several channels and files may have the same topic; each offer is kept once.
    fn add_channel(&mut self, channel: &ChannelSummary) {
        let topic = &channel.info.topic;
        let topics = &mut self.metadata.topics_with_message_count;
        let key = (topic.name.clone(), topic.type_name.clone());
        let index = *self.topics.entry(key).or_insert_with(|| {
            topics.push(TopicWithMessageCount {
                topic_metadata: topic.as_whole(),
                message_count: 0,
            });
            topics.len() - 1
        });
        let known = &mut topics[index];
        known.message_count += channel.message_count;
        for offer in &topic.offered_qos_profiles {
            if !known.topic_metadata.offered_qos_profiles.contains(offer) {
                known.topic_metadata.offered_qos_profiles.push(*offer);
            }
        }
    }
}

/// The name of a bag's file in the metadata; a single file is its own bag and is listed by its name.
fn relative(bag: &Path, path: &Path) -> String {
    let inside = path
        .strip_prefix(bag)
        .ok()
        .filter(|rest| !rest.as_os_str().is_empty());
    let name = inside
        .map(PathBuf::from)
        .or_else(|| path.file_name().map(PathBuf::from));
    name.unwrap_or_else(|| path.to_owned()).display().to_string()
}
