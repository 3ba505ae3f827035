//! The content of a file's summary: schemas, channels, chunks, metadata records and counts, collected while it is written.

mod summary;

use super::{
    lane::{ChunkContent, Lane},
    output::ChunkPlace,
};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{Channel, ChunkIndex, MetadataIndexes, Schema, Statistics, StringMap},
        options::McapOptions,
    },
    writer::{ChannelInfo, FileSummary, MetadataEntries},
};
use holdall_model::{
    qos::profiles_to_text,
    time::Timestamp,
    topic::{DefinitionEncoding, PublisherInfo, TopicOrigin},
};
use std::{collections::HashMap, path::Path};

/// Chunk indexes are kept as they will be written, in pieces of this many bytes: no large reallocation in a long recording.
const PIECE_BYTES: usize = 256 << 10;

/// One channel: its records and counts.
struct ChannelEntry {
    /// The channel record.
    record: Vec<u8>,
    /// Index of its schema in the catalog.
    schema: u16,
    /// Messages in closed chunks, or all messages without chunks.
    message_count: u64,
    /// Its record is in the data section.
    is_written: bool,
}

/// One schema: its record.
struct SchemaEntry {
    /// The schema record.
    record: Vec<u8>,
    /// Its record is in the data section.
    is_written: bool,
}

/// The records that come before a channel's first message.
pub(super) struct Definitions<'c> {
    /// Index of the schema.
    pub schema: u16,
    /// The schema record.
    pub schema_record: &'c [u8],
    /// The channel record.
    pub channel_record: &'c [u8],
}

/// How much of the catalog an earlier reader has seen.
#[derive(Debug, Default)]
pub(super) struct Mark {
    schemas: usize,
    channels: usize,
    chunk_index_bytes: u64,
    metadata_index_bytes: usize,
}

/// A chunk in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenChunk<'a> {
    /// Its place in the file.
    pub place: ChunkPlace,
    /// `lz4`, `zstd`, or empty.
    pub compression: &'a str,
    /// Length of its records in the file.
    pub compressed_size: u64,
    /// Length of its records when decompressed.
    pub uncompressed_size: u64,
}

impl WrittenChunk<'_> {
    /// A chunk without compression, of records of `size` bytes.
    pub fn plain(place: ChunkPlace, size: u64) -> Self {
        Self {
            place,
            compression: "",
            compressed_size: size,
            uncompressed_size: size,
        }
    }
}

/// Everything the summary needs.
#[derive(Default)]
pub(super) struct Catalog {
    schemas: Vec<SchemaEntry>,
    channels: Vec<ChannelEntry>,
    schema_by_content: HashMap<(String, String, String), u16>,
    /// Encoded chunk index records.
    chunk_indexes: Vec<Vec<u8>>,
    chunk_indexes_bytes: u64,
    chunk_count: u32,
    pub metadata: MetadataIndexes,
    message_count: u64,
    /// Smallest and largest log time of closed chunks.
    times: Option<(u64, u64)>,
    /// Bytes of all schema and channel records.
    definitions_bytes: u64,
}

impl Catalog {
    /// Adds a channel and, if it is new, its schema. The channel's number in the file is its index plus one.
    pub fn add_channel(&mut self, path: &Path, info: &ChannelInfo) -> StorageResult<u16> {
        let too_many = |what| StorageError::TooMany {
            path: path.to_owned(),
            what,
            limit: u64::from(u16::MAX),
        };
        let schema = self.schema(info).ok_or_else(|| too_many("schemas"))?;
        let index = u16::try_from(self.channels.len())
            .ok()
            .filter(|index| *index < u16::MAX)
            .ok_or_else(|| too_many("channels"))?;
        let mut metadata = StringMap::new();
        metadata.insert(
            "offered_qos_profiles".into(),
            profiles_to_text(&info.topic.offered_qos_profiles),
        );
        metadata.insert("topic_type_hash".into(), info.topic.type_description_hash.clone());
        metadata.extend(info.topic.origin.iter().flat_map(TopicOrigin::to_texts));
        metadata.extend(
            info.topic
                .publisher
                .as_deref()
                .into_iter()
                .flat_map(PublisherInfo::to_texts),
        );
        let mut record = Vec::new();
        Channel {
            id: index + 1,
            schema_id: schema + 1,
            topic: info.topic.name.clone(),
            message_encoding: info.topic.serialization_format.clone(),
            metadata,
        }
        .encode(&mut record);
        self.definitions_bytes += record.len() as u64;
        self.channels.push(ChannelEntry {
            record,
            schema,
            message_count: 0,
            is_written: false,
        });
        Ok(index)
    }

    fn schema(&mut self, info: &ChannelInfo) -> Option<u16> {
        // MCAP's word for "no schema is known" is an empty encoding. rosbag2 writes `unknown`, at which pip `rosbags` refuses the whole bag.
        let encoding = match info.definition.encoding {
            DefinitionEncoding::Unknown => "",
            known => known.as_str(),
        };
        let text = &info.definition.text;
        // A service event's type is named `pkg/srv/X_Event` while the text is that of the service.
        let key = (info.topic.type_name.clone(), encoding.to_owned(), text.clone());
        if let Some(index) = self.schema_by_content.get(&key) {
            return Some(*index);
        }
        let index = u16::try_from(self.schemas.len())
            .ok()
            .filter(|index| *index < u16::MAX)?;
        let mut record = Vec::new();
        Schema {
            id: index + 1,
            name: info.topic.type_name.as_str().into(),
            encoding: encoding.into(),
            data: text.as_bytes().into(),
        }
        .encode(&mut record);
        self.definitions_bytes += record.len() as u64;
        self.schemas.push(SchemaEntry {
            record,
            is_written: false,
        });
        self.schema_by_content.insert(key, index);
        Some(index)
    }

    #[inline]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Messages in closed chunks, or all messages without chunks.
    pub(crate) fn message_count(&self) -> u64 {
        self.message_count
    }

    /// Bytes of the index of all chunks, which stays in memory until the end.
    pub(crate) fn chunk_indexes_bytes(&self) -> u64 {
        self.chunk_indexes_bytes
    }

    /// Bytes of the records that come before the channel's first message.
    pub fn definitions_bytes_of(&self, channel: u16) -> u64 {
        let entry = &self.channels[usize::from(channel)];
        (entry.record.len() + self.schemas[usize::from(entry.schema)].record.len()) as u64
    }

    /// The records that come before the channel's first message in a lane; the data section has them from now on.
    pub fn introduce(&mut self, channel: u16) -> Definitions<'_> {
        let entry = &mut self.channels[usize::from(channel)];
        let schema = &mut self.schemas[usize::from(entry.schema)];
        (entry.is_written, schema.is_written) = (true, true);
        Definitions {
            schema: entry.schema,
            schema_record: &schema.record,
            channel_record: &entry.record,
        }
    }

    /// Whether the data section has the channel's record.
    #[inline]
    pub fn is_introduced(&self, channel: u16) -> bool {
        self.channels[usize::from(channel)].is_written
    }

    /// As [`Self::introduce`], without a schema that the data section has.
    pub fn introduce_once(&mut self, channel: u16) -> impl Iterator<Item = &[u8]> {
        let entry = &self.channels[usize::from(channel)];
        let has_schema = self.schemas[usize::from(entry.schema)].is_written;
        let definitions = self.introduce(channel);
        [definitions.schema_record, definitions.channel_record]
            .into_iter()
            .skip(usize::from(has_schema))
    }

    /// The records that have come since `mark`, which moves to here.
    pub(crate) fn records_since(&self, mark: &mut Mark) -> Vec<u8> {
        let mut records = Vec::new();
        self.statistics().encode(&mut records);
        for schema in &self.schemas[mark.schemas..] {
            records.extend_from_slice(&schema.record);
        }
        for channel in &self.channels[mark.channels..] {
            records.extend_from_slice(&channel.record);
        }
        let mut seen_bytes = mark.chunk_index_bytes;
        for piece in &self.chunk_indexes {
            let skipped = seen_bytes.min(piece.len() as u64);
            seen_bytes -= skipped;
            // At most the length of the piece.
            records.extend_from_slice(&piece[skipped as usize..]);
        }
        records.extend_from_slice(&self.metadata.records[mark.metadata_index_bytes..]);
        *mark = Mark {
            schemas: self.schemas.len(),
            channels: self.channels.len(),
            chunk_index_bytes: self.chunk_indexes_bytes,
            metadata_index_bytes: self.metadata.records.len(),
        };
        records
    }

    /// What is in the file, with the chunks that are `open`; without its length.
    pub(crate) fn file_summary(&self, path: &Path, open: &[Lane]) -> FileSummary {
        let mut message_count = self.message_count;
        let mut times = self.times;
        let counts = self.channels.iter().map(|channel| channel.message_count);
        let mut counts: Vec<u64> = counts.collect();
        for lane in open {
            message_count += lane.message_count();
            if let Some((start, end)) = lane.times() {
                let (min, max) = times.unwrap_or((start, end));
                times = Some((min.min(start), max.max(end)));
            }
            for (channel, count) in lane.counts() {
                counts[usize::from(channel)] += u64::from(count);
            }
        }
        let time = |nanos| Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX));
        FileSummary {
            path: path.to_owned(),
            message_count,
            starting_time: times.map(|(start, _)| time(start)),
            ending_time: times.map(|(_, end)| time(end)),
            channel_message_counts: counts,
            bytes: 0,
        }
    }

    /// Counts one message outside of chunks.
    #[inline]
    pub(crate) fn note_message(&mut self, channel: u16, log_time: u64) {
        self.message_count += 1;
        self.channels[usize::from(channel)].message_count += 1;
        self.widen(log_time, log_time);
    }

    fn widen(&mut self, start: u64, end: u64) {
        let (min, max) = self.times.unwrap_or((start, end));
        self.times = Some((min.min(start), max.max(end)));
    }

    /// Counts the messages of a closed chunk, wherever it is now.
    pub(crate) fn note_content(&mut self, content: &ChunkContent) {
        self.message_count += content.message_count;
        if content.message_count > 0 {
            self.widen(content.times.0, content.times.1);
        }
        for (channel, count, _) in &content.channels {
            self.channels[usize::from(*channel)].message_count += u64::from(*count);
        }
    }

    /// Notes a chunk that is in the file with its message indexes right after it.
    pub(crate) fn note_chunk(
        &mut self,
        chunk: WrittenChunk<'_>,
        content: &ChunkContent,
        options: &McapOptions,
    ) {
        self.chunk_count += 1;
        if !(options.summary && options.chunk_index) {
            return;
        }
        let index = ChunkIndex {
            message_start_time: content.times.0,
            message_end_time: content.times.1,
            chunk_start_offset: chunk.place.start,
            chunk_length: chunk.place.length,
            message_index_length: content.index.len() as u64,
            compression: chunk.compression.to_owned(),
            compressed_size: chunk.compressed_size,
            uncompressed_size: chunk.uncompressed_size,
            ..ChunkIndex::default()
        };
        let chunk_end = chunk.place.start + chunk.place.length;
        let indexed: &[_] = if options.message_index {
            &content.channels
        } else {
            &[]
        };
        let offsets = indexed
            .iter()
            .map(|(channel, _, begin)| (channel + 1, chunk_end + u64::from(*begin)));
        if self
            .chunk_indexes
            .last()
            .is_none_or(|piece| piece.len() >= PIECE_BYTES)
        {
            self.chunk_indexes.push(Vec::new());
        }
        if let Some(piece) = self.chunk_indexes.last_mut() {
            let before = piece.len();
            index.encode(piece, offsets);
            self.chunk_indexes_bytes += (piece.len() - before) as u64;
        }
    }

    /// The statistics record.
    pub fn statistics(&self) -> Statistics {
        let (message_start_time, message_end_time) = self.times.unwrap_or((0, 0));
        Statistics {
            message_count: self.message_count,
            schema_count: u16::try_from(self.schemas.len()).unwrap_or(u16::MAX),
            channel_count: u32::try_from(self.channels.len()).unwrap_or(u32::MAX),
            attachment_count: 0,
            metadata_count: self.metadata.count,
            chunk_count: self.chunk_count,
            message_start_time,
            message_end_time,
            channel_message_counts: (1u16..)
                .zip(&self.channels)
                .filter(|(_, channel)| channel.message_count > 0)
                .map(|(id, channel)| (id, channel.message_count))
                .collect(),
        }
    }
}

/// A metadata record in the form that the writer accepts.
pub(super) fn metadata_record(name: &str, entries: &MetadataEntries) -> Vec<u8> {
    let mut record = Vec::new();
    crate::mcap::format::encode_metadata(&mut record, name, entries);
    record
}
