//! Presents a storage file with ROS 1 messages as one of ROS 2: topics, definitions and payloads.

use crate::{
    StorageError, StorageResult,
    reader::{
        ChannelSummary, FilePart, IndexedPart, Messages, ReadMessage, ReadQuery, StorageReader,
        StorageSummary, TimeCells,
    },
    writer::ChannelIndex,
};
use bytes::Bytes;
use holdall_model::{
    ros1::{Conversion, ROS1_SERIALIZATION, Ros1Definition},
    topic::DefinitionEncoding,
    units::counted,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

/// Text records that describe the connections of a ROS 1 bag, with the md5 sum of each.
const CONNECTION_RECORD: &str = "ros1_connection";

/// Serialization format of converted messages.
const CDR: &str = "cdr";

/// Converts while reading. Topics with an unusable definition stay unchanged (`ros1`).
struct AsRos2 {
    inner: SharedReader,
    summary: StorageSummary,
    /// By channel; `None` for those that stay unchanged.
    conversions: Arc<[Option<Conversion>]>,
}

/// The storage of ROS 1 bags.
const ROS1_STORAGE: &str = crate::rosbag1::format::STORAGE_ID;

/// A reader that several streams may share.
pub type SharedReader = Arc<dyn StorageReader>;

/// How ROS 1 messages are presented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ros1View {
    /// Messages of ROS 1 bags as ROS 2 messages (types `pkg/msg/Type`, payloads in CDR, definitions in ROS
    /// 2's format); those in files of ROS 2's storages as stored.
    #[default]
    BagsConverted,
    /// All as ROS 2 messages, including those that an MCAP file stores in ROS 1 form.
    AllConverted,
    /// All as stored: types `pkg/Type`, serialization `ros1`.
    AsStored,
}

/// The reader in a view, and notices for the user.
pub fn in_view(reader: SharedReader, view: Ros1View) -> (SharedReader, Vec<String>) {
    let is_converted = match view {
        Ros1View::BagsConverted => reader.summary().storage_id == ROS1_STORAGE,
        Ros1View::AllConverted => true,
        Ros1View::AsStored => false,
    };
    if is_converted {
        as_ros2(reader)
    } else {
        (reader, Vec::new())
    }
}

/// The reader itself if it has no ROS 1 messages, else one that converts them, and notices for the user, one
/// sentence each.
pub fn as_ros2(inner: SharedReader) -> (SharedReader, Vec<String>) {
    if !inner.outline().channels.iter().any(is_ros1) {
        return (inner, Vec::new());
    }
    let mut summary = inner.summary().clone();
    let mut notices = Vec::new();
    let mut hashes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut conversions = Vec::new();
    for (place, channel) in summary.channels.iter_mut().enumerate() {
        conversions.push(if is_ros1(channel) {
            convert_channel(place, channel, inner.summary(), &mut notices)
        } else {
            None
        });
        if let Some(conversion) = conversions.last().and_then(Option::as_ref) {
            let definition = conversion.definition();
            let known = hashes.entry(definition.type_name.clone()).or_default();
            known.insert(definition.type_description_hash.clone());
        }
    }
    for (type_name, _) in hashes.iter().filter(|(_, known)| known.len() > 1) {
        notices.push(format!(
            "{}: it has different definitions of {type_name}; each message is converted by its own, but readers that look up \
             definitions by name know only one of them",
            summary.path.display()
        ));
    }
    let converting = AsRos2 {
        inner,
        summary,
        conversions: conversions.into(),
    };
    (Arc::new(converting), notices)
}

fn is_ros1(channel: &ChannelSummary) -> bool {
    channel.info.topic.serialization_format == ROS1_SERIALIZATION
        && channel.info.definition.encoding == DefinitionEncoding::Ros1Msg
}

/// Converts the channel to ROS 2, if possible.
fn convert_channel(
    place: usize,
    channel: &mut ChannelSummary,
    stored: &StorageSummary,
    notices: &mut Vec<String>,
) -> Option<Conversion> {
    let topic = &mut channel.info.topic;
    let text = &channel.info.definition.text;
    let sums = stored_sums(stored, place);
    let made = Ros1Definition::parse_or_complete(&topic.type_name, text, sums.iter().copied());
    let made = made.and_then(|parsed| {
        let sum = parsed.md5sum();
        for said in sums {
            if said != sum && said != "*" {
                notices.push(format!(
                    "{}: topic {} says that the md5 sum of {} is {said}, but its definition has {sum}; it is converted by its \
                     definition",
                    stored.path.display(),
                    topic.name,
                    topic.type_name
                ));
            }
        }
        Conversion::new(&parsed)
    });
    match made {
        Ok(conversion) => {
            let definition = conversion.definition().clone();
            topic.type_name.clone_from(&definition.type_name);
            topic
                .type_description_hash
                .clone_from(&definition.type_description_hash);
            CDR.clone_into(&mut topic.serialization_format);
            channel.info.definition = definition;
            Some(conversion)
        }
        Err(error) => {
            notices.push(format!(
                "{}: topic {} cannot be converted to ROS 2, what it has ({}) stays as it is (serialization {ROS1_SERIALIZATION}): \
                 {error}",
                stored.path.display(),
                topic.name,
                counted(channel.message_count, "message")
            ));
            None
        }
    }
}

/// The md5 sums stored for a channel's connections, each once.
fn stored_sums(stored: &StorageSummary, channel: usize) -> BTreeSet<&str> {
    let channel = channel.to_string();
    let of_topic = stored
        .metadata
        .iter()
        .filter(|(name, entries)| name == CONNECTION_RECORD && entries.get("channel") == Some(&channel));
    of_topic
        .filter_map(|(_, entries)| entries.get("md5sum").map(String::as_str))
        .collect()
}

impl StorageReader for AsRos2 {
    fn summary(&self) -> &StorageSummary {
        &self.summary
    }

    fn messages(&self, query: &ReadQuery) -> StorageResult<Messages> {
        let messages = self.inner.messages(query)?;
        let conversions = Arc::clone(&self.conversions);
        let topics: Vec<String> = self
            .summary
            .channels
            .iter()
            .map(|channel| channel.info.topic.name.clone())
            .collect();
        let path = self.summary.path.clone();
        Ok(Box::new(messages.map(move |message| {
            convert_message(message?, &conversions, &topics, &path)
        })))
    }

    fn parts(&self, channels: Option<&[ChannelIndex]>) -> StorageResult<Vec<FilePart>> {
        self.inner.parts(channels)
    }

    fn part_at(&self, offset: u64) -> Option<IndexedPart> {
        self.inner.part_at(offset)
    }

    fn count_over_time(&self, cells: &mut TimeCells) -> StorageResult<bool> {
        self.inner.count_over_time(cells)
    }
}

fn convert_message(
    message: ReadMessage,
    conversions: &[Option<Conversion>],
    topics: &[String],
    path: &Path,
) -> StorageResult<ReadMessage> {
    let place = message.channel.0 as usize;
    let Some(conversion) = conversions.get(place).and_then(Option::as_ref) else {
        return Ok(message);
    };
    let mut cdr = Vec::new();
    match conversion.convert(&message.payload, &mut cdr) {
        Ok(()) => Ok(ReadMessage {
            payload: Bytes::from(cdr),
            ..message
        }),
        Err(error) => Err(StorageError::Conversion {
            path: path.to_owned(),
            topic: topics.get(place).cloned().unwrap_or_default(),
            log_time: message.log_time.as_nanos(),
            reason: error.to_string(),
        }),
    }
}
