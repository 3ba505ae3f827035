//! MCAP records to the byte: what each looks like in memory, how it is written and how it is read.
//!
//! After the MCAP specification, version 0 (<https://mcap.dev/spec>): every record is an opcode, a 64-bit length and a body; numbers
//! are little-endian; bytes at the end of a body that the reader does not know are skipped.

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

impl ChunkHeader<'_> {
    /// Bytes of the record before its records field's content.
    pub fn prefix_bytes(&self) -> usize {
        RECORD_PREFIX_BYTES + 8 + 8 + 8 + 4 + 4 + self.compression.len() + 8
    }

    /// Writes opcode, length and everything before the records.
    pub fn encode_prefix(&self, out: &mut Vec<u8>) {
        out.push(op::CHUNK);
        let body_bytes = (self.prefix_bytes() - RECORD_PREFIX_BYTES) as u64 + self.compressed_size;
        put_u64(out, body_bytes);
        put_u64(out, self.message_start_time);
        put_u64(out, self.message_end_time);
        put_u64(out, self.uncompressed_size);
        put_u32(out, self.uncompressed_crc);
        put_str(out, &self.compression);
        put_u64(out, self.compressed_size);
    }
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

// ---- writing ----

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// A text or array with its 32-bit length; what is beyond 4 GiB cannot be told and is cut.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    put_u32(out, len);
    out.extend_from_slice(&bytes[..len as usize]);
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_sized(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_u32(out, 0);
    fill(out);
    let len = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

fn put_map(out: &mut Vec<u8>, map: &StringMap) {
    put_sized(out, |out| {
        for (key, value) in map {
            put_str(out, key);
            put_str(out, value);
        }
    });
}

/// Appends a record: opcode, the length of what `fill` appends, and that.
pub fn put_record(out: &mut Vec<u8>, opcode: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(opcode);
    let at = out.len();
    put_u64(out, 0);
    fill(out);
    let len = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&len.to_le_bytes());
}

/// The 31 bytes of a message record before its payload.
#[inline]
pub fn message_prefix(header: &MessageHeader, payload_bytes: usize) -> [u8; MESSAGE_PREFIX_BYTES] {
    let mut bytes = [0u8; MESSAGE_PREFIX_BYTES];
    bytes[0] = op::MESSAGE;
    bytes[1..9].copy_from_slice(&((MESSAGE_HEADER_BYTES + payload_bytes) as u64).to_le_bytes());
    bytes[9..11].copy_from_slice(&header.channel_id.to_le_bytes());
    bytes[11..15].copy_from_slice(&header.sequence.to_le_bytes());
    bytes[15..23].copy_from_slice(&header.log_time.to_le_bytes());
    bytes[23..31].copy_from_slice(&header.publish_time.to_le_bytes());
    bytes
}

impl Header {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::HEADER, |out| {
            put_str(out, &self.profile);
            put_str(out, &self.library);
        });
    }
}

impl Footer {
    /// Appends the record without its last field, the checksum that covers these bytes too.
    pub fn encode_without_crc(&self, out: &mut Vec<u8>) {
        out.push(op::FOOTER);
        put_u64(out, 20);
        put_u64(out, self.summary_start);
        put_u64(out, self.summary_offset_start);
    }
}

impl Schema<'_> {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::SCHEMA, |out| {
            put_u16(out, self.id);
            put_str(out, &self.name);
            put_str(out, &self.encoding);
            put_bytes(out, &self.data);
        });
    }
}

impl Channel {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::CHANNEL, |out| {
            put_u16(out, self.id);
            put_u16(out, self.schema_id);
            put_str(out, &self.topic);
            put_str(out, &self.message_encoding);
            put_map(out, &self.metadata);
        });
    }
}

impl ChunkIndex {
    /// Appends the record; the channels' offsets come from `offsets`, in channel order.
    pub fn encode(&self, out: &mut Vec<u8>, offsets: impl Iterator<Item = (u16, u64)>) {
        put_record(out, op::CHUNK_INDEX, |out| {
            put_u64(out, self.message_start_time);
            put_u64(out, self.message_end_time);
            put_u64(out, self.chunk_start_offset);
            put_u64(out, self.chunk_length);
            put_sized(out, |out| {
                for (channel_id, offset) in offsets {
                    put_u16(out, channel_id);
                    put_u64(out, offset);
                }
            });
            put_u64(out, self.message_index_length);
            put_str(out, &self.compression);
            put_u64(out, self.compressed_size);
            put_u64(out, self.uncompressed_size);
        });
    }
}

impl Statistics {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::STATISTICS, |out| {
            put_u64(out, self.message_count);
            put_u16(out, self.schema_count);
            put_u32(out, self.channel_count);
            put_u32(out, self.attachment_count);
            put_u32(out, self.metadata_count);
            put_u32(out, self.chunk_count);
            put_u64(out, self.message_start_time);
            put_u64(out, self.message_end_time);
            put_sized(out, |out| {
                for (channel_id, count) in &self.channel_message_counts {
                    put_u16(out, *channel_id);
                    put_u64(out, *count);
                }
            });
        });
    }
}

/// Appends a metadata record.
pub fn encode_metadata(out: &mut Vec<u8>, name: &str, metadata: &StringMap) {
    put_record(out, op::METADATA, |out| {
        put_str(out, name);
        put_map(out, metadata);
    });
}

impl MetadataIndex {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::METADATA_INDEX, |out| {
            put_u64(out, self.offset);
            put_u64(out, self.length);
            put_str(out, &self.name);
        });
    }
}

impl SummaryOffset {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_record(out, op::SUMMARY_OFFSET, |out| {
            out.push(self.group_opcode);
            put_u64(out, self.group_start);
            put_u64(out, self.group_length);
        });
    }
}

/// Appends a data end record.
pub fn encode_data_end(out: &mut Vec<u8>, data_section_crc: u32) {
    put_record(out, op::DATA_END, |out| put_u32(out, data_section_crc));
}

// ---- reading ----

/// Walks over the bytes of one body.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Begins at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where the walk is.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The next `count` bytes, which are `what`.
    ///
    /// # Errors
    /// Fewer are left.
    pub fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], FormatError> {
        let left = self.bytes.len() - self.at;
        if count > left {
            return Err(FormatError {
                offset: self.at,
                expected: format!("{count} bytes of {what}"),
                found: format!("{left} bytes"),
            });
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u8(&mut self, what: &str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(what)?[0])
    }

    fn u16(&mut self, what: &str) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn sized(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let count = self.u32(what)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), what)
    }

    fn sized64(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        let count = self.u64(what)?;
        self.take(usize::try_from(count).unwrap_or(usize::MAX), what)
    }

    fn str(&mut self, what: &str) -> Result<&'a str, FormatError> {
        let at = self.at;
        std::str::from_utf8(self.sized(what)?).map_err(|error| FormatError {
            offset: at,
            expected: format!("UTF-8 text as {what}"),
            found: error.to_string(),
        })
    }

    fn map(&mut self, what: &str) -> Result<StringMap, FormatError> {
        let mut inner = Fields::new(self.sized(what)?);
        let mut map = StringMap::new();
        while inner.at < inner.bytes.len() {
            let (key, value) = (inner.str(what)?, inner.str(what)?);
            map.insert(key.to_owned(), value.to_owned());
        }
        Ok(map)
    }

    fn id_map(&mut self, what: &str) -> Result<BTreeMap<u16, u64>, FormatError> {
        let mut inner = Fields::new(self.sized(what)?);
        let mut map = BTreeMap::new();
        while inner.at < inner.bytes.len() {
            let (id, value) = (inner.u16(what)?, inner.u64(what)?);
            map.insert(id, value);
        }
        Ok(map)
    }

    /// What is left.
    pub fn rest(self) -> &'a [u8] {
        &self.bytes[self.at..]
    }
}

impl MessageHeader {
    /// Reads the 22 bytes before a payload.
    ///
    /// # Errors
    /// Fewer bytes.
    pub fn decode(fields: &mut Fields<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            channel_id: fields.u16("channel id")?,
            sequence: fields.u32("sequence")?,
            log_time: fields.u64("log time")?,
            publish_time: fields.u64("publish time")?,
        })
    }
}

impl<'a> ChunkHeader<'a> {
    /// Reads everything before the records; the walk stands at the records then.
    ///
    /// # Errors
    /// Fewer bytes, or a compression that is no text.
    pub fn decode(fields: &mut Fields<'a>) -> Result<Self, FormatError> {
        Ok(Self {
            message_start_time: fields.u64("message start time")?,
            message_end_time: fields.u64("message end time")?,
            uncompressed_size: fields.u64("uncompressed size")?,
            uncompressed_crc: fields.u32("uncompressed crc")?,
            compression: fields.str("compression")?.into(),
            compressed_size: fields.u64("records length")?,
        })
    }
}

impl<'a> Record<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// Fewer bytes than the kind has, or texts that are not UTF-8.
    pub fn decode(opcode: u8, body: &'a [u8]) -> Result<Self, FormatError> {
        let f = &mut Fields::new(body);
        Ok(match opcode {
            op::HEADER => Self::Header(Header {
                profile: f.str("profile")?.into(),
                library: f.str("library")?.into(),
            }),
            op::FOOTER => Self::Footer(Footer {
                summary_start: f.u64("summary start")?,
                summary_offset_start: f.u64("summary offset start")?,
                summary_crc: f.u32("summary crc")?,
            }),
            op::SCHEMA => Self::Schema(Schema {
                id: f.u16("schema id")?,
                name: f.str("schema name")?.into(),
                encoding: f.str("schema encoding")?.into(),
                data: f.sized("schema data")?.into(),
            }),
            op::CHANNEL => Self::Channel(Channel {
                id: f.u16("channel id")?,
                schema_id: f.u16("schema id")?,
                topic: f.str("topic")?.into(),
                message_encoding: f.str("message encoding")?.into(),
                metadata: f.map("channel metadata")?,
            }),
            op::MESSAGE => {
                let header = MessageHeader::decode(f)?;
                Self::Message(header, f.rest())
            }
            op::CHUNK => {
                let header = ChunkHeader::decode(f)?;
                let count = usize::try_from(header.compressed_size).unwrap_or(usize::MAX);
                Self::Chunk(header, f.take(count, "chunk records")?)
            }
            op::MESSAGE_INDEX => Self::MessageIndex(Self::message_index(f)?),
            op::CHUNK_INDEX => Self::ChunkIndex(Self::chunk_index(f)?),
            op::ATTACHMENT => Self::Attachment(Self::attachment(f)?),
            op::ATTACHMENT_INDEX => Self::AttachmentIndex(AttachmentIndex {
                offset: f.u64("attachment offset")?,
                length: f.u64("attachment length")?,
                log_time: f.u64("log time")?,
                create_time: f.u64("create time")?,
                data_size: f.u64("data size")?,
                name: f.str("attachment name")?.into(),
                media_type: f.str("media type")?.into(),
            }),
            op::STATISTICS => Self::Statistics(Self::statistics(f)?),
            op::METADATA => Self::Metadata(Metadata {
                name: f.str("metadata name")?.into(),
                metadata: f.map("metadata")?,
            }),
            op::METADATA_INDEX => Self::MetadataIndex(MetadataIndex {
                offset: f.u64("metadata offset")?,
                length: f.u64("metadata length")?,
                name: f.str("metadata name")?.into(),
            }),
            op::SUMMARY_OFFSET => Self::SummaryOffset(SummaryOffset {
                group_opcode: f.u8("group opcode")?,
                group_start: f.u64("group start")?,
                group_length: f.u64("group length")?,
            }),
            op::DATA_END => Self::DataEnd(f.u32("data section crc")?),
            other => Self::Unknown(other),
        })
    }

    fn message_index(f: &mut Fields<'a>) -> Result<MessageIndex, FormatError> {
        let channel_id = f.u16("channel id")?;
        let mut inner = Fields::new(f.sized("message index")?);
        let mut entries = Vec::with_capacity(inner.bytes.len() / INDEX_ENTRY_BYTES);
        while inner.at < inner.bytes.len() {
            entries.push((inner.u64("log time")?, inner.u64("message offset")?));
        }
        Ok(MessageIndex { channel_id, entries })
    }

    fn chunk_index(f: &mut Fields<'a>) -> Result<ChunkIndex, FormatError> {
        Ok(ChunkIndex {
            message_start_time: f.u64("message start time")?,
            message_end_time: f.u64("message end time")?,
            chunk_start_offset: f.u64("chunk start offset")?,
            chunk_length: f.u64("chunk length")?,
            message_index_offsets: f.id_map("message index offsets")?,
            message_index_length: f.u64("message index length")?,
            compression: f.str("compression")?.into(),
            compressed_size: f.u64("compressed size")?,
            uncompressed_size: f.u64("uncompressed size")?,
        })
    }

    fn attachment(f: &mut Fields<'a>) -> Result<Attachment<'a>, FormatError> {
        Ok(Attachment {
            log_time: f.u64("log time")?,
            create_time: f.u64("create time")?,
            name: f.str("attachment name")?.into(),
            media_type: f.str("media type")?.into(),
            data: f.sized64("attachment data")?.into(),
            crc: f.u32("attachment crc")?,
        })
    }

    fn statistics(f: &mut Fields<'a>) -> Result<Statistics, FormatError> {
        Ok(Statistics {
            message_count: f.u64("message count")?,
            schema_count: f.u16("schema count")?,
            channel_count: f.u32("channel count")?,
            attachment_count: f.u32("attachment count")?,
            metadata_count: f.u32("metadata count")?,
            chunk_count: f.u32("chunk count")?,
            message_start_time: f.u64("message start time")?,
            message_end_time: f.u64("message end time")?,
            channel_message_counts: f.id_map("channel message counts")?,
        })
    }
}

/// A record whose body is not yet parsed: opcode and body.
pub type RawRecord<'a> = (u8, &'a [u8]);

/// Takes the next record off the front of `bytes`; `None` at the end.
///
/// # Errors
/// The record is cut off.
pub fn take_record<'a>(bytes: &mut &'a [u8]) -> Result<Option<RawRecord<'a>>, FormatError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let fields = &mut Fields::new(bytes);
    let opcode = fields.u8("opcode")?;
    let body = fields.sized64("record")?;
    *bytes = fields.rest();
    Ok(Some((opcode, body)))
}
