//! The content of a file's summary: schemas, channels, chunks, metadata records and counts, collected while it is written.

use super::{lane::ChunkContent, output::ChunkPlace};
use crate::{
    error::{StorageError, StorageResult},
    mcap::{
        format::{Channel, ChunkIndex, MetadataIndex, Schema, Statistics, StringMap},
        options::McapOptions,
    },
    writer::{ChannelInfo, MetadataEntries},
};
use holdall_model::{
    qos::profiles_to_text,
    topic::{DefinitionEncoding, PublisherInfo, TopicOrigin},
};
use std::{collections::HashMap, path::Path};

/// Chunk indexes are kept as they will be written, in pieces of this many bytes: no large reallocation in a long recording.
const PIECE_BYTES: usize = 256 << 10;

/// One channel: its records and counts.
pub(super) struct ChannelEntry {
    /// The channel record.
    pub record: Vec<u8>,
    /// Index of its schema in the catalog.
    pub schema: u16,
    /// Messages in closed chunks, or all messages without chunks.
    pub message_count: u64,
    /// Its record is in the data section.
    pub is_written: bool,
}

/// One schema: its record.
pub(super) struct SchemaEntry {
    /// The schema record.
    pub record: Vec<u8>,
    /// Its record is in the data section.
    pub is_written: bool,
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
    pub schemas: Vec<SchemaEntry>,
    pub channels: Vec<ChannelEntry>,
    schema_by_content: HashMap<(String, String, String), u16>,
    /// Encoded chunk index records.
    pub chunk_indexes: Vec<Vec<u8>>,
    pub chunk_indexes_bytes: u64,
    pub chunk_count: u32,
    /// Encoded metadata index records.
    pub metadata_indexes: Vec<u8>,
    pub metadata_count: u32,
    pub message_count: u64,
    /// Smallest and largest log time of closed chunks.
    pub times: Option<(u64, u64)>,
    /// Bytes of all schema and channel records.
    pub definitions_bytes: u64,
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

    /// Notes a metadata record.
    pub(crate) fn note_metadata(&mut self, offset: u64, length: u64, name: &str) {
        self.metadata_count += 1;
        MetadataIndex {
            offset,
            length,
            name: name.to_owned(),
        }
        .encode(&mut self.metadata_indexes);
    }

    /// The statistics record.
    pub fn statistics(&self) -> Statistics {
        let (message_start_time, message_end_time) = self.times.unwrap_or((0, 0));
        Statistics {
            message_count: self.message_count,
            schema_count: u16::try_from(self.schemas.len()).unwrap_or(u16::MAX),
            channel_count: u32::try_from(self.channels.len()).unwrap_or(u32::MAX),
            attachment_count: 0,
            metadata_count: self.metadata_count,
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
