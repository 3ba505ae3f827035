//! A bag's metadata, made from the contents of its files.

use holdall_model::{
    metadata::{BagMetadata, FileInformation, TopicWithMessageCount},
    time::Timestamp,
    topic::TopicInfo,
};
use holdall_storage::{
    compression::{CompressionMode, FILE_SUFFIX, FORMATS},
    writer::FileSummary,
};
use std::{collections::BTreeMap, time::Duration};

/// A storage file as the metadata lists it.
pub struct FileFacts<'a> {
    /// Relative to the bag's directory.
    pub name: &'a str,
    /// Its contents. The counts by channel are not read.
    pub summary: &'a FileSummary,
    /// Whether it was packed since: only the list of paths shows that, as in rosbag2.
    pub is_packed: bool,
}

/// Contents of the metadata in addition to files and topics.
pub struct BagFacts<'a> {
    /// The storage's id, as `mcap`.
    pub storage_id: &'a str,
    /// Whether files or messages are compressed.
    pub compression: CompressionMode,
    /// Further keys and values, in addition to the counts.
    pub custom_data: &'a BTreeMap<String, String>,
    /// The distribution of ROS 2 that was recorded.
    pub ros_distro: Option<&'a str>,
}

/// The metadata of a bag with these topics, each with the number of its messages, and files.
pub fn bag_metadata<'a>(
    bag: &BagFacts<'_>,
    topics: impl Iterator<Item = (&'a TopicInfo, u64)>,
    files: &[FileFacts<'_>],
) -> BagMetadata {
    let starting_time = files.iter().filter_map(|file| file.summary.starting_time).min();
    let ending_time = files.iter().filter_map(|file| file.summary.ending_time).max();
    let topics = topics.map(|(topic, message_count)| TopicWithMessageCount {
        topic_metadata: topic.clone(),
        message_count,
    });
    let format = match bag.compression {
        CompressionMode::None => "",
        CompressionMode::File | CompressionMode::Message => FORMATS[0],
    };
    BagMetadata {
        storage_identifier: bag.storage_id.to_owned(),
        duration: span(starting_time, ending_time),
        starting_time,
        message_count: files.iter().map(|file| file.summary.message_count).sum(),
        topics_with_message_count: topics.collect(),
        compression_format: format.to_owned(),
        compression_mode: bag.compression.as_metadata().to_owned(),
        relative_file_paths: files.iter().map(relative_path).collect(),
        files: files.iter().map(file_information).collect(),
        custom_data: bag.custom_data.clone(),
        ros_distro: bag.ros_distro.map(str::to_owned),
        ..BagMetadata::default()
    }
}

fn relative_path(file: &FileFacts<'_>) -> String {
    let suffix = if file.is_packed { FILE_SUFFIX } else { "" };
    format!("{}{suffix}", file.name)
}

fn file_information(file: &FileFacts<'_>) -> FileInformation {
    FileInformation {
        path: file.name.to_owned(),
        starting_time: file.summary.starting_time,
        duration: span(file.summary.starting_time, file.summary.ending_time),
        message_count: file.summary.message_count,
    }
}

fn span(start: Option<Timestamp>, end: Option<Timestamp>) -> Duration {
    match (start, end) {
        (Some(start), Some(end)) => end.saturating_since(start),
        _ => Duration::ZERO,
    }
}
