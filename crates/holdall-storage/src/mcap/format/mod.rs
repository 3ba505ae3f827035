//! MCAP records to the byte: what each looks like in memory, how it is written and how it is read.
//!
//! After the MCAP specification, version 0 (<https://mcap.dev/spec>): every record is an opcode, a 64-bit length and a body; numbers
//! are little-endian; bytes at the end of a body that the reader does not know are skipped.

pub mod checkpoint;
mod decode;
mod encode;

pub use decode::{Fields, RawRecord, take_record};
pub use encode::{encode_data_end, encode_message_index, encode_metadata, message_prefix, put_record};

use std::{borrow::Cow, collections::BTreeMap};

/// First and last eight bytes of every file.
pub const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', 0x30, b'\r', b'\n'];
/// Bytes of opcode and length before each body.
pub const RECORD_PREFIX_BYTES: usize = 9;
/// Bytes of a message's body before its payload.
pub const MESSAGE_HEADER_BYTES: usize = 22;
/// Bytes of a message record before its payload.
pub const MESSAGE_PREFIX_BYTES: usize = RECORD_PREFIX_BYTES + MESSAGE_HEADER_BYTES;
/// Bytes of the footer record and the magic behind it.
pub const FOOTER_AND_MAGIC_BYTES: usize = RECORD_PREFIX_BYTES + 20 + MAGIC.len();
/// Bytes of one entry of a message index: log time and offset.
pub const INDEX_ENTRY_BYTES: usize = 16;
/// Bytes of a message index record before its entries: prefix, channel, length of the array.
pub const INDEX_PREFIX_BYTES: usize = RECORD_PREFIX_BYTES + 2 + 4;

/// Opcodes of the records.
pub mod op {
    /// First record of the file.
    pub const HEADER: u8 = 0x01;
    /// Last record of the file.
    pub const FOOTER: u8 = 0x02;
    /// A message definition.
    pub const SCHEMA: u8 = 0x03;
    /// A topic.
    pub const CHANNEL: u8 = 0x04;
    /// A message.
    pub const MESSAGE: u8 = 0x05;
    /// Schemas, channels and messages, maybe compressed.
    pub const CHUNK: u8 = 0x06;
    /// Where the messages of one channel are in the chunk before.
    pub const MESSAGE_INDEX: u8 = 0x07;
    /// Where a chunk is.
    pub const CHUNK_INDEX: u8 = 0x08;
    /// A file inside the file.
    pub const ATTACHMENT: u8 = 0x09;
    /// Where an attachment is.
    pub const ATTACHMENT_INDEX: u8 = 0x0a;
    /// Counts and times.
    pub const STATISTICS: u8 = 0x0b;
    /// A named map of texts.
    pub const METADATA: u8 = 0x0c;
    /// Where a metadata record is.
    pub const METADATA_INDEX: u8 = 0x0d;
    /// Where the records of one kind are in the summary.
    pub const SUMMARY_OFFSET: u8 = 0x0e;
    /// Between data and summary.
    pub const DATA_END: u8 = 0x0f;
    /// Ours, at the head of a file that is being written: points to the last checkpoint.
    pub const ANCHOR: u8 = 0x80;
    /// Ours: the index since the checkpoint before.
    pub const CHECKPOINT: u8 = 0x81;
    /// Ours: a chunk that was torn and is not to be read any more.
    pub const TORN: u8 = 0x82;
}

/// Texts by key; in the file in key order.
pub type StringMap = BTreeMap<String, String>;

/// Bytes that are not what the format wants; the place is relative to the body that was parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of the record: expected {expected}, found {found}")]
pub struct FormatError {
    /// Where in the body.
    pub offset: usize,
    /// What the format wants there.
    pub expected: String,
    /// What is there.
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

/// Body of the footer record; zero where there is no such section or checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Where the summary begins in the file.
    pub summary_start: u64,
    /// Where the summary offsets begin in the file.
    pub summary_offset_start: u64,
    /// CRC-32 from the summary's start through `summary_offset_start` of this record.
    pub summary_crc: u32,
}

/// Body of a schema record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema<'a> {
    /// Not zero; zero in a channel is "no schema".
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
    /// Sequence number, zero where not known.
    pub sequence: u32,
    /// When it was received, nanoseconds.
    pub log_time: u64,
    /// When it was sent, nanoseconds.
    pub publish_time: u64,
}

/// Body of a chunk record before its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader<'a> {
    /// Smallest log time, zero without messages.
    pub message_start_time: u64,
    /// Largest log time, zero without messages.
    pub message_end_time: u64,
    /// Length of the records when decompressed.
    pub uncompressed_size: u64,
    /// CRC-32 of the decompressed records, zero for none.
    pub uncompressed_crc: u32,
    /// `lz4`, `zstd`, or empty.
    pub compression: Cow<'a, str>,
    /// Length of the records as they are in the file.
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

/// Body of a chunk index record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkIndex {
    /// Smallest log time, zero without messages.
    pub message_start_time: u64,
    /// Largest log time, zero without messages.
    pub message_end_time: u64,
    /// Where the chunk record begins in the file.
    pub chunk_start_offset: u64,
    /// Length of the chunk record with opcode and length.
    pub chunk_length: u64,
    /// Where the message index record of each channel is in the file.
    pub message_index_offsets: BTreeMap<u16, u64>,
    /// Length of all message index records behind the chunk.
    pub message_index_length: u64,
    /// `lz4`, `zstd`, or empty.
    pub compression: String,
    /// Length of the records as they are in the file.
    pub compressed_size: u64,
    /// Length of the records when decompressed.
    pub uncompressed_size: u64,
}

/// Body of an attachment record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// When it was recorded, nanoseconds.
    pub log_time: u64,
    /// When it was made, nanoseconds, zero where not known.
    pub create_time: u64,
    /// File name.
    pub name: Cow<'a, str>,
    /// Media type.
    pub media_type: Cow<'a, str>,
    /// The bytes.
    pub data: Cow<'a, [u8]>,
    /// CRC-32 of everything before in the body, zero for none.
    pub crc: u32,
}

/// Body of an attachment index record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentIndex {
    /// Where the attachment record begins in the file.
    pub offset: u64,
    /// Its length with opcode and length.
    pub length: u64,
    /// When it was recorded.
    pub log_time: u64,
    /// When it was made.
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
    /// Different schemas.
    pub schema_count: u16,
    /// Different channels.
    pub channel_count: u32,
    /// Attachments.
    pub attachment_count: u32,
    /// Metadata records.
    pub metadata_count: u32,
    /// Chunks.
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
    /// Where the metadata record begins in the file.
    pub offset: u64,
    /// Its length with opcode and length.
    pub length: u64,
    /// Its name.
    pub name: String,
}

/// Body of a summary offset record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryOffset {
    /// Which records.
    pub group_opcode: u8,
    /// Where the first begins in the file.
    pub group_start: u64,
    /// Length of all.
    pub group_length: u64,
}

/// A record of any kind; big parts are borrowed.
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
    /// A chunk: header and records as they are in the file.
    Chunk(ChunkHeader<'a>, &'a [u8]),
    /// Where messages are.
    MessageIndex(MessageIndex),
    /// Where a chunk is.
    ChunkIndex(ChunkIndex),
    /// A file inside the file.
    Attachment(Attachment<'a>),
    /// Where an attachment is.
    AttachmentIndex(AttachmentIndex),
    /// Counts and times.
    Statistics(Statistics),
    /// Named texts.
    Metadata(Metadata),
    /// Where a metadata record is.
    MetadataIndex(MetadataIndex),
    /// Where the records of one kind are.
    SummaryOffset(SummaryOffset),
    /// CRC-32 of everything from the file's start to this record, zero for none.
    DataEnd(u32),
    /// A record this program does not know: to be skipped.
    Unknown(u8),
}
