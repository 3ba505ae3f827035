//! MCAP records to the byte: their types in memory, how they are written and how they are read.
//!
//! Follows the MCAP specification, version 0 (<https://mcap.dev/spec>): a record is an opcode, a 64-bit
//! length and a body; numbers are little-endian; a reader skips bytes at the end of a body that it does not
//! know.

pub mod checkpoint;
mod decode;
mod encode;

pub use decode::{Fields, take_record};
pub(crate) use decode::{index_entries, record_prefix};
pub(crate) use encode::{MetadataIndexes, encode_message_index, message_prefix};
pub use encode::{encode_data_end, encode_metadata, put_record};

use std::{borrow::Cow, collections::BTreeMap};

/// First and last eight bytes of every file.
pub const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', 0x30, b'\r', b'\n'];
/// Bytes of opcode and length before each body.
pub(crate) const RECORD_PREFIX_BYTES: usize = 9;
/// Bytes of a message's body before its payload.
pub(crate) const MESSAGE_HEADER_BYTES: usize = 22;
/// Bytes of a message record before its payload.
pub(crate) const MESSAGE_PREFIX_BYTES: usize = RECORD_PREFIX_BYTES + MESSAGE_HEADER_BYTES;
/// Bytes of the footer record and the magic after it.
pub const FOOTER_AND_MAGIC_BYTES: usize = RECORD_PREFIX_BYTES + 20 + MAGIC.len();
/// Bytes of one entry of a message index: log time and offset.
pub(crate) const INDEX_ENTRY_BYTES: usize = 16;
/// Bytes of a message index record before its entries: prefix, channel, length of the array.
pub(crate) const INDEX_PREFIX_BYTES: usize = RECORD_PREFIX_BYTES + 2 + 4;

/// Opcodes of the records.
pub mod op {
    /// First record of the file.
    pub const HEADER: u8 = 0x01;
    /// Last record of the file.
    pub(crate) const FOOTER: u8 = 0x02;
    /// A message definition.
    pub const SCHEMA: u8 = 0x03;
    /// A topic.
    pub const CHANNEL: u8 = 0x04;
    /// A message.
    pub const MESSAGE: u8 = 0x05;
    /// Schemas, channels and messages, optionally compressed.
    pub const CHUNK: u8 = 0x06;
    /// Offsets of one channel's messages in the preceding chunk.
    pub const MESSAGE_INDEX: u8 = 0x07;
    /// Offset and lengths of a chunk.
    pub const CHUNK_INDEX: u8 = 0x08;
    /// A file inside the file.
    pub(crate) const ATTACHMENT: u8 = 0x09;
    /// Offset of an attachment.
    pub(crate) const ATTACHMENT_INDEX: u8 = 0x0a;
    /// Counts and times.
    pub const STATISTICS: u8 = 0x0b;
    /// A named map of texts.
    pub(crate) const METADATA: u8 = 0x0c;
    /// Offset of a metadata record.
    pub const METADATA_INDEX: u8 = 0x0d;
    /// Offset of the summary's records of one kind.
    pub(crate) const SUMMARY_OFFSET: u8 = 0x0e;
    /// Separates data and summary.
    pub const DATA_END: u8 = 0x0f;
    /// Ours, in the head of a file that is being written: points to the last checkpoint.
    pub(crate) const ANCHOR: u8 = 0x80;
    /// Ours: the index since the previous checkpoint.
    pub(crate) const CHECKPOINT: u8 = 0x81;
    /// Ours: a torn chunk that must no longer be read.
    pub(crate) const TORN: u8 = 0x82;
}

/// Texts by key, in key order in the file.
pub(crate) type StringMap = BTreeMap<String, String>;

/// Bytes that violate the format; the offset is relative to the body that was parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of the record: expected {expected}, found {found}")]
pub struct FormatError {
    /// Offset in the body.
    pub offset: usize,
    /// The bytes that the format requires there.
    pub expected: String,
    /// The bytes found there.
    pub found: String,
}

/// Body of the header record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `ros2` for bags of ROS 2.
    pub profile: String,
    /// The program that wrote the file.
    pub library: String,
}

/// Body of the footer record; zero for a section or checksum that the file does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Offset of the summary in the file.
    pub summary_start: u64,
    /// Offset of the summary offsets in the file.
    pub summary_offset_start: u64,
    /// CRC-32 from the summary's start through `summary_offset_start` of this record.
    pub summary_crc: u32,
}

/// Body of a schema record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema<'a> {
    /// Not zero: zero in a channel means "no schema".
    pub id: u16,
    /// ROS type.
    pub name: Cow<'a, str>,
    /// `ros2msg`, `ros2idl`, or `unknown`.
    pub encoding: Cow<'a, str>,
    /// The definition's text.
    pub data: Cow<'a, [u8]>,
}

/// Body of a channel record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// Number in this file.
    pub id: u16,
    /// The schema's number, zero for none.
    pub schema_id: u16,
    /// Topic name.
    pub topic: String,
    /// `cdr` for ROS 2.
    pub message_encoding: String,
    /// `offered_qos_profiles`, `topic_type_hash`.
    pub metadata: StringMap,
}

/// Body of a message record before its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageHeader {
    /// The channel's number.
    pub channel_id: u16,
    /// Sequence number, zero when unknown.
    pub sequence: u32,
    /// Reception time in nanoseconds.
    pub log_time: u64,
    /// Send time in nanoseconds.
    pub publish_time: u64,
}

/// Body of a chunk record before its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader<'a> {
    /// Smallest log time, zero without messages.
    pub message_start_time: u64,
    /// Largest log time, zero without messages.
    pub message_end_time: u64,
    /// Length of the records before compression.
    pub uncompressed_size: u64,
    /// CRC-32 of the decompressed records, zero for none.
    pub uncompressed_crc: u32,
    /// `lz4`, `zstd`, or empty.
    pub compression: Cow<'a, str>,
    /// Length of the records in the file.
    pub compressed_size: u64,
}

/// Body of a message index record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageIndex {
    /// The channel's number.
    pub channel_id: u16,
    /// Log time, and offset of the message record in the decompressed chunk.
    pub entries: Vec<(u64, u64)>,
}

/// Body of a chunk index record. A long file has many: where only offsets are read, they are a list, `Vec<(u16, u64)>`, in the order of the
/// record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkIndex<Offsets = BTreeMap<u16, u64>> {
    /// Smallest log time, zero without messages.
    pub message_start_time: u64,
    /// Largest log time, zero without messages.
    pub message_end_time: u64,
    /// Offset of the chunk record in the file.
    pub chunk_start_offset: u64,
    /// Length of the chunk record, including opcode and length.
    pub chunk_length: u64,
    /// Offset of each channel's message index record in the file.
    pub message_index_offsets: Offsets,
    /// Length of all message index records after the chunk.
    pub message_index_length: u64,
    /// `lz4`, `zstd`, or empty.
    pub compression: String,
    /// Length of the records in the file.
    pub compressed_size: u64,
    /// Length of the records before compression.
    pub uncompressed_size: u64,
}

/// Body of an attachment record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// Recording time in nanoseconds.
    pub log_time: u64,
    /// Creation time in nanoseconds, zero when unknown.
    pub create_time: u64,
    /// File name.
    pub name: Cow<'a, str>,
    /// Media type.
    pub media_type: Cow<'a, str>,
    /// The bytes.
    pub data: Cow<'a, [u8]>,
    /// CRC-32 of all preceding fields of the body, zero for none.
    pub crc: u32,
}

/// Body of an attachment index record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentIndex {
    /// Offset of the attachment record in the file.
    pub offset: u64,
    /// Its length, including opcode and length.
    pub length: u64,
    /// Recording time.
    pub log_time: u64,
    /// Creation time.
    pub create_time: u64,
    /// Length of its data.
    pub data_size: u64,
    /// File name.
    pub name: String,
    /// Media type.
    pub media_type: String,
}

/// Body of the statistics record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages in the file.
    pub message_count: u64,
    /// Number of schemas.
    pub schema_count: u16,
    /// Number of channels.
    pub channel_count: u32,
    /// Number of attachments.
    pub attachment_count: u32,
    /// Number of metadata records.
    pub metadata_count: u32,
    /// Number of chunks.
    pub chunk_count: u32,
    /// Smallest log time, zero without messages.
    pub message_start_time: u64,
    /// Largest log time, zero without messages.
    pub message_end_time: u64,
    /// Messages by channel number.
    pub channel_message_counts: BTreeMap<u16, u64>,
}

/// Body of a metadata record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Name of the record.
    pub name: String,
    /// The texts.
    pub metadata: StringMap,
}

/// Body of a metadata index record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataIndex {
    /// Offset of the metadata record in the file.
    pub offset: u64,
    /// Its length, including opcode and length.
    pub length: u64,
    /// Its name.
    pub name: String,
}

/// Body of a summary offset record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryOffset {
    /// Opcode of the group's records.
    pub group_opcode: u8,
    /// Offset of the first one in the file.
    pub group_start: u64,
    /// Length of all of them.
    pub group_length: u64,
}

/// A record of any kind; large parts are borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// First record.
    Header(Header),
    /// Last record.
    Footer(Footer),
    /// A message definition.
    Schema(Schema<'a>),
    /// A topic.
    Channel(Channel),
    /// A message: header and payload.
    Message(MessageHeader, &'a [u8]),
    /// A chunk: header, and its records as stored in the file.
    Chunk(ChunkHeader<'a>, &'a [u8]),
    /// Offsets of messages.
    MessageIndex(MessageIndex),
    /// Offset of a chunk.
    ChunkIndex(ChunkIndex),
    /// A file inside the file.
    Attachment(Attachment<'a>),
    /// Offset of an attachment.
    AttachmentIndex(AttachmentIndex),
    /// Counts and times.
    Statistics(Statistics),
    /// Named texts.
    Metadata(Metadata),
    /// Offset of a metadata record.
    MetadataIndex(MetadataIndex),
    /// Offset of the records of one kind.
    SummaryOffset(SummaryOffset),
    /// CRC-32 of the file from its start to this record, zero for none.
    DataEnd(u32),
    /// A record of an unknown opcode, to be skipped.
    Unknown(u8),
}

/// A record's name.
pub(crate) fn kind(opcode: u8) -> &'static str {
    match opcode {
        op::HEADER => "header",
        op::FOOTER => "footer",
        op::SCHEMA => "schema",
        op::CHANNEL => "channel",
        op::MESSAGE => "message",
        op::CHUNK => "chunk",
        op::MESSAGE_INDEX => "message index",
        op::CHUNK_INDEX => "chunk index",
        op::ATTACHMENT => "attachment",
        op::ATTACHMENT_INDEX => "attachment index",
        op::STATISTICS => "statistics",
        op::METADATA => "metadata",
        op::METADATA_INDEX => "metadata index",
        op::SUMMARY_OFFSET => "summary offset",
        op::DATA_END => "data end",
        _ => "unknown",
    }
}
