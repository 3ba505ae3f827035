//! The content of a file, read from its summary if it has one, else by reading the whole file.

use super::{
    source::Source,
    summary::{Parsed, Section, has_footer, read_header, read_metadata, read_summary},
    walk::Walk,
};
use crate::{
    chunks::ChunkSummary,
    error::{StorageError, StorageResult},
    mcap::{
        format::{Channel, ChunkHeader, ChunkIndex, Fields, Header, MetadataIndex, Schema, op, take_record},
        options::STORAGE_ID,
        recover,
    },
    reader::{ChannelSummary, FileCondition, StorageSummary},
    stored_qos::stored_profiles,
    writer::{ChannelIndex, ChannelInfo},
};
use holdall_model::{
    time::Timestamp,
    topic::{DefinitionEncoding, MessageDefinition, PublisherInfo, TopicInfo, TopicOrigin},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// A schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchemaText {
    pub name: String,
    pub encoding: String,
    pub text: String,
    /// The bytes of the definition, which need not be text (protobuf, flatbuffers).
    pub data: bytes::Bytes,
}

/// Schemas and channels of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    pub schemas: BTreeMap<u16, SchemaText>,
    pub channels: BTreeMap<u16, Channel>,
}

impl Definitions {
    /// Adds a schema; the first with a number is kept.
    pub fn add_schema(&mut self, schema: &Schema<'_>) {
        self.schemas.entry(schema.id).or_insert_with(|| SchemaText {
            name: schema.name.clone().into_owned(),
            encoding: schema.encoding.clone().into_owned(),
            text: String::from_utf8_lossy(&schema.data).into_owned(),
            data: bytes::Bytes::copy_from_slice(&schema.data),
        });
    }

    /// Adds a channel; the first with a number is kept.
    pub fn add_channel(&mut self, channel: Channel) {
        self.channels.entry(channel.id).or_insert(channel);
    }

    /// Adds all of `other`; known definitions are kept.
    pub fn add(&mut self, other: Self) {
        for (id, schema) in other.schemas {
            self.schemas.entry(id).or_insert(schema);
        }
        for channel in other.channels.into_values() {
            self.add_channel(channel);
        }
    }

    /// The schema records.
    pub(crate) fn encode_schemas(&self, out: &mut Vec<u8>) {
        for (id, schema) in &self.schemas {
            Schema {
                id: *id,
                name: schema.name.as_str().into(),
                encoding: schema.encoding.as_str().into(),
                data: schema.data.as_ref().into(),
            }
            .encode(out);
        }
    }

    /// The channel records.
    pub(crate) fn encode_channels(&self, out: &mut Vec<u8>) {
        self.channels.values().for_each(|channel| channel.encode(out));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.schemas.is_empty() && self.channels.is_empty()
    }

    /// Whether the channel's schema is known, or the channel has no schema.
    pub(crate) fn has_schema(&self, channel: &Channel) -> bool {
        channel.schema_id == 0 || self.schemas.contains_key(&channel.schema_id)
    }

    pub fn info(&self, channel: &Channel) -> ChannelInfo {
        let schema = self.schemas.get(&channel.schema_id).cloned().unwrap_or_default();
        let text = |key: &str| channel.metadata.get(key).cloned().unwrap_or_default();
        let hash = text("topic_type_hash");
        let encoding = match schema.encoding.as_str() {
            "ros2msg" => DefinitionEncoding::Ros2Msg,
            "ros2idl" => DefinitionEncoding::Ros2Idl,
            "ros1msg" => DefinitionEncoding::Ros1Msg,
            "jsonschema" => DefinitionEncoding::JsonSchema,
            _ => DefinitionEncoding::Unknown,
        };
        let offered_qos_profiles = stored_profiles(&channel.topic, &text("offered_qos_profiles"));
        ChannelInfo {
            topic: TopicInfo {
                name: channel.topic.clone(),
                type_name: schema.name.clone(),
                serialization_format: channel.message_encoding.clone(),
                offered_qos_profiles,
                type_description_hash: hash.clone(),
                origin: TopicOrigin::from_texts(&channel.metadata),
                publisher: PublisherInfo::from_texts(&channel.metadata).map(Box::new),
            },
            definition: MessageDefinition {
                type_name: schema.name,
                encoding,
                text: schema.text,
                type_description_hash: hash,
            },
        }
    }
}

/// A part of the file that holds messages and is read as a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of the chunk record, or of the first message record.
    pub start: u64,
    /// Its length in the file.
    pub length: u64,
    /// Smallest and largest log time.
    pub times: (u64, u64),
    /// Its kind.
    pub kind: ExtentKind,
    /// Its channels, each with the offset of its message index in the file (0 without one); `None`
    /// when unknown.
    pub channels: Option<Box<[(u16, u64)]>>,
    /// End of the message indexes of its channels; 0 when unknown.
    pub indexes_end: u64,
}

impl Extent {
    /// Its length up to the end of its message indexes.
    pub fn length_with_indexes(&self) -> u64 {
        self.indexes_end.saturating_sub(self.start).max(self.length)
    }
}

/// Kinds of [`Extent`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    /// A chunk record.
    Chunk {
        /// `lz4`, `zstd`, or empty.
        compression: Box<str>,
        /// Length of its records before compression.
        size: u64,
    },
    /// Messages outside of chunks.
    #[default]
    Records,
}

impl ExtentKind {
    /// The name of the record at its beginning.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Chunk { .. } => "chunk",
            Self::Records => "message",
        }
    }
}

/// The result of opening a file; its extents are found when first needed.
pub(crate) struct FileIndex {
    pub source: Source,
    pub summary: StorageSummary,
    /// Index in `summary.channels` by channel number.
    pub channel_of_id: Vec<Option<ChannelIndex>>,
    /// Channel number by index in `summary.channels`.
    pub ids: Vec<u16>,
    /// Schemas and channels as stored in the file.
    pub definitions: Definitions,
    /// The profile of the file's header; read when it is needed first.
    profile: OnceLock<String>,
    /// Offset and length of each attachment record.
    pub attachments: Vec<(u64, u64)>,
    extents: OnceLock<Arc<[Extent]>>,
    chunk_indexes: Option<Section>,
}

impl FileIndex {
    /// The profile of the file's header: `ros2`, or anything else.
    pub fn profile(&self) -> StorageResult<&str> {
        if let Some(profile) = self.profile.get() {
            return Ok(profile);
        }
        let header = read_header(&self.source)?;
        Ok(self.profile.get_or_init(|| header.profile))
    }

    /// The parts of the file that hold messages.
    pub fn chunks(&self) -> StorageResult<Vec<ChunkSummary>> {
        let channel = |id: &(u16, u64)| self.channel_of_id.get(usize::from(id.0)).copied().flatten();
        let summary = |extent: &Extent| {
            let (compression, size) = match &extent.kind {
                ExtentKind::Chunk { compression, size } => (Some(compression.to_string()), *size),
                ExtentKind::Records => (None, extent.length),
            };
            ChunkSummary {
                offset: extent.start,
                length: extent.length,
                uncompressed_bytes: size,
                compression,
                starting_time: signed(extent.times.0),
                ending_time: signed(extent.times.1),
                channels: extent
                    .channels
                    .as_ref()
                    .map(|ids| ids.iter().filter_map(channel).collect()),
            }
        };
        Ok(self.extents()?.iter().map(summary).collect())
    }

    /// Reads magic, header and summary; reads the whole file when its summary is missing or insufficient.
    pub fn open(source: Source) -> StorageResult<Self> {
        // A file in a bucket that has its end is recognized by that: its header would be one more request.
        let header = if source.is_remote() && has_footer(&source)? {
            None
        } else {
            Some(read_header(&source)?)
        };
        let trouble = match read_summary(&source) {
            Ok(Some(parsed)) => match Self::from_summary(&source, header.as_ref(), parsed) {
                Ok(Some(index)) => return Ok(index),
                Ok(None) => FileCondition::Unindexed,
                Err(error @ StorageError::Disk(_)) => return Err(error),
                Err(error) => damaged(&error),
            },
            Ok(None) => FileCondition::Unindexed,
            Err(error @ StorageError::Disk(_)) => return Err(error),
            Err(error) => damaged(&error),
        };
        let header = header.map_or_else(|| read_header(&source), Ok)?;
        let found = recover::scan(&source)?;
        let condition = match (&found.condition, trouble) {
            (FileCondition::Complete, trouble) => trouble,
            (found, _) => found.clone(),
        };
        Self::from_scan(source, &header, found, condition)
    }

    fn from_summary(source: &Source, header: Option<&Header>, parsed: Parsed) -> StorageResult<Option<Self>> {
        let Some(statistics) = parsed.statistics else {
            return Ok(None);
        };
        let known = parsed.definitions.channels.len() as u64 >= u64::from(statistics.channel_count)
            && statistics
                .channel_message_counts
                .keys()
                .all(|id| parsed.definitions.channels.contains_key(id))
            && parsed.metadata.len() as u64 >= u64::from(statistics.metadata_count);
        if !known {
            return Ok(None);
        }
        // A recorder writes its own record at the beginning and at the end: in a bucket the first one would be one more request.
        let is_repeated = |(place, index): &(usize, &MetadataIndex)| {
            let later = &parsed.metadata[place + 1..];
            source.is_remote()
                && index.name == "rosbag2"
                && later.iter().any(|other| other.name == index.name)
        };
        let metadata = parsed
            .metadata
            .iter()
            .enumerate()
            .filter(|found| !is_repeated(found))
            .map(|(_, index)| index)
            .map(|index| read_metadata(source, index))
            .collect::<StorageResult<_>>()?;
        let mut index = Self::new(
            source.clone(),
            header,
            &parsed.definitions,
            &statistics.channel_message_counts,
        );
        index.summary.metadata = metadata;
        index.attachments = parsed.attachments;
        index.summary.message_count = statistics.message_count;
        index.set_times(
            (statistics.message_count > 0)
                .then_some((statistics.message_start_time, statistics.message_end_time)),
        );
        index.summary.compression = parsed.compression;
        if statistics.message_count == 0 {
            index.extents = OnceLock::from(Arc::from([]));
        } else if statistics.chunk_count > 0 {
            index.chunk_indexes = parsed.chunk_indexes;
        }
        Ok(Some(index))
    }

    fn from_scan(
        source: Source,
        header: &Header,
        found: recover::Scan,
        condition: FileCondition,
    ) -> StorageResult<Self> {
        let mut index = Self::new(source, Some(header), &found.definitions, &found.counts);
        index.summary.message_count = found.counts.values().sum();
        index.summary.metadata = found.metadata;
        index.attachments = found.attachments;
        index.set_times(found.times);
        index.summary.compression = found.compression;
        index.summary.condition = condition;
        index.extents = OnceLock::from(Arc::from(found.extents));
        Ok(index)
    }

    fn new(
        source: Source,
        header: Option<&Header>,
        definitions: &Definitions,
        counts: &BTreeMap<u16, u64>,
    ) -> Self {
        let channels = definitions
            .channels
            .values()
            .map(|channel| ChannelSummary {
                info: definitions.info(channel),
                message_count: counts.get(&channel.id).copied().unwrap_or(0),
            })
            .collect();
        let ids: Vec<u16> = definitions.channels.keys().copied().collect();
        let mut channel_of_id = vec![None; ids.last().map_or(0, |last| usize::from(*last) + 1)];
        for (place, id) in (0u32..).zip(&ids) {
            channel_of_id[usize::from(*id)] = Some(ChannelIndex(place));
        }
        let summary = StorageSummary {
            path: source.path().to_owned(),
            storage_id: STORAGE_ID,
            library: header
                .map(|header| header.library.clone())
                .filter(|library| !library.is_empty()),
            file_bytes: source.len(),
            channels,
            ..StorageSummary::default()
        };
        Self {
            source,
            summary,
            channel_of_id,
            ids,
            definitions: definitions.clone(),
            profile: header.map_or_else(OnceLock::new, |header| OnceLock::from(header.profile.clone())),
            attachments: Vec::new(),
            extents: OnceLock::new(),
            chunk_indexes: None,
        }
    }

    fn set_times(&mut self, times: Option<(u64, u64)>) {
        self.summary.starting_time = times.map(|(start, _)| signed(start));
        self.summary.ending_time = times.map(|(_, end)| signed(end));
    }

    /// The parts that hold messages, in file order; found at the first call.
    pub(crate) fn extents(&self) -> StorageResult<Arc<[Extent]>> {
        if let Some(extents) = self.extents.get() {
            return Ok(Arc::clone(extents));
        }
        let extents: Arc<[Extent]> = match self.chunk_indexes {
            Some(section) => Arc::from(self.read_chunk_indexes(section)?),
            None => Arc::from(recover::scan(&self.source)?.extents),
        };
        Ok(Arc::clone(self.extents.get_or_init(|| extents)))
    }

    fn read_chunk_indexes(&self, section: Section) -> StorageResult<Vec<Extent>> {
        let bytes = self.source.read(section.start, section.length, "chunk indexes")?;
        let mut extents = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let at = section.start + (bytes.len() - rest.len()) as u64;
            let unparsed = |error| self.source.unparsed(at, error);
            let Some((opcode, body)) = take_record(&mut rest).map_err(unparsed)? else {
                break;
            };
            if opcode == op::CHUNK_INDEX {
                let extent = self.extent(at, ChunkIndex::decode(body).map_err(unparsed)?)?;
                if extents.is_empty() {
                    // The others are as long or nearly so.
                    extents.reserve(bytes.len() / body.len().max(1));
                }
                extents.push(extent);
            }
        }
        extents.sort_by_key(|extent: &Extent| extent.start);
        Ok(extents)
    }

    fn extent(&self, at: u64, index: ChunkIndex<Vec<(u16, u64)>>) -> StorageResult<Extent> {
        let inside = index
            .chunk_start_offset
            .checked_add(index.chunk_length)
            .is_some_and(|end| end <= self.source.len());
        if !inside {
            let found = format!(
                "{} bytes at byte {}",
                index.chunk_length, index.chunk_start_offset
            );
            return Err(self
                .source
                .malformed(at, "an index of a chunk inside the file", found));
        }
        let mut channels = index.message_index_offsets;
        if !channels.is_sorted_by(|one, next| one.0 < next.0) {
            // If a channel has several offsets, the last one counts.
            channels = BTreeMap::from_iter(channels).into_iter().collect();
        }
        let chunk_end = index.chunk_start_offset + index.chunk_length;
        Ok(Extent {
            start: index.chunk_start_offset,
            length: index.chunk_length,
            times: (index.message_start_time, index.message_end_time),
            kind: ExtentKind::Chunk {
                compression: index.compression.into(),
                size: index.uncompressed_size,
            },
            channels: (!channels.is_empty()).then(|| channels.into_boxed_slice()),
            indexes_end: chunk_end.saturating_add(index.message_index_length),
        })
    }
}

/// Nanoseconds as a signed timestamp.
pub(crate) fn signed(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

fn damaged(error: &StorageError) -> FileCondition {
    let offset = match error {
        StorageError::Malformed { offset, .. }
        | StorageError::Checksum { offset, .. }
        | StorageError::TooLarge { offset, .. } => *offset,
        _ => 0,
    };
    let reason = match error {
        StorageError::Malformed { expected, found, .. } => format!("expected {expected}, found {found}"),
        StorageError::Checksum {
            what,
            expected,
            found,
            ..
        } => {
            format!("{what} checksum is {found:#010x}, expected {expected:#010x}")
        }
        other => other.to_string(),
    };
    FileCondition::Damaged { offset, reason }
}

/// Reads a chunk's header at its place in the file.
pub(crate) fn chunk_header_bytes(
    walk: &mut Walk<'_>,
    start: u64,
    body_bytes: u64,
) -> StorageResult<Option<(usize, ChunkParts)>> {
    // No codec has a longer name.
    let bytes = walk.peek(start, body_bytes.min(256))?;
    let mut fields = Fields::new(&bytes);
    let Ok(header) = ChunkHeader::decode(&mut fields) else {
        return Ok(None);
    };
    let parts = ChunkParts {
        times: (header.message_start_time, header.message_end_time),
        size: header.uncompressed_size,
        crc: header.uncompressed_crc,
        compression: header.compression.into_owned(),
        stored: header.compressed_size,
    };
    Ok(Some((fields.position(), parts)))
}

/// A chunk's header, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkParts {
    pub times: (u64, u64),
    pub size: u64,
    pub crc: u32,
    pub compression: String,
    pub stored: u64,
}
